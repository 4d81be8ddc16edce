"""A file that nobody has seen: odd but plausible words for what is measured are read, and what is not says why."""

import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence.cells import COLUMNS

BLANK = dict.fromkeys(COLUMNS, "")
MODEL = BLANK | {
    "kind": "inference-LLM",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-8B",
    "phase": "decode",
    "batch": "1",
    "seq_len": "2048",
    "tp": "8",
    "precision": "BF16",
    "value": "10",
    "unit": "ms",
    "source": "somebody's page",
}
SERVED = MODEL | {
    "kind": "inference-LLM-serving",
    "phase": "serving",
    "batch": "8",
    "input_len": "1024",
    "output_len": "256",
    "note": "concurrency 8",
}
KERNEL = BLANK | {
    "kind": "kernel",
    "phase": "kernel",
    "instance": "trn3pd98.3xlarge",
    "lnc": "2",
    "n_cores_used": "2",
    "value": "900",
    "unit": "us",
}
NET = BLANK | {"kind": "collective", "instance": "trn2.48xlarge", "value": "500", "unit": "us"}
ENCODER = BLANK | {
    "kind": "inference-encoder",
    "instance": "inf2.xlarge",
    "workload": "bert-base-uncased",
    "batch": "4",
    "seq_len": "128",
    "n_cores_used": "2",
    "value": "3",
    "unit": "ms",
}
PREFILL = MODEL | {"phase": "prefill"}
JOB = BLANK | {
    "kind": "training",
    "phase": "train",
    "instance": "32x trn1.32xlarge",
    "workload": "Llama-3.1-70B",
    "batch": "1024",
    "seq_len": "8192",
    "tp": "32",
    "pp": "8",
    "n_cores_used": "1024",
    "precision": "BF16",
    "note": "microbatch=1",
}
# what a row says, and the plain row of the same answer
SAME = [
    (MODEL | {"metric": "TPOT p50 (ms)"}, MODEL | {"metric": "TPOT p50"}),
    (MODEL | {"metric": "time per output token"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "mean inter-token latency (ms)", "unit": "msec"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "decode latency p50", "kind": "LLM inference"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "TPOT (ms)", "unit": ""}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "ITL", "precision": "bfloat16", "tp": "TP8"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "TPOT", "kind": "", "value": "12.1-14.2"}, MODEL | {"metric": "TPOT"}),
    (MODEL | {"metric": "output tokens/s", "unit": "tok/sec"}, MODEL | {"metric": "throughput", "unit": "tokens/s"}),
    (MODEL | {"metric": "throughput (tok/s)", "unit": "tps"}, MODEL | {"metric": "throughput", "unit": "tokens/s"}),
    (PREFILL | {"metric": "time to first token"}, PREFILL | {"metric": "TTFT"}),
    (PREFILL | {"metric": "prefill time", "unit": "milliseconds"}, PREFILL | {"metric": "TTFT"}),
    (
        PREFILL | {"metric": "prompt throughput", "unit": "tokens/s"},
        PREFILL | {"metric": "prefill throughput", "unit": "tokens/s"},
    ),
    (
        MODEL | {"metric": "end-to-end latency", "phase": "end-to-end", "output_len": "64"},
        MODEL | {"metric": "e2e latency", "phase": "e2e", "output_len": "64"},
    ),
    (SERVED | {"metric": "p50 latency", "unit": "s"}, SERVED | {"metric": "latency p50", "unit": "s"}),
    (SERVED | {"metric": "median TPOT"}, SERVED | {"metric": "TPOT median"}),
    (
        SERVED | {"metric": "output token throughput", "unit": "tok/s", "kind": "LLM serving"},
        SERVED | {"metric": "throughput (output)", "unit": "tok/s"},
    ),
    (
        SERVED | {"metric": "request throughput", "unit": "requests/s"},
        SERVED | {"metric": "requests per second", "unit": "req/s"},
    ),
    (
        KERNEL | {"metric": "latency p50 (us)", "workload": "GEMM M=2048 N=1024 K=4096"},
        KERNEL | {"metric": "latency", "workload": "matmul 2048x4096x1024"},
    ),
    (
        KERNEL | {"metric": "kernel time", "workload": "matmul M2048 K4096 N1024 bf16"},
        KERNEL | {"metric": "latency", "workload": "matmul 2048x4096x1024"},
    ),
    (
        KERNEL | {"metric": "TFLOP/s", "workload": "nki matmul 2048 x 4096 x 1024", "unit": "TFLOP/s"},
        KERNEL | {"metric": "achieved TFLOPS", "workload": "matmul 2048x4096x1024", "unit": "TFLOPS"},
    ),
    (
        KERNEL | {"metric": "p50 latency", "workload": "flash attention 32 heads d128 S4096"},
        KERNEL | {"metric": "latency", "workload": "SDPA prefill 32/32 heads d128 B1 S4096"},
    ),
    (
        NET | {"metric": "bus bandwidth (GB/s)", "workload": "AllReduce 1GB, 64 ranks", "unit": "GBps"},
        NET | {"metric": "busbw", "workload": "all_reduce 1GB, 64 ranks", "unit": "GB/s"},
    ),
    (
        NET | {"metric": "latency p50", "workload": "reduce-scatter 16 MiB over 64 ranks"},
        NET | {"metric": "time", "workload": "reduce_scatter 16MB, 64 ranks"},
    ),
    (
        NET | {"metric": "avg time (us)", "workload": "AlltoAll 64 ranks 1MB"},
        NET | {"metric": "time", "workload": "all_to_all 1MB, 64 ranks"},
    ),
    (ENCODER | {"metric": "p50 latency", "kind": "encoder"}, ENCODER | {"metric": "latency p50"}),
    (ENCODER | {"metric": "sentences/s", "unit": "sentences/s"}, ENCODER | {"metric": "throughput", "unit": "inf/s"}),
    (
        ENCODER | {"metric": "queries per second", "unit": "qps", "kind": "embedding"},
        ENCODER | {"metric": "throughput", "unit": "inf/s"},
    ),
    (
        MODEL | {"metric": "Time per output token \u2013 p50", "workload": "Llama\u20113.1\u20118B"},
        MODEL | {"metric": "TPOT p50"},
    ),
    (
        MODEL | {"metric": "ms/token", "unit": "ms/token", "workload": "Llama 3.1 8B Instruct"},
        MODEL | {"metric": "TPOT"},
    ),
    (MODEL | {"metric": "token gen latency", "kind": "LLM", "phase": "token generation"}, MODEL | {"metric": "TPOT"}),
    (
        MODEL | {"metric": "output tok/s/user", "unit": "tok/s/user"},
        MODEL | {"metric": "speed of a user", "unit": "tokens/s"},
    ),
    (PREFILL | {"metric": "CTE latency (p50)", "unit": "millisec"}, PREFILL | {"metric": "TTFT"}),
    (
        PREFILL | {"metric": "prefill tok/s", "unit": "tok/s"},
        PREFILL | {"metric": "prefill throughput", "unit": "tokens/s"},
    ),
    (SERVED | {"metric": "p50 of a served request"}, SERVED | {"metric": "latency p50"}),
    (SERVED | {"metric": "p50 request latency"}, SERVED | {"metric": "latency p50"}),
    (
        NET | {"metric": "bus_bw", "kind": "nccom-test", "workload": "All-to-all: 16 MB x 64 ranks", "unit": "GB/s"},
        NET | {"metric": "busbw", "workload": "all_to_all 16MB, 64 ranks", "unit": "GB/s"},
    ),
    (
        NET | {"metric": "latency", "workload": "reduce_scatter, 64 ranks, 64MB"},
        NET | {"metric": "time", "workload": "reduce_scatter 64MB, 64 ranks"},
    ),
    (
        NET | {"metric": "time", "workload": "all_reduce 1MB", "lnc": "2", "n_cores_used": "128"},
        NET | {"metric": "time", "workload": "all_reduce 1MB, 64 ranks", "lnc": "2"},
    ),
    (
        KERNEL
        | {
            "metric": "time (\u00b5s)",
            "kind": "NKI kernel",
            "workload": "gemm m=1024, n=4096, k=2048",
            "unit": "\u00b5s",
        },
        KERNEL | {"metric": "latency", "workload": "matmul 1024x2048x4096"},
    ),
    (
        KERNEL | {"metric": "latency", "workload": "flash attention fwd, B=2 S=4096, 16 heads d128"},
        KERNEL | {"metric": "latency", "workload": "SDPA prefill 16/16 heads d128 B2 S4096"},
    ),
]
MACHINES = ["trn3pd98.3xlarge", "trn2.48xlarge (trn2, TP64)", "4x trn1.32xlarge", "trn3.48xlarge", "Trn2 UltraServer"]
MACHINES += ["AWS Inferentia2 (inf2.48xlarge)", "trn2u.48xlarge", "NVIDIA H100 SXM", "8x H200", "p5.48xlarge"]
UNREAD = [
    ({"kind": "training", "workload": "ViT-Base", "metric": "MFU", "unit": "%"}, "no configuration of"),
    ({"kind": "Training", "metric": "step time (s)", "unit": "s", "seq_len": ""}, "no length of a sequence"),
    ({"metric": "watts", "unit": "W"}, "no pattern gives a meaning to metric 'watts'"),
    ({"metric": "TPOT", "workload": "Nobody-1T"}, "no configuration of"),
    ({"metric": "throughput per chip", "unit": "tokens/s/chip"}, "of a part of the machine"),
    ({"metric": "tokens/s", "unit": "tok/s/GPU"}, "of a part of the machine"),
    ({"metric": "TPOT", "instance": "a laptop"}, "unknown"),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    rows = [odd for odd, _ in SAME] + [MODEL | {"metric": "ITL", "tp": "4", "instance": name} for name in MACHINES]
    path = tmp_path_factory.mktemp("unseen") / "rows.csv"
    pd.DataFrame([*rows, *(MODEL | cells for cells, _ in UNREAD)]).to_csv(path, index=False)
    return tm.validate(path)


def test_four_fifths_of_times_and_rates_are_predicted_and_the_rest_says_why(judged):
    listed = judged[judged.unit != "W"]
    assert len(listed) >= 40
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
    assert (found.use[-3:] == "GPUs in tables of Trainium").all()


def test_a_run_that_was_measured_has_been_legal():
    """28 heads on 16 ranks or 32, and twice the positions of the model: no rule of software loses such a row."""
    seven = {"workload": "Qwen2.5-7B"}
    rows = [MODEL | seven | {"metric": "ITL", "tp": "16"}, PREFILL | seven | {"metric": "TTFT", "tp": "16"}]
    job = {"metric": "tokens/s", "unit": "tokens/s", "value": "9"} | {"seq_len": "65536", "tp": "32", "pp": "4"}
    assert tm.validate(pd.DataFrame([*rows, JOB | seven | job])).skipped.tolist() == ["", "", ""]
    assert tm.legal("qwen2.5-7b", "trn2.48xlarge", tm.Mapping(tp=16)).reason


def test_a_thousand_microseconds_are_a_millisecond():
    units = tm.validate(pd.DataFrame([MODEL | {"metric": "TPOT", "unit": unit} for unit in ("us", "ms", "s")]))
    assert (units.predicted / units.predicted[1]).tolist() == pytest.approx([1e3, 1, 1e-3])


def test_thousands_a_second_and_requests_a_minute():
    rates = [("tokens/s", 1), ("ktok/s", 1e-3), ("tokens/min", 60)]
    tokens = tm.validate(pd.DataFrame([MODEL | {"metric": "throughput", "unit": unit} for unit, _ in rates]))
    assert (tokens.predicted / tokens.predicted[0]).tolist() == pytest.approx([size for _, size in rates])
    a_minute = SERVED | {"metric": "requests/min", "unit": "req/min"}
    served = tm.validate(pd.DataFrame([SERVED | {"metric": "requests per second", "unit": "req/s"}, a_minute]))
    assert served.predicted[1] == pytest.approx(60 * served.predicted[0])


def test_rates_that_are_shared_out():
    """Eight sequences: each user has an eighth; sixteen chips: each has a sixteenth, and 64 ranks of TP 4 are they."""
    eight = MODEL | {"metric": "throughput", "batch": "8"}
    whole, user = tm.validate(pd.DataFrame([eight | {"unit": unit} for unit in ("tokens/s", "tok/s/user")])).predicted
    assert whole == pytest.approx(8 * user)
    job = JOB | {"instance": "trn2.48xlarge", "workload": "Qwen3-8B", "batch": "64", "tp": "4", "pp": "1", "dp": "16"}
    job |= {"n_cores_used": "", "lnc": "2", "seq_len": "4096", "value": "9"}
    asked = [{"metric": "tokens/s", "unit": "tokens/s"}, {"metric": "tokens_per_s_per_gpu", "unit": "tok/s/GPU"}]
    total, chip = tm.validate(pd.DataFrame([job | one for one in asked])).predicted
    assert total == pytest.approx(16 * chip)


def test_formats_in_the_name_of_a_kernel():
    """Products in MXFP8 on Trainium3 run at most four times as fast as in BF16, 2,517 over 671 TFLOP/s; not as fast."""
    names = ["MXFP8 matmul 4096x4096x4096", "matmul 4096x4096x4096"]
    rows = [KERNEL | {"metric": "latency", "workload": name} for name in names]
    fast, slow = tm.validate(pd.DataFrame(rows)).predicted
    assert 1.5 < slow / fast < 4


def test_more_ranks_than_one_machine_has_are_those_of_several():
    """Four servers of 32 ranks: the same call as of four joined ones; one alone has too few."""
    row = NET | {"metric": "time", "workload": "all_gather 1GB, 128 ranks"}
    four, one = tm.validate(pd.DataFrame([row | {"instance": f"{n}trn1.32xlarge"} for n in ("4x ", "")])).itertuples()
    direct = tm.collective("all_gather", 2**30, tm.system("trn1.32xlarge", count=4), ranks=128)
    assert four.predicted == pytest.approx(float(direct.time_s) / 1e-6)
    assert "more ranks than the system has" in one.skipped


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_files_of_spreadsheets(separator, tmp_path):
    """A mark in front, blank lines, lines of separators alone, capitals in the header: the same table."""
    rows = pd.DataFrame([MODEL | {"metric": "TPOT"}, SERVED | {"metric": "latency p50", "note": "a, b; c"}])
    text = rows.rename(columns=str.title).to_csv(index=False, sep=separator).replace("\n", "\n\n", 1)
    path = tmp_path / "rows.csv"
    path.write_text(text + separator * (len(COLUMNS) - 1) + "\n", encoding="utf-8-sig")
    assert tm.validate(path).predicted.tolist() == tm.validate(rows).predicted.tolist()


def test_training_rows():
    """AWS prints 7.94 sequences/s (dp 4 of 1,024 cores); the three other metrics are arithmetic of that one step."""
    asked = [
        ("throughput", "seq/s", "7.94"),
        ("step time", "s", "129"),
        ("tokens/s", "ktok/s", "65"),
        ("MFU", "%", "30"),
    ]
    rows = [JOB | {"metric": metric, "unit": unit, "value": value} for metric, unit, value in asked]
    found = tm.validate(pd.DataFrame(rows))
    rate, step, tokens, mfu = found.predicted
    assert rate == pytest.approx(7.94, rel=0.15)
    assert step == pytest.approx(1024 / rate)
    assert tokens == pytest.approx(rate * 8.192)
    work = 6 * (70.6e9 - 128_256 * 8192) + 12 * 80 * 8192 * 8192  # FLOP a token: weights that multiply, all pairs
    assert mfu / 100 == pytest.approx(work * tokens * 1e3 / (512 * 190e12), rel=0.02)  # 190 TFLOP/s a chip
    assert (found.low < found.predicted).all()
    assert (found.high > found.predicted).all()
    assert found.basis.isin(["measured", "interpolated", "extrapolated"]).all()


def test_adapters_train_faster_than_all_weights():
    """No gradients of the weights: of three passes one goes, so that a step takes two thirds at best."""
    rows = [
        JOB | {"workload": name, "metric": "step time", "unit": "s", "value": "9"}
        for name in ("Llama-3.1-8B LoRA r16 SFT", "Llama-3.1-8B full fine-tune")
    ]
    adapters, full = tm.validate(pd.DataFrame(rows)).predicted
    assert 0.6 < adapters / full < 1


def test_training_rows_that_cannot_be_read_say_why():
    bad = [
        ({"workload": "CLIP-Base"}, "no configuration of"),
        ({"seq_len": ""}, "no length"),
        ({"tp": "1", "pp": "1", "note": ""}, "memory"),
    ]
    found = tm.validate(pd.DataFrame([JOB | {"metric": "MFU", "unit": "%", "value": "30"} | cells for cells, _ in bad]))
    for said, (_, reason) in zip(found.skipped, bad, strict=True):
        assert reason in said


def test_bytes_over_time_of_a_kernel():
    """A softmax reads and writes 4,096 x 4,096 elements of two bytes each: 67.1 MB over its time."""
    softmax = KERNEL | {"workload": "softmax 4096x4096"}
    rows = [softmax | {"metric": "latency"}, softmax | {"metric": "achieved bandwidth", "unit": "GB/s"}]
    time_us, rate = tm.validate(pd.DataFrame(rows)).predicted
    assert rate == pytest.approx(2 * 2 * 4096**2 / time_us / 1e3)


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"^rows='.*none\.csv': there is no such file"):
        tm.validate(tmp_path / "none.csv")
