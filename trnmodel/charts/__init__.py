"""Tidy tables as charts and HTML tables: one claim each, units on every axis, our own estimates visible.

A builder takes a DataFrame, names of its columns and a `caption` that states the claim. It reads the unit from the
column's name, prints it with a prefix (`hbm_bytes_per_s` becomes "HBM [TB/s]"), draws the range where the frame has
`<column>_low` and `<column>_high`, and draws hollow or dashed what a column of `MARKS` marks: our estimate, or a thing
that is announced. The caption ends with the basis of what is not measured (a column `basis`).
Nothing here knows physics. Altair loads when the first chart is made.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sized
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import TINY, flag, listed, number
from trnmodel.charts.display import PALETTE, altair
from trnmodel.charts.tables import MARKS, check, is_number, printed, rounded, scale, table
from trnmodel.charts.topology import topology

if TYPE_CHECKING:
    from collections.abc import Collection

    import altair as alt
    import pandas as pd

__all__ = ["bars", "lines", "ours", "ranges", "regions", "roofline", "scatter", "stacks", "table", "topology"]

GENERATIONS = {
    "trainium2": "#0072B2",
    "trainium3": "#D55E00",
    "trainium4": "#CC79A7",
    "inferentia2": "#009E73",
    "trainium": "#56B4E9",  # the first, which AWS names without a number
}
DASHES = [[1, 0], [9, 4], [2, 3], [9, 3, 2, 3], [5, 2]]


def _generation(name: str) -> str | None:
    """The colour of a chip's or instance's generation.

    >>> _generation("Trainium") == _generation("trn1.32xlarge") == GENERATIONS["trainium"], _generation("h100")
    (True, None)
    """
    full = name.lower().replace("trn", "trainium").replace("inf2", "inferentia2")
    return next((colour for key, colour in GENERATIONS.items() if full.startswith(key)), None)


def ours(labels: Collection[str]) -> str:
    """What a caption says of its points that rest on our own estimates, by label; nothing where none does.

    Examples
    --------
    >>> ours(["Trainium3 FP8", "Trainium3 FP8"]), ours([])
    ('; our estimate, confidence D: Trainium3 FP8', '')
    """
    none = isinstance(labels, Sized) and getattr(labels, "shape", 1) != () and not len(labels)
    named = {} if none else dict.fromkeys(listed("labels", labels, str))
    return f"; our estimate, confidence D: {', '.join(named)}" if named else ""


@dataclass(frozen=True, slots=True)
class _Plot:
    """Data in printed units, and the channels that show its columns."""

    data: pd.DataFrame
    titles: dict[str, str]

    @property
    def marks(self) -> list[str]:
        """Columns that mark some of the data."""
        return [name for name in MARKS if name in self.data and self.data[name].any()]

    @property
    def hollow(self) -> list[str]:
        """Those that are drawn: where everything is announced, the note alone says so."""
        return [name for name in self.marks if name == "estimate" or not self.data[name].all()]

    def has_range(self, column: str) -> bool:
        return f"{column}_low" in self.data

    def number(self, channel: Any, column: str, log: bool = False, end: str = "") -> Any:
        """Position by a column, or by the `end` ("_low") of its range."""
        axis = {"format": ",~r", "tickCount": 6} if log else {"format": ",~f"}
        kind = {"type": "log", "nice": channel is not altair().X} if log else {}
        return channel(field=column + end, type="quantitative", title=self.titles[column], axis=axis, scale=kind)

    def category(self, channel: Any, column: str, **options: Any) -> Any:
        """Position or dash by a category, in the frame's order."""
        order = list(self.data[column].unique())
        return channel(field=column, type="nominal", title=self.titles[column], sort=order, **options)

    def colour(self, channel: Any, column: str | None) -> Any:
        """Colour by a category: each chip generation its own everywhere, the rest from the palette."""
        if column is None:
            return altair().value(PALETTE[0])
        names = [str(name) for name in self.data[column].unique()]
        own = {name: colour for name in names if (colour := _generation(name))}
        if len(set(own.values())) < len(own):
            own = {}
        free = cycle(colour for colour in PALETTE if colour not in own.values())
        colours = [own.get(name) or next(free) for name in names]
        domain = {"domain": names, "range": colours}
        return channel(field=column, type="nominal", title=self.titles[column], scale=domain)

    def picked(self, column: str | None) -> tuple[list[Any], dict[str, Any]]:
        """What lets a click on the legend single out one value: parameters and the encoding that they drive."""
        alt = altair()
        if column is None:
            return [], {}
        selection = alt.selection_point(name="picked", fields=[column], bind="legend")
        return [selection], {"opacity": alt.condition(selection, alt.value(1), alt.value(0.12))}

    def estimated(self, yes: Any, no: Any) -> Any:
        """A mark's property where the data is our estimate or announced, and elsewhere."""
        alt, marked = altair(), " || ".join(f"datum.{name}" for name in self.hollow)
        return alt.condition(marked, alt.value(yes), alt.value(no)) if marked else alt.value(no)

    def tooltip(self) -> list[Any]:
        tip, number = altair().Tooltip, {"type": "quantitative", "format": ",.4~r"}
        kinds = {name: number if is_number(self.data[name]) else {"type": "nominal"} for name in self.titles}
        return [tip(field=name, title=title, **kinds[name]) for name, title in self.titles.items()]

    def finish(self, chart: Any, caption: str) -> Any:
        """Caption as title and description; a note where an estimate or an announced thing is drawn."""
        hollow = self.hollow
        words = [f"{'hollow or dashed' if name in hollow else 'all of it'}: {MARKS[name]}" for name in self.marks]
        note = {"subtitle": "; ".join(words)} if words else {}
        title = altair().TitleParams(text=textwrap.wrap(caption, 76), **note)
        return chart.properties(title=title, description=caption)


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    *,
    dash: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    caption: str,
) -> alt.Chart | alt.LayerChart:
    """Lines of `y` over `x`, one per `color` and `dash`, with a band where there is a range."""
    caption = check(frame, caption, x=x, y=y, optional={"color": color, "dash": dash})
    flag("log_x", log_x), flag("log_y", log_y)
    alt = altair()
    plot = _Plot(*printed(frame, x, y, color, dash))
    params, picked = plot.picked(color)
    place = {"x": plot.number(alt.X, x, log_x), "color": plot.colour(alt.Color, color)}
    if dash:
        style = {"strokeDash": plot.category(alt.StrokeDash, dash, scale={"range": DASHES}, legend={"symbolSize": 400})}
    else:
        style = {"strokeDash": plot.estimated([6, 4], [1, 0]), **({"detail": plot.hollow} if plot.hollow else {})}
    mark = alt.Chart(plot.data).mark_line().add_params(*params)
    chart = mark.encode(**place, **style, **picked, y=plot.number(alt.Y, y, log_y), tooltip=plot.tooltip())
    if plot.has_range(y):
        band = alt.Chart(plot.data).mark_area(fillOpacity=0.18)
        chart += band.encode(**place, **picked, y=plot.number(alt.Y, y, log_y, "_low"), y2=f"{y}_high")
    return plot.finish(chart, caption)


def bars(frame: pd.DataFrame, x: str, y: str, color: str | None = None, *, caption: str) -> alt.Chart | alt.LayerChart:
    """Bars of `y` for each category of `x`, side by side by `color`, with whiskers where there is a range."""
    caption = check(frame, caption, x=x, y=y, optional={"color": color})
    alt = altair()
    plot = _Plot(*printed(frame, x, y, color))
    params, picked = plot.picked(color)
    place = {"x": plot.category(alt.X, x, axis=alt.Axis(labelAngle=0))}
    if color:
        place["xOffset"] = plot.category(alt.XOffset, color)
    mark = alt.Chart(plot.data, width={"step": 30 if color else 100}).mark_bar(strokeWidth=1.5).add_params(*params)
    chart = mark.encode(
        **place,
        **picked,
        y=plot.number(alt.Y, y),
        color=plot.colour(alt.Color, color),
        stroke=plot.colour(alt.Stroke, color),
        strokeDash=plot.estimated([5, 3], [1, 0]),
        fillOpacity=plot.estimated(0.15, 1),
        tooltip=plot.tooltip(),
    )
    if plot.has_range(y):
        whisker = alt.Chart(plot.data).mark_rule(color="#888888", strokeWidth=1.5)
        chart += whisker.encode(**place, y=plot.number(alt.Y, y, end="_low"), y2=f"{y}_high")
    return plot.finish(chart, caption)


def stacks(
    frame: pd.DataFrame, x: str, y: str, color: str, *, limit: str | None = None, caption: str
) -> alt.LayerChart:
    """Bars of `y` for each category of `x`, piled up by `color`, with a stroke at the height of column `limit`."""
    caption = check(frame, caption, x=x, y=y, color=color, optional={"limit": limit})
    alt = altair()
    factor, title = scale(frame.groupby(x, sort=False)[y].sum().reset_index(), y)
    data, titles = printed(frame, x, color)
    ends = [name for name in (y, limit) if name]
    order = list(data[color].unique())
    data = data.assign(pile=data[color].map(order.index), **{name: frame[name] * factor for name in ends})
    plot = _Plot(data, titles | {y: title})
    params, picked = plot.picked(color)
    place = {"x": plot.category(alt.X, x, axis=alt.Axis(labelAngle=0))}
    base = alt.Chart(data, width={"step": 84})
    chart = (
        base.mark_bar()
        .add_params(*params)
        .encode(
            **place,
            **picked,
            y=plot.number(alt.Y, y),
            color=plot.colour(alt.Color, color),
            fillOpacity=plot.estimated(0.4, 1),
            order=alt.Order(field="pile", type="quantitative"),
            tooltip=plot.tooltip(),
        )
    )
    if limit:
        stroke = base.mark_tick(color="#888888", thickness=3, width=84)
        chart = alt.layer(chart, stroke.encode(**place, y=alt.Y(field=limit, type="quantitative", title=title)))
    return plot.finish(chart, caption)


def ranges(
    frame: pd.DataFrame, x: str, y: str, color: str | None = None, *, log_x: bool = False, caption: str
) -> alt.LayerChart:
    """A point at `x` for each category of `y`, with a bar from `x`_low to `x`_high, side by side by `color`."""
    caption = check(frame, caption, x=x, y=y, optional={"color": color})
    flag("log_x", log_x)
    alt = altair()
    plot = _Plot(*printed(frame, x, y, color))
    params, picked = plot.picked(color)
    place = {"y": plot.category(alt.Y, y), "color": plot.colour(alt.Color, color), **picked}
    if color:
        place["yOffset"] = plot.category(alt.YOffset, color)
    base = alt.Chart(plot.data, height={"step": 15 if color else 30})
    span = base.mark_rule(strokeWidth=4).add_params(*params)
    point = base.mark_point(size=80, filled=True, strokeWidth=2)
    chart = span.encode(
        **place,
        x=plot.number(alt.X, x, log_x, "_low"),
        x2=f"{x}_high",
        strokeDash=plot.estimated([5, 3], [1, 0]),
    ) + point.encode(
        **place,
        x=plot.number(alt.X, x, log_x),
        stroke=plot.colour(alt.Stroke, color),
        fillOpacity=plot.estimated(0, 1),
        tooltip=plot.tooltip(),
    )
    return plot.finish(chart, caption)


def scatter(
    frame: pd.DataFrame, x: str, y: str, color: str | None = None, *, label: str, caption: str
) -> alt.LayerChart:
    """Points of `y` against `x` on log axes of one unit, the line y = x, and bars where either has a range.

    `label` is a column that a point shows under the pointer.
    """
    caption = check(frame, caption, x=x, y=y, label=label, optional={"color": color})
    alt = altair()
    factor, title = scale(frame, x)
    data, titles = printed(frame, x, color, label)
    ends = [name for name in (y, *(axis + end for axis in (x, y) for end in ("_low", "_high"))) if name in frame]
    data = data.assign(**{name: frame[name] * factor for name in ends})
    titles[y] = scale(frame, y)[1].partition(" [")[0] + title[title.find(" [") :]
    plot = _Plot(data, titles)
    params, picked = plot.picked(color)
    place = {"x": plot.number(alt.X, x, True), "y": plot.number(alt.Y, y, True), "color": plot.colour(alt.Color, color)}
    both = data[[x, y]]
    corners = alt.Data(values=[{"at": rounded(float(end))} for end in (both.min().min(), both.max().max())])
    chart = alt.Chart(corners).mark_line(color="#888888", strokeWidth=1).encode(x="at:Q", y="at:Q")
    for axis, name, channel in ((x, "x", alt.X), (y, "y", alt.Y)):
        if plot.has_range(axis):
            span = {name: plot.number(channel, axis, True, "_low"), f"{name}2": f"{axis}_high"}
            rule = alt.Chart(data).mark_rule(strokeWidth=1, strokeOpacity=0.4)
            chart += rule.encode(**{**place, **picked, **span})
    points = alt.Chart(data).mark_point(size=40, strokeWidth=1.5).add_params(*params)
    return plot.finish(chart + points.encode(**place, **picked, tooltip=plot.tooltip()), caption)


def regions(frame: pd.DataFrame, x: str, y: str, color: str, *, panel: str | None = None, caption: str) -> alt.Chart:
    """A map: one cell for each pair of `x` and `y`, in the colour of its category, side by side by `panel`."""
    caption = check(frame, caption, x=x, y=y, color=color, optional={"panel": panel})
    alt = altair()
    plot = _Plot(*printed(frame, x, y, color, panel))
    params, picked = plot.picked(color)
    axis = {"type": "ordinal", "axis": alt.Axis(format=",~f", labelAngle=0)}
    mark = alt.Chart(plot.data, width={"step": 28}, height={"step": 22}).mark_rect(stroke="#888888", strokeWidth=0.3)
    chart = mark.add_params(*params).encode(
        x=alt.X(field=x, title=plot.titles[x], **axis),
        y=alt.Y(field=y, title=plot.titles[y], sort="descending", **axis),
        color=plot.colour(alt.Color, color),
        tooltip=plot.tooltip(),
        **picked,
        **(
            {"column": alt.Column(field=panel, type="nominal", title=None, header=alt.Header(labelColor="#888888"))}
            if panel
            else {}
        ),
    )
    return plot.finish(chart, caption)


def roofline(frame: pd.DataFrame, points: pd.DataFrame | None = None, *, marker: float, caption: str) -> alt.LayerChart:
    """Rooflines on log axes, a slider that moves a reading along the intensity, and the `points` that kernels reach.

    Parameters
    ----------
    frame : pandas.DataFrame
        chip, dtype, attainable_flop_per_s and intensity_flop_per_byte, this one on a geometric grid.
    points : pandas.DataFrame, optional
        Kernels: chip, attainable_flop_per_s and intensity_flop_per_byte.
    marker : float
        Where the reading starts. [FLOP/B]
    """
    x, y = "intensity_flop_per_byte", "attainable_flop_per_s"
    caption = check(frame, caption, needed=("chip", "dtype", x, y))
    if points is not None:
        check(points, caption, name="points", needed=("chip", x, y))
    number("marker", marker, TINY)
    alt = altair()
    plot = _Plot(*printed(frame, x, y, "chip", "dtype"))
    chart = lines(frame, x, y, "chip", dash="dtype", log_x=True, log_y=True, caption=caption)
    place = {
        "x": plot.number(alt.X, x, True),
        "y": plot.number(alt.Y, y, True),
        "color": plot.colour(alt.Color, "chip"),
    }
    chart += _reading(plot, x, marker, place)
    if points is not None:
        kernels = points.assign(**{name: points[name] * scale(frame, name)[0] for name in (x, y)})
        chart += alt.Chart(kernels[[x, y, "chip"]]).mark_point(size=80, strokeWidth=2).encode(**place)
    return plot.finish(chart, caption)


def _reading(plot: _Plot, x: str, marker: float, place: dict[str, Any]) -> Any:
    """A rule that a slider moves along a geometric grid of x, and a dot where it meets each line."""
    alt = altair()
    grid = np.log10(np.unique(plot.data[x].map(rounded)))
    low, high, step = float(grid[0]), float(grid[-1]), float(np.diff(grid).max())
    slider = alt.binding_range(min=low, max=high, step=step, name=f"log10 of {plot.titles[x]} ")
    start = float(grid[np.abs(grid - math.log10(marker)).argmin()])  # on the grid, where the dots are
    at = alt.param(name="reading", value=start, bind=slider)
    near = f"abs(log(datum['{x}']) / LN10 - reading) <= {step / 2:.6g}"
    dots = alt.Chart(plot.data).transform_filter(near).mark_point(size=60, filled=True)
    rule = alt.Chart(alt.Data(values=[{}])).transform_calculate(at="pow(10, reading)", text="format(datum.at, ',.3~r')")
    where = alt.X("at:Q", title=plot.titles[x])
    return (
        dots.encode(**place, tooltip=plot.tooltip())
        + rule.mark_rule(strokeDash=[4, 4], color="#888888").encode(x=where).add_params(at)
        + rule.mark_text(align="left", dx=5, color="#888888").encode(x=where, y=alt.value(8), text="text:N")
    )
