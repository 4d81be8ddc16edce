"""No work is made faster by more work: decode and prefill, on every stack, over batch, tokens, past and chunks.

Three things are left out where they speak. Chunked attention begins anew with each chunk, so that a longer context may
have fewer keys to read: that is less work. Prompts in chunks do gain where batched prompts of SDK 2.18.0 spill what
SBUF does not hold, and where a chunk is too short for blocks of experts, whose graph computes the worst distribution.
"""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import efficiencies, stacks

SYSTEMS = ["trn2.48xlarge", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus", "trn1.32xlarge", "inf2.48xlarge", "hgx-h100"]
MODELS = ["llama-3.1-8b", "llama-3.1-70b", "gpt-oss-120b", "qwen3-30b-a3b", "mixtral-8x7b", "gemma-2-27b"]
DENSE = ["llama-3.1-8b", "llama-3.1-70b", "gemma-2-27b"]
CHUNKED = "llama-4-scout"
TIMES = ("time_s", "compute_s", "memory_s", "network_s", "overhead_s")
SPILLS = "transformers-neuronx-2.18.0"
DEGREES = {"tp": [1, 2, 4, 8, 16, 32, 64], "pp": [1, 1, 2, 4], "cp": [1, 1, 2], "ep": [1, 1, 2, 8]}
QUESTIONS = 25


def of_gpus(stack):
    return stack == "gpu-serving"


def ladder(rng, high, low=1):
    """Whole numbers, evenly in logarithms, each with its next."""
    some = np.round(np.exp(rng.uniform(np.log(low), np.log(high), 24)))
    return np.unique(np.concatenate([some, some + 1]))


def never_faster(step, amounts, what):
    for name in TIMES:
        times = np.broadcast_to(getattr(step, name), amounts.shape)
        known = times[~np.isnan(times)]
        faster = np.flatnonzero(known[1:] < known[:-1] * (1 - 1e-9))
        assert not faster.size, f"{what}: {name} falls from {amounts[faster[0]]:g} to {amounts[faster[0] + 1]:g}"


def question(rng, stack, models):
    """A model on a system with a mapping that the stack runs."""
    system = tm.system(str(rng.choice([name for name in SYSTEMS if name.startswith("hgx") == of_gpus(stack)])))
    e = efficiencies(system.chip, stack)
    if rng.random() < 0.5:
        e = replace(e, prompt_bucket="exact", context_bucket="exact")
    while True:
        model = str(rng.choice(models))
        mapping = tm.Mapping(**{name: int(rng.choice(sizes)) for name, sizes in DEGREES.items()})
        if tm.legal(model, system, mapping, efficiencies=e).valid:
            return model, system, mapping, e


@pytest.mark.parametrize("stack", stacks())
def test_more_of_anything_takes_no_less(stack):
    rng = np.random.default_rng(sum(map(ord, stack)))
    for _ in range(QUESTIONS):
        model, system, mapping, e = question(rng, stack, [*MODELS, CHUNKED])
        batch, tokens = (float(ladder(rng, high)[0]) for high in (512, 60000))
        asked, what = {"efficiencies": e}, f"{model} on {system.id}, {mapping}, {e.id}, {e.prompt_bucket}"
        some = ladder(rng, 1000)
        never_faster(tm.decode_step(model, system, mapping, batch=some, context=tokens, **asked), some, what)
        never_faster(tm.prefill(model, system, mapping, batch=some, input_tokens=tokens, **asked), some, what)
        new = np.arange(1.0, 9)
        never_faster(
            tm.decode_step(model, system, mapping, batch=batch, context=tokens + 8, new_tokens=new, **asked), new, what
        )
        many = ladder(rng, 1e5)
        never_faster(tm.prefill(model, system, mapping, batch=batch, input_tokens=many, **asked), many, what)
        if model != CHUNKED:
            never_faster(tm.decode_step(model, system, mapping, batch=batch, context=many, **asked), many, what)
            past = tm.prefill(model, system, mapping, batch=batch, input_tokens=tokens, past=many, **asked)
            never_faster(past, many, what)


@pytest.mark.parametrize("stack", [stack for stack in stacks() if stack != SPILLS])
def test_chunks_of_a_prompt_take_no_less_than_the_whole(stack):
    """But for scores in HBM: a prompt masked in full writes the half of them that its chunks never make."""
    rng = np.random.default_rng(len(stack))
    for _ in range(QUESTIONS):
        blocks = efficiencies("trainium2", stack).prefill_experts == "blocks"
        model, system, mapping, e = question(rng, stack, DENSE if blocks else MODELS)
        e = replace(e, prompt_bucket="exact", context_bucket="exact", score_passes=0.0)
        size, pieces, batch = float(rng.integers(16, 3000)), int(rng.integers(2, 9)), float(rng.integers(1, 9))
        asked = {"batch": batch, "efficiencies": e}
        whole = tm.prefill(model, system, mapping, input_tokens=size * pieces, **asked)
        parts = tm.prefill(model, system, mapping, input_tokens=size, past=size * np.arange(pieces), **asked)
        for name in TIMES:
            total = np.broadcast_to(getattr(parts, name), pieces).sum()
            assert not total < getattr(whole, name) * (1 - 1e-9), (name, model, system.id, mapping)


@pytest.mark.parametrize("system", ["trn2.48xlarge", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"])
@pytest.mark.parametrize(("model", "least"), [("llama-3.1-70b", 3417), ("llama-3.1-8b", 6784)])
def test_no_all_reduce_gains_where_aws_changes_the_algorithm(system, model, least):
    """56 MB a rank: 70B from 3,417 to 3,418 tokens, 8B from a batch of 53 to 54 prompts of 128 tokens.

    The software pads heads, so that 32 of them run on 64 ranks.
    """
    e = replace(tm.efficiencies(tm.system(system).chip), prompt_bucket="exact", head_split="pad")
    for tokens, batch in ((np.arange(least - 40.0, least + 40), 1), (128.0, np.arange(40.0, 70))):
        step = tm.prefill(model, system, tm.Mapping(tp=64), input_tokens=tokens, batch=batch, efficiencies=e)
        never_faster(step, np.atleast_1d(np.maximum(tokens, batch)), f"{model} on {system}")
        assert np.all(step.valid)
        assert np.all(np.diff(step.network_s) < 0.05 * step.network_s[1:])  # and nothing jumps either


def test_tokens_too_few_for_a_block_of_their_experts_fill_one_where_that_is_less_work():
    """Mixtral over 8 expert-parallel ranks: 255 routed rows a rank, one expert, one block of 512, not 4 x 255 rows.

    The software cuts each expert over the TP ranks of a group.
    """
    e = replace(tm.efficiencies("trainium2"), prompt_bucket="exact", expert_split="cut")
    few, many = (
        tm.prefill("mixtral-8x7b", "trn2.48xlarge", tm.Mapping(tp=8, ep=8), input_tokens=tokens, efficiencies=e)
        for tokens in (2047, 2048)
    )
    assert few.compute_s == pytest.approx(many.compute_s, rel=0.02)
    assert few.compute_s <= many.compute_s
