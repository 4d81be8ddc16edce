"""Which software stack of the catalogue stands for the engine, the release and the kernels that a record names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from trnmodel.catalog.load import DATA, read_csv
from trnmodel.evidence.records import Record


class Software(msgspec.Struct, frozen=True):
    """Software of measured rows: what must be stated for it, where a cell is filled, and the stack of its constants."""

    engine: str
    sdk_from: str
    sdk_before: str
    day_from: str
    day_before: str
    chips: str
    kinds: str
    kernels: str
    steps: str
    served: str
    server: str
    stack: str
    note: str


@cache
def software() -> tuple[Software, ...]:
    """Return the table of software, in order.

    Examples
    --------
    >>> "vllm-neuron-2026" in {one.stack for one in software()}
    True
    """
    return tuple(read_csv(DATA / "evidence" / "software.csv", Software))


def _version(text: str) -> tuple[int, ...]:
    """Return a version by its parts: "2.18.1" is (2, 18, 1)."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _between(value: str, first: str, before: str) -> bool:
    """Return whether a release is at least one and before another, where these are named; an unknown one is not."""
    if not (first or before):
        return True
    here = _version(value)
    return bool(here) and (not first or here >= _version(first)) and (not before or here < _version(before))


def stack_of_software(record: Record, chip: str, kind: str) -> str:
    """Return the stack for what a record says of its software; nothing where the chip's default stands for it.

    The last line of `data/evidence/software.csv` that holds decides.

    Parameters
    ----------
    record : Record
        Its engine, release, kernels and whether it is served. [-]
    chip : str
        Id of the chip. [-]
    kind : str
        Kind of the model: "dense", "expert", "hybrid", "encoder" or "encoder-decoder". [-]

    Returns
    -------
    stack : str
        An id, or an empty text. [-]

    Examples
    --------
    >>> stack_of_software(Record(engine="transformers-neuronx", sdk="2.17.0"), "inferentia2", "dense")
    'transformers-neuronx-2.17'
    >>> stack_of_software(Record(), "trainium3", "dense")
    ''
    """
    facts: Mapping[str, str] = {
        "engine": record.engine,
        "chips": chip,
        "kinds": kind,
        "kernels": record.kernels,
        "steps": record.steps,
        "served": record.served,
        "server": record.server,
    }
    stack = ""
    for one in software():
        stated = all(not getattr(one, name) or value in getattr(one, name).split("|") for name, value in facts.items())
        sdk = _between(record.sdk, one.sdk_from, one.sdk_before)
        day = _between(record.day.replace("-", "."), one.day_from.replace("-", "."), one.day_before.replace("-", "."))
        if stated and sdk and day:
            stack = one.stack
    return stack
