"""One judge: rows have ids of their own, general patterns read them all, and a new file is judged like ours."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence.cells import COLUMNS, row_id
from trnmodel.evidence.meanings import decide, decisions
from trnmodel.evidence.questions import QUESTIONS
from trnmodel.evidence.rows import COLLECTIVES, COMPARATORS, LATER, MEASURED, PRODUCTS, read_rows
from trnmodel.evidence.score import shipped

SHOWN = [
    "predicted",
    "error",
    "low",
    "high",
    "meaning",
    "model",
    "stack",
    "configuration",
    "weight",
    "set_aside",
    "skipped",
    "use",
    "unknown",
    "patterns",
]
BLANK = dict.fromkeys(COLUMNS, "")


@pytest.fixture(scope="module")
def every():
    return [row for path in (MEASURED, LATER, COMPARATORS, COLLECTIVES, PRODUCTS) for row in read_rows(path)]


@pytest.fixture(scope="module")
def machines():
    """Kernels and collectives as shipped, judged."""
    return pd.concat([shipped("kernel"), shipped("collective")])


def made(**cells):
    return tm.validate(pd.DataFrame([BLANK | cells])).iloc[0]


def test_ids_are_unique_and_follow_from_what_a_row_is(every):
    ids = [row["id"] for row in every]
    assert len(set(ids)) == len(ids)
    ours = read_rows(MEASURED)
    assert all(row["id"] == row_id(row) for row in ours)
    assert row_id(ours[0] | {"value": "1e9"}) == ours[0]["id"]
    assert row_id(ours[0] | {"batch": "2"}) != ours[0]["id"]


def test_every_row_has_one_use_or_one_reason(every):
    found = decisions(every)
    assert all((d.use == "") != (d.reason == "") for d in found)
    counts = Counter((row["kind"], d.use or "set aside") for row, d in zip(every, found, strict=True))
    assert sum(counts.values()) == len(every)
    assert {d.question for d in found} - {"set-aside"} <= set(QUESTIONS)


def test_no_decision_reads_a_value(every):
    """A decision knows what a row is: with all values replaced it is the same."""
    for row in every[::50]:
        assert decide(row) == decide(row | {"value": "1"})


def test_of_one_run_that_is_printed_twice_one_row_votes():
    step = BLANK | {"kind": "inference-LLM", "phase": "decode", "metric": "TPOT p50", "workload": "Llama-3.1-8B"}
    rate, late = step | {"metric": "throughput"}, step | {"metric": "TPOT p99"}
    weights = [d.weight for d in decisions([step, rate, late])]
    assert weights == [1, 0, 0]
    assert [d.weight for d in decisions([rate, late])] == [1, 1]  # alone each says something
    assert [d.weight for d in decisions([step, rate | {"source": "another page"}])] == [1, 1]


def test_an_inserted_row_breaks_nothing(machines):
    rows = pd.read_csv(MEASURED, dtype=str, keep_default_na=False)
    rows = rows[rows.kind.isin(["kernel", "collective"])]
    new = pd.DataFrame([BLANK | {"id": "mine", "kind": "kernel", "workload": "nothing"}])
    longer = tm.validate(pd.concat([rows[:7], new, rows[7:]], ignore_index=True))
    kept = longer[longer.id != "mine"].set_index("id")
    pd.testing.assert_frame_equal(kept.loc[machines.id, SHOWN], machines.set_index("id")[SHOWN])


def test_a_shuffled_file_is_the_same_file(tmp_path, machines):
    rows = pd.read_csv(MEASURED, dtype=str, keep_default_na=False)
    rows = rows[rows.kind.isin(["kernel", "collective"])].drop(columns="id").sample(frac=1, random_state=3)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    found = tm.validate(tmp_path / "rows.csv").set_index("id")
    pd.testing.assert_frame_equal(found.loc[machines.id, SHOWN], machines.set_index("id")[SHOWN])


def test_a_kernel_nobody_has_seen():
    """As `tm.kernel` gives it, in the unit of the row; 2 m n k FLOP over a time is a rate, over the peak a share."""
    kernel = {"kind": "kernel", "instance": "trn2.48xlarge", "lnc": "1", "precision": "BF16", "value": "1"}
    answer = tm.kernel.matmul("trainium2", 1024, 4096, 2048)
    time_s, flop = float(answer.time_s), 2 * 1024 * 4096 * 2048
    row = kernel | {"workload": "matmul 1024x2048x4096"}
    assert made(**row, metric="latency", unit="us").predicted == pytest.approx(time_s * 1e6)
    assert made(**row, metric="achieved TFLOPS", unit="TFLOPS").predicted == pytest.approx(flop / time_s / 1e12)
    assert made(**row, metric="MFU", unit="%").predicted == pytest.approx(100 * flop / time_s / 78.64e12, rel=0.01)
    read = made(**row, metric="hbm_read_bytes", unit="MB")
    assert read.predicted == pytest.approx(float(answer.hbm_read_bytes) / 1e6)
    assert read.use == "bytes"
    fp32 = made(**row | {"precision": "FP32"}, metric="latency", unit="us")
    assert fp32.predicted == pytest.approx(float(tm.kernel.matmul("trainium2", 1024, 4096, 2048, "fp32").time_s) * 1e6)
    assert "names no kernel" in made(**kernel, workload="flux capacitor", metric="latency", unit="us").skipped
    assert "units of kernel-time" in made(**row, metric="latency", unit="GB").skipped


def test_a_collective_nobody_has_seen():
    """As `tm.collective` gives it; busbw of an all-reduce is 2 (n - 1) / n of its bytes over its time."""
    run = {"kind": "collective", "instance": "trn2.48xlarge", "lnc": "2", "value": "1", "source": "my bench"}
    time_s = float(tm.collective("all_reduce", 2**20, "trn2.48xlarge", ranks=16, lnc=2).time_s)
    for name in ("allr 16 ranks size=1048576B", "all-reduce 1MB, 16 ranks", "all_reduce 1024KB, 16 ranks on 1 node(s)"):
        assert made(**run, workload=name, metric="time", unit="us").predicted == pytest.approx(time_s * 1e6)
    matrix = made(**run, workload="all_reduce bf16 512x1024, 16 logical ranks", metric="latency", unit="us")
    assert matrix.predicted == pytest.approx(time_s * 1e6)
    rate = made(**run, workload="allr 16 ranks size=1048576B", metric="busbw", unit="GB/s")
    assert rate.predicted == pytest.approx(2 * 15 / 16 * 2**20 / time_s / 1e9)
    nowhere = made(**run | {"instance": "not stated"}, workload="allr 16 ranks size=64B", metric="time", unit="us")
    assert nowhere.skipped.startswith("instance 'not stated' is unknown")
    assert "ranks" in made(**run, workload="allr 5000 ranks size=64B", metric="time", unit="us").skipped
    assert "names no kind" in made(**run, workload="gossip", metric="time", unit="us").skipped
    assert made(**run, workload="allr 16 ranks size=64B", metric="time", unit="parsecs").skipped.startswith("unit")


def test_an_encoder_nobody_has_seen():
    encoder = {
        "kind": "inference-encoder",
        "instance": "inf2.xlarge",
        "workload": "bert-base-uncased",
        "batch": "4",
        "seq_len": "128",
        "n_cores_used": "2",
        "metric": "latency p50",
        "value": "3",
        "unit": "ms",
    }
    found = made(**encoder)
    assert (found.skipped, found.meaning, found.stack) == ("", "forward", "torch-neuronx")
    assert 0 < found.predicted < 30


def test_graphs_of_collectives_pay_their_barrier_once():
    """Trn2, 16 ranks: 1.982 ms with one all-reduce, 2.030 with twelve: four microseconds each."""
    found = shipped("collective")
    graphs = found[found.meaning == "graph-time"]
    assert set(graphs.use) == {"one", "twelve", "groups"}
    assert graphs[graphs.instance == "trn2.48xlarge"].error.abs().median() < 0.05
    assert graphs[graphs.use == "one"].error.abs().max() < 0.03


def test_rows_of_a_file_of_today(tmp_path):
    """No id, other columns, pandas' own numbers: read, and every row has a prediction or a reason."""
    rows = pd.read_csv(MEASURED).drop(columns=["id", "tier"]).iloc[::40].assign(mine=1)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for found in (tm.validate(rows), tm.validate(tmp_path / "rows.csv")):
        assert ((found.skipped == "") == np.isfinite(found.predicted)).all()
        assert found.id.is_unique
        assert (found.mine.astype(int) == 1).all()
    named = tm.validate(rows.assign(id="mine"))
    assert (named.id == "mine").all()
