"""What the ranks of a mapping say to each other in a forward step: which collectives, how many, how large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnmodel.arguments import choice
from trnmodel.catalog.load import precision as read_precision
from trnmodel.catalog.specs import Precision
from trnmodel.workloads.parallelism import Census, Mapping, census
from trnmodel.workloads.transformer import Transformer

Numeric = ArrayLike
CP_ALGORITHMS = ("ring", "ulysses")
RING_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """Collectives of one kind in one step: the full buffer of each, how many, and the group that runs them."""

    name: str
    kind: str
    group: str
    ranks: NDArray
    message_bytes: NDArray
    count: NDArray

    @property
    def wire_bytes_per_rank(self) -> NDArray:
        """Bytes that a rank sends for all of them by a ring, or to a neighbour."""
        passes = RING_PASSES.get(self.kind)
        share = (self.ranks > 1) if passes is None else passes * (self.ranks - 1) / self.ranks
        return share * self.message_bytes * self.count


def _context_messages(c: Census, tokens: NDArray, mapping: Mapping, width: float, algorithm: str) -> list[Message]:
    """What context parallelism sends in prefill: K and V around a ring, or four all-to-alls (Ulysses)."""
    choice("cp_algorithm", algorithm, CP_ALGORITHMS)
    local = tokens / mapping.cp
    messages = []
    for core in c.cores:
        a = core.attention
        ring = a.cached_elements or a.kv_heads * (a.qk_dim + a.v_dim)
        around = (a.heads + a.kv_heads) * (a.qk_dim + a.v_dim)
        if algorithm == "ring":
            turns = core.count * (mapping.cp - 1)
            messages.append(Message("context K, V", "p2p", "cp", mapping.cp, local * ring * width, turns))
        else:
            buffer, count = local * around * width, np.asarray(float(core.count))
            messages.append(Message("context Q, K, V, O", "all_to_all", "cp", mapping.cp, buffer, count))
    return messages


def traffic(
    model: Transformer,
    mapping: Mapping,
    *,
    tokens: Numeric,
    logits: Numeric = 1,
    precision: str | Precision = "bf16",
    phase: str = "prefill",
    cp_algorithm: str = "ring",
) -> tuple[Message, ...]:
    """What the ranks of one replica send in a forward step over `tokens` tokens.

    Parameters
    ----------
    model : Transformer
        The model. [-]
    mapping : Mapping
        Degrees. [-]
    tokens : numeric
        Tokens of the step: sequences of a decode step, or all tokens of a prefill. [token]
    logits : numeric
        Tokens whose logits are gathered. [token]
    precision, phase, cp_algorithm : str
        Storage of activations and KV; "prefill" or "decode"; "ring" or "ulysses". [-]

    Returns
    -------
    messages : tuple of Message
        All-reduces of TP (two a layer; sequence parallelism moves the same bytes), dispatch and combine of EP, stage
        boundaries of PP, the rotation of CP in prefill, the gathering of logits.
    """
    c = census(model, precision, phase)
    width = read_precision(precision).storage_bytes("activations")
    tokens, logits = np.asarray(tokens, dtype=float), np.asarray(logits, dtype=float)
    local = tokens / (mapping.cp if phase == "prefill" else 1) / mapping.ep
    buffer = local * c.hidden * width
    messages = [
        Message("row-parallel outputs", "all_reduce", "tp", mapping.tp, buffer, np.asarray(float(c.all_reduces))),
        Message("logits", "all_gather", "tp", mapping.tp, logits * c.vocabulary * width, np.ones(())),
        Message("stage boundary", "p2p", "pp", mapping.pp, buffer, mapping.pp - 1),
    ]
    if c.expert_layers:
        count = np.asarray(2.0 * c.expert_layers)
        messages.append(Message("expert dispatch and combine", "all_to_all", "ep", mapping.ep, buffer * c.top_k, count))
    if phase == "prefill" and np.any(mapping.cp > 1):
        messages += _context_messages(c, tokens, mapping, width, cp_algorithm)
    return tuple(messages)
