"""Prompts with data-parallel attention: what one in each attention group at once costs in time and in memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trnmodel as tm

ROUNDING = 1e-9
PLACES = [
    ("deepseek-v3", "trn3-nl72x2-pcie160", "mxfp8"),
    ("qwen3-30b-a3b", "trn2.48xlarge", "bf16"),
    ("gpt-oss-120b", "hgx-h200", "bf16"),
]
LENGTHS = st.sampled_from([1, 100, 128, 1000, 1024, 4096, 16384])
DEGREES = st.sampled_from([1, 2, 4, 8])
STACKS = st.sampled_from([None, "hand-tuned", "ideal"])
ASKED = {"place": st.sampled_from(PLACES), "tp": DEGREES, "ep": DEGREES, "tokens": LENGTHS, "stack": STACKS}


def question(place, tp, ep, stack):
    """Model, system, mapping, precision and stack by the names of the calls."""
    model, system, precision = place
    mapping = tm.Mapping(tp=tp, ep=ep)
    return {"model": model, "system": system, "mapping": mapping, "precision": precision, "efficiencies": stack}


def times(tokens, ep, **where):
    """Times of one prompt and of one in each group, and how a stack runs their experts."""
    alone, together = (tm.prefill(**where, batch=batch, input_tokens=tokens) for batch in (1, ep))
    return float(alone.time_s), float(together.time_s), str(together.experts)


@given(**ASKED)
def test_prompts_of_all_groups_take_no_less_than_one_and_each_no_more(place, tp, ep, tokens, stack):
    """A prompt alone occupies its group and leaves the others waiting, so that its company is nearly free.

    It does not hold where the tokens of all groups reach one block of a static graph and those of one group do not:
    the stack then has to leave all experts on all tokens for blocks, which are more work. The second test has it.
    """
    alone_s, together_s, experts = times(tokens, ep, **question(place, tp, ep, stack))
    if np.isnan(alone_s) or np.isnan(together_s):
        return
    assert together_s >= alone_s * (1 - ROUNDING)
    if experts != "blocks, more work than all":
        assert together_s / ep <= alone_s * (1 + ROUNDING)
    if ep == 1:
        assert together_s == alone_s


def test_forced_blocks_are_the_exception():
    """Four prompts of 128 tokens on Trainium3: one goes through all experts, four fill up a block of each expert."""
    where = question(("qwen3-30b-a3b", "trn3-nl72x2-pcie160", "bf16"), 4, 4, None)
    alone_s, together_s, experts = times(128, 4, **where)
    assert experts == "blocks, more work than all"
    assert together_s / 4 > alone_s
    alone_s, together_s, experts = times(1024, 4, **where)
    assert experts == "blocks"
    assert together_s / 4 < alone_s / 3


@given(**ASKED, more=st.integers(1, 8))
def test_more_prompts_at_once_never_take_less_memory(place, tp, ep, tokens, stack, more):
    where = question(place, tp, ep, stack)
    ask = where | {"batch": 64, "context": tokens + 1024, "input_tokens": tokens}
    plain, one, many = (tm.memory_fit(**ask, **more) for more in ({}, {"prompts": 1}, {"prompts": [more, 8 * more]}))
    for kind in ("weight_bytes", "cache_bytes", "scratchpad_bytes", "total_bytes", "first_rank_total_bytes"):
        assert getattr(plain, kind) == getattr(one, kind)
        few, most = np.broadcast_to(getattr(many, kind), 2)
        assert getattr(one, kind) <= few <= most


@given(**ASKED)
def test_a_prefill_and_the_memory_of_its_server_are_one_account(place, tp, ep, tokens, stack):
    """A server whose cache holds the prompts that it prefills stores what the prefill stores."""
    where = question(place, tp, ep, stack) | {"efficiencies": exact(place, stack)}
    step = tm.prefill(**where, batch=ep, input_tokens=tokens)
    fit = tm.memory_fit(**where, batch=ep, context=tokens, input_tokens=tokens, prompts=ep)
    if not np.isnan(step.memory_bytes_per_rank):
        assert float(fit.total_bytes) == pytest.approx(float(step.memory_bytes_per_rank), rel=ROUNDING)


def exact(place, stack):
    """A stack that pads no prompt, since `memory_fit` is asked for the tokens of the execution itself."""
    return replace(tm.efficiencies(tm.system(place[1]).chip, stack), prompt_bucket="exact")
