"""Questions of measured rows by hand: what each makes of one step and one prefill, and of their work."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.evidence import grounds, jobs, questions
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError
from trnmodel.evidence.readings import reading

ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
    "lnc": "2",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-70B",
    "batch": "3",
    "input_len": "11",
    "output_len": "13",
    "seq_len": "2048",
    "tp": "16",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
}
STEP_S, ONE_S, ALL_S = 7.0, 2.0, 5.0  # of a decode step, of the prefill of one prompt, of that of the whole batch
BATCH, INPUT, OUTPUT, REPLICAS, WAVES = 3.0, 11.0, 13.0, 17, 4.0


def asked(meaning, **change):
    found = reading(ROW)
    return replace(found, meaning=meaning, mapping=(*found.mapping[:2], REPLICAS, found.mapping[3]), **change)


@pytest.fixture
def timed(monkeypatch):
    """Steps of 7 s, prefills of 2 s for one prompt and 5 s for all."""
    monkeypatch.setattr(questions, "_decode", lambda r, tune: SimpleNamespace(time_s=STEP_S))
    monkeypatch.setattr(
        questions, "_prefill", lambda r, tune, batch=1.0: SimpleNamespace(time_s=ONE_S if batch == 1 else ALL_S)
    )


@pytest.mark.parametrize(
    ("meaning", "answer"),
    [
        ("decode-step", 7),
        ("decode-throughput", 3 / 7),
        ("decode-speed", 1 / 7),
        ("all-decode-throughput", 17 * 3 / 7),
        ("prefill", 5),
        ("forward", 5),
        ("forward-throughput", 17 * 3 / 5),
        ("batch-prefill", 6),
        ("burst-prefill", 4),  # one after the other, the middle of 2, 4 and 6 s
        ("prefill-throughput", 33 / 5),
        ("reprefill-throughput", 3 / 5),
        ("request-latency", 89),  # 5 s and 12 steps
        ("run-per-token", 89 / 24),
        ("run-per-output-token", 89 / 13),
        ("run-of-steps", 93),  # 2 s and 13 steps
        ("generated-throughput", 39 / 89),
        ("generated-throughput-batch", 39 / 90),  # three prefills of 2 s, and 12 steps
        ("total-throughput", 72 / 89),
        ("one-prefill", 2),
        ("queued-prefill", 2),
        ("loaded-step", 7 + 4 / 13),  # two other prompts of 2 s in 13 steps
        ("loaded-speed", 1 / (7 + 4 / 13)),
        ("loaded-request", 97),  # 2 s, and 13 steps of 7 + 4/13
        ("served-throughput", 17 * 39 / 97),
        ("served-total-throughput", 17 * 72 / 97),
        ("served-requests", 17 * 3 / 97),
        ("waiting-prefill", 2),
        ("waiting-step", 7 + 4 / 13),
        ("served-input-throughput", 17 * 33 / 97),
        ("layer-step", 7 / 80),
    ],
)
def test_an_answer_from_steps_and_prefills_by_hand(meaning, answer, timed):
    assert questions.predict(asked(meaning)) == pytest.approx(answer, rel=1e-12)


@pytest.mark.parametrize(
    ("meaning", "change", "answer"),
    [
        # four waves: one of eight requests starts with this one; 12 steps follow the first token
        ("loaded-step", {}, 7 + 7 / 8 * 4 / 12),
        ("loaded-step", {"output_tokens": 1.0}, 7 + 7 / 8 * 4),
        ("loaded-step", {"output_tokens": 1.5}, 7 + 7 / 8 * 4),
        ("loaded-step", {"batch": 1.0}, 7),
        ("loaded-step", {"arguments": (("prefill", "apart"),)}, 7),
        # of a wave of three prompts half of the two others, in a quarter of the requests; and half a step
        ("queued-prefill", {}, 2 * (1 + 1 / 4) + 3.5),
        ("queued-prefill", {"batch": 1.0}, 2 + 3.5),
        ("queued-prefill", {"batch": 0.5}, 2 + 3.5),
        ("loaded-request", {}, 6 + 12 * 7 + 3.5),
        ("served-requests", {}, 17 * 3 / 93.5),
    ],
)
def test_a_closed_loop_of_four_waves_by_hand(meaning, change, answer, timed):
    assert questions.predict(asked(meaning, waves=WAVES, **change)) == pytest.approx(answer, rel=1e-12)


@pytest.mark.parametrize(("meaning", "answer"), [("request-latency", 5), ("generated-throughput-batch", 3 / 6)])
def test_the_first_token_comes_with_the_prefill(meaning, answer, timed):
    assert questions.predict(asked(meaning, output_tokens=1.0)) == pytest.approx(answer)
    assert questions.predict(asked(meaning, output_tokens=0.5)) <= answer  # part of a token takes no part of a step
    for none in (0.0, math.nan):
        with pytest.raises(UnreadableRowError, match="no output length"):
            questions.predict(asked(meaning, output_tokens=none))


@pytest.mark.parametrize(
    ("meaning", "tail"),
    [
        ("decode-step", True),
        ("prefill", True),
        ("run-per-token", True),
        ("forward", True),
        ("request-latency", True),
        ("decode-throughput", False),
        ("queued-prefill", True),
        ("served-requests", False),
    ],
)
def test_the_99th_of_a_time_is_longer(meaning, tail, timed):
    middle, far = (questions.predict(asked(meaning, percentile=which)) for which in ("50", "99"))
    assert far / middle == pytest.approx(questions.stack_of(asked(meaning)).p99_over_p50 if tail else 1)


@pytest.mark.parametrize(
    ("step_s", "reason"), [(0.0, "the model gives nothing"), (math.nan, "no figure"), (math.inf, "no figure")]
)
def test_an_answer_that_is_none(step_s, reason, monkeypatch):
    monkeypatch.setattr(questions, "_decode", lambda r, tune: SimpleNamespace(time_s=step_s))
    with pytest.raises(UnreadableRowError, match=reason):
        questions.predict(asked("decode-step"))


@pytest.mark.parametrize("meaning", ["decode-step", "prefill"])
def test_a_step_without_a_length_says_so(meaning):
    with pytest.raises(UnreadableRowError, match=r"no (context|input length)"):
        questions.predict(asked(meaning, context=math.nan, prompt=math.nan))


SYSTEM = ("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=16, lnc=2))


def test_what_a_step_is_asked_with():
    """Batch, compiled batch, context and what is compiled go as the row has them, into the public calls."""
    row = asked("decode-step", compiled_batch=8.0, context=777.0, max_context=4096.0)
    row = replace(row, mapping=(16, 1, 1, 2))
    step = tm.decode_step(*SYSTEM, batch=3, compiled_batch=8, context=777, max_context=4096)
    assert questions.predict(row) == pytest.approx(float(step.time_s), rel=1e-12)
    four = tm.decode_step(*SYSTEM, batch=3, compiled_batch=8, context=777, max_context=4096, new_tokens=4)
    assert questions.predict(replace(row, new_tokens=4.0)) == pytest.approx(float(four.time_s), rel=1e-12)
    assert questions.predict(replace(row, meaning="decode-read-bytes")) == float(step.moved_bytes_per_rank)
    # a rank of two of the eight cores of 2.9 TB/s and 667 TFLOP/s
    busy = float(step.moved_bytes_per_rank) / float(step.time_s) / (2.9e12 / 4)
    assert questions.predict(replace(row, meaning="decode-mbu")) == pytest.approx(busy, rel=1e-9)
    many = tm.prefill(*SYSTEM, batch=3, input_tokens=500, max_context=4096)
    one = tm.prefill(*SYSTEM, batch=1, input_tokens=500, max_context=4096)
    row = replace(row, prompt=500.0)
    assert questions.predict(replace(row, meaning="prefill")) == pytest.approx(float(many.time_s), rel=1e-12)
    assert questions.predict(replace(row, meaning="one-prefill")) == pytest.approx(float(one.time_s), rel=1e-12)
    share = float(one.work_flop_per_rank) / float(one.time_s) / (667e12 / 4)
    assert questions.predict(replace(row, meaning="prefill-mfu")) == pytest.approx(share, rel=1e-9)


@pytest.mark.parametrize(("phase", "tokens"), [("decode", 3), ("prefill", 3 * 500)])
def test_parts_of_a_layer_by_hand(phase, tokens, monkeypatch):
    """Of Llama 3.1 70B: 80 layers of 8,192; an all-reduce of 2 B for each token and width, over 16 ranks."""
    row = asked("layer-all-reduce", arguments=(("parts", "up|down"), ("phase", phase)), prompt=500.0)
    row = replace(row, mapping=(16, 1, 1, 2), context=777.0, max_context=4096.0)
    ask = {"batch": 3, "max_context": 4096, "breakdown": True}
    decode = phase == "decode"
    step = tm.decode_step(*SYSTEM, context=777, **ask) if decode else tm.prefill(*SYSTEM, input_tokens=500, **ask)
    lines = [line for name, line in step.operators.items() if name.endswith((": up", ": down"))]
    assert len(lines) == 2
    slower = sum(max(float(line.compute_s), float(line.memory_s)) for line in lines)
    assert questions.predict(replace(row, meaning="layer-operators")) == pytest.approx(slower / 80, rel=1e-12)
    monkeypatch.setattr(questions, "in_step_s", lambda r, tune, kind, size, ranks: size * ranks)
    assert questions.predict(row) == tokens * 8192 * 2 * 16


def test_the_batch_that_is_critical_by_hand():
    """667 TFLOP/s over 2.9 TB/s: 230 FLOP a byte; 2 FLOP for each weight of 2 B, of 1 B for half as many tokens."""
    row = asked("critical-batch", where="trainium2")
    assert questions.predict(row) == pytest.approx(667 / 2.9, rel=1e-9)
    assert questions.predict(replace(row, precision=load.precision("fp8"))) == pytest.approx(667 / 2.9 / 2, rel=1e-9)


JOB = ROW | {
    "kind": "training",
    "instance": "trn1.32xlarge",
    "workload": "Llama-3.1-8B pretrain",
    "phase": "train",
    "lnc": "",
    "input_len": "",
    "output_len": "",
    "seq_len": "4096",
    "tp": "8",
    "dp": "4",
    "batch": "24",
    "n_cores_used": "32",
    "metric": "step time",
    "unit": "s",
    "value": "9",
}
OF_TRAINING = ("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=8, dp=4, placement=("tp", "ep", "cp", "dp", "pp")))


@pytest.mark.parametrize(
    ("change", "ask"),
    [
        ({"batch": 24.0, "arguments": (("micro_batch", 3.0),)}, {"global_batch": 24, "micro_batch": 3}),
        ({"batch": 4.0, "arguments": (("micro_batch", 1.0),)}, {"global_batch": 4, "micro_batch": 1}),
        # fewer sequences than replicas are those of one replica
        ({"batch": 3.0, "arguments": (("micro_batch", 1.0),)}, {"global_batch": 12, "micro_batch": 1}),
        (
            {"batch": 24.0, "arguments": (("micro_batch", 1.0), ("trainable_share", 0.125))},
            {"global_batch": 24, "micro_batch": 1, "trainable_share": 0.125},
        ),
    ],
)
def test_a_step_of_training_is_the_public_one(change, ask):
    row = replace(reading(JOB), **change)
    assert row.mapping == (8, 1, 4, None)
    step = tm.train_step(*OF_TRAINING, seq=4096, precision="bf16", **ask)
    found = {
        name: questions.predict(replace(row, meaning=f"train-{name}"))
        for name in ("step", "tokens", "sequences", "tokens-chip", "mfu")
    }
    tokens = ask["global_batch"] * 4096 / float(step.time_s)
    by_hand = {"step": float(step.time_s), "tokens": tokens, "sequences": tokens / 4096, "tokens-chip": tokens / 16}
    assert found == pytest.approx(by_hand | {"mfu": float(step.mfu)}, rel=1e-9)


def test_a_micro_batch_that_nobody_prints_is_the_fastest_that_fits():
    """Of one, two, four and so on up to 32 sequences; 24 for each replica have no more than 16 in one."""
    row = replace(reading(JOB), batch=128.0)
    tried = {
        n: tm.train_step(*OF_TRAINING, seq=4096, precision="bf16", global_batch=128, micro_batch=n)
        for n in (1, 2, 4, 8, 16, 32)
    }
    fit = {n: float(step.time_s) for n, step in tried.items() if step.valid}
    assert questions.predict(row) == pytest.approx(min(fit.values()), rel=1e-12)


@pytest.mark.parametrize("fastest", [1, 2, 4, 8, 16, 32])
def test_sizes_of_micro_batches_that_are_tried(fastest, monkeypatch):
    """What does not fit has no time, and is not the fastest."""

    def step(*where, micro_batch):
        times = {n: math.nan if n > fastest else 1 / n for n in micro_batch}
        return SimpleNamespace(time_s=np.array([*times.values()]))

    monkeypatch.setattr(jobs, "train_step", step)
    assert jobs.fastest_micro_batch(*OF_TRAINING) == fastest


def test_a_step_of_training_has_the_band_of_the_public_one():
    """A rate is as far below as the time is above."""
    row = replace(reading(JOB), batch=24.0, arguments=(("micro_batch", 3.0),), meaning="train-step")
    step = tm.train_step(*OF_TRAINING, seq=4096, precision="bf16", global_batch=24, micro_batch=3)
    (judged,) = grounds.banded([row])
    plain, low, high, basis = judged[:4]
    ratio = float(step.high / step.time_s)
    assert ratio > 1.05
    assert (plain, low, high) == pytest.approx((float(step.time_s), float(step.time_s) / ratio, float(step.high)))
    assert basis == str(step.basis)


def test_a_step_of_training_needs_a_length():
    with pytest.raises(UnreadableRowError, match="no length of a sequence"):
        questions.predict(replace(reading(JOB), prompt=math.nan))
