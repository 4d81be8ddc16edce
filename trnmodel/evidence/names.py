"""Which model of the catalogue a workload's name means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import msgspec

from trnmodel.arguments import shown
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.evidence.records import bare_name
from trnmodel.evidence.rows import UnreadableRowError
from trnmodel.models import shipped


class Alias(msgspec.Struct, frozen=True):
    """A pattern of workload names and the model that they mean."""

    pattern: str
    model: str
    note: str


@cache
def aliases() -> tuple[tuple[re.Pattern, str], ...]:
    """Patterns of workload names with the model that each means."""
    rows = read_csv(DATA / "evidence" / "workload_aliases.csv", Alias)
    return tuple((re.compile(row.pattern, re.IGNORECASE), row.model) for row in rows)


def model_of(workload: str, models: Mapping[str, Any] | None = None) -> Any:
    """Return the model that a workload name means: of the caller, of the table, or of the catalog."""
    return models[workload] if models and workload in models else _known_model(workload)


@lru_cache(maxsize=512)
def _known_model(workload: str) -> str:
    name = bare_name(workload)
    hyphened = re.sub(r"[\s_]+", "-", name.strip())
    plain = [re.sub(r"^meta-", "", one, flags=re.I) for one in (name, hyphened)]
    named = next((model for one in plain for pattern, model in aliases() if pattern.search(one)), workload)
    for candidate in (named, workload, name, hyphened):
        if known := shipped.known(candidate):
            return known
    raise UnreadableRowError(f"model: no configuration of {shown(workload)} in the catalog")
