"""Rules by which software runs a model on a system with a mapping and lengths, or refuses to.

Rules of a stack are fields of it (`head_split`, `expert_split`, `tensor_degrees`, `sequence_parts`), each a row of
`data/` with its source. What no software can do is the same for all: more ranks than there are, a stage without a
layer, a sequence longer than the model's longest context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import refuse, together
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.declared import MACHINE, MODEL, STACK, Flag, Numbers, declare
from trnmodel.models.blocks import Phase
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Result, reason_mask
from trnmodel.steps.mapping import CUTS, MAPPING, Mapping
from trnmodel.steps.rank import Site, site
from trnmodel.units import Numeric

RULES = (
    "more ranks than the system has",
    "more pipeline stages than layers",
    "more expert-parallel ranks than experts",
    "the software needs a number of attention heads that TP divides",
    "the software needs KV heads that are a multiple or a divisor of TP",
    "the software needs a number of experts that its expert-parallel ranks divide",
    "the software does not support this degree of TP on the chip",
    "CP does not cut the sequence into equal parts as the software asks",
    "longer than the model's longest context",
)
Stack = TypeVar("Stack", Efficiencies, Trainer)
UNEVEN, LONGER = 2 ** RULES.index(RULES[-2]), 2 ** RULES.index(RULES[-1])


class Heads(NamedTuple):
    """Numbers of heads that a model has in some layer: of queries or states, and of queries with their own KV heads."""

    queries: tuple[int, ...]
    grouped: tuple[int, ...]


@lru_cache(maxsize=512)
def heads_of(model: Transformer, phase: Phase) -> Heads:
    """Heads that tensor parallelism shares out; a latent that all heads read has no KV heads."""
    running = [layer for layer in model.layers if phase in layer.phases]
    first = {layer.attentions[0] for layer in running if layer.attentions}
    states = {layer.recurrence.heads for layer in running if layer.recurrence}
    queries = {a.heads for a in first} | states
    return Heads(tuple(sorted(queries)), tuple(sorted({a.kv_heads for a in first if not a.latent_dim})))


def of_mapping(model: Transformer, at: Site, mapping: Mapping, e: Efficiencies | Trainer, phase: Phase) -> NDArray:
    """Bits of the rules that degrees break, whatever the lengths are."""
    outline, heads = model.outline(phase), heads_of(model, phase)
    tp, experts, groups = mapping.tp, max(outline.experts, 1), mapping.ep * mapping.moe_ep
    split = unequal = unshared = unsupported = np.asarray(False)
    if e.head_split == "divide":
        split = _any([n % tp != 0 for n in heads.queries])
        unequal = _any([(n % tp != 0) & (tp % n != 0) for n in heads.grouped])
    if isinstance(e, Efficiencies):
        if e.expert_split != "cut":  # a server has whole experts on all ranks of a group
            groups = np.where(mapping.ep > 1, mapping.ep * tp, groups)
        supported = at.chip.tensor_degrees if e.tensor_degrees == "supported" else ()
        if supported and at.lnc == at.chip.lnc_default:
            unsupported = ~np.isin(tp, supported)
    if e.expert_split == "divide":
        unshared = experts % groups != 0
    return reason_mask(
        mapping.ranks > at.chips * at.ranks_per_chip,
        mapping.pp > outline.layers,
        groups > experts,
        split,
        unequal,
        unshared & (groups <= experts),
        unsupported,
    )


def _any(conditions: list[NDArray]) -> NDArray:
    """Return whether any of some conditions holds, for each degree."""
    return np.any(np.stack(conditions), axis=0) if conditions else np.asarray(False)


def most_tokens(model: Transformer) -> float:
    """Tokens of the longest sequence that a model's configuration allows; no end where it states none."""
    return float(model.max_context or np.inf)


def of_lengths(model: Transformer, cp: Numeric, tokens: Numeric, parts: float = 0.0) -> Any:
    """Bits of the rules that lengths break; in training each rank of CP has so many whole `parts` of a sequence."""
    past_end = tokens > most_tokens(model)
    beyond = past_end * LONGER if np.any(past_end) else 0  # which nearly no point is
    if np.ndim(cp) == 0 and cp == 1:
        return beyond
    uneven = np.mod(tokens, parts * cp) != 0 if parts else np.less(tokens, cp)
    return (np.greater(cp, 1) & uneven) * UNEVEN | beyond


def reaching(model: Transformer, tokens: float) -> Transformer:
    """Return a model with positions for that many tokens: a run that was measured had them, its configuration changed.

    Transformers NeuronX and Megatron-LM take their number as an argument, vLLM from a scaling of RoPE.
    """
    return _with_positions(model, math.ceil(tokens)) if tokens > most_tokens(model) else model


def running(model: Transformer, at: Site, mapping: Mapping, e: Stack, phase: Phase) -> Stack:
    """Return a stack, without its rules where they refuse a mapping; a measured run was legal for its software.

    Such a run is of another release or library, which the stack stands for.
    """
    if not np.any(of_mapping(model, at, mapping, e, phase)):
        return e
    every: dict[str, Any] = {"tensor_degrees": "any"} if isinstance(e, Efficiencies) else {}
    return replace(e, head_split="cut", expert_split="cut", **every)


@lru_cache(maxsize=64)
def _with_positions(model: Transformer, tokens: int) -> Transformer:
    """Return a model with a longest context of `tokens`."""
    return replace(model, max_context=tokens)


def longer(model: Transformer, tokens: float) -> str:
    """Text that says why a sequence is longer than the model allows; empty where it is not."""
    return f"{model.id} has contexts of up to {model.max_context:,} tokens" if of_lengths(model, 1, tokens) else ""


def refuse_longer(model: Transformer, name: str, tokens: float) -> None:
    """Raise ValueError, naming the argument, for a sequence that is longer than the model's longest context."""
    if why := longer(model, tokens):
        refuse(name, int(tokens) if tokens % 1 == 0 else tokens, why)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Legality(Result):
    """Whether each point is legal (`valid`), and where it is not, the `reason`."""

    REASONS: ClassVar[tuple[str, ...]] = RULES

    model: Transformer
    system: System | Chip
    stack: Efficiencies | Trainer
    tp: NDArray
    pp: NDArray
    dp: NDArray
    ep: NDArray
    cp: NDArray
    context: NDArray

    def _answer(self) -> list[str]:
        """Print that the software runs it, where it runs every point."""
        return ["the software runs it"] if np.all(self.valid) else []


@declare(model=MODEL, system=MACHINE, mapping=MAPPING, context=Numbers(1), efficiencies=STACK, training=Flag())
def legal(
    model: str | Transformer,
    system: str | System | Chip,
    mapping: Mapping | None = None,
    *,
    context: Numeric = 1,
    efficiencies: str | Efficiencies | Trainer | None = None,
    training: bool = False,
) -> Legality:
    """Return whether a stack runs a model on a system with a mapping and a context, and why not.

    Parameters
    ----------
    model, system, mapping : str or object
        As in `decode_step`. [-]
    context : numeric
        Tokens of the longest sequence: prompt and answer together, or those of a training sequence. [token]
    efficiencies : str or Efficiencies or Trainer, optional
        Software stack, or training stack where `training` is set; default the chip's own. [-]
    training : bool
        Whether the rules are those of a training stack. [-]

    Returns
    -------
    legality : Legality
        `.valid` and `.reason`, arrays of the broadcast shape of the degrees and the length.

    Raises
    ------
    ValueError
        An argument is out of its range, or the chip has no default stack and none is named.

    Notes
    -----
    Where a stack pads heads any degree of TP is legal, and the padding is part of the time. Whether memory holds a
    point is not a question of this function: `memory_fit` answers it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> result = legal("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=[8, 61]), context=4096)
    >>> result.valid.tolist(), "heads" in result.reason[1]
    ([True, False], True)
    >>> bool(legal("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=61), efficiencies="ideal").valid)
    True
    """
    chosen, longest = read_model(model), np.asarray(context)
    mapping = Mapping() if mapping is None else mapping
    together(**{f"mapping.{name}": getattr(mapping, name) for name in CUTS}, context=longest)
    at = site(system, mapping.lnc)
    phase: Phase = "decode" if chosen.generates and not training else "prefill"
    stack: Any = efficiencies
    e: Any = (trainer if training else find)(at.chip, stack, "efficiencies")
    parts = e.sequence_parts if training else 0.0
    mask = of_mapping(chosen, at, mapping, e, phase) | of_lengths(chosen, mapping.cp, longest, parts)
    degrees = {name: getattr(mapping, name)[()] for name in ("tp", "pp", "dp", "ep", "cp")}
    shape = np.broadcast_shapes(longest.shape, *(getattr(mapping, name).shape for name in CUTS))
    mask = np.broadcast_to(mask, shape)[()]
    return Legality(model=chosen, system=at.where, stack=e, **degrees, context=longest[()], reason_mask=mask)
