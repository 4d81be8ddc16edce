"""How well a model answers in a number format: published losses of score beside the format that it is published in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import nan
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from trnmodel.arguments import number
from trnmodel.catalog import load
from trnmodel.catalog.scores import PERCENT, Dtypes, ScoreRow, scores_of
from trnmodel.catalog.specs import Precision
from trnmodel.declared import MODEL, PRECISION, declare
from trnmodel.models.shipped import known
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Card, card_of
from trnmodel.units import BILLION, counted

if TYPE_CHECKING:
    import pandas as pd

Word = Literal["measured", "interpolated", "extrapolated", "ideal"]
WIDE = ("fp32", "tf32", "bf16", "fp16")  # formats of 16 bits and more, which lose nothing
FEWEST = 3  # rows that tell a range
NEARBY = 2.0  # factor of the parameters within which models are of like size
FIRMEST: tuple[Word, ...] = ("ideal", "measured", "interpolated", "extrapolated")


class Loss(NamedTuple):
    """A loss of score with its ends, what it rests on and the rows behind it [%]."""

    value: float
    low: float
    high: float
    word: Word
    reason: str
    rows: tuple[ScoreRow, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Quality(Card):
    """What a number format loses of a model's score, in percent of the score in BF16, by published measurements.

    Negative where the score is higher. NaN, from 0 to 100, where nobody has published a row of the format. `rows` are
    ids of `data/evidence/quality.csv`.
    """

    model: Transformer
    precision: Precision
    loss_percent: float
    loss_percent_low: float
    loss_percent_high: float
    basis: Word
    basis_reason: str
    rows: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def known(self) -> bool:
        """Whether there is a published row to go by."""
        return not np.isnan(self.loss_percent)

    def exceeds(self, limit: float) -> bool:
        """Return whether the loss is above a limit [%]; an unknown loss is above every limit under 100.

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.quality("llama-3.1-8b", "mxfp4").exceeds(2.0), tm.quality("llama-3.1-70b", "fp8").exceeds(2.0)
        (True, False)
        """
        most = number("limit", limit, 0, PERCENT)
        return self.loss_percent > most if self.known else self.loss_percent_high > most

    def described(self) -> str:
        """Return the loss in words, with its range and what it rests on."""
        why = f"; {self.basis_reason}" if self.basis_reason else ""
        if not self.known:
            return f"loses an unpublished part of its score ({self.basis}{why})"
        if self.basis == "ideal":
            return f"loses nothing of its score ({self.basis}{why})"
        ends = f"{self.loss_percent_low:.2g} to {self.loss_percent_high:.2g}"
        return f"loses {self.loss_percent:.2g} % of its score in BF16 ({ends}; {self.basis}{why})"

    def card(self) -> list[str]:
        """Return the loss on a few lines: with its range, what it rests on, and the sources."""
        head = f"Quality: {self.model.id} in {self.precision.name} {self.described()}"
        if not self.rows or self.basis == "ideal":
            return [head]
        scores = counted(len(self.rows), "score")
        return card_of(head, [[f"{scores} published by {self.sources[0]}", *self.sources[1:]]])

    def to_frame(self) -> pd.DataFrame:
        """Return the rows that the loss rests on: model, benchmark, what is printed, loss, source, locator, note."""
        import pandas as pd

        names = ["id", "model", "benchmark", "baseline_printed", "value_printed", "unit_printed", "compared_with"]
        names += ["loss_percent", "source", "locator", "confidence", "note"]
        used = _picked(self.model, self.precision).rows
        return pd.DataFrame([{name: getattr(row, name) for name in names} for row in used], columns=names)


@cache
def _described(row: ScoreRow) -> tuple[str, float]:
    """Return the architecture and the parameters of a row's model."""
    if row.architecture:
        return row.architecture, float(row.params_b) * BILLION
    shipped = read_model(row.model)
    return shipped.architecture, float(shipped.total_params)


def _alike(row: ScoreRow, model: Transformer) -> bool:
    """Whether a row's model is of the same architecture, or its parameters are within a factor of two."""
    architecture, params = _described(row)
    size = max(params / model.total_params, model.total_params / params)
    return architecture == model.architecture or size <= NEARBY


def _same(row: ScoreRow, model: Transformer) -> bool:
    """Whether a row is about this very model; a file of the user's own is none of the published ones."""
    return not model.path and row.model == model.id and known(row.model) == model.id


def _summary(sets: list[tuple[ScoreRow, ...]], word: Word, reason: str) -> Loss:
    """Return the median of the means of each source's rows of a model, of the first of several sets of rows.

    Its ends are the smallest and the largest row of the first set that has enough of them to tell a range.
    """
    tables, rows = defaultdict(list), sets[0]
    for row in rows:
        tables[row.source, row.model].append(row.loss_percent)
    losses = [row.loss_percent for row in next((one for one in sets if len(one) >= FEWEST), sets[-1])]
    return Loss(median(map(fmean, tables.values())), min(losses), max(losses), word, reason, rows)


def _of_dtypes(model: Transformer, dtypes: Dtypes) -> Loss:
    """Return the loss by the rows of one set of number formats."""
    rows = scores_of(dtypes)
    own = tuple(row for row in rows if _same(row, model))
    published = tuple(row for row in own if row.unit_printed == "published")
    if published:
        return Loss(0.0, 0.0, 0.0, "ideal", f"{model.id} is published in this format", published)
    rows = tuple(row for row in rows if row.unit_printed != "published")
    near = tuple(row for row in rows if _alike(row, model))
    if own:
        return _summary([own, near, rows], "measured", "")
    if near:
        return _summary([near, rows], "interpolated", f"scores of {_names(near)}")
    if rows:
        return _summary([rows], "extrapolated", f"model: scores of {_names(rows)} alone")
    return Loss(nan, 0.0, PERCENT, "extrapolated", f"format: no published score in {_printed(dtypes)}")


def _names(rows: Iterable[ScoreRow]) -> str:
    names = list(dict.fromkeys(row.model for row in rows))
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} other models"


def _printed(dtypes: Dtypes) -> str:
    """Return number formats in words."""
    weights, experts, kv, compute = dtypes
    stored = f"{weights} weights" if weights == experts else f"{weights} weights and {experts} experts"
    in_cache = "" if kv in WIDE else f" and a cache in {kv}"
    return f"{stored}{in_cache}, computed in {compute}"


def _parts(model: Transformer, precision: Precision) -> tuple[Dtypes, Dtypes | None, Dtypes | None]:
    """Return the number formats of all, of the products alone, and of the cache alone; None for what is wide.

    A model without experts has none to narrow.
    """
    has_experts = any(part.group == "experts" for layer in model.layers for part in layer.parts)
    weights, compute = _wide(precision.weights), _wide(precision.compute)
    experts = _wide(precision.experts or precision.weights) if has_experts else weights
    kv = _wide(precision.kv)
    products = None if (weights, experts, compute) == ("bf16",) * 3 else (weights, experts, "bf16", compute)
    return (weights, experts, kv, compute), products, None if kv == "bf16" else ("bf16", "bf16", kv, "bf16")


def _wide(dtype: str) -> str:
    return "bf16" if dtype in WIDE else dtype


@lru_cache(maxsize=4096)
def _picked(model: Transformer, precision: Precision) -> Loss:
    """Return the loss of a model in a precision; a narrow attention is extrapolated, for no row has it."""
    loss = _of_formats(model, precision)
    if precision.attention in WIDE:
        return loss
    reason = f"attention: no published score multiplies it in {precision.attention}"
    return loss._replace(word="extrapolated", reason="; ".join(filter(None, (loss.reason, reason))))


def _of_formats(model: Transformer, precision: Precision) -> Loss:
    """Return the loss by the formats of weights, experts, cache and products."""
    together, products, cached = _parts(model, precision)
    if products is None and cached is None:
        return Loss(0.0, 0.0, 0.0, "ideal", "formats of 16 bits and more lose nothing")
    if products is None or cached is None:
        return _of_dtypes(model, together)
    both = _of_dtypes(model, together)
    if both.word == "measured":
        return both
    return _sum(_of_dtypes(model, products), _of_dtypes(model, cached))


def _sum(products: Loss, cached: Loss) -> Loss:
    """Return the loss of narrow products and a narrow cache: their losses add up, and the weaker basis holds."""
    parts = {"products": products, "cache": cached}
    word = max((one.word for one in parts.values()), key=FIRMEST.index)
    reasons = [f"{name}: {one.reason}" for name, one in parts.items() if one.reason]
    ends = products.low + cached.low, min(products.high + cached.high, PERCENT)
    return Loss(products.value + cached.value, *ends, word, "; ".join(reasons), products.rows + cached.rows)


@declare(model=MODEL, precision=PRECISION)
def quality(model: str | Transformer, precision: str | Precision) -> Quality:
    """Return what a number format loses of a model's score, by published measurements.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of a config.json, or object. [-]
    precision : str or Precision
        Preset or object; what counts are the formats of weights, experts, cache and products. [-]

    Returns
    -------
    quality : Quality
        `.loss_percent` with `_low` and `_high`, in percent of the score in BF16; `.basis` and the `.rows` behind it.

    Raises
    ------
    ValueError
        Unknown model or precision.

    Notes
    -----
    The rows are those of the same formats, taken from the first of these sets that has any: this very model
    ("measured"); models of the same architecture or with parameters within a factor of two ("interpolated"); all
    models ("extrapolated"). Each source's rows of a model give their mean, and the loss is the median of these
    means; its ends are the smallest and the largest row, or those of the next set where there are fewer than three.
    Rows differ in benchmark and in the recipe of quantization, so that the range is what others have got, and no 90
    % interval. Formats of 16 bits and more, and the format that a model is published in, lose nothing ("ideal").
    Losses of the products and of the cache add up where nobody has published both together. Where no row has the
    formats the loss is NaN, from 0 to 100: an unknown widens, it is not guessed. An attention in 8 bits makes the
    answer "extrapolated", because no row is of one.

    Examples
    --------
    >>> import trnmodel as tm
    >>> one = tm.quality("llama-3.1-70b", "fp8")
    >>> one.basis, round(one.loss_percent, 2), len(one.rows)
    ('measured', -0.39, 2)
    >>> tm.quality("gpt-oss-120b", "mxfp4-moe").basis_reason
    'gpt-oss-120b is published in this format'
    >>> tm.quality("llama-3.1-70b", "w4a8").known
    False
    """
    chosen, formats = read_model(model), load.precision(precision)
    loss = _picked(chosen, formats)
    return Quality(
        model=chosen,
        precision=formats,
        loss_percent=loss.value,
        loss_percent_low=loss.low,
        loss_percent_high=loss.high,
        basis=loss.word,
        basis_reason=loss.reason,
        rows=tuple(row.id for row in loss.rows),
        sources=tuple(dict.fromkeys(row.source for row in loss.rows)),
    )
