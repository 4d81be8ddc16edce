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
`trnmodel` resolves. All of it is checked before a kernel starts. An executed notebook carries the digest of what it was
made from: chapter, parameters (and files that they name), package, data and lock; while it holds, the chapter is not
run again.
"""

from trnmodel.report.book import build_book, build_page, write_reference_notebooks
from trnmodel.report.chapter import InputError, Parameter, chapters, check_parameters, parameters, read_parameters
from trnmodel.report.execute import ChapterError, Outcome, run

__all__ = [
    "ChapterError",
    "InputError",
    "Outcome",
    "Parameter",
    "build_book",
    "build_page",
    "chapters",
    "check_parameters",
    "parameters",
    "read_parameters",
    "run",
    "write_reference_notebooks",
]
