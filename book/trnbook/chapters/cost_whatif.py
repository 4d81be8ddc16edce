"""An interactive chart of the cost per token: sliders for the chip's price and watts and the share of ideal.

The page holds, for each question and system, the chip-seconds per token on ideal software, the shares of ideal that
public and hand-tuned software reach, and an owner's hour as a line over price and watts. The rest is arithmetic in the
page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trnbook.charts import language
from trnbook.charts.explorers import GREY, INK, LINE, _choose, _finished, _log, _text_mark
from trnbook.charts.plot import ROOM
from trnbook.charts.tables import check, rounded
from trnbook.shared.software_kinds import ORDER
from trnmodel.arguments import TINY, number
from trnmodel.catalog.systems import system as read_system
from trnmodel.units import HOUR, MILLION

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

COLUMNS = [
    *("case", "system", "ideal_chip_s", "public_share", "hand_tuned_share"),
    *("base_usd_per_h", "usd_per_h_per_usd", "usd_per_h_per_w", "usd_per_h"),
]
FOOT = 130  # from the axis to the captions, below the legend. [px]
MTOKEN_H = MILLION / HOUR
DIGITS = "',.2~r'"


def what_if(
    frame: pd.DataFrame, choices: Sequence[str], *, chip_usd: float, tdp_w: float, caption: str, under: str = ""
) -> alt.LayerChart:
    """Return a chart of $ per million tokens of each system by software; menus choose question and system.

    Two sliders set the price and the watts of the chosen system's chip; the other systems keep theirs. A third slider
    sets the share of ideal that its software reaches, drawn as a diamond with a rule across the other systems.

    Parameters
    ----------
    frame : pandas.DataFrame
        case, system, ideal_chip_s (of a generated token with its prompt), public_share and hand_tuned_share (of ideal;
        0 where too slow), an owner's hour (usd_per_h), and the same hour as a line: base_usd_per_h, usd_per_h_per_usd,
        usd_per_h_per_w.
    choices : sequence of str
        Systems that can be chosen. [-]
    chip_usd, tdp_w : float
        Initial values of the sliders. [USD, W]
    """
    check(frame, caption, under=under, needed=COLUMNS)
    cases, names = list(dict.fromkeys(frame.case)), [name for name in choices if name in set(frame.system)]
    params = [
        _choose("question", cases, "Question"),
        _choose("own", [str(language.called(one)) for one in names], "System that moves"),
        _slide("price", number("chip_usd", chip_usd, 0.0), 0, 50_000, 250, "Price of its chip [USD]"),
        _slide("watts", number("tdp_w", tdp_w, TINY), 100, 2000, 25, "TDP of its chip [W]"),
        _slide("share", 30, 1, 100, 1, "Share of ideal [%]"),
    ]
    rows = frame.assign(
        at=frame.case.map(cases.index),
        mine=frame.system.map({name: place for place, name in enumerate(names)}).fillna(-1),
        name=frame.system.map(language.called),
    )
    one = _costs(rows)
    place = {
        "x": _log(alt.X, "x", "A million generated tokens [USD]", padding=ROOM),
        "y": alt.Y(field="name", type="nominal", axis=None, sort=list(dict.fromkeys(rows.name))),
    }
    return _finished(alt.layer(*_drawn(one, place), alt.layer(*_captions(one))).add_params(*params), caption, under)


def _costs(rows: pd.DataFrame) -> Any:
    """Return the chart's rows for the chosen question: the chosen system and the fixed ones, on ideal software."""
    values = rows[["at", "mine", "name", *COLUMNS[2:]]].map(lambda x: rounded(x) if isinstance(x, float) else x)
    moved = "datum.base_usd_per_h + price * datum.usd_per_h_per_usd + watts * datum.usd_per_h_per_w"
    one = alt.Chart(alt.InlineData(values=values.to_dict("records"))).transform_filter("datum.at == question")
    one = one.transform_filter("datum.mine < 0 || datum.mine == own")
    one = one.transform_calculate(hour=f"datum.mine == own ? {moved} : datum.usd_per_h")
    return one.transform_calculate(ideal=f"datum.hour * datum.ideal_chip_s * {MTOKEN_H!r}")


def _drawn(one: Any, place: Mapping[str, Any]) -> list[Any]:
    """Return the layers: a line per system with each kind of software, and the chosen system at the slider's share."""
    kinds = [name for name in ORDER if name != "ideal"]
    said = one.transform_calculate(ideal_share="1").transform_fold([*COLUMNS[3:5], "ideal_share"], as_=["kind", "of"])
    said = said.transform_filter("datum.of > 0").transform_calculate(
        x="datum.ideal / datum.of",
        said="replace(replace(datum.kind, '_share', ''), '_', '-')",
        usd=f"format(datum.ideal / datum.of, {DIGITS}) + ' USD'",
        part="format(datum.of, '.2~p')",
    )
    titles = {"name": "System", "said": "Software", "part": "Share of ideal", "usd": "A million generated tokens"}
    tip = [alt.Tooltip(field=name, type="nominal", title=title) for name, title in titles.items()]
    looks = {"domain": [*kinds, "ideal"], "range": language.colours([*kinds, "ideal"])}
    colour = alt.Color(field="said", type="nominal", title=None, scale=looks, legend=alt.Legend(orient="bottom"))
    own = one.transform_filter("datum.mine == own").transform_calculate(x="datum.ideal / (share / 100)")
    names = {"align": "left", "dy": -14, "fontSize": 13, "color": INK, "limit": {"expr": "width"}}
    return [
        one.mark_text(**names).encode(y=place["y"], x=alt.value(0), text=alt.Text(field="name", type="nominal")),
        said.mark_line(color=GREY, strokeWidth=2).encode(**place, detail=alt.Detail(field="name", type="nominal")),
        said.mark_point(filled=True, size=90, opacity=1).encode(**place, color=colour, tooltip=tip),
        own.mark_rule(color=GREY, strokeDash=[4, 3], strokeWidth=1.5).encode(x=place["x"]),
        own.mark_point(shape="diamond", size=260, strokeWidth=2.5, color=INK, filled=False).encode(**place),
    ]


def _slide(name: str, value: float, low: float, high: float, step: float, title: str) -> Any:
    start = min(max(round(value / step) * step, low), high)
    return alt.param(name=name, value=start, bind=alt.binding_range(min=low, max=high, step=step, name=f"{title} "))


def _captions(one: Any) -> list[Any]:
    """Return the texts below the chart: the chosen system's token cost, its hour, and where it ties."""
    mine = one.transform_filter("datum.mine == own")
    kinds = [f"(datum.{name} > 0 ? format(datum.{name}, '.2~p') : 'too slow')" for name in COLUMNS[3:5]]
    said = [
        f"'at ' + share + '% of ideal; an hour is ' + format(datum.hour, {DIGITS}) + ' USD'",
        f"'public ' + {kinds[0]} + ', hand-tuned ' + {kinds[1]} + ' of ideal'",
    ]
    rival = "datum.mine == own || !(datum.hand_tuned_share > 0) ? null : datum.ideal / datum.hand_tuned_share"
    both = one.transform_calculate(tuned=rival).transform_joinaggregate(least="min(tuned)")
    tie = "datum.ideal / datum.least"
    level = (
        "!isValid(datum.least) ? 'no other is as fast, hand-tuned' : "
        f"{tie} > 1 ? 'dearer than the best other, hand-tuned, at any share' : "
        f"'level with the best other, hand-tuned, at ' + format({tie}, '.2~p')"
    )
    texts = [
        (mine, f"format(datum.ideal / (share / 100), {DIGITS}) + ' USD a million generated tokens'", 0, 22),
        (mine, " + '\\n' + ".join(f"({line})" for line in said), 28, 14),
        (both.transform_filter("datum.mine == own"), level, 28 + LINE * len(said), 14),
    ]
    return [_text_mark(data, text, FOOT + below, size, 0) for data, text, below, size in texts]


def grid(cases: Mapping[str, pd.DataFrame], lines: Mapping[str, tuple[float, float, float]]) -> pd.DataFrame:
    """Return the rows of `what_if` from tables of owners' costs by question and hours as lines by system.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = {"system": "hgx-h100", "software": ["public", "ideal"], "chip_s": [4e-4, 1e-4], "usd_per_chip_h": 2.0}
    >>> costs = pd.DataFrame(columns)
    >>> rows = grid({"q": costs}, {"hgx-h100": (2.0, 0.0, 0.0)})
    >>> rows[["public_share", "hand_tuned_share", "ideal_chip_s"]].iloc[0].tolist()
    [0.25, 0.0, 0.0001]
    """
    import pandas as pd

    rows = []
    for case, table in cases.items():
        for name, some in table.groupby("system", sort=False):
            each = some.set_index("software").chip_s.fillna(math.inf)
            ideal, hour = float(each.get("ideal", math.inf)), float(some.usd_per_chip_h.iloc[0])
            if not math.isfinite(ideal) or math.isnan(hour) or name not in lines:
                continue
            shares = [ideal / float(each.get(kind, math.inf)) for kind in ("public", "hand-tuned")]
            rows.append((case, read_system(str(name)).id, ideal, *shares, *lines[str(name)], hour))
    return pd.DataFrame(rows, columns=COLUMNS)
