"""The chapter on printed claims: its counts, its ten claims, and the list that opens to derivations."""

import os
import re
from pathlib import Path

import pytest

import trnmodel as tm
from trnbook import report
from trnbook.chapters import claims as study
from trnbook.report import chapter
from trnbook.shared import ledger
from trnmodel.catalog import load
from trnmodel.cli.errors import InputError
from trnmodel.evidence.claims import claim_rows

TEXTS = Path(os.environ.get("TRNMODEL_SOURCES", Path(__file__).parents[4] / "shared" / "sources"))


@pytest.fixture(scope="module")
def result():
    return tm.claims()


def test_the_card_counts_computed_claims_alone(result):
    table = result.to_frame()
    computed = table[(table.kind == "computed") & table.verdict.isin(("agrees", "disagrees"))]
    agree = int((computed.verdict == "agrees").sum())
    lines = study.answer(result).splitlines()
    assert lines[0].startswith(f"> **{agree} of {len(computed)}**: printed claims follow")
    assert f"{len(computed) - agree} do not" in lines[2]


def test_counts_by_topic_are_those_of_the_table_without_its_sets(result):
    table = result.to_frame()
    counted = study.by_topic(result)
    assert counted.claims.sum() == (table.kind != "set").sum()
    memory = counted[counted.topic == "memory"].set_index("verdict").claims
    rows = table[(table.topic == "memory") & (table.kind != "set")]
    assert memory["agrees"] == (rows.verdict == "agrees").sum()
    totals = counted.groupby("topic", sort=False).claims.sum()
    assert totals.is_monotonic_decreasing


def test_the_caption_of_the_chart_is_true(result):
    """Chips, memory and links have most of the claims that disagree, and most computed claims agree."""
    table = result.to_frame()
    computed = table[table.kind == "computed"]
    differ = computed[computed.verdict == "disagrees"].topic.value_counts()
    assert set(differ.index[:3]) == {"scale-up", "chip", "memory"}
    assert (computed.verdict == "agrees").sum() > 2 * differ.sum()


def test_the_ten_are_claims_of_several_topics_and_both_verdicts(result):
    ten = study.chosen(result, *study.TEN)
    assert len(ten.rows) == 10
    assert len({one.topic for one in ten.rows}) >= 5
    assert {one.verdict for one in ten.rows} == {"agrees", "disagrees"}


def test_each_item_of_the_list_opens_to_its_derivation(result):
    html = study.Derivations(result, "All")._repr_html_()
    items = re.findall(r"<details id=\"(\w+)\"(.*?)</details>", html, re.DOTALL)
    assert [name for name, _ in items] == [one.id for one in result.rows]
    text = dict(items)["NC009"]
    assert 'data-verdict="agrees"' in text
    assert 'data-topic="scale-up"' in text
    assert 'data-source="trainium3-deep-dive"' in text
    for word in (
        "<dt>Printed</dt><dd>1.2 TB/s, within 0.05</dd>",
        "<dt>Computed</dt><dd>1.152 TB/s</dd>",
        ", L94</dd>",
    ):
        assert word in text
    assert html.count("trn-find") == 1
    assert 'data-choices="verdict topic source"' in html


def test_a_short_list_has_no_filter_and_no_second_address(result):
    html = study.Derivations(study.chosen(result, "NC009"), "One")._repr_html_()
    assert "trn-find" not in html
    assert ' id="' not in html


def test_texts_of_claims_are_escaped():
    (one,) = study.chosen(tm.claims(), "NC604").rows
    assert one.value_printed == "<10"
    assert "&lt;10" in study.Derivations(study.chosen(tm.claims(), "NC604"), "<b>")._repr_html_()
    assert "<b>:" not in study.Derivations(study.chosen(tm.claims(), "NC604"), "<b>")._repr_html_()


def test_a_statement_shows_what_it_touches(result):
    one = next(one for one in result.rows if one.verdict == "stated" and one.touches == "tm.plan")
    text = study.Derivations(study.chosen(result, one.id), "x")._repr_html_()
    assert "<dt>Touches</dt><dd><code>tm.plan</code></dd>" in text
    assert "Formula" not in text


def test_sets_name_both_of_their_sources():
    table = ledger.contradictions()
    assert len(table) >= 24
    for side in ("says", "also"):
        assert set(table[side].str.extract(r"\(([a-z0-9-]+), [^()]*\)$")[0]) <= set(load.sources())


def lines(locator):
    spans = re.findall(r"L(\d+)(?:-(\d+))?", locator)
    return {n for first, last in spans for n in range(int(first), int(last or first) + 1)}


def test_no_paragraph_of_the_texts_is_missing():
    """Every line of the five texts that has words lies in one paragraph, which has claims or a reason to have none."""
    table = study.paragraphs()
    assert set(table.source) == {"trainium3-deep-dive", "trainium3-encyclopedia", "trn1-arch", "trn2-arch", "trn3-arch"}
    assert ((table.claims == "") == (table.treatment == "left out")).all()
    assert (table.why[table.treatment == "left out"] != "").all()
    for source, rows in table.groupby("source"):
        numbers = [number for cell in rows.lines for number in lines(cell)]
        assert len(numbers) == len(set(numbers)), source
        if TEXTS.is_dir():
            text = (TEXTS / f"{source}.txt").read_text(encoding="utf-8").splitlines()
            assert {n for n, line in enumerate(text, start=1) if line.strip()} <= set(numbers), source


def test_a_claim_of_the_texts_is_named_by_the_paragraph_of_its_line():
    """A paragraph may name claims that another one prints too; those of kind "set" put two of them together."""
    table, missing = study.paragraphs(), []
    for row in claim_rows():
        rows = table[table.source == row.source]
        if row.kind != "set" and len(rows):
            named = rows[[row.id in cell.split() for cell in rows.claims]]
            if not any(lines(cell) & lines(row.locator) for cell in named.lines):
                missing.append((row.id, row.locator, named.lines.tolist()))
    assert missing == []


def test_paragraphs_are_counted_by_text():
    table = study.coverage()
    assert (table[list(study.TREATMENTS)].sum(axis=1) == table.paragraphs).all()
    assert table.paragraphs.sum() == len(study.paragraphs())


def test_a_topic_that_there_is_not_is_refused():
    with pytest.raises(InputError, match="topic = 'lanes' is none"):
        chapter.check_answers("claims", report.check_parameters("claims", {"topic": "lanes"}))
