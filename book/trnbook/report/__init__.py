"""Chapters with checked parameters, run by papermill, and the static book that Sphinx makes of them.

A chapter is a jupytext text `<slug>.py`; its header gives its place in the book (`trnmodel: {order: 3}` next to
`kernelspec`); `index` is the first page, without a number. Its cell tagged `parameters` holds nothing but typed
literals, and that cell is the only schema:

    chip: str = "trainium3"
    batch: int = 8
    price_usd_per_h: float | None = None
    phases: list[str] = ["prefill", "decode"]
    attention: Literal["causal", "full"] = "causal"

Types are bool, int, float, str, list[...], `... | None` and Literal (imported in that cell). A parameter whose last
word is chip, system, model or precision (`chip`, `draft_model`, `chips`), or `comparators` or `rivals`, must
hold names that `trnmodel` resolves; a list must hold an item unless its default is empty. All of it is checked before a
kernel starts. What only the chapter knows (a chip without a NeuronCore, a model that does not fit) its first cell
refuses by `trnbook.chapters.guard`; for parameters that somebody has set, `trnmodel run` asks these questions before a
kernel starts. An executed notebook carries the digest of what it was made from: chapter, parameters (and the files that
they name, alone, in lists or in folders), package, data and lock; while it holds, the chapter is not run
again. A run claims the folder that it writes into (`report.folders`).
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "trnmodel.cli.errors": ("ChapterError", "InputError", "NoAnswerError", "printable"),
    "trnbook.report.book": ("build_book", "build_page", "require_place", "write_reference_notebooks"),
    "trnbook.report.chapter": (
        *("Parameter", "chapters", "check_answers", "check_parameters", "notebooks", "parameters", "read_parameters"),
    ),
    "trnbook.report.execute": ("Outcome", "run"),
    "trnbook.report.folders": ("claimed",),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_NAMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Load a name's module on first use, since Jupyter and Sphinx are slow to import."""
    if name not in _NAMES:
        raise AttributeError(f"module 'trnbook.report' has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)
