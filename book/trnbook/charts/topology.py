"""A network drawn from its graph: chips, switches, links by medium; pointing at a node shows its links."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from trnbook.charts.language import PALETTE
from trnbook.charts.tables import check

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

HEIGHT = 540
NODES = {"chip": ("chip", "square"), "backplane": ("rack switch", "circle"), "pcb": ("board switch", "diamond")}
LINK = ("one", "other", "x", "y", "x2", "y2", "group")
PATH, WORD = ("path", "x", "y", "x2", "y2"), ("text", "x", "y", "angle")
CHOSEN = "#D62728"
FAINT = {500: 0.5, 100: 0.6, 0: 0.8}  # lines stay legible where many cross: opacity from that number of links on


def topology(
    nodes: pd.DataFrame,
    links: pd.DataFrame,
    *,
    caption: str,
    under: str = "",
    labels: pd.DataFrame | None = None,
    paths: pd.DataFrame | None = None,
) -> alt.LayerChart:
    """Chips as squares, switches as dots or diamonds, links coloured by group; those of the node pointed at stand out.

    The first node is picked to begin with, so that a printed chart shows one chip's links too.

    Parameters
    ----------
    nodes : pandas.DataFrame
        node, kind ("chip", "backplane", "pcb", ...), x, y, and what pointing at it tells: `links`.
    links : pandas.DataFrame
        one, other, x, y, x2, y2, group; none for a single chip.
    caption : str
        The claim.
    labels : pandas.DataFrame, optional
        text, x, y, angle: words that stand beside the nodes.
    paths : pandas.DataFrame, optional
        path, x, y, x2, y2: the links of named paths, of which a reader chooses one.
    """
    check(nodes, caption, under=under, name="nodes", needed=("node", "kind", "x", "y", "links"))
    for name, more, columns in (("labels", labels, WORD), ("paths", paths, PATH)):
        if more is not None:
            check(more, caption, name=name, needed=columns)
    check(links, caption, name="links", needed=() if getattr(links, "empty", True) else LINK)
    first = [{"node": nodes.node.iloc[0]}]
    pick = alt.selection_point(name="pick", fields=["node"], on="pointerover", nearest=True, value=first)
    chart = _points(nodes).add_params(pick)
    if len(links):
        groups = list(dict.fromkeys(links.group))
        chart = _lines(links, groups) + _picked(links, groups) + chart
    if paths is not None and len(paths):
        chart += _path(paths)
    if labels is not None and len(labels):
        chart += _text_mark(labels)
    grey = [*([under] if under else []), "point at a chip or a switch to see its links"]
    title = alt.TitleParams(text=textwrap.wrap(caption, 76), subtitle=grey)
    return chart.properties(height=HEIGHT, title=title, description=f"{caption}. {under}" if under else caption)


def _place(column: str) -> Any:
    return (alt.X if column == "x" else alt.Y)(
        field=column, type="quantitative", axis=None, scale={"zero": False, "nice": False, "padding": 14}
    )


def _rules(links: pd.DataFrame, groups: list[str]) -> Any:
    colours = {"domain": groups, "range": PALETTE[: len(groups)]}
    base = alt.Chart(links[["one", "other", "x", "y", "x2", "y2", "group"]])
    group = alt.Color(field="group", type="nominal", title="Link", scale=colours, legend=alt.Legend(symbolOpacity=1))
    return base, {"x": _place("x"), "y": _place("y"), "x2": "x2", "y2": "y2", "color": group}


def _lines(links: pd.DataFrame, groups: list[str]) -> Any:
    base, place = _rules(links, groups)
    opacity = next(value for least, value in FAINT.items() if len(links) >= least)
    return base.mark_rule(strokeWidth=0.7, opacity=opacity).encode(**place)


def _picked(links: pd.DataFrame, groups: list[str]) -> Any:
    base, place = _rules(links, groups)
    near = "isDefined(pick.node) && (indexof(pick.node, datum.one) >= 0 || indexof(pick.node, datum.other) >= 0)"
    return base.transform_filter(near).mark_rule(strokeWidth=2.4).encode(**place)


def _path(paths: pd.DataFrame) -> Any:
    """One of several paths, to choose by its name."""
    names = list(dict.fromkeys(paths.path))
    choice = alt.param(name="path", value=names[0], bind=alt.binding_radio(options=names, name="Path "))
    line = alt.Chart(paths).transform_filter("datum.path == path").mark_rule(color=CHOSEN, strokeWidth=4)
    return line.encode(x=_place("x"), y=_place("y"), x2="x2", y2="y2").add_params(choice)


def _text_mark(labels: pd.DataFrame) -> Any:
    angle = alt.Angle(field="angle", type="quantitative", scale=None)
    text = alt.Text(field="text", type="nominal")
    marks = alt.Chart(labels).mark_text(color="#808080", fontSize=11)
    return marks.encode(x=_place("x"), y=_place("y"), text=text, angle=angle)


def _points(nodes: pd.DataFrame) -> Any:
    kinds = [NODES.get(kind, (kind, "circle")) for kind in dict.fromkeys(nodes.kind)]
    named = nodes.assign(kind=[NODES.get(kind, (kind, "circle"))[0] for kind in nodes.kind])
    shapes = {"domain": [name for name, _ in kinds], "range": [shape for _, shape in kinds]}
    chosen = "isDefined(pick.node) && indexof(pick.node, datum.node) >= 0"
    size = 90 if len(nodes) < 200 else 30
    return (
        alt.Chart(named)
        .mark_point(filled=True, opacity=1)
        .encode(
            x=_place("x"),
            y=_place("y"),
            shape=alt.Shape(field="kind", type="nominal", title="Node", scale=shapes),
            color=alt.when(chosen).then(alt.value(CHOSEN)).otherwise(alt.value("#777777")),
            size=alt.when(chosen).then(alt.value(2.5 * size)).otherwise(alt.value(size)),
            tooltip=[alt.Tooltip(field=name, type="nominal") for name in ("node", "kind", "links")],
        )
    )
