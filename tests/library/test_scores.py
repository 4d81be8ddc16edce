"""What becomes of judged rows, by hand: votes, exclusions, splits, floors, tables of kernels and of other chips."""

import importlib
import math
import pkgutil
import re
from dataclasses import replace

import msgspec
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel import evidence, search
from trnmodel.evidence import grounds, primitives, score
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError, row_id
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading

NAN = math.nan
ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "NxD Inference, SDK 2.29",
    "lnc": "2",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-70B",
    "batch": "3",
    "seq_len": "2048",
    "tp": "16",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
}


def test_a_row_and_its_configuration_by_hand():
    """Ends and figure in the row's unit; a corrected value is the same row and the same configuration."""
    found = tm.validate(pd.DataFrame([ROW, ROW | {"value": "30"}, ROW | {"batch": "4"}]))
    step = tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=16, lnc=2), batch=3, context=2048)
    ends = [1e3 * float(x) for x in (step.time_s, step.low, step.high)]
    assert found.loc[0, ["predicted", "low", "high"]].tolist() == pytest.approx(ends, rel=1e-9)
    assert found.error.tolist()[:2] == pytest.approx([ends[0] / 15 - 1, ends[0] / 30 - 1])
    assert found.configuration[0] == found.configuration[1] != found.configuration[2]
    assert {len(key) for key in found.configuration} == {12}
    assert len(row_id(ROW)) == 10
    assert (found.weight == 1).all()
    seconds = tm.validate(pd.DataFrame([ROW | {"value": "0.015", "unit": "s"}]))
    assert seconds.configuration[0] == found.configuration[0]


def judged(**columns):
    size = max(len(x) for x in columns.values() if isinstance(x, list))
    plain = {
        "skipped": "",
        "weight": 1.0,
        "set_aside": "",
        "use": "model",
        "kind": "k",
        "instance": "trn2.48xlarge",
        "workload": "w",
        "metric": "m",
        "source": "s",
        "value": "7",
        "unit": "ms",
        "tp": "",
        "batch": "",
        "input_len": "",
        "output_len": "",
        "seq_len": "",
        "model": "x",
        "error": 0.0,
    }
    return pd.DataFrame(plain | columns, index=range(size))


def test_the_middle_row_of_a_configuration_counts():
    """Of one, two, three and four rows the first, first, second and second by error; skipped and weightless are out."""
    keys = [*"abbcccdddd", "e", "f"]
    errors = [0.5, 0.2, -0.2, 0.3, 0.1, 0.2, 0.4, 0.1, 0.3, 0.2, 0.9, 0.9]
    rows = judged(configuration=keys, error=errors)
    rows.loc[10, "skipped"], rows.loc[11, "weight"] = "no", 0.0
    found = score.counted(rows).set_index("configuration").error
    assert found.to_dict() == {"a": 0.5, "b": -0.2, "c": 0.2, "d": 0.2}


def test_errors_by_group_by_hand():
    rows = pd.DataFrame({"of": list("bbba"), "error": [0.1, -0.4, 0.2, -0.3]})
    found = score.summary(rows, "of").set_index("of")
    assert found.index.tolist() == ["b", "a"]  # as they stand
    by_hand = {"cases": 3, "median_error": 0.2, "mean_error": 0.7 / 3, "bias": 0.1, "worst_error": -0.4}
    assert found.loc["b"].to_dict() == pytest.approx(by_hand)


def test_every_row_that_is_out_says_what_it_was():
    rows = judged(
        kind=["b", "a", "a", "a", "a"],
        tp=["8", "16", "", "", ""],
        batch=["", "3", "", "", ""],
        seq_len=["2048", "", "", "", ""],
        error=[NAN, 0.5, 0.1, NAN, -0.3],
    )
    rows.loc[0, "skipped"] = "1 of 1 points cannot exist: does not fit"
    rows.loc[1, ["weight", "set_aside"]] = [0.0, "a copy"]
    rows.loc[3, ["skipped", "use"]] = ["no wire", "fit"]  # has a use of its own
    rows.loc[4, ["weight", "set_aside"]] = [0.0, "a copy"]
    found = score.excluded(rows)
    assert found.reason.tolist() == ["a copy", "a copy", "does not fit"]
    assert found.outcome.tolist() == [score.NOT_COUNTED, score.NOT_COUNTED, score.NOT_PREDICTED]
    assert found["shape"].tolist() == ["TP 16, batch 3", "", "TP 8, length 2048"]
    assert found.measured.tolist() == ["7 ms"] * 3
    assert found.index.tolist() == [0, 1, 2]
    by = score.reasons(found)
    assert by[["kind", "reason", "rows"]].values.tolist() == [["a", "a copy", 2], ["b", "does not fit", 1]]
    assert by.median_error[0] == pytest.approx(0.4)
    more = pd.concat([found, found[2:].assign(reason="z")] + [found[2:].assign(reason="y")] * 3)
    assert score.reasons(more).rows.tolist() == [2, 3, 1, 1]  # of a kind the most frequent first


def test_a_split_keeps_kind_model_and_family_together():
    rows = judged(kind=["k", "k"], instance=["trn2n.48xlarge", "?"], model=["x", ""], workload=["w", "w"])
    assert score.grouped(rows).group.tolist() == ["k/x/trn2", "k/w/"]


COLLECTIVE = replace(reading(ROW), meaning="collective-time", mapping=(1, 1, 1, None))


def of_message(**asked):
    return replace(COLLECTIVE, arguments=tuple(asked.items()))


def test_a_message_of_rows_and_columns():
    """3 x 5 elements of two bytes."""
    assert primitives.message(of_message(kind="all_reduce", ranks=4.0, rows=3.0, columns=5.0)) == ("all_reduce", 4, 30)
    with pytest.raises(UnreadableRowError, match="names no kind, message_bytes of"):
        primitives.message(of_message(ranks=4.0))


def test_rates_of_a_message_by_hand():
    row = of_message(kind="all_reduce", ranks=16.0, message_bytes=1e8)
    time_s = float(tm.collective("all_reduce", 1e8, "trn2.48xlarge", ranks=16).time_s)
    answers = [predict(replace(row, meaning=f"collective-{name}")) for name in ("time", "algbw", "busbw")]
    assert answers == pytest.approx([time_s, 1e8 / time_s, 1e8 / time_s * 2 * 15 / 16], rel=1e-12)
    stack = replace(row, meaning="collective-in-step")
    sent = tm.collective("all_reduce", 1e8, "trn2.48xlarge", ranks=16, efficiencies=tm.efficiencies("trainium2"))
    assert predict(stack) == pytest.approx(float(sent.time_s), rel=1e-12)


@pytest.mark.parametrize(("count", "more"), [({}, 0), ({"count": 1.0}, 0), ({"count": 12.0}, 11)])
def test_a_graph_pays_its_barrier_once(count, more):
    """Trn2, 16 ranks: 0.036 + 4 x 0.4921 ms with the first of its all-reduces of 32 KiB, and the time of each other."""
    row = replace(of_message(kind="all_reduce", ranks=16.0, message_bytes=2.0**15, **count), meaning="graph-time")
    each_s = float(tm.collective("all_reduce", 2.0**15, "trn2.48xlarge", ranks=16, in_graph=True).time_s)
    assert predict(row) == pytest.approx((0.036 + 4 * 0.4921) / 1e3 + more * each_s, rel=1e-9)
    with pytest.raises(UnreadableRowError, match="no runtime was measured on hgx-h100"):
        predict(replace(row, where="hgx-h100"))


def of_kernel(meaning, lnc=1, **asked):
    return replace(
        COLLECTIVE,
        meaning=meaning,
        where="trn2.48xlarge",
        mapping=(1, 1, 1, lnc),
        stack="stack-nki",
        arguments=tuple({"kernel": "matmul", "m": 512.0, "n": 1024.0, "k": 2048.0, "dtype": "BF16"}.items())
        + tuple(asked.items()),
    )


@pytest.mark.parametrize("lnc", [None, 1, 2])
def test_figures_of_a_kernel_by_hand(lnc):
    """2 x 512 x 1,024 x 2,048 FLOP; a core has an eighth of 667 TFLOP/s."""
    answer = tm.kernel.matmul("trainium2", 512, 1024, 2048, dtype="bf16", lnc=lnc or 1, stack="stack-nki")
    time_s, flop = float(answer.time_s), 2 * 512 * 1024 * 2048
    names = ("time", "flop-rate", "read-bytes", "write-bytes", "byte-rate", "mfu")
    found = {name: predict(of_kernel(f"kernel-{name}", lnc)) for name in names}
    moved = found["read-bytes"] + found["write-bytes"]
    assert (found["time"], found["flop-rate"]) == pytest.approx((time_s, flop / time_s), rel=1e-12)
    assert moved >= 2 * (512 * 2048 + 1024 * 2048 + 512 * 1024)
    assert found["write-bytes"] == pytest.approx(2 * 512 * 1024)
    assert found["byte-rate"] == pytest.approx(moved / time_s, rel=1e-12)
    core = tm.chip("trainium2").core.tensor.peak_flop_per_s["bf16"]
    assert found["mfu"] == pytest.approx(flop / time_s / (core * (lnc or 1)), rel=1e-12)
    assert predict(of_kernel("kernel-mfu", lnc, peak_flop_per_s=100e12)) == pytest.approx(flop / time_s / 100e12)
    assert grounds.sizes(of_kernel("kernel-time", lnc)) == pytest.approx(
        {"ranks": lnc or 1, "size": moved, "sequences": NAN, "length": NAN}, nan_ok=True
    )


def test_sequences_of_attention_have_heads_of_their_own():
    ask = {"kernel": "attention", "heads": 4.0, "kv_heads": 2.0, "head_size": 128.0, "queries": 512.0, "keys": 512.0}
    one = primitives.kernel_answer(replace(of_kernel("kernel-time"), arguments=tuple(ask.items())))
    more = ask | {"sequences": 3.0}
    many = primitives.kernel_answer(replace(of_kernel("kernel-time"), arguments=tuple(more.items())))
    assert float(many.flop) == 3 * float(one.flop)
    with pytest.raises(UnreadableRowError, match="names no kernel"):
        primitives.kernel_answer(replace(of_kernel("kernel-time"), arguments=()))


def test_operators_of_a_bare_chip_by_hand():
    """FP16 peak and HBM by the shares of the stack; 2 m n k FLOP, and three matrices of 2 B an element."""
    e = tm.efficiencies("trainium2", "vllm-neuron-2026")
    row = replace(COLLECTIVE, where="trainium2", stack="vllm-neuron-2026", meaning="chip-matmul")
    peak, memory = 667e12 * e.prefill_matmul_share, 2.9e12 * e.weight_stream_share
    for m, n, k in ((8192, 4096, 2048), (16, 4096, 2048), (4096, 8, 2048), (4096, 2048, 4)):
        by_hand = max(2 * m * n * k / peak, 2 * (m * k + k * n + m * n) / memory)
        asked = (("m", float(m)), ("n", float(n)), ("k", float(k)))
        assert predict(replace(row, arguments=asked)) == pytest.approx(by_hand, rel=1e-9)
    assert predict(replace(row, meaning="chip-elements")) == pytest.approx(memory / 4, rel=1e-9)


@pytest.mark.parametrize(
    ("meaning", "change", "found"),
    [
        # ranks, sequences, length, size of 70.6e9 parameters
        ("decode-step", {"batch": 3.0, "compiled_batch": 8.0}, (16, 8, 777)),
        ("prefill", {"batch": 3.0, "compiled_batch": 8.0}, (16, 3, 555)),
        ("one-prefill", {"batch": 3.0}, (16, 1, 555)),
        ("queued-prefill", {"batch": 3.0}, (16, 1, 555)),
        ("prefill-mfu", {"batch": 3.0}, (16, 3, 555)),
        ("decode-step", {"batch": 3.0, "ep": 2}, (32, 3, 777)),
        ("decode-step", {"batch": 3.0, "mapping": (16, 2, 5, 2)}, (32, 3, 777)),
    ],
)
def test_the_place_of_a_reading_by_hand(meaning, change, found):
    row = replace(reading(ROW), meaning=meaning, prompt=555.0, context=777.0, **change)
    names = ("ranks", "sequences", "length", "size")
    assert grounds.sizes(row) == pytest.approx(dict(zip(names, (*found, 70_553_706_496), strict=True)), rel=0.02)


def test_the_place_of_a_message():
    row = of_message(kind="all_reduce", ranks=16.0, message_bytes=1e8)
    nowhere = dict.fromkeys(("ranks", "sequences", "length", "size"), NAN)
    assert grounds.sizes(row) == pytest.approx(nowhere | {"ranks": 16, "size": 1e8}, nan_ok=True)
    assert grounds.sizes(of_message(ranks=16.0)) == pytest.approx(nowhere, nan_ok=True)
    assert grounds.where(row) == {"part": "collective", "kind": "collective", "chip": "trainium2", "on": "host"}
    assert grounds.where(reading(ROW)) == {
        "part": "decode",
        "kind": "dense",
        "chip": "trainium2",
        "on": "vllm-neuron-2026",
    }
    assert grounds.grounds([]) == {}
    bare = replace(reading(ROW), model="", meaning="critical-batch")
    assert grounds.where(bare)["kind"] == "operator"
    assert math.isnan(grounds.sizes(bare)["size"])


def test_rows_of_data_cannot_be_changed():
    """What is read once is handed to all: every struct below the reports is frozen."""
    for package in (evidence, search):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    structs = [
        one
        for one in msgspec.Struct.__subclasses__()
        if re.match(r"trnmodel\.(catalog|evidence|models|search)\.", one.__module__)
    ]
    assert len(structs) > 20
    assert [one.__name__ for one in structs if not one.__struct_config__.frozen] == []
