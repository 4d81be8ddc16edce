"""The chapter on training: days by hand, equal software, parts that sum, memory by hand, claims, odd cases."""

import re

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import training as tables
from trnbook.chapters import training_table as train_table
from trnbook.chapters.training_table import Key
from trnmodel.arguments import UnanswerableError
from trnmodel.evidence import tables as evidence
from trnmodel.search.trainings import published

GPU, AIR, OLD, AMD = "hgx-h100", "trn3-nl32x2-pcie160", "trn2-ultraserver", "mi355x-8"
DENSE, EXPERTS = "llama-3.1-8b", "qwen3-30b-a3b"
SIZES = {"tokens": 1e12, "seq": 8192, "global_batch": 512}
QUESTIONS = {name: {"model": name} | SIZES for name in (DENSE, EXPERTS)}
CALLED = {GPU: "gpu", AIR: "three", OLD: "two", AMD: "other"}
CHIPS = 256


@pytest.fixture(scope="module")
def found():
    return train_table.runs(QUESTIONS, CALLED, "bf16", CHIPS)


@pytest.fixture(scope="module")
def head():
    return Key(DENSE, AIR, "bf16", "public")


def test_days_are_work_over_rate(found, head):
    """Days x 86,400 s x chips x 671 TFLOP/s x MFU is the work; 6 FLOP a token and parameter, and attention's."""
    run = found[head]
    work = float(run.days) * 86400 * 256 * 671e12 * float(run.mfu)
    assert work == pytest.approx(float(run.step.model_flop) * 1e12 / (512 * 8192), rel=1e-9)
    assert 1 < work / (6 * 8.03e9 * 1e12) < 1.35  # 32 layers x 12 x 8,192 x 4,096 of the whole square are a quarter


def test_work_of_the_largest_llama_is_that_of_its_paper():
    """3.8e25 FLOP for 15.6T tokens (Llama 3, section 3.1), which counts 6 a token and parameter."""
    run = tm.train_run("llama-3.1-405b", GPU, tokens=15.6e12, seq=8192, global_batch=2048)
    work = float(run.step.model_flop / (run.step.global_batch * run.step.seq)) * 15.6e12
    square = 126 * 12 * 8192 * 16384 * 15.6e12  # attention, which MFU counts
    assert work - square == pytest.approx(3.8e25, rel=0.02)


def test_all_of_a_level_stand_on_one_kind_of_software(found, head):
    peers = train_table.level(found, head)
    assert set(peers) == {GPU, AIR, OLD}  # nobody trains on the fourth in public
    assert {run.stack.kind for run in peers.values()} == {"public"}
    assert set(train_table.level(found, head._replace(kind="ideal"))) == set(CALLED)


def test_a_table_has_a_row_for_each_format_and_names_what_is_missing(found):
    table = tables.compare(found, DENSE).set_index(["system", "in"])
    assert list(table.index) == [
        (GPU, "BF16"),
        (GPU, "FP8"),
        (AIR, "BF16"),
        (AIR, "MXFP8"),
        (OLD, "BF16"),
        (OLD, "FP8"),
        (AMD, "BF16"),
        (AMD, "FP8"),
    ]
    assert table.public[AMD, "BF16"] == tables.NO_STACK
    low, value, high = sorted(float(x) for x in re.findall(r"[\d.]+", table.public[AIR, "BF16"]))
    assert table.public[AIR, "BF16"] == f"{value:g} ({low:g} to {high:g})"
    assert low < value < high
    assert "(" not in table.ideal[AIR, "BF16"]


def test_a_format_that_only_the_caller_asks_for_is_tried_too(found):
    mine = train_table.runs({DENSE: QUESTIONS[DENSE]}, [AIR], "fp8", CHIPS)
    assert [key.precision for key in mine if key.kind == "ideal"] == ["bf16", "mxfp8", "fp8"]
    gained = train_table.gains(mine, Key(DENSE, AIR, "fp8", "ideal")).iloc[0]
    assert (gained.wide_in, gained.narrow_in) == ("BF16", "MXFP8")


def test_what_eight_bits_bring_is_a_ratio_of_days(found, head):
    row = train_table.gains(found, head).set_index("system").loc[AIR]
    assert row.peak_ratio == pytest.approx(2517 / 671)  # TFLOPS that AWS prints
    assert row.speedup == pytest.approx(float(found[head].days / found[head._replace(precision="mxfp8")].days))
    told = tables.formats(train_table.gains(found, head)).set_index("system")
    assert told["times the peak"][AIR] == "3.8"
    assert 1 < float(told["times as fast"][AIR]) < 3.8


def test_why_a_newer_chip_brings_little_in_the_same_format(found, head):
    """671 over 667 TFLOPS are 1.01; on ideal software so are the days, if products bind."""
    said = train_table.why_little(found, head, OLD, CALLED)
    assert "671 TFLOP/s, Trainium2 667**, 1.01 times as much" in said
    ideal = [float(found[head._replace(kind="ideal", system=name)].days) for name in (OLD, AIR)]
    assert f"{ideal[0] / ideal[1]:.2f} on ideal software" in said
    assert ideal[0] / ideal[1] < 1.1
    assert train_table.elder(tm.system(OLD), tm.system(AIR))
    assert not train_table.elder(tm.system(AIR), tm.system(OLD))
    assert not train_table.elder(tm.system("hgx-a100"), tm.system(AIR))


def test_parts_of_the_days_sum_to_them(found, head):
    peers = train_table.level(found, head)
    piled = train_table.parts(peers)
    sums = piled.groupby("of").run_days.sum()
    for name, run in peers.items():
        assert sums[name] == pytest.approx(float(run.days), rel=1e-12)
    assert "EP exchanges" not in set(piled.part)  # a dense model has none
    assert (piled.run_days >= 0).all()


def test_overlap_has_its_ends_on_either_side(found, head):
    table = tables.overlaps(train_table.level(found, head))
    ends = table[["all hidden", "as it is", "none hidden"]].astype(float).to_numpy()
    assert (np.diff(ends) >= 0).all()


def test_memory_by_hand(found, head):
    """BF16 weights are 2 B a parameter, FP32 gradients 4, Adam's states 12, shared out by ZeRO 1."""
    run = found[head]
    held = train_table.memory(run).pivot(index="of", columns="kind", values="stored_bytes")
    parts = float(run.step.tp * run.step.pp)
    none = held.loc["ZeRO 0, no recompute"]
    assert none.weights / 2 >= tm.model(DENSE).total_params / parts * (1 - 1e-9)  # the fullest rank
    assert none.gradients == pytest.approx(2 * none.weights)
    assert none.optimizer == pytest.approx(6 * none.weights)
    one, three = held.loc["ZeRO 1, no recompute"], held.loc["ZeRO 3, no recompute"]
    assert one.optimizer == pytest.approx(none.optimizer / float(run.step.dp * run.step.ep * run.step.cp))
    assert (one.weights, one.activations) == (none.weights, none.activations)
    assert three.weights < one.weights
    assert held.activations["ZeRO 1, full recompute"] < one.activations
    assert not [name for name in held.index if "scores" in name]  # no score is kept: the policy is the same by name


def test_the_largest_micro_batch_fits_and_the_next_does_not(found, head):
    run = found[head]
    table = train_table.memory(run).groupby("of", sort=False).most.first()
    ask = {
        "global_batch": run.step.global_batch,
        "seq": 8192,
        "efficiencies": run.stack,
        "zero": 1,
        "recompute": "full",
    }
    most = table["ZeRO 1, full recompute"]
    each = float(run.step.global_batch / (run.step.dp * run.step.ep))
    fits = {
        n: bool(tm.train_step(DENSE, run.system, run.mapping, micro_batch=n, **ask).valid)
        for n in range(1, int(each) + 1)
        if each % n == 0
    }
    assert most == max([n for n, there in fits.items() if there], default=0)


def test_mappings_that_lose_take_longer(found, head):
    run = train_table.whole(found, DENSE, QUESTIONS[DENSE], AIR, "bf16", CHIPS)
    table = tables.losing(run)
    assert table.loses[0] == ""
    assert (np.diff(table.days.astype(float)) >= 0).all()
    assert all("most by" in one for one in table.loses[1:])
    assert float(run.days) <= float(found[head].days) * (1 + 1e-12)  # more policies are tried


def test_a_constraint_costs_and_what_costs_most_stands_first(found, head):
    table = tables.binding(found[head])
    costs = pd.to_numeric(table["times the best"], errors="coerce").dropna()
    assert costs.is_monotonic_decreasing
    lifted = table.set_index("constraint")["times the best"].get("memory sets no limit")
    assert float(lifted) <= 1


def test_claimed_efficiencies_by_hand(found):
    """At 43 % of 256 x 671 TFLOP/s."""
    table = tables.claims(found, DENSE, AIR, "bf16").set_index("MFU of")
    run = found[Key(DENSE, AIR, "bf16", "public")]
    work = float(run.step.model_flop / (run.step.global_batch * run.step.seq)) * 1e12
    by_hand = work / (256 * 671e12 * 0.43) / 86400
    assert float(table.days["claimed, compiler"]) == pytest.approx(by_hand, rel=5e-3)
    assert list(table.index) == [
        "derived, public software",
        "derived, hand-tuned software",
        "derived, ideal software",
        "claimed, compiler",
        "claimed, hand-written kernels",
    ]
    assert not tables.claims(found, DENSE, GPU, "bf16").source.any()
    assert "(20 to 30)" in tables.claims(found, EXPERTS, AIR, "bf16").set_index("MFU of").MFU["claimed, compiler"]


def test_a_claim_lies_in_a_band_or_beside_it(found):
    said = tables.verdicts(found, (DENSE, EXPERTS), AIR, "bf16")
    assert said.count(" lies ") == 4
    run = found[Key(DENSE, AIR, "bf16", "public")]
    low, high = (float(run.mfu * run.days) / end for end in run.ends("days")[::-1])
    where = "above" if high < 0.43 else "below" if low > 0.43 else "inside"
    assert f"43% of {DENSE} with compiler lies {where} the band of public software" in said
    assert tables.verdicts(found, (DENSE,), GPU, "bf16") == ""


def test_what_is_spent(found, head):
    peers = train_table.level(found, head)
    table = tables.spent(peers, "hyperscaler", "capacity-block").set_index("system")
    assert table["rented [million USD]"][AIR] == "no price"

    def middle(text):
        return float(text.split(" (")[0].replace(",", ""))

    for name in (GPU, OLD):
        assert middle(table["days in the calendar"][name]) >= 0.95 * middle(table["days, nothing lost"][name])
    price = tm.rent(GPU, "capacity-block").usd_per_chip_h if hasattr(tm, "rent") else None
    hours = float(peers[GPU].chip_hours / peers[GPU].goodput().goodput)
    if price:
        assert middle(table["rented [million USD]"][GPU]) == pytest.approx(hours * price / 1e6, rel=0.06)


def test_published_runs_stand_in_a_row_each():
    """30.84 million hours over 16,384 chips are 78.4 days, and 157 on 8,192."""
    table = tables.stated(published("llama-3.1-405b", chips=8192)).set_index("run")
    assert table.days["llama-405b-whole"] == "78.4"
    assert table["on as many chips"]["llama-405b-whole"] == "157"
    assert list(table.columns[-3:]) == ["ours, public", "ours, hand-tuned", "source"]
    assert len(published(DENSE)) == 0


def test_errors_are_those_of_the_evidence():
    errors = evidence.table("training_errors")
    table = tables.accuracy(errors)
    assert len(table) == len(errors)
    assert (table.target.str.contains("met") == errors.met.eq(True)).all()
    assert not table.isna().any().any()


def test_how_far_to_trust_it_with_planted_errors():
    rows = [
        {"group": "a", "fitted": True, "mean": 0.1, "left_out_mean": 0.2, "rival_left_out_mean": 0.3, "cases": 3},
        {"group": "b", "fitted": False, "mean": 0.4, "rival_carried_mean": 0.5, "cases": 2},
        {"group": "trn2-x", "fitted": False, "mean": 0.6, "rival_carried_mean": 0.5, "cases": 7},
    ]
    unused = pd.DataFrame({"reason": ["no time: x", "no time: y", "no model"]})
    days = {"days": [10.0, 30.0], "predicted_days": [10.0, 20.0]}
    days |= {"predicted_days_low": [9.0, 19.0], "predicted_days_high": [11.0, 21.0]}
    printed = pd.DataFrame({"id": ["p", "q"], "stack_kind": "public"} | days)
    said = tables.trusted(pd.DataFrame(rows), unused, printed)
    assert "is 20% to 20% off" in said
    assert "are 40% to 60% off; one MFU carried over is nearer on trn2-x" in said
    assert "are 7 steps of trn2-x, 60% off" in said
    assert "in our band: 1 of 2; printed days over ours: p 1.00, q 1.50" in said
    assert "Set aside are 3 rows, first of all: no time (2); no model (1)" in said
    assert "published" not in tables.trusted(pd.DataFrame(rows[:2]), unused, printed.iloc[:0])


def test_what_moves_the_answer(found, head):
    said = train_table.moves(found, head, QUESTIONS[DENSE], CHIPS)
    words = [line.split("**")[1] for line in said.strip().split("\n")]
    assert words[:4] == ["64 chips", "128 chips", "512 chips", "1,024 chips"]
    assert words[4:6] == ["256 sequences a step", "1,024 sequences a step"]
    assert f"Experts of {EXPERTS} that fill unevenly" in said
    alone = {key: run for key, run in found.items() if key.model == DENSE}
    assert "Experts" not in train_table.moves(alone, head, QUESTIONS[DENSE], CHIPS)


def test_what_does_not_fit_and_what_cannot_be_asked_is_refused_in_a_line(found):
    big = {"model": "llama-3.1-405b"} | SIZES
    few = train_table.runs({"llama-3.1-405b": big}, [GPU], "bf16", 8)
    why = r"does not fit in memory; the fullest rank lacks [\d.e+]+ GiB"
    with pytest.raises(UnanswerableError, match=why) as refused:
        train_table.whole(few, "llama-3.1-405b", big, GPU, "bf16", 8)
    assert "\n" not in str(refused.value)
    assert tables.days(next(iter(few.values()))) == "does not fit in memory"
    with pytest.raises(UnanswerableError, match="domains of 64 chips"):
        train_table.runs({DENSE: QUESTIONS[DENSE]}, [AIR], "bf16", 10)
    with pytest.raises(UnanswerableError, match="dtype"):
        train_table.whole(found, DENSE, QUESTIONS[DENSE], OLD, "mxfp8", CHIPS)


def test_experts_alone_and_few_tokens():
    """A mixture of experts as the only model, and one step of tokens: days are a step's time."""
    one = {"model": EXPERTS, "tokens": 512 * 4096.0, "seq": 4096, "global_batch": 512}
    found = train_table.runs({EXPERTS: one}, [AIR], "bf16", 64)
    run = found[EXPERTS, AIR, "bf16", "public"]
    assert float(run.days) * 86400 == pytest.approx(float(run.step.time_s * 512 / run.step.global_batch))
    assert tables.compare(found, EXPERTS).public.str.match(r"[\d.]+ \([\d.]+ to [\d.]+\)").all()
    assert "EP exchanges" in set(train_table.parts({"x": run}).part) or float(run.step.ep) == 1
