"""Searches, dollars and words of training, of cuts and choices that are worked out by hand."""

import inspect
import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog.trainers import trainer
from trnmodel.search import single, train_report, train_run, train_search, trainings
from trnmodel.search.train_run import Spent
from trnmodel.units import read_number

COLUMNS = ("tp", "pp", "dp", "ep", "cp", "global_batch", "micro_batch", "interleave")


def every_cut(layers, experts, heads, ranks, batch, longest, slack, seq):
    """All legal cuts of so many ranks, by trying every number up to the most that there may be.

    Megatron-LM cuts heads and experts evenly, and a sequence into two equal parts for each rank of CP.
    """
    upto = range(1, ranks + 1)
    for tp, pp, dp, ep, cp in product(upto, repeat=5):
        if tp * pp * dp * ep * cp != ranks or heads % tp or pp > layers or max(experts, 1) % ep or cp > longest:
            continue
        if cp > 1 and seq % (2 * cp):
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
    [
        (6, 4, 6, 12, 16, 2, 0.25, 12),
        (5, 0, 4, 8, 3, 1, 0.0, 7),
        (4, 6, 3, 6, 30, 6, 0.05, 12),
        (4, 2, 8, 8, 20, 8, 0.4, 24),
    ],
)
def test_cuts_are_all_that_there_are(asked, tmp_path):
    layers, experts, heads, ranks, batch, longest, slack, seq = asked
    config = {
        "model_type": "mixtral" if experts else "llama",
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "hidden_size": 8 * heads,
        "intermediate_size": 32,
        "vocab_size": 64,
        "max_position_embeddings": 64,
        "num_local_experts": experts,
        "num_experts_per_tok": 1,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    where = replace(tm.system("hgx-a100"), domain_chips=ranks)
    found = train_search.grid(tm.model(tmp_path), where, trainer(where.chip), seq, batch, longest, slack)
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
    assert train_run.CHIPS == 8192
    assert {name: asked[name] for name in ("chips", "batch_slack", "max_cp", "best", "precision")} == {
        "chips": None,
        "batch_slack": 0.05,
        "max_cp": 1,
        "best": 5,
        "precision": "bf16",
    }
    assert (asked["recompute"], asked["zero"]) == (("none", "selective", "full"), (0, 1, 3))
    assert asked["sequence_parallel"] == (True, False)


def test_a_figure_of_a_run_in_a_unit_of_its_own():
    assert Spent(3e6, 2e6, 5e6, "measured").describe("M$", 1e6) == "3 M$ (2 to 5; measured)"
    assert Spent(3.0, 2.0, 5.0, "measured", "no price").describe("$") == "no price"


def test_a_run_on_one_policy_has_what_its_constraints_cost():
    one = {"recompute": ("full",), "zero": (1,), "sequence_parallel": (True,)}
    run = tm.train_run("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=16, seq=2048, global_batch=64, **one)
    table = run.constraints().set_index("constraint")
    assert {"no TP", "no pipeline", "memory sets no limit"} <= set(table.index)
    assert not {"full recompute", "ZeRO 1 only"} & set(table.index)


def test_an_owner_of_chips_without_a_price_has_no_dollars(monkeypatch):
    run = tm.train_run("llama-3.1-8b", "hgx-h100", tokens=1e12, chips=16, seq=2048, global_batch=64)
    monkeypatch.setattr("trnmodel.search.train_run.tco", lambda *a, **k: SimpleNamespace(valid=False, reason="no TDP"))
    spent = run.owner_usd()
    np.testing.assert_equal([spent.value, spent.low, spent.high], [np.nan] * 3)
    assert spent.describe("$") == "no TDP"


@pytest.mark.parametrize("text", ["15" + " " * 60 + "junk", "15T" + "0" * 60, "1.5.5", "-3", "1e123", "15 TB", ""])
def test_a_budget_that_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="tokens="):
        tm.train_run("llama-3.2-1b", "hgx-a100", tokens=read_number("tokens", text), chips=8)


def test_systems_that_do_the_same_are_within_a_hundredth(monkeypatch):
    monkeypatch.setattr(single, "TIED", 0.5)
    one = lambda merit, valid=True: SimpleNamespace(merit=lambda: merit, valid=valid)  # noqa: E731
    for merit, valid, same in (
        (3.0, True, True),
        (3.1, True, False),
        (1.0, True, True),
        (0.9, True, False),
        (2.0, False, False),
    ):
        assert single.same(one(merit, valid), one(2.0)) is same


def test_constraints_in_words():
    """From half a per cent on either side a cost is told with a number; nothing runs where it has none."""
    costs = {"a": 1.005, "b": 1.25, "c": 1.004, "d": 1.0, "e": np.nan, "f": 0.99, "g": 0.996}
    rows = pd.DataFrame({"constraint": list(costs), "cost": list(costs.values())})
    told = train_report._constraints(SimpleNamespace(constraints=lambda: rows))
    assert told == [
        "constraints that change the days: b x1.25, f x0.99",
        "constraints that cost nothing: a, c, d, g",
        "constraints that nothing meets: e",
    ]
    assert train_report._constraints(SimpleNamespace(constraints=lambda: rows[:0])) == []
    rows = pd.DataFrame({"constraint": ["a", "b"], "cost": [1.5, 0.5]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_report, "COSTLY", 0.5)
        assert train_report._constraints(SimpleNamespace(constraints=lambda: rows)) == [
            "constraints that change the days: a x1.5, b x0.5"
        ]


def test_budgets_and_dollars_in_words():
    assert [train_report.budget(n) for n in (1e12, 999e9, 1e9, 2.5e8, 1e6, 999_000)] == [
        "1T",
        "999B",
        "1B",
        "250M",
        "1M",
        "999,000",
    ]
    assert [read_number("tokens", text) for text in ("2M", "3 b", "1.5t", "7", "2e+3")] == [2e6, 3e9, 1.5e12, 7.0, 2e3]
    assert Spent(1e6, 0.5e6, 2e6, "measured").usd_in_words() == "$1 million (0.5 to 2; measured)"
    assert Spent(999_000.0, 5e5, 2e6, "measured").usd_in_words().startswith("$1,000,000 (500,000 to")


def test_a_step_in_words():
    step = SimpleNamespace(
        tp=1,
        pp=2.0,
        dp=4.0,
        ep=1.0,
        cp=1.0,
        microbatches=1.0,
        micro_batch=3.0,
        interleave=1,
        sequence_parallel=False,
        zero=1,
        recompute="none",
    )
    told = "PP 2 x DP 4, 1 micro-batch of 3, ZeRO 1, no recompute"
    assert train_run.in_words(step) == told
    more = {"tp": 8.0, "microbatches": 2.0, "interleave": 2.0, "recompute": "full"}
    several = SimpleNamespace(**vars(step) | more)
    assert train_run.in_words(several) == (
        "TP 8 x PP 2 x DP 4, 2 micro-batches of 3, 2 parts per stage, ZeRO 1, full recompute, no SP"
    )
    several.sequence_parallel = True
    assert train_run.in_words(several).endswith("full recompute")
    assert train_run.degrees(dict.fromkeys(("tp", "pp", "dp", "ep", "cp"), 1)) == "one rank"


def a_run(days, mfu, low, high, **more):
    return SimpleNamespace(days=days, mfu=mfu, ends=lambda name: (low, high), **more)


def test_days_at_stated_shares_by_hand(monkeypatch):
    """20 days at 30 % of the peak are 15 at 40 %, 12 at 50 % and 18.75 at 32 %; a band turns round with its share."""
    row = SimpleNamespace(
        chip="c", about="dense", precision="bf16", values=(0.4, 0.32, 0.5), id="said", software="x", source="y"
    )
    others = [SimpleNamespace(**vars(row) | {name: "other"}) for name in ("chip", "about", "precision")]
    monkeypatch.setattr(trainings, "stated", lambda kind: (row, *others) if kind == "scenario" else ())
    of = {
        "system": SimpleNamespace(chip=SimpleNamespace(id="c")),
        "model": SimpleNamespace(kind="dense"),
        "precision": SimpleNamespace(compute="bf16"),
        "stack": SimpleNamespace(id="e"),
    }
    run = a_run(20.0, 0.3, 15.0, 24.0, days_at=lambda mfu: 20.0 * 0.3 / mfu, **of)
    own, said = trainings.at_stated_mfu(run).to_dict("records")
    assert own == {
        "scenario": "derived",
        "software": "e",
        "mfu": 0.3,
        "mfu_low": 0.25,
        "mfu_high": pytest.approx(0.4),
        "days": 20.0,
        "days_low": 15.0,
        "days_high": 24.0,
        "source": "",
    }
    assert said == {
        "scenario": "said",
        "software": "x",
        "mfu": 0.4,
        "mfu_low": 0.32,
        "mfu_high": 0.5,
        "source": "y",
        "days": pytest.approx(15.0),
        "days_low": pytest.approx(12.0),
        "days_high": 18.75,
    }


def test_what_published_runs_took_by_hand(monkeypatch):
    """Five days of 512 chips, at 3/5 of the peak; a printed half of it takes 6 days where 40 % takes 7.5."""
    peak = tm.system("hgx-h100").chip.peak("bf16")
    told = {
        "model": "llama-3.1-8b",
        "system": "hgx-h100",
        "chips": "512",
        "precision": "bf16",
        "chip": "h100",
        "mapping": "m",
        "source": "s",
        "locator": "l",
        "note": "n",
        "question": {"tokens": 7.0},
    }
    hours = SimpleNamespace(id="h", metric="chip_hours", values=(512 * 86_400 * 5.0,) * 3, **told)
    rate = SimpleNamespace(id="r", metric="flop_per_s_per_chip", values=(peak / 2,) * 3, **told)
    other = SimpleNamespace(**vars(rate) | {"model": "llama-3.1-405b"})
    asked = []

    def train_run(*spec, **ask):
        asked.append((spec, ask))
        return a_run(7.5, 0.4, 6.5, 9.0, days_at=lambda mfu: 7.5 * 0.4 / mfu)

    monkeypatch.setattr(trainings, "stated", lambda kind: (hours, rate, other) if kind == "run" else ())
    monkeypatch.setattr(trainings, "train_run", train_run)
    table = trainings.published("llama-3.1-8b", ["public"], 4096)
    assert (
        asked
        == [
            (
                ("llama-3.1-8b", "hgx-h100"),
                {"chips": 512.0, "precision": "bf16", "efficiencies": "public", "tokens": 7.0},
            )
        ]
        * 2
    )
    columns = ["id", "chips", "mfu", "days", "days_on", "predicted_days", "predicted_days_low", "predicted_days_high"]
    first, second = table[columns].values.tolist()
    assert first[1:] == pytest.approx([512, 3 / 5, 5, 5 / 8, 7.5, 6.5, 9])
    assert second[1:] == pytest.approx([512, 1 / 2, 6, 6 / 8, 7.5, 6.5, 9])
    assert trainings.published("llama-3.1-8b", chips=512).stack_kind.tolist() == ["public", "hand-tuned"] * 2
    assert trainings.published("llama-3.1-8b", ["public"]).days_on.tolist() == pytest.approx([5 / 16, 6 / 16])
