"""Operators of one step of a model: work, weights, cache and activations, each over its layers and the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import chosen
from trnmodel.catalog import load
from trnmodel.formulas.step import work_flop
from trnmodel.models.blocks import Attention, Part, Phase
from trnmodel.models.terms import EXPERT_READS as EXPERT_READS
from trnmodel.models.terms import ExpertRead as ExpertRead
from trnmodel.models.terms import Term

PHASES: tuple[str, ...] = get_args(Phase)
LOGITS, MASKS = ("last", "all", "none"), ("causal", "full")


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
    """Return the rows that the head turns into logits."""
    return {"last": np.minimum(tokens, 1), "all": tokens, "none": np.zeros(())}[logits]


def element_bytes(dtype: str, name: str = "dtype") -> float:
    """Return the bytes of one element in storage; `name` is that of the caller's argument."""
    return chosen(name, dtype, load.dtypes())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """The checked arguments of one step."""

    batch: NDArray
    tokens: NDArray
    past: NDArray
    source: NDArray
    absorbed: bool
    causal: bool
    logits: str
    expert_read: str

    def pairs(self, a: Attention) -> NDArray:
        """Return the query-key pairs of one sequence."""
        return self.tokens * self.source if a.kind == "cross" else a.pairs(self.tokens, self.past, self.causal)

    def seen(self, a: Attention) -> NDArray:
        """Return the cached tokens that one sequence reads.

        A prefill reads what was cached before, a decode step its own tokens too.
        """
        if a.kind == "cross":
            return self.source
        return a.visible(self.past + self.tokens) if self.absorbed else a.visible(self.past + 1) - 1


def operator(term: Term, step: Step) -> Operator:
    """Return a term's work and bytes for the batch and the tokens of a step."""
    rows = step.batch * step.tokens
    logits = step.batch * logit_rows(step.tokens, step.logits)
    a, nothing = term.attention, np.zeros(rows.shape)
    head = term.part is not None and term.part.group == "head"
    state = term.state_bytes * step.batch
    return Operator(
        name=term.name,
        layer=term.layer,
        part=term.part,
        attention=a,
        count=term.layers,
        rows_in=logits if head else rows,
        flop=work_flop(term.row_flop, rows, term.logit_flop, logits)
        + (term.pair_flop * step.pairs(a) * step.batch if a else 0),
        weight_bytes=term.weights_read(rows, step.expert_read),
        cache_read_bytes=term.cached_bytes * step.seen(a) * step.batch if a else state + nothing,
        cache_write_bytes=term.cached_bytes * rows * (a.kind != "cross") if a else state + nothing,
        activation_bytes=term.activation_bytes * (logits if head else rows),
    )
