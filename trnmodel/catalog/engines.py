"""Releases of serving engines, and what their documents say that they support: rows of `data/`, each with a source.

A row says one thing of one release: that it lists an architecture, or what it says of a feature. What no row says is
"not stated", which is no "not supported".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

import msgspec

from trnmodel.catalog import load, reader
from trnmodel.catalog.tables import DataError, by_id, check_listed, read_csv

ANY = "any"
NOT_STATED = "not stated"
Stated = Literal["supported", "beta", "untested", "contributed", "not supported"]
RUNS = ("supported", "beta")  # by the documents of the engine
FEATURES = (  # in the order in which they are printed
    "speculation",
    "prefix-caching",
    "chunked-prefill",
    "long-context",
    "lora",
    "structured-output",
    "images",
    "embeddings",
    "async-scheduling",
    "disaggregation",
    "data-parallelism",
    "attention-data-parallelism",
    "expert-parallelism",
    "pipeline-parallelism",
    "int8",
    "fp8",
    "mxfp8",
    "mxfp4",
    "nvfp4",
    "kv-fp8",
)


class ReleaseRow(msgspec.Struct, frozen=True):
    """A release of an engine, as `data/lists/releases.csv` has it: where it runs, and which stacks stand for it."""

    id: str
    engine: str
    name: str
    published: str
    chips: str
    stacks: str
    source: str
    locator: str
    note: str


class SupportRow(msgspec.Struct, frozen=True):
    """What a document says of a release: an architecture, or a feature of it or of all ("any").

    Without `chips` it speaks of all chips of the release, without `models` of all models of the architecture.
    """

    release: str
    architecture: str
    feature: str
    chips: str
    models: str
    status: Stated
    printed: str
    source: str
    locator: str
    note: str

    def speaks_of(self, architecture: str, model: str, chip: str) -> bool:
        """Whether the row holds for a model of an architecture on a chip."""
        return (
            self.architecture in (ANY, architecture)
            and (not self.chips or chip in self.chips.split())
            and (not self.models or model in self.models.split())
        )

    @property
    def narrowness(self) -> tuple[bool, bool, bool]:
        """How much a row is about one case alone: the narrower row is the one that holds."""
        return bool(self.models), self.architecture != ANY, bool(self.chips)


@cache
def releases() -> dict[str, ReleaseRow]:
    """Return every release by id; of one engine the newest comes first.

    Examples
    --------
    >>> next(iter(releases().values())).name
    'vLLM Neuron 0.24.0.1.1.0 (Beta), Neuron SDK 2.32.0'
    """
    rows = read_csv(load.DATA / "lists" / "releases.csv", ReleaseRow)
    for number, row in enumerate(rows, start=2):
        place = f"releases.csv row {number} ({row.id})"
        check_listed(row, place, {"source": load.sources()})
        for column, known in (("chips", load.chips()), ("stacks", reader.ids("stack"))):
            _check_ids(place, column, getattr(row, column), set(known))
    return by_id(rows, "id", "releases.csv")


def _check_ids(place: str, column: str, cell: str, known: set[str]) -> None:
    """Raise DataError for an id in a cell that is none of those known."""
    if strange := sorted(set(cell.split()) - known):
        raise DataError(f"{place}: column {column}: {strange[0]!r} is unknown")


@cache
def support_rows() -> dict[str, tuple[SupportRow, ...]]:
    """Return what is said of each release, by its id."""
    rows = read_csv(load.DATA / "evidence" / "support.csv", SupportRow)
    for number, row in enumerate(rows, start=2):
        place = f"support.csv row {number}"
        lists = {"source": load.sources(), "release": releases(), "feature": {"", *FEATURES}}
        check_listed(row, place, lists)
        _check_ids(place, "chips", row.chips, set(load.chips()))
        if not row.locator or not row.printed:
            raise DataError(f"{place}: columns printed and locator: empty")
    return {name: tuple(row for row in rows if row.release == name) for name in releases()}


def said(release: str, architecture: str, model: str, chip: str) -> dict[str, SupportRow]:
    """Return the row in force of each feature that a release speaks of for a model on a chip; "" is the architecture.

    Of several rows the narrowest holds: one about the model before one about its architecture, and that before one
    about all.

    Examples
    --------
    >>> said("vllm-neuron-2.32", "gpt_oss", "gpt-oss-120b", "trainium2")["mxfp4"].status
    'not supported'
    """
    fitting = [row for row in support_rows()[release] if row.speaks_of(architecture, model, chip)]
    return {row.feature: row for row in sorted(fitting, key=lambda row: row.narrowness)}


def of_stack(stack: str) -> Iterator[ReleaseRow]:
    """Return the releases that a stack stands for: its own, or those of the stack that it builds on.

    Examples
    --------
    >>> [release.id for release in of_stack("vllm-neuron-2026-async")]
    ['vllm-neuron-2.32', 'nxd-inference-2.31', 'nxd-inference-2.28']
    """
    chain = set(reader.lineage(stack))
    return (release for release in releases().values() if chain & set(release.stacks.split()))
