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
from trnmodel.planner import domain_sizes, plan, train_run, train_search, train_table, train_words, trainings
from trnmodel.planner.train_run import Spent
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
    assert {name: asked[name] for name in ("chips", "batch_slack", "most_context", "best", "precision")} == {
        "chips": 8192,
        "batch_slack": 0.05,
        "most_context": 1,
        "best": 5,
        "precision": "bf16",
    }
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
        ["a", words[first], 2.0],
        ["a", words[second], 0.0],
        ["b", words[first], 0.0],
        ["b", words[second], 8.0],
    ]
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
        tm.train_run("llama-3.2-1b", "hgx-a100", tokens=read_number("tokens", text), chips=8)


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


# Tables and words of runs

HEAD = train_table.Key("m", "new", "bf16", "public")


def made(days=10.0, tflop=100.0, chip="Chip", valid=True, chips=216.0, **step):
    """A run as far as its tables tell of it; two ranks a chip, steps of 4 s."""
    at = (
        dict.fromkeys(train_table.PARTS, 0.0)
        | {"time_s": 4.0, "peak_flop_per_s": tflop * 1e12 / 2, "ranks_per_chip": 2.0}
        | step
    )
    spec = SimpleNamespace(chip=SimpleNamespace(name=chip), domain_chips=72)
    model = SimpleNamespace(id="m", outline=lambda phase: SimpleNamespace(experts=8))
    return SimpleNamespace(
        days=days,
        valid=valid,
        system=spec,
        step=SimpleNamespace(**at),
        chips=chips,
        model=model,
        reason="does not fit",
        mfu=0.354,
        ends=lambda name: (days, days),
    )


def key(system="new", precision="bf16", kind="public", model="m"):
    return train_table.Key(model, system, precision, kind)


def test_what_8_bits_bring_by_hand():
    """500 over 200 TFLOP/s are 2.5, 12 over 8 days 1.5; a third format, other models and software are left out."""
    found = {
        key(): made(12.0, 200.0),
        key(precision="fp8"): made(8.0, 500.0),
        key(precision="mxfp8"): made(1.0, 1.0),
        key("old"): made(9.0, 70.0),
        key("older", model="n"): made(3.0, 3.0),
        key("older", kind="ideal"): made(3.0, 3.0),
    }
    first, second = train_table.gains(found, HEAD).to_dict("records")
    assert first == {
        "system": "new",
        "wide_in": "BF16",
        "wide_flop_per_s": 200e12,
        "wide_days": 12.0,
        "narrow_in": "FP8",
        "narrow_flop_per_s": 500e12,
        "narrow_days": 8.0,
        "peak_ratio": 2.5,
        "speedup": 1.5,
    }
    assert (second["system"], second["wide_days"]) == ("old", 9.0)
    np.testing.assert_equal([second[name] for name in ("narrow_days", "peak_ratio", "speedup")], [np.nan] * 3)


def test_runs_of_a_level_are_alike_and_fit():
    found = {key("a"): made(1.0), key("b"): made(2.0), key("c"): made(3.0, valid=False), key("a", "fp8"): made(4.0)}
    assert {name: run.days for name, run in train_table.level(found, HEAD).items()} == {"a": 1.0, "b": 2.0}


def newer(old_days=12.0, narrow=5.0, **ideal):
    """Steps of 4 s: of 12 days 6 are backward, of 8 days 2; forward is 3 days against 6."""
    return {
        key("old"): made(old_days, 500.0, "Old", backward_s=2.0, forward_s=1.0),
        key(): made(8.0, 1200.0, "New", backward_s=1.0, forward_s=3.0),
        key("old", kind="ideal"): made(6.0, 500.0, **ideal),
        key(kind="ideal"): made(5.0, 1200.0),
        key("old", "fp8"): made(15.0, 1000.0),
        key(precision="mxfp8"): made(narrow, 2500.0),
    }


def test_why_a_newer_chip_brings_little_by_hand():
    """12 over 8 days and 6 over 5; 6 days of the one against 2 of the other; 15 days over 5 in 8 bits."""
    called = {"new": "the rack", "old": "the server"}
    rates = "**In BF16 New computes 1,200 TFLOP/s, Old 500**, 2.40 times as much."
    times = "the rack is as many times as fast as the server: {}."
    most = "Most of the difference on public software is backward, 6 days against 2."
    eight = "In 8 bits on both (MXFP8 beside FP8) it is 3.00 times."
    both = times.format("1.50 on public software, 1.20 on ideal software")
    assert train_table.why_little(newer(), HEAD, "old", called) == f"{rates} {both} {most} {eight}"
    alone = times.format("1.50 on public software")
    assert alone in train_table.why_little(newer(valid=False), HEAD, "old", called)
    told = train_table.why_little(newer(1.02 * 8.0), HEAD, "old", called)  # a fiftieth is no difference
    assert told == f"{rates} {times.format('1.02 on public software, 1.20 on ideal software')} {eight}"
    assert "Most of" in train_table.why_little(newer(8.17), HEAD, "old", called)
    assert train_table.why_little(newer(narrow=np.nan), HEAD, "old", called) == f"{rates} {both} {most}"


def test_what_moves_a_run(monkeypatch):
    """A quarter, a half, twice, four times of three domains of 72: one, two, six and twelve; half and twice of 7."""
    asked = []

    def train_run(system, **ask):
        asked.append(ask)
        if ask["chips"] == 144:
            raise ValueError("none")
        return made(33.333, valid=ask["chips"] != 432)

    def again(run, straggler=0.0, expert_imbalance=1.0):
        return SimpleNamespace(time_s=4.0 * (1 + straggler) * expert_imbalance, valid=run.days != 5.0, reason="full")

    monkeypatch.setattr(train_table, "train_run", train_run)
    monkeypatch.setattr(train_table, "again", again)
    found = {key(): made(), key(model="n"): made(5.0), key(model="o"): made(valid=False), key("old"): made()}
    told = train_table.moves(found, HEAD, {"model": "m", "global_batch": 7}, 210.0)
    assert told.splitlines() == [
        "* **72 chips**: 33.3 days, MFU 35%.",
        "* **432 chips**: does not fit.",
        "* **864 chips**: 33.3 days, MFU 35%.",
        "* **3 sequences a step**: 33.3 days, MFU 35%.",
        "* **14 sequences a step**: 33.3 days, MFU 35%.",
        "* **A slowest rank that takes 5% longer**: +5.0% time.",
        "* **Experts of m that fill unevenly**, a rank with 1.5 times the mean: +50% time.",
        "* **Experts of n that fill unevenly**, a rank with 1.5 times the mean: full.",
    ]
    how = {
        "precision": "bf16",
        "efficiencies": "public",
        "zero": (1, 3),
        "recompute": ("none", "full"),
        "best": 2,
        "model": "m",
    }
    assert asked == [
        how | {"chips": chips, "global_batch": batch}
        for chips, batch in ((72, 7), (144, 7), (432, 7), (864, 7), (210.0, 3), (210.0, 14))
    ]
    few = train_table.moves({key(): made(chips=72.0)}, HEAD, {"global_batch": 1}, 72.0)
    assert [line.split("**")[1] for line in few.splitlines()][:-2] == [
        "72 chips",
        "288 chips",
        "1 sequences a step",
        "2 sequences a step",
    ]


def test_days_of_a_run_or_why_it_has_none():
    assert train_table.days(None) == "no such software"
    assert train_table.days(made(valid=False)) == "does not fit"
    wide = SimpleNamespace(valid=True, days=20.0, ends=lambda name: (15.0, 31.0))
    assert train_table.days(wide) == "20 (15 to 31)"
    assert train_table.in_percent(0.5, 0.4, 0.613) == "50% (40 to 61)"
    assert train_table.in_percent(0.1234, 0.1234, 0.1234) == "12.3%"


def test_the_run_of_a_question_or_why_there_is_none(monkeypatch):
    """The first kind of software that there is; 1.5 GiB lack, or nothing lacks and nothing runs."""
    run, asked = made(), []
    monkeypatch.setattr(train_table, "train_run", lambda **ask: (asked.append(ask), run)[1])
    found = {key("s", kind="ideal"): run, key("s", kind="hand-tuned"): run}
    ask = ("m", {"model": "m"}, "s", "bf16", 512.0)
    assert train_table.whole(found, *ask) is run
    assert train_table.whole({}, *ask) is run
    how = {"system": "s", "chips": 512.0, "precision": "bf16", "model": "m"}
    assert asked == [how | {"efficiencies": kind} for kind in ("hand-tuned", "public")]
    run.valid = False
    for missing, lacks in ((1.5 * 2**30, "the fullest rank lacks 1.5 GiB"), (0.0, "no mapping can run")):
        run.missing_bytes = missing
        with pytest.raises(ValueError, match=f"^m on 216 chips of s: does not fit; {lacks}$"):
            train_table.whole(found, *ask)


def test_policies_that_keep_other_bytes(monkeypatch):
    """ZeRO 3 keeps as much with all layers computed again as with scores alone, and is asked for once."""
    asked = []
    kept = {(0, "none"): 9.0, (0, "selective"): 8.0, (0, "full"): 7.0, (1, "none"): 7.0, (1, "selective"): 6.0}

    def train_step(model, system, mapping, **ask):
        asked.append(ask)
        stored = dict.fromkeys(train_table.STORED, 0.5)
        held = kept.get((ask["zero"], ask["recompute"]), 5.0)
        return SimpleNamespace(memory_bytes_per_rank=held, capacity_bytes=80.0, **stored)

    monkeypatch.setattr(train_table, "train_step", train_step)
    monkeypatch.setattr(train_table, "largest_micro_batch", lambda *spec, **ask: ask["zero"] + 2)
    step = SimpleNamespace(precision="bf16", sequence_parallel=True, global_batch=64.0, seq=512.0)
    run = SimpleNamespace(step=step, stack="e", model="m", system="s", mapping="x")
    table = train_table.memory(run)
    words = [
        "ZeRO 0, nothing again",
        "ZeRO 0, scores again",
        "ZeRO 0, layers again",
        "ZeRO 1, nothing again",
        "ZeRO 1, scores again",
        "ZeRO 1, layers again",
        "ZeRO 3, nothing again",
    ]
    assert table.of.drop_duplicates().tolist() == words
    assert table.most[:: len(train_table.STORED)].tolist() == [2.0] * 3 + [3.0] * 3 + [5.0]
    assert table.kind[: len(train_table.STORED)].tolist() == list(train_table.STORED.values())
    assert (table.capacity_bytes == 80.0).all()
    assert (table.stored_bytes == 0.5).all()
    assert asked[0] == {
        "precision": "bf16",
        "sequence_parallel": True,
        "global_batch": 64,
        "seq": 512,
        "efficiencies": "e",
        "zero": 0,
        "recompute": "none",
    }
    assert len(asked) == 9


def test_constraints_in_words():
    """From half a per cent on either side a cost is told with a number; nothing runs where it has none."""
    costs = {"a": 1.005, "b": 1.25, "c": 1.004, "d": 1.0, "e": np.nan, "f": 0.99, "g": 0.996}
    rows = pd.DataFrame({"constraint": list(costs), "cost": list(costs.values())})
    told = train_words._constraints(SimpleNamespace(constraints=lambda: rows))
    assert told == ["constraints cost: b x1.25, f x0.99", "cost nothing: a, c, d, g", "nothing runs with: e"]
    assert train_words._constraints(SimpleNamespace(constraints=lambda: rows[:0])) == []
    rows = pd.DataFrame({"constraint": ["a", "b"], "cost": [1.5, 0.5]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_words, "COSTLY", 0.5)
        assert train_words._constraints(SimpleNamespace(constraints=lambda: rows)) == [
            "constraints cost: a x1.5, b x0.5"
        ]


def test_budgets_and_dollars_in_words():
    assert [train_words.budget(n) for n in (1e12, 999e9, 1e9, 2.5e8, 1e6, 999_000)] == [
        "1T",
        "999B",
        "1B",
        "250M",
        "1M",
        "999,000",
    ]
    assert [read_number("tokens", text) for text in ("2M", "3 b", "1.5t", "7", "2e+3")] == [2e6, 3e9, 1.5e12, 7.0, 2e3]
    assert train_words._usd(Spent(1e6, 0.5e6, 2e6, "measured")) == "1 million USD (0.5 to 2; measured)"
    assert train_words._usd(Spent(999_000.0, 5e5, 2e6, "measured")).startswith("1,000,000 USD (500,000 to")


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
    told = "PP 2 x DP 4, 1 micro-batch of 3, ZeRO 1, nothing again"
    assert train_run.in_words(step) == told
    more = {"tp": 8.0, "microbatches": 2.0, "interleave": 2.0, "recompute": "full"}
    several = SimpleNamespace(**vars(step) | more)
    assert train_run.in_words(several) == (
        "TP 8 x PP 2 x DP 4, 2 micro-batches of 3, 2 parts a stage, ZeRO 1, layers again, no SP"
    )
    several.sequence_parallel = True
    assert train_run.in_words(several).endswith("layers again")
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
