"""How a chart displays: as Vega-Lite 5 for JupyterLab and the book, and as its caption for every other viewer."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from trnbook.charts.language import PALETTE
from trnbook.charts.tables import plain_text, rounded, rounded_frame

if TYPE_CHECKING:
    import pandas as pd

VEGALITE_MIME = "application/vnd.vegalite.v5+json"  # the newest that JupyterLab draws
VIEW = "application/vnd.jupyter.widget-view+json"  # what JupyterLab draws a widget from; no run leaves it in a notebook


@cache
def altair() -> ModuleType:
    """Altair with this project's theme, renderer and rounding of data switched on."""
    import altair as alt
    from altair.utils.schemapi import disable_debug_mode

    disable_debug_mode()  # each part of a chart as it is made: the whole is validated where it is shown
    alt.theme.register("trnmodel", enable=True)(lambda: {"config": _theme()})
    alt.renderers.register("trnmodel", mimebundle)
    alt.renderers.enable("trnmodel")
    alt.data_transformers.register("trnmodel", _values)
    alt.data_transformers.enable("trnmodel")
    return alt


class _Altair:
    """Altair by its own name in every module of charts; it is imported when the first of its classes is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(altair(), name)


alt: Any = _Altair()


def _values(frame: pd.DataFrame) -> dict[str, Any]:
    """Rows as a chart embeds them, rounded before Altair names them by their hash."""
    return altair().to_values(rounded_frame(frame))


def _theme() -> dict[str, Any]:
    """Vega-Lite configuration; the book lays its dark colours over it."""
    labels = {"labelFontSize": 13, "titleFontSize": 14, "titleFontWeight": "normal", "labelLimit": 280}
    bare = dict.fromkeys(("symbolBaseFillColor", "symbolBaseStrokeColor"), "#888888")  # of shapes: black on a dark page
    return {
        "axis": {
            **labels,
            "gridColor": "#888888",
            "gridOpacity": 0.2,
            "tickColor": "#888888",
            "domainColor": "#888888",
        },
        "header": {"labelFontSize": 13},
        "legend": {**labels, **bare, "symbolSize": 120, "symbolStrokeWidth": 2.5, "orient": "bottom", "columns": 3},
        "title": {"anchor": "start", "fontSize": 16, "offset": 12, "subtitleFontSize": 13, "subtitleColor": "#888888"},
        "range": {"category": PALETTE},
        "view": {"continuousWidth": 520, "continuousHeight": 320, "discreteWidth": 520, "stroke": None},
        "line": {"strokeWidth": 2.5},
        "padding": {"left": 5, "top": 5, "bottom": 5, "right": 16},  # labels at ends of lines move as a chart is fitted
    }


def mimebundle(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return a chart's specification as a notebook stores it: Vega-Lite 5 and text, the same bytes on every machine."""
    spec = _plain({**spec, "$schema": "https://vega.github.io/schema/vega-lite/v5.json"})
    return {VEGALITE_MIME: spec, "text/plain": plain_text(f"Chart: {spec.get('description', 'no caption')}")}


def _plain(value: Any) -> Any:
    """Return the same JSON with floats as `rounded` gives them, whole ones as integers, as JupyterLab would save it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, float):
        return value
    short = rounded(value)
    return int(short) if short.is_integer() and abs(short) < 1e21 else short


_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    r"""JSON that may stand in an HTML `<script>`: no text in it can end the script or open a comment.

    Examples
    --------
    >>> script_json({"name": "</script><b>&"})
    '{"name":"\\u003c/script\\u003e\\u003cb\\u003e\\u0026"}'
    """
    return json.dumps(value, separators=(",", ":")).translate(_ESCAPES)


class BookRenderer:
    """Entry point of myst-nb: a stored chart becomes a `<div>` with its specification; the book's script draws it."""

    mime_priority_overrides: ClassVar = [(builder, VEGALITE_MIME, 1) for builder in ("html", "singlehtml")]

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """Return the nodes of a chart; None for anything else."""
        if inline or data.mime_type != VEGALITE_MIME:
            return None
        from docutils import nodes

        label = escape(str(data.content.get("description", "")))
        script = f'<script type="application/json">{script_json(data.content)}</script>'
        role = "figure" if '"params":' in script else "img"  # an image has nothing in it to choose or to press
        html = f'<div class="trn-chart" role="{role}" aria-label="{label}">{script}</div>'
        return [nodes.raw("", html, format="html")]
