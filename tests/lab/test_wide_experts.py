"""Published wide runs against the hand-tuned scenario: each bracketed by all others, the misses named."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnlab import wide_experts
from trnmodel.catalog import load
from trnmodel.evidence.questions import predict
from trnmodel.evidence.rows import COMPARATORS, read_rows


@pytest.fixture(scope="module")
def table():
    return wide_experts.brackets()


def test_twelve_published_runs_and_what_they_printed():
    """Twelve times of disaggregated servers."""
    runs = wide_experts.runs()
    assert len(runs) == 12
    times = {row["id"]: float(row["value"]) / 1e3 for row in read_rows(COMPARATORS)}
    assert [run.measured for run in runs] == pytest.approx([times[run.id] for run in runs])
    workers = [(r.mapping[0], r.ep) for r in (run.reading for run in runs)]
    by_hand = "8x1 1x4 1x4 4x1 1x8 1x8 1x4 8x1 16x1 1x8 4x1 4x1"  # tp x adp, as the notes print them
    assert [f"{tp}x{ep}" for tp, ep in workers] == by_hand.split()


def test_at_least_eleven_of_twelve_are_bracketed_and_every_miss_has_its_mechanism(table):
    assert table.inside.sum() >= 11
    assert (table.missing[~table.inside] != "not known").all()
    assert set(wide_experts.MISSING) == set(table.id[~table.inside])
    assert (table.low_s < table.centre_s).all()
    assert (table.centre_s < table.high_s).all()


def test_the_interval_is_no_wall(table):
    """A bracket that holds whatever is measured says nothing: a third or three times of each step lies outside."""
    steps = table[table.what == "step"]
    assert (steps.high_s / steps.low_s < 9).all()
    outside = (steps.measured_s * 4 > steps.high_s) & (steps.measured_s / 4 < steps.low_s)
    assert outside.all()


def test_the_row_of_data_is_what_the_runs_give(table):
    """The layer with experts of `hand-tuned-gpu` lies in its range, which holds every fit with a run left out."""
    e = tm.efficiencies("h100", "hand-tuned")
    low, high = e.range("expert_serial_s")
    assert table.expert_s.between(low, high).all()
    assert e.expert_serial_s == pytest.approx(np.median(table.expert_s), rel=0.1)
    assert load.facts_rows()["hand-tuned-gpu/expert_serial_s/project"].confidence == "D"


def test_a_run_is_predicted_by_its_sum():
    """The first token of one prompt alone: prefill and service; a second wave adds half of what is before it."""
    run = wide_experts.runs()[0]  # four clients, one prompt at a time
    alone = wide_experts.predicted_s(run, 0.0, 0.0, 0.0)
    assert wide_experts.predicted_s(run, 0.0, 0.2, 0.0) == pytest.approx(alone + 0.2)
    assert wide_experts.predicted_s(run, 0.0, 0.0, 1.0) == pytest.approx(alone * (1 + 3 / 2))


def test_a_time_is_a_line_in_what_a_layer_with_experts_adds():
    """Two calls stand for all: a third, half as far again, lies on their line."""
    for run in wide_experts.runs():
        r, slots, first = run.reading, float(run.reading.ep), wide_experts.first(run)
        asked = replace(r, batch=slots, compiled_batch=slots) if first else replace(r, meaning="decode-step")
        alone = predict(asked, lambda of: replace(of, expert_serial_s=1.5 * wide_experts.FIRST[0]))
        layers, arguments = tm.model(r.model).n_layers, dict(r.arguments)
        crossings = float(arguments.get("node_crossings", 0.0)) * layers * wide_experts.NODE_S
        found = wide_experts.predicted_s(run, 1.5 * wide_experts.FIRST[0], 0.0, 0.0)
        assert found == pytest.approx(alone + (0.0 if first else crossings), rel=1e-9)
