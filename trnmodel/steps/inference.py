"""Time and memory of prefill and of a decode step, for any grid of batch, context and degrees at once."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import refuse, share
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.declared import MACHINE, MODEL, PRECISION, STACK, Flag, Numbers, Word, declare
from trnmodel.models.blocks import Phase
from trnmodel.models.operators import EXPERT_READS
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.mapping import MAPPING, Mapping
from trnmodel.steps.pieces import Arrays, fitting, in_pieces
from trnmodel.steps.questions import DecodeQuestion, MemoryQuestion, PrefillQuestion, StepQuestion
from trnmodel.steps.setting import NO_DEGREES, Setting, setting
from trnmodel.units import Numeric


def _step(question: StepQuestion, tokens: NDArray, breakdown: bool) -> Step:
    """Return the result of a step over so many tokens, with its lines where a breakdown is wanted."""
    s, mapping = question.setting, question.mapping
    return Step(
        model=s.model,
        system=s.system,
        precision=s.precision,
        stack=s.e,
        tp=mapping.tp,
        pp=mapping.pp,
        dp=mapping.dp,
        ep=mapping.ep,
        cp=mapping.cp,
        ranks_per_chip=s.at.ranks_per_chip,
        batch=question.batch,
        tokens=tokens,
        question=question,
        operators=MappingProxyType(question.breakdown() if breakdown else {}),
        **in_pieces(question),
    )


def _overlaps(s: Setting, compute_memory: Numeric | None, network: Numeric | None) -> Arrays:
    inner = share("compute_memory_overlap", s.e.compute_memory_overlap) if compute_memory is None else compute_memory
    outer = share("network_overlap", s.e.network_overlap) if network is None else network
    return {"compute_memory_overlap": np.asarray(inner), "network_overlap": np.asarray(outer)}


def _holds(name: str, most: Numeric | None, least: Numeric, what: str) -> None:
    """Refuse a size that graphs are compiled for where it is below what they have to hold."""
    if most is not None and np.any(np.less(most, least)):
        refuse(name, most, f"allowed are at least {what}")


@declare(
    model=MODEL,
    system=MACHINE,
    mapping=MAPPING,
    batch=Numbers(1),
    context=Numbers(1),
    precision=PRECISION,
    efficiencies=STACK,
    max_context=Numbers(1),
    compiled_batch=Numbers(1, whole=True),
    expert_read=Word(EXPERT_READS),
    expert_imbalance=Numbers(1),
    compute_memory_overlap=Numbers(0, 1),
    network_overlap=Numbers(0, 1),
    new_tokens=Numbers(1, whole=True),
    breakdown=Flag(),
)
def decode_step(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric,
    context: Numeric,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
    max_context: Numeric | None = None,
    compiled_batch: Numeric | None = None,
    expert_read: str | None = None,
    expert_imbalance: Numeric | None = None,
    compute_memory_overlap: Numeric | None = None,
    network_overlap: Numeric | None = None,
    new_tokens: Numeric = 1,
    breakdown: bool = False,
) -> Step:
    r"""Time of one decode step.

    .. math:: t = \max(t_c, t_w) + \max(t_s, t_{kv}) + t_{net} + t_0

    Compute :math:`t_c` overlaps with reading the weights, :math:`t_w`, and the scores :math:`t_s` overlap with reading
    the cache, :math:`t_{kv}`. The formula is that of a stack that overlaps each pair fully.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path or object. [-]
    system : str or System or Chip
        Id, name or object; of a bare chip there are as many as wanted. [-]
    mapping : Mapping, optional
        Degrees; default one rank. [-]
    batch : numeric
        Active sequences of a replica; `dp` replicas make dp times as many. [-]
    context : numeric
        Tokens in the cache, the new one included. [token]
    precision : str or Precision
        Preset or object. [-]
    efficiencies : str or Efficiencies, optional
        Software stack: an id, "ideal", or a set; default the chip's own stack. [-]
    max_context : numeric, optional
        Longest context that the graphs are compiled for; it bounds the bucket and sizes the cache. [token]
    compiled_batch : numeric, optional
        Sequences that the graph is compiled for and that run whatever is active; default `batch`. [-]
    expert_read : str, optional
        "distinct", "per_token" or "all"; default the stack's. [-]
    expert_imbalance : numeric, optional
        Tokens of the hottest expert rank over the mean; default what the stack's `expert_spread` gives
        (`formulas.moe.load_imbalance`), 1 where the experts that a rank runs do not follow its load. [-]
    compute_memory_overlap : numeric, optional
        Share of the shorter of compute and memory that hides behind the longer; default the stack's. [-]
    network_overlap : numeric, optional
        The same for collectives and everything else on the device; default the stack's. [-]
    new_tokens : numeric
        Tokens that the step takes in for each sequence; more than one verifies a draft. [token]
    breakdown : bool
        Whether `operators` lists each operator, exchange and cost with its time by resource; they add up. [-]

    Returns
    -------
    step : Step
        Arrays of the broadcast shape of batch, context and degrees; `.stack` made them, and `.basis` says what they
        rest on. [-]

    Raises
    ------
    ValueError
        An argument is out of its range, or the chip has no default stack and none is named.

    Notes
    -----
    A pipeline is kept full by `pp` micro-batches of batch/pp. Expert-parallel ranks share out the sequences too.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 1, "context": 2048, "efficiencies": "ideal"}
    >>> step = tm.decode_step("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), **ask)
    >>> round(float(step.memory_s) * 1e3, 3), step.bound
    (18.632, 'memory')
    """
    mapping = NO_DEGREES if mapping is None else mapping
    s = setting(model, system, mapping, precision, efficiencies, "decode")
    sizes: dict[str, Any] = fitting(
        mapping,
        s.spec_shapes,
        batch=batch,
        context=context,
        new_tokens=new_tokens,
        max_context=max_context,
        expert_imbalance=expert_imbalance,
        compiled_batch=compiled_batch,
        **_overlaps(s, compute_memory_overlap, network_overlap),
    )
    question = DecodeQuestion(setting=s, mapping=mapping, expert_read=expert_read, **sizes)
    _holds("max_context", max_context, context, "the tokens of context")
    _holds("compiled_batch", compiled_batch, batch, "the sequences of batch")
    if (question.context < question.new_tokens).any():
        refuse("new_tokens", new_tokens, "allowed are at most those of context, which counts them")
    return _step(question, question.context, breakdown)


@declare(
    model=MODEL,
    system=MACHINE,
    mapping=MAPPING,
    batch=Numbers(1),
    input_tokens=Numbers(1),
    past=Numbers(),
    precision=PRECISION,
    efficiencies=STACK,
    max_context=Numbers(1),
    expert_imbalance=Numbers(1),
    compute_memory_overlap=Numbers(0, 1),
    network_overlap=Numbers(0, 1),
    breakdown=Flag(),
)
def prefill(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric = 1,
    input_tokens: Numeric,
    past: Numeric = 0,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
    max_context: Numeric | None = None,
    expert_imbalance: Numeric | None = None,
    compute_memory_overlap: Numeric | None = None,
    network_overlap: Numeric | None = None,
    breakdown: bool = False,
) -> Step:
    """Time until the first token of prompts that start together, without a queue.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies : str or object
        As in `decode_step`. [-]
    max_context, expert_imbalance : numeric
        As in `decode_step`. [token, -]
    batch : numeric
        Prompts of a replica that run in one execution. [-]
    input_tokens : numeric
        New tokens of each prompt; the stack pads them to its bucket. [token]
    past : numeric
        Tokens of each prompt that are cached already: earlier chunks, or a shared prefix. [token]
    compute_memory_overlap, network_overlap : numeric, optional
        As in `decode_step`. [-]
    breakdown : bool
        As in `decode_step`. [-]

    Returns
    -------
    step : Step
        `time_s` is the prefill; `tokens_per_s` counts input tokens. [-]

    Notes
    -----
    Attention reaches no larger share of the peak than linear layers do. A stack that runs experts in blocks of b rows
    does so from T batch k / (ep cp) = b tokens on, a graph of static shape for any distribution: `compiled_tokens` is
    the bucket T, `.experts` says which way it goes. Just beyond it, chunks that stay below are the cheaper choice.

    Examples
    --------
    >>> import trnmodel as tm
    >>> from dataclasses import replace
    >>> ask = {"model": "qwen3-30b-a3b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8)}
    >>> ask["efficiencies"] = replace(tm.efficiencies("trainium2"), prompt_bucket="exact")
    >>> step = tm.prefill(input_tokens=[63, 64], **ask)
    >>> step.experts.tolist(), bool(step.time_s[1] > 10 * step.time_s[0])
    (['all', 'blocks, more work than all'], True)
    >>> halves = tm.prefill(input_tokens=32, past=[0, 32], **ask)
    >>> bool(halves.time_s.sum() < step.time_s[1] / 5)
    True
    >>> step = tm.prefill("llama-3.1-8b", "trn1.32xlarge", tm.Mapping(tp=2), input_tokens=2048, efficiencies="ideal")
    >>> step.bound
    'compute'
    """
    mapping = NO_DEGREES if mapping is None else mapping
    s = setting(model, system, mapping, precision, efficiencies, "prefill")
    sizes: dict[str, Any] = fitting(
        mapping,
        s.spec_shapes,
        batch=batch,
        input_tokens=input_tokens,
        past=past,
        expert_imbalance=expert_imbalance,
        max_context=max_context,
        **_overlaps(s, compute_memory_overlap, network_overlap),
    )
    question = PrefillQuestion(setting=s, mapping=mapping, **sizes)
    context = np.add(past, input_tokens)
    _holds("max_context", max_context, context, "the tokens of past and input_tokens together")
    return _step(question, question.input_tokens, breakdown)


@declare(
    model=MODEL,
    system=MACHINE,
    mapping=MAPPING,
    batch=Numbers(1),
    context=Numbers(1),
    input_tokens=Numbers(1),
    prompts=Numbers(1),
    precision=PRECISION,
    efficiencies=STACK,
)
def memory_fit(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric,
    context: Numeric,
    input_tokens: Numeric | None = None,
    prompts: Numeric = 1,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
) -> MemoryFit:
    """Bytes that a rank stores to serve `batch` sequences of up to `context` tokens, by kind.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies : str or object
        As in `decode_step`. [-]
    batch : numeric
        Sequences that the cache is sized for. [-]
    context : numeric
        Longest context of a sequence. [token]
    input_tokens : numeric, optional
        New tokens of each prompt in the largest prefill execution; default `context`. [token]
    prompts : numeric
        Prompts of a replica that are prefilled in one execution, as `batch` of `prefill`; with data-parallel attention
        `mapping.ep` is one for each attention group. [-]

    Returns
    -------
    fit : MemoryFit
        Weights, cache, scratchpad (activations, in whole pages), collective buffers, DMA rings, code and runtime of one
        rank.

    Raises
    ------
    ValueError
        An argument is out of its range, or the chip has no default stack and none is named.

    Notes
    -----
    Ranks fill cores one after another. Where several reach a bank, at LNC 1, what one stores the others cannot.
    The first rank of a server holds more than the others: `first_rank_total_bytes`. What the runtime keeps there was
    measured with one library, which also leaves the tables of the vocabulary whole on that rank.
    A server on a GPU may use a share of its memory (`memory_share` of the stack), and capacities are that share.
    Steps are judged by the ordinary rank alone, so that a point can have a time and be refused here, with that reason.
    A point that does not fit keeps its numbers, so that one can see by how much.
    In attention a rank holds the prompts of its own group alone. Experts take in the tokens of all groups, and a rank
    has room for all of them, since any of them may be routed to it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> fit = tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=8192)
    >>> bool(fit.valid), bool(fit.total_bytes < fit.capacity_bytes)
    (True, True)
    >>> ask = {"batch": 64, "context": 8192, "input_tokens": 4096, "prompts": [1, 4]}
    >>> one, four = tm.memory_fit("qwen3-30b-a3b", "hgx-h200", tm.Mapping(tp=2, ep=4), **ask).scratchpad_bytes
    >>> float(four - one) == 2 * 3 * 4096 * 2048 * 2  # three more prompts in two BF16 buffers of the hidden size
    True
    """
    mapping = NO_DEGREES if mapping is None else mapping
    model = read_model(model)
    phase: Phase = "decode" if model.generates else "prefill"
    s = setting(model, system, mapping, precision, efficiencies, phase, timed=False)
    sizes: dict[str, Any] = fitting(
        mapping, s.spec_shapes, batch=batch, context=context, input_tokens=input_tokens, prompts=prompts
    )
    if input_tokens is not None and np.any(np.greater(input_tokens, context)):
        refuse("input_tokens", input_tokens, "allowed are at most the tokens of context, which holds the prompt")
    if np.any(np.greater(prompts, batch)):
        refuse("prompts", prompts, "allowed are at most the sequences of batch, whose cache they fill")
    question = MemoryQuestion(setting=s.storing, mapping=mapping, **sizes)
    return MemoryFit(
        system=s.system,
        stack=s.e,
        tp=mapping.tp,
        batch=batch,
        context=context,
        question=question,
        **in_pieces(question),
    )
