"""Claims of sources: what a formula may be, what a verdict means, and that facts decide it."""

import ast
import csv
import math
import re

import msgspec
import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.rulings import Ruled
from trnmodel.catalog.specs import Spec
from trnmodel.catalog.tables import DataError
from trnmodel.evidence import claims as ledger
from trnmodel.evidence.claim_formulas import FormulaError, derives, evaluate, names_of, parsed

ROWS = {row.id: row for row in ledger.claim_rows()}
COMPUTED = [row for row in ROWS.values() if row.kind == "computed" and row.formula]


@pytest.fixture(scope="module")
def result():
    return tm.claims()


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_goals_of_the_table(result):
    """At least 236 claims, 160 of them by a formula; at most 30 % inputs and 15 % of which something is missing."""
    claims = [one for one in result.rows if one.kind in ("computed", "input")]
    assert len(claims) >= 236
    assert sum(one.verdict in ("agrees", "disagrees") and one.kind == "computed" for one in claims) >= 160
    assert sum(one.kind == "input" for one in claims) <= 0.30 * len(claims)
    missing = [one for one in claims if one.verdict == "not derivable"]
    assert len(missing) <= 0.15 * len(claims)
    assert [one.id for one in missing if not one.why] == [], "each says what is missing"


def test_every_claim_that_disagrees_was_examined_for_another_reading(result):
    assert [one.id for one in result.rows if one.verdict == "disagrees" and not one.reading] == []
    assert [one.id for one in result.rows if one.verdict in ("disagrees", "not derivable") and not one.why] == []


def test_every_row_is_whole():
    for row in ROWS.values():
        assert row.claim.endswith("."), row.id
        assert bool(row.value_printed) == (row.kind != "stated"), row.id
        assert not row.formula or row.kind != "stated", row.id
        assert row.formula or row.kind in ("computed", "stated"), row.id
        assert bool(row.also) == (row.kind == "set"), row.id
        assert row.touches or row.kind != "stated", row.id
        assert not row.tolerance or float(row.tolerance) >= 0, row.id
        low, high = (float(text or "nan") for text in (row.printed_low, row.printed_high))
        assert row.kind == "stated" or not (math.isnan(low) and math.isnan(high)), row.id
        assert not low > high, row.id


def test_formulas_use_public_names_alone():
    public = set(tm.__all__)
    assert {row.id: names for row in ROWS.values() if (names := set(names_of(row.formula or "0")) - public)} == {}


def test_what_a_statement_touches_is_a_public_call_or_a_chapter():
    wrong = []
    for row in ROWS.values():
        for name in filter(None, map(str.strip, row.touches.split(","))):
            call = re.match(r"tm\.(\w+)", name)
            if not (call and call[1] in tm.__all__) and not name.startswith("chapter "):
                wrong.append((row.id, name))
    assert wrong == []


def facts_read(formula):
    """The facts that a formula reads by id, or as fields of chips and systems."""
    known = load.facts_rows()
    for node in ast.walk(parsed(formula)):
        if isinstance(node, ast.Constant) and node.value in known:
            yield known[node.value]
        if isinstance(node, ast.Attribute) and isinstance(owner := _spec(node.value), Spec):
            fields = owner.sources.items()
            yield from (known[fact] for name, ids in fields if name.partition("[")[0] == node.attr for fact in ids)


def _spec(node):
    """The chip, system or part of one that a part of a formula names; None for anything else."""
    text = ast.unparse(node)
    if not re.fullmatch(r"tm\.(chip|system)\('[^']+'\)(\.[a-z_]+)*", text):
        return None
    return eval(text, {"tm": tm})


def lines(locator):
    return {n for a, b in re.findall(r"L(\d+)(?:-(\d+))?", locator) for n in range(int(a), int(b or a) + 1)}


def test_no_computed_claim_reads_itself_back():
    """A formula that only picks and scales facts may not pick the one that is the claim: same source, line, number."""
    wrong = []
    for row in COMPUTED:
        assert any(True for _ in names_of(row.formula)), f"{row.id} reads no fact"
        own = [
            fact.id
            for fact in facts_read(row.formula)
            if fact.source == row.source
            and lines(fact.locator) & lines(row.locator)
            and fact.value_printed in re.split(r"[^\d.,]+", row.value_printed)
        ]
        if own and not derives(row.formula):
            wrong.append((row.id, own))
    assert wrong == [("NC027", ["trn2.48xlarge/network_bytes_per_s_per_dir/trn2-arch"])], "one instance, times four"


def test_the_check_sees_a_claim_that_reads_itself_back():
    """AWS prints 96 GiB per chip in a line that the fact cites: reading it is an input, and no derivation."""
    formula = "tm.chip('trainium2').hbm_bytes / tm.units.GIB"
    (fact,) = facts_read(formula)
    assert (fact.source, fact.value_printed) == ("ah-trainium2", "96")
    assert not derives(formula)
    assert derives("tm.chip('trainium2').hbm_bytes / tm.chip('trainium1').hbm_bytes")


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "computed", "tolerance", "verdict"),
    [
        ((1.2, 1.2), (1.152, 1.152), 0.05, "agrees"),  # 144 lanes x 64 Gb/s / 8, beside a printed 1.2
        ((1.2, 1.2), (1.149, 1.149), 0.05, "disagrees"),
        ((3.9, 3.9), (705.6 / 185.6,) * 2, 0.05, "disagrees"),  # 3.802 rounds to 3.8
        ((4.4, 4.4), (362_448 / 83_200,) * 2, 0.05, "agrees"),
        ((3.0, math.inf), (2.9, 2.9), 0.0, "disagrees"),  # at least three
        ((-math.inf, 50.0), (41.7, 41.7), 0.0, "agrees"),  # up to fifty
        ((20.0, 30.0), (16.0, 40.0), 0.0, "agrees"),  # two ranges that meet
        ((20.0, 30.0), (31.0, 40.0), 0.0, "disagrees"),
        ((0.1 + 0.2,) * 2, (0.3, 0.3), 0.0, "agrees"),  # the last bit of a float is no disagreement
    ],
)
def test_a_claim_agrees_within_its_rounding(printed, computed, tolerance, verdict):
    assert ledger.judge("computed", printed, computed, tolerance) == verdict


def test_several_values_must_all_agree():
    assert ledger.judge("computed", (5.7, 9.6), (5.66, 9.57), 0.05, several=True) == "agrees"
    assert ledger.judge("computed", (5.7, 9.6), (5.0, 12.0), 0.05, several=True) == "disagrees"


def test_an_input_that_another_fact_replaces_disagrees():
    assert ledger.judge("input", (4.9, 4.9), (4.9, 4.9)) == "input"
    assert ledger.judge("input", (4.9, 4.9), (4.7, 4.7)) == "disagrees"


KNOWN = {  # arithmetic with what the sources print, and whether it rounds to the printed value
    "NC009": (144 * 64 / 8 / 1000, "agrees"),
    "NC055": (18 * 4, "disagrees"),
    "NC106": (144 * 80, "agrees"),
    "NC118": (2 * 64**3, "agrees"),
    "NC147": (144 * 2517 / (64 * 1299), "agrees"),
    "NC148": (144 * 4.9 / (64 * 2.9), "disagrees"),
    "NC463": (64 * 144 / 1024, "agrees"),
    "NC601": (18 * 4, "disagrees"),
    "NC611": (160 * 2 * 64 / 8 / 1000, "agrees"),
}


@pytest.mark.parametrize("claim_id", KNOWN)
def test_values_and_verdicts_by_hand(result, claim_id):
    value, verdict = KNOWN[claim_id]
    one = result.claim(claim_id)
    assert one.value_computed_low == pytest.approx(value, rel=1e-9) == one.value_computed_high
    assert one.verdict == verdict


def test_a_changed_fact_changes_the_verdict():
    """With the 2.48 TB/s per chip of a slower memory, Trainium3 has 3.9 times the bandwidth of 64 Trainium2 chips."""
    key = ("trainium2", "hbm_bytes_per_s", "")
    fact, _ = load.in_force()[key]
    other = msgspec.structs.replace(fact, value_printed="2.83", unit_printed="TB/s")
    assert tm.claims(topic="memory").claim("NC148").verdict == "disagrees"
    with load.with_facts({key: Ruled(other, None)}):
        one = tm.claims(topic="memory").claim("NC148")
    assert one.value_computed_low == pytest.approx(144 * 4.9 / (64 * 2.83))
    assert one.verdict == "agrees"
    assert tm.claims(topic="memory").claim("NC148").verdict == "disagrees"


# --- formulas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 * 3 + 4 / 8 - 1", 5.5),
        ("-2 ** 2", -4.0),
        ("sum(n for n in (1, 2, 3) if n > 1)", 5.0),
        ("len({n % 2 for n in (1, 2, 3)})", 2.0),
        ("{'a': 7}['a']", 7.0),
        ("[1, 2, 3][1:][0]", 2.0),
        ("np.log2(8)", 3.0),
        ("tm.units.GIB / tm.units.MIB", 1024.0),
        ("float('2' in '24' and 1 < 2)", 1.0),
    ],
)
def test_what_a_formula_may_be(formula, value):
    assert evaluate(formula) == (value, value)


@pytest.mark.parametrize(
    "formula",
    [
        *(
            "",
            "1 +",
            "x" * 2000,
            "open('/etc/passwd')",
            "__import__('os')",
            "tm.__class__",
            "tm._HOMES",
            "().__class__",
        ),
        *("np.load('x')", "np.fromfile('x')", "np.lib", "tm.save_plan({}, 'x')", "tm.facts().to_csv('x')"),
        *("lambda: 1", "f'{1}'", "(x := 1)", "1 if 1 else 2", "tm.facts().eval('1')", "'{}'.format(1)", "dict(**{})"),
        *("[x.y for x.y in (1,)]", "9 ** 9 ** 9", "1 < 2 < 3", "yield 1", "'text'", "(1, 2, 3)", "float('nan')"),
    ],
)
def test_what_a_formula_may_not_be(formula):
    with pytest.raises((FormulaError, ValueError)):
        evaluate(formula)


def test_a_formula_that_is_none_names_its_row(tmp_path, monkeypatch):
    cells = msgspec.structs.asdict(ROWS["NC009"]) | {"formula": "open('x')"}
    with (tmp_path / "claims.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, cells)
        writer.writeheader()
        writer.writerow(cells)
    monkeypatch.setattr(ledger, "ROWS", tmp_path / "claims.csv")
    ledger.claim_rows.cache_clear()
    try:
        with pytest.raises(DataError, match=r"claims.csv \(NC009\): column formula: 'open'"):
            tm.claims()
    finally:
        ledger.claim_rows.cache_clear()


# --- asking -----------------------------------------------------------------------------------------------------------


def test_claims_are_asked_by_topic_verdict_and_source(result):
    every = result.to_frame()
    for name, value in {"topic": "memory", "verdict": "disagrees", "source": "trn2-arch"}.items():
        found = tm.claims(**{name: value}).to_frame()
        assert found.id.tolist() == every.id[every[name] == value].tolist()
        assert len(found)
    assert len(tm.claims("memory", "agrees", "trn1-arch").to_frame().columns) == len(every.columns)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"topic": "lanes"}, "topic='lanes': allowed are chip, core"),
        ({"verdict": "true"}, "verdict='true': allowed are agrees, disagrees"),
        ({"source": "trn3"}, "source='trn3': allowed is a source of the claims; nearest: trn3-arch"),
        ({"source": "trn1-arch.txt"}, "nearest: trn1-arch"),
    ],
)
def test_what_there_is_not_is_refused(asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tm.claims(**asked)


def test_the_card_counts_what_the_table_has(result):
    table = result.to_frame()
    computed = table[(table.kind == "computed") & table.verdict.isin(("agrees", "disagrees"))]
    agree = int((computed.verdict == "agrees").sum())
    head, *more = result.card()
    assert head.startswith(f"Claims: {agree} of {len(computed)} claims that the package computes agree")
    assert f"{(table.kind == 'input').sum()} inputs" in more[0]
    assert tm.claims(verdict="stated").card()[0].startswith("Claims: the package computes none of")


def test_a_claim_shows_its_derivation(result):
    lines = result.claim("NC601").card()
    assert lines[0] == "NC601: A rack of NL72x2 fits 64 chips, against the 32 of NL32x2. (trainium3-deep-dive, L401)"
    assert "  Printed: 64 chips" in lines
    assert "  Computed: 72 chips" in lines
    assert "  Formula: 18 * 4" in lines
    with pytest.raises(ValueError, match="claim_id='NC60'"):
        result.claim("NC60")
