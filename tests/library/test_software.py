"""Three kinds of software: their order and one answer wherever it is asked."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load, stacks
from trnmodel.catalog.stacks import KINDS, efficiencies
from trnmodel.result import alike, tidy

LLAMA, TP16 = "llama-3.1-70b", tm.Mapping(tp=16)
ASK = {"batch": 32, "context": 4096, "precision": "fp8"}


def test_more_work_is_never_faster_on_the_scenario():
    batch, context = 2.0 ** np.arange(12)[:, None], 2.0 ** np.arange(7, 15)
    for system, e in (("trn3-nl32x2-pcie160", "hand-tuned"), ("gb200-nvl72", "hand-tuned")):
        ask = {"batch": batch, "context": context, "precision": "fp8", "efficiencies": e}
        time = tm.decode_step("deepseek-v3", system, tm.Mapping(tp=8, ep=8), **ask).time_s
        assert not (np.diff(time, axis=0) < 0).any()
        assert not (np.diff(time, axis=1) < 0).any()


@pytest.mark.parametrize("stack", sorted(stacks.stacks()))
def test_every_range_of_a_stack_holds_its_value(stack):
    """A stack that replaces a value of its base does not take over the range of what it replaced."""
    e = efficiencies("trainium2", stack)
    assert all(low <= getattr(e, name) <= high for name, (low, high) in e.ranges.items())


def test_hand_tuned_is_a_word_for_every_chip_that_has_a_row():
    with_row = {chip for chip in load.chips() if load.chip(chip).hand_tuned_stack}
    assert {"trainium1", "trainium2", "trainium3", "h200", "gb200", "mi355x"} <= with_row
    for chip in with_row:
        e = efficiencies(chip, "hand-tuned")
        assert (e.kind, e.word) == ("hand-tuned", "hand-tuned")
        assert e.id.endswith("neuron") == (load.chip(chip).vendor == "AWS")
    with pytest.raises(
        ValueError, match="tpu-v5e has no hand-tuned stack; name another one, such as 'ideal', or add a row"
    ):
        efficiencies("tpu-v5e", "hand-tuned")
    bare = replace(load.chip("h200"), hand_tuned_stack="")
    with pytest.raises(ValueError, match="efficiencies='hand-tuned': h200 has no hand-tuned stack"):
        tm.decode_step(LLAMA, bare, tm.Mapping(tp=8), efficiencies="hand-tuned", **ASK)


def test_a_changed_scenario_is_one_still_and_says_what_was_given():
    e = replace(efficiencies("trainium3", "hand-tuned"), layer_s=0.0)
    found = stacks.basis(e, tm.chip("trainium3"), 2, "decode")
    assert (e.kind, found.word) == ("hand-tuned", "extrapolated")
    assert "stack: given with the call (layer_s)" in found.reason


def test_three_kinds_do_not_mix_unasked():
    rows = [{"system": "a", "stack_kind": "hand-tuned"}, {"system": "b", "stack_kind": "public"}]
    with pytest.raises(ValueError, match="a: hand-tuned, b: public"):
        alike(tidy(rows))
    both = [{"system": s, "stack_kind": kind} for s in "ab" for kind in KINDS]
    assert len(alike(tidy(both))) == 6
