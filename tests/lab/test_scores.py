"""What becomes of judged rows, by hand: votes, exclusions, splits, floors, tables of kernels and of other chips."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import accuracy, comparators, jumps, kernels, naive, ratchet, table
from trnmodel.evidence.cells import COLUMNS
from trnmodel.evidence.fit import Case
from trnmodel.evidence.readings import reading

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


def case(model, family, source, stack="one"):
    of = SimpleNamespace(model_id=model, arguments=(), where=f"{family}.48xlarge", stack=stack)
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
        accuracy.INSIDE,
        accuracy.FAMILY,
    ]
    assert found[accuracy.FITTED] == ([0] * 4, [40] * 4)
    assert found[accuracy.LEFT_OUT] == ([2, 2, 3, 3], [20, 20, 30, 30])
    assert found[accuracy.CHIP] == ([3, 2, 3, 2], nobody)
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
            "set_aside": ["", "", "", "odd", "the same run", "GPU", "", "p90 of a run whose middle counts"] + [""] * 2,
            "weight": [1.0, 1, 1, 0, 0, 0, 1, 0, 1, 1],
            "configuration": [*"aabcdefg", "h", "h"],
            "error": [0.2, 0.0, 0.5, -0.6, 9.0, 9.0, NAN, 9.0, 0.5, 0.2],
        }
    )
    found = table._also(rows)
    assert found.aside_share.to_dict() == {"x": 0.25, "y": 0.0}
    assert found.aside_error["x"] == pytest.approx(0.6)
    assert found.noise.to_dict() == pytest.approx({"x": 0.2, "y": 0.25})


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
