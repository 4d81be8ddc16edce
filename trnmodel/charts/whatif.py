"""A chart that a reader asks what a token would cost: sliders for price and watts of a chip and the share of ideal.

The page carries, for each question and system, the chip-seconds of a token on ideal software, what public and
hand-tuned software make of it, and an owner's hour as a line over price and watts: all else is arithmetic in the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import TINY, number
from trnmodel.catalog.systems import system as read_system
from trnmodel.charts import language
from trnmodel.charts.display import altair
from trnmodel.charts.explorers import GREY, LINE, _finished, _lines, _log
from trnmodel.charts.tables import check, rounded
from trnmodel.units import HOUR, MILLION

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

COLUMNS = ("case", "system", "ideal_chip_s", "public_share", "hand_tuned_share", "base_usd_per_h", "usd_per_h_per_usd")
COLUMNS += ("usd_per_h_per_w", "usd_per_h")
LEAST = 0.01  # share of ideal that is drawn
FOOT = 150  # from the axis to what is told, below two legends. [px]
MTOKEN_H = MILLION / HOUR
DIGITS = "',.2~r'"


def what_if(
    frame: pd.DataFrame, asked: Sequence[str], *, chip_usd: float, tdp_w: float, caption: str, under: str = ""
) -> alt.LayerChart:
    """Cost of a million tokens over the share of ideal that software reaches; controls choose question and system.

    The chosen system's hour follows two sliders, its chip's price and watts; others have their own. Dots are public and
    hand-tuned software. A slider or a pointer chooses the share, and what it comes to stands below.

    Parameters
    ----------
    frame : pandas.DataFrame
        case, system, ideal_chip_s (of a mean token), public_share and hand_tuned_share (of ideal; 0 where too slow),
        an owner's hour (usd_per_h) and the same as base_usd_per_h and what a dollar of the chip's price and a watt add.
    asked : sequence of str
        Systems that can be chosen. [-]
    chip_usd, tdp_w : float
        Where the sliders begin. [USD, W]
    """
    check(frame, caption, under=under, needed=COLUMNS)
    alt = altair()
    cases, names = list(dict.fromkeys(frame.case)), [name for name in asked if name in set(frame.system)]
    params = [
        _choose("case", cases, "Question"),
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
    looks = {"domain": list(dict.fromkeys(rows.name)), "range": language.colours(list(dict.fromkeys(rows.system)))}
    place = {
        "x": _log(alt.X, "x", "Share of what ideal software makes of a chip", {"format": "~%"}, domain=[LEAST, 1]),
        "y": _log(alt.Y, "y", "A million tokens [USD]"),
        "color": alt.Color(field="name", type="nominal", title=None, legend=_legend(), scale=looks),
    }
    at = alt.Chart(alt.InlineData(values=[{}])).transform_calculate(x="share / 100")
    rule = at.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=place["x"])
    layers = [*_drawn(one, place), rule, *_told(one)]
    return _finished(alt.layer(*layers).add_params(*params), caption, under)


def _legend() -> Any:
    return altair().Legend(orient="bottom", columns=3)


def _costs(rows: pd.DataFrame) -> Any:
    """Rows of the question: the chosen system and those that do not move, with hour and cost on ideal software."""
    alt = altair()
    kept = rows[["at", "mine", "name", *COLUMNS[2:]]].map(lambda x: rounded(x) if isinstance(x, float) else x)
    moved = "datum.base_usd_per_h + price * datum.usd_per_h_per_usd + watts * datum.usd_per_h_per_w"
    one = alt.Chart(alt.InlineData(values=kept.to_dict("records"))).transform_filter("datum.at == case")
    one = one.transform_filter("datum.mine < 0 || datum.mine == own")
    one = one.transform_calculate(hour=f"datum.mine == own ? {moved} : datum.usd_per_h")
    return one.transform_calculate(ideal=f"datum.hour * datum.ideal_chip_s * {MTOKEN_H!r}")


def _drawn(one: Any, place: Mapping[str, Any]) -> list[Any]:
    """A line for each system over the share of ideal, with what software there is as dots."""
    alt = altair()
    ends = one.transform_calculate(both=f"[{LEAST}, 1]").transform_flatten(["both"], ["x"])
    wide = alt.condition("datum.mine == own", alt.value(3.5), alt.value(1.2))
    lines = ends.transform_calculate(y="datum.ideal / datum.x").mark_line()
    dots = one.transform_fold(["public_share", "hand_tuned_share"], as_=["kind", "x"]).transform_filter("datum.x > 0")
    dots = dots.transform_calculate(
        y="datum.ideal / datum.x",
        said="datum.kind == 'public_share' ? 'public' : 'hand-tuned'",
        usd=f"format(datum.ideal / datum.x, {DIGITS}) + ' USD'",
        part="format(datum.x, '.2~p')",
    )
    titles = {"name": "System", "said": "Software", "part": "Share of ideal", "usd": "A million tokens"}
    tip = [alt.Tooltip(field=name, type="nominal", title=title) for name, title in titles.items()]
    shape = alt.Shape(field="said", type="nominal", title=None, legend=_legend())
    detail = alt.Detail(field="name", type="nominal")
    return [
        lines.encode(**place, strokeWidth=wide, detail=detail),
        dots.mark_point(filled=True, size=90, opacity=1).encode(**place, shape=shape, tooltip=tip),
    ]


def _choose(name: str, labels: Sequence[str], title: str) -> Any:
    alt = altair()
    bind = alt.binding_select(options=list(range(len(labels))), labels=list(labels), name=f"{title} ")
    return alt.param(name=name, value=0, bind=bind)


def _slide(name: str, value: float, low: float, high: float, step: float, title: str) -> Any:
    alt = altair()
    start = min(max(round(value / step) * step, low), high)
    return alt.param(name=name, value=start, bind=alt.binding_range(min=low, max=high, step=step, name=f"{title} "))


def _told(one: Any) -> list[Any]:
    """Below the chart: what the chosen system's token costs at the share, its hour, and where it ties with the rest."""
    alt, mine = altair(), one.transform_filter("datum.mine == own")
    kinds = [f"(datum.{name} > 0 ? format(datum.{name}, '.2~p') : 'too slow')" for name in COLUMNS[3:5]]
    said = [
        f"'at ' + share + '% of ideal; an hour is ' + format(datum.hour, {DIGITS}) + ' USD'",
        f"'public ' + {kinds[0]} + ', hand-tuned ' + {kinds[1]} + ' of ideal'",
    ]
    rival = "datum.mine == own || !(datum.hand_tuned_share > 0) ? null : datum.ideal / datum.hand_tuned_share"
    both = one.transform_calculate(tuned=rival).transform_joinaggregate(least="min(tuned)")
    tie = "datum.ideal / datum.least"
    level = (
        "!isValid(datum.least) ? 'no other is as fast on hand-tuned software' : "
        f"{tie} > 1 ? 'dearer than the cheapest other one, hand-tuned, at any share' : "
        f"'level with the cheapest other one, hand-tuned, at ' + format({tie}, '.2~p')"
    )
    texts = [
        (mine, f"format(datum.ideal / (share / 100), {DIGITS}) + ' USD a million tokens'", 0, 22),
        (mine, " + '\\n' + ".join(f"({line})" for line in said), 28, 14),
        (both.transform_filter("datum.mine == own"), level, 28 + LINE * len(said), 14),
    ]
    return [_lines(data.transform_calculate(told=text), alt.expr(f"height + {FOOT + below}"), size)
            for data, text, below, size in texts]  # fmt: skip


def grid(cases: Mapping[str, pd.DataFrame], lines: Mapping[str, tuple[float, float, float]]) -> pd.DataFrame:
    """The rows of `what_if` from tables of an owner's costs by question, and hours as lines by system.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = {"system": "hgx-h100", "software": ["public", "ideal"], "chip_s": [4e-4, 1e-4], "usd_per_chip_h": 2.0}
    >>> costs = pd.DataFrame(columns)
    >>> found = grid({"q": costs}, {"hgx-h100": (2.0, 0.0, 0.0)})
    >>> found[["public_share", "hand_tuned_share", "ideal_chip_s"]].iloc[0].tolist()
    [0.25, 0.0, 0.0001]
    """
    import pandas as pd

    rows = []
    for case, table in cases.items():
        for name, some in table.groupby("system", sort=False):
            each = some.set_index("software").chip_s
            ideal, hour = float(each.get("ideal", math.inf)), float(some.usd_per_chip_h.iloc[0])
            if not math.isfinite(ideal) or math.isnan(hour) or name not in lines:
                continue
            shares = [ideal / float(each.get(kind, math.inf)) for kind in ("public", "hand-tuned")]
            rows.append((case, read_system(str(name)).id, ideal, *shares, *lines[str(name)], hour))
    return pd.DataFrame(rows, columns=list(COLUMNS))
