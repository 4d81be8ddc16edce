"""Runs of training and watts as rows: what columns and words state, what is refused, and the figures of one step."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities
from trnmodel.catalog.systems import roomy
from trnmodel.evidence import jobs
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError, texts
from trnmodel.evidence.columns import NAMES
from trnmodel.evidence.described import run_columns, stated
from trnmodel.evidence.meanings import decide
from trnmodel.evidence.readings import reading

RUN = {
    "kind": "training",
    "instance": "4x trn1.32xlarge",
    "workload": "llama-3.1-8b",
    "batch": "512",
    "seq_len": "4096",
    "tp": "8",
    "dp": "16",
    "precision": "BF16",
    "metric": "step time",
    "value": "20",
    "unit": "s",
}
AT = tm.Mapping(tp=8, dp=16, placement=("tp", "cp", "ep", "dp", "pp"))
ASK = {"global_batch": 512, "seq": 4096, "micro_batch": 2}
WATTS = {
    "kind": "energy",
    "instance": "H100-SXM-80GB",
    "workload": "llama-3.1-8b",
    "batch": "64",
    "output_len": "512",
    "precision": "BF16",
    "metric": "power",
    "value": "500",
    "unit": "W",
}


def stated_by(row):
    return run_columns(row, decide(row).record)


def judged(*rows):
    return tm.validate(pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("micro-batch size 4, ZeRO-3", {"micro_batch": "4", "zero": "3"}),
        ("microbatch=16 opt=Lamb", {"micro_batch": "16"}),
        ("DeepSpeed ZeRO stage 2; full activation recomputation", {"zero": "2", "recompute": "full"}),
        ("selective recompute, no sequence parallelism", {"recompute": "selective", "sequence_parallel": "0"}),
        ("no activation checkpointing, sequence parallel", {"recompute": "none", "sequence_parallel": "1"}),
        ("TP2 CP4 EP8", {"context_ranks": "4", "expert_ranks": "8"}),
        ("interleaved 1F1B", {}),
        ("4 virtual stages", {"interleave": "4"}),
        ("interleave=6", {"interleave": "6"}),
        ("days of 1.5T tokens", {"tokens": "1500000000000"}),
        ("400 Gbit/s network", {"network_gbit_per_s": "400"}),
        ("SDK 2.29, 5 steps", {}),
    ],
)
def test_words_of_a_run(words, found):
    assert stated_by(RUN | {"note": words}) == found


def test_a_column_wins_over_words():
    assert stated_by(RUN | {"note": "micro-batch 4, ZeRO-3", "zero": "1"}) == {"micro_batch": "4", "zero": "1"}


@pytest.mark.parametrize("where", ["column", "words"])
def test_a_run_is_the_public_step_with_what_it_states(where):
    """Unknown ones as `tm.train_step` has them."""
    columns = {"micro_batch": "2", "recompute": "full", "zero": "0", "sequence_parallel": "0"}
    words = {"note": "micro-batch 2, full recompute, ZeRO-0, no sequence parallelism"}
    plain, stated_ = judged(RUN | {"micro_batch": "2"}, RUN | (columns if where == "column" else words)).predicted
    system = roomy(tm.system("trn1.32xlarge", count=4))  # a run that was measured has fitted
    steps = [
        tm.train_step("llama-3.1-8b", system, AT, **ASK, **more)
        for more in ({}, {"recompute": "full", "zero": 0, "sequence_parallel": False})
    ]
    assert [plain, stated_] == pytest.approx([float(step.time_s) for step in steps], rel=1e-12)
    assert stated_ > 1.1 * plain


def test_more_that_a_run_states():
    """Adapters, a slower network, a batch and a length of its own, another machine and another stack."""
    more = {
        "trainable_share": "0.01",
        "network_gbit_per_s": "100",
        "global_batch": "256",
        "seq": "2k",
        "system": "hgx-a100",
        "machines": "16",
        "training_stack": "megatron-core",
        "micro_batch": "1",
    }
    slow = replace(tm.system("hgx-a100", count=16), network_bytes_per_s_per_dir=100e9 / 8)
    ask = {"global_batch": 256, "seq": 2048, "trainable_share": 0.01, "efficiencies": "megatron-core"}
    step = tm.train_step("llama-3.1-8b", slow, AT, **ask)
    found = judged(RUN | more)
    assert found.predicted[0] == pytest.approx(float(step.time_s), rel=1e-12)
    assert found.basis[0] == str(step.basis)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"zero": "4"}, "zero '4': allowed are 0, 1, 2, 3"),
        ({"recompute": "some"}, "recompute 'some': allowed are none, selective, full"),
        ({"sequence_parallel": "maybe"}, "sequence_parallel 'maybe'"),
        ({"micro_batch": "1.5"}, "micro_batch '1.5': allowed are whole numbers from 1"),
        ({"trainable_share": "2"}, "trainable_share '2': allowed are numbers above 0 to 1"),
        ({"expert_ranks": "0"}, "expert_ranks '0'"),
        ({"network_gbit_per_s": "-1"}, "network_gbit_per_s '-1'"),
        ({"training_stack": "mine"}, "training_stack 'mine'"),
        ({"system": "moon"}, "'moon' is unknown"),
        ({"hidden": "512"}, "hidden '512'.* needs layers, heads, vocabulary"),
        ({"layers": "9" * 3000}, "a cell of 3000 characters"),
    ],
)
def test_a_column_that_cannot_be_is_refused_by_name_and_spoils_no_other_row(cells, reason):
    bad, good = judged(RUN | cells, RUN).itertuples()
    assert pd.Series([bad.skipped]).str.contains(reason)[0], bad.skipped
    assert math.isfinite(good.predicted)


def test_columns_of_other_kinds_of_rows_are_theirs():
    """A row of serving has no micro-batch, whatever stands in the column."""
    row = RUN | {"kind": "inference-LLM", "phase": "decode", "metric": "TPOT", "unit": "ms", "dp": "1", "batch": "4"}
    row["instance"] = "trn1.32xlarge"
    plain, other = judged(row, row | {"micro_batch": "7", "recompute": "?", "hidden": "x"}).predicted
    assert plain == other > 0


def test_figures_of_one_step():
    """Each figure is arithmetic of the time of the step, and the time of a figure is that of the step again."""
    units = {
        "step time": "s",
        "throughput": "seq/s",
        "tokens/s": "tokens/s",
        "tokens_per_s_per_chip": "tok/s",
        "MFU": "%",
        "model_flop_per_s_per_gpu": "TFLOP/s",
        "flop_per_s_per_gpu": "TFLOP/s",
        "time_for_tokens": "days of 300B tokens",
    }
    found = judged(*(RUN | {"metric": name, "unit": unit, "micro_batch": "2"} for name, unit in units.items()))
    step, rate, tokens, chip, mfu, flop, executed, days = found.predicted
    assert rate == pytest.approx(512 / step)
    assert (tokens, chip) == pytest.approx((512 * 4096 / step, 512 * 4096 / step / 64))
    assert flop * 1e12 == pytest.approx(512 * float(tm.model("llama-3.1-8b").train_flop(4096)) / step / 64)
    assert mfu / 100 == pytest.approx(flop / 95 / 2)  # 190 TFLOP/s per chip
    assert executed == flop  # nothing is computed again but scores
    assert days == pytest.approx(300e9 / (512 * 4096) * step / 86400)
    for row, value in zip(
        texts(pd.DataFrame([RUN | {"metric": m, "unit": u} for m, u in units.items()])), found.predicted, strict=True
    ):
        r = reading(row)
        assert jobs.step_s(r, value * r.scale) == pytest.approx(step, rel=1e-12)


def test_layers_that_are_computed_again_are_executed_work():
    """SC21, eq. 3: 96 B s L h^2 (1 + s/6h + V/16Lh) of a GPT, of which 72 with V/12 are the model's."""
    gpt = {
        "layers": "4",
        "hidden": "512",
        "heads": "8",
        "vocabulary": "1000",
        "system": "hgx-a100",
        "recompute": "full",
    }
    run = RUN | gpt | {"workload": "gpt tiny", "batch": "16", "seq_len": "128", "dp": "1", "micro_batch": "1"}
    model, executed = judged(
        run | {"metric": "model_flop_per_s_per_gpu", "unit": "TFLOP/s"},
        run | {"metric": "flop_per_s_per_gpu", "unit": "TFLOP/s"},
    ).predicted
    s, h, v = 128, 512, 1000
    assert executed / model == pytest.approx(96 / 72 * (1 + s / 6 / h + v / 64 / h) / (1 + s / 6 / h + v / 48 / h))


def test_watts_of_a_row():
    """At the printed rate the watts of `tm.energy`; without one at the model's own; joules are watts over tokens/s."""
    printed = WATTS | {"tokens_per_s": "6000"}
    at_rate, own, joules, own_joules = judged(
        printed,
        WATTS,
        printed | {"metric": "energy", "unit": "J/token"},
        WATTS | {"metric": "energy", "unit": "J/token"},
    ).itertuples()
    ask = {"batch": 64, "context": 256}
    ideal = tm.decode_step("llama-3.1-8b", tm.chip("h100"), **ask, efficiencies="ideal")
    step = tm.decode_step("llama-3.1-8b", tm.chip("h100"), **ask)
    by_hand = [tm.energy(replace(ideal, time_s=np.asarray(t))) for t in (64 / 6000, float(step.time_s))]
    assert [at_rate.predicted, own.predicted] == pytest.approx([float(e.chip_w) for e in by_hand], rel=1e-9)
    assert (at_rate.low, at_rate.high) == pytest.approx(tuple(map(float, by_hand[0].ends("chip_w"))), rel=1e-9)
    assert joules.predicted == pytest.approx(at_rate.predicted / 6000)
    assert own_joules.predicted == pytest.approx(own.predicted * float(step.time_s) / 64)
    assert own_joules.high / own_joules.predicted > own.high / own.predicted  # the time is not known either
    assert (at_rate.meaning, joules.meaning) == ("energy-watts", "energy-per-token")


def test_watts_of_parameters_alone():
    """A model that the catalogue has not: its weights once per step, 2 FLOP per parameter and sequence."""
    row = WATTS | {"workload": "nobody's model", "params_b": "14", "tokens_per_s": "2000", "n_chips": "2", "tp": "2"}
    known, without = judged(row, {name: x for name, x in row.items() if name != "tokens_per_s"}).itertuples()
    power, chip = tm.energy(tm.decode_step("llama-3.1-8b", tm.chip("h100"), batch=1, context=1)), tm.chip("h100")
    time_s = 64 / 2000
    used = 2 * 14e9 * 64 / 2 / time_s / 989.5e12, 14e9 * 2 / 2 / time_s / 3.35e12
    assert 2 * float(power.idle_w) < known.predicted < 2 * float(chip.tdp_w)
    shares = facilities.power(chip)
    activity = shares.compute_activity * used[0] + shares.hbm_activity * used[1]
    idle = float(chip.idle_share)
    assert known.predicted == pytest.approx(2 * 700 * (idle + (1 - idle) * math.tanh(activity)), rel=1e-3)
    assert "no tokens/s" in without.skipped


def test_columns_have_names_of_their_own():
    assert not set(NAMES) & set(COLUMNS)
    with pytest.raises(UnreadableRowError, match="seq 'long'"):
        stated({"seq": "long"}, ["seq"])
