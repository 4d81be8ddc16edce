"""Dispatch and combine of experts with fixed slots: by hand, against printed rows, and where nobody has measured."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog.exchanges import exchange
from trnmodel.evidence.collections import EXCHANGE
from trnmodel.fabric.expert_exchange import LAUNCHES, combine_s, dispatch_s, transport_s
from trnmodel.formulas import moe
from trnmodel.units import MIB, US

ROWS = pd.read_csv(EXCHANGE)
SHAPE = 2048, 128, 8  # hidden, experts and experts per token of Qwen3-30B-A3B
FREE = {"start_s": 0.0, "rank_s": 0.0, "wait_s": 0.0, "graph_start_s": 0.0}
WIRE = replace(exchange(), **FREE, copy_bytes_per_s=1e30, wire_bytes_per_s=1e9)
COPY = replace(exchange(), **FREE, wire_bytes_per_s=1e30, copy_bytes_per_s=1e9)


def test_receive_buffers_are_those_that_the_table_prints():
    """EP slots of the send buffer's size, in MiB with one digit: a law of the source's, not of the fit."""
    rows = ROWS[ROWS.kind == "expert exchange"]
    printed = rows.note.str.extract(r"receive buffer ([\d.]+) MiB", expand=False).astype(float)
    t, k, n = rows.tokens_per_rank, rows.topk, rows.ep_ranks
    by_choice = rows.buffer_mode == "low_latency"
    back = np.where(by_choice, moe.combine_slot_rows(t, n, k), moe.combine_slot_rows(t, n))
    is_dispatch = rows.op == "dispatch"
    slot = np.where(is_dispatch, moe.dispatch_slot_rows(t, k, n), back)
    width = np.where(is_dispatch, rows.row_width_elements, rows.hidden)
    found = n * slot * width * 2 / MIB
    assert (np.abs(found - printed) <= 0.05 + 1e-9).all()
    rows = ROWS[ROWS.kind == "transport curve"]
    slot = rows.note.str.extract(r"slot (\d+) rows", expand=False).astype(float)
    assert (rows.recv_buffer_bytes_per_rank == rows.ep_ranks * slot * rows.row_width_elements * 2).all()


def test_a_combine_by_hand():
    """Four ranks, 64 tokens of 8 experts: 512 rows of 4 KiB are sent, 2,048 reserved, 4 slots of them received."""
    sent, slot = 512 * 4096, 4 * 64 * 8 * 4096
    assert float(combine_s(64, *SHAPE, 4, per_choice=True, exchange=WIRE)) == pytest.approx(sent / 1e9)
    copied = 2 * (slot + 4 * slot)
    assert float(combine_s(64, *SHAPE, 4, per_choice=True, exchange=COPY)) == pytest.approx(copied / 1e9)
    assert float(combine_s(64, *SHAPE, 4, exchange=COPY)) == pytest.approx(copied / 8 / 1e9)
    hot = combine_s(64, *SHAPE, 4, per_choice=True, imbalance=2.0, exchange=WIRE)
    assert float(hot) == pytest.approx(2 * sent / 1e9)
    assert float(combine_s(64, *SHAPE, 4, per_choice=True, imbalance=1e9, exchange=WIRE)) == pytest.approx(slot / 1e9)


def test_a_dispatch_by_hand():
    """Two experts on two ranks, one per token: half the tokens go to each rank, in slots for all of them."""
    assert float(dispatch_s(10, 936, 2, 1, 2, exchange=WIRE)) == pytest.approx(10 * 2000 / 1e9)  # 936 x 2 + 128 B
    assert float(dispatch_s(10, 936, 2, 1, 2, exchange=COPY)) == pytest.approx(2 * 3 * 10 * 2000 / 1e9)
    narrow = dispatch_s(10, 936, 2, 1, 2, element_bytes=1, exchange=WIRE)
    assert float(narrow) == pytest.approx(10 * 1064 / 1e9)


def test_the_floor_and_the_launch_are_counted_once():
    x = exchange()
    times = {launch: float(dispatch_s(0, *SHAPE, 4, launch=launch)) for launch in LAUNCHES}
    assert times["overlapped"] == pytest.approx(x.start_s + 3 * x.rank_s)
    assert times["synchronised"] - times["overlapped"] == pytest.approx(x.wait_s)
    assert times["graph"] == pytest.approx(x.graph_start_s + 3 * x.rank_s)
    small = ROWS[(ROWS.op == "dispatch") & (ROWS.tokens_per_rank == 16)]
    for launch, column in (("overlapped", "kernel_us"), ("synchronised", "kernel_latency_us")):
        found = dispatch_s(16, *SHAPE, small.ep_ranks.to_numpy(), launch=launch)
        assert found == pytest.approx(small[column].to_numpy() * US, rel=0.2)


def test_combine_takes_longer_than_dispatch_where_every_choice_comes_back():
    """At 128 tokens and EP 4 the rows have 777.3 against 258.4 us."""
    there, back = (
        float(f(128, *SHAPE, 4, launch="overlapped", **more))
        for f, more in ((dispatch_s, {}), (combine_s, {"per_choice": True}))
    )
    assert back / there == pytest.approx(777.3 / 258.4, rel=0.15)


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("call", [dispatch_s, combine_s])
def test_more_never_takes_less_time(call, launch):
    tokens = np.geomspace(1, 1e6, 40)
    assert (np.diff(call(tokens, *SHAPE, 4, launch=launch)) >= 0).all()
    assert (np.diff(call(64, np.arange(1, 9000, 99), 128, 8, 4, launch=launch)) >= 0).all()
    assert (np.diff(call(64, 2048, 128, np.arange(1, 129), 4, launch=launch)) >= 0).all()
    assert (np.diff(call(64, *SHAPE, np.arange(1, 129), launch=launch)) >= 0).all()
    assert (np.diff(call(64, *SHAPE, 4, element_bytes=np.array([1, 2, 4]), launch=launch)) >= 0).all()


def test_it_broadcasts_and_one_rank_exchanges_nothing():
    grid = combine_s(np.ones((3, 1)), 2048, 128, 8, np.array([1, 2, 4, 128]), imbalance=np.ones((2, 1, 1)))
    assert grid.shape == (2, 3, 4)
    assert (grid[..., 0] == 0).all()
    assert (grid[..., 1:] > 0).all()
    many = replace(exchange(), start_s=np.array([1e-4, 2e-4]))
    assert np.diff(dispatch_s(8, *SHAPE, 2, launch="overlapped", exchange=many)) == pytest.approx(1e-4)
    assert float(dispatch_s(0, *SHAPE, 1)) == 0


def test_what_cannot_be_is_refused_by_name():
    for message, call in {
        "experts_per_token=9: allowed": lambda: dispatch_s(1, 8, 8, 9, 2),
        "ranks=16: allowed": lambda: combine_s(1, 8, 8, 1, 16),
        "ranks=1.5": lambda: combine_s(1, 8, 8, 1, 1.5),
        "imbalance=0.5": lambda: combine_s(1, 8, 8, 1, 2, imbalance=0.5),
        "launch='eager'": lambda: dispatch_s(1, 8, 8, 1, 2, launch="eager"),
        "payload_bytes=2: allowed": lambda: transport_s(2, 1, 2),
        "tokens=-1": lambda: dispatch_s(-1, 8, 8, 1, 2),
        "exchange='deep-ep'": lambda: dispatch_s(1, 8, 8, 1, 2, exchange="deep-ep"),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_slots_and_copies_are_what_the_collective_engine_lacks():
    """The same bytes by the engine's all-to-all take a small part of it: it has neither slots nor copies."""
    sent = moe.combine_slot_rows(128, 1, 8) * 4096.0
    plain = tm.collective("all_to_all", sent, "trn2.3xlarge", ranks=4, in_graph=True).time_s
    slotted = combine_s(128, *SHAPE, 4, per_choice=True)
    assert float(plain) < 0.5 * float(slotted)
