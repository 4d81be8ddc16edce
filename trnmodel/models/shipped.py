"""The table of shipped configurations, each with the place where its figures were read."""

from __future__ import annotations

from functools import cache, lru_cache

import msgspec

from trnmodel.catalog.load import DATA, read_csv
from trnmodel.catalog.names import folded, index

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
    """Return the rows of shipped models by id."""
    return {row.id: row for row in read_csv(DATA / "models" / "models.csv", ModelRow)}


@cache
def aliases() -> dict[str, str]:
    """Return ids by every folded name: ids, names of sources, and the latter without their publisher's prefix."""
    named = [(row.id, row.id) for row in catalog().values()]
    for row in catalog().values():
        for alias in filter(None, row.aliases.split(";")):
            publisher, _, rest = alias.partition("/")
            named += [(alias, row.id)] if " " in publisher else [(alias, row.id), (rest or alias, row.id)]
    return index(named, "models.csv")


@lru_cache(maxsize=512)
def known(name: str) -> str | None:
    """Return the id of the shipped model that a name means; None where there is none.

    Examples
    --------
    >>> known("llama3.3"), known("DeepSeek V3"), known("llama")
    ('llama-3.3-70b', 'deepseek-v3', None)
    """
    return aliases().get(folded(name))
