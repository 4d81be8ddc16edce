"""Searches, dollars and words of training, of cuts and choices that are worked out by hand."""

import inspect
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.planner import domain_sizes, plan, train_search, train_table, train_words
from trnmodel.planner.train_run import Spent, in_words

COLUMNS = ("tp", "pp", "dp", "ep", "cp", "global_batch", "micro_batch", "interleave")


def every_cut(layers, experts, heads, ranks, batch, longest, slack):
    """All cuts of so many ranks, by trying every number up to the most that there may be."""
    upto = range(1, ranks + 1)
    for tp, pp, dp, ep, cp in product(upto, repeat=5):
        if tp * pp * dp * ep * cp != ranks or heads % tp or pp > layers or max(experts, 1) % ep or cp > longest:
            continue
        each = max(round(batch / (dp * ep)), 1)  # sequences of a replica
        for micro in (n for n in range(1, each + 1) if each % n == 0):
            for parts in range(1, layers + 1):
                if parts > 1 and (pp == 1 or layers % pp or (layers // pp) % parts):
                    continue
                unit = dp * ep * micro * (pp if parts > 1 else 1)
                whole = max(round(batch / unit), 1) * unit
                if abs(whole - batch) <= slack * batch:
                    yield tp, pp, dp, ep, cp, whole, micro, parts


@pytest.mark.parametrize(
    "asked",
    [(6, 4, 6, 12, 16, 2, 0.25), (5, 0, 4, 8, 3, 1, 0.0), (4, 6, 3, 6, 30, 6, 0.05), (4, 2, 8, 8, 20, 3, 0.4)],
)
def test_cuts_are_all_that_there_are(asked):
    found = train_search._cut(*asked)
    rows = list(zip(*(found[name].tolist() for name in COLUMNS), strict=True))
    assert sorted(rows) == sorted(every_cut(*asked))
    assert len(set(rows)) == len(rows)


def test_points_that_differ_in_nothing_are_left_out():
    """ZeRO shares nothing out over one replica; a sequence is cut between matrices only where TP cuts them."""
    cuts = {
        name: np.array(x) for name, x in {"dp": [1, 2, 1, 1, 1], "ep": [1, 1, 2, 1, 1], "cp": [1, 1, 1, 2, 1]}.items()
    }
    cuts["tp"] = np.array([2, 2, 2, 2, 1])

    def rates(zero, sequence_parallel, cut, valid=True):
        step = {"zero": zero, "sequence_parallel": sequence_parallel, "valid": valid, "tokens_per_s": np.full(5, 7.0)}
        return train_search._distinct(SimpleNamespace(**step), cuts, 1, cut)

    nan = np.nan
    np.testing.assert_equal(rates(1, True, True), [7, 7, 7, 7, 7])
    np.testing.assert_equal(rates(3, True, True), [nan, 7, 7, 7, nan])
    np.testing.assert_equal(rates(1, False, True), [7, 7, 7, 7, nan])
    np.testing.assert_equal(rates(1, False, False), [7, 7, 7, 7, 7])
    np.testing.assert_equal(rates(3, True, True, valid=False), [nan, 0, 0, 0, nan])


def test_what_a_run_asks_by_itself():
    """8,192 chips and 5 % of a batch, as the docstring has it; no context parallelism unless it is asked for."""
    asked = {name: one.default for name, one in inspect.signature(tm.train_run).parameters.items()}
    assert {name: asked[name] for name in ("chips", "batch_slack", "most_context", "best", "precision")} == {
        "chips": 8192, "batch_slack": 0.05, "most_context": 1, "best": 5, "precision": "bf16"}  # fmt: skip
    assert (asked["recompute"], asked["zero"]) == (("none", "selective", "full"), (0, 1, 3))
    assert asked["sequence_parallel"] == (True, False)


def test_a_figure_of_a_run_in_a_unit_of_its_own():
    assert Spent(3e6, 2e6, 5e6, "measured").told("M$", 1e6) == "3 M$ (2 to 5; measured)"
    assert Spent(3.0, 2.0, 5.0, "measured", "no price").told("$") == "no price"


def test_a_run_on_one_policy_has_what_its_constraints_cost():
    one = {"recompute": ("full",), "zero": (1,), "sequence_parallel": (True,)}
    run = tm.train_run("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=16, seq=2048, global_batch=64, **one)
    table = run.constraints().set_index("constraint")
    assert {"no TP", "no pipeline", "memory sets no limit"} <= set(table.index)
    assert not {"layers are computed again", "ZeRO 1 only"} & set(table.index)


def test_an_owner_of_chips_without_a_price_has_no_dollars(monkeypatch):
    run = tm.train_run("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=16, seq=2048, global_batch=64)
    monkeypatch.setattr("trnmodel.planner.train_run.tco", lambda *a, **k: SimpleNamespace(valid=False, reason="no TDP"))
    spent = run.owner_usd()
    np.testing.assert_equal([spent.value, spent.low, spent.high], [np.nan] * 3)
    assert spent.told("$") == "no TDP"


def test_parts_of_runs_that_take_time_in_any_are_rows():
    """Steps of 4 s in runs of 8 days: 1 s of it is 2 days; a part that takes no time anywhere is no row."""

    def run(**seconds):
        parts = dict.fromkeys(train_table.PARTS, 0.0) | seconds
        return SimpleNamespace(step=SimpleNamespace(time_s=4.0, **parts), days=8.0)

    first, second, *_ = train_table.PARTS
    table = train_table.parts({"a": run(**{first: 1.0}), "b": run(**{second: 4.0})})
    words = train_table.PARTS
    assert table.columns.tolist() == ["of", "part", "run_days"]
    assert table.values.tolist() == [
        ["a", words[first], 2.0], ["a", words[second], 0.0], ["b", words[first], 0.0], ["b", words[second], 8.0]
    ]  # fmt: skip
    assert table.index.tolist() == [0, 1, 2, 3]


def test_an_elder_is_of_an_earlier_year_and_has_neuroncores():
    trn1, trn2, gpu = (tm.system(name) for name in ("trn1.32xlarge", "trn2.48xlarge", "hgx-h100"))
    assert train_table.elder(trn1, trn2)
    assert not train_table.elder(trn2, trn1)
    assert not train_table.elder(trn2, tm.system("trn2-ultraserver"))
    assert not train_table.elder(replace(gpu, chip=replace(gpu.chip, year=2000)), trn2)
    assert not train_table.elder(trn1, gpu)


@pytest.mark.parametrize("text", ["15" + " " * 60 + "junk", "15T" + "0" * 60, "1.5.5", "-3", "1e123", "15 TB", ""])
def test_a_budget_that_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="tokens="):
        train_words.tokens_of(text)


def test_all_degrees_of_a_domain_are_placed_once():
    """Groups fill tiers of 4 chips, 8 trays and 2 racks evenly; orders differ where experts are some of the ranks."""
    spec = tm.system("trn3-nl32x2-pcie160")
    table = domain_sizes.placed(spec)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    nested = [(a, b, c) for a, b, c in product(sizes, repeat=3) if b % a == 0 and c % b == 0]
    inner = {("ep", a, b // a, c // b, 64 / c) for a, b, c in nested}
    outer = {("tp", c // b, a, b // a, 64 / c) for a, b, c in nested if 1 < c // b < c}
    rows = [tuple(row) for row in table[["inner", "ep", "tp", "cp", "dp"]].itertuples(index=False)]
    assert len(rows) == len(set(rows))
    assert {row[0] for row in rows} == {"ep", "tp"}
    assert sorted(rows) == sorted(inner | outer)


def test_systems_that_do_the_same_are_within_a_hundredth(monkeypatch):
    monkeypatch.setattr(plan, "TIED", 0.5)
    one = lambda merit, valid=True: SimpleNamespace(merit=merit, valid=valid)  # noqa: E731
    for merit, valid, same in (
        (3.0, True, True),
        (3.1, True, False),
        (1.0, True, True),
        (0.9, True, False),
        (2.0, False, False),
    ):
        assert plan._same(one(merit, valid), one(2.0)) is same


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "TP 2 x DP 4, 8 micro-batches of 3, ZeRO 1, layers again"),
        ({"microbatches": 1.0}, "TP 2 x DP 4, 1 micro-batch of 3, ZeRO 1, layers again"),
        ({"interleave": 2.0}, "TP 2 x DP 4, 8 micro-batches of 3, 2 parts a stage, ZeRO 1, layers again"),
        ({"sequence_parallel": False}, "TP 2 x DP 4, 8 micro-batches of 3, ZeRO 1, layers again, no SP"),
        ({"sequence_parallel": False, "tp": 1.0}, "DP 4, 8 micro-batches of 3, ZeRO 1, layers again"),
        ({"tp": 1.0, "dp": 1.0}, "one rank, 8 micro-batches of 3, ZeRO 1, layers again"),
    ],
)
def test_a_mapping_of_training_in_words(change, said):
    step = {"tp": 2.0, "pp": 1.0, "dp": 4.0, "ep": 1.0, "cp": 1.0, "microbatches": 8.0, "micro_batch": 3.0}
    step |= {"interleave": 1.0, "zero": 1, "recompute": "full", "sequence_parallel": True}
    assert in_words(SimpleNamespace(**step | change)) == said
