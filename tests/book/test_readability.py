"""What a build says of how chapters read is counted right: on a notebook made for it, by hand."""

import json

import pytest

from trnbook.report import readability


def cell(kind, source, *data):
    outputs = [{"data": one} for one in data]
    return {"cell_type": kind, "source": source} | ({"outputs": outputs} if kind == "code" else {})


@pytest.fixture
def page(tmp_path):
    chart = {
        "title": {"text": ["A claim"], "subtitle": ["x" * 60, "y" * 40]},
        "layer": [{"encoding": {"color": {"scale": {"range": ["#D55E00", "#D86010", "#0072B2"]}}}}],
    }
    cells = [
        cell("markdown", "# How?\n\nA step takes 4 ms.\n\n$$ a = b $$\n\nOf 10 chips 8 work and 2 wait."),
        cell(
            "code",
            "step = tm.decode_step(model, system)",
            {"text/markdown": "The text has the 3 of 4. So many of them."},
        ),
        cell("code", "charts.bars(step.to_frame())", {"application/vnd.vegalite.v5+json": chart}),
    ]
    path = tmp_path / "made.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    return readability.page(path)


def test_cells_equations_and_sentences(page):
    assert (page.slug, page.code_cells, page.model_cells, page.model_share) == ("made", 2, 1, 0.5)
    assert page.equations == 1
    assert page.crowded == ("Of 10 chips 8 work and 2 wait.",)
    assert sorted(page.banned) == ["so many", "the text"]


def test_subtitles_and_colours(page):
    """101 letters; two oranges whose distance is below 20."""
    assert (page.long_subtitles, page.close_colours) == (1, 1)
    assert readability.apart("#D55E00", "#D86010") < 20 < readability.apart("#D55E00", "#0072B2")


def test_the_table_has_a_line_for_each_chapter(root):
    table = readability.table(sorted((root / "notebooks").glob("*.ipynb"))).splitlines()
    assert len(table) == 2 + len(list((root / "notebooks").glob("*.ipynb")))
    assert table[-1].endswith("code cells define or call a model")


@pytest.mark.parametrize(("text", "count"), [("7.1.3", 1), ("a 1,024 x 2", 2), ("TP4 on H100", 0), ("1e6", 0), ("", 0)])
def test_odd_numbers(text, count):
    assert len(readability.numbers(text)) == count
