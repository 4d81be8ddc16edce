"""The form of a notebook: code folded, a number in the book, and a digest for review."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape

import nbformat
from nbformat import NotebookNode

from trnbook.charts.display import VEGALITE_MIME
from trnbook.charts.tables import MOST_ROWS

HIDDEN = "hide-input"  # tag of a cell whose code is no part of the text
LONGEST = 3000  # letters of a text in a digest
_LINK = re.compile(r"\]\(([\w-]+)\.ipynb(#[\w-]+)?\)")
_CAPTION = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)
_HEADING = re.compile(r"^(#{1,3}) +(.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.;?]) (?=\S)(?=\W*[A-Z])|(?<=[.;?]\*\*) ")


def fold(notebook: NotebookNode) -> NotebookNode:
    """Hide the source of the code cells that are tagged so, as JupyterLab reads it: set-up and plumbing."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and HIDDEN in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = nbformat.from_dict({**cell.metadata.get("jupyter", {}), "source_hidden": True})
    return notebook


def written(notebook: NotebookNode) -> str:
    """Return the JSON of a notebook as nbformat, jupytext and JupyterLab store it."""
    return nbformat.writes(notebook) + "\n"


def numbered(notebook: NotebookNode, number: int) -> NotebookNode:
    """Put the notebook's number in the book before its title."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("# "):
            cell.source = f"# {number}. {cell.source[2:]}"
            break
    return notebook


def listing(notebook: NotebookNode, parts: Mapping[str, Sequence[str]]) -> NotebookNode:
    """Append the pages of each part to the first page, as the book's table of contents; its links lead to them."""
    pages = {page.rpartition("/")[2]: page for listed in parts.values() for page in listed}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(lambda to: f"]({pages.get(to[1], to[1])}.ipynb{to[2] or ''})", cell.source)
    trees = [
        "\n".join(["```{toctree}", f":caption: {part}", ":maxdepth: 1", "", *listed, "```"])
        for part, listed in parts.items()
        if listed
    ]
    notebook.cells.append(nbformat.v4.new_markdown_cell("\n\n".join(trees), id="contents"))
    return notebook


def sentences(notebook: NotebookNode) -> list[str]:
    """Return the texts that a notebook computed: its sentences, and the captions of charts and tables."""
    return [text for cell in notebook.cells for kind, text in _said(cell) if kind != "figure"]


def _said(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each output of a cell; output without a description is a figure."""
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if VEGALITE_MIME in data:
            yield "chart", str(data[VEGALITE_MIME].get("description", ""))
        elif html := "".join(data.get("text/html", "")):
            yield from (("table", unescape(caption)) for caption in _CAPTION.findall(html))
        elif "text/markdown" in data:
            yield "text", "".join(data["text/markdown"])
        else:
            yield "figure", "".join(data.get("text/plain", output.get("text", "")))


def digest(notebook: NotebookNode) -> str:
    """Return a notebook's headings, computed sentences and rows of its checks, to review a change.

    Rows stand under a heading that begins with "Check", as many as the page shows.
    """
    lines: list[str] = []
    checks = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for marks, title in _HEADING.findall(_FENCE.sub("", cell.source)):
                checks = title.startswith("Check") or (checks and len(marks) > 2)
                lines += ["", f"{marks} {title}"]
            continue
        for kind, text in _said(cell):
            lines += ["", *_lines(f"{kind}: {text}" if kind in ("chart", "table") else text)]
        if checks:
            lines += _rows(cell)
    return "\n".join(lines).strip() + "\n"


def _lines(text: str) -> Iterable[str]:
    """Split a text into one sentence per line."""
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
    return (line.rstrip() for line in _SENTENCE.sub("\n", short).splitlines())


def _rows(cell: NotebookNode) -> Iterator[str]:
    """Yield the rows of a cell's tables as text."""
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if _CAPTION.search("".join(data.get("text/html", ""))):
            yield from (line.rstrip() for line in "".join(data["text/plain"]).splitlines()[1 : MOST_ROWS + 3])
