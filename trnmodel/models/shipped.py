"""The table of shipped configurations, each with the place where its figures were read."""

from __future__ import annotations

from functools import cache

import msgspec

from trnmodel.catalog.load import DATA, read_csv

MODELS = DATA / "models"


class ModelRow(msgspec.Struct, frozen=True):
    """One shipped configuration and where its figures were read."""

    id: str
    file: str
    aliases: str
    publisher: str
    source: str
    locator: str
    published_params: str
    note: str


@cache
def catalog() -> dict[str, ModelRow]:
    """Shipped models by id."""
    return {row.id: row for row in read_csv(DATA / "models" / "models.csv", ModelRow)}


@cache
def aliases() -> dict[str, str]:
    """Ids by every name in lower case: ids, names of sources, and the latter without their publisher's prefix."""
    table: dict[str, str] = {}
    for row in catalog().values():
        for alias in filter(None, row.aliases.lower().split(";")):
            table |= {alias: row.id, alias.rpartition("/")[2]: row.id}
    return table | {name: name for name in catalog()}
