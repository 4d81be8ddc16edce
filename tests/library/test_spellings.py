"""Ten tables in other spellings: each row is read as its author meant it, or refused with the reason."""

import csv
import math
import re
from pathlib import Path

import pytest

from trnmodel.evidence import kinds, meanings, names, readings, records, spellings
from trnmodel.evidence.cells import COLUMNS, UnreadableRowError, measure, number
from trnmodel.evidence.meanings import decide
from trnmodel.evidence.readings import reading
from trnmodel.evidence.rows import read_rows
from trnmodel.models import shipped

TABLES = Path(__file__).parent / "spellings"
NUMBERS = [f"{n:02}" for n in range(1, 11)]
SHAPES = {"input_tokens": "input_len", "output_tokens": "output_len", "max_tokens": "seq_len", "cores": "n_cores_used"}
SHAPES |= {name: name for name in ("batch", "tp", "pp", "dp", "lnc")}
ALIKE = ("measure", "statistic", "network", "engine", "scheduling", "clients", "arrival_per_s", "in_flight", "requests")
ALIKE += ("slots", "expert_ranks", "draft_tokens", "inside", "prompt_bucket", "context_bucket")
ALIKE += ("m", "k", "n", "heads", "kv_heads", "head_size", "sequences", "queries", "rows", "columns")
REASONS = {"unit": "unit '", "size": "size", "machine": "instance '", "model": "model:", "metric": "metric '"}
REASONS |= {"value": "value '"}
UNASKED = re.compile(r"^meaning: (the time holds|a draft proposes)")  # of rows that are read and have no question
SECONDS = {"ms": 1e-3, "us": 1e-6, "tokens/sec/user": 1}  # of these rows
BLANK = dict.fromkeys(COLUMNS, "")
MODEL = BLANK | {
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-8B",
    "metric": "TPOT",
    "value": "9",
    "unit": "ms",
    "lnc": "2",
    "tp": "8",
    "input_len": "512",
    "output_len": "64",
}


def rows_of(table):
    with (TABLES / f"{table}_expected.csv").open() as file:
        return list(zip(read_rows(TABLES / f"{table}.csv"), csv.DictReader(file), strict=True))


def read(row):
    """Return the typed columns of a row, and why it has no reading."""
    decided, refused = decide(row), ""
    record, row = decided.record, spellings.filled(row)
    kind = spellings.spelt(row)["kind"]
    sizes = {name: getattr(record, name) for name in ("message_bytes", *readings.BINARY)}
    call = {name: f"{size:.15g}" for name, size in sizes.items() if size == size} | {"kind": record.kind_of_call}
    asked = dict(readings.call_arguments(call))
    found = {name: getattr(record, name) for name in ALIKE} | {name: row[cell] for name, cell in SHAPES.items()}
    found |= {"system": record.system or readings._where(row["instance"]), "release": record.release or record.sdk}
    found |= {"machines": readings._machines(row["instance"]) if math.isnan(record.machines) else record.machines}
    found |= {"kind_of_call": asked["kind"], "ranks": record.ranks, "message_bytes": asked.get("message_bytes", "")}
    found |= {"shape": record.function or record.op, "precision": row["precision"]}
    found |= {"model": "" if kind in ("kernel", "collective") else names.model_of(row["workload"])}
    try:
        found["value_si"] = measure(row) * reading(row, None, decided).scale
    except UnreadableRowError as reason:
        refused, found["value_si"] = str(reason), number(row["value"]) * SECONDS.get(row["unit"], math.nan)
    return found, refused


def alike(found, expected):
    """Return whether a column holds what is expected: a word, a number to four digits, or nothing for "?"."""
    known = "" if found != found else str(found)
    if expected == "?" or not known:
        return expected == "?" and not known
    if not math.isnan(number(expected)):
        return number(known) == pytest.approx(number(expected), rel=1e-3)
    return known.lower() == expected.lower()


@pytest.mark.parametrize("table", NUMBERS)
def test_a_table_in_other_spellings(table):
    for at, (row, expected) in enumerate(rows_of(table), start=1):
        if expected["refused"]:
            with pytest.raises(UnreadableRowError, match=REASONS[expected["refused"]]):
                measure(row) * reading(row).scale
            continue
        found, refused = read(row)
        assert not refused or UNASKED.search(refused), (at, refused)
        cells = {name: cell for name, cell in expected.items() if cell and name != "refused"}
        assert {name: found[name] for name, cell in cells.items() if not alike(found[name], cell)} == {}, at


def test_ninety_five_of_a_hundred_rows_have_a_question_or_the_reason_that_is_expected():
    asked = [expected["refused"] or not read(row)[1] for table in NUMBERS for row, expected in rows_of(table)]
    assert len(asked) == 100
    assert sum(map(bool, asked)) >= 95


def test_no_pattern_sees_source_id_or_value_of_a_row():
    """Other sources, ids and values have the same record; no pattern holds a publisher, a model or a benchmark."""
    assert not {"source", "id", "value"} & {*records.CELLS, *records.DECIDING}
    assert not {"source", "id", "value"} & {one.cell for one, *_ in spellings._spellings()}
    for struct in (records.Pattern, spellings.Spelling, names.Alias):
        assert not {"source", "id", "value", "where", "page"} & set(struct.__struct_fields__)
    row = MODEL | {"note": "TP=8, concurrency 4"}
    other = row | {"source": "somebody else's page", "id": "77", "value": "1e9"}
    assert decide(row) == decide(other)


def test_no_pattern_names_a_model():
    """The names that the catalogue gives its models stand in the file of aliases alone."""
    called = {re.match(r"[a-z]*", one)[0] for one in shipped.catalog()}
    called = {name for name in called if len(name) > 3}
    patterns = [one.match for one, *_ in records.patterns()] + [one.pattern for one, *_ in spellings._spellings()]
    found = {name for name in called for text in patterns if re.search(rf"\b{re.escape(name)}", text, re.IGNORECASE)}
    assert found == set()


def test_no_alias_swallows_a_nearer_model():
    """Every name that the catalogue knows means its own model, whatever pattern it fits."""
    named = {name: one.id for one in shipped.catalog().values() for name in (one.id, *one.aliases.split(";")) if name}
    assert {name: names.model_of(name) for name in named} == named
    near = {
        "Llama 3.3 70B Instruct FP8": "llama-3.3-70b",
        "Llama-3-8B fine-tuning": "llama-3-8b",
        "Mistral-7B-Instruct-v0.3 (chat)": "mistral-7b-v0.3",
        "DeepSeek-R1 0528": "deepseek-r1",
        "EleutherAI/gpt-neox-20b pretraining": "gpt-neox-20b",
    }
    assert {name: names.model_of(name) for name in near} == near
    with pytest.raises(UnreadableRowError, match="model: no configuration"):
        names.model_of("DeepSeek-R1-Distill-Nobody-9B")


def test_the_kinds_that_are_known_have_questions():
    assert set(kinds.KNOWN) == set(meanings.FAMILIES)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ({"workload": "AllReduce 1GB, 64 ranks", "metric": "bus bandwidth", "kind": "sheet 3"}, "collective"),
        ({"workload": "send/recv 1MB, 2 ranks", "metric": "time"}, "collective"),
        ({"workload": "GEMM 4096x4096x4096", "metric": "latency", "kind": "benchmark"}, "kernel"),
        ({"workload": "RMSNorm 4096x5120", "metric": "latency p50"}, "kernel"),
        ({"workload": "Qwen3-8B fine-tuning", "metric": "samples/s", "unit": "samples/s"}, "training"),
        ({"workload": "Qwen3-8B", "metric": "step time", "phase": "pretraining"}, "training"),
        ({"workload": "roberta-base", "metric": "latency p99"}, "inference-encoder"),
        ({"workload": "Qwen3-8B fine-tuned", "metric": "TPOT"}, "inference-LLM"),
        ({"workload": "Qwen3-8B", "metric": "tokens/s", "note": "no prompt is repeated"}, "inference-LLM"),
        ({"workload": "Qwen3-8B", "metric": "tokens/s", "note": "arrivals 0.5 req/s"}, "inference-LLM-serving"),
        ({"workload": "Qwen3-8B", "metric": "TTFT", "phase": "online"}, "inference-LLM-serving"),
        ({"workload": "a model of images", "metric": "latency", "kind": "inference-vision"}, "inference-vision"),
    ],
)
def test_a_kind_by_the_other_cells(cells, kind):
    assert spellings.spelt(BLANK | cells)["kind"] == kind


@pytest.mark.parametrize(
    ("note", "columns"),
    [
        ("concurrency=4", {"scheduling": "closed", "clients": "4"}),
        ("concurrency 4", {"scheduling": "closed", "clients": "4"}),
        ("synchronous", {"scheduling": "single", "clients": "1"}),
        ("a client, synchronous, warm", {"scheduling": "single", "clients": "1"}),
        ("asynchronous", {"scheduling": "", "clients": ""}),
        ("arrivals 0.5 req/s", {"scheduling": "open", "arrival_per_s": 0.5, "clients": ""}),
        ("open loop, 0.5 req/s", {"scheduling": "open", "arrival_per_s": 0.5}),
        ("request rate: inf, 64 prompts all at once", {"scheduling": "burst", "requests": 64, "clients": ""}),
        ("request rate: inf, max_concurrency=8", {"scheduling": "closed", "clients": "8"}),
        ("mean request concurrency 11.3", {"in_flight": 11.3, "clients": ""}),
        ("padded to the 2048 bucket", {"prompt_bucket": "2048"}),
        ("without speculative decoding (no draft model)", {"draft_tokens": 0}),
        ("2 nodes, joined by EFA", {"machines": 2, "network": "efa"}),
        ("no EFA", {"network": ""}),
    ],
)
def test_words_of_a_note(note, columns):
    found = decide(MODEL | {"note": note}).record
    assert {name: getattr(found, name) for name in columns} == columns


def test_one_request_at_a_time_is_a_plain_step():
    asked = {
        note: decide(MODEL | {"note": note}).question for note in ("synchronous", "concurrency=1", "concurrency=4")
    }
    assert asked == {"synchronous": "decode-step", "concurrency=1": "decode-step", "concurrency=4": "loaded-step"}


@pytest.mark.parametrize(
    ("instance", "system", "machines", "network"),
    [
        ("2x trn2.48xlarge, EFA", "trn2.48xlarge", 2, "efa"),
        ("trn1n.32xlarge (x4, EFA)", "trn1n.32xlarge", 4, "efa"),
        ("trn2.48xl", "trn2.48xlarge", 1, ""),
        ("Trainium3 (one core)", "trainium3", 1, ""),
    ],
)
def test_machines_in_other_words(instance, system, machines, network):
    row = MODEL | {"instance": instance}
    found = reading(row)
    assert (found.where, found.machines, decide(row).record.network) == (system, machines, network)


def test_a_note_fills_blank_cells_alone():
    note = "TP=16, bs=4, LNC=1, ISL 1024, OSL 256"
    names_ = ("tp", "batch", "lnc", "input_len", "output_len")
    blank = MODEL | dict.fromkeys(names_, "") | {"note": note}
    assert [spellings.filled(blank)[name] for name in names_] == ["16", "4", "1", "1024", "256"]
    assert [spellings.filled(MODEL | {"note": note})[name] for name in names_] == ["8", "4", "2", "512", "64"]
    assert reading(blank).mapping == (16, 1, 1, 1)


def test_a_note_with_two_numbers_is_refused():
    row = MODEL | {"tp": "", "note": "TP=8 for the prompts, TP=16 else"}
    with pytest.raises(UnreadableRowError, match="note: tp is 8 and 16"):
        reading(row)
    assert reading(row | {"tp": "8"}).mapping[0] == 8


def test_a_metric_of_a_statistic_alone_takes_its_meaning_from_the_phase():
    rows = [MODEL | {"phase": phase, "metric": "p50 (ms)", "batch": "1"} for phase in ("TTFT", "TPOT")]
    assert [decide(row).record.measure for row in rows] == ["first_token", "token_interval"]
    assert [decide(row).question for row in rows] == ["prefill", "decode-step"]


def test_commas_are_decimal_where_the_note_says_so():
    row = MODEL | {"value": "7,85"}
    with pytest.raises(UnreadableRowError, match="value '7,85' is no positive number"):
        measure(row)
    assert measure(row | {"note": "comma is the decimal sign"}) == 7.85
    assert measure(row | {"note": "decimal comma", "value": "1.234,5"}) == 1234.5
    assert measure(row | {"value": "1,234"}) == 1234
