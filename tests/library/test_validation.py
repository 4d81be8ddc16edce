"""Measured rows: what they mean, how well they are predicted, and what hostile tables get."""

import math
import os
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError, number
from trnmodel.evidence.columns import NAMES
from trnmodel.evidence.fit import EFFICIENCIES, GROUPS, MEANINGS, cases, refit, write
from trnmodel.evidence.names import aliases
from trnmodel.evidence.questions import QUESTIONS
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import LATER, MEASURED, PRODUCTS, THIRD, published
from trnmodel.evidence.score import counted, validate

ROW = {
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
    "instance": "trn2.48xlarge",
    "n_chips": "16",
    "n_cores_used": "128",
    "lnc": "2",
    "workload": "Llama-3.1-70B",
    "phase": "decode",
    "batch": "1",
    "input_len": "1024",
    "output_len": "1024",
    "seq_len": "2048",
    "tp": "64",
    "pp": "1",
    "dp": "1",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
    "note": "",
    "kind": "inference-LLM",
    "tier": "A",
}


def one(**change):
    return validate(pd.DataFrame([ROW | change])).iloc[0]


@pytest.fixture
def table(validated):
    return validated


def test_every_row_is_predicted_or_says_why(table):
    collections = 801 + 94 + 344 + 39  # three times of a row of exchanges
    assert len(table) == sum(len(pd.read_csv(path)) for path in (MEASURED, LATER, THIRD, PRODUCTS)) + collections
    assert ((table.skipped == "") == table.predicted.notna()).all()
    done = table[table.skipped == ""]
    assert (done.predicted > 0).all()
    assert (done.low <= done.predicted * (1 + 1e-9)).all()
    assert (done.high >= done.predicted * (1 - 1e-9)).all()
    value = done.value.map(number)
    np.testing.assert_allclose(done.error, done.predicted / value - 1)
    assert done[done.weight == 0].set_aside.ne("").all()
    assert table.group.ne("").all()


def test_most_inference_rows_are_predicted(table):
    rows = table[table.kind.isin(["inference-LLM", "inference-encoder", "memory-footprint"])]
    assert (rows.skipped == "").mean() > 0.8


@pytest.mark.slow
def test_shipped_efficiencies_are_those_of_the_fit(tmp_path):
    """A fit on the shipped rows ends where `data/facts/efficiencies.csv` stands, in the digits that it prints."""
    table = refit(published())
    assert set(table.group) == set(GROUPS) - {"comparator", "gpu-all-reduce"}
    np.testing.assert_allclose(table.fitted, table.in_force, rtol=1e-3)
    rows = tmp_path / "efficiencies.csv"
    rows.write_bytes(EFFICIENCIES.read_bytes())
    write(table.assign(fitted=0.9 * table.in_force).head(1), rows)
    old, new = (pd.read_csv(path).value_printed for path in (EFFICIENCIES, rows))
    changed = [(a.split("-"), b.split("-")) for a, b in zip(old, new, strict=True) if a != b]
    assert len(changed) == 1
    before, after = (np.array(ends, dtype=float) for ends in changed[0])
    np.testing.assert_allclose(after, 0.9 * before, rtol=1e-4)


def test_weights_that_are_inputs_of_a_traced_graph_stay_wide():
    """T5 on NeuronX Distributed: the page says FP32 with BF16 products; its weights move as FP32."""
    t5 = {
        "source": "aws-neuron-sdk general/benchmarks/inf2/latency_data_encoder_decoder.csv",
        "date_or_sdk": "2024-04-11 (first seen); SDK 2.18.0",
        "instance": "inf2.24xlarge",
        "lnc": "",
        "workload": "t5-3b",
        "tp": "8",
        "n_cores_used": "8",
        "metric": "latency per token p50",
        "input_len": "128",
        "output_len": "84",
        "seq_len": "128",
        "phase": "decode",
        "value": "9.25",
    }
    wide = one(**t5, precision="FP32; autocast Matmult-BF16")
    assert wide.skipped == ""
    assert -0.35 < wide.error < 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~200", 200),
        ("1500±150", 1500),
        ("4k (~4096)", 4096),
        ("17-19", 18),
        ("1,024", 1024),
        (12, 12),
        ("FP32", math.nan),
        ("", math.nan),
        ("1,5", math.nan),
        ("12,34", math.nan),
        ("1,024,000", 1024000),
        ("1024 (2)", 1024),
        ("1-1e999", math.nan),
        ("9" * 400, math.nan),
        (10**400, math.nan),
        (math.inf, math.nan),
        (True, math.nan),
        (None, math.nan),
        ([1], math.nan),
    ],
)
def test_numbers_as_tables_print_them(text, value):
    assert number(text) == pytest.approx(value, nan_ok=True)


def test_groups_and_aliases_are_complete():
    assert {meaning for group in MEANINGS.values() for meaning in group} <= set(QUESTIONS)
    for _, model in aliases():
        assert tm.model(model).total_params > 0


def test_a_duplicate_page_counts_once(table):
    """A page of 2024-04-11 stands a second time with the format of its weights: one run, one vote."""
    rows = table[table.workload.str.contains("Llama-2-13b") & (table.skipped == "")]
    first, second = (rows[rows.source.str.contains(commit)] for commit in ("8907253c", "decoder.csv"))
    assert len(first)
    again = second[~second.source.str.contains("8907253c")]
    assert set(first.configuration) & set(again.configuration)
    assert counted(table).configuration.is_unique


def test_compiled_batch_runs():
    """Seed-OSS compiled for 120 takes as long with 40 as with 120 active; the note says which batch is compiled."""
    seed = {
        "source": "Seed-OSS-36B-Instruct on Trainium2",
        "workload": "Seed-OSS-36B-Instruct",
        "tp": "8",
        "seq_len": "1536",
        "input_len": "1000",
        "output_len": "500",
        "metric": "ITL median",
        "n_cores_used": "16",
    }
    note = "max-num-seqs (compiled decode batch) 120, concurrency 40: ITL follows the compiled batch"
    assert one(**seed, batch="40", note=note).predicted == one(**seed, batch="120", note=note).predicted


def test_old_pages_divide_the_run_by_all_tokens():
    """8.66, 4.39 and 0.38 ms a token are one machine at three splits of the tokens."""
    old = {
        "source": "aws-neuron-sdk general/benchmarks/inf2/latency_data_decoder.csv",
        "date_or_sdk": "2024-02-13 (first seen); SDK 2.17.0",
        "instance": "inf2.48xlarge",
        "lnc": "",
        "workload": "Llama-2-13b",
        "tp": "24",
        "n_cores_used": "24",
        "metric": "latency per token p50",
        "phase": "decode (per token?) as printed",
    }
    for given, out, value in ((128, 3968, 8.66), (1024, 1024, 4.39), (3968, 128, 0.38)):
        row = one(**old, input_len=str(given), output_len=str(out), seq_len=str(given + out), value=str(value))
        assert abs(row.error) < 0.15


@pytest.mark.parametrize(
    "change",
    [
        {"workload": "CodeLlama-13B", "tp": "8", "instance": "inf2.48xlarge", "lnc": "", "n_cores_used": "8"},
        {"workload": "meta-llama/Llama-3.1-405B-Instruct", "precision": "FP8"},
        {"workload": "Qwen_Qwen3-14B", "tp": "", "n_cores_used": "16"},
        {"workload": "mistralai/Mistral-Small-24B", "tp": "8", "metric": "TTFT", "unit": "s", "phase": "prefill"},
        {"workload": "Qwen3-235B-A22B", "metric": "inter-token latency mean", "kind": "inference-LLM-serving"},
        {"instance": "trn3-nl72x2-pcie160", "metric": "ITL"},
        {"seq_len": "", "metric": "throughput", "phase": "e2e", "unit": "tokens/s"},
        {
            "workload": "bert-large-uncased",
            "kind": "inference-encoder",
            "metric": "latency p50",
            "tp": "",
            "instance": "inf2.xlarge",
            "lnc": "",
            "n_cores_used": "2",
            "seq_len": "128",
            "input_len": "",
            "output_len": "",
        },
    ],
)
def test_unseen_rows_are_predicted(change):
    row = one(**change)
    assert row.skipped == ""
    assert row.predicted > 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"workload": "Nobody-1T"}, "no configuration"),
        ({"instance": "trn9.48xlarge"}, "trn9"),
        ({"unit": "parsecs"}, "parsecs"),
        ({"value": "fast"}, "no positive number"),
        ({"value": "-3"}, "no positive number"),
        ({"batch": "-4"}, "batch"),
        ({"tp": "5000"}, "more ranks"),
        ({"tp": "0"}, "tp"),
        ({"lnc": "7"}, "lnc"),
        ({"kind": "weather", "metric": "rain"}, "no pattern"),
        ({"input_len": "", "output_len": "", "seq_len": ""}, "no context"),
        ({"metric": "TPOT mean", "note": "EAGLE3; acceptance 69 %"}, "a draft"),
        ({"workload": "\0", "note": "'; drop table"}, "no configuration"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(change, reason):
    row = one(**change)
    assert math.isnan(row.predicted)
    assert reason in row.skipped


def test_models_of_the_caller_come_first():
    rows = pd.DataFrame([ROW | {"workload": "my-model"}])
    assert validate(rows, models={"my-model": "llama-3.1-70b"}).iloc[0].skipped == ""
    assert validate(rows, models={"my-model": tm.model("qwen3-32b")}).iloc[0].model == "qwen3-32b"


NUMBERS = ["n_cores_used", "lnc", "batch", "input_len", "output_len", "seq_len", "tp", "pp", "dp"]
SPOILT = ["0", "-1", "-1e9", "1e400", "nan", "inf", "-inf", "9" * 400, "1-1e999", "1e30", "0.5", "many", "None"]
SPOILT += ["1,2,3", "[1, 2]", "True", "a\0b", "1e-400", "0-0", "5--3", "9-1", "(~0)", f"4k (~{'9' * 500})", "x" * 5000]
OBJECTS = [math.inf, -math.inf, 10**400, 10**5000, -1, 0, True, [1, 2], {"a": 1}, {1}, (1,), object(), b"1", 1j, type]
OBJECTS += [np.array([1.0, 2.0]), np.array([]), pd.DataFrame(), np.float16(0), np.longdouble("1e400"), Decimal("NaN")]


@pytest.mark.parametrize("column", [*NUMBERS, "value", "precision", "unit"])
def test_a_spoilt_cell_names_its_column(column):
    frame = pd.DataFrame([ROW] * (len(SPOILT) + len(OBJECTS))).astype(object)
    frame[column] = pd.Series([*SPOILT, *OBJECTS], dtype=object)
    if column == "value":  # half a millisecond is a measurement, and so is a thousand million years
        frame = frame[~frame.value.isin(["0.5", "1e30"])]
    table = validate(frame)
    assert table.predicted.isna().all()
    assert table.skipped.str.contains(column).all(), table[~table.skipped.str.contains(column)].skipped.tolist()
    assert table.skipped.str.len().max() < 250


def test_a_unit_belongs_to_its_meaning():
    assert one(unit="GB").skipped == "unit 'GB': units of decode-step are s, sec, seconds, ms, us, min, h, hours"
    assert "unit" in one(metric="throughput", phase="e2e", unit="req/s").skipped
    assert one(metric="throughput", phase="e2e", unit="tokens/s").skipped == ""
    # sysfs prints MiB and calls them MB; who writes GiB means GiB: 1,024 of them each
    stored = {"kind": "memory-footprint", "metric": "KV cache", "phase": "decode", "batch": "1"}
    mega, giga = one(**stored, unit="MB", note="sysfs peak"), one(**stored, unit="GiB")
    assert mega.predicted == pytest.approx(1024 * giga.predicted)
    assert "unit" in one(**stored, unit="ms").skipped


def spoiled(rng, frame):
    """The frame with one to three hostile cells in about half of its rows, and which rows those are."""
    frame, touched = frame.astype(object).copy(), rng.random(len(frame)) < 0.5
    for label in frame.index[touched]:
        for column in rng.choice(frame.columns, rng.integers(1, 4), replace=False):
            cell = rng.choice(SPOILT) if rng.random() < 0.7 else OBJECTS[rng.integers(len(OBJECTS))]
            frame.at[label, column] = cell
    return frame, touched


@pytest.mark.parametrize("seed", range(8))
def test_hostile_cells_spoil_their_own_rows_alone(seed, table):
    rng = np.random.default_rng(seed)
    rows = pd.read_csv(MEASURED, dtype=str, keep_default_na=False)
    names = [name for name in (*COLUMNS, *NAMES) if name in rows]
    rows = rows.iloc[rng.choice(len(rows), 300, replace=False)]
    hostile, touched = spoiled(rng, rows[names])
    found = validate(hostile)
    assert found.index.equals(rows.index)
    done = found.skipped == ""
    for column in ("predicted", "error", "low", "high"):
        assert np.isfinite(found[column][done]).all()
        assert found[column][~done].isna().all()
    assert (found.predicted[done] > 0).all()
    whole = table.loc[rows.index]
    kept = ["predicted", "error", "low", "high", "meaning", "configuration", "skipped"]
    pd.testing.assert_frame_equal(found.loc[~touched, kept], whole.loc[~touched, kept], rtol=0, atol=0)
    assert ((found.skipped != "") & touched).sum() > 20


def test_a_table_read_with_pandas_defaults_is_the_same_table(table):
    """pandas makes 64.0 of "64" beside a blank; the rules read both alike."""
    again = validate(pd.read_csv(MEASURED).iloc[::7])
    rows = again.index
    for column in ("predicted", "meaning", "configuration", "skipped"):
        assert again[column].equals(table[column].loc[rows])


def test_tables_that_are_none():
    for wrong in (7, None, [1, 2], {"a": 1}, b"measured.csv", np.ones((2, 2)), pd.Series([1]), object(), "x" * 10**6):
        with pytest.raises(ValueError, match=r"^rows=") as error:
            validate(wrong)
        assert len(str(error.value)) < 300
    with pytest.raises(ValueError, match=r"rows: columns .* are missing"):
        validate(pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match=r"rows: columns .* are missing"):
        validate(pd.DataFrame([list(ROW.values())], columns=pd.MultiIndex.from_product([["x"], ROW])))
    twice = pd.DataFrame([[*ROW.values(), "16"]], columns=[*ROW, "value"])
    with pytest.raises(ValueError, match=r"rows: columns .*value.* more than once"):
        validate(twice)
    with pytest.raises(ValueError, match="rows: 100001 rows; allowed are at most 100000"):
        validate(pd.DataFrame([ROW]).loc[[0] * 100_001])


def test_tables_that_are_odd_but_fine():
    expected = one().predicted
    frame = pd.DataFrame([ROW] * 2)
    assert validate(frame.astype("category")).predicted.tolist() == [expected] * 2
    assert (
        validate(frame.set_index(pd.MultiIndex.from_tuples([(1, "a"), (1, "a")]))).predicted.tolist() == [expected] * 2
    )
    assert validate(frame.set_index(pd.Index([math.nan, math.nan]))).predicted.tolist() == [expected] * 2
    assert validate(frame.assign(predicted="mine")).predicted.tolist() == [expected] * 2
    odd = frame.assign(more=[{}, []]).rename(columns={"more": 7})
    assert validate(odd)[7].tolist() == [{}, []]
    numbers = {"tp": np.int8(64), "batch": np.float32(1), "value": Decimal(15), "seq_len": 2048.0}
    assert one(**numbers, date_or_sdk=pd.Timestamp("2026-01-01")).predicted > 0
    assert one(lnc=None, n_chips=math.nan, pp=pd.NA, note=pd.NaT).predicted == one(lnc="", pp="").predicted
    empty = validate(pd.DataFrame(columns=COLUMNS))
    assert len(empty) == 0
    assert {*COLUMNS, "predicted", "skipped", "configuration"} <= {*empty.columns}


HEADER, LINE = ",".join(ROW), ",".join(ROW.values())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\n\n", "missing"),
        (b"," * 1000, "1001 columns; allowed are at most 1000"),
        (bytes(range(256)), "record 3 has 2 cells for 1 columns"),
        (f"{HEADER}\n{LINE}\n".encode("utf-16"), "UTF-16"),
        (f"{HEADER}\n{LINE},more\n".encode(), "record 2 has 23 cells for 22 columns"),
        (f"{HEADER},value\n{LINE},1\n".encode(), "more than once"),
        (f"{HEADER.replace('metric', 'measure')}\n{LINE}\n".encode(), "'metric'.* missing"),
        (f'{HEADER}\n"{LINE}\n'.encode(), "not a readable CSV file: line 2"),
        (f"{HEADER}\n{'x' * 200_000}\n".encode(), "field larger than field limit"),
        (f"{HEADER}\n".encode() + b"\n" * 100_001, "more than 100000 rows"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, reason):
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(ValueError, match=rf"^rows.*{reason}"):
        validate(tmp_path / "rows.csv")


def test_files_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    with (tmp_path / "large.csv").open("wb") as stream:
        stream.truncate(64 * 2**20 + 1)
    places = [tmp_path, *(tmp_path / name for name in ("nothing.csv", "pipe.csv", "loop.csv", "large.csv"))]
    names = ["/dev/zero", "/dev/stdin", "", "a\0b", "x" * 300, "x/" * 5000, "https://example.com/rows.csv"]
    for place in [*places, *map(str, places), *names]:
        with pytest.raises(ValueError, match=r"^rows=.*allowed is a readable CSV file") as error:
            validate(place)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "content",
    [
        f"\ufeff{HEADER}\n{LINE}\n",
        f"{HEADER}\r\n{LINE}\r\n",
        f"{HEADER}\r{LINE}\r",
        f"{HEADER}\n\n{LINE}\n\n",
        f"{HEADER}\n{LINE}",
        f"{HEADER}\n{LINE.removesuffix(',,inference-LLM,A')},,inference-LLM",
        "\n".join(",".join(f'"{cell}"' for cell in cells) for cells in (ROW, ROW.values())),
    ],
)
def test_files_that_differ_in_form_alone(tmp_path, content):
    (tmp_path / "rows.csv").write_text(content, newline="")
    assert validate(str(tmp_path / "rows.csv")).predicted.tolist() == [one().predicted]


def test_a_byte_that_is_no_text_spoils_its_row_alone(tmp_path):
    lines = [HEADER.encode(), LINE.encode(), LINE.encode().replace(b",1024,", b",1\xa0024,"), b"\xff\xfe,,,,,"]
    (tmp_path / "rows.csv").write_bytes(b"\n".join(lines))
    found = validate(tmp_path / "rows.csv")
    assert found.predicted[0] == one().predicted
    assert found.skipped[1].startswith("input_len '1\ufffd024'")
    assert found.skipped[2] != ""


def test_a_workload_is_a_name_and_no_path(tmp_path):
    """Rows come from anybody: what they name is looked up in the catalog, never opened."""
    os.mkfifo(tmp_path / "config.json")
    for name in (str(tmp_path), str(tmp_path / "config.json"), "x" * 300 + ".json", "/dev/zero"):
        assert "no configuration of" in one(workload=name).skipped


def test_models_of_the_caller_are_checked_at_the_door(tmp_path):
    rows = pd.DataFrame([ROW])
    for wrong in (7, "llama-3.1-70b", ["llama-3.1-70b"], {7: "llama-3.1-70b"}, {None: None}, {("a",): "qwen3-32b"}):
        with pytest.raises(ValueError, match=r"^models="):
            validate(rows, models=wrong)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": -1}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    hostile = [
        None,
        7,
        [],
        {},
        math.nan,
        b"x",
        "nobody",
        "",
        "\0",
        tmp_path,
        tmp_path / "deep.json",
        tmp_path / "none.json",
    ]
    for model in hostile:
        with pytest.raises(ValueError, match=r"^models\['my-model'\]: "):
            validate(rows, models={"my-model": model})
    assert validate(rows, models={}).skipped[0] == ""


def test_missing_columns_and_numbers_are_read():
    bare = {
        name: ROW[name]
        for name in ("instance", "workload", "metric", "value", "unit", "tp", "batch", "seq_len", "kind", "phase")
    }
    row = validate(pd.DataFrame([bare | {"tp": 64, "batch": 1.0, "seq_len": 2048, "value": 15.0}])).iloc[0]
    assert row.skipped == ""
    assert row.predicted == pytest.approx(one(input_len="", output_len="", lnc="").predicted)


def test_a_reading_names_what_it_lacks():
    with pytest.raises(UnreadableRowError, match="no pattern"):
        reading(ROW | {"metric": "mood"})


def test_one_group_by_its_name():
    rows = pd.DataFrame([ROW, ROW | {"batch": "4", "value": "17"}])
    table = refit(rows, groups="decode")
    assert set(table.group) == {"decode"}
    assert (table.cases == 2).all()
    assert (table.fitted > 0).all()
    assert refit(rows, groups=["decode", "decode"]).equals(table)


def test_rows_that_teach_nothing():
    """A group without rows has no line; a spoilt row teaches nothing and spoils nothing."""
    columns = ["group", "owner", "quantity", "in_force", "fitted", "cases"]
    for empty in (
        pd.DataFrame(columns=COLUMNS),
        pd.DataFrame([ROW | {"value": "-1"}]),
        pd.DataFrame([ROW | {"tp": "0"}]),
    ):
        table = refit(empty, groups=("decode", "server"))
        assert (len(table), list(table)) == (0, columns)
    alone, beside = (
        pd.DataFrame([ROW]),
        pd.DataFrame([ROW, *(ROW | {"value": cell} for cell in SPOILT if cell != "0.5")]),
    )
    assert refit(alone, "decode").equals(refit(beside[beside.value != "1e30"], "decode"))


@pytest.mark.parametrize(
    "groups", [None, 7, [], (), "", "d", "decoding", ["decode", "x"], [["decode"]], [None], b"decode", {}]
)
def test_groups_that_are_none(groups):
    with pytest.raises(ValueError, match=r"^groups="):
        refit(MEASURED, groups=groups)


def test_splits_that_are_none():
    for group in (None, "x", ["decode"], 7):
        with pytest.raises(ValueError, match=r"^group="):
            cases(MEASURED, group)
    with pytest.raises(ValueError, match=r"^rows="):
        refit(None)
