"""What becomes of judged rows, by hand: votes, exclusions, splits, floors, tables of kernels and of other chips."""

import importlib
import math
import pkgutil
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel import evidence
from trnmodel.evidence import (
    accuracy,
    comparators,
    footprints,
    grounds,
    jumps,
    kernels,
    naive,
    primitives,
    ratchet,
    score,
    table,
)
from trnmodel.evidence.fit import Case
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import COLUMNS, UnreadableRowError, row_id

NAN = math.nan
ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
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


def case(model, family, source, stack="one"):
    of = SimpleNamespace(model_id=model, asked=(), where=f"{family}.48xlarge", stack=stack)
    return Case(of, 1.0, 1.0, source)


def test_what_each_split_learns_from(monkeypatch):
    """Errors here are numbers of the cases that were learned from: 2 of a, 1 of b and 1 of c."""
    of = [case("a", "trn1", "p"), case("a", "trn2", "q"), case("b", "inf2", "q"), case("c", "trn2", "q", "other")]
    monkeypatch.setattr(accuracy, "log_errors", lambda of: np.zeros(len(of)))
    monkeypatch.setattr(accuracy, "fitted_errors", lambda group: lambda train, test: np.full(len(test), len(train)))
    monkeypatch.setattr(accuracy, "regression", lambda train, test: np.full(len(test), 10.0 * len(train)))
    monkeypatch.setattr(accuracy.forms, "chosen_inside", lambda of, group: np.full(len(of), 7.0))
    found = {
        split: (np.asarray(own).tolist(), np.asarray(naive).tolist())
        for split, own, naive in accuracy._errors(of, "decode")
    }
    nobody = pytest.approx(NAN, nan_ok=True)
    assert list(found) == [
        accuracy.FITTED,
        accuracy.LEFT_OUT,
        accuracy.CHIP,
        accuracy.SOURCE,
        accuracy.INSIDE,
        accuracy.FAMILY,
    ]
    assert found[accuracy.FITTED] == ([0] * 4, [40] * 4)
    assert found[accuracy.LEFT_OUT] == ([2, 2, 3, 3], [20, 20, 30, 30])
    assert found[accuracy.CHIP] == ([3, 2, 3, 2], nobody)
    assert found[accuracy.SOURCE] == ([3, 1, 1, 1], nobody)
    assert found[accuracy.INSIDE] == ([7] * 4, nobody)
    # of two rows of Trn2 the one whose stack was seen on Trn1 or Inf2
    for numbers, of_one in zip(found[accuracy.FAMILY], (2, 20), strict=True):
        assert numbers == pytest.approx([NAN, of_one, NAN, NAN], nan_ok=True)
    kernel = {split: naive for split, _, naive in accuracy._errors(of, "framework-trace")}
    assert list(kernel) == [accuracy.FITTED, accuracy.LEFT_OUT]
    assert all(np.isnan(naive).all() for naive in kernel.values())
    alone = [split for split, *_ in accuracy._errors([of[0], of[0]], "prefill")]
    assert alone == [accuracy.FITTED]


def test_rows_of_a_split_by_hand():
    """Rows that were fitted have the split's errors, kernels those of their shapes; of a rate the sign is turned."""
    split = accuracy.CHIP
    found = accuracy.left_out_rows(split)
    own = accuracy.shipped()
    assert found.index.tolist() == list(range(len(found)))
    assert "index" not in found
    assert found.log_error.notna().all()
    decode = own[(own.split == split) & (own.group == "decode")]
    mine = found[found.group == "decode"]
    turned = np.where(decode.meaning.str.contains("throughput"), -1, 1)
    np.testing.assert_allclose(mine.log_error, turned * np.log(1 + decode.error), rtol=1e-12)
    assert mine.pool.unique().tolist() == ["models"]
    shapes = accuracy.shipped(accuracy.KERNEL_RESIDUALS)
    assert (found.split == accuracy.LEFT_OUT).sum() >= (shapes.split == accuracy.LEFT_OUT).sum() > 0
    gpus = comparators.shipped()
    known = gpus.chip_left_out_error.dropna()
    assert found[found.group == "comparator"].error.tolist() == known.tolist()


def test_errors_of_all_splits_stand_one_below_the_other(monkeypatch):
    """A split without a configuration's error has no row of it."""
    monkeypatch.setattr(accuracy, "published", lambda: "rows")
    monkeypatch.setattr(accuracy, "cases", lambda rows, group: [rows, group])
    monkeypatch.setattr(accuracy, "labels", lambda of: {"model": list("abc")})
    monkeypatch.setattr(
        accuracy, "_errors", lambda of, group: [("s", [0.1, NAN, 0.3], NAN), ("t", [NAN, 0.5, 0.7], 0.9)]
    )
    found = accuracy.residuals(["x"])
    assert found[["split", "group", "model", "error"]].values.tolist() == [
        ["s", "x", "a", 0.1],
        ["s", "x", "c", 0.3],
        ["t", "x", "b", 0.5],
        ["t", "x", "c", 0.7],
    ]
    assert found.index.tolist() == [0, 1, 2, 3]
    assert found.naive_error[2:].tolist() == [0.9, 0.9]


def test_floors_by_hand():
    """Splits that are fitted and groups of two cases have none."""
    found = pd.DataFrame(
        {
            "group": list("abcd"),
            "split": ["s", "s", accuracy.FITTED, "s"],
            "cases": [2, 3, 9, 4],
            "median_error": [0.1, 0.2, 0.3, 0.4],
        }
    )
    rows = pd.DataFrame({"id": ["x", "y", "z"], "skipped": ["", "no", ""]})
    kept, ids = ratchet.today(rows, found)
    assert kept.values.tolist() == [["b", "s", 0.2], ["d", "s", 0.4]]
    assert kept.index.tolist() == [0, 1]
    assert ids == {"x", "z"}
    text = "# All\n## 2.0\n### Added\na\n### Numbers that changed\nb\n### Fixed\nc\n## 1.0\n### Numbers that changed\nd"
    assert ratchet.allowed(text) == "\nb"
    assert ratchet.allowed("# All\n## 2.0\n### Added\na\n## 1.0\n### Numbers that changed\nd") == ""


def test_floors_are_lowered_and_none_is_dropped(monkeypatch, tmp_path):
    """Of a group the lower of both errors, at its place; new ones after, and ids of rows in order."""
    files = {"FLOOR": tmp_path / "floor.csv", "PREDICTED": tmp_path / "predicted.csv"}
    files["FLOOR"].write_text("group,split,median_error\nd,s,0.1\nc,s,0.5\nb,t,0.25\n")
    files["PREDICTED"].write_text("id\n7\nx\n")
    found = pd.DataFrame({"group": list("cda"), "split": "s", "cases": 9, "median_error": [0.123456, 0.4, 0.3]})
    rows, written = pd.DataFrame({"id": ["y", "x", "a"], "skipped": ["", "", "no"]}), []
    for name, path in files.items():
        monkeypatch.setattr(ratchet, name, path)
    monkeypatch.setattr(ratchet, "validation", lambda: rows)
    monkeypatch.setattr(ratchet.table, "accuracy_table", lambda of: found)
    monkeypatch.setattr(ratchet.table, "write", lambda *both: written.append(both))
    ratchet.write()
    kept = "d,s,0.1000", "c,s,0.1235", "b,t,0.2500", "a,s,0.3000"
    assert files["FLOOR"].read_text().splitlines() == ["group,split,median_error", *kept]
    assert files["PREDICTED"].read_text().splitlines() == ["id", "7", "x", "y"]
    assert [both[0] is rows and both[1] is found for both in written] == [True]


COLLECTIVE = replace(reading(ROW), meaning="collective-time", mapping=(1, 1, 1, None))


def of_message(**asked):
    return replace(COLLECTIVE, asked=tuple(asked.items()))


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
    each_s = float(tm.collective("all_reduce", 2.0**15, "trn2.48xlarge", ranks=16).time_s)
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
        asked=tuple({"kernel": "matmul", "m": 512.0, "n": 1024.0, "k": 2048.0, "dtype": "BF16"}.items())
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
    one = primitives.kernel_answer(replace(of_kernel("kernel-time"), asked=tuple(ask.items())))
    more = ask | {"sequences": 3.0}
    many = primitives.kernel_answer(replace(of_kernel("kernel-time"), asked=tuple(more.items())))
    assert float(many.flop) == 3 * float(one.flop)
    with pytest.raises(UnreadableRowError, match="names no kernel"):
        primitives.kernel_answer(replace(of_kernel("kernel-time"), asked=()))


def test_operators_of_a_bare_chip_by_hand():
    """FP16 peak and HBM by the shares of the stack; 2 m n k FLOP, and three matrices of 2 B an element."""
    e = tm.efficiencies("trainium2", "vllm-neuron-2026")
    row = replace(COLLECTIVE, where="trainium2", stack="vllm-neuron-2026", meaning="chip-matmul")
    peak, memory = 667e12 * e.prefill_matmul_share, 2.9e12 * e.weight_stream_share
    for m, n, k in ((8192, 4096, 2048), (16, 4096, 2048), (4096, 8, 2048), (4096, 2048, 4)):
        by_hand = max(2 * m * n * k / peak, 2 * (m * k + k * n + m * n) / memory)
        asked = (("m", float(m)), ("n", float(n)), ("k", float(k)))
        assert predict(replace(row, asked=asked)) == pytest.approx(by_hand, rel=1e-9)
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
    assert grounds.where(row) == {"part": "collective", "kind": "collective", "chip": "trainium2", "on": ""}
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


def test_others_by_question_and_chip():
    """A rate is turned over; quartiles of 0.8, 0.9, 1.0 and 1.2 are 0.875, 0.95 and 1.05."""
    rows = pd.DataFrame(
        {
            "question": ["q"] * 4 + ["r"] + ["q"] * 2,
            "hardware": "h",
            "reason": [""] * 6 + ["none"],
            "analytic": [False] * 5 + [True, False],
            "unit": ["ms"] * 4 + ["Gelement/s", "ms", "ms"],
            "error": [-0.2, -0.1, 0.0, 0.2, 0.25, 9.0, 9.0],
        }
    )
    found = comparators.others(rows).set_index("question")
    assert found.cases.to_dict() == {"q": 4, "r": 1}
    names = ["quartile_low", "median", "quartile_high"]
    assert found.loc["q", names].tolist() == pytest.approx([0.875, 0.95, 1.05])
    assert found.loc["r", names].tolist() == pytest.approx([0.8] * 3)


@pytest.mark.parametrize("by", ["meaning", "chip"])
def test_medians_of_the_gpu_stack(by):
    rows, found = comparators.shipped(), comparators.others_fitted(by)
    assert rows.index.tolist() == list(range(len(rows)))
    assert "index" not in rows
    assert found[by].tolist() == [*rows[by].drop_duplicates(), "all"]
    assert found.cases.tolist() == [*(int((rows[by] == name).sum()) for name in found[by][:-1]), len(rows)]
    assert found.median_error.tolist()[-1] == pytest.approx(np.median(np.abs(rows.error)))
    some = rows[rows[by] == found[by][0]]
    assert found.ideal_median[0] == pytest.approx(np.median(np.abs(some.ideal_error)))
    assert found.model_left_out_median[0] == pytest.approx(np.nanmedian(np.abs(some.model_left_out_error)))


def test_a_comparison_of_kernels_in_tables():
    every = kernels.comparison((kernels.TUNED, "compiler"))
    times, sizes = (kernels.side_by_side(every, name) for name in ("time", "bytes"))
    assert len(times) + len(sizes) == len(every)
    assert list(times)[-1] == "bound"
    assert list(sizes)[-1] == "quantity"
    assert set(sizes.quantity) <= {"read_bytes", "write_bytes"}
    for found in (times.measured_s, times.predicted_s):
        assert found.between(1e-7, 1).all()


def test_tiers_are_shares_of_the_roofline():
    """What the roofline allows over whole tiles, the prediction and the measurement."""
    every = kernels.comparison((kernels.TUNED, "compiler", *kernels.KERNELS)).query("quantity == 'time'")
    found = kernels.tiers().set_index(["id", "tier"]).share
    for row in every.iloc[::9].itertuples():
        over = {"roofline": row.roofline_s, "tile bound": row.tile_s, "path, predicted": row.predicted}
        by_hand = {tier: row.roofline_s / s for tier, s in (over | {"path, measured": row.measured}).items()}
        assert found[row.id].to_dict() == pytest.approx(by_hand)
    assert len(found) == 4 * len(every)


def test_columns_of_products_by_hand():
    """What counters say in microseconds: cycles of an instruction, what the engine waits, and the call's own times."""
    found = kernels.products()
    row = found.iloc[5]
    clock = tm.chip("trainium3").core.tensor.clock_hz
    assert row.cycles == pytest.approx(row.tensor_engine_active_us / 1e6 * row.lnc / row.matmul_instructions * clock)
    assert row.gap_us == pytest.approx(row.time_us - row.tensor_engine_active_us)
    assert row.blind_error == pytest.approx(row.blind_time_us / row.time_us - 1)
    sides = (float(row[name]) for name in "mnk")
    answer = tm.kernel.matmul("trainium3", *sides, lnc=int(row.lnc), stack=kernels.kernel.stack())
    assert (row.predicted_us, row.evict_us) == pytest.approx((float(answer.time_s) * 1e6, float(answer.vector_s) * 1e6))
    assert row.error == pytest.approx(float(answer.time_s) * 1e6 / row.time_us - 1)


def test_products_of_a_file_are_left_out_with_their_shapes():
    """The fit that judges a file has seen none of its shapes, wherever else they were run."""
    rows, found = kernels.products(), kernels.product_accuracy().set_index(["m", "n", "k"])
    name = rows.file.iloc[0]
    own = rows[rows.file == name]
    shapes = set(zip(own.m, own.n, own.k, strict=True))
    apart = rows[[shape not in shapes for shape in zip(rows.m, rows.n, rows.k, strict=True)]]
    values = [*kernels.constants(apart).values()]
    many = Counter(zip(rows.m, rows.n, rows.k, strict=True))
    once = [place for place, shape in enumerate(zip(own.m, own.n, own.k, strict=True)) if many[shape] == 1]
    assert once
    for row in (own.iloc[[place]] for place in once[:5]):
        predicted = float(kernels._product_times(row, values).time_s[0]) * 1e6
        left = found.left_out_error[row.m.item(), row.n.item(), row.k.item()]
        assert left == pytest.approx(predicted / row.time_us.item() - 1, rel=1e-6)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_profile_by_hand(phase):
    """32 cores of Trainium1: 2 B a weight, 131,072 B of cache a token; 820 GB/s and 95 TFLOP/s of a core of two."""
    known = tm.model("llama-3.1-8b")
    found = kernels._profile_predicted(known, phase, 32.0, 2048.0)
    tokens = 1 if phase == "decode" else 2048
    weights = 2 * (known.total_params - 128_256 * 4096) / 32 + 2 * tokens * 4096 / 32
    cache = 131_072 * 2048 / 32 if phase == "decode" else 0
    assert found["read_bytes_predicted"] == pytest.approx(weights + cache, rel=1e-3)
    flop = 2 * tokens * weights / 2
    core = tm.chip("trainium1").core.tensor.peak_flop_per_s["bf16"]
    ratio = flop / (weights + cache) * (820e9 / 2) / core
    assert found["mfu_predicted"] / found["mbu_predicted"] == pytest.approx(ratio, rel=2e-2)
    busy = float(tm.kernel.dma("trainium1", weights + cache, weights).time_s)
    work = float(tm.kernel.matmul("trainium1", tokens, 4096, weights / 2 / 4096).time_s)
    assert found["mbu_predicted"] == pytest.approx((weights + cache) / max(busy, work) / 410e9, rel=2e-2)


def test_neighbours_by_hand():
    """All numbers up to 130, and those around powers of two."""
    assert jumps._next(1024).tolist() == [*range(1, 131), 255, 256, 511, 512, 1023, 1024]
    assert jumps._next(300).tolist() == [*range(1, 131), 255, 256]
    pairs = jumps._pairs({"tp": 4.0, "batch": 9.0}, "context", np.array([1, 5]), np.array([2, 6]))
    assert pairs.to_dict("list") == {
        "tp": [4.0] * 4,
        "batch": [9.0] * 4,
        "length": [1, 2, 5, 6],
        "axis": ["context"] * 4,
    }
    base = {"tp": 4.0, "batch": 1.0, "length": 4096.0}
    walks = list(jumps._degrees("decode", base, 32.0, 3, 5))
    assert [walk.axis[0] for walk in walks if len(walk)] == ["tp", "ep", "pp", "cp", "moe_ep"]
    # 32 ranks are 8 groups of 4; 3 experts and 5 layers; each degree up to a power of two
    ends = {walk.axis[0]: walk[walk.axis[0]].tolist() for walk in walks if len(walk)}
    assert ends == {"tp": [4, 8, 8, 16, 16, 32], "ep": [1, 2], "pp": [1, 2, 2, 4], "cp": [1, 2, 2, 4, 4, 8],
                    "moe_ep": [1, 2]}  # fmt: skip
    assert all((walk.batch == 8).all() for walk in walks)
    assert all((walk.batch == 1).all() for walk in jumps._degrees("prefill", base, 32.0, 3, 5))
    batches, lengths = jumps._amounts("decode", base)
    assert (batches.length == 4096).all()
    assert (batches.batch.max(), lengths.length.max()) == (1025, 2**17 + 1)
    batches, lengths = jumps._amounts("prefill", base)
    assert (batches.length == 16).all()
    assert (batches.batch.max(), lengths.length.max()) == (1025, 2**15 + 1)


def test_the_ranks_that_are_walked(monkeypatch):
    """Of a whole system at the usual size of a core, no more than 1,024; one where links have no rate."""
    seen = {}
    monkeypatch.setattr(jumps, "_of_model", lambda asked, where, e, ranks: seen.update({where.id: ranks}) or [])
    names = {
        "trn2.48xlarge": 64,
        "trn1.32xlarge": 32,
        "inf2.xlarge": 2,
        "hgx-h100": 8,
        "tpu-v5p-pod": 1024,
        "mi210-4": 1,
        "trn2.3xlarge": 4,
    }
    jumps.jumps(names, ["llama-3.1-8b"])
    assert seen == names


def test_models_that_have_no_steps_have_no_jumps():
    assert jumps.jumps(["trn2.3xlarge"], ["bert-large-uncased"]).empty
    assert jumps.jumps(["trn2.3xlarge"], ["llama-3.1-405b"]).empty  # no memory for it


def test_the_fewest_ranks_that_hold_a_model():
    where, model = tm.system("trn2.48xlarge"), tm.model("llama-3.1-70b")
    fits = [bool(tm.decode_step(model, where, tm.Mapping(tp=tp), batch=8, context=8192).valid) for tp in (4, 8, 16)]
    fewest = next(tp for tp, does in zip((4, 8, 16), fits, strict=True) if does)
    assert jumps._fewest(model, where, 64.0) == fewest
    assert jumps._fewest(model, where, float(fewest)) == fewest
    assert jumps._fewest(model, where, fewest - 1.0) == 0


def test_systems_of_one_jump_stand_in_one_row():
    rows = pd.DataFrame({"system": ["x", "y", "z"], "model": ["m", "n", "m"], "ratio": [2.0, 3.0, 2.0]})
    assert jumps.merged(rows).values.tolist() == [["x z", "m", 2.0], ["y", "n", 3.0]]


def test_lines_of_the_accuracy_table_by_hand():
    """Nine tenths of 0, 0.1 to 0.9 are 0.81; half of the intervals hold; a rival's errors beside."""
    errors = [x / 10 * (-1) ** x for x in range(10)]
    rows = pd.DataFrame(
        {
            "error": errors,
            "model": list("aabbccddee"),
            "naive_error": [-0.3] * 5 + [0.5] * 5,
            "inside": [True, False] * 5,
            "width": [0.1] * 9 + [9.9],
            "score": 2.0,
            "constant_score": 3.0,
        }
    )
    found = table._line("g", "s", rows)
    by_hand = {
        "group": "g",
        "split": "s",
        "cases": 10,
        "models": 5,
        "median_error": 0.45,
        "mean_error": 0.45,
        "p90_error": 0.81,
        "bias": -0.05,
        "worst_error": -0.9,
        "naive_median": 0.4,
        "naive_mean": 0.4,
        "coverage": 0.5,
        "width": 0.1,
        "score": 2.0,
        "constant_score": 3.0,
    }
    numbers = {name: value for name, value in by_hand.items() if not isinstance(value, str)}
    assert {name: found[name] for name in numbers} == pytest.approx(numbers)
    assert set(found) == set(by_hand)
    assert set(table._line("g", "s", rows[["error", "model"]])) == set(list(by_hand)[:9])


def test_what_is_set_aside_and_how_far_repeats_lie_apart():
    """One of four predicted rows is aside, 0.6 off; copies and GPUs are none; 1.2 / 1.0 - 1 and 1.5 / 1.2 - 1 apart."""
    rows = pd.DataFrame(
        {
            "line": ["x"] * 8 + ["y"] * 2,
            "skipped": [""] * 6 + ["no", ""] + [""] * 2,
            "set_aside": ["", "", "", "odd", "one run", "GPU", "", "repeats it"] + [""] * 2,
            "weight": [1.0, 1, 1, 0, 0, 0, 1, 0, 1, 1],
            "configuration": [*"aabcdefg", "h", "h"],
            "error": [0.2, 0.0, 0.5, -0.6, 9.0, 9.0, NAN, 9.0, 0.5, 0.2],
        }
    )
    found = table._also(rows)
    assert found.aside_share.to_dict() == {"x": 0.25, "y": 0.0}
    assert found.aside_error["x"] == pytest.approx(0.6)
    assert found.noise.to_dict() == pytest.approx({"x": 0.2, "y": 0.25})


def test_rows_of_data_cannot_be_changed():
    """What is read once is handed to all: every struct below the reports is frozen."""
    for module in pkgutil.iter_modules(evidence.__path__, "trnmodel.evidence."):
        importlib.import_module(module.name)
    structs = [
        one
        for one in msgspec.Struct.__subclasses__()
        if re.match(r"trnmodel\.(catalog|evidence|models|planner)\.", one.__module__)
    ]
    assert len(structs) > 20
    assert [one.__name__ for one in structs if not one.__struct_config__.frozen] == []


@pytest.mark.parametrize("group", kernels.KERNELS)
def test_a_shape_without_itself(group, monkeypatch):
    """Errors of times: a rate that is 25 % too high is a time that is a fifth too short."""
    rows = pd.DataFrame(
        {
            "group": [group, group, "other", group],
            "split": [accuracy.LEFT_OUT] * 3 + [accuracy.FITTED],
            "meaning": ["kernel-time", "kernel-flop-rate", "kernel-time", "kernel-time"],
            "model": [*"abcd"],
            "error": [0.1, 0.25, 9.0, 9.0],
        }
    )
    monkeypatch.setattr(kernels, "shipped", lambda path: rows)
    found = kernels.leave_one_out(group)
    assert found.kernel.tolist() == ["a", "b"]
    assert found.error.tolist() == pytest.approx([0.1, -0.2])


@pytest.mark.parametrize(
    ("meaning", "value", "measured_s"),
    [("kernel-time", 3e-6, 3e-6), ("kernel-flop-rate", 2e12, 4e-6 * 8e12 / 2e12), ("kernel-mfu", 2e12, 16e-6)],
)
def test_a_rate_of_a_kernel_as_a_time(meaning, value, measured_s, monkeypatch):
    """Predicted are 4 us and 8e12 a second: a quarter of that rate takes four times as long."""
    monkeypatch.setattr(kernels, "predict", lambda r: 8e12)
    row = replace(COLLECTIVE, meaning=meaning)
    found = kernels._both(row, value, SimpleNamespace(time_s=4e-6))
    assert found == pytest.approx((measured_s, 4e-6))
    sizes = kernels._both(replace(row, meaning="kernel-read-bytes"), 7.0, SimpleNamespace(time_s=4e-6))
    assert sizes == (7.0, 8e12)


def test_runs_whose_room_is_asked_for(monkeypatch):
    """On Trainium and Inferentia, of a known model and length, on software, each once; none of training."""
    plain = {
        "model": "m",
        "where": "trn2",
        "stack": "e",
        "batch": 3.0,
        "compiled_batch": 4.0,
        "context": 5.0,
        "max_context": NAN,
        "prompt": NAN,
        "meaning": "decode-step",
        "mapping": (1, 1, 1, None),
        "precision": "bf16",
    }
    changes = {
        "own": {},
        "again": {"stack": "f"},
        "inf": {"where": "inf2"},
        "gpu": {"where": "hgx"},
        "ideal": {"stack": "ideal"},
        "none": {"model": ""},
        "train": {"meaning": "train-step"},
        "no length": {"context": NAN},
        "memory": {},
        "longer": {"max_context": 7.0},
        "prompt": {"prompt": 11.0},
        "larger": {"batch": 13.0},
    }
    rows = [{"id": name, "kind": footprints.FOOTPRINT if name == "memory" else "x"} for name in changes]
    cases = {name: SimpleNamespace(reading=SimpleNamespace(**plain | more)) for name, more in changes.items()}
    monkeypatch.setattr(footprints, "read_rows", lambda path: rows)
    monkeypatch.setattr(footprints, "readable", lambda kept: [cases[row["id"]] for row in kept])
    kept = [cases[name].reading for name in ("own", "inf", "longer", "prompt", "larger")]
    assert [one is other for one, other in zip(footprints._runs(), kept, strict=True)] == [True] * 5
    assert [footprints._size(one) for one in kept] == [(4.0, 5.0), (4.0, 5.0), (4.0, 7.0), (4.0, 11.0), (13.0, 5.0)]


def test_whether_what_ran_should_have_fitted(monkeypatch):
    """The first rank holds 9 of what is left, the others 7; to the last byte is enough."""
    room = {"fits": (7.0, 9.0, 8.0, 9.0), "first": (7.0, 9.0, 7.0, 8.9), "none": (7.0, 9.0, 6.9, 8.9)}
    names = ("total_bytes", "first_rank_total_bytes", "capacity_bytes", "first_rank_capacity_bytes")

    def stored(r, batch, context):
        if r.where == "odd":
            raise ValueError
        return SimpleNamespace(**dict(zip(names, room[r.where], strict=True)))

    asked = {"model_id": "m", "batch": 3.0, "compiled_batch": 2.0, "context": 5.0, "max_context": 4.0, "prompt": 3.0}
    sizes = {"fits": 2, "first": None, "odd": 1, "none": 1}
    runs = [SimpleNamespace(where=name, mapping=(8, 1, 1, lnc), **asked) for name, lnc in sizes.items()]
    monkeypatch.setattr(footprints, "_runs", lambda: runs)
    monkeypatch.setattr(footprints, "stored_bytes", stored)
    table = footprints.what_ran()
    assert table.verdict.tolist() == ["fits", "first rank too large", "too large"]
    np.testing.assert_equal(table.lnc.to_numpy(float), [2.0, NAN, 1.0])
    assert table.iloc[0].tolist() == ["m", "fits", 8, 2.0, 3.0, 5.0, *room["fits"], "fits"]


def test_regressors_by_hand(monkeypatch):
    """Of a prompt 5 tokens of 3 sequences, of a step 7 compiled sequences; 11 ranks of 13 B/s and 17 FLOP/s."""
    m = SimpleNamespace(
        n_layers=31,
        hidden_size=37,
        active_params=lambda: 29e3,
        kv_bytes=lambda context: 23 * context,
        weight_bytes_read=lambda batch, precision: 19e3 * batch,
    )
    at = SimpleNamespace(hbm_bytes_per_s=13.0, peak=lambda name: 17.0)
    monkeypatch.setattr(naive, "model", lambda name: m)
    monkeypatch.setattr(naive, "machine", lambda r: "s")
    monkeypatch.setattr(naive, "site", lambda where, lnc: at)
    asked = {
        "model": "m",
        "precision": "bf16",
        "mapping": (11, 1, 1, 2),
        "prompt": 5.0,
        "batch": 3.0,
        "compiled_batch": 7.0,
        "context": 41.0,
    }
    of = [
        SimpleNamespace(reading=SimpleNamespace(meaning=name, **asked), measured=43.0)
        for name in ("prefill", "decode-step", "decode-throughput", "run-per-token")
    ]
    prompt, step, rate, _ = naive._design(of).tolist()
    weights = 19e3 / 11 / 13
    assert prompt == pytest.approx([weights, 0, 29e3 * 15 / 11 / 17, 31 * 37 * 15, 31, 1])
    assert step == rate == pytest.approx([weights, 23 * 41 * 7 / 11 / 13, 29e3 * 7 / 11 / 17, 31 * 37 * 7, 31, 1])
    assert [naive._seconds(case) for case in of] == [43, 43, 3 / 43, 43]
    assert [naive.mixed(case.reading) for case in of] == [False, False, False, True]
    monkeypatch.setattr(naive.search, "constants", lambda errors, first, low, high: np.array([2.0, 0, 0, 0, 0, 3.0]))
    errors = naive.regression(of, of)
    wanted = 2 * weights + 3
    assert errors == pytest.approx([wanted / 43 - 1, wanted / 43 - 1, wanted / (3 / 43) - 1, NAN], nan_ok=True)


def test_where_a_regression_starts(monkeypatch):
    """Each coefficient alone would give e^-2 of the median time; one without a regressor is zero. No row is mixed."""
    said = {}

    def constants(errors, first, low, high):
        said.update(first=first, room=(low, high), errors=errors(np.array([0.5, 7.0])))
        return np.array([1.0, 1.0])

    monkeypatch.setattr(naive.search, "constants", constants)
    monkeypatch.setattr(naive, "_design", lambda of: np.array([[case.size, 0.0] for case in of]))
    of = [
        SimpleNamespace(reading=SimpleNamespace(meaning=name), size=size, measured=time)
        for name, size, time in (("prefill", 2.0, 3.0), ("run", 99.0, 99.0), ("prefill", 4.0, 7.0))
    ]
    assert naive.regression(of, of[2:]) == pytest.approx([4 / 7 - 1])
    assert said["first"].tolist() == pytest.approx([5 / 3 * math.exp(-2), 0.0])
    assert said["room"] == (-20.0, 20.0)
    assert said["errors"].tolist() == pytest.approx([math.log(1 / 3), math.log(2 / 7)])
