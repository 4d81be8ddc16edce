"""An extension of the Jupyter server, which `make .venv` switches on: a chapter that is saved stays as it is committed.

JupyterLab writes into a notebook the exact version of the Python that ran it, a picture of each chart that it has
drawn, which depends on the machine's fonts, and the place of controls in a kernel that is gone when the notebook is
opened again. The committed chapters hold none of these, so that a Save changes nothing.
"""

from __future__ import annotations

from typing import Any

from trnbook.charts.display import VEGALITE_MIME, VIEW


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Return the modules that the server loads for this extension."""
    return [{"module": __name__}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Have a server that starts call `drop_additions` before each save."""
    server.contents_manager.register_pre_save_hook(drop_additions)


def drop_additions(model: dict[str, Any], **_: object) -> None:
    """Remove from a chapter that is about to be saved what JupyterLab has added; other notebooks stay as they are.

    Examples
    --------
    >>> chart = {"data": {VEGALITE_MIME: {"mark": "bar"}, "image/png": "iVBORw0KGgo", "text/plain": "A claim"}}
    >>> metadata = {"trnmodel": {"order": 1}, "language_info": {"name": "python", "version": "3.11.2"}}
    >>> drop_additions({"type": "notebook", "content": {"metadata": metadata, "cells": [{"outputs": [chart]}]}})
    >>> metadata["language_info"], list(chart["data"])
    ({'name': 'python'}, ['application/vnd.vegalite.v5+json', 'text/plain'])
    """
    notebook = model["content"] if model["type"] == "notebook" else None
    if not notebook or "trnmodel" not in notebook["metadata"]:
        return
    notebook["metadata"].get("language_info", {}).pop("version", None)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(VIEW, None)
            if VEGALITE_MIME in output.get("data", {}):
                output["data"].pop("image/png", None)
