"""Operators of one step of a model: work, weights, cache and activations, each over its layers and the batch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import chosen
from trnmodel.catalog import load
from trnmodel.catalog.specs import Precision
from trnmodel.workloads.blocks import Attention, Layer, Part

ExpertRead = Literal["distinct", "per_token", "all"]
EXPERT_READS: tuple[str, ...] = get_args(ExpertRead)
LOGITS, MASKS, PHASES = ("last", "all", "none"), ("causal", "full"), ("prefill", "decode")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One operator of one kind of layer, over all its layers, the batch and the tokens of a step."""

    name: str
    layer: str
    part: Part | None
    attention: Attention | None
    count: int
    rows_in: NDArray
    flop: NDArray
    weight_bytes: NDArray
    cache_read_bytes: NDArray
    cache_write_bytes: NDArray
    activation_bytes: NDArray


def logit_rows(tokens: NDArray, logits: str) -> NDArray:
    """Rows that the head turns into logits."""
    return {"last": np.minimum(tokens, 1), "all": tokens, "none": np.zeros(())}[logits]


def element_bytes(dtype: str, name: str = "dtype") -> float:
    """Bytes of one element in storage; `name` is what the caller calls the dtype. [B]"""
    return chosen(name, dtype, load.dtypes())


def _expert_copies(copies: int, active: int, tokens: NDArray, expert_read: str) -> NDArray:
    """Experts that a step of so many tokens reads in a layer, under uniform routing."""
    if expert_read == "all":
        return np.asarray(copies)
    if expert_read == "per_token":
        return tokens * active
    return copies * (1 - (1 - active / copies) ** tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """The checked arguments of one step."""

    batch: NDArray
    tokens: NDArray
    past: NDArray
    source: NDArray
    precision: Precision
    absorbed: bool
    causal: bool
    logits: str
    expert_read: str


def matrix_operator(count: int, layer: str, part: Part, step: Step) -> Operator:
    """One matrix, or one table, of a kind of layer."""
    rows = step.batch * (logit_rows(step.tokens, step.logits) if part.group == "head" else step.tokens)
    width = 0 if part.lookup else part.active * (part.rows + part.cols)
    nothing = np.zeros(rows.shape)
    return Operator(
        name=part.name,
        layer=layer,
        part=part,
        attention=None,
        count=count,
        rows_in=rows,
        flop=count * part.flop_per_token * rows,
        weight_bytes=weights_read_bytes([(count, part)], step.batch * step.tokens, step.precision, step.expert_read),
        cache_read_bytes=nothing,
        cache_write_bytes=nothing,
        activation_bytes=count * width * rows * step.precision.storage_bytes("activations"),
    )


def core_operator(a: Attention, layer: Layer, step: Step) -> Operator:
    """Scores and weighted values of one kind of attention."""
    cross = a.kind == "cross"
    own = 0 if step.absorbed else 1  # a prefill reads what was cached before, a decode step its own token too
    pairs = step.tokens * step.source if cross else a.pairs(step.tokens, step.past, step.causal)
    seen = step.source if cross else a.visible(step.past + (step.tokens if step.absorbed else own)) - own
    per_token = layer.count * a.cached_elements * step.precision.storage_bytes("kv")
    rows = step.batch * step.tokens
    return Operator(
        name=f"{a.kind} attention",
        layer=layer.name,
        part=None,
        attention=a,
        count=layer.count,
        rows_in=rows,
        flop=layer.count * a.flop_per_pair(step.absorbed) * pairs * step.batch,
        weight_bytes=np.zeros(rows.shape),
        cache_read_bytes=per_token * seen * step.batch,
        cache_write_bytes=per_token * rows * (0 if cross else 1),
        activation_bytes=layer.count
        * a.heads
        * (a.qk_dim + a.v_dim)
        * rows
        * step.precision.storage_bytes("activations"),
    )


def scan_operator(layer: Layer, step: Step) -> Operator:
    """Update and reading of a recurrent state, which is read and written once a step."""
    recurrence = layer.recurrence
    assert recurrence is not None
    rows = step.batch * step.tokens
    state = layer.count * recurrence.state_elements * element_bytes("fp32")
    tail = layer.count * recurrence.conv_elements * step.precision.storage_bytes("activations")
    return Operator(
        name=f"{recurrence.kind} scan",
        layer=layer.name,
        part=None,
        attention=None,
        count=layer.count,
        rows_in=rows,
        flop=layer.count * recurrence.flop_per_token * rows,
        weight_bytes=np.zeros(rows.shape),
        cache_read_bytes=(state + tail) * step.batch,
        cache_write_bytes=(state + tail) * step.batch,
        activation_bytes=np.zeros(rows.shape),
    )


def weights_read_bytes(
    parts: list[tuple[int, Part]], tokens: NDArray, precision: str | Precision, expert_read: str
) -> NDArray:
    """Bytes of parts that a step reads: dense ones once, a row of each table for a token, experts by their policy."""
    per_element = storage_bytes(precision)
    fixed, per_token = 0.0, 0.0
    routed: dict[tuple[int, int], float] = defaultdict(float)
    for count, part in parts:
        one_copy = count * (part.rows * part.cols * per_element[part.store] + part.extra * per_element["wide"])
        if part.lookup:
            per_token += count * part.cols * per_element["wide"]
        elif part.group == "experts":
            routed[part.copies, part.active] += one_copy
        else:
            fixed += one_copy
    read: NDArray = fixed + per_token * tokens
    for (copies, active), one_copy in routed.items():
        read = read + one_copy * _expert_copies(copies, active, tokens, expert_read)
    return np.asarray(read)


def storage_bytes(precision: str | Precision) -> dict[str, float]:
    """Bytes of an element by kind of storage; what no format narrows has the activations' width."""
    formats = load.precision(precision)
    return {
        "weights": formats.storage_bytes("weights"),
        "experts": formats.storage_bytes("experts"),
        "wide": formats.storage_bytes("activations"),
    }
