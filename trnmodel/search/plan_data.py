"""A plan as plain data: every figure with the ends of its band, the bill, what stands beside it, and the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.quantities import quantity
from trnmodel.result import Grounded
from trnmodel.search.capacity import BillLine, Capacity
from trnmodel.search.choice import Choice
from trnmodel.search.flips import Flips
from trnmodel.search.pairs import Pair
from trnmodel.search.price_ties import PriceTie

if TYPE_CHECKING:
    from trnmodel.search.plan import Plan

TEXTS = ("place", "mapping", "precision", "basis", "basis_reason", "reason")
COUNTS = ("chance", *Choice.UNBANDED)
DEMAND = ("users", "chips", "site_w", "usd_per_month", "availability", "facility", "pricing", "owner")
NUMBERS = ("float", "int", "NDArray")
LOSSES = ("loss_percent", "loss_percent_low", "loss_percent_high")
LABELS = ("system", "status", "option", "stack", "stack_kind", "support", "missing", "quality_basis", *TEXTS)
SPEED = ("tokens_per_s_per_user", "below", "above", "alone")


def data_of(p: Plan) -> dict[str, Any]:
    """Return a plan as nested mappings, lists, texts, numbers and None; a figure has its ends after it.

    Keys are those of `data_schema`; what is unknown, or has no end, is None.
    """
    best, result = p.best, p.capacity
    request = {name: _plain(getattr(p.request, name)) for name in p.request.allowed}
    return {
        "model": p.model.id,
        "request": request,
        "demand": {name: _word(getattr(p.demand, name)) for name in DEMAND} if p.demand else None,
        "reached": p.reached,
        "best": _choice(p, best) if best else None,
        "capacity": _figures(result) if result is not None and result.valid else None,
        "full": _full(result) if result is not None and result.valid else None,
        "bill": [_named(one._asdict()) for one in result.bill_lines()] if result is not None and result.valid else [],
        "lost_h_by_cause": result.lost_h_by_cause if result is not None and result.valid else {},
        "ties": p.same,
        "choices": [_with_capacity(p, c) for c in p.choices],
        "gpus": [_with_capacity(p, c) for c in p.gpus],
        "other_software": [_choice(p, c) for c in p.other_software],
        "next_mapping": [_choice(p, c) for c in p.second],
        "why": p.why,
        "flips": _flips(p.flips()),
        "nearest": p.nearest,
        "command": p.command,
        "no_command": p.no_command,
    }


def _with_capacity(p: Plan, c: Choice) -> dict[str, Any]:
    """Return a choice with its instances, bill and watts, for the demand and with its replicas full."""
    one = p.capacity_of(c)
    known = {"capacity": _figures(one), "full": _full(one)} if one.valid else {"capacity": None, "full": None}
    return {"choice": _choice(p, c)} | known


def _full(one: Capacity) -> dict[str, Any]:
    """Return the figures of a choice and of its instances where its replicas are full."""
    return {"choice": _figures(one.full.choice), "capacity": _figures(one.full)}


def _choice(p: Plan, c: Choice) -> dict[str, Any]:
    """Return a choice: where and how it runs, its figures with their ends, and why it loses."""
    texts = {name: str(getattr(c, name)) for name in TEXTS}
    ids: dict[str, Any] = {"system": c.system.id, "status": c.system.status, "option": c.option.id, "stack": c.stack.id}
    ids |= {"stack_kind": c.stack.kind, "valid": bool(c.valid)}
    ids |= {"support": c.support.status, "missing": c.support.missing, "quality_basis": c.quality.basis}
    losses = {name: _plain(getattr(c.quality, name)) for name in LOSSES}
    pair = {"prefill_system": c.prefill_system.id} if isinstance(c, Pair) else {}
    counts = {name: _plain(getattr(c, name)) for name in COUNTS}
    return ids | pair | texts | counts | losses | _figures(c)


def _figures(one: Grounded) -> dict[str, Any]:
    """Return every figure of a result with the ends of its band, and its counts."""
    banded = {name: _plain(x) for each in one.figures() for name, x in one.banded(each).items()}
    counts = {name: _plain(getattr(one, name)) for name in one.UNBANDED}
    return banded | (counts if isinstance(one, Capacity) else {})


def _flips(result: Flips | None) -> dict[str, Any] | None:
    """Return what would flip the order as plain data."""
    if result is None:
        return None
    price = _named(result.price._asdict())
    speeds = [one._asdict() for one in result.speeds]
    return {"best": result.best.place, "rival": result.rival.place, "price": price, "speeds": speeds}


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values as plain data."""
    return {name: _word(value) for name, value in row.items()}


def _word(value: Any) -> Any:
    """Return a text as it is, a spec by its id, a mapping by its names, and a number as plain data."""
    if isinstance(value, Mapping):
        return {name: _word(each) for name, each in value.items()}
    return value if value is None or isinstance(value, str) else getattr(value, "id", None) or _plain(value)


def _plain(value: Any) -> Any:
    """Return a number that JSON holds; None for one that is unknown or has no end."""
    if value is None:
        return None
    number = float(np.asarray(value))
    return number if np.isfinite(number) else None


def data_schema() -> dict[str, Any]:
    """Return the JSON Schema of `data_of`: what each figure is, with its unit, as draft 2020-12 has it.

    Examples
    --------
    >>> figures = data_schema()["$defs"]["capacity"]["properties"]
    >>> figures["instances"]["type"], "instances_low" in figures
    (['number', 'null'], True)
    """
    choice = {name: {"type": "string"} for name in LABELS}
    choice |= {name: _number(name) | {"type": ["number", "null"]} for name in LOSSES}
    choice |= {"valid": {"type": "boolean"}} | {name: _number(name, Choice) for name in COUNTS}
    full = {"choice": {"$ref": "#/$defs/choice"}, "capacity": {"$ref": "#/$defs/capacity"}}
    many = {"choice": {"$ref": "#/$defs/choice"}, "capacity": _maybe("capacity"), "full": _maybe("full")}
    rows = {"type": "array", "items": {"$ref": "#/$defs/beside"}}
    figures = {"choice": choice | _ends(Choice), "capacity": _ends(Capacity) | _counts(Capacity)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "request": {"type": "object"},
            "demand": {"type": ["object", "null"], "properties": {name: {} for name in DEMAND}},
            "reached": {"type": "boolean", "description": "Whether a system keeps the promises"},
            "best": _maybe("choice"),
            "capacity": _maybe("capacity"),
            "full": _maybe("full"),
            "bill": _table(BillLine._fields),
            "lost_h_by_cause": {"type": "object", "additionalProperties": {"type": "number"}},
            "ties": {"type": "array", "items": {"type": "string"}},
            "choices": rows,
            "gpus": rows,
            "other_software": {"type": "array", "items": {"$ref": "#/$defs/choice"}},
            "next_mapping": {"type": "array", "items": {"$ref": "#/$defs/choice"}},
            "why": {"type": "object", "description": "Why each other system loses, by its id"},
            "flips": {
                "type": ["object", "null"],
                "properties": {"price": _row(PriceTie._fields), "speeds": _table(SPEED)},
            },
            "nearest": {"type": "string", "description": "The nearest question that works, where none does"},
            "command": {"type": "string", "description": "The command that starts the server"},
            "no_command": {"type": "string", "description": "Why no document gives a command"},
        },
        "$defs": {
            name: {"type": "object", "properties": some}
            for name, some in (figures | {"full": full, "beside": many}).items()
        },
    }


def _maybe(name: str) -> dict[str, Any]:
    """Return the schema of a part that may be missing."""
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}


def _table(columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of the rows of a table."""
    return {"type": "array", "items": _row(columns)}


def _row(columns: Iterable[str]) -> dict[str, Any]:
    """Return the schema of named values."""
    return {"type": "object", "properties": {name: _number(name) for name in columns}}


def _number(name: str, kind: type | None = None) -> dict[str, Any]:
    """Return the schema of a column, with its meaning and unit."""
    called = quantity(name, kind.__name__ if kind else "")
    unit = f" [{called.unit}]" if called.unit else ""
    text = f"{called.description or called.title}{unit}"
    return {"type": ["number", "null"], "description": text} if called.unit else {"description": text}


def _counts(kind: type[Grounded]) -> dict[str, Any]:
    """Return the schemas of the numbers without a band."""
    return {name: _number(name, kind) | {"type": ["number", "null"]} for name in kind.UNBANDED}


def _ends(kind: type[Grounded]) -> dict[str, Any]:
    """Return the schemas of the figures of a class of results, with those of their ends."""
    names = [name for name in _numbers(kind) if name not in (*kind.UNBANDED, "low", "high")]
    each = {name: _number(name, kind) | {"type": ["number", "null"]} for name in names}
    return each | {f"{name}_{end}": {"type": ["number", "null"]} for name in names for end in ("low", "high")}


def _numbers(kind: type) -> list[str]:
    """Return the fields and properties of a class that are annotated as numbers."""
    result = list[str]()
    for base in kind.__mro__:
        result += [name for name, annotation in vars(base).get("__annotations__", {}).items() if annotation in NUMBERS]
        getters = {name: item.fget for name, item in vars(base).items() if isinstance(item, property)}
        result += [name for name, one in getters.items() if one and one.__annotations__.get("return") in NUMBERS]
    return [name for name in dict.fromkeys(result) if name not in ("reason_mask", "valid")]
