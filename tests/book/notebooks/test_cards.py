"""Every chapter opens with its answer: a number, what it rests on, what comes next to it, where the proof stands."""

import re

import nbformat
import pytest

from trnbook.chapters.common import card

CARD = re.compile(
    r"> \*\*(?P<number>[^*\n]+)\*\*(?: \((?:(?P<low>[^;)]+) to (?P<high>[^;)]+?)(?:; |(?=\))))?"
    r"(?P<mark>measured|interpolated|extrapolated|ideal)?\))?: (?P<of>[^\n]+)\.\n>\n"
    r"(?:> \*\*(?:(?:Beside it|Next best|Ahead of it|In comparison|Compared with):\*\* (?P<rival>[^\n]+)"
    r"|No rival:\*\* (?P<alone>[^\n]+))\.\n>\n)?"
    r"> \*\*Proof:\*\* (?P<proof>[^\n]+?)(?:\.|(?<=\?))(?:\n\n(?P<more>.+))?",
    re.DOTALL,
)


def opening(cells):
    """The first thing that a notebook shows, and the headings before it."""
    headings = []
    for cell in cells:
        if cell.cell_type == "markdown":
            headings += re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)
        for output in cell.get("outputs", ()):
            return "".join(output.get("data", {}).get("text/markdown", "")), headings
    raise AssertionError("it shows nothing")


@pytest.mark.chapters
def test_a_chapter_opens_with_its_answer(root, slug):
    cells = nbformat.read(root / "notebooks" / f"{slug}.ipynb", 4).cells
    said, before = opening(cells)
    found = CARD.fullmatch(said)
    assert found, f"{slug} opens with {said[:200]!r}"
    assert len(before) == 1, "the card stands under the title"
    assert re.search(r"\d", found["number"]), "an answer has a number"
    assert not found["rival"] or re.search(r"\d", found["rival"]), "a rival has one too"
    headings = [line for cell in cells if cell.cell_type == "markdown" for line in cell.source.splitlines()]
    proof = found["proof"]
    assert f"## {proof}" in headings or re.fullmatch(r"chapters? \d+(?:(?:, | and )\d+)*", proof), proof


def test_a_card_holds_its_number_in_bold_its_band_its_mark_and_its_rival():
    """1,285 from 707 to 1,952 is known to two digits; 9.3 has no band; what has no number stands as it is."""
    ask = {"mark": "extrapolated", "proof": "Check: runs"}
    found = CARD.fullmatch(card((1285.0, 707.0, 1952.0), "a chip.", unit="tokens/s", rival="B, 900", **ask))
    assert found.group("number", "low", "high", "of", "rival") == ("1,300 tokens/s", "710", "2,000", "a chip", "B, 900")
    bare = CARD.fullmatch(card(9.3, "off", unit="%", alone="nobody", more="More.", **ask))
    assert bare.group("number", "low", "alone", "more") == ("9.3%", None, "nobody", "More.")
    words = CARD.fullmatch(card("does not fit: 412 of 96 GiB", "A", alone="none", **ask))
    assert words["number"] == "does not fit: 412 of 96 GiB"
    count = card("144 chips", "in two racks", mark="", alone="one size", proof="Do they add up?")
    assert count.startswith("> **144 chips**: in two racks.")
    assert count.endswith("> **Proof:** Do they add up?")
    lone = CARD.fullmatch(card(9.3, "off", unit="%", **ask))
    assert lone.group("number", "rival", "alone", "proof") == ("9.3%", None, None, "Check: runs")


@pytest.mark.parametrize("wrong", [{"mark": "guessed"}, {"alone": "and both"}])
def test_a_card_with_a_wrong_mark_or_two_comparisons_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^(mark|rival)="):
        card(1.0, "a", **({"mark": "ideal", "proof": "Check", "rival": "B, 2"} | wrong))
