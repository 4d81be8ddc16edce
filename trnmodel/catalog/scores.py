"""Published losses of quality by number format: rows of `data/`, each a score beside that of the wide formats."""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from trnmodel.catalog import load
from trnmodel.catalog.tables import Confidence, DataError, by_id, check_listed, read_csv
from trnmodel.units import parse_number

PERCENT = 100.0
Dtypes = tuple[str, str, str, str]  # of weights, experts, cache and computation


class ScoreRow(msgspec.Struct, frozen=True):
    """A score of a model in a number format, as `data/evidence/quality.csv` has it.

    `unit_printed` says what the source prints: a "score" beside that of the format it is `compared_with`, the
    "recovery" of that score or the "loss" in percent, or that the model was "published" in this format. A model that
    is none of the catalogue has its architecture and its parameters [10^9] in the row.
    """

    id: str
    model: str
    architecture: str
    params_b: str
    weights: str
    experts: str
    kv: str
    compute: str
    benchmark: str
    baseline_printed: str
    value_printed: str
    unit_printed: Literal["score", "recovery", "loss", "published"]
    compared_with: str
    source: str
    locator: str
    confidence: Confidence
    note: str

    @property
    def dtypes(self) -> Dtypes:
        """Number formats of weights, experts, cache and computation."""
        return self.weights, self.experts, self.kv, self.compute

    @property
    def loss_percent(self) -> float:
        """What is lost, in percent of the score in the wide format; negative where the score is higher [%].

        Examples
        --------
        >>> by_model = {row.model: row for row in scores().values() if row.source == "nm-mixtral-8x22b-fp8"}
        >>> round(by_model["mixtral-8x22b-v0.1"].loss_percent, 2)
        1.11
        """
        value = parse_number(self.value_printed)[0]
        if self.unit_printed == "score":
            return PERCENT * (1 - value / parse_number(self.baseline_printed)[0])
        return PERCENT - value if self.unit_printed == "recovery" else value


@cache
def scores() -> dict[str, ScoreRow]:
    """Return every published score by the id of its row."""
    rows, dtypes = read_csv(load.DATA / "evidence" / "quality.csv", ScoreRow), load.dtypes()
    lists = dict.fromkeys(("weights", "experts", "kv", "compute", "compared_with"), dtypes)
    for number, row in enumerate(rows, start=2):
        place = f"quality.csv row {number} ({row.id})"
        check_listed(row, place, lists | {"source": load.sources()})
        if (row.unit_printed == "score") is not bool(row.baseline_printed):
            raise DataError(f"{place}: column baseline_printed: a score needs one, and nothing else has one")
        if bool(row.architecture) is not bool(row.params_b) or not row.locator:
            raise DataError(f"{place}: columns architecture, params_b and locator: one is empty")
    return by_id(rows, "id", "quality.csv")


@cache
def scores_of(dtypes: Dtypes) -> tuple[ScoreRow, ...]:
    """Return the rows of the number formats of weights, experts, cache and computation."""
    return tuple(row for row in scores().values() if row.dtypes == dtypes)
