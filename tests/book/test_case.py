"""The running case has one answer: in the plan, in every chapter that shows it, and on the first page."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

import trnmodel as tm
from trnbook.report import chapter
from trnbook.shared import case

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SHOWING = [slug for part in ("Decide", "Understand") for slug in chapter.parts()[part]]


def outputs(slug):
    """The cells of the strip that a committed chapter shows: line, then its values."""
    cells = json.loads((NOTEBOOKS / f"{slug}.ipynb").read_text())["cells"]
    html = ["".join(out["data"].get("text/html", "")) for c in cells for out in c.get("outputs", []) if "data" in out]
    (strip,) = [text for text in html if "The running case so far" in text]
    rows = re.findall(r"<tr>(.*?)</tr>", strip, re.S)[1:]
    cells = (re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in rows if "<td" in row)  # a fold repeats the head
    return {unescape(first): rest for first, *rest in cells}


@pytest.mark.parametrize("model", case.PROMISES)
@pytest.mark.parametrize("system", case.SYSTEMS)
def test_every_figure_is_that_of_the_public_calls(model, system):
    c, at = tm.plan(model, case.request(model), systems=system).best, {}
    for line in case.LINES:
        at[line.name] = case.value(line, model, system)
    assert at["Throughput per chip"] == c.tokens_per_s_per_chip
    step = tm.decode_step(
        model, system, c.degrees, batch=c.batch, context=c.question.request.mean_context, precision=str(c.precision),
        efficiencies=c.stack, max_context=c.question.request.longest_context, new_tokens=c.option.draft_tokens + 1,
    )  # fmt: skip
    assert at["Decode step"] == pytest.approx(float(step.time_s), rel=1e-9)
    assert 0 < at["Energy per token at the server"] < 100


def test_lines_stand_in_the_order_of_the_chapters_that_derive_them():
    """Those of the second part; the first part derives the last line, and shows all."""
    assert list(case.EXPLAINING) == chapter.parts()["Understand"]
    derived = [line.chapter for line in case.LINES[:-1]]
    assert sorted(derived, key=case.EXPLAINING.index) == derived
    assert case.LINES[-1].chapter in chapter.parts()["Decide"]
    for slug in ("index", *chapter.parts()["Decide"]):
        assert sorted(line.name for line in case.lines(slug)) == sorted(line.name for line in case.LINES)


@pytest.mark.parametrize("model", case.PROMISES)
@pytest.mark.parametrize("system", case.SYSTEMS)
def test_the_times_of_a_step_stand_below_each_other_and_add_up(model, system):
    names = [line.name for line in case.lines("index")]
    last = names.index("Decode step")
    parts = case.lines("index")[last - 5 : last]
    assert [line.unit for line in parts] == ["s"] * 5
    step = case.value(case.lines("index")[last], model, system)
    assert sum(case.value(line, model, system) for line in parts) == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("place", SHOWING)
def test_a_chapter_shows_the_case_up_to_its_own_line(place, root):
    assert f'case.table("{place}")' in (root / "notebooks" / "py" / f"{place}.py").read_text()
    shown, whole = outputs(place), outputs("cost")
    named = [name for name in shown if name != case.SERVED]
    assert named == [line.name for line in case.lines(place)]
    assert shown == {name: whole[name] for name in shown}
