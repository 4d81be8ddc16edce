"""Time and memory of prefill and of a decode step, for any grid of batch, context and degrees at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, flag, numbers, refuse, share
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies, fitted_resources
from trnmodel.catalog.systems import System
from trnmodel.formulas.step import left_in_bank_bytes
from trnmodel.models.blocks import Phase
from trnmodel.models.operators import EXPERT_READS
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.assemble import (
    Ask,
    assemble,
    bucket,
    decode_ask,
    prefill_ask,
    stored_kinds,
    total,
)
from trnmodel.steps.assemble import (
    breakdown as lines_of,
)
from trnmodel.steps.ground import basis_of, of_any_figure, spread_of
from trnmodel.steps.legal import RULES, of_lengths
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.messages import Message, messages
from trnmodel.steps.pieces import Answer, Arrays, fitting, in_pieces
from trnmodel.steps.setting import NO_DEGREES, Setting, setting
from trnmodel.units import Numeric

UNKNOWN, TOO_LARGE, FIRST_TOO_LARGE = (2 ** (len(RULES) + bit) for bit in range(3))


Asked = tuple[NDArray, Ask, NDArray, NDArray | float]  # compiled tokens, what is asked, stored bytes, tokens made
Question = Callable[[Setting, Arrays], Asked]


def _step(asked: Question, s: Setting, mapping: Mapping, given: Arrays, lines: bool) -> Step:
    """The result of a step, of which `asked` says what it asks of a rank."""
    work = partial(_numbers, asked)
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
        batch=given["batch"],
        tokens=given["tokens"],
        judge=partial(basis_of, s, given),
        spread=partial(of_any_figure, cache(partial(spread_of, s, mapping, given, work, "time_s")), ""),
        fitted=partial(fitted_resources, s.e, s.at.chip, s.phase),
        send=partial(_messages, asked, s, given),
        run=partial(_way, asked, s, given),
        operators=MappingProxyType(lines_of(s.everywhere, asked(s.everywhere, given)[1]) if lines else {}),
        **in_pieces(work, s, given),
    )


def _numbers(asked: Question, s: Setting, given: Arrays) -> Answer:
    """Every number of a step, and why it cannot exist."""
    compiled, ask, memory, made = asked(s, given)
    times = assemble(s, ask, (given["compute_memory_overlap"], given["network_overlap"]))
    time_s = times["time_s"]
    rate = made / time_s
    numbers = times | {
        "tokens_per_s": given["batch"] * s.degrees.dp * rate,
        "tokens_per_s_per_user": rate,
        "memory_bytes_per_rank": memory,
    }
    mask = _illegal(s, given) | np.isnan(time_s) * UNKNOWN | (memory > s.hbm_bytes / s.sharing) * TOO_LARGE
    return Answer(numbers, {"compiled_tokens": compiled, "reason_mask": mask})


def _illegal(s: Setting, given: Arrays) -> NDArray:
    """Bits of the rules that a point breaks: those of its mapping, and those of its longest sequence."""
    tokens = given["context"] if "context" in given else given["tokens"]
    if "past" in given:
        tokens = tokens + given["past"]
    if "max_context" in given:
        tokens = np.maximum(tokens, given["max_context"])
    return s.illegal | of_lengths(s.model, s.degrees.cp, tokens)


def _messages(asked: Question, s: Setting, given: Arrays) -> tuple[Message, ...]:
    here = s.everywhere
    _, ask, _, _ = asked(here, given)
    return messages(here, ask.rows, ask.logits, ask.imbalance)


def _way(asked: Question, s: Setting, given: Arrays) -> NDArray | float:
    return asked(s.everywhere, given)[1].way


def _overlaps(s: Setting, compute_memory: Numeric | None, network: Numeric | None) -> Arrays:
    inner = s.e.compute_memory_overlap if compute_memory is None else compute_memory
    outer = s.e.network_overlap if network is None else network
    return {
        "compute_memory_overlap": share("compute_memory_overlap", inner),
        "network_overlap": share("network_overlap", outer),
    }


def _optional(name: str, value: Numeric | None) -> NDArray | None:
    return None if value is None else numbers(name, value, 1)


def _holds(name: str, value: Numeric | None, most: Numeric | None, least: Numeric, what: str) -> None:
    """Refuse a size that graphs are compiled for where it is below what they have to hold."""
    if most is not None and np.any(np.less(most, least)):
        refuse(name, value, f"allowed are at least {what}")


def _decoded(expert_read: str | None, s: Setting, given: Arrays) -> Asked:
    """What a decode step asks of a rank, at the compiled length, with its cache as long as it may get."""
    compiled = bucket(given["tokens"], s.e.context_bucket, given.get("max_context"))
    runs = np.maximum(given["batch"], given["compiled_batch"]) if "compiled_batch" in given else given["batch"]
    ask = decode_ask(s, runs, compiled, given["new_tokens"], expert_read, given["expert_imbalance"])
    longest = np.maximum(compiled, given["max_context"]) if "max_context" in given else compiled
    stored = stored_kinds(s, runs, longest, runs * given["new_tokens"])
    return compiled, ask, total(stored.values()), np.float64(1)


def _prefilled(s: Setting, given: Arrays) -> Asked:
    """What a prefill asks of a rank, at the compiled length."""
    batch, past = given["batch"], given["past"]
    compiled = bucket(given["tokens"], s.e.prompt_bucket, given.get("max_context"))
    ask = prefill_ask(s, batch, compiled, past, given["expert_imbalance"])
    return compiled, ask, total(stored_kinds(s, batch, compiled + past, batch * compiled).values()), given["tokens"]


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
    expert_imbalance: Numeric = 1.0,
    compute_memory_overlap: Numeric | None = None,
    network_overlap: Numeric | None = None,
    new_tokens: Numeric = 1,
    breakdown: bool = False,
) -> Step:
    r"""Time of one decode step.

    .. math:: t = \max(t_c, t_w) + \max(t_s, t_{kv}) + t_{net} + t_0

    compute t_c against weights t_w, softmax t_s against the cache t_kv, where the stack overlaps each pair fully.

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
    expert_imbalance : numeric
        Tokens of the hottest expert rank over the mean. [-]
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
    batch, context = numbers("batch", batch, 1), numbers("context", context, 1)
    new_tokens, imbalance = (
        numbers("new_tokens", new_tokens, 1, whole=True),
        numbers("expert_imbalance", expert_imbalance, 1),
    )
    longest = _optional("max_context", max_context)
    slots = None if compiled_batch is None else numbers("compiled_batch", compiled_batch, 1, whole=True)
    if expert_read is not None:
        choice("expert_read", expert_read, EXPERT_READS)
    mapping = NO_DEGREES if mapping is None else mapping
    s = setting(model, system, mapping, precision, efficiencies, "decode")
    overlaps = _overlaps(s, compute_memory_overlap, network_overlap)
    given = fitting(
        mapping,
        s.spec_shapes,
        batch=batch,
        context=context,
        new_tokens=new_tokens,
        max_context=longest,
        expert_imbalance=imbalance,
        compiled_batch=slots,
        **overlaps,
    )
    given["tokens"] = given.pop("context")
    _holds("max_context", max_context, longest, context, "the tokens of context")
    _holds("compiled_batch", compiled_batch, slots, batch, "the sequences of batch")
    if (given["tokens"] < given["new_tokens"]).any():
        refuse("new_tokens", new_tokens[()], "allowed are at most those of context, which counts them")
    return _step(partial(_decoded, expert_read), s, mapping, given, flag("breakdown", breakdown))


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
    expert_imbalance: Numeric = 1.0,
    compute_memory_overlap: Numeric | None = None,
    network_overlap: Numeric | None = None,
    breakdown: bool = False,
) -> Step:
    """Time until the first token of prompts that start together, without a queue.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies, max_context, expert_imbalance
        As in `decode_step`. [-]
    batch : numeric
        Prompts of a replica that run in one execution. [-]
    input_tokens : numeric
        New tokens of each prompt; the stack pads them to its bucket. [token]
    past : numeric
        Tokens of each prompt that are cached already: earlier chunks, or a shared prefix. [token]
    compute_memory_overlap, network_overlap, breakdown
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
    batch, tokens, past = numbers("batch", batch, 1), numbers("input_tokens", input_tokens, 1), numbers("past", past)
    imbalance, longest = numbers("expert_imbalance", expert_imbalance, 1), _optional("max_context", max_context)
    mapping = NO_DEGREES if mapping is None else mapping
    s = setting(model, system, mapping, precision, efficiencies, "prefill")
    overlaps = _overlaps(s, compute_memory_overlap, network_overlap)
    given = fitting(
        mapping,
        s.spec_shapes,
        batch=batch,
        input_tokens=tokens,
        past=past,
        expert_imbalance=imbalance,
        max_context=longest,
        **overlaps,
    )
    given["tokens"] = given.pop("input_tokens")
    _holds("max_context", max_context, longest, past + tokens, "the tokens of past and input_tokens together")
    return _step(_prefilled, s, mapping, given, flag("breakdown", breakdown))


def memory_fit(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    batch: Numeric,
    context: Numeric,
    prompt_tokens: Numeric | None = None,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
) -> MemoryFit:
    """Bytes that a rank stores to serve `batch` sequences of up to `context` tokens, by kind.

    Parameters
    ----------
    model, system, mapping, precision, efficiencies
        As in `decode_step`. [-]
    batch : numeric
        Sequences that the cache is sized for. [-]
    context : numeric
        Longest context of a sequence. [token]
    prompt_tokens : numeric, optional
        Tokens of the largest prefill execution; default `context`. [token]

    Returns
    -------
    fit : MemoryFit
        Weights, cache, scratchpad (activations, in whole pages), collective buffers, DMA rings and code of one rank.

    Notes
    -----
    Ranks fill cores one after another. Where several reach a bank, at LNC 1, what one stores the others cannot.
    The first rank of a server holds more than the others, as measured with one library: `first_rank_total_bytes`.
    Steps are judged by the ordinary rank alone, so that a point can have a time and be refused here, with that reason.
    A point that does not fit keeps its numbers, so that one can see by how much.
    """
    batch, context = numbers("batch", batch, 1), numbers("context", context, 1)
    mapping = NO_DEGREES if mapping is None else mapping
    prompt, model = _optional("prompt_tokens", prompt_tokens), read_model(model)
    phase: Phase = "decode" if model.generates else "prefill"
    s = setting(model, system, mapping, precision, efficiencies, phase, timed=False)
    given = fitting(mapping, s.spec_shapes, batch=batch, context=context, prompt_tokens=prompt)
    if prompt is not None and np.any(prompt > context):
        refuse("prompt_tokens", prompt_tokens, "allowed are at most the tokens of context, which holds the prompt")
    return MemoryFit(
        system=s.system,
        stack=s.e,
        judge=partial(basis_of, s, given, "memory"),
        spread=partial(of_any_figure, cache(partial(spread_of, s, mapping, given, _fit, "total_bytes")), "memory"),
        tp=mapping.tp,
        batch=batch,
        context=context,
        **in_pieces(_fit, s.storing, given),
    )


def _fit(s: Setting, given: Arrays) -> Answer:
    """Stored bytes by kind, and whether they fit; a point that does not fit keeps them."""
    kinds = stored_kinds(s, given["batch"], given["context"], given.get("prompt_tokens", given["context"]))
    whole = total(kinds.values())
    first, even = whole + s.e.first_rank_bytes, s.hbm_bytes / s.sharing
    left = left_in_bank_bytes(s.hbm_bytes, s.sharing, whole)
    mask = (
        _illegal(s, given)
        | np.isnan(s.hbm_bytes) * UNKNOWN
        | (whole > even) * TOO_LARGE
        | (first > left) * FIRST_TOO_LARGE
    )
    totals = {"total_bytes": whole, "first_rank_total_bytes": first}
    room = {"capacity_bytes": np.asarray(even), "first_rank_capacity_bytes": np.asarray(left)}
    return Answer({}, {**kinds, **totals, **room, "reason_mask": mask})
