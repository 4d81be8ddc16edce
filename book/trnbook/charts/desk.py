"""The frontier of all systems on the first page: the script of the desk gives it other rows when a control moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnbook.charts.explorers import _log
from trnbook.charts.language import BAND_OPACITY, GENERATIONS, GREY, PALETTE
from trnbook.charts.plot import DIGITS, ROOM, Plot, highlighted
from trnbook.charts.tables import axis_title, check, printed

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

PAIR = (GENERATIONS["trainium3"], PALETTE[0])  # colours of the chosen Trainium and of what stands beside it
OTHERS = "all others"
TOOLTIP = {
    "system": "System",
    "band": "Range (nine in ten draws)",
    "mapping": "Mapping",
    "bound": "Most time goes to",
    "basis": "Basis",
}


def promises(frame: pd.DataFrame, *, caption: str, under: str = "", highlight: Sequence[str] = ()) -> alt.LayerChart:
    """Return what each system does at each promised speed: a pair in colour, the others grey.

    Parameters
    ----------
    frame : pandas.DataFrame
        system, line (its name for a system of the pair, `OTHERS` for the rest), speed, value with low and high (missing
        where no range is drawn), band (the range in words), mapping, bound, basis. The script of the page adds `name`
        of the line that ends at a point, with its place `name_at`, and `chosen` at the speed that is asked for.
    highlight : sequence of str
        Names of the systems in colour, at most two: the chosen Trainium, and what stands beside it.
    """
    pair = highlighted(highlight)[: len(PAIR)]
    check(frame, caption, under=under, needed=("line", "speed", "value", "low", "high", *TOOLTIP))
    frame = frame.sort_values("line", key=lambda line: line != OTHERS, kind="stable")  # the pair over its twins
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    base = alt.Chart()
    scale = {"domain": [*pair, OTHERS], "range": [*PAIR[: len(pair)], GREY]}
    place = {
        "x": _log(alt.X, "speed", axis_title("promised_tokens_per_s_per_user"), padding=ROOM),
        "color": alt.Color("line", type="nominal", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1)),
        "detail": alt.Detail("system", type="nominal"),
    }
    ends = ("value", "low", "name_at")
    y, low, named = (_log(alt.Y, end, axis_title("tokens_per_s_per_chip"), padding=ROOM) for end in ends)
    tooltip = [alt.Tooltip(name, type="nominal", title=title) for name, title in TOOLTIP.items()]
    numbers = {"speed": "Tokens/s per user", "value": "Tokens/s per chip"}
    tooltip += [alt.Tooltip(name, type="quantitative", format=DIGITS, title=title) for name, title in numbers.items()]
    band = {"y": low, "y2": alt.Y2("high")}
    layers = [
        base.transform_filter("isValid(datum.low)").mark_area(opacity=BAND_OPACITY).encode(**place, **band),
        base.mark_line(strokeWidth=2).encode(**place, y=y),
        base.mark_point(filled=True, size=55, opacity=1).encode(**place, y=y, tooltip=tooltip),
        base.transform_filter("datum.name")
        .mark_text(align="left", dx=7, fontSize=11)
        .encode(**place, y=named, text=alt.Text("name", type="nominal")),
        base.transform_filter("datum.chosen").mark_rule(color=GREY, strokeDash=[4, 4]).encode(x=place["x"]),
    ]
    data = alt.InlineData(values=rows, name="desk")
    chart = Plot(*printed(frame, "system")).finish(alt.layer(*layers, data=data), caption, under)
    return chart.properties(usermeta={"desk": True, "under": [under]}, height=260)
