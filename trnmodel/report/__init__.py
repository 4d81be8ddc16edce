"""Chapters with checked parameters, run by papermill, and the static book that Sphinx makes of them.

A chapter is a jupytext text `<slug>.py`; its header gives its place in the book (`trnmodel: {order: 3}` beside
`kernelspec`). Its cell tagged `parameters` holds nothing but typed literals, and that cell is the only schema:

    chip: str = "trainium3"
    batch: int = 8
    price_usd_per_h: float | None = None
    phases: list[str] = ["prefill", "decode"]
    attention: Literal["causal", "full"] = "causal"

Types are bool, int, float, str, list[...], `... | None` and Literal (imported in that cell). A parameter whose last
word is chip, system, model or precision (`chip`, `draft_model`, `chips`), or `comparators`, must hold names that
`trnmodel` resolves; a list must hold an item unless its default is empty. All of it is checked before a kernel starts.
What only the chapter knows (a chip without a NeuronCore, a model that does not fit) its first cell refuses by
`trnmodel.chapters.guard`. An executed notebook carries the digest of what it was made from: chapter, parameters (and
the files that they name, alone, in lists or in folders), package, data and lock; while it holds, the chapter is not run
again. A run claims the folder that it writes into (`report.folders`).
"""

from trnmodel.report.book import build_book, build_page, require_place, write_reference_notebooks
from trnmodel.report.chapter import (
    InputError,
    Parameter,
    chapters,
    check_parameters,
    parameters,
    printable,
    read_parameters,
)
from trnmodel.report.execute import ChapterError, Outcome, run
from trnmodel.report.folders import claimed

__all__ = [
    "ChapterError",
    "InputError",
    "Outcome",
    "Parameter",
    "build_book",
    "build_page",
    "chapters",
    "check_parameters",
    "claimed",
    "parameters",
    "printable",
    "read_parameters",
    "require_place",
    "run",
    "write_reference_notebooks",
]
