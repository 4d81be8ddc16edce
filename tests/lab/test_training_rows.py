"""Published runs of training, regressions and uptimes by hand: times from what is printed, rivals, ranges."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import naive
from trnlab import training as runs
from trnmodel.catalog.systems import roomy
from trnmodel.catalog.trainers import trainer
from trnmodel.evidence import spellings
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError
from trnmodel.evidence.described import described
from trnmodel.evidence.fit import Case
from trnmodel.evidence.readings import reading

# 4 layers of 512, 1,000 words, 30 sequences of 128 tokens on 2 x 3 x 5 of 64 chips
GPT = {
    "model": "gpt tiny",
    "layers": "4",
    "hidden": "512",
    "heads": "8",
    "vocabulary": "1000",
    "global_batch": "30",
    "seq": "128",
    "tp": "2",
    "pp": "3",
    "dp": "5",
    "ep": "1",
    "cp": "1",
    "unit": "s",
    "system": "hgx-a100",
    "count": 8,
    "recompute": "full",
    "note": "",
}
ALL, MODEL = (  # FLOP of a step with the layers computed again and without, as Megatron-LM counts them (SC21, eq. 3)
    factor * 30 * 128 * 4 * 512**2 * (1 + 128 / 6 / 512 + 1000 / head / 4 / 512)
    for factor, head in ((96, 16), (72, 12))
)


def run(**cells):
    return msgspec.structs.replace(runs.rows()[0], **GPT | cells)


@pytest.mark.parametrize(
    ("cells", "time_s"),
    [
        ({"metric": "iteration_time", "value": "13.75"}, 13.75),
        ({"metric": "throughput", "value": "7", "unit": "seq/s"}, 30 / 7),
        ({"metric": "throughput", "value": "7", "unit": "tokens/s"}, 30 * 128 / 7),
        ({"metric": "tokens_per_s_per_chip", "value": "7", "unit": "tok/s"}, 30 * 128 / 7 / 30),
        (
            {"metric": "tokens_per_s_per_chip", "value": "7", "dp": "11", "unit": "tok/s"},
            30 * 128 / 7 / 64,
        ),  # 66 ranks on 64 chips
        ({"metric": "tokens_per_s_per_chip", "value": "7", "ep": "2", "unit": "tok/s"}, 30 * 128 / 7 / 60),
        ({"metric": "tokens_per_s_per_chip", "value": "7", "cp": "2", "unit": "tok/s"}, 30 * 128 / 7 / 60),
        ({"metric": "time_for_tokens", "value": "2", "unit": "days of 300B tokens"}, 2 * 86400 * 30 * 128 / 300e9),
        ({"metric": "flop_per_s_per_gpu", "value": "150", "unit": "TFLOP/s"}, ALL / 150e12 / 30),
        ({"metric": "model_flop_per_s_per_gpu", "value": "150", "unit": "TFLOP/s"}, MODEL / 150e12 / 30),
        ({"metric": "mfu", "value": "0.5", "unit": "1"}, MODEL / 156e12 / 30),  # of the 312 TFLOP/s of an A100
    ],
)
def test_the_time_of_a_step_from_what_is_printed(cells, time_s):
    assert runs.case_of(run(**cells)).measured_s == pytest.approx(time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("metric", "value", "unit", "rate"),
    [("model_flop_per_s_per_gpu", "150", "TFLOP/s", 150e12), ("mfu", "0.5", "1", 156e12)],
)
def test_the_time_of_a_model_of_the_catalog_by_its_own_work(metric, value, unit, rate):
    row = run(metric=metric, value=value, unit=unit, model="llama-3.1-8b", hidden="", layers="")
    flop = 30 * float(tm.model("llama-3.1-8b").train_flop(128, "full"))
    assert runs.case_of(row).measured_s == pytest.approx(flop / rate / 30, rel=1e-9)


def test_models_of_rows():
    """12 L h^2 + 13 L h + 2 h, and a row for each word and of 2,048 positions; a cut model keeps one dense layer."""
    shape = {"layers": "4", "hidden": "512", "heads": "8", "vocabulary": "1000"}
    tiny = described("gpt tiny", shape)
    assert tiny.total_params == 12 * 4 * 512**2 + 13 * 4 * 512 + 2 * 512 + (1000 + 2048) * 512
    assert tiny.id == "gpt-tiny"
    cut = described("deepseek-v3", {"layers": "5"})
    assert (cut.n_layers, cut.id) == (5, "deepseek-v3-5-layers")
    assert cut.outline("decode").expert_layers == 4
    assert described("llama-3.1-8b", {}) is None
    fast, plain = (runs.case_of(run(count=2, scaleout_gbit_per_s=rate)).where for rate in ("400", ""))
    assert float(fast.network_bytes_per_s_per_dir) == 400e9 / 8
    assert plain == tm.system("hgx-a100", count=2)
    for wrong, allowed in (
        ({"hidden": "512"}, "needs layers, heads, vocabulary too"),
        ({"layers": "5.5"}, "layers '5.5': allowed are whole numbers from 1"),
        ({"layers": "2"}, "is no id of the catalog"),
    ):
        with pytest.raises(UnreadableRowError, match=allowed):
            described("gpt tiny", wrong)


def test_a_run_is_asked_as_it_ran():
    """Of adapters the share that is trained, of printed micro-batches those, in memory that sets no limit."""
    case = next(case for case in runs.cases("finetune-trn1") if case.row.id == "finetune-494")
    r = case.row
    at = tm.Mapping(tp=int(r.tp), pp=int(r.pp), dp=int(r.dp), placement=("tp", "cp", "ep", "dp", "pp"))
    ask = {
        "global_batch": int(r.global_batch),
        "seq": int(r.seq),
        "interleave": r.interleave,
        "zero": r.zero,
        "precision": r.precision,
        "recompute": r.recompute,
        "sequence_parallel": bool(r.sequence_parallel),
    }
    assert 0 < float(r.trainable_share) < 0.01
    room = roomy(case.where) if r.micro_batch else case.where
    size = int(r.micro_batch) if r.micro_batch else None
    for share, said in ((r.trainable_share, float(r.trainable_share)), ("", 1.0)):
        mine = runs.case_of(msgspec.structs.replace(r, trainable_share=share))
        sizes = [size] if size else [1, 2, 4, 8, 16, 32]
        steps = tm.train_step(
            case.model, room, at, micro_batch=sizes, trainable_share=said, efficiencies="ideal", **ask
        )
        assert float(mine.step("ideal").time_s) == pytest.approx(np.nanmin(steps.time_s), rel=1e-9)


@pytest.mark.parametrize(
    ("group", "stack"),
    [
        ("a100-cluster", "megatron-2021"),
        ("korthikanti", "megatron-2021"),
        ("sc21", "megatron-2021"),
        ("trn1-fp32", "neuronx-training"),
        ("finetune-trn1", "optimum-neuron-training-trn1"),
        ("finetune-trn2", "optimum-neuron-training"),
        ("b200", "megatron-core-b200"),
        ("h100", "megatron-core-hopper"),
        ("torchtitan", "torchtitan-hopper"),
        ("tpu", "megatron-core"),
        ("zero3-2021", "deepspeed-2021"),
        ("mi325x", "megatron-core"),
    ],
)
def test_the_stack_that_a_group_is_asked_with(group, stack):
    assert runs.stack_of(group) == stack


def test_one_share_for_all_runs_by_hand(monkeypatch):
    """MFU of 40, 50 and 20 %: the middle one is 40; of the others the root of 0.4 x 0.5 for the third."""
    of = [SimpleNamespace(name=name) for name in "aab"]
    monkeypatch.setattr(runs, "_shares", lambda of: np.array([0.4, 0.5, 0.2][: len(of)]))
    inside, outside = runs.constant_mfu(of)
    assert inside == pytest.approx([0, 0.25, -0.5])
    assert outside == pytest.approx([1, 1.5, 0.2 / 0.2**0.5 - 1])
    inside, outside = runs.constant_mfu(of[:2])
    assert inside == pytest.approx([0.4 / 0.2**0.5 - 1, 0.5 / 0.2**0.5 - 1])
    assert np.isnan(outside).all()


def test_the_share_that_is_carried_over(monkeypatch):
    """From the runs that a stack, or the base of that, was fitted to: their middle is 30 %."""
    stacks = {name: runs.stack_of(name) for name in ("korthikanti", "a100-cluster", "tpu", "trn1-fp32")}
    monkeypatch.setattr(runs, "stack_of", stacks.__getitem__)
    monkeypatch.setattr(runs, "cases", lambda group: group)
    known = {"a100-cluster": [0.3, 0.1, 0.9], "b200": [0.5], "trn1": [0.2, 0.4, 0.8], "korthikanti": [0.6, 0.15]}
    monkeypatch.setattr(runs, "_shares", lambda group: np.array(known.get(group, [0.45])))
    assert runs.carried_mfu("korthikanti") == pytest.approx([1.0, -0.5])
    assert runs.carried_mfu("a100-cluster") == pytest.approx([0, 0.1 / 0.3 - 1, 2])
    assert runs.carried_mfu("tpu") == pytest.approx([0.45 / 0.3 - 1])  # megatron-core, built on megatron-2021
    assert runs.carried_mfu("trn1-fp32") == pytest.approx([0.45 / 0.4 - 1])


def test_a_line_of_the_table_by_hand(monkeypatch):
    """Absolute errors 1, 2 and 6 %; a column of nothing has no mean; targets in words, and whether they are met."""
    errors = [0.01, -0.02, 0.06]
    frame = pd.DataFrame(dict.fromkeys(runs.ERRORS.values(), errors) | {"model": list("xxy"), "width": 0.03})
    monkeypatch.setattr(runs, "accuracy", lambda group: frame.assign(left_out_error=[np.nan, 0.04, -0.1]))
    line = runs._summary("korthikanti")
    assert (line["cases"], line["models"], line["fitted"], line["stack"]) == (3, 2, False, "megatron-2021")
    assert (line["mean"], line["median"], line["inside"]) == pytest.approx((0.03, 0.02, 2 / 3))
    assert (line["left_out_mean"], line["left_out_median"]) == pytest.approx((0.07, 0.07))
    assert (line["rival_carried_mean"], line["rival_left_out_median"]) == pytest.approx((0.03, 0.02))
    assert (line["target"], line["met"]) == ("mean under 3 %", line["mean"] < 0.03)
    assert line["aside"] == sum(row.group == "korthikanti" for row in runs.rows() if row.use == "aside") == 5
    assert (runs._summary("sc21")["target"], runs._summary("sc21")["met"]) == ("mean under 8 %", True)
    assert runs._summary("trn1")["target"] == "left out median under 7 %"
    assert runs._summary("trn1")["fitted"]
    both = runs._summary("a100-cluster")
    assert both["target"] == "left out mean under 8 %, left out median under 6 %"
    assert both["met"] is False  # 7 % is not under 6
    assert (runs._summary("b200")["target"], runs._summary("b200")["met"]) == ("", None)
    monkeypatch.setattr(runs, "accuracy", lambda group: frame.assign(left_out_error=np.nan))
    assert np.isnan(runs._summary("sc21")["left_out_mean"])


@pytest.mark.parametrize(
    ("name", "values", "printed"),
    [
        ("layer_s", [3.0, 2.0, 5.0], "1-5"),
        ("layer_s", [2.0, 9.0], "0-4"),  # never below nothing
        ("matmul_share", [0.75, 0.5], "0.5-1"),
        ("matmul_share", [0.9, 0.5], "0.8-1"),
        ("dp_overlap", [0.9, 0.5], "0.8-1"),
        ("layer_s", [0.9, 0.5], "0.5-1.3"),
        ("layer_s", [3.14159265, 3.14159265], "3.142"),
        ("layer_s", [1.23456789, 1.0], "1-1.46914"),
    ],
)
def test_ranges_of_fits_by_hand(name, values, printed):
    assert runs._ends(name, np.array(values)) == printed


@pytest.mark.parametrize(("longest_s", "fitted"), [(2.0, True), (2.01, False)])
def test_the_fixed_time_of_a_step_is_fitted_to_short_steps(longest_s, fitted, monkeypatch):
    """Where no step is as short as 2 s it is none."""
    of = [SimpleNamespace(measured_s=longest_s), SimpleNamespace(measured_s=9.0)]
    monkeypatch.setattr(runs, "log_errors", lambda of, e: np.log([e.matmul_share / 0.6, (e.step_s + 0.02) / 0.06]))
    found = runs.fit(
        of, replace(trainer(tm.chip("trainium1"), "neuronx-training"), step_s=0.02), ["matmul_share", "step_s"]
    )
    assert found.matmul_share == pytest.approx(0.6, rel=1e-3)
    assert found.step_s == (pytest.approx(0.04, rel=1e-3) if fitted else 0)


def test_what_is_written_of_a_stack(monkeypatch):
    """Errors of eleven fits -0.5 to 0.5 in steps of 0.1: nine in ten of |log(1 + e)| lie below that of -0.4."""
    errors = np.arange(-5, 6) / 10
    names, of = runs.FITTED["megatron-core-b200"], runs.cases("b200")
    e = replace(trainer(of[0].where.chip, "megatron-core-b200"), matmul_share=0.75, stream_share=0.5)
    monkeypatch.setattr(runs, "fit", lambda *given: e)
    values = np.full(11, 0.5)
    monkeypatch.setattr(runs, "without_model", lambda stack: np.stack([errors, values, values], axis=1))
    found = {quantity: printed for (_, quantity), printed in runs.calibrated(["megatron-core-b200"]).items()}
    assert names == ("matmul_share", "stream_share")
    most = str(max(case.where.chips for case in of))
    assert found == {"matmul_share": "0.5-1", "stream_share": "0.5", "width": "0.5108", "fitted_chips": most}


ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
    "lnc": "2",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-8B",
    "batch": "3",
    "seq_len": "2048",
    "tp": "8",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
}


def of_regression(meaning, measured=1.0, **change):
    return Case(
        replace(reading(ROW), meaning=meaning, prompt=555.0, context=777.0, compiled_batch=5.0, **change), measured, 1
    )


def test_regressors_by_hand():
    """Llama 3.1 8B on 8 ranks of a quarter of a Trainium2: 0.725 TB/s and 166.75 TFLOP/s; 32 layers of 4,096."""
    weights = float(tm.model("llama-3.1-8b").weight_bytes_read(1, "bf16"))
    assert weights == pytest.approx(2 * (8_030_261_248 - 128_256 * 4096), rel=1e-3)
    decode, prompt, alone = naive._design(
        [of_regression("decode-step"), of_regression("prefill"), of_regression("decode-throughput")]
    )
    cache = 131_072 * 777 * 5 / 8 / 0.725e12
    work = 8_030_261_248 / 8 / 166.75e12
    at = weights / 8 / 0.725e12
    assert decode == pytest.approx([at, cache, 5 * work, 32 * 4096 * 5, 32, 1], rel=1e-6)
    assert prompt == pytest.approx([at, 0, 3 * 555 * work, 32 * 4096 * 3 * 555, 32, 1], rel=1e-6)
    assert alone.tolist() == decode.tolist()


def test_a_regression_finds_what_made_the_times():
    """Times of 2 weights, 3 caches and 1 ms; a rate is 3 sequences over them; runs of both kinds of steps have none."""
    models = ("Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-32B", "Qwen3-14B")
    shapes = [(tm.model(name.lower()).id, context) for name in models for context in (512.0, 4096.0, 32768.0)]
    of = [of_regression("decode-step", model=model) for model, _ in shapes]
    of = [
        replace(case, reading=replace(case.reading, context=context))
        for case, (_, context) in zip(of, shapes, strict=True)
    ]
    times = naive._design(of) @ [2, 3, 0, 0, 0, 1e-3]
    of = [replace(case, measured=time) for case, time in zip(of, times, strict=True)]
    rates = [
        replace(case, reading=replace(case.reading, meaning="decode-throughput"), measured=3 / time)
        for case, time in zip(of, times, strict=True)
    ]
    mixed = replace(of[0], reading=replace(of[0].reading, meaning="run-per-token"))
    found = naive.regression([*of[::2], *rates[1::2], mixed], [*of, mixed, *rates])
    assert np.isnan(found[12])
    np.testing.assert_allclose(np.delete(found, 12), 0, atol=0.02)
    double = naive.regression(of, [replace(case, measured=2 * case.measured) for case in of])
    np.testing.assert_allclose(double, -0.5, atol=0.01)


@pytest.mark.parametrize(
    ("cells", "ranks"),
    [
        ({"tp": "8", "n_cores_used": "64"}, "8"),
        ({"n_cores_used": "64", "lnc": "2"}, "32"),
        ({"n_cores_used": "64"}, "64"),
        ({"n_cores_used": "7 cores", "lnc": "2"}, "3"),
        ({"n_cores_used": "64", "lnc": "0"}, "64"),
        ({}, ""),
        ({"lnc": "2"}, ""),
    ],
)
def test_ranks_of_a_row_by_its_columns(cells, ranks):
    assert spellings._ranks(cells) == ranks


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (("AllGather 3x5 bf16, 8 ranks", ""), "all_gather, 8 ranks size=30B"),
        (("AllGather 3x5 fp32, 8 ranks", ""), "all_gather, 8 ranks size=60B"),
        (("AllGather 3x5 fp8, 8 ranks", ""), "all_gather, 8 ranks size=15B"),
        (("reduce-scatter 2KB", "over 16 ranks"), "reduce_scatter, 16 ranks size=2048B"),
        (("allreduce 1MB", "", "4"), "all_reduce, 4 ranks size=1048576B"),
        (("allreduce 1MB", ""), "allreduce 1MB"),
        (("allreduce", "64 ranks"), "allreduce"),
        (("copy 1MB, 4 ranks", ""), "copy 1MB, 4 ranks"),
    ],
)
def test_collectives_in_other_words(said, means):
    assert spellings._collective(*said) == means


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("attention 16 heads S=4096", "SDPA prefill 16/16 heads d128 B1 S4096"),
        ("attention B3 H32 KV8 d64 S2048", "SDPA prefill 32/8 heads d64 B3 S2048"),
        ("attention 16 heads", "attention 16 heads"),
        ("attention S=4096", "attention S=4096"),
        ("decode attention 16 heads S=4096", "decode attention 16 heads S=4096"),
        ("softmax 16 heads S=4096", "softmax 16 heads S=4096"),
    ],
)
def test_attention_in_other_words(said, means):
    assert spellings._attention(said) == means
