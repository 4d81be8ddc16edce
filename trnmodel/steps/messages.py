"""What the ranks of a mapping say to each other in a forward step: which collectives, how many, how large."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.catalog.stacks import Efficiencies
from trnmodel.fabric.collectives import times_s
from trnmodel.models.terms import Outline
from trnmodel.steps.mapping import Held, Mapping
from trnmodel.steps.rank import Site

Numeric = ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Collectives of one kind in one step: the full buffer of each, how many, and the group that runs them."""

    name: str
    kind: str
    group: str
    message_bytes: NDArray
    count: NDArray


def _context(h: Held, mapping: Mapping, row_bytes: NDArray, phase: str, exchange: str) -> Message:
    """What context parallelism sends for one kind of attention.

    Decode sums up partial outputs of all heads. Prefill passes keys and values round ("ring"), or exchanges sequences
    for heads of queries, keys, values and outputs ("ulysses"). `row_bytes` are a rank's rows times bytes of an element.
    """
    a, layers = h.term.attention, np.asarray(float(h.term.layers))
    assert a is not None
    if phase == "decode":
        partial = row_bytes * a.heads * h.work * (a.latent_value_dim or a.v_dim)
        return Message(f"partial outputs of {h.term.label}", "all_reduce", "cp", partial, layers)
    if exchange == "ulysses":
        around = row_bytes * (a.heads * h.work + a.kv_heads * h.cached) * (a.qk_dim + a.v_dim)
        return Message(f"heads of {h.term.label}", "all_to_all", "cp", around, layers)
    passed = row_bytes * a.cached_elements * h.cached
    return Message(f"keys and values of {h.term.label}", "p2p", "cp", passed, layers * (mapping.cp - 1))


def messages(
    mapping: Mapping,
    held: Iterable[Held],
    outline: Outline,
    wide_bytes: float,
    phase: str,
    e: Efficiencies,
    rows: NDArray,
    logits: NDArray,
    imbalance: Numeric,
) -> tuple[Message, ...]:
    """What a rank sends in a forward step over `rows` rows of its own, `logits` of them with logits.

    The all-reduces of TP, two a layer (sequence parallelism moves the same bytes); the logits, where a stack gathers
    them; the boundaries of PP; dispatch and combine of experts, of which each TP rank carries its share of the width;
    the exchange of CP.
    """
    buffer = rows * outline.hidden * wide_bytes
    found = []
    if np.any(mapping.tp > 1):
        count = np.asarray(float(outline.all_reduces))
        found.append(Message("row-parallel outputs", "all_reduce", "tp", buffer, count))
        if np.any(e.logit_gathers):
            gathered = logits * outline.vocabulary * wide_bytes
            found.append(Message("logits", "all_gather", "tp", gathered, np.asarray(e.logit_gathers)))
    if np.any(mapping.pp > 1):
        found.append(Message("stage boundary", "p2p", "pp", buffer, mapping.pp - 1))
    if np.any(mapping.ep > 1) and outline.experts:
        sent, count = buffer * outline.top_k / mapping.tp * imbalance, np.asarray(2.0 * outline.expert_layers)
        found.append(Message("expert dispatch and combine", "all_to_all", "ep", sent, count))
    if np.any(mapping.cp > 1):
        found += [_context(h, mapping, rows * wide_bytes, phase, e.context_exchange) for h in held if h.term.attention]
    return tuple(found)


def message_s(at: Site, mapping: Mapping, e: Efficiencies, message: Message) -> NDArray:
    """Time of all collectives of a message, each as `tm.collective` has it. [s]"""
    group = getattr(mapping, message.group), mapping.extent(message.group)[0]
    return message.count * times_s(message.kind, message.message_bytes, at.where, *group, at.lnc, e)
