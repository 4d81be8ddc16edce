"""The hand-tuned scenario has measured parts, by one rule for every maker, and no published run beats its band."""

import pytest

import trnmodel as tm
from trnlab import hand_tuned

pytestmark = pytest.mark.slow


def test_what_a_layer_costs_lies_between_the_best_run_and_public_software():
    """The least remainder of all forward passes of a maker, 0 where a run has none, and the constant of its stack."""
    left = hand_tuned.remainders().groupby("maker").layer_s
    assert left.size().to_dict() == {"gpu": 237, "neuron": 559}
    public = {
        "neuron": tm.efficiencies("trainium2", "vllm-neuron-2026-async").dense_layer_s,
        "gpu": tm.efficiencies("h100", "gpu-serving").layer_s,
    }
    for maker, chip in hand_tuned.CHIPS.items():
        low, high = tm.efficiencies(chip, "hand-tuned").range("layer_s")
        assert low == pytest.approx(max(left.min()[maker], 0.0), abs=1e-6)
        assert high == pytest.approx(public[maker], rel=0.05)


def test_the_stream_share_begins_at_the_best_whole_step():
    """A step streamed at least its ideal bytes in its time, on all cores at work: Mistral-Small-24B, OPT-13B."""
    rows = hand_tuned.remainders()
    share = (rows.ideal_s / rows.measured_s).groupby([rows.maker, rows.model]).max()
    for name, chip, model in (("neuron", "trainium2", "mistral-small-3.1-24b"), ("gpu", "h100", "opt-13b")):
        low, _ = tm.efficiencies(chip, "hand-tuned").range("weight_stream_share")
        assert low == pytest.approx(share[name, model], abs=0.005)


def test_no_published_run_beats_the_band_by_more_than_an_eighth():
    """31 of 705 did while products stood for streams; 4 of 1,169 do, by at most 12 %."""
    rows = hand_tuned.beaten()
    assert len(rows) > 1100
    assert (rows.beyond > 1).sum() <= 6
    assert rows.beyond.max() < 1.125
