"""A network drawn from its graph: chips, switches, links by medium; pointing at a node shows its links."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from trnmodel.charts.display import altair

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


def topology(nodes: pd.DataFrame, links: pd.DataFrame, *, caption: str) -> alt.LayerChart:
    """Chips as squares, switches as dots, links coloured by medium; the links of the node pointed at stand out.

    Parameters
    ----------
    nodes : pandas.DataFrame
        node, kind, x, y.
    links : pandas.DataFrame
        one, other, x, y, x2, y2, medium.
    caption : str
        The claim.
    """
    alt = altair()
    pick = alt.selection_point(name="pick", fields=["node"], on="pointerover", empty=False)
    near = "isDefined(pick.node) && (indexof(pick.node, datum.one) >= 0 || indexof(pick.node, datum.other) >= 0)"
    faint = max(0.06, min(0.5, 100 / len(links))) if len(links) else 0.5
    axis = {"axis": None}
    lines = (
        alt.Chart(links[["one", "other", "x", "y", "x2", "y2", "medium"]])
        .mark_rule()
        .encode(
            x=alt.X("x:Q", scale=alt.Scale(zero=False, padding=12), **axis),
            y=alt.Y("y:Q", scale=alt.Scale(zero=False, padding=12), **axis),
            x2="x2",
            y2="y2",
            color=alt.Color("medium:N", title="Link"),
            opacity=alt.when(near).then(alt.value(1)).otherwise(alt.value(faint)),
            strokeWidth=alt.when(near).then(alt.value(2)).otherwise(alt.value(1)),
        )
    )
    symbols = {"chip": "square", "backplane": "circle", "pcb": "diamond"}
    kinds = list(dict.fromkeys(nodes.kind))
    shapes = alt.Scale(domain=kinds, range=[symbols.get(kind, "circle") for kind in kinds])
    names = {"chip": "chip", "backplane": "rack switch", "pcb": "board switch"}
    label = "{" + ", ".join(f"'{kind}': '{names.get(kind, 'switch')}'" for kind in kinds) + "}[datum.label]"
    points = (
        alt.Chart(nodes)
        .mark_point(filled=True, opacity=1, size=70 if len(nodes) < 200 else 28, color="#666666")
        .encode(
            x=alt.X("x:Q", **axis),
            y=alt.Y("y:Q", **axis),
            shape=alt.Shape("kind:N", title="Node", scale=shapes, legend=alt.Legend(labelExpr=label)),
            tooltip=["node:N", "kind:N"],
        )
        .add_params(pick)
    )
    title = alt.TitleParams(text=textwrap.wrap(caption, 76))
    return (lines + points).properties(width=620, height=440, title=title, description=caption)
