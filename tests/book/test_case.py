"""The running case has one answer: in the plan, in every chapter that shows it, and on the first page."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

import trnmodel as tm
from trnbook.chapters import index_cover
from trnbook.shared import case

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHAPTERS = list(dict.fromkeys(line.chapter for line in case.LINES))


def outputs(chapter):
    """The cells of the strip that a committed chapter shows: line, then its values."""
    cells = json.loads((NOTEBOOKS / f"{chapter}.ipynb").read_text())["cells"]
    html = ["".join(out["data"].get("text/html", "")) for c in cells for out in c.get("outputs", []) if "data" in out]
    (strip,) = [text for text in html if "The running case so far" in text]
    rows = re.findall(r"<tr>(.*?)</tr>", strip, re.S)[1:]
    return {unescape(first): rest for first, *rest in (re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in rows)}


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


def test_the_first_page_has_the_last_lines():
    """Where the page's best system is one of the case: the same throughput and the same cost."""
    for model, speed in case.PROMISES.items():
        row = index_cover.answers([model], [speed], systems=case.SYSTEMS).iloc[0]
        lines = {line.name: case.value(line, model, row.system) for line in case.LINES}
        assert lines["Throughput per chip"] == row.tokens_per_s_per_chip
        assert lines["Energy per token at the server"] == row.server_j_per_token
        assert lines["Owner's cost per million tokens"] == pytest.approx(row.usd_per_mtoken, rel=1e-12)


def test_chapters_stand_in_the_order_of_the_book(root):
    order = {}
    for path in (root / "notebooks" / "py").glob("*.py"):
        order[path.stem] = float(re.search(r"#     order: ([\d.]+)", path.read_text())[1])
    assert sorted(CHAPTERS, key=order.__getitem__) == CHAPTERS


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_shows_the_case_up_to_its_own_line(chapter, root):
    assert f'case.table("{chapter}")' in (root / "notebooks" / "py" / f"{chapter}.py").read_text()
    shown, last = outputs(chapter), outputs(CHAPTERS[-1])
    names = [line.name for line in case.LINES]
    own = [line.name for line in case.LINES if line.chapter == chapter]
    assert [*shown] == names[: names.index(own[-1]) + 1]
    assert shown == {name: last[name] for name in shown}
