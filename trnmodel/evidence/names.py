"""A workload's name in one spelling, and which model of the catalogue it means."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import msgspec

from trnmodel.arguments import shown
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.models import shipped

DASHES = re.compile(r"[\u00ad\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")
PUBLISHER = re.compile(r"^(?:[\w.-]+/|(?:meta-llama|qwen|mistralai|deepseek-ai|nousresearch|google)_)", re.IGNORECASE)
JOB = re.compile(
    r"[ ,(_-]+(?:(?:full|continued|supervised|lora|qlora|sft)[ _-]*)*"
    r"(?:pre-?train\w*|train\w*|fine-?tun\w*|q?lora|sft)\)?$",
    re.IGNORECASE,
)  # of training, behind a model's name


class Alias(msgspec.Struct, frozen=True):
    """A pattern of workload names and the model that they mean."""

    pattern: str
    model: str
    note: str


@cache
def aliases() -> tuple[tuple[re.Pattern, str], ...]:
    """Return patterns of workload names with the model that each means.

    Examples
    --------
    >>> [model for pattern, model in aliases() if pattern.search("Llama-2-7b-chat")]
    ['llama-2-7b']
    """
    rows = read_csv(DATA / "evidence" / "workload_aliases.csv", Alias)
    return tuple((re.compile(row.pattern, re.IGNORECASE), row.model) for row in rows)


def plain(cell: str) -> str:
    """Return a text with one hyphen, one kind of blank and no width: as keyboards write it.

    Examples
    --------
    >>> plain("Llama" + chr(0x2011) + "3.1" + chr(0xA0) + "8B"), plain("5" + chr(0xA0) + chr(0xB5) + "s")
    ('Llama-3.1 8B', '5 us')
    """
    if cell.isascii():
        return cell
    return DASHES.sub("-", unicodedata.normalize("NFKC", cell)).replace("\u03bc", "u").strip()


def bare_name(workload: str) -> str:
    """Return a workload's name without the publisher in front.

    Examples
    --------
    >>> bare_name("meta-llama/Llama-3.1-8B")
    'Llama-3.1-8B'
    """
    return PUBLISHER.sub("", plain(workload).strip())


def model_of(workload: str, models: Mapping[str, Any] | None = None) -> Any:
    """Return the model that a workload name means: of the caller, of the catalog, or of the table.

    Examples
    --------
    >>> model_of("Llama 3.3 70B"), model_of("Llama-3.1-8B full fine-tune")
    ('llama-3.3-70b', 'llama-3.1-8b')
    """
    return models[workload] if models and workload in models else _known_model(workload)


@lru_cache(maxsize=512)
def _known_model(workload: str) -> str:
    name = bare_name(workload)
    for one in (name, JOB.sub("", name)):
        hyphened = re.sub(r"[\s_]+", "-", one.strip())
        spelled = [re.sub(r"^meta-", "", text, flags=re.I) for text in (one, hyphened)]
        named = [model for text in spelled for pattern, model in aliases() if pattern.search(text)]
        for candidate in (workload, one, hyphened, *spelled, *named[:1]):
            if known := shipped.known(candidate):
                return known
    raise UnreadableRowError(
        f"model: no configuration of {shown(workload)} in the catalog; one of yours goes into `models`"
    )
