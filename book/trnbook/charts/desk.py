"""The frontier of all systems on the first page: the script of the desk gives it other rows when a control moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnbook.charts.explorers import _log
from trnbook.charts.language import BAND_OPACITY, GENERATIONS, GREY, PALETTE
from trnbook.charts.plot import DIGITS, ROOM, Plot
from trnbook.charts.tables import axis_title, check, printed

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

ROLES = {"chosen Trainium": GENERATIONS["trainium3"], "beside it": PALETTE[0], "others": GREY}
TOOLTIP = {"system": "System", "mapping": "Mapping", "bound": "Most time goes to", "basis": "Basis"}


def promises(frame: pd.DataFrame, *, caption: str, under: str = "") -> alt.LayerChart:
    """Return what each system does at each promised speed: a chosen pair in colour, others grey.

    Parameters
    ----------
    frame : pandas.DataFrame
        system, role (a key of `ROLES`), speed, value with low and high (missing where no range is drawn), mapping,
        bound, basis, last (whether the name of the line stands there).
    """
    check(frame, caption, under=under, needed=("role", "speed", "value", "low", "high", "last", *TOOLTIP))
    frame = frame.sort_values(
        "role", key=lambda role: role != "others", kind="stable"
    )  # the pair is drawn over its twins
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    base = alt.Chart()
    scale = {"domain": list(ROLES), "range": list(ROLES.values())}
    place = {
        "x": _log(alt.X, "speed", axis_title("promised_tokens_per_s_per_user"), padding=ROOM),
        "color": alt.Color("role", type="nominal", scale=scale, legend=alt.Legend(title=None, symbolOpacity=1)),
        "detail": alt.Detail("system", type="nominal"),
    }
    y, low = (_log(alt.Y, end, axis_title("tokens_per_s_per_chip"), padding=ROOM) for end in ("value", "low"))
    tooltip = [alt.Tooltip(name, type="nominal", title=title) for name, title in TOOLTIP.items()]
    numbers = {"speed": "Tokens/s per user", "value": "Tokens/s per chip"}
    tooltip += [alt.Tooltip(name, type="quantitative", format=DIGITS, title=title) for name, title in numbers.items()]
    ends = {"y": low, "y2": alt.Y2("high")}
    layers = [
        base.transform_filter("isValid(datum.low)").mark_area(opacity=BAND_OPACITY).encode(**place, **ends),
        base.mark_line(strokeWidth=2).encode(**place, y=y),
        base.mark_point(filled=True, size=55, opacity=1).encode(**place, y=y, tooltip=tooltip),
        base.transform_filter("datum.last")
        .mark_text(align="right", dy=-10, fontSize=12)
        .encode(**place, y=y, text=alt.Text("system", type="nominal")),
    ]
    data = alt.InlineData(values=rows, name="desk")
    chart = Plot(*printed(frame, "system")).finish(alt.layer(*layers, data=data), caption, under)
    return chart.properties(usermeta={"desk": True, "under": [under]}, height=260)
