"""A chart that a reader asks what a token would cost: sliders for price and watts of a chip and the share of ideal.

The page carries, for each question and system, the chip-seconds of a token on ideal software, what public and
hand-tuned software make of it, and an owner's hour as a line over price and watts: all else is arithmetic in the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import TINY, number
from trnmodel.catalog.systems import system as read_system
from trnmodel.charts import language
from trnmodel.charts.display import altair
from trnmodel.charts.explorers import BELOW, GREY, LINE, _finished, _lines, _log
from trnmodel.charts.tables import check
from trnmodel.units import HOUR, MILLION

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

COLUMNS = ("case", "system", "ideal_chip_s", "public_share", "hand_tuned_share", "base_usd_per_h", "usd_per_h_per_usd")
COLUMNS += ("usd_per_h_per_w", "usd_per_h")
LEAST_SHARE, STOPS = 0.01, 41
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
    rows = frame.assign(
        at=frame.case.map(cases.index), mine=frame.system.map(lambda one: names.index(one) if one in names else -1)
    )
    rows["name"] = [language.called(one) for one in rows.system]
    keep = ["at", "mine", "name", *COLUMNS[2:]]
    values = json.loads(rows[keep].replace([np.inf, -np.inf], np.nan).round(12).to_json(orient="records"))
    params = [
        _choose("case", cases, "Question"),
        _choose("own", [str(language.called(one)) for one in names], "System that moves"),
        _slide("price", number("chip_usd", chip_usd, 0.0), 0, 50_000, 250, "Price of its chip [USD]"),
        _slide("watts", number("tdp_w", tdp_w, TINY), 100, 2000, 25, "TDP of its chip [W]"),
        _slide("share", 30, 1, 100, 1, "Share of ideal [%]"),
    ]
    hour = "datum.mine == own ? datum.base_usd_per_h + price * datum.usd_per_h_per_usd + watts * datum.usd_per_h_per_w : datum.usd_per_h"
    one = alt.Chart(alt.InlineData(values=values)).transform_filter("datum.at == case")
    one = one.transform_filter("datum.mine < 0 || datum.mine == own")
    one = one.transform_calculate(hour=hour).transform_calculate(
        ideal=f"datum.hour * datum.ideal_chip_s * {MTOKEN_H!r}"
    )
    domain = list(dict.fromkeys(rows.name))
    colour = alt.Color(field="name", type="nominal", title=None, legend=alt.Legend(orient="bottom", columns=3),
                       scale={"domain": domain, "range": language.colours([*dict.fromkeys(rows.system)])})  # fmt: skip
    x = _log(alt.X, "x", "Share of what ideal software makes of a chip", {"format": "~%"}, domain=[LEAST_SHARE, 1])
    y = _log(alt.Y, "y", "A million tokens [USD]")
    ends = one.transform_calculate(all=f"[{LEAST_SHARE}, 1]").transform_flatten(["all"], ["x"])
    ends = ends.transform_calculate(y="datum.ideal / datum.x")
    wide = alt.condition("datum.mine == own", alt.value(3.5), alt.value(1.2))
    dots = one.transform_fold(["public_share", "hand_tuned_share"], as_=["kind", "x"])
    dots = dots.transform_filter("datum.x > 0").transform_calculate(
        y="datum.ideal / datum.x", said="datum.kind == 'public_share' ? 'public' : 'hand-tuned'",
        usd=f"format(datum.ideal / datum.x, {DIGITS}) + ' USD'", of="format(datum.x, '.2~p')",
    )  # fmt: skip
    tip = [alt.Tooltip(field=name, type="nominal", title=title) for name, title in
           {"name": "System", "said": "Software", "of": "Share of ideal", "usd": "A million tokens"}.items()]  # fmt: skip
    shape = alt.Shape(field="said", type="nominal", title=None, legend=alt.Legend(orient="bottom"))
    at = alt.Chart(alt.InlineData(values=[{}])).transform_calculate(x="share / 100")
    layers = [
        ends.mark_line().encode(
            x=x, y=y, color=colour, strokeWidth=wide, detail=alt.Detail(field="name", type="nominal")
        ),
        dots.mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tip),
        at.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=x),
        *_told(one),
    ]
    return _finished(alt.layer(*layers).add_params(*params), caption, under)


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
    alt = altair()
    mine = one.transform_filter("datum.mine == own").transform_calculate(usd="datum.ideal / (share / 100)")
    head = mine.transform_calculate(told=f"format(datum.usd, {DIGITS}) + ' USD a million tokens'")
    text = [
        f"'at ' + share + '% of ideal, an hour of ' + format(datum.hour, {DIGITS}) + ' USD'",
        "'public ' + (datum.public_share > 0 ? format(datum.public_share, '.2~p') : 'too slow') + "
        "', hand-tuned ' + (datum.hand_tuned_share > 0 ? format(datum.hand_tuned_share, '.2~p') : 'too slow')",
    ]
    body = mine.transform_calculate(told=" + '\\n' + ".join(f"({line})" for line in text))
    both = one.transform_calculate(
        tuned="datum.mine == own || !(datum.hand_tuned_share > 0) ? null : datum.ideal / datum.hand_tuned_share"
    )
    both = both.transform_joinaggregate(least="min(tuned)").transform_filter("datum.mine == own")
    tie = "datum.ideal / datum.least"
    rest = both.transform_calculate(
        told=f"!isValid(datum.least) ? 'no other is as fast on hand-tuned software' : {tie} > 1 ? 'above the cheapest of the others, hand-tuned, even where it is ideal' "
        f": 'level with the cheapest of the others, hand-tuned, at ' + format({tie}, '.2~p') + ' of ideal'"
    )
    y = [alt.expr(f"height + {BELOW + shift}") for shift in (0, 28, 28 + LINE * len(text))]
    return [_lines(head, y[0], 22), _lines(body, y[1], 14), _lines(rest, y[2], 14)]


def grid(cases: Mapping[str, pd.DataFrame], lines: Mapping[str, tuple[float, float, float]]) -> pd.DataFrame:
    """The rows of `what_if` from tables of an owner's costs by question, and hours as lines by system.

    Examples
    --------
    >>> import pandas as pd
    >>> costs = pd.DataFrame({"system": "hgx-h100", "software": ["public", "ideal"], "chip_s": [4e-4, 1e-4], "usd_per_chip_h": 2.0})
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
