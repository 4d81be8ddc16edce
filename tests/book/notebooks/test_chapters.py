"""Chapters are pairs in step, follow the template, and run to the bytes that are committed."""

import re
import shutil

import jupytext
import nbformat
import pytest

from trnbook import report
from trnbook.report import form


@pytest.fixture
def text(root, slug):
    return jupytext.read(root / "notebooks" / "py" / f"{slug}.py")


def facts(cell):
    return cell.cell_type, cell.source, cell.metadata.get("tags", [])


def test_pair_is_in_step(root, slug, text):
    notebook = jupytext.read(root / "notebooks" / f"{slug}.ipynb")
    assert [facts(cell) for cell in notebook.cells] == [facts(cell) for cell in text.cells], "run `make notebooks`"


def test_notebook_has_its_text(root):
    stems = [sorted(path.stem for path in (root / "notebooks").glob(kind)) for kind in ("*.ipynb", "py/*.py")]
    assert stems[0] == stems[1]


@pytest.mark.chapters
def test_template(text):
    prose = "\n\n".join(cell.source for cell in text.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^#{1,2} (.+)$", prose, re.MULTILINE)
    assert headings[0].endswith("?"), "the title is a question"
    (given,) = [cell.source for cell in text.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(given.splitlines()) > 1, "IPython takes a single line such as `system: ...` for its magic of that name"
    assert any(heading.startswith("Check") for heading in headings)
    assert "{admonition} Takeaway" in prose
    assert "Problems" in headings
    assert len(re.findall(r"\{admonition\} Answer\n:class: dropdown", prose)) >= 3
    assert headings[-1] == "Sources"


def test_a_caption_names_the_estimates_that_its_chart_rests_on(root, slug):
    cells = jupytext.read(root / "notebooks" / f"{slug}.ipynb").cells
    shown = [spec for cell in cells for out in cell.get("outputs", []) for spec in out.get("data", {}).values()]
    titles = [spec["title"] for spec in shown if isinstance(spec, dict) and isinstance(spec.get("title"), dict)]
    unsaid = [title["text"] for title in titles if "estimate" in title.get("subtitle", "")]
    unsaid = [text for text in unsaid if "estimate" not in " ".join(text)]
    assert unsaid == []


def test_a_run_ends_with_the_committed_notebook_and_digest(root, slug, tmp_path):
    """To the byte of every output; a chapter that `make book` has executed is read, while its own digest holds."""
    executed = root / "build" / "notebooks" / f"{slug}.ipynb"
    if executed.is_file():
        shutil.copy(executed, tmp_path)
    (outcome,) = report.run([slug], out_dir=tmp_path, progress=False)
    fresh, committed = (nbformat.read(path, 4) for path in (outcome.path, root / "notebooks" / f"{slug}.ipynb"))
    pairs = zip(fresh.cells, committed.cells, strict=True)
    moved = [f"cell {n}: {now.source[:200]}" for n, (now, then) in enumerate(pairs) if now != then]
    assert moved == [], "run `make notebooks` and look at what moved"
    assert form.digest(fresh) == (root / "notebooks" / "digest" / f"{slug}.txt").read_text()


def test_a_second_run_ends_with_the_same_bytes(tmp_path):
    """Of one chapter; the others are held to what another run has left, the committed one."""
    first, second = (report.run(["memory"], out_dir=tmp_path / name, progress=False)[0].path for name in "ab")
    assert first.read_bytes() == second.read_bytes()
