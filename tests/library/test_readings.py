"""Cells of measured rows by hand: units, lengths, degrees, batches, machines and formats, each as a row prints it."""

import math
import os
from dataclasses import replace

import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.evidence import readings
from trnmodel.evidence import rows as rows_of
from trnmodel.evidence.cells import COLUMNS, TINY, UnreadableRowError, measure, number, text, tokens
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
NAN = math.nan
BLANK = dict.fromkeys(readings.COUNTS, NAN)
SAID = dict.fromkeys(readings.READ, "")

SIZES_OF_UNITS = {
    "decode-step": {"s": 1, "sec": 1, "seconds": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "hours": 3600},
    "kernel-time": {"ns": 1e-9, "us": 1e-6, "h": 3600},
    "decode-throughput": {
        "tokens/s": 1,
        "tok/s": 1,
        "ktok/s": 1e3,
        "Mtokens/s": 1e6,
        "tok/min": 1 / 60,
        "ktokens/min": 1e3 / 60,
        "Mtok/h": 1e6 / 3600,
    },
    "generated-throughput-batch": {"tokens/s": 1},
    "decode-speed": {"tok/s/user": 1, "ktokens/min/stream": 1e3 / 60, "tok/h": 1 / 3600},
    "train-tokens": {"tok/s/GPU": 1, "ktok/s/chip": 1e3, "tokens/s/device": 1, "tokens/s": 1},
    "forward-throughput": {"inf/s": 1, "sequences/min": 1 / 60, "samples/h": 1 / 3600, "seq/s": 1, "req/min": 1 / 60},
    "train-sequences": {"seq/s": 1, "req/h": 1 / 3600},
    "served-requests": {"req/s": 1, "req/min": 1 / 60, "req/h": 1 / 3600},
    "decode-mbu": {"%": 0.01, "fraction": 1},
    "prefill-mfu": {"%": 0.01, "fraction": 1},
    "kernel-read-bytes": {"KB": 1e3, "MB": 1e6, "GB": 1e9, "MiB": 2**20, "GiB": 2**30, "bytes": 1, "B": 1},
    "memory:cache": {"GiB": 2**30, "MB": 1e6},
    "kernel-flop-rate": {"TFLOPS": 1e12},
    "collective-busbw": {"GB/s": 1e9, "GiB/s": 2**30, "MiB/s": 2**20},
    "collective-algbw": {"KB/s": 1e3},
    "kernel-byte-rate": {"bytes/s": 1},
    "chip-elements": {"Gelement/s": 1e9},
    "critical-batch": {"tokens": 1},
}
RATES = [
    "decode-throughput",
    "generated-throughput-batch",
    "decode-speed",
    "train-tokens",
    "forward-throughput",
    "train-sequences",
    "served-requests",
    "decode-mbu",
    "prefill-mfu",
    "kernel-flop-rate",
    "collective-busbw",
    "collective-algbw",
    "kernel-byte-rate",
    "chip-elements",
]


@pytest.mark.parametrize("meaning", SIZES_OF_UNITS)
def test_units_by_hand(meaning):
    known = readings._units(meaning)
    for unit, size in SIZES_OF_UNITS[meaning].items():
        assert known[unit] == pytest.approx(size, rel=1e-12), unit
        assert readings._scale(meaning, ROW | {"unit": unit}, "") == pytest.approx(size, rel=1e-12)
    assert readings.is_rate(meaning) is (meaning in RATES)


def test_a_unit_in_the_metric_or_of_another_meaning():
    assert readings._scale("decode-step", ROW | {"metric": "TPOT (ms)", "unit": ""}, "") == 1e-3
    assert readings._scale("decode-step", ROW | {"metric": "TPOT (s)", "unit": "ms per token"}, "") == 1e-3
    assert readings._scale("memory:cache", ROW | {"unit": "MB"}, "MB=MiB") == 2**20
    assert readings._scale("memory:cache", ROW | {"unit": "GB"}, "MB=MiB") == 1e9
    assert readings._scale("decode-step", ROW | {"metric": "latency (msec)", "unit": ""}, "") == 1e-3
    assert readings._scale("decode-step", ROW | {"unit": "milliseconds"}, "") == 1e-3
    assert reading(ROW).rounding == 0
    assert (reading(ROW).new_tokens, reading(ROW).waves, reading(ROW).moe_ep, reading(ROW).machines) == (1, 0, 1, 1)


@pytest.mark.parametrize(
    ("given", "replicas", "found"),
    [
        ({"tp": 16.0, "lnc": 2.0}, NAN, (16, 1, 1, 2)),
        ({"n_cores_used": 96.0, "lnc": 2.0, "pp": 3.0, "dp": 4.0}, NAN, (4, 3, 4, 2)),  # 96 / 2 / 3 / 4
        ({"n_cores_used": 96.0, "pp": 3.0}, NAN, (32, 3, 1, None)),
        ({"n_cores_used": 96.0}, 6.0, (1, 1, 6, None)),  # copies of one core each
        ({"tp": 8.0, "dp": 3.0}, 6.0, (8, 1, 6, None)),
        ({"n_cores_used": 1.0, "lnc": 2.0}, NAN, (1, 1, 1, 2)),
        ({}, NAN, (1, 1, 1, None)),
        ({"lnc": 2.0}, NAN, (1, 1, 1, 2)),
    ],
)
def test_degrees_by_hand(given, replicas, found):
    assert readings._mapping(BLANK | given, replicas) == found


def test_cores_that_leave_no_whole_ranks():
    with pytest.raises(UnreadableRowError, match="n_cores_used: 10 cores at LNC 2, PP 2, DP 1 leave no whole TP"):
        readings._mapping(BLANK | {"n_cores_used": 10.0, "lnc": 2.0, "pp": 2.0}, NAN)


@pytest.mark.parametrize(
    ("given", "machines", "replicas"),
    [
        ({"n_cores_used": 96.0, "tp": 8.0, "pp": 3.0}, 1, 4),  # as the row names them
        ({"tp": 8.0}, 1, 4),  # 16 chips of two cores
        ({"tp": 8.0, "pp": 2.0}, 3, 6),  # of three machines
        ({"tp": 5.0}, 1, 6),  # 32 / 5, rounded down
        ({"tp": 64.0}, 1, 1),
        ({}, 1, 32),
    ],
)
def test_replicas_of_a_job_that_prints_none(given, machines, replicas):
    assert readings._replicas(BLANK | given, tm.system("trn1.32xlarge"), machines) == replicas


def test_replicas_are_of_logical_cores():
    """16 chips of 8 physical cores, two a rank: 64 ranks at LNC 2, and 128 at LNC 1; or of the 32 cores it names."""
    where = tm.system("trn2.48xlarge")
    assert readings._replicas(BLANK | {"lnc": 2.0, "tp": 8.0}, where, 1) == 8
    assert readings._replicas(BLANK | {"lnc": 1.0, "tp": 8.0}, where, 1) == 16
    assert readings._replicas(BLANK | {"lnc": 2.0, "tp": 8.0, "n_cores_used": 32.0}, where, 1) == 2


@pytest.mark.parametrize(
    ("batch", "say", "replicas", "active", "compiled", "clients"),
    [
        (3.0, {}, 1, 3, 3, NAN),
        (NAN, {}, 1, 1, 1, NAN),
        (3.0, {"batch": "8"}, 1, 3, 8, NAN),  # a compiled batch
        (12.0, {"batch": "total"}, 4, 3, 3, NAN),  # over all replicas
        (2.0, {"batch": "total"}, 4, 1, 1, NAN),
        (12.0, {"batch": "total:20"}, 4, 3, 5, NAN),
        (12.0, {"batch": "20"}, 4, 12, 20, NAN),  # of each
        (NAN, {"clients": "24"}, 4, 6, 6, 6),  # a slot for each client
        (NAN, {"clients": "2"}, 4, 1, 1, 0.5),
        (8.0, {"clients": "24"}, 4, 6, 8, 6),
        (4.0, {"clients": "24"}, 4, 4, 4, 6),  # no more than slots
        (8.0, {"clients": "24", "active": "2"}, 4, 2, 8, 6),
        (NAN, {"clients": "24", "batch": "16"}, 2, 12, 16, 12),
        (3.0, {"active": "0.5"}, 1, 1, 3, NAN),
        (3.0, {"batch": "1"}, 1, 3, 3, NAN),
    ],
)
def test_batches_by_hand(batch, say, replicas, active, compiled, clients):
    found = readings._batches(BLANK | {"batch": batch}, SAID | say, replicas)
    assert found == pytest.approx({"batch": active, "compiled_batch": compiled, "clients": clients}, nan_ok=True)


@pytest.mark.parametrize(("policy", "allowed"), [("1", True), (str(2**40), True), ("0.5", False), (str(2**41), False)])
def test_a_compiled_batch_is_a_number_from_one(policy, allowed):
    if allowed:
        assert readings._batches(BLANK, SAID | {"batch": policy}, 1)["compiled_batch"] == float(policy)
        return
    with pytest.raises(UnreadableRowError, match="a compiled batch of"):
        readings._batches(BLANK, SAID | {"batch": policy}, 1)


LENGTHS = BLANK | {"input_len": 100.0, "output_len": 60.0, "seq_len": 512.0}


@pytest.mark.parametrize(
    ("change", "policies", "found"),
    [
        # input, output, prompt, context, the longest
        ({}, {}, (100, 60, 100, 160, 512)),
        ({}, {"context": "seq", "prompt": "seq"}, (100, 60, 512, 512, 512)),
        ({}, {"context": "median", "prompt": "input"}, (100, 60, 100, 131, 512)),
        ({}, {"context": "middle", "prompt": "median"}, (100, 60, 131, 130, 512)),
        ({}, {"context": "777", "prompt": "55", "longest": "9999"}, (100, 60, 55, 777, 9999)),
        ({"output_len": NAN}, {}, (100, 412, 100, 512, 512)),
        ({"output_len": NAN, "seq_len": 100.0}, {}, (100, NAN, 100, 100, 100)),
        ({"output_len": NAN, "seq_len": NAN}, {}, (100, NAN, 100, 100, 100)),
        ({"input_len": NAN}, {}, (512, 60, 512, 512, 512)),
        ({"input_len": NAN}, {"prompt": "70"}, (70, 60, 70, 512, 512)),
        ({"seq_len": NAN}, {}, (100, 60, 100, 160, 160)),
        ({"input_len": NAN, "output_len": NAN, "seq_len": NAN}, {"context": "33"}, (NAN, NAN, NAN, 33, 33)),
        ({"input_len": NAN, "output_len": NAN, "seq_len": NAN}, {"prompt": "44"}, (44, NAN, 44, NAN, 44)),
    ],
)
def test_lengths_by_hand(change, policies, found):
    names = ("input_tokens", "output_tokens", "prompt", "context", "max_context")
    assert readings._lengths(LENGTHS | change, policies) == pytest.approx(
        dict(zip(names, found, strict=True)), nan_ok=True
    )


@pytest.mark.parametrize(
    ("printed", "name", "experts"),
    [
        ("", "bf16", "bf16"),
        ("BF16", "bf16", "bf16"),
        ("FP8", "fp8", "fp8"),
        ("float8 e4m3, fp8", "fp8", "fp8"),
        ("FP8 experts", "fp8-experts", "fp8"),
        ("MoE in FP8", "fp8-experts", "fp8"),
        ("w4a8", "w4a8", None),
        ("MXFP8", "mxfp8", None),
        ("MXFP4", "mxfp4-moe", None),
        ("INT8", "int8", "int8"),
        ("not printed", "bf16", "bf16"),
        ("FP16 experts", "bf16", "bf16"),
        ("FP32; autocast", "bf16", "bf16"),
    ],
)
def test_formats_as_rows_print_them(printed, name, experts):
    found = readings._printed_precision(printed)
    assert found.name == name
    assert experts in (None, found.experts)


def test_a_format_that_is_none():
    with pytest.raises(UnreadableRowError, match="names no format"):
        readings._printed_precision("quick")


def test_formats_that_a_rule_says():
    assert readings._precision("int8+fp8", "BF16") == replace(load.precision("int8"), kv="fp8")
    assert readings._precision("fp8", "BF16") == load.precision("fp8")
    wide = readings._precision("fp32-autocast", "BF16")
    assert (wide.weights, wide.compute, wide.attention, wide.kv) == ("fp32", "bf16", "bf16", "fp32")
    assert readings._precision("", "FP8") == load.precision("fp8")


@pytest.mark.parametrize(
    ("printed", "where", "machines"),
    [
        ("trn2.48xlarge", "trn2.48xlarge", 1),
        ("4x trn1.32xlarge", "trn1.32xlarge", 4),
        ("12 x AWS trn1.32xlarge", "trn1.32xlarge", 12),
        ("0x trn1.32xlarge", "trn1.32xlarge", 1),
        ("Amazon EC2 inf2.48xlarge", "inf2.48xlarge", 1),
        ("trn2 UltraServer", "trn2-ultraserver", 1),
        ("8x H100 SXM", "h100", 8),
        ("GB200 NVL72", "gb200", 1),
        ("platform not stated", "not stated", 1),
        ("hgx-h100 (8 GPUs)", "h100", 1),
        ("123456x trn1.32xlarge", "trn1.32xlarge", 1),
        ("MI355X", "mi355x", 1),
    ],
)
def test_machines_as_rows_print_them(printed, where, machines):
    assert (readings._where(printed), readings._machines(printed)) == (where, machines)


def test_an_instance_by_family_and_size():
    """One system of the catalog begins "trn3" and ends ".3xlarge"; of trn1 two end ".32xlarge", named in full."""
    known = [name for name in tm.systems() if name.startswith("trn3") and name.endswith(".3xlarge")]
    assert readings._instance("trn3.3xlarge") == (known[0] if len(known) == 1 else "trn3.3xlarge")
    assert readings._instance("trn1.32xlarge") == "trn1.32xlarge"
    assert readings._instance("inf9.48xlarge") == "inf9.48xlarge"


def test_a_machine_that_a_row_names_several_times():
    """A tp of 64 is more than the 32 ranks of a trn1.32xlarge, so that it is the four that the row names."""
    row = replace(reading(ROW | {"instance": "trn1.32xlarge", "lnc": ""}), machines=4)
    assert readings.joined(row, 33).count == 4
    assert readings.joined(row, 32).count == 1
    assert readings.joined(replace(row, machines=1), 33).count == 1
    bare = replace(row, where="trainium1")
    assert readings.joined(bare, 33) == readings.machine(bare)


def test_a_machine_with_other_memory():
    """A rule may name the bandwidth; one layer has the room of as many stacks of HBM as the model has layers."""
    row = reading(ROW)
    assert readings.machine(row) is tm.system("trn2.48xlarge")
    chip = replace(row, where="trainium2", arguments=(("hbm_bytes_per_s", 2e12),))
    assert readings.machine(chip).hbm_bytes_per_s == 2e12
    assert readings.machine(chip).hbm_bytes == tm.chip("trainium2").hbm_bytes
    layer = replace(row, where="trainium2", arguments=(("one_layer", 1.0),))
    assert readings.machine(layer).hbm_bytes == 80 * tm.chip("trainium2").hbm_bytes
    assert readings.machine(layer).hbm_bytes_per_s == tm.chip("trainium2").hbm_bytes_per_s
    with pytest.raises(UnreadableRowError, match="instance 'trn9' is unknown"):
        readings.machine(replace(row, where="trn9"))


def test_numbers_of_shapes():
    """From 1 to 2^40; cores, ranks and LNC whole; a length in thousands of 1,024."""
    found = readings.counts(ROW | {"tp": "TP8", "n_cores_used": "16 cores", "input_len": "4k", "batch": "1.5"})
    assert (found["tp"], found["n_cores_used"], found["input_len"], found["batch"]) == (8, 16, 4096, 1.5)
    assert math.isnan(found["pp"])
    assert readings.counts(ROW | {"batch": str(2**40), "tp": "1"})["batch"] == 2**40
    wrong = (("tp", "1.5"), ("batch", "0.5"), ("batch", str(2**40 + 2**20)), ("dp", "many"), ("seq_len", "0"))
    for column, cell in wrong:
        kind = "numbers" if column in ("batch", "seq_len") else "whole numbers"
        with pytest.raises(UnreadableRowError) as error:
            readings.counts(ROW | {column: cell})
        assert str(error.value) == f"{column} '{cell}': allowed are {kind} from 1 to {2**40}, or a blank cell"


def test_a_file_of_as_many_rows_and_columns_as_are_allowed(monkeypatch, tmp_path):
    """Of three lines and two columns; a short line ends in a blank cell and a line of blanks is none."""
    monkeypatch.setattr(rows_of, "MAX_ROWS", 3)
    monkeypatch.setattr(rows_of, "MAX_COLUMNS", 2)
    path = tmp_path / "mine.csv"
    path.write_text("tp,dp\n1,2\n , \n3\n")
    assert rows_of._from_csv(path).values.tolist() == [["1", "2"], ["3", ""]]
    for text_, why in (
        ("tp,dp\n1,2\n3,4\n5,6\n7,8\n", "more than 3 rows"),
        ("tp,dp,pp\n1,2,3\n", "3 columns; allowed are at most 2"),
        ("tp,dp\n1,2\n3,4,5\n", "record 3 has 3 cells for 2 columns"),
        ("", "not a readable CSV file: it is empty"),
    ):
        path.write_text(text_)
        with pytest.raises(ValueError, match=f": {why}$"):
            rows_of._from_csv(path)


def test_a_message_in_bytes():
    for name, size in (("message_kib", 2**10), ("message_mib", 2**20), ("message_gib", 2**30)):
        assert dict(readings.call_arguments({name: "3"})) == {"message_bytes": 3 * size}
    found = dict(readings.call_arguments({"kind": "All-Reduce", "ranks": "64", "stack": "ideal", "parts": "up|down"}))
    assert found == {"kind": "all_reduce", "ranks": 64.0, "parts": "up|down"}


def test_a_measured_value_is_above_nothing():
    assert measure(ROW | {"value": f"{TINY:g}"}) == TINY
    for cell in ("0", "-1", "fast", f"{TINY / 2:g}"):
        with pytest.raises(UnreadableRowError, match="is no positive number"):
            measure(ROW | {"value": cell})


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("4k", 4096),
        ("~16K", 16384),
        ("8K (264 pages of 32)", 8192),
        ("4k (~4000)", 4000),
        ("bucket 128", 128),
        ("1234567k", NAN),
        ("123456k", 123456 * 1024),
        ("2-4", 3),
        ("", NAN),
    ],
)
def test_lengths_in_thousands(cell, value):
    assert tokens(cell) == pytest.approx(value, nan_ok=True)


def test_the_largest_number_of_a_cell():
    """Up to 1e30, of either sign; texts of numbers have fifteen digits."""
    assert [number(x) for x in ("1e30", "-1e30", 1e30, -1e30)] == [1e30, -1e30, 1e30, -1e30]
    assert all(math.isnan(number(x)) for x in ("1.01e30", "-1.01e30", 1.01e30, -1.01e30))
    assert [text(x) for x in (1e30, 1.01e30, -1e30, 0.1, 1234567890123456, 2.0)] == [
        "1e+30",
        "beyond 1e30",
        "-1e+30",
        "0.1",
        "1.23456789012346e+15",
        "2",
    ]


@pytest.mark.parametrize(
    ("question", "metric", "unit", "means"),
    [
        ("train-sequences", "throughput", "tok/s", "train-tokens"),
        ("train-sequences", "throughput", "tok/s/GPU", "train-tokens-chip"),
        ("train-sequences", "throughput", "seq/s", "train-sequences"),
        ("kernel-flop-rate", "rate", "GB/s", "kernel-byte-rate"),
        ("kernel-flop-rate", "rate", "TFLOPS", "kernel-flop-rate"),
        ("decode-throughput", "throughput", "tok/s/user", "decode-speed"),
        ("served-throughput", "throughput per stream", "tok/s", "loaded-speed"),
        ("served-throughput", "throughput", "tokens/s per user", "loaded-speed"),
        ("prefill", "TTFT per user", "ms", "prefill"),
        ("decode-step", "TPOT per chip", "ms", "decode-step"),
        ("decode-throughput", "throughput", "tok/s", "decode-throughput"),
        ("decode-throughput", "throughput", "tok/s/GPU", ""),
        ("served-requests", "requests per card", "req/s", ""),
    ],
)
def test_a_question_by_what_its_unit_is_of(question, metric, unit, means):
    row = ROW | {"metric": metric, "unit": unit}
    if means:
        assert readings._meaning(question, row) == means
        return
    with pytest.raises(UnreadableRowError, match="of a part of the machine"):
        readings._meaning(question, row)


def test_the_largest_file_table_and_cell(tmp_path):
    """64 MiB, 1,000 columns, 100,000 rows, 2,000 characters; one more is refused, each with what is allowed."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"")
    os.truncate(path, 64 * 2**20)
    assert len(rows_of._content(path)) == 64 * 2**20
    os.truncate(path, 64 * 2**20 + 1)
    with pytest.raises(ValueError, match="the file is too large"):
        tm.validate(path)
    needed = "instance,workload,metric,value,unit"
    for columns, refused in ((1000, False), (1001, True)):
        path.write_text(",".join([needed, *(f"c{n}" for n in range(columns - 5))]) + "\n")
        if refused:
            with pytest.raises(ValueError, match="1001 columns; allowed are at most 1000"):
                rows_of.read_table(path)
        else:
            assert rows_of.read_table(path).empty
    for rows, refused in ((100_000, False), (100_001, True)):
        path.write_text(needed + "\n" + "a,b,c,1,s\n" * rows)
        if refused:
            with pytest.raises(ValueError, match="more than 100000 rows"):
                rows_of.read_table(path)
        else:
            assert len(rows_of.read_table(path)) == rows
    assert reading(ROW | {"note": "x" * 2000}).batch == 3
    with pytest.raises(UnreadableRowError, match="note: a cell of 2001 characters; allowed are 2000"):
        reading(ROW | {"note": "x" * 2001})


def test_rows_of_a_file_that_are_short_or_blank(tmp_path):
    """A short row ends in blank cells, a blank one is none, and one with more cells than columns is refused."""
    path = tmp_path / "rows.csv"
    path.write_text(" Instance ;workload;metric;value;unit;Mine\na;b;c;1\n ; ;\nd;e;f;2;s;x\n")
    found = rows_of.read_table(path)
    assert list(found) == ["instance", "workload", "metric", "value", "unit", "Mine"]
    assert found.to_numpy().tolist() == [["a", "b", "c", "1", "", ""], ["d", "e", "f", "2", "s", "x"]]
    path.write_text("instance,workload,metric,value,unit\na,b,c,1,s\na,b,c,1,s,t\n")
    with pytest.raises(ValueError, match="record 3 has 6 cells for 5 columns"):
        rows_of.read_table(path)


def test_a_table_of_products_is_one_of_times():
    """A product of 2 x 7 by 7 x 3 in 5 us; a table that has a workload of its own is left as it is."""
    made = pd.DataFrame({"instance": ["i"], "m": [2], "n": [3], "k": [7], "time_us": [5.0], "lnc": [2], "file": ["f"]})
    (row,) = rows_of.read_table(made).to_dict("records")
    told = {
        "workload": "GEMM product M=2 K=7 N=3",
        "value": 5.0,
        "unit": "us",
        "metric": "latency",
        "kind": "kernel",
        "phase": "kernel",
        "n_cores_used": 2,
        "note": "f",
    }
    assert row.items() >= told.items()
    assert "precision" not in row
    own = made.assign(workload="mine", value=9.0, metric="m", unit="s")
    assert rows_of.read_table(own) is own


def test_values_are_put_into_the_facts_that_were_fitted(tmp_path):
    path = tmp_path / "facts.csv"
    path.write_text("entity,quantity,value_printed,locator\na,q,1,fitted to rows\na,r,2,fitted\nb,q,3,printed\n")
    rows_of.put_fitted(path, {("a", "q"): "7", ("b", "q"): "8"})
    assert path.read_text().splitlines()[1:] == ["a,q,7,fitted to rows", "a,r,2,fitted", "b,q,3,printed"]


def test_a_file_that_a_command_writes(tmp_path):
    """Without an index, six digits of a number or as many as are asked for."""
    table = pd.DataFrame({"a": ["x"], "b": [1 / 3]}, index=[7])
    rows_of.save(table, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_bytes() == b"a,b\nx,0.333333\n"
    rows_of.save(table, tmp_path / "rows.csv", "%.2f")
    assert (tmp_path / "rows.csv").read_bytes() == b"a,b\nx,0.33\n"
    assert (reading(ROW).ep, reading(ROW).moe_ep) == (1, 1)
