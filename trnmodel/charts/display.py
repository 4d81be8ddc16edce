"""How a chart displays: as Vega-Lite 5 for JupyterLab and the book, and as PNG for every other viewer."""

from __future__ import annotations

import base64
import io
import json
from functools import cache
from html import escape
from types import ModuleType
from typing import Any, ClassVar

VEGALITE_MIME = "application/vnd.vegalite.v5+json"  # the newest that JupyterLab draws
VEGALITE = "5.8"  # of those that vl-convert carries, the nearest to JupyterLab's 5.6

PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C", "#9467BD", "#A6761D", "#1B9AAA"]


@cache
def altair() -> ModuleType:
    """Altair with this project's theme and renderer switched on."""
    import altair as alt

    alt.theme.register("trnmodel", enable=True)(lambda: {"config": _theme()})
    alt.renderers.register("trnmodel", mimebundle)
    alt.renderers.enable("trnmodel")
    return alt


def _theme() -> dict[str, Any]:
    """Vega-Lite configuration; the book lays its dark colours over it."""
    labels = {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal", "labelLimit": 260}
    return {
        "axis": {
            **labels,
            "gridColor": "#888888",
            "gridOpacity": 0.2,
            "tickColor": "#888888",
            "domainColor": "#888888",
        },
        "legend": {**labels, "symbolSize": 120, "symbolStrokeWidth": 2.5, "orient": "bottom", "columns": 3},
        "title": {"anchor": "start", "fontSize": 15, "offset": 12, "subtitleFontSize": 12, "subtitleColor": "#888888"},
        "range": {"category": PALETTE},
        "view": {"continuousWidth": 520, "continuousHeight": 320, "stroke": None},
        "line": {"strokeWidth": 2.5},
    }


def mimebundle(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A chart's specification as what a notebook stores: Vega-Lite 5, PNG and text, the same bytes on every run."""
    import vl_convert
    from PIL import Image

    spec = _plain({**spec, "$schema": "https://vega.github.io/schema/vega-lite/v5.json"})
    png = vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=2)
    small = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    image = base64.b64encode(small.getvalue()).decode() + "\n"
    return {VEGALITE_MIME: spec, "image/png": image, "text/plain": f"Chart: {spec.get('description', 'no caption')}"}


def _plain(value: Any) -> Any:
    """The same JSON with floats of 6 significant digits, whole ones as integers, as JupyterLab would save it."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e21 else rounded


class BookRenderer:
    """Entry point of myst-nb: a stored chart becomes a `<div>` with its specification; the book's script draws it."""

    mime_priority_overrides: ClassVar = [(builder, VEGALITE_MIME, 1) for builder in ("html", "singlehtml")]

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[Any] | None:
        """The nodes of a chart; None for anything else."""
        if inline or data.mime_type != VEGALITE_MIME:
            return None
        from docutils import nodes

        label = escape(data.content.get("description", ""), quote=True)
        spec = json.dumps(data.content, separators=(",", ":")).replace("</", "<\\/")
        script = f'<script type="application/json">{spec}</script>'
        html = f'<div class="trn-chart" role="img" aria-label="{label}">{script}</div>'
        return [nodes.raw("", html, format="html")]
