"""The form of chapters: set-up folded, small, in order, with a digest beside them, and nothing odd in what they say."""

import re

import jupytext
import nbformat
import pandas as pd
import pytest
from jupytext.config import load_jupytext_config

from trnbook import charts, report
from trnbook.charts.display import VEGALITE_MIME
from trnbook.charts.tables import LEAST_FOLDED, MOST_FOLDED, MOST_FOUND, MOST_ROWS
from trnbook.report import book, chapter, form

ORDER = [
    *("which-system", "cost", "beside-gpus", "how-sure", "workbench", "trainium4"),
    *("chip-roofline", "neuroncore", "memory", "rack", "torus-or-switch", "switch-tray", "scale-out"),
    *("model-needs", "memory-fit", "decode-step", "serving", "software", "training", "power", "goodput"),
    *("accuracy", "contradictions", "claims", "data", "add-your-own", "bring-your-own"),
    "metrics",
]
TYPED = re.compile(r"\b[Cc]hapters? \d")
MOST_BYTES = 1_250_000  # as nbformat stores it; JupyterLab is sent the same without the indents


@pytest.fixture
def committed(root, slug):
    return root / "notebooks" / f"{slug}.ipynb"


def test_chapters_stand_in_the_order_that_prose_counts():
    known = report.chapters()
    assert known == [slug for slug in ORDER if slug in known]
    parts = chapter.parts()
    assert [slug for slugs in parts.values() for slug in slugs] == known
    assert list(parts) == ["Decide", "Understand", "Evidence", "Words"]


def test_a_chapter_is_named_by_a_link_and_not_by_a_number_that_moves(root, slug):
    assert TYPED.findall((root / "notebooks" / "py" / f"{slug}.py").read_text()) == []


def folded(cell):
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_set_up_is_folded_and_the_model_is_open_as_jupyterlab_opens_it(committed):
    cells = [cell for cell in nbformat.read(committed, 4).cells if cell.cell_type == "code"]
    assert [folded(cell) for cell in cells] == [form.HIDDEN in cell.metadata.get("tags", []) for cell in cells]
    assert 0 < sum(map(folded, cells)) < len(cells)


def test_a_pair_keeps_its_folds(root, slug, committed):
    """JupyterLab takes the text's cells and the notebook's outputs and folds."""
    path = str(root / "notebooks" / "py" / f"{slug}.py")
    text = jupytext.read(path, config=load_jupytext_config(path))
    both = jupytext.combine.combine_inputs_with_outputs(text, nbformat.read(committed, 4))
    assert all(folded(cell) == (form.HIDDEN in cell.metadata.get("tags", [])) for cell in both.cells)
    assert "source_hidden" not in (root / "notebooks" / "py" / f"{slug}.py").read_text()


def test_a_notebook_is_small_enough_to_open(committed):
    assert committed.stat().st_size < MOST_BYTES


def test_the_digest_is_that_of_the_notebook(committed):
    digest = form.digest(nbformat.read(committed, 4))
    assert book.digest_path(committed).read_text() == digest, "run `make notebooks`"
    assert "**" in digest
    assert re.search("^## Check", digest, re.MULTILINE) or committed.stem == "index"


def test_a_digest_shows_what_changed():
    """A caption, a figure, an answer and a row of a check: each changes the digest; data of a chart do not."""

    def notebook(answer="It is 3.", caption="A claim", figure="4", row="5", datum=6):
        code = nbformat.v4.new_code_cell
        show = nbformat.v4.new_output
        bundle = {VEGALITE_MIME: {"description": caption, "data": datum}, "text/plain": "Chart"}
        table = charts.table(pd.DataFrame({"n": [row]}), caption="Rows", download="rows")
        both = {"text/html": table._repr_html_(), "text/plain": repr(table)}
        cells = [
            nbformat.v4.new_markdown_cell("# How?"),
            code("a", outputs=[show("display_data", {"text/markdown": answer})]),
            code("b", outputs=[show("display_data", bundle), show("stream", text=figure)]),
            nbformat.v4.new_markdown_cell("## Check: a run"),
            code("c", outputs=[show("display_data", both)]),
        ]
        return form.digest(nbformat.v4.new_notebook(cells=cells))

    usual = notebook()
    assert usual.split("\n\n") == [
        "# How?",
        "It is 3.",
        "chart: A claim",
        "4",
        "## Check: a run",
        "table: Rows\nn\n5\n",
    ]
    changed = [notebook(answer="It is 4."), notebook(caption="B"), notebook(figure="5"), notebook(row="6")]
    assert len({usual, *changed}) == 5
    assert notebook(datum=7) == usual


def test_nothing_that_is_said_is_odd(committed, oddities):
    assert oddities(form.sentences(nbformat.read(committed, 4))) == []


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("takes nan s", 1),
        ("as inf%", 1),
        ("on inf2.48xlarge and trn1.32xlarge with infinite nano", 0),
        ("makes **** tokens", 1),
        ("slower than , on", 1),
        ("from a block of 384 on, and what it is made of.", 0),
        ("1 switches and 21 switches, 0.1 rows, Trainium1 rows, x1 links", 1),
        ("padded 12700.0% more, 12,700% more, 9,999% more, 1e+05%", 3),
    ],
)
def test_what_is_odd_is_found(oddities, text, n):
    assert len(oddities([text])) == n


@pytest.mark.parametrize("n", [1, MOST_ROWS, MOST_ROWS + LEAST_FOLDED, MOST_FOLDED, MOST_FOLDED + 1])
def test_a_table_shows_twelve_rows_and_folds_the_rest(n):
    table = charts.table(pd.DataFrame({"n": range(1, n + 1)}), caption="Numbers", download="n")
    html = table._repr_html_()
    first, _, rest = html.partition("<details>")
    assert first.count("<td") == min(n, MOST_ROWS)
    assert rest.count("<td") == (n - MOST_ROWS if MOST_ROWS < n <= MOST_FOLDED else 0)
    assert html.count("<caption>Numbers</caption>") == 1
    assert (f"The first 12 of {n} rows" in html) == (n > MOST_FOLDED)
    assert f"{n - MOST_ROWS} more rows<" in html or n in (1, MOST_ROWS) or n > MOST_FOLDED
    assert repr(table).count("\n") == 1 + min(n, MOST_ROWS) + (n > MOST_ROWS)


def test_a_fold_hides_more_than_two_rows():
    n = MOST_ROWS + LEAST_FOLDED - 1
    html = charts.table(pd.DataFrame({"n": range(n)}), caption="Numbers", download="n")._repr_html_()
    assert html.count("<td") == n
    assert "<details>" not in html


def test_a_table_to_find_rows_in_has_all_of_them_up_to_a_limit():
    html = charts.table(pd.DataFrame({"n": range(700)}), caption="Numbers", download="n", find=True)._repr_html_()
    assert html.count("<td") == MOST_FOUND
    assert 'class="trn-table trn-find"' in html


def test_a_source_is_its_title_and_an_error_a_percentage():
    frame = pd.DataFrame(
        {"title": ["<b>", "No page"], "url": ["https://example.org/a", "-"], "busbw_error": [-0.27, float("nan")]}
    )
    html = charts.table(frame, caption="Sources", download="s")._repr_html_()
    assert '<a href="https://example.org/a">&lt;b&gt;</a>' in html
    assert ">No page<" in html
    assert ">-27%<" in html
    assert ">\N{EN DASH}<" in html
    assert html.count("https://") == 1


def test_links_of_the_first_page_lead_into_the_folder_of_chapters():
    """In JupyterLab the first page lies beside the chapters, in the book above them."""
    page = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("[A](cost.ipynb), [B](cost.ipynb#a-tie), [C](other.ipynb)")]
    )
    (cell, _) = form.listing(page, {"Decide": ["chapters/cost"]}).cells
    assert cell.source == "[A](chapters/cost.ipynb), [B](chapters/cost.ipynb#a-tie), [C](other.ipynb)"
