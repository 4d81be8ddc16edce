"""What a build says of how chapters read is counted right: on a notebook made for it, by hand."""

import json

import pytest

from trnbook.report import readability


def cell(kind, source, *data):
    outputs = [{"data": one} for one in data]
    return {"cell_type": kind, "source": source} | ({"outputs": outputs} if kind == "code" else {})


def chart(under, colours, tooltip="Time [s]"):
    return {
        "title": {"text": ["A claim"], "subtitle": ["x"]},
        "usermeta": {"under": [under]},
        "layer": [
            {
                "encoding": {
                    "color": {"scale": {"range": colours}},
                    "tooltip": [{"field": "time_s", "title": tooltip}],
                }
            }
        ],
    }


@pytest.fixture
def made(tmp_path):
    """A function that gives the figures of a notebook of a text, a sentence that a run prints, and a chart."""

    def made(text="# How?\n\nWell.", said="It is 4.", shown=None, name="made"):
        cells = [
            cell("markdown", text),
            cell("code", "step = tm.decode_step(model, system)", {"text/markdown": said}),
            cell("code", "charts.bars(step.to_frame())", {"application/vnd.vegalite.v5+json": shown or {}}),
        ]
        path = tmp_path / f"{name}.ipynb"
        path.write_text(json.dumps({"cells": cells}))
        return readability.page(path, ["TP", "KV cache"])

    return made


def test_cells_equations_and_numbers(made):
    page = made("# How?\n\nA step takes 4 ms.\n\n$$ a = b $$\n\nOf 10 chips 8 work.")
    assert (page.slug, page.code_cells, page.model_cells, page.equations) == ("made", 2, 1, 1)
    assert (page.sentences, page.numbers) == (3, 4)
    assert readability.model_share([page]) == 0.5
    assert list(page.faults()) == []


@pytest.mark.parametrize(
    ("ask", "fault"),
    [
        ({"text": "Of 10 chips 8 work and 2 wait."}, "more than 2 numbers in a sentence: Of 10 chips"),
        ({"said": "Of 10 chips 8 work, 1 waits, 1 fails."}, "more than 2 numbers in a sentence"),
        ({"text": "So many of them."}, "a phrase that is no plain English: So many"),
        ({"text": "It makes 400 tokens/s a chip."}, "a phrase that is no plain English"),
        ({"text": "The NIC and the TP."}, "an abbreviation that the glossary does not explain: NIC"),
        ({"shown": chart("x" * 91, ["#D55E00"])}, "more than 90 letters in a subtitle"),
        ({"shown": chart("x", ["#D55E00", "#D86010", "#0072B2"])}, "series that are hard to tell apart: A claim"),
        ({"shown": chart("x", ["#003050", "#005080"])}, "series that are hard to tell apart"),
        ({"shown": chart("x", ["#D55E00"], "time_s")}, "a tooltip shows the name of a column: time_s"),
    ],
)
def test_each_fault_is_found_and_no_other(made, ask, fault):
    """The two blues are told apart on a white page and look alike on a dark one, where both are made lighter."""
    (found,) = made(**ask).faults()
    assert found.startswith(fault)


@pytest.mark.parametrize(
    "said", ["Of 10 chips 8 work and 2 wait.", "It takes 3 ms (2 to 4; extrapolated), not 5 or 6."]
)
def test_a_headline_may_have_three_numbers_and_a_band_is_none(made, said):
    assert list(made(said=said).faults()) == []


def test_only_chapters_that_explain_need_equations_and_a_third_of_all_cells_the_model(made):
    page = made()
    assert readability.faults([page], []) == []
    assert readability.faults([page], ["made"]) == [
        "made: it has 0 display equations; one that explains has at least 6"
    ]
    idle = page._replace(code_cells=9)
    assert readability.faults([idle], []) == ["11% of the code cells define or call a model, and a third should"]


def test_the_table_has_a_line_for_each_chapter(made):
    lines = readability.table([made(), made(name="other")]).splitlines()
    assert len(lines) == 4
    assert lines[-1] == "50% of 4 code cells define or call a model"


def test_the_words_of_a_glossary(tmp_path):
    path = tmp_path / "glossary.md"
    path.write_text("# Words\n\n| word | meaning |\n|---|---|\n| [MFU, HFU](a.ipynb#b) | x |\n| first rank | y |\n")
    assert readability.glossary(path) == ["MFU", "HFU", "first rank"]


@pytest.mark.parametrize(("text", "count"), [("7.1.3", 1), ("a 1,024 x 2", 2), ("TP4 on H100", 0), ("1e6", 0), ("", 0)])
def test_odd_numbers(text, count):
    assert len(readability.numbers(text)) == count
