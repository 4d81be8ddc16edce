"""A file that nobody has seen: odd but plausible words for what is measured are read, and what is not says why."""

import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence.rows import COLUMNS

BLANK = dict.fromkeys(COLUMNS, "")
MODEL = BLANK | {"kind": "inference-LLM", "instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "phase": "decode",
                 "batch": "1", "seq_len": "2048", "tp": "8", "precision": "BF16", "value": "10", "unit": "ms",
                 "source": "somebody's page"}  # fmt: skip
SERVED = MODEL | {"kind": "inference-LLM-serving", "phase": "serving", "batch": "8", "input_len": "1024",
                  "output_len": "256", "note": "concurrency 8"}  # fmt: skip
KERNEL = BLANK | {"kind": "kernel", "phase": "kernel", "instance": "trn3pd98.3xlarge", "lnc": "2", "n_cores_used": "2",
                  "value": "900", "unit": "us"}  # fmt: skip
NET = BLANK | {"kind": "collective", "instance": "trn2.48xlarge", "value": "500", "unit": "us"}
ENCODER = BLANK | {"kind": "inference-encoder", "instance": "inf2.xlarge", "workload": "bert-base-uncased",
                   "batch": "4", "seq_len": "128", "n_cores_used": "2", "value": "3", "unit": "ms"}  # fmt: skip
PREFILL = MODEL | {"phase": "prefill"}
# what a row says, and the plain row of the same answer
SAME = [
    (MODEL | {"metric": "TPOT p50 (ms)"}, MODEL | {"metric": "TPOT p50"}),
    (MODEL | {"metric": "time per output token"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "mean inter-token latency (ms)", "unit": "msec"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "decode latency p50", "kind": "LLM inference"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "TPOT (ms)", "unit": ""}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "ITL", "precision": "bfloat16", "tp": "TP8"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "TPOT", "kind": "", "value": "12.1-14.2"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "output tokens/s", "unit": "tok/sec"},
     MODEL | {"metric": "throughput", "unit": "tokens/s"}),
    (MODEL | {"metric": "throughput (tok/s)", "unit": "tps"}, MODEL | {"metric": "throughput", "unit": "tokens/s"}),
    (PREFILL | {"metric": "time to first token"}, PREFILL | {"metric": "TTFT"}),
    (PREFILL | {"metric": "prefill time", "unit": "milliseconds"}, PREFILL | {"metric": "TTFT"}),
    (PREFILL | {"metric": "prompt throughput", "unit": "tokens/s"},
     PREFILL | {"metric": "prefill throughput", "unit": "tokens/s"}),
    (MODEL | {"metric": "end-to-end latency", "phase": "end-to-end", "output_len": "64"},
     MODEL | {"metric": "e2e latency", "phase": "e2e", "output_len": "64"}),
    (SERVED | {"metric": "p50 latency", "unit": "s"}, SERVED | {"metric": "latency p50", "unit": "s"}),
    (SERVED | {"metric": "median TPOT"}, SERVED | {"metric": "TPOT median"}),
    (SERVED | {"metric": "output token throughput", "unit": "tok/s", "kind": "LLM serving"},
     SERVED | {"metric": "throughput (output)", "unit": "tok/s"}),
    (SERVED | {"metric": "request throughput", "unit": "requests/s"},
     SERVED | {"metric": "requests per second", "unit": "req/s"}),
    (KERNEL | {"metric": "latency p50 (us)", "workload": "GEMM M=2048 N=1024 K=4096"},
     KERNEL | {"metric": "latency", "workload": "matmul 2048x4096x1024"}),
    (KERNEL | {"metric": "kernel time", "workload": "matmul M2048 K4096 N1024 bf16"},
     KERNEL | {"metric": "latency", "workload": "matmul 2048x4096x1024"}),
    (KERNEL | {"metric": "TFLOP/s", "workload": "nki matmul 2048 x 4096 x 1024", "unit": "TFLOP/s"},
     KERNEL | {"metric": "achieved TFLOPS", "workload": "matmul 2048x4096x1024", "unit": "TFLOPS"}),
    (KERNEL | {"metric": "p50 latency", "workload": "flash attention 32 heads d128 S4096"},
     KERNEL | {"metric": "latency", "workload": "SDPA prefill 32/32 heads d128 B1 S4096"}),
    (NET | {"metric": "bus bandwidth (GB/s)", "workload": "AllReduce 1GB, 64 ranks", "unit": "GBps"},
     NET | {"metric": "busbw", "workload": "all_reduce 1GB, 64 ranks", "unit": "GB/s"}),
    (NET | {"metric": "latency p50", "workload": "reduce-scatter 16 MiB over 64 ranks"},
     NET | {"metric": "time", "workload": "reduce_scatter 16MB, 64 ranks"}),
    (NET | {"metric": "avg time (us)", "workload": "AlltoAll 64 ranks 1MB"},
     NET | {"metric": "time", "workload": "all_to_all 1MB, 64 ranks"}),
    (ENCODER | {"metric": "p50 latency", "kind": "encoder"}, ENCODER | {"metric": "latency p50"}),
    (ENCODER | {"metric": "sentences/s", "unit": "sentences/s"}, ENCODER | {"metric": "throughput", "unit": "inf/s"}),
]  # fmt: skip
MACHINES = ["trn3pd98.3xlarge", "trn2.48xlarge (trn2, TP64)", "4x trn1.32xlarge", "trn3.48xlarge", "Trn2 UltraServer"]
MACHINES += ["AWS Inferentia2 (inf2.48xlarge)", "trn2u.48xlarge", "NVIDIA H100 SXM", "8x H200", "p5.48xlarge"]
UNREAD = [
    ({"kind": "training", "phase": "training", "metric": "MFU", "unit": "%"}, "training"),
    ({"kind": "Training", "metric": "step time (s)", "unit": "s"}, "training"),
    ({"metric": "watts", "unit": "W"}, "no rule gives a meaning to metric 'watts'"),
    ({"metric": "TPOT", "workload": "Nobody-1T"}, "no configuration of"),
    ({"metric": "throughput per chip", "unit": "tokens/s/chip"}, "units of decode-throughput"),
    ({"metric": "TPOT", "instance": "a laptop"}, "unknown"),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    rows = [odd for odd, _ in SAME] + [MODEL | {"metric": "ITL", "tp": "4", "instance": name} for name in MACHINES]
    path = tmp_path_factory.mktemp("unseen") / "rows.csv"
    pd.DataFrame([*rows, *(MODEL | cells for cells, _ in UNREAD)]).to_csv(path, index=False)
    return tm.validate(path)


def test_four_fifths_of_times_and_rates_are_predicted_and_the_rest_says_why(judged):
    listed = judged[~judged.kind.str.contains("raining") & (judged.unit != "W")]
    assert len(listed) >= 38
    assert (listed.skipped == "").mean() >= 0.8
    assert judged.skipped[judged.predicted.isna()].str.len().min() > 5
    for row, (_, reason) in zip(judged.iloc[-len(UNREAD) :].itertuples(), UNREAD, strict=True):
        assert reason in row.skipped


def test_other_words_have_the_same_answer(judged):
    plain = tm.validate(pd.DataFrame([row for _, row in SAME]))
    found = judged.iloc[: len(SAME)].reset_index(drop=True)
    assert found.skipped.tolist() == [""] * len(SAME)
    assert plain.skipped.tolist() == [""] * len(SAME)
    assert found.meaning.tolist() == plain.meaning.tolist()
    assert found.predicted.tolist() == pytest.approx(plain.predicted.tolist())


def test_machines_by_their_odd_names(judged):
    found = judged.iloc[len(SAME) : len(SAME) + len(MACHINES)]
    assert found.skipped.tolist() == [""] * len(MACHINES)
    chips = ["trainium3", "trainium2", "trainium1", "trainium3", "trainium2", "inferentia2", "trainium2"]
    assert found.chip.tolist() == [*chips, "h100", "h200", "h100"]
    assert (found.weight[-3:] == 0).all()  # no Neuron stack: asked of the ideal machine alone


def test_a_thousand_microseconds_are_a_millisecond():
    units = tm.validate(pd.DataFrame([MODEL | {"metric": "TPOT", "unit": unit} for unit in ("us", "ms", "s")]))
    assert (units.predicted / units.predicted[1]).tolist() == pytest.approx([1e3, 1, 1e-3])


def test_bytes_over_time_of_a_kernel():
    """A softmax reads and writes 4,096 x 4,096 elements of two bytes each: 67.1 MB over its time."""
    softmax = KERNEL | {"workload": "softmax 4096x4096"}
    rows = [softmax | {"metric": "latency"}, softmax | {"metric": "achieved bandwidth", "unit": "GB/s"}]
    time_us, rate = tm.validate(pd.DataFrame(rows)).predicted
    assert rate == pytest.approx(2 * 2 * 4096**2 / time_us / 1e3)


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"^rows='.*none\.csv': there is no such file"):
        tm.validate(tmp_path / "none.csv")
