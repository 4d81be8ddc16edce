"""An interactive chart of the cost per token: sliders for the chip's price and watts and the share of ideal.

The page holds, for each question and system, the chip-seconds per token on ideal software, the shares of ideal that
public and hand-tuned software reach, and an owner's hour as a plane over price and watts. The rest is arithmetic in the
page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trnbook.charts import language
from trnbook.charts.explorers import GREY, INK, LINE, _choose, _finished, _lines, _log
from trnbook.charts.plot import ROOM
from trnbook.charts.tables import check, rounded
from trnbook.shared.software_kinds import ORDER
from trnmodel.arguments import number
from trnmodel.catalog.systems import system as read_system
from trnmodel.units import HOUR, MILLION

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from trnmodel.cost.tco import Cost
else:
    from trnbook.charts.display import alt

COLUMNS = [
    *("case", "system", "ideal_chip_s", "public_share", "hand_tuned_share"),
    *("public_low", "public_high"),
    *("base_usd_per_h", "usd_per_h_per_usd", "usd_per_h_per_w", "chip_usd", "tdp_w", "usd_per_h"),
]
TALL = 26  # of a system. [px]
FOOT = "(width < 420 ? 132 : 86)"  # from the axis to the captions, below the legend, which is taller on a phone. [px]
MTOKEN_H = MILLION / HOUR
POINTS = {"chip_usd": [1e3, 1.1e4, 1e3], "tdp_w": [1e2, 1e2, 1.1e3]}  # of price and watts, that fix a plane
DIGITS = "',.3r'"


def what_if(
    frame: pd.DataFrame,
    choices: Sequence[str],
    *,
    share: float,
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Return a chart of $ per million tokens of each system by software; menus choose question and system.

    Two sliders set the price and the watts of the chosen system's chip as shares of its own; the other systems keep
    theirs. A third slider sets the share of ideal that its software reaches, drawn as a diamond with a rule across the
    other systems.

    Parameters
    ----------
    frame : pandas.DataFrame
        case, system, ideal_chip_s (of a generated token with its prompt), public_share and hand_tuned_share (of ideal;
        0 where too slow), public_low and public_high (ends of the cost on public software over its middle), an owner's
        hour (usd_per_h), and the same hour as a plane over the price and the watts of its chip: base_usd_per_h,
        usd_per_h_per_usd, usd_per_h_per_w, chip_usd, tdp_w.
    choices : sequence of str
        Systems that can be chosen. [-]
    share : float
        Initial share of ideal. [%]
    """
    check(frame, caption, under=under, needed=COLUMNS)
    cases, names = list(dict.fromkeys(frame.case)), [name for name in choices if name in set(frame.system)]
    params = [
        _choose("question", cases, "Question"),
        _choose("own", [str(language.called(one)) for one in names], "System that moves"),
        _slide("price", 100, 0, 400, 5, "Price of its chip [% of our estimate]"),
        _slide("watts", 100, 20, 200, 5, "Power of its chip [% of its TDP]"),
        _slide("share", number("share", share, 0.0), 1, 100, 0.5, "Its software, share of ideal [%]"),
    ]
    rows = frame.assign(
        at=frame.case.map(cases.index),
        mine=frame.system.map({name: place for place, name in enumerate(names)}).fillna(-1),
        name=frame.system.map(language.called),
    )
    one = _costs(rows)
    place = {
        "x": _log(alt.X, "x", "Owner's cost per million generated tokens [$]", padding=ROOM),
        "y": alt.Y(field="name", type="nominal", axis=None, sort=list(dict.fromkeys(rows.name))),
    }
    chart = alt.layer(*_drawn(one, place), alt.layer(*_captions(one))).add_params(*params)
    return _finished(chart, caption, under).properties(height=TALL * frame.system.nunique())


def _costs(rows: pd.DataFrame) -> Any:
    """Return the chart's rows for the chosen question: the chosen system and the fixed ones, on ideal software."""
    values = rows[["at", "mine", "name", *COLUMNS[2:]]].map(lambda x: rounded(x) if isinstance(x, float) else x)
    moved = "datum.base_usd_per_h + datum.usd * datum.usd_per_h_per_usd + datum.tdp * datum.usd_per_h_per_w"
    one = alt.Chart(alt.InlineData(values=values.to_dict("records"))).transform_filter("datum.at == question")
    one = one.transform_filter("datum.mine < 0 || datum.mine == own")
    one = one.transform_calculate(usd="price / 100 * datum.chip_usd", tdp="watts / 100 * datum.tdp_w")
    one = one.transform_calculate(hour=f"datum.mine == own ? {moved} : datum.usd_per_h")
    return one.transform_calculate(ideal=f"datum.hour * datum.ideal_chip_s * {MTOKEN_H!r}")


def _drawn(one: Any, place: Mapping[str, Any]) -> list[Any]:
    """Return the layers: a line per system with each kind of software, and the chosen system at the slider's share."""
    kinds = [name for name in ORDER if name != "ideal"]
    said = one.transform_calculate(ideal_share="1").transform_fold([*COLUMNS[3:5], "ideal_share"], as_=["kind", "of"])
    said = said.transform_filter("datum.of > 0").transform_calculate(
        x="datum.ideal / datum.of",
        said="replace(replace(datum.kind, '_share', ''), '_', '-')",
        usd=f"'$' + format(datum.ideal / datum.of, {DIGITS})",
        part="format(datum.of, '.2~p')",
    )
    titles = {"name": "System", "said": "Software", "part": "Share of ideal", "usd": "Per million generated tokens"}
    tip = [alt.Tooltip(field=name, type="nominal", title=title) for name, title in titles.items()]
    looks = {"domain": [*kinds, "ideal"], "range": language.colours([*kinds, "ideal"])}
    colour = alt.Color(field="said", type="nominal", title=None, scale=looks, legend=alt.Legend(orient="bottom"))
    own = one.transform_filter("datum.mine == own").transform_calculate(x="datum.ideal / (share / 100)")
    of = "datum.ideal / datum.public_share"
    band = one.transform_filter("datum.public_share > 0 && isValid(datum.public_low)").transform_calculate(
        x=f"{of} * datum.public_low", x2=f"{of} * datum.public_high"
    )
    public = looks["range"][looks["domain"].index("public")]
    names = {"align": "left", "dy": -14, "fontSize": 13, "color": INK, "limit": {"expr": "width"}}
    return [
        one.mark_text(**names).encode(y=place["y"], x=alt.value(0), text=alt.Text(field="name", type="nominal")),
        band.mark_rule(color=public, strokeWidth=7, opacity=0.25).encode(**place, x2=alt.X2("x2")),
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
    head = f"'$' + format(datum.ideal / (share / 100), {DIGITS}) + ' per million generated tokens'"
    said = [
        f"'with a chip of $' + format(datum.usd, {DIGITS}) + ' and ' + format(datum.tdp, {DIGITS}) + ' W'",
        "'at $' + format(datum.hour, ',.3~r') + ' per chip-hour, on ' + share + '% of ideal'",
        f"'public reaches ' + {kinds[0]} + ', hand-tuned ' + {kinds[1]} + ' of ideal'",
    ]
    rival = "datum.mine == own || !(datum.public_share > 0) ? null : datum.ideal / datum.public_share"
    both = one.transform_calculate(public=rival).transform_joinaggregate(least="min(public)")
    tie = "datum.ideal / datum.least"
    level = (
        "!isValid(datum.least) ? 'no other is fast enough on public software' : "
        f"{tie} > 1 ? 'dearer at any share than the cheapest other, public' : "
        f"'ties with the cheapest other, public, at ' + format({tie}, '.2~p')"
    )
    texts = [
        (mine, head, 0, 18),
        (mine, " + '\\n' + ".join(f"({line})" for line in said), 24, 14),
        (both.transform_filter("datum.mine == own"), level, 24 + LINE * len(said), 14),
    ]
    return [
        _lines(data.transform_calculate(told=text), alt.expr(f"height + {FOOT} + {below}"), size, 0)
        for data, text, below, size in texts
    ]


class Plane(NamedTuple):
    """An owner's hour over the price and the watts of a chip, and the values of both that are in force."""

    base_usd_per_h: float
    usd_per_h_per_usd: float
    usd_per_h_per_w: float
    chip_usd: float
    tdp_w: float


def plane(cost: Cost, moved: Cost) -> Plane:
    """Return an owner's hour as a plane, from the cost in force and that at the three `POINTS` of price and watts.

    Examples
    --------
    >>> import trnmodel as tm
    >>> cost = tm.tco("trn3-nl72x2-pcie160")
    >>> one = plane(cost, tm.tco("trn3-nl72x2-pcie160", **POINTS))
    >>> hour = one.base_usd_per_h + one.chip_usd * one.usd_per_h_per_usd + one.tdp_w * one.usd_per_h_per_w
    >>> abs(hour - float(cost.usd_per_h)) < 1e-9
    True
    """
    here, dear, hot = (float(hour) for hour in moved.useful_usd_per_h)
    usd, watts = POINTS["chip_usd"], POINTS["tdp_w"]
    per_usd, per_w = (dear - here) / (usd[1] - usd[0]), (hot - here) / (watts[2] - watts[0])
    chip_usd = float(cost.parts_usd["HBM"] + cost.parts_usd["logic, package and margin"])
    return Plane(here - usd[0] * per_usd - watts[0] * per_w, per_usd, per_w, chip_usd, float(cost.tdp_w))


def grid(cases: Mapping[str, pd.DataFrame], planes: Mapping[str, Plane]) -> pd.DataFrame:
    """Return the rows of `what_if` from rows of owners' costs by question, and hours as planes by system.

    The hour of a system without a plane does not move.

    Examples
    --------
    >>> import pandas as pd
    >>> columns = {"system": "hgx-h100", "software": ["public", "ideal"], "chip_s": [4e-4, 1e-4], "usd_per_chip_h": 2.0}
    >>> costs = pd.DataFrame(columns)
    >>> rows = grid({"q": costs}, {})
    >>> rows[["public_share", "hand_tuned_share", "ideal_chip_s"]].iloc[0].tolist()
    [0.25, 0.0, 0.0001]
    """
    import pandas as pd

    rows = []
    for case, table in cases.items():
        for name, some in table.groupby("system", sort=False):
            each = some.set_index("software").chip_s.fillna(math.inf)
            ideal, hour = float(each.get("ideal", math.inf)), float(some.usd_per_chip_h.iloc[0])
            if not math.isfinite(ideal) or math.isnan(hour):
                continue
            shares = [ideal / float(each.get(kind, math.inf)) for kind in ("public", "hand-tuned")]
            public = some[some.software == "public"]
            ends = [_over(public, f"usd_per_mtoken_{end}") for end in ("low", "high")]
            rows.append(
                (
                    case,
                    read_system(str(name)).id,
                    ideal,
                    *shares,
                    *ends,
                    *planes.get(str(name), Plane(hour, 0.0, 0.0, 0.0, 0.0)),
                    hour,
                )
            )
    return pd.DataFrame(rows, columns=COLUMNS)


def _over(public: pd.DataFrame, end: str) -> float:
    """Return an end of the cost on public software over its middle; not a number where it is unknown."""
    return float((public[end] / public.usd_per_mtoken).iloc[0]) if len(public) and end in public else math.nan
