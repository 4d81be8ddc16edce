"""What the ranks of a mapping say to each other in a forward step: which collectives, how many, how large."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import NDArray

from trnmodel.fabric.collectives import times_s
from trnmodel.formulas.moe import dispatched_bytes
from trnmodel.formulas.step import buffer_bytes
from trnmodel.steps.setting import Burden, Setting
from trnmodel.units import Numeric


class Message(NamedTuple):
    """Collectives of one kind in one step: the full buffer of each, how many, and the group that runs them."""

    name: str
    kind: str
    group: str
    message_bytes: NDArray
    count: Numeric


def _context(s: Setting, b: Burden, rows: NDArray) -> Message:
    """What context parallelism sends for one kind of attention.

    Decode sums up partial outputs of all heads. Prefill passes keys and values round ("ring"), or exchanges sequences
    for heads of queries, keys, values and outputs ("ulysses").
    """
    a, layers = b.attention, float(b.layers)
    assert a is not None
    if s.phase == "decode":
        partial = buffer_bytes(rows, a.heads * b.head_share * (a.latent_value_dim or a.v_dim), s.wide_bytes)
        return Message(f"partial outputs of {b.name}", "all_reduce", "cp", partial, layers)
    if s.e.context_exchange == "ulysses":
        heads = a.heads * b.head_share + a.kv_heads * b.kv_share
        around = buffer_bytes(rows, heads * (a.qk_dim + a.v_dim), s.wide_bytes)
        return Message(f"heads of {b.name}", "all_to_all", "cp", around, layers)
    passed = buffer_bytes(rows, a.cached_elements * b.kv_share, s.wide_bytes)
    return Message(f"keys and values of {b.name}", "p2p", "cp", passed, layers * (s.degrees.cp - 1))


def messages(s: Setting, rows: NDArray, logits: NDArray, imbalance: Numeric) -> tuple[Message, ...]:
    """What a rank sends in a forward step over `rows` rows of its own, `logits` of them with logits.

    The all-reduces of TP, two a layer (sequence parallelism moves the same bytes); the logits, where a stack gathers
    them; the boundaries of PP; dispatch and combine of experts, of which each TP rank carries its share of the width;
    the exchange of CP.
    """
    c, d = s.outline, s.degrees
    buffer = buffer_bytes(rows, c.hidden, s.wide_bytes)
    found = []
    if "tp" in s.parted:
        found.append(Message("row-parallel outputs", "all_reduce", "tp", buffer, float(c.all_reduces)))
        if s.gathers_logits:
            gathered = buffer_bytes(logits, c.vocabulary, s.wide_bytes)
            found.append(Message("logits", "all_gather", "tp", gathered, s.e.logit_gathers))
    if "pp" in s.parted:
        found.append(Message("stage boundary", "p2p", "pp", buffer, d.pp - 1))
    if "ep" in s.parted and c.experts:
        sent = dispatched_bytes(buffer, c.top_k, d.tp, imbalance) * s.e.dispatch_traffic_ratio
        found.append(Message("expert dispatch and combine", "all_to_all", "ep", sent, 2.0 * c.expert_layers))
    if "cp" in s.parted:
        found += [_context(s, b, rows) for b in s.burdens if b.attention]
    return tuple(found)


def message_s(s: Setting, message: Message) -> NDArray:
    """Time of all collectives of a message, each as `tm.collective` has it. [s]"""
    ranks, stride = s.teams[message.group]
    sizes = message.message_bytes
    return message.count * times_s(message.kind, sizes, s.at.where, ranks, stride, s.at.lnc, s.e, s.index)
