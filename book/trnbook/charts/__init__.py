"""Tidy tables as charts and HTML tables: one claim each, units on every axis, one visual language.

A builder takes a DataFrame, names of its columns, a `caption` that states the claim in at most ten words, and what is
`under` it: the conditions, in grey. It reads the unit from the column's name, prints it with a prefix
(`hbm_bytes_per_s` becomes "HBM bandwidth [TB/s]"), draws the range where the frame has `<column>_low` and
`<column>_high`, and draws hollow what a column `basis` calls extrapolated or a column of `MARKS` marks: our own
estimate, or a thing that is announced. Colours and dashes are those of `charts.language`.
Nothing here knows physics. Altair loads when the first chart is made.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any

from trnbook.charts import language
from trnbook.charts.desk import promises
from trnbook.charts.drawn import draws
from trnbook.charts.explorers import frontier, roofline
from trnbook.charts.language import GENERATIONS
from trnbook.charts.plot import (
    CROWD,
    MOST_APART,
    MOST_LABELLED,
    MOST_LETTERS,
    MOST_MACHINES,
    ROOM,
    Plot,
    end_labels,
    highlighted,
    letters,
    marked,
    series,
    together,
    zoom,
)
from trnbook.charts.tables import check, on_ground, printed, rounded, scale, table
from trnbook.charts.topology import topology
from trnmodel.arguments import flag, listed

if TYPE_CHECKING:
    from collections.abc import Collection

    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

__all__ = [
    "GENERATIONS",
    "bars",
    "draws",
    "frontier",
    "lines",
    "ours",
    "promises",
    "ranges",
    "regions",
    "roofline",
    "scatter",
]
__all__ += ["spans", "stacks", "table", "topology", "waterfall"]

LABELLED = 1.35  # end of an axis from zero over the longest bar of a waterfall, with room for its label


def ours(labels: Collection[str]) -> str:
    """Return what a caption says of its points that rest on our own estimates, by label; nothing where none does.

    Examples
    --------
    >>> ours(["Trainium3 FP8", "Trainium3 FP8"]), ours([])
    ('; our estimate, confidence D: Trainium3 FP8', '')
    """
    none = isinstance(labels, Sized) and getattr(labels, "shape", 1) != () and not len(labels)
    named = {} if none else dict.fromkeys(listed("labels", labels, str))
    return f"; our estimate, confidence D: {', '.join(named)}" if named else ""


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    *,
    dash: str | None = None,
    shape: str | None = None,
    choose: str | None = None,
    highlight: Sequence[str] = (),
    log_x: bool = False,
    log_y: bool = False,
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Lines of `y` over `x`, one per `color`, `shape` and `dash`, with a band where there is a range.

    A line of a system is dashed by its topology, or by column `dash`; hollow points mark what is extrapolated. A few
    lines carry their names at their ends, many stand in a legend, where points of a `shape` tell them apart. Column
    `choose` becomes a row of buttons above the chart: one of its values is drawn at a time. Values of `color` that are
    not among those to `highlight` are grey.
    """
    check(
        frame, caption, under=under, x=x, y=y, optional={"color": color, "dash": dash, "shape": shape, "choose": choose}
    )
    flag("log_x", log_x), flag("log_y", log_y)
    plot = Plot.of(frame, x, y, color, dash, shape, choose, highlight=highlighted(highlight))
    keys = [name for name in dict.fromkeys((color, dash, shape)) if name]
    chosen = list(series(plot.data, [choose]).values()) if choose else [plot.data]
    ends = [end_labels(rows, x, y, keys, (log_x, log_y)) for rows in chosen] if keys else []
    most = MOST_MACHINES if plot.machines(color) else MOST_LABELLED
    named = bool(ends) and all(len(end) <= most and end.label.map(letters).max() <= MOST_LETTERS for end in ends)
    legend: dict[str, Any] = {"legend": None} if named else {}
    params, picked = plot.picked(color, legend=not named)
    place = {"x": plot.number(alt.X, x, log_x), "y": plot.number(alt.Y, y, log_y)}
    own = (
        place | {"color": plot.colour(alt.Color, color, **legend), "detail": [alt.Detail(key) for key in keys]} | picked
    )
    crowd = [zoom()] if max(map(len, ends), default=0) > CROWD else []
    base = alt.Chart(plot.data)
    line = base.mark_line().encode(**own, **_dashes(plot, color, dash, legend))
    layers = [line.add_params(*crowd, *([] if named else params))]
    if plot.has_range(y):
        many = len(series(plot.data, keys)) > language.MANY_BANDS
        area = base.mark_area(fillOpacity=language.FAINT_BAND if many else language.BAND_OPACITY)
        high = alt.Y2(f"{y}_high")
        layers.insert(0, plot.ranged(area, y).encode(**own | {"y": plot.number(alt.Y, y, log_y, "_low"), "y2": high}))
    if plot.hollow or (shape and not named):
        at = marked(plot.data, x, y, [*keys, *([choose] if choose else [])])
        layers.append(_points(plot, at, own, color, legend, None if named else shape))
    layers.append(plot.nearest(place))
    if named:
        layers.append(_names(plot, ends, own, x, bool(crowd)).add_params(*params))
    notes = language.dashed(map(str, plot.data[color].unique())) if color and not dash else []
    notes += [] if named else together(ends)
    return plot.finish(_choice(plot, layers, choose), caption, under, notes)


def _choice(plot: Plot, layers: Sequence[Any], choose: str | None) -> Any:
    """Layers over each other, of one value of a column at a time where buttons choose it."""
    values = [str(value) for value in plot.data[choose].unique()] if choose else []
    if not choose or not values:
        return alt.layer(*layers)
    name = f"{plot.titles[choose]} " if plot.titles[choose] else " "
    param = alt.param(name="chosen", value=values[0], bind=alt.binding_radio(options=values, name=name))
    return alt.layer(*(one.transform_filter(f"datum['{choose}'] == chosen") for one in layers)).add_params(param)


def _dashes(plot: Plot, color: str | None, dash: str | None, legend: dict[str, Any]) -> dict[str, Any]:
    """Dash by a column that the caller names, else by the topology of the systems that colours stand for."""
    column = dash or color
    names = [str(name) for name in plot.data[column].unique()] if column else []
    own = language.dashes(names) or (language.OTHER_DASHES if dash else None)
    if not own:
        return {}
    if dash and not legend:
        legend = {"legend": alt.Legend(symbolSize=400)}
    scale = {"domain": names, "range": own}
    return {"strokeDash": plot.category(alt.StrokeDash, str(column), sort=None, scale=scale, **legend)}


def _points(
    plot: Plot, data: pd.DataFrame, own: dict[str, Any], color: str | None, legend: dict[str, Any], shape: str | None
) -> Any:
    """Points on lines: hollow where what they show is, each `shape` its own; what is ideal has none."""
    if not shape:
        data = data[data.basis != "ideal"] if "basis" in data else data[data[plot.marks].any(axis=1)]
    encoding = {"shape": plot.category(alt.Shape, shape)} if shape else {}
    encoding["stroke"] = plot.colour(alt.Stroke, color, **legend)
    mark = alt.Chart(data).mark_point(filled=True, size=60, strokeWidth=1.8)
    return mark.encode(**own, **encoding, fillOpacity=plot.hollowed(0, 1))


def _names(plot: Plot, ends: Sequence[pd.DataFrame], own: dict[str, Any], x: str, moves: bool) -> Any:
    """Return the name of each line at its end; of one whose end has moved out of the chart, nothing."""
    import pandas as pd

    mark = {"align": "left", "baseline": "middle", "dx": 7, "fontSize": 13, "limit": 200, "lineBreak": "\n"}
    text = alt.Text(field="label", type="nominal")
    if moves:
        text = alt.condition(f"inrange(datum['{x}'], domain('x'))", text, alt.value(""))
    place = {name: channel for name, channel in own.items() if name != "detail"}
    return alt.Chart(pd.concat(ends)).mark_text(**mark, clip=False).encode(**place, text=text)


def bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    *,
    highlight: Sequence[str] = (),
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Lying bars of `y` for each category of `x`, below each other by `color`, with whiskers where there is a range.

    Categories of `color`, or of `x` where it is None, that are not among those to `highlight` are grey.
    """
    check(frame, caption, under=under, x=x, y=y, optional={"color": color})
    plot = Plot.of(frame, x, y, color, highlight=highlighted(highlight))
    params, picked = plot.picked(color)
    place = {"y": plot.category(alt.Y, x)}
    if grouped := plot.has_several(x, color):
        place["yOffset"] = plot.category(alt.YOffset, str(color))
    base = alt.Chart(plot.data, height={"step": 13 if grouped else 26})
    chart = (
        base.mark_bar(strokeWidth=1.5)
        .add_params(*params)
        .encode(
            **place,
            **picked,
            x=plot.number(alt.X, y),
            color=plot.colour(alt.Color, color, alone=x),
            stroke=plot.colour(alt.Stroke, color, alone=x),
            fillOpacity=plot.hollowed(0.12, 1),
        )
    )
    layers = [plot.with_tooltip(chart)]
    if plot.has_range(y):
        whisker = base.mark_rule(color="#888888", strokeWidth=1.5)
        high = alt.X2(f"{y}_high")
        layers.append(plot.ranged(whisker, y).encode(**place, x=plot.number(alt.X, y, end="_low"), x2=high))
    return plot.finish(alt.layer(*layers), caption, under)


def stacks(
    frame: pd.DataFrame, x: str, y: str, color: str, *, limit: str | None = None, caption: str, under: str = ""
) -> alt.LayerChart:
    """Lying bars of `y` for each category of `x`, piled up by `color`, with a stroke at column `limit`."""
    check(frame, caption, under=under, x=x, y=y, color=color, optional={"limit": limit})
    factor, title = scale(frame.groupby(x, sort=False)[y].sum().reset_index(), y)
    data, titles = printed(frame, x, color)
    ends = [name for name in (y, limit) if name]
    order = list(data[color].unique())
    data = data.assign(pile=data[color].map(order.index), **{name: frame[name] * factor for name in ends})
    plot = Plot(data, titles | {y: title}, on_ground(frame, ""))
    params, picked = plot.picked(color)
    place = {"y": plot.category(alt.Y, x)}
    base = alt.Chart(data, height={"step": 26})
    bar = (
        base.mark_bar()
        .add_params(*params)
        .encode(
            **place,
            **picked,
            x=plot.number(alt.X, y),
            color=plot.colour(alt.Color, color),
            fillOpacity=plot.hollowed(0.4, 1),
            order=alt.Order(field="pile", type="quantitative"),
        )
    )
    layers = [plot.with_tooltip(bar)]
    if limit:
        stroke = base.mark_tick(color="#888888", thickness=3, height=26)
        layers.append(stroke.encode(**place, x=alt.X(field=limit, type="quantitative", title=title)))
    return plot.finish(alt.layer(*layers), caption, under)


def spans(frame: pd.DataFrame, start: str, end: str, y: str, color: str, *, caption: str, under: str = "") -> alt.Chart:
    """Return a bar from `start` to `end` for each row, in the line of its `y` and the colour of its category."""
    check(frame, caption, under=under, start=start, end=end, y=y, color=color)
    factor, title = scale(frame, end)
    data, titles = printed(frame, y, color)
    data = data.assign(**{name: frame[name] * factor for name in (start, end)})
    plot = Plot(data, titles | {start: title, end: title}, on_ground(frame, ""))
    params, picked = plot.picked(color)
    bar = alt.Chart(data, height={"step": 30}).mark_bar().add_params(*params)
    bar = bar.encode(
        **picked,
        y=plot.category(alt.Y, y),
        x=plot.number(alt.X, start),
        x2=alt.X2(end),
        color=plot.colour(alt.Color, color),
        fillOpacity=plot.hollowed(0.4, 1),
    )
    return plot.finish(plot.with_tooltip(bar), caption, under)


def waterfall(
    frame: pd.DataFrame,
    before: str,
    x: str,
    y: str,
    color: str,
    *,
    label: str,
    log_x: bool = True,
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Return a bar from `before` to `x` for each row, in the order of rows, with its `label`.

    The axis is one of powers, or begins at zero. A row whose `before` is missing is a whole, whose bar begins at the
    end of the axis.
    """
    check(frame, caption, under=under, before=before, x=x, y=y, color=color, label=label)
    flag("log_x", log_x)
    factor, title = scale(frame, x)
    data, titles = printed(frame, y, color, label)
    ends = frame[[before, x]].astype(float).where(lambda value: value > 0) * factor
    first = ends.min(axis=None) / 2 if log_x else 0.0
    room: dict[str, Any] = {"padding": ROOM} if log_x else {"domain": [0.0, LABELLED * ends.max(axis=None)]}
    data = data.assign(**{x: ends[x], before: ends[before].fillna(first), "end": ends.max(axis=1)})
    plot = Plot(data.dropna(subset=[x, "end"]), titles | {x: title}, on_ground(frame, ""))
    params, picked = plot.picked(color)
    place = {"y": plot.category(alt.Y, y)}
    base = alt.Chart(plot.data, height={"step": 28})  # two lines of a name on a phone
    bar = base.mark_bar(strokeWidth=1.5).add_params(*params)
    bar = bar.encode(
        **place,
        **picked,
        x=plot.number(alt.X, x, log_x, **room),
        x2=alt.X2(before),
        color=plot.colour(alt.Color, color),
        stroke=plot.colour(alt.Stroke, color),
        fillOpacity=plot.hollowed(0.4, 1),
    )
    text = base.mark_text(align="left", baseline="middle", dx=6, fontSize=13, color="#888888")
    named = text.encode(**place, x=alt.X(field="end", type="quantitative"), text=alt.Text(field=label, type="nominal"))
    return plot.finish(alt.layer(plot.with_tooltip(bar), named), caption, under)


def ranges(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    *,
    highlight: Sequence[str] = (),
    log_x: bool = False,
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Return a point at `x` for each category of `y`, with a bar from `x`_low to `x`_high, side by side by `color`.

    Categories of `color`, or of `y` where it is None, that are not among those to `highlight` are grey.
    """
    check(frame, caption, under=under, x=x, y=y, optional={"color": color})
    flag("log_x", log_x)
    plot = Plot.of(frame, x, y, color, highlight=highlighted(highlight))
    params, picked = plot.picked(color)
    place = {"y": plot.category(alt.Y, y), "color": plot.colour(alt.Color, color, alone=y), **picked}
    if grouped := plot.has_several(y, color):
        place["yOffset"] = plot.category(alt.YOffset, str(color))
    crowded = len(plot.data) > MOST_APART
    base = alt.Chart(plot.data, height={"step": (10 if crowded else 15) if grouped else 20 if crowded else 30})
    point = base.mark_point(size=80, filled=True, strokeWidth=2).add_params(*params)
    room: dict[str, Any] = {"padding": ROOM} if log_x else {}
    at = {"x": plot.number(alt.X, x, log_x, **room)}
    layers = [
        point.encode(
            **place,
            **at,
            stroke=plot.colour(alt.Stroke, color, alone=y),
            fillOpacity=plot.hollowed(0, 1),
        )
    ]
    if plot.has_range(x):
        span = base.mark_rule(strokeWidth=4, opacity=0.5)
        ends = {"x": plot.number(alt.X, x, log_x, "_low", **room), "x2": alt.X2(f"{x}_high")}
        layers.insert(0, plot.ranged(span, x).encode(**place, **ends))
    layers.append(plot.nearest(at | {name: place[name] for name in ("y", "yOffset") if name in place}))
    return plot.finish(alt.layer(*layers), caption, under)


def scatter(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    *,
    label: str,
    highlight: Sequence[str] = (),
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Points of `y` against `x` on log axes of one unit, the line y = x, and bars where either has a range.

    `label` is a column that a point shows under the pointer. Values of `color` that are not among those to `highlight`
    are grey.
    """
    check(frame, caption, under=under, x=x, y=y, label=label, optional={"color": color})
    factor, title = scale(frame, x)
    data, titles = printed(frame, x, color, label)
    ends = [name for name in (y, *(axis + end for axis in (x, y) for end in ("_low", "_high"))) if name in frame]
    data = data.assign(**{name: frame[name] * factor for name in ends})
    titles[y] = scale(frame, y)[1].partition(" [")[0] + "".join(title.partition(" [")[1:])
    plot = Plot(data, titles, on_ground(frame, ""), highlighted(highlight))
    params, picked = plot.picked(color)
    place = {"x": plot.number(alt.X, x, True), "y": plot.number(alt.Y, y, True), "color": plot.colour(alt.Color, color)}
    both = data[[x, y]]
    corners = alt.Data(values=[{"at": rounded(float(end))} for end in (both.min().min(), both.max().max())])
    layers = [alt.Chart(corners).mark_line(color="#888888", strokeWidth=1).encode(x="at:Q", y="at:Q")]
    for axis, name, channel in ((x, "x", alt.X), (y, "y", alt.Y)):
        if plot.has_range(axis):
            span = {name: plot.number(channel, axis, True, "_low"), f"{name}2": f"{axis}_high"}
            rule = alt.Chart(data).mark_rule(strokeWidth=1, strokeOpacity=0.4)
            layers.append(plot.ranged(rule, axis).encode(**{**place, **picked, **span}))
    points = alt.Chart(data).mark_point(size=45, strokeWidth=1.5, filled=True).add_params(*params)
    stroke = plot.colour(alt.Stroke, color)
    layers.append(points.encode(**place, **picked, fillOpacity=plot.hollowed(0, 0.8), stroke=stroke))
    layers.append(plot.nearest({name: place[name] for name in ("x", "y")}))
    return plot.finish(alt.layer(*layers), caption, under)


def regions(
    frame: pd.DataFrame, x: str, y: str, color: str, *, panel: str | None = None, caption: str, under: str = ""
) -> alt.Chart:
    """Return a map: one cell for each pair of `x` and `y`, in the colour of its category, one map for each `panel`."""
    check(frame, caption, under=under, x=x, y=y, color=color, optional={"panel": panel})
    plot = Plot.of(frame, x, y, color, panel)
    params, picked = plot.picked(color)
    axis = {"type": "ordinal", "axis": alt.Axis(format=",~f", labelAngle=0)}
    mark = alt.Chart(plot.data, width={"step": 32}, height={"step": 22}).mark_rect(stroke="#888888", strokeWidth=0.3)
    header = alt.Header(labelColor="#888888", labelAngle=0, labelAlign="left", labelOrient="top")
    rows = {"row": alt.Row(field=panel, type="nominal", title=None, header=header)} if panel else {}
    chart = mark.add_params(*params).encode(
        x=alt.X(field=x, title=plot.titles[x], **axis),
        y=alt.Y(field=y, title=None if panel else plot.titles[y], sort="descending", **axis),
        color=plot.colour(alt.Color, color),
        **picked,
        **rows,
    )
    return plot.finish(plot.with_tooltip(chart), caption, under, [f"upwards: {plot.titles[y]}"] if panel else [])
