"""Files of benchmark tools: what is read of them, what is refused, and that no file raises but a clear error."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.catalog.load import DATA
from trnmodel.cli.app import app
from trnmodel.evidence.formats import own, read
from trnmodel.evidence.formats.runs import meanings
from trnmodel.evidence.formats.runs import settings as settings_of
from trnmodel.evidence.records import TYPES
from trnmodel.evidence.records import read as read_record

FILES = Path(__file__).resolve().parents[1] / "data" / "formats"
EVERY = sorted(FILES.iterdir())
VLLM, GUIDELLM, AIPERF, LLMPERF = (
    FILES / f"{name}.json" for name in ("vllm_old", "guidellm", "aiperf", "llmperf_summary")
)
MACHINE = {"system": "trn2.48xlarge", "tp": 8}


def rows_of(path, stated=None, **where):
    """Rows of a file that have some values, as records."""
    rows = tm.read_measurements(path, stated).rows
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return rows.to_dict("records")


def row_of(path, stated=None, **where):
    (row,) = rows_of(path, stated, **where)
    return row


def written(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def reasons(path, stated=None):
    """Reasons of what is refused of a file, each with its line."""
    refused = tm.read_measurements(path, stated).refused
    return list(zip(refused.line, refused.figure, refused.reason, strict=True))


# metric, statistic, value, unit, and what holds for all rows of the run: by hand from the documents of the tools
EXPECTED = [
    ("vllm_old.json", {"metric": "TTFT p50"}, {"value": 194.0, "unit": "ms", "clients": 8.0, "scheduling": "closed"}),
    (
        "vllm_old.json",
        {"metric": "ITL mean"},
        {"value": 9.9, "interval_of": "gap", "input_len": 1024.0, "output_len": 128.0},
    ),
    (
        "vllm_old.json",
        {"metric": "TPOT p99"},
        {"value": 13.86, "workload": "meta-llama/Llama-3.1-8B-Instruct", "line": 26},
    ),
    (
        "vllm_appended.json",
        {"metric": "TPOT mean", "line": 1},
        {"tp": "8", "instance": "trn2.48xlarge", "sdk": "2.28.0"},
    ),
    (
        "vllm_appended.json",
        {"metric": "TPOT mean", "line": 2},
        {"scheduling": "open", "arrival_per_s": 2.0, "clients": ""},
    ),
    (
        "guidellm.json",
        {"metric": "TPOT p99", "run": "benchmark 2"},
        {"value": 7.9 * 1.3, "clients": 4.0, "interval_of": ""},
    ),
    (
        "guidellm.json",
        {"metric": "TTFT mean", "run": "benchmark 1"},
        {"scheduling": "single", "workload": "Qwen/Qwen3-8B"},
    ),
    ("guidellm.json", {"metric": "request latency mean", "run": "benchmark 3"}, {"unit": "s", "arrival_per_s": 2.0}),
    (
        "guidellm.json",
        {"metric": "time per output token with the first mean", "run": "benchmark 1"},
        {"interval_of": "whole"},
    ),
    (
        "guidellm.json",
        {"metric": "throughput (output)", "run": "benchmark 2"},
        {"value": 3.6 * 128, "unit": "tokens/s"},
    ),
    ("aiperf.json", {"metric": "TPOT mean"}, {"value": 9.17, "interval_of": "", "clients": 2.0, "input_len": 1000.0}),
    ("aiperf.json", {"metric": "inter-chunk latency p99"}, {"interval_of": "gap", "unit": "ms", "requests": 62.0}),
    ("aiperf.csv", {"metric": "TTFT p95"}, {"value": 170.1, "line": 5}),
    ("genai_perf.csv", {"metric": "request latency mean"}, {"value": 1295.5, "unit": "ms", "input_len": 1000.0}),
    ("genai_perf.csv", {"metric": "requests per second"}, {"value": 1.55, "unit": "req/s"}),
    ("llmperf_summary.json", {"metric": "TTFT p99"}, {"value": 0.1572, "unit": "s", "clients": 2.0}),
    (
        "llmperf_summary.json",
        {"metric": "inter-token latency with the first mean"},
        {"value": 0.0102, "interval_of": "whole"},
    ),
    ("llmperf_summary.json", {"metric": "requests per second"}, {"value": 89.5, "unit": "req/min", "requests": 60}),
    (
        "inferencex.json",
        {"metric": "throughput (total)", "instance": "h200"},
        {"value": 1400.0, "tp": 4, "precision": "fp8"},
    ),
    ("inferencex.json", {"metric": "throughput (output)", "instance": "gb200"}, {"value": 375.0 * 8, "apart": "yes"}),
    ("inferencex.json", {"metric": "throughput (total)", "instance": "gb200"}, {"value": 500.0 * 12}),
    ("vllm_terminal.txt", {"metric": "TTFT p99"}, {"value": 310.5, "unit": "ms", "line": 14, "requests": 60.0}),
    (
        "vllm_terminal.txt",
        {"metric": "throughput (output)"},
        {"value": 384.0, "clients": 4.0, "input_len": 1024.0, "output_len": 128.0},
    ),
    ("neuron_profile.txt", {"metric": "total_time"}, {"value": 0.017, "unit": "s", "line": 3}),
    ("neuron_profile.txt", {"metric": "MFU"}, {"value": 0.25, "unit": "fraction", "line": 5}),
    ("genai_perf_gpus.csv", {"metric": "power per device mean", "note": "gpu1"}, {"value": 1031.5, "line": 10}),
    ("genai_perf_gpus.csv", {"metric": "utilisation of a GPU mean", "note": "gpu0"}, {"value": 88.0, "unit": "%"}),
    ("inferencex.json", {"metric": "speed of a user p1", "instance": "h200"}, {"value": 38.46}),
    ("nccl.txt", {"metric": "time", "line": 18, "note": "in place"}, {"value": 83.9, "unit": "us", "ranks": 8.0}),
    (
        "nccl.txt",
        {"metric": "busbw", "line": 20, "note": "out of place"},
        {"value": 366.89, "message_bytes": 134217728.0},
    ),
    (
        "nccl.json",
        {"metric": "algbw", "message_bytes": 8388608.0, "note": "out of place"},
        {"kind_of_call": "all_reduce"},
    ),
    ("nccl.json", {"metric": "time", "message_bytes": 8388608.0, "note": "in place"}, {"date_or_sdk": "NCCL 2.27.3"}),
    (
        "nccom.txt",
        {"metric": "algbw", "line": 4},
        {"value": 40.69, "unit": "GiB/s", "ranks": 32.0, "kind_of_call": "all_reduce"},
    ),
    ("nccom.json", {"metric": "algbw", "message_bytes": 524288.0}, {"unit": "GB/s", "precision": "fp32"}),
    ("nccom.json", {"metric": "time p99", "message_bytes": 524288.0}, {"value": 23.11 * 1.2, "unit": "us"}),
    ("neuron_profile.json", {"metric": "MFU"}, {"value": 0.021, "unit": "fraction", "line": 10}),
    ("neuron_profile.json", {"metric": "total_time"}, {"value": 0.0088, "unit": "s"}),
    (
        "neuron_monitor.jsonl",
        {"metric": "device time p50", "line": 3},
        {"value": 0.0102 * 0.95, "lnc": 2, "n_cores_used": 8.0},
    ),
    ("optimum.json", {"metric": "ITL mean"}, {"value": 0.01, "batch": 4, "output_len": 128, "phase": "decode"}),
    ("optimum.csv", {"metric": "TTFT p50"}, {"value": 0.06138, "input_len": "512", "precision": "bfloat16"}),
    ("optimum.csv", {"metric": "decode throughput"}, {"value": 400.0, "unit": "tokens/s"}),
    (
        "megatron.log",
        {"metric": "step time", "line": 13},
        {"value": 3820.4, "unit": "ms", "global_batch": 128.0, "tp": 8.0},
    ),
    ("megatron.log", {"metric": "model TFLOP/s/GPU", "line": 14}, {"value": 402.5, "seq": 4096.0, "micro_batch": 2.0}),
    ("nxd.log", {"metric": "step time (mean since the start)", "line": 3}, {"value": 320.22, "unit": "s"}),
    ("nemo.log", {"metric": "step time", "line": 2}, {"value": 2.505, "global_batch": 8.0}),
    ("own.csv", {"line": 3}, {"value": "10.1", "batch": "8", "tp": "8"}),
    ("own.yaml", {"line": 9}, {"value": 9.5, "batch": 4, "instance": "trn2.48xlarge"}),
]


@pytest.mark.parametrize(("name", "where", "expected"), EXPECTED)
def test_a_figure_is_read(name, where, expected):
    row = row_of(FILES / name, **where)
    for column, value in expected.items():
        assert row.get(column, "") == (pytest.approx(value) if isinstance(value, float) else value), column


def test_every_figure_names_its_file_and_a_line_that_is_there():
    for path in EVERY:
        rows = tm.read_measurements(path).rows
        assert len(rows), path.name
        assert rows.file.eq(str(path)).all()
        assert rows.line.between(1, len(path.read_text().splitlines())).all()


@pytest.mark.parametrize("path", [VLLM, AIPERF, LLMPERF, FILES / "neuron_profile.json"], ids=lambda path: path.name)
def test_the_line_is_that_of_the_number(path):
    lines = path.read_text().splitlines()
    for row in tm.read_measurements(path).rows.itertuples():
        assert re.search(r"\d", lines[row.line - 1].partition(":")[2]), row


def test_the_table_of_figures_holds_columns_and_words_that_patterns_know():
    for one, columns in (pair for tool in tools() for pair in meanings(tool).values()):
        assert columns.keys() <= TYPES.keys()
        if "measure" in columns and not one.unasked:
            by_tool = {
                "nemo": "training",
                "megatron": "training",
                "nccl-tests": "collective",
                "nccom-test": "collective",
            }
            by_measure = {"forward": "inference-encoder", "forward_rate": "inference-encoder"}
            by_measure |= {"step": "training", "sequence_rate": "training", "device_time": "inference-LLM-profile"}
            kind = by_measure.get(columns["measure"], by_tool.get(one.tool, "inference-LLM-serving"))
            known = read_record({"kind": kind, "metric": one.metric, "unit": one.unit})[0].measure
            assert known in ("", columns["measure"]), one  # the words of a metric say the same as its columns
    for tool in tools():
        assert {one.column for one in settings_of(tool)} <= {*TYPES, *read.STATABLE}


def tools():
    """Return the tools of the table of figures."""
    return list(dict.fromkeys(pd.read_csv(DATA / "evidence" / "tool_figures.csv").tool))


def test_what_a_file_does_not_state_is_named_and_can_be_stated():
    silent = tm.validate(tm.read_measurements(VLLM).rows)
    assert set(silent.missing) == {"machine"}
    assert "machine, tp: not stated" in silent.skipped[0]
    stated = tm.validate(tm.read_measurements(VLLM, MACHINE).rows)
    assert (stated.skipped == "").sum() == len(stated)
    named = tm.read_measurements(GUIDELLM, {"model": "llama-3.1-8b", "release": "2.28"}).rows
    assert set(named.workload) == {"llama-3.1-8b"}
    assert set(named.date_or_sdk) == {"SDK 2.28"}


def test_what_a_file_states_otherwise_is_a_contradiction():
    (first, *others) = reasons(FILES / "vllm_appended.json", {"tp": 16})
    assert first[2] == "tp: the file states '8', and '16' is stated for it"
    assert len(others) + 1 == len(tm.read_measurements(FILES / "vllm_appended.json").rows)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"tpp": 8}, r"stated='tpp': allowed is a column of a row; nearest: "),
        ({"value": 8}, "stated='value'"),
        ({"tp": None}, r"stated\['tp'\]=None"),
        ({"tp": True}, r"stated\['tp'\]=True"),
        ({"model": "x" * 3000}, r"stated\['model'\]="),
        ("tp=8", "stated='tp=8'"),
    ],
)
def test_an_odd_statement_is_refused(stated, message):
    with pytest.raises(ValueError, match=message):
        tm.read_measurements(VLLM, stated)


@pytest.mark.parametrize("paths", ["no-such-file.json", 7, [None], "", Path("/dev/null")])
def test_an_odd_path_is_refused(paths):
    with pytest.raises(ValueError, match="paths"):
        tm.read_measurements(paths)


def changed(path, **values):
    return {**json.loads(path.read_text()), **values}


@pytest.mark.parametrize(
    ("values", "figures", "reason"),
    [
        ({"p99_ttft_ms": 100.0}, {"TTFT p50", "TTFT p99"}, "TTFT p50 is 194, above its TTFT p99 of 100"),
        ({"request_throughput": 50.0}, {"requests per second"}, "its counts over its duration are"),
        ({"output_throughput": 66.0}, {"throughput (output)"}, "its counts over its duration are"),
        ({"mean_tpot_ms": float("nan")}, {"TPOT mean"}, "nan is no finite number above 0"),
        ({"mean_tpot_ms": -3.0}, {"TPOT mean"}, "-3.0 is no finite number above 0"),
        ({"mean_tpot_ms": "fast"}, {"TPOT mean"}, "'fast' is no finite number above 0"),
        ({"mean_tpot_ms": 1e300}, {"TPOT mean"}, "1e+300 is no finite number above 0"),
        ({"mean_e2el_ms": 50.0}, {"TTFT mean", "request latency mean"}, "TTFT mean is 200, above its request latency"),
        ({"mean_e2el_ms": 9000.0}, {"requests per second", "request latency mean"}, "there are 8 clients"),
        ({"completed": 0}, {"vllm-bench"}, "no request was completed"),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(tmp_path, values, figures, reason):
    path = written(tmp_path, "run.json", changed(VLLM, **values))
    found = reasons(path)
    assert {figure for _, figure, _ in found} == figures
    assert all(reason in why for _, _, why in found)


def test_a_bandwidth_that_does_not_follow_from_size_and_time_is_refused(tmp_path):
    text = (FILES / "nccl.txt").read_text()
    found = reasons(written(tmp_path, "nccl.txt", text.replace("159.40", "259.40")))
    assert {line for line, _, _ in found} == {19}
    assert "algbw is 259.4, and its size over its time is 159.4" in found[0][2]
    wrong = reasons(written(tmp_path, "nccl.txt", text.replace("278.96", "159.40")))
    assert "busbw over algbw is not 1.75" in wrong[0][2]


def test_a_unit_that_cannot_be_is_refused(tmp_path):
    odd = changed(AIPERF, time_to_first_token={"unit": "furlongs", "avg": 3.0})
    assert reasons(written(tmp_path, "a.json", odd)) == [
        (1, "TTFT", "unit 'furlongs' of time_to_first_token: allowed are ns, us, ms, s, sec")
    ]
    seconds = changed(AIPERF, time_to_first_token={"unit": "ns", "avg": 3.0e6})
    assert row_of(written(tmp_path, "b.json", seconds), metric="TTFT mean")["value"] == pytest.approx(3000.0)


def test_versions_of_files_that_nobody_has_looked_at_are_refused(tmp_path):
    """Meanings change between versions; guidellm's `time_per_output_token_ms` left the first token out up to 0.3."""
    for path, change in (
        (GUIDELLM, {"metadata": {"version": 3}}),
        (GUIDELLM, {"metadata": {}}),
        (LLMPERF, {"version": "2031-01-01"}),
        (FILES / "nccl.json", {"version": 9}),
    ):
        ((_, _, reason),) = reasons(written(tmp_path, "new.json", changed(path, **change)))
        assert "is unknown" in reason
    old = changed(GUIDELLM)
    del old["metadata"]
    old["benchmarks"][0] = {**old["benchmarks"][0], "args": {"strategy": {"type_": "synchronous"}}}
    metrics = {row["metric"] for row in rows_of(written(tmp_path, "old.json", old), run="benchmark 1")}
    assert "TPOT mean" in metrics
    assert not any("with the first" in metric for metric in metrics)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"duration": 0.0}, "64 requests were completed in 0 s"),
        ({"completed": 640}, "640 requests were completed of 64 that were sent"),
        ({"model_id": {"a": 1}}, "model_id: {'a': 1} is no text and no number"),
    ],
)
def test_a_run_that_cannot_be_is_refused_whole(tmp_path, values, reason):
    path = written(tmp_path, "run.json", changed(VLLM, **values))
    assert not len(tm.read_measurements(path).rows)
    assert all(reason in why for _, _, why in reasons(path))


def test_shares_of_a_profile_and_its_time_hold_together(tmp_path):
    summary = json.loads((FILES / "neuron_profile.json").read_text())["n_1f2e3d"]
    odd = written(tmp_path, "a.json", {"n": {**summary, "mfu_estimated_percent": 41.2}})
    assert [figure for _, figure, _ in reasons(odd)] == ["mfu_estimated_percent"]
    slow = {"tensor_engine_active_time": 0.00001, "tensor_engine_active_time_percent": 0.5}
    assert "total_time is 0.0088" in reasons(written(tmp_path, "b.json", {"n": {**summary, **slow}}))[0][2]
    busy = (FILES / "neuron_monitor.jsonl").read_text().replace("60.0", "420.0")
    assert {figure for _, figure, _ in reasons(written(tmp_path, "c.jsonl", busy))} == {
        "utilisation of NeuronCores mean",
        "utilisation of a NeuronCore",
    }


def test_scripts_of_nxd_print_a_step_and_a_running_mean(tmp_path):
    log = "Namespace(seq_len=8192, tensor_parallel_size=32, use_zero1_optimizer=1)\nEpoch 0\n"
    log += "step 1 step_time 60.4s throughput 5.5 seq/s step loss 11.7\n"
    step = row_of(written(tmp_path, "nxd.log", log), metric="step time")
    assert (step["value"], step["tp"], step["seq"], step["zero"], step["line"]) == (60.4, 32.0, 8192.0, 1.0, 3)
    later = (
        "LOG Mon Mar  2 10:10:07 2026 - (0, 11) step_loss : 10.4 learning_rate : 1.50e-06 throughput : 54.28 seq/s\n"
    )
    assert row_of(written(tmp_path, "later.log", later))["metric"] == "throughput (running mean)"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("step 0 step_time 980.2s throughput 2.1 seq/s step loss 12.1\n", ["step time", "throughput (running mean)"]),
        ("step 9 step_time 60.4s throughput 4.9 seq/s step loss 11.7\n", ["throughput (running mean)"]),
        ("step 10 step_time 60.4s throughput 8.5 seq/s step loss 11.7\n", []),
        ("Training epoch 0, iteration 0/249 | global_step: 0 | train_step_timing in s: 7.126\n", ["step time"]),
        ("Training epoch 0, iteration 1/249 | global_step: 1 | train_step_timing in s: 2.505\n", []),
        (" iteration 1/ 50 | elapsed time per iteration (ms): 38214.3 | global batch size: 256 |\n", ["step time"]),
        (" iteration 2/ 50 | elapsed time per iteration (ms): 4290.1 | global batch size: 256 |\n", []),
    ],
)
def test_the_first_step_with_its_compiling_is_no_measurement(tmp_path, line, refused):
    assert [figure for _, figure, _ in reasons(written(tmp_path, "a.log", line))] == refused


def test_a_mean_over_logged_lines_holds_the_first_line_alone(tmp_path):
    log = "Namespace(seq_len=4096, logging_interval=10)\n"
    line = "LOG Mon Mar  2 10:10:07 2026 - (0, {}) step_loss : 10.4 learning_rate : 1.50e-06 throughput : 24.1 seq/s\n"
    path = written(tmp_path, "a.log", log + line.format(10) + line.format(20))
    assert [line for line, *_ in reasons(path)] == [2]
    assert row_of(path)["line"] == 3


def test_a_bar_of_nxd_training_gives_the_step_behind_its_window():
    rows = rows_of(FILES / "nxdt.log", metric="step time")
    assert [(row["line"], row["value"], row["seq"], row["tp"]) for row in rows] == [(16, 256 / 20.5, 4096.0, 8.0)]
    means = rows_of(FILES / "nxdt.log", metric="step time (mean since the start)")
    assert len(means) == 11
    assert all(row["unasked"] for row in means)
    assert [line for line, *_ in reasons(FILES / "nxdt.log")] == list(range(6, 16))


def test_a_limit_that_was_never_reached_held_nothing_back(tmp_path):
    short = {"max_concurrency": 64, "request_rate": 4.0, "request_throughput": 3.2, "completed": 64, "duration": 20.0}
    rows = [
        rows_of(written(tmp_path, f"{peak}.json", changed(VLLM, **short, max_concurrent_requests=peak)))[0]
        for peak in (64, 40)
    ]
    assert [(row["scheduling"], row.get("arrival_per_s", "")) for row in rows] == [("closed", ""), ("open", 4.0)]


def test_the_unit_of_a_table_is_that_of_its_fastest_line(tmp_path):
    table = "nccom-test -r 2 allr\n  size(B)  count(elems)  type  time(us)  algbw(GB/s)  busbw(GB/s)\n"
    table += "  1024  256  fp32  148  0.01  0.01\n  33554432  8388608  fp32  768  40.69  40.69\n"
    table += "1 errors found - test failed\n"
    path = written(tmp_path, "nccom.txt", table)
    assert {row["unit"] for row in rows_of(path) if row["metric"] != "time mean"} == {"GiB/s"}
    assert [line for line, *_ in reasons(path)] == [5]


def test_streams_of_a_file_have_collectives_of_their_own(tmp_path):
    table = "nccom-test allg -r 64 --streams-json streams.json\n"
    table += "  size(B)  count(elems)  type  time:avg(us)  algbw(GB/s)  busbw(GB/s)\n"
    table += "  1048576  524288  bf16  117.67  8.91  16.71\n"
    assert all(not row.get("kind_of_call") for row in rows_of(written(tmp_path, "nccom.txt", table)))


def test_figures_that_optimum_benchmark_fills_with_something_else_are_refused(tmp_path):
    latency = {"unit": "s", "mean": 0.5, "p50": 0.5, "p90": 0.5, "p95": 0.5, "p99": 0.5}
    rate = {"unit": "samples/s", "value": 480.0}
    trained = written(tmp_path, "train.json", {"train": {"latency": latency, "throughput": rate}})
    assert [figure for _, figure, _ in reasons(trained)] == ["train.throughput"]
    phases = {"decode": {"latency": latency}, "generate": {"latency": latency, "throughput": rate}}
    assert reasons(written(tmp_path, "batch.json", phases)) == []
    by_token = written(tmp_path, "token.json", {**phases, "per_token": {"latency": latency}})
    assert [figure for _, figure, _ in reasons(by_token)] == ["generate.throughput"]


def test_a_collective_that_returned_wrong_data_is_no_measurement(tmp_path):
    text = (FILES / "nccl.txt").read_text().replace("174.14       0", "174.14       7")
    assert reasons(written(tmp_path, "nccl.txt", text)) == [
        (18, "out of place", "the collective returned 7 wrong values")
    ]


def test_bytes_of_another_alphabet_are_refused_with_their_line(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes(
        (FILES / "own.csv").read_text().replace("8;bf16;TPOT;10.1", "8;caf\xe9;TPOT;10.1").encode("latin-1")
    )
    assert reasons(path) == [(3, "file", "the line is not UTF-8")]


@pytest.mark.parametrize(
    "text", [" " * 2**21, "[" + "1," * 10**6, "x" * 2**21, "Epoch " * 10**5, "size count type " * 10**5]
)
def test_long_lines_are_refused_in_bounded_time(tmp_path, text):
    assert [len(reasons(written(tmp_path, f"a{suffix}", text))) for suffix in (".log", ".json", ".csv")] == [1, 1, 1]


def test_a_speculated_run_and_one_whose_rate_changes_are_not_asked(tmp_path):
    drafts, ramp = ({"spec_decode_num_drafts": 9}, "a draft"), ({"ramp_up_strategy": "linear"}, "the rate of arrivals")
    for change, words in (drafts, ramp):
        rows = tm.read_measurements(written(tmp_path, "run.json", changed(VLLM, **change)), MACHINE).rows
        judged = tm.validate(rows[~rows.metric.str.startswith("TTFT")])  # a first token has no draft
        assert judged.skipped.str.contains(words).all()


def test_the_same_figure_counts_once(tmp_path):
    line = json.dumps(json.loads(VLLM.read_text()))
    twice = tm.read_measurements(written(tmp_path, "twice.json", f"{line}\n{line}\n"))
    once = tm.read_measurements(VLLM)
    assert len(twice.rows) == len(once.rows) == len(twice.refused)
    assert set(twice.refused.line) == {2}
    assert "line 1; it counts once" in twice.refused.reason[0]
    assert len(tm.read_measurements([VLLM, VLLM]).rows) == len(once.rows)


def test_truncated_and_broken_files_are_refused_with_their_line(tmp_path):
    text = VLLM.read_text()
    ((line, _, reason),) = reasons(written(tmp_path, "cut.json", text[:-40]))
    assert (line, "the text ends early" in reason) == (1, True)
    first = json.dumps(json.loads(text))
    half = written(tmp_path, "half.json", f"{first}\n{first[:50]}")
    assert len(tm.read_measurements(half).rows) == 12
    assert reasons(half)[0][0] == 2
    assert "more than once" in reasons(written(tmp_path, "doubled.json", text[:-1] + ', "duration": 3}'))[0][2]
    assert "nested too deeply" in reasons(written(tmp_path, "deep.json", "[" * 10_000))[0][2]
    assert "no file of a tool" in reasons(written(tmp_path, "poem.txt", "Roses are red"))[0][2]
    assert reasons(written(tmp_path, "empty.json", " \n"))[0][2] == "the file is empty"


def test_too_many_rows_are_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(own, "MAX_ROWS", 100)
    monkeypatch.setattr(read, "MAX_ROWS", 100)
    head, row = "instance,workload,metric,value,unit", "trn2.48xlarge,Llama-3.1-8B,TPOT,{},ms"
    many = "\n".join([head, *(row.format(n) for n in range(1, 103))])
    with pytest.raises(ValueError, match="more than 100 rows; allowed are at most 100"):
        tm.read_measurements(written(tmp_path, "many.csv", many))


def test_a_list_in_a_cell_is_text_and_is_never_run(tmp_path):
    text = (FILES / "optimum.csv").read_text()
    trap = "[__import__('os').mkdir('run')]"
    path = written(tmp_path, "trap.csv", text.replace("[0.01]", f'"{trap}"'))
    assert trap in path.read_text()
    assert len(tm.read_measurements(path).rows) == len(tm.read_measurements(FILES / "optimum.csv").rows)
    assert not Path("run").exists()


def test_nearest_rows_are_those_of_the_same_part_in_order():
    row = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    table = tm.nearest(row | {"metric": "TPOT", "value": 9.5, "unit": "ms"}, count=7)
    assert table["rank"].tolist() == list(range(1, 8))
    assert table.octaves.is_monotonic_increasing
    assert set(table.meaning) <= {"decode-step", "decode-throughput", "all-decode-throughput", "decode-speed"}
    assert table.error.abs().lt(5).all()
    assert not len(tm.nearest(row | {"workload": "nobody's", "metric": "TPOT", "value": 9.5, "unit": "ms"}))
    with pytest.raises(ValueError, match="count="):
        tm.nearest(row, count=0)


def test_a_shipped_row_is_its_own_neighbour():
    shipped = pd.read_csv(DATA / "evidence" / "measured.csv", dtype=str).fillna("")
    judged = tm.validate(shipped[shipped.kind == "inference-LLM"].head(40))
    asked = judged[(judged.skipped == "") & (judged.weight > 0)]
    table = tm.nearest(asked[list(shipped.columns)], count=1)
    assert table.octaves.median() == 0


# --- at the terminal ---------------------------------------------------------------------------------------------


def call(*args):
    result = CliRunner().invoke(app, ["validate", *map(str, args)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_few_rows_are_printed_with_their_band_and_nearest_rows():
    status, out, error = call(FILES / "own.csv")
    lines = out.splitlines()
    assert (status, error) == (0, "")
    assert "line 2, TPOT: measured 9.5 ms, predicted 8" in lines[0]
    assert "the band." in lines[0]
    assert sum(line.startswith("  nearest ") for line in lines) == 10
    assert lines[-1].startswith("2 rows read, 0 refused, 2 predicted: median error ")


def test_many_rows_are_a_table_of_groups():
    status, out, _ = call(FILES / "vllm_appended.json", FILES / "vllm_old.json")
    assert status == 0
    assert out.splitlines()[0].split()[:3] == ["file", "metric", "rows"]
    assert "No prediction of 12 rows such as requests per second: machine, tp: not stated" in out
    assert "(missing: machine)" in out
    assert "state no number format" in out


def test_the_status_says_the_cause(tmp_path):
    assert call(VLLM)[0] == 3  # read, and nothing can be asked
    assert call(FILES / "no-such-file")[0] == 2
    assert call(written(tmp_path, "poem.txt", "Roses are red"))[0] == 2
    assert call(VLLM, "--system", "trn9")[0] == 2
    assert call(VLLM, "--set", "tpp=8")[0] == 2
    assert call(VLLM, "--set", "tpp")[0] == 2
    assert call(VLLM, "--system", "trn2.48xlarge", "--tp", 8)[0] == 0


def test_json_and_csv_hold_every_row(tmp_path):
    target = tmp_path / "rows.csv"
    status, out, _ = call(VLLM, "--system", "trn2.48xlarge", "--tp", 8, "--json", "-o", target)
    data, table = json.loads(out), pd.read_csv(target)
    assert status == 0
    assert len(data["rows"]) == len(table) == 12
    assert all(len(row["nearest"]) == 5 for row in data["rows"])
    call(written(tmp_path, "f.json", changed(VLLM, model_id="=1+1")), "-o", target)
    assert set(pd.read_csv(target).workload) == {"'=1+1"}
    assert {"file", "line", "predicted", "low", "high", "inside", "basis", "missing"} <= {*table}
    assert data["summary"]["predicted"] == 12
    assert data["summary"]["refused"] == len(data["refused"]) == 0


def test_hostile_names_are_printed_escaped(tmp_path):
    path = written(tmp_path, "a\x1b[2Jb.json", changed(VLLM, model_id="x\x1b]0;y\x07z", p99_ttft_ms=1.0))
    for args in ((path,), (path, "--system", "trn2.48xlarge", "--tp", 8), (path, "--json")):
        _, out, error = call(*args)
        assert "\x1b" not in out + error
        assert "\x07" not in out + error


# --- no file raises ---------------------------------------------------------------------------------------------


def survives(path, content):
    """Read a file, whatever it holds: rows, refusals, or one clear error; and ask what was read."""
    path.write_bytes(content)
    try:
        read_ = tm.read_measurements(path, {"system": "trn2.48xlarge"} if len(content) % 2 else None)
    except ValueError as error:
        if not str(error).startswith("paths="):
            raise
        return
    assert len(read_.rows) + len(read_.refused), content[:200]
    assert read_.refused.reason.str.len().gt(0).all()
    assert pd.to_numeric(read_.rows.line).ge(1).all()
    tm.validate(read_.rows.head(3))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), path=st.sampled_from(EVERY))
def test_a_truncated_or_mutated_file_gives_rows_or_a_clear_refusal(tmp_path, data, path):
    content = path.read_bytes()
    end = data.draw(st.integers(0, len(content)), "end")
    cut = bytearray(content[:end] if data.draw(st.booleans(), "cut") else content)
    for _ in range(data.draw(st.integers(0, 4), "changes") if cut else 0):
        at = data.draw(st.integers(0, len(cut) - 1))
        change = data.draw(
            st.sampled_from(
                [b"", b"0", b"-", b"9" * 30, b'"', b"{", b"]", b",", b"\n", b"\x00", b"\xff", b"NaN", b"e", b"null"]
            )
        )
        width = data.draw(st.integers(0, 12))
        cut[at : at + width] = change
    survives(tmp_path / path.name, bytes(cut))


WORDS = [
    None,
    True,
    [],
    {},
    "",
    "x",
    -1,
    0,
    1e400,
    float("nan"),
    10**400,
    "9" * 50,
    [1, [2]],
    {"a": {"b": 1}},
    "\x1b[2J",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), path=st.sampled_from([path for path in EVERY if path.suffix == ".json"]))
def test_json_with_other_values_gives_rows_or_a_clear_refusal(tmp_path, data, path):
    """A value of another type at any place: what is no number, no list and no object there."""
    values = (
        [json.loads(line) for line in path.read_text().splitlines()]
        if "appended" in path.name
        else [json.loads(path.read_text())]
    )
    here = values[0]
    for _ in range(6):
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            here[key] = data.draw(st.sampled_from(WORDS))
            break
        here = here[key]
    survives(tmp_path / path.name, "\n".join(map(json.dumps, values)).encode())


@example(text="{")
@example(text="[1,")
@example(text="Metric,avg,min\n")
@example(text='"Metric,avg\n')
@example(text="rows:\n- &a [*a]\n")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200))
def test_any_text_gives_a_clear_refusal(tmp_path, text):
    for suffix in (".json", ".csv", ".yaml", ".log"):
        survives(tmp_path / f"any{suffix}", text.encode("utf-8", errors="surrogatepass"))
