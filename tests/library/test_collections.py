"""The third collection: its tables, and what rows of theirs mean in the common format, by hand."""

import csv
import math

import numpy as np
import pandas as pd
import pytest

from trnmodel.catalog.load import DATA
from trnmodel.evidence.cells import COLUMNS, row_id
from trnmodel.evidence.collections import (
    EAGER,
    EXCHANGE,
    KERNELS,
    LAYER,
    NUMBERS,
    TEXTS,
    collected,
    collectives,
    expert_exchange,
    moe_layer,
)
from trnmodel.evidence.rows import LATER, MEASURED

THIRD = DATA / "evidence" / "measured_3.csv"


def printed(path):
    return pd.read_csv(path, dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def rows():
    return collected()


def one(rows, source, locator, metric=None):
    """The one row of a source at a locator, with some metric."""
    at = rows[rows["source"].str.contains(source) & (rows["locator"] == locator)]
    at = at if metric is None else at[at["metric"] == metric]
    assert len(at) == 1
    return at.iloc[0]


def test_the_rows_are_those_that_were_collected():
    sizes = {THIRD: 242, EAGER: 801, KERNELS: 94, EXCHANGE: 128, LAYER: 39}
    assert {path: len(printed(path)) for path in sizes} == sizes


def test_ids_follow_from_the_rows_and_a_repeat_has_a_number():
    with THIRD.open(newline="") as stream:
        third = list(csv.DictReader(stream))
    assert list(third[0])[: len(COLUMNS) + 1] == ["id", *COLUMNS]  # what a run of training states stands after them
    assert [row["id"] for row in third if row["id"] != row_id(row)] == ["74959bcec2-2", "deee04ea18-2"]
    assert all(row["id"].removesuffix("-2") == row_id(row) for row in third)
    everything = [*third, *printed(MEASURED).to_dict("records"), *printed(LATER).to_dict("records")]
    assert len({row["id"] for row in everything}) == 242 + 2398 + 1048


def test_every_printed_time_becomes_a_row(rows):
    # The exchange prints 128 times of calls back to back, 128 synchronised, 32 with host copies and 56 of whole calls.
    assert len(rows) == 801 + 94 + (128 + 128 + 32 + 56) + 39
    assert list(rows) == ["id", *COLUMNS, *TEXTS, *NUMBERS]
    assert rows["id"].is_unique
    assert set(rows["unit"]) == {"s"}
    assert np.array_equal(rows["value"], rows["value_si"], equal_nan=True)
    assert (rows["note"] != "").all()


@pytest.mark.parametrize(
    ("locator", "call", "ranks", "message_bytes", "value_us", "machines", "network", "cores", "chips"),
    [
        # 2 ranks contribute 16,777,216 B each; 30.747 GB/s are printed, and 33,554,432 B / 1091.315 us = 30.747 GB/s.
        ("line 22", "all_gather", 2, 33_554_432, 1091.315, 1, "", 2, 1),
        ("line 677", "all_gather", 8, 8 * 512, 1189.062, 2, "efa", 16, 2),
        ("line 49", "all_reduce", 2, 16_777_216, 1019.479, 1, "", 2, 1),
        ("line 630", "all_reduce", 8, 512, 1037.489, 2, "efa", 16, 2),
        ("line 103", "reduce_scatter", 2, 16_777_216, 809.251, 1, "", 2, 1),
        ("line 1063", "reduce_scatter", 32, 32_768, 1377.377, 1, "", 64, 8),
        ("line 182", "all_to_all", 4, 33_554_432, 1867.341, 1, "", 4, 1),
        ("line 1085", "all_to_all", 32, 2048, 2855.506, 1, "", 64, 8),
        ("line 76", "broadcast", 2, 16_777_216, 792.368, 1, "", 2, 1),
    ],
)
def test_a_collective_by_hand(rows, locator, call, ranks, message_bytes, value_us, machines, network, cores, chips):
    row = one(rows, "docs/aggregated.csv", locator)
    assert (row["kind_of_call"], row["ranks"], row["message_bytes"]) == (call, ranks, message_bytes)
    assert row["value"] == pytest.approx(value_us / 1e6, rel=1e-12)
    assert (row["machines"], row["network"], row["n_cores_used"], row["n_chips"]) == (machines, network, cores, chips)
    assert (row["engine"], row["release"]) == ("torch-distributed", "2.11.3.0.1278+5013c208")
    assert (row["inside"], row["measure"], row["precision"]) == ("launch host", "collective_time", "FP32")
    assert row["system"] == ("trn2.3xlarge" if "3xlarge" in row["instance"] else "trn2.48xlarge")


@pytest.mark.parametrize("path", [EAGER, KERNELS])
def test_sizes_agree_with_the_rates_that_are_printed_beside_them(path):
    """The printed algbw is the full buffer by the time, twice that of an all-reduce; it has three decimals."""
    table = printed(path)
    read = collectives(table)
    moved = np.where(read["kind_of_call"] == "all_reduce", 2, 1) * read["message_bytes"]
    assert np.allclose(moved / read["value"] / 1e9, table["algbw_GBps"].astype(float), rtol=1e-3, atol=6e-4)


def test_a_kernel_is_launched_alone_and_the_framework_from_the_host(rows):
    # The full tensor of an all-reduce, 524,288 B, was timed both ways.
    kernel, framework = (one(rows, "nki_sweep", f"line 12, {name}_us") for name in ("nki", "framework"))
    assert (kernel["engine"], kernel["release"], kernel["inside"]) == ("nki", "2.31", "launch")
    assert (framework["engine"], framework["release"]) == ("torch-distributed", "2.11.3.0.1278")
    assert framework["inside"] == "launch host"
    sweep = printed(KERNELS)
    first = sweep[sweep["collective"] == "all_gather"].iloc[0]
    row = one(rows, "nki_sweep", first["locator"])
    assert row["message_bytes"] == 8 * int(first["message_bytes"])
    assert one(rows, "nki_sweep", "line 12, nki_us")["message_bytes"] == 524_288


BACK, SYNCED, HOST, CALL = (
    "time, calls back to back",
    "time, synchronised after each call",
    "time with copies to and from the host",
    "time of the whole call",
)


def test_an_exchange_by_hand(rows):
    table = expert_exchange(printed(EXCHANGE))
    first = table[table["locator"].str.startswith("line 2;") & table["source"].str.contains("ops")]
    assert len(first) == 6
    # 16 tokens go to each of 2 ranks in rows of 2,112 elements of 2 B: 16 x 2 x 4,224 B = 135,168 B.
    sent = first[first["workload"].str.startswith("dispatch")].set_index("metric")
    assert sent["message_bytes"].unique().tolist() == [135_168]
    assert sent["value"].to_dict() == {BACK: 177.1e-6, SYNCED: 356.9e-6, CALL: pytest.approx(2123.7e-6)}
    assert sent["inside"].to_dict() == {BACK: "launch", SYNCED: "launch", CALL: "launch host"}
    assert sent["launches"].to_dict() == {BACK: "overlapped", SYNCED: "synchronised", CALL: "synchronised"}
    # They come back in rows of 2,048 elements: 16 x 2 x 4,096 B.
    back = first[first["workload"].str.startswith("combine")]
    assert back["message_bytes"].unique().tolist() == [131_072]
    assert set(first["kind_of_call"]) == {"all_to_all"}
    assert first[["expert_ranks", "groups", "experts", "experts_per_token", "n_cores_used"]].iloc[0].tolist() == [
        *(2, 2, 128, 8, 8)
    ]


def test_a_low_latency_dispatch_states_no_message():
    """16 tokens x 8 choices x 4,096 B = 524,288 B are printed; the 0.3 MiB that two ranks receive cannot hold them."""
    table = expert_exchange(printed(EXCHANGE))
    at = table[table["locator"].str.startswith("line 6;") & (table["metric"] == BACK)]
    sent = at[at["workload"].str.startswith("dispatch (low_latency) 2 ranks")].iloc[0]
    assert math.isnan(sent["message_bytes"])
    assert sent["logical_bytes"] == 524_288
    back = at[at["workload"].str.startswith("combine (low_latency) 2 ranks size=524288B")].iloc[0]
    assert back["message_bytes"] == 524_288


def test_transport_and_baselines_by_hand(rows):
    # 8 rows for each of 2 ranks, of 2,112 elements of 2 B: 67,584 B, and 16 slots of them received from each of 2 ranks
    curve = one(rows, "transport_ep2", "line 1", BACK)
    assert (curve["message_bytes"], curve["receive_buffer_bytes"], curve["fill"]) == (67_584, 135_168, 1)
    assert one(rows, "transport_ep2", "line 1", HOST)["value"] == pytest.approx(796.4e-6)
    assert one(rows, "transport_ep2", "line 1", HOST)["inside"] == "launch host"
    # Shapes are printed for 4 ranks with 16 tokens each: 64 x 2,048 elements of 2 B in every full buffer.
    sizes = {1: "all_reduce", 2: "all_gather", 3: "reduce_scatter", 5: "all_to_all"}
    for line, call in sizes.items():
        row = one(rows, "baselines_ep4", f"line {line}", SYNCED)
        assert (row["kind_of_call"], row["message_bytes"]) == (call, 64 * 2048 * 2)
        assert (row["engine"], row["inside"]) == ("torch-compile", "launch")
    both = one(rows, "baselines_ep4", "line 4", SYNCED)
    assert (both["kind_of_call"], both["value"]) == ("", 419.7e-6)
    assert math.isnan(both["message_bytes"])


def test_an_expert_layer_by_hand():
    table = moe_layer(printed(LAYER))
    first = table.iloc[0]
    assert first["value"] == pytest.approx(0.3259027, rel=1e-6)  # the median of ten runs, not the last or the mean
    assert (first["tp"], first["expert_ranks"], first["seq_len"], first["batch"]) == ("1", 1, "16384", "1")
    assert first[["experts", "experts_per_token", "hidden", "expert_intermediate"]].tolist() == [8, 2, 4096, 14336]
    assert (first["n_cores_used"], first["n_chips"], first["sequence_parallel"]) == (2, 1, "off")
    failed = table[table["refused"] != ""]
    assert len(failed) == 6
    assert failed["value"].isna().all()
    assert failed["refused"].str.startswith("failed: NRT_RESOURCE").all()
    assert table.loc[table["refused"] == "", "value"].notna().all()


def test_an_operation_that_is_not_known_is_refused():
    table = printed(EAGER).head(1).assign(collective="scan")
    with pytest.raises(ValueError, match="collective=\\['scan'\\]: allowed are all_reduce"):
        collectives(table)
    with pytest.raises(ValueError, match="op=\\['scan'\\]"):
        expert_exchange(printed(EXCHANGE).head(1).assign(op="scan"))
