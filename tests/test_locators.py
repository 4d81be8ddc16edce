"""A locator points to a line that prints the value: every cited line of the saved sources, by its numbers.

`golden/cited_lines.csv` has the numbers of each line (digits, and words such as "four" or "single") and the systems
that it names, for the texts themselves are not all free to copy. Where they lie on this machine (`TRNMODEL_SOURCES`)
it is compared with them; `python -m tests.test_locators` there writes it anew.
"""

import csv
import hashlib
import os
import re
from functools import cache
from pathlib import Path

import pytest

from trnmodel.catalog import load
from trnmodel.catalog.systems import bases, systems
from trnmodel.evidence.claims import claim_rows

GOLDEN = Path(__file__).parent / "golden" / "cited_lines.csv"
TEXTS = Path(os.environ.get("TRNMODEL_SOURCES", Path(__file__).parents[2] / "shared" / "sources"))
SAVED = {name: source for name, source in load.sources().items() if source.note.startswith("saved copy")}
WORDS = {
    "half": 0.5,
    "one": 1,
    "single": 1,
    "two": 2,
    "dual": 2,
    "double": 2,
    "doubled": 2,
    "three": 3,
    "four": 4,
    "eight": 8,
}
# a product of what the line prints: value printed here, what stands there
PRODUCTS = {
    "trainium2/scaleup_domain_chips/trainium3-deep-dive": "4x4x4",
    "trn3-nl32x2-pcie160/cpu_nics_per_cpu_tray/trainium3-deep-dive": "a dedicated module",
    "trn3-nl72x2-pcie160/cpu_nics_per_compute_tray/trainium3-deep-dive": "the module",
}


def numbers(text: str) -> set[float]:
    """The numbers that a text prints, in digits (not those of a name, as in Trn2) or in words."""
    digits = {float(number.replace(",", "")) for number in re.findall(r"(?<![A-WYZa-wyz\d.])\d[\d,]*(?:\.\d+)?", text)}
    return digits | {float(WORDS[word]) for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS}


def cited(locator: str) -> list[int]:
    """The lines of a locator: "L19, L46-48 table" is 19, 46, 47, 48."""
    spans = re.findall(r"L(\d+)(?:-(\d+))?", locator)
    return [line for first, last in spans for line in range(int(first), int(last or first) + 1)]


def facts():
    return [fact for fact in load.facts_rows().values() if fact.source in SAVED]


ALSO = re.compile(r"(.*) \(([a-z0-9-]+), ([^()]*)\)")  # words, source and lines of the other statement of a set


def statements():
    """Source, locator and words of both sides of each set of statements whose text is saved."""
    for row in claim_rows():
        if row.kind == "set":
            assert ALSO.fullmatch(row.also), row.id
            says, source, locator = ALSO.fullmatch(row.also).groups()
            sides = (row.source, row.locator, row.claim), (source, locator, says)
            yield from (side for side in sides if side[0] in SAVED)


def claims():
    return [row for row in claim_rows() if row.source in SAVED]


@cache
def aliases() -> dict[str, str]:
    """Every name of a system, longer ones first, so that a name that another one ends with is not read into it."""
    found = {row.alias.lower(): row.id for row in load.names() if row.id in systems() and row.kind != "typed"}
    return {name: found[name] for name in sorted(found, key=len, reverse=True)}


def named(text: str) -> set[str]:
    """The systems that a text names."""
    every = rf"(?<![\w.])(?:{'|'.join(map(re.escape, aliases()))})(?!\w)"
    return {aliases()[match.lower()] for match in re.findall(every, text, re.IGNORECASE)}


def _golden(column: str) -> dict[tuple[str, int], list[str]]:
    with GOLDEN.open(newline="") as stream:
        return {(row["source"], int(row["line"])): row[column].split() for row in csv.DictReader(stream)}


def lines() -> dict[tuple[str, int], set[float]]:
    return {place: set(map(float, found)) for place, found in _golden("numbers").items()}


def from_the_texts() -> dict[tuple[str, int], str]:
    wanted = {(fact.source, line) for fact in facts() for line in cited(fact.locator)}
    wanted |= {(source, line) for source, locator, _ in statements() for line in cited(locator)}
    wanted |= {(row.source, line) for row in claims() for line in cited(row.locator)}
    texts = {source: (TEXTS / f"{source}.txt").read_text(encoding="utf-8").splitlines() for source in SAVED}
    return {(source, line): texts[source][line - 1] for source, line in sorted(wanted)}


def test_the_cited_lines_print_the_value():
    """Facts of confidence D say in their note how they follow from the words."""
    known, wrong = lines(), []
    assert len(facts()) > 300
    for fact in facts():
        there = set().union(*(known[fact.source, line] for line in cited(fact.locator)))
        printed = numbers(PRODUCTS.get(fact.id, fact.value_printed))
        if load.units()[fact.unit_printed].unit_si != "text" and fact.confidence != "D" and not printed <= there:
            wrong.append((fact.id, fact.value_printed, fact.locator))
    assert wrong == []


def family(entity: str) -> set[str]:
    """A system, those that it builds on and those that build on it."""
    return {name for name in systems() if entity in bases(name) or (entity in systems() and name in bases(entity))}


def test_a_fact_of_a_system_cites_a_line_about_that_system():
    """Where the cited lines name other systems alone, the note of the fact says why they hold for this one."""
    known, checked, wrong = _golden("systems"), 0, []
    for fact in facts():
        about = set().union(*(known[fact.source, line] for line in cited(fact.locator)))
        if family(fact.entity) and about and fact.confidence != "D":
            checked += 1
            if not about & family(fact.entity) and not fact.note:
                wrong.append((fact.id, fact.locator, sorted(about)))
    assert checked > 50
    assert wrong == []


def test_systems_are_found_by_their_longest_names():
    assert named("available for the Trainium3 NL32x2 Switched:") == {"trn3-nl32x2-pcie160"}
    assert named("Trn2 NL16 2D Torus and Trn2 NL32x2 2D Torus servers") == {"trn2.48xlarge", "trn2-ultraserver"}
    assert named("EFAv4 on Trainium3, 32x2") == set()


def test_a_claim_cites_a_line_that_prints_its_value():
    """A value may print words of the line ("doubled"), whose numbers `WORDS` has."""
    known = lines()
    wrong = [
        (row.id, row.value_printed, row.locator)
        for row in claims()
        if not cited(row.locator)
        or not numbers(row.value_printed) <= set().union(*(known[row.source, line] for line in cited(row.locator)))
    ]
    assert wrong == []


def test_both_sides_of_a_set_quote_numbers_of_their_lines():
    known = lines()
    wrong = [
        (source, locator, says)
        for source, locator, says in statements()
        if not numbers(says) <= set().union(*(known[source, line] for line in cited(locator)))
    ]
    assert wrong == []


def test_a_wrong_line_is_found():
    """L475 of the deep dive is the caption of a figure; the switches stand in L477."""
    known = lines()
    assert {12.8, 25.6, 51.2} <= known["trainium3-deep-dive", 477]
    assert known.get(("trainium3-deep-dive", 475), set()) == set()
    assert numbers("Trn3 has four of the 5,760 at 2.5 TB, x8") == {4, 5760, 2.5, 8}
    assert cited("L48, L94-96 table") == [48, 94, 95, 96]


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the saved texts are not on this machine")
def test_the_numbers_of_the_lines_are_those_of_the_texts():
    for source, row in SAVED.items():
        assert hashlib.sha256((TEXTS / f"{source}.txt").read_bytes()).hexdigest() == row.sha256
    texts = from_the_texts()
    assert lines() == {place: numbers(text) for place, text in texts.items()}
    assert {place: set(found) for place, found in _golden("systems").items()} == {
        place: named(text) for place, text in texts.items()
    }


DATES = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d+"


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the saved texts are not on this machine")
def test_a_claim_dates_what_it_says_as_its_line_does():
    """A date stands with the two words before it ("as of Sep 25"); a statement has no number that its line has not."""
    dated = 0
    for row in claims():
        text = (TEXTS / f"{row.source}.txt").read_text(encoding="utf-8").splitlines()
        there = " ".join(text[line - 1] for line in cited(row.locator))
        phrases = re.findall(rf"\w+ \w+ {DATES}", row.claim)
        assert [phrase for phrase in phrases if phrase not in there] == [], row.id
        assert row.kind != "stated" or numbers(row.claim) <= numbers(there), row.id
        dated += len(phrases)
    assert dated


if __name__ == "__main__":
    texts = from_the_texts()
    with GOLDEN.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["source", "line", "numbers", "systems"])
        for place, words in texts.items():
            printed = " ".join(f"{number:.12g}" for number in sorted(numbers(words)))
            writer.writerow([*place, printed, " ".join(sorted(named(words)))])
