"""Analytical performance models of AWS Trainium, with a source behind every number.

The public names load when they are first used; `import trnmodel` itself imports nothing but the tables below.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "trnmodel.catalog.fleets": ("Fleet", "fleet"),
    "trnmodel.catalog.rents": ("Rent", "rent"),
    "trnmodel.catalog.load": ("chip", "facts", "names_table"),
    "trnmodel.catalog.prices": ("Owner", "Prices", "owner", "prices"),
    "trnmodel.catalog.specs": ("Chip", "Core", "Engine", "Precision"),
    "trnmodel.catalog.systems": ("System", "system", "systems"),
    "trnmodel.fabric.collectives": ("collective",),
    "trnmodel.fabric.graph": ("Topology", "topology"),
    "trnmodel.formulas.clos": ("clos",),
    "trnmodel.evidence.fit": ("calibrate",),
    "trnmodel.planner.cost": ("tco",),
    "trnmodel.planner.goodput": ("goodput",),
    "trnmodel.planner.plan": ("plan",),
    "trnmodel.planner.power": ("energy",),
    "trnmodel.planner.rent": ("token_cost",),
    "trnmodel.planner.sensitivity": ("sensitivity",),
    "trnmodel.planner.sweep": ("sweep",),
    "trnmodel.planner.train_run": ("train_run",),
    "trnmodel.evidence.score": ("validate", "validation"),
    "trnmodel.catalog.stacks": ("efficiencies",),
    "trnmodel.steps.inference": ("decode_step", "memory_fit", "prefill"),
    "trnmodel.steps.legal": ("legal",),
    "trnmodel.steps.mapping": ("Mapping",),
    "trnmodel.steps.serving": ("serve",),
    "trnmodel.steps.training": ("train_step",),
    "trnmodel.models.transformer": ("Transformer", "model", "model_ids"),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {
    "charts": "trnmodel.charts",
    "kernel": "trnmodel.kernels.kernel",
    "roofline": "trnmodel.formulas.roofline",
    "units": "trnmodel.units",
}

__all__ = ["__version__", *sorted(_NAMES), *sorted(_MODULES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'trnmodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
