"""Typed records: what the words of a table fill, what a page states beyond them, and what nobody states."""

import csv

import pytest

from trnmodel.catalog.load import DATA, DataError
from trnmodel.evidence import records
from trnmodel.evidence.cells import COLUMNS
from trnmodel.evidence.meanings import decide
from trnmodel.evidence.records import Record, fills_of, is_known, pattern_cells, read
from trnmodel.evidence.rows import COMPARATORS, published, read_rows
from trnmodel.evidence.software import software, stack_of_software

BLANK = dict.fromkeys(COLUMNS, "")
SERVED = BLANK | {
    "kind": "inference-LLM-serving",
    "metric": "TPOT mean",
    "workload": "Llama-3.1-8B",
    "phase": "serving",
}
IDENTITIES = {"source", "value", "id", "tier", "n_chips"}


@pytest.fixture(scope="module")
def rows():
    return published().to_dict("records")


def test_no_pattern_sees_a_source_a_value_or_an_id(rows):
    """A pattern names a cell of words; with source and id of a row replaced, its words fill the same columns."""
    assert not IDENTITIES & {one.cell for one, *_ in records.patterns()}
    for row in rows[::25]:
        other = row | {"source": "nobody", "id": "x", "tier": "", "value": "7"}
        assert read(row, statements=False) == read(other, statements=False)


def test_no_pattern_names_a_page_or_a_model(rows):
    """Neither the owner of a page nor the file of a table stands in a pattern, and no model's version."""
    owners = {row["source"].split("/")[0].lower() for row in rows if "/" in row["source"].split(" ")[0]}
    owners |= {row["source"].split(" ")[0].lower() for row in rows if "/" in row["source"].split(" ")[0]}
    for one, *_ in records.patterns():
        text = f"{one.match} {one.fills}".lower()
        assert not [owner for owner in owners if len(owner) > 6 and owner in text], one.name
        assert not any(name in text for name in ("llama", "qwen", "deepseek", "mixtral", "seed-oss", "trinity")), (
            one.name
        )


def test_a_statement_fills_typed_columns_and_says_where_it_stands():
    with (DATA / "evidence" / "statements.csv").open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert table
    for one in table:
        assert one["page"]
        assert one["printed"]
        assert one["locator"]
        assert fills_of(one["fills"])  # raises for a name that is no typed column
    decided = {"question", "weight", "use", "stack", "reason"}
    assert not decided & set(records.TYPES)


def test_each_statement_is_of_a_page(rows):
    records.check([*rows, *read_rows(COMPARATORS)])
    with pytest.raises(DataError, match="no row is of the pages"):
        records.check(rows[:1])


@pytest.mark.parametrize(
    ("note", "columns"),
    [
        ("concurrency=4", {"clients": "4", "scheduling": "closed"}),
        ("concurrency 4", {"clients": "4", "scheduling": "closed"}),
        ("max-concurrency: 16", {"clients": "16", "scheduling": "closed"}),
        ("8 concurrent users", {"clients": "8", "scheduling": "closed"}),
        ("synchronous requests", {"clients": "1", "scheduling": "single"}),
        ("vllm-neuron 0.16.0, max_num_seqs=32", {"engine": "vllm-neuron", "release": "0.16.0", "slots": 32.0}),
        ("no speculative decoding", {"draft_tokens": 0.0}),
        ("EAGLE, speculation length 7", {"draft_tokens": 7.0}),
        ("moe_ep64", {"expert_ranks": 64.0}),
    ],
)
def test_words_of_a_note(note, columns):
    known = read(SERVED | {"note": note})[0].known()
    assert {name: known.get(name) for name in columns} == columns


def test_what_is_not_stated_stays_unknown():
    record, _ = read(SERVED)
    assert not is_known(record.slots)
    assert (record.clients, record.engine, record.release, record.scheduling) == ("", "", "", "")
    assert decide(SERVED).unknown == ("engine", "input_tokens", "clients", "slots")


def test_a_column_of_a_table_wins_over_its_words():
    row = SERVED | {"note": "concurrency 4", "clients": "9", "engine": "nxd-inference"}
    assert (read(row)[0].clients, read(row)[0].engine) == ("9", "nxd-inference")


def test_a_page_is_read_from_its_cells_alone_where_one_asks_for_that(rows):
    row = next(row for row in rows if "qwen-small-models" in row["source"] and row["seq_len"] == "4k")
    assert read(row)[0].context_bucket == "4396"
    assert read(row, statements=False)[0].context_bucket == ""


def test_the_words_of_a_row_keep_what_it_prints():
    assert pattern_cells(BLANK | {"metric": "Median ITL (ms)"})["metric"].splitlines()[0] == "Median ITL (ms)"


def test_a_name_that_is_no_column_is_refused():
    with pytest.raises(DataError, match="no columns of a record"):
        fills_of("moon=1")


@pytest.mark.parametrize(
    ("columns", "chip", "stack"),
    [
        ({"engine": "transformers-neuronx", "sdk": "2.13"}, "inferentia2", "transformers-neuronx-2.17"),
        ({"engine": "transformers-neuronx", "sdk": "2.18.0"}, "trainium1", "transformers-neuronx-2.18.0"),
        ({"engine": "transformers-neuronx", "sdk": "2.19"}, "trainium1", "transformers-neuronx-2.18.1"),
        ({"engine": "optimum-neuron", "day": "2024-05-03"}, "inferentia2", "optimum-neuron-2024"),
        ({"engine": "optimum-neuron", "day": "2025-07"}, "inferentia2", "optimum-neuron-2025"),
        ({"engine": "optimum-neuron", "served": "yes", "day": "2025-07"}, "trainium2", "optimum-server"),
        ({"engine": "vllm-neuron"}, "trainium3", "vllm-neuron-2026"),
        ({"engine": "vllm-neuron", "kernels": "mega"}, "trainium3", "nki-megakernel"),
        ({"engine": "vllm-neuron", "steps": "async"}, "trainium2", "vllm-neuron-2026-async"),
        ({"engine": "kiln", "kernels": "nki"}, "trainium2", "kiln-nki"),
        ({"engine": "neuron-pytorch-native"}, "trainium2", ""),
        ({}, "trainium3", ""),
    ],
)
def test_the_stack_of_an_engine_and_its_release(columns, chip, stack):
    assert stack_of_software(Record(**columns), chip, "dense") == stack


def test_every_line_of_software_is_reached(rows):
    from trnmodel.evidence.fit import readable

    found = {case.reading.stack for case in readable(rows)}
    assert {one.stack for one in software()} <= found
