"""Analytical performance models of AWS Trainium, with a source behind every number.

`import trnmodel as tm` imports none of its modules: a public name such as `tm.decode_step` loads the module that
defines it when it is first used. `_HOMES` lists the names by module. `tm.kernel`, `tm.roofline` and `tm.units` are
modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {  # module that defines public names, with these names
    "trnmodel.catalog.fleets": ("Fleet", "fleet"),
    "trnmodel.catalog.rents": ("Rent", "rent"),
    "trnmodel.catalog.load": ("chip", "facts", "names_table"),
    "trnmodel.catalog.prices": ("Owner", "Prices", "owner", "prices"),
    "trnmodel.catalog.specs": ("Chip", "Core", "Engine", "Precision"),
    "trnmodel.catalog.systems": ("System", "system", "systems"),
    "trnmodel.fabric.collectives": ("Collective", "collective"),
    "trnmodel.fabric.graph": ("Topology", "topology"),
    "trnmodel.formulas.clos": ("clos",),
    "trnmodel.calls": ("schema",),
    # S
    "trnmodel.files.measure": ("Measurements", "measure"),
    "trnmodel.files.saved": ("Check", "check", "save_plan"),
    "trnmodel.files.scenario_table": ("scenario_table",),
    "trnmodel.files.scenarios": ("Scenario", "scenario"),
    "trnmodel.evidence.claims": ("Claim", "Claims", "claims"),
    "trnmodel.evidence.doctor": ("Diagnoses", "Diagnosis", "doctor"),
    "trnmodel.explained.explain": ("Explanation", "explain"),
    "trnmodel.evidence.formats.read": ("MeasuredRows", "read_measurements"),
    "trnmodel.evidence.frozen": ("frozen",),
    "trnmodel.evidence.nearest": ("nearest",),
    "trnmodel.evidence.calibration": ("Calibration", "calibrate"),
    "trnmodel.cost.tco": ("Cost", "tco"),
    "trnmodel.reliability.goodput": ("Goodput", "goodput"),
    "trnmodel.search.compare": ("Comparison", "compare"),
    "trnmodel.search.capacity": ("Capacity", "Demand"),
    "trnmodel.search.choice": ("Choice",),
    "trnmodel.search.flips": ("Flips",),
    "trnmodel.search.next_measurement": ("Candidate", "NextMeasurement", "next_measurement"),
    "trnmodel.search.gaps": ("SoftwareGap", "software_gap", "training_gap"),
    "trnmodel.search.plan": ("Plan", "plan"),
    "trnmodel.power.energy": ("Energy", "RequestEnergy", "energy"),
    "trnmodel.kernels.engines": ("KernelTime",),
    "trnmodel.search.chip_seconds": ("TokenCost",),
    "trnmodel.search.token_cost": ("TokenCosts", "token_cost"),
    "trnmodel.search.sensitivity": ("Sensitivity", "sensitivity"),
    "trnmodel.search.sweep": ("sweep",),
    "trnmodel.search.train_run": ("TrainRun", "train_run"),
    "trnmodel.search.train_runs": ("TrainRuns",),
    "trnmodel.evidence.score": ("validate", "validation"),
    "trnmodel.catalog.stacks": ("efficiencies",),
    "trnmodel.steps.answers": ("MemoryFit", "Step"),
    "trnmodel.steps.deployment": ("Deployment",),
    "trnmodel.steps.inference": ("decode_step", "memory_fit", "prefill"),
    "trnmodel.steps.legal": ("Legality", "legal"),
    "trnmodel.steps.mapping": ("Mapping",),
    "trnmodel.steps.request": ("Request",),
    "trnmodel.steps.support": ("Support", "support"),
    "trnmodel.serving.server": ("Serving", "serve"),
    "trnmodel.training.step": ("TrainStep", "train_step"),
    "trnmodel.models.quality": ("Quality", "quality"),
    "trnmodel.models.transformer": ("Transformer", "model", "model_ids"),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {  # public name of a module, with its path
    "kernel": "trnmodel.kernels.kernel",
    "roofline": "trnmodel.formulas.roofline",
    "units": "trnmodel.units",
}

__all__ = ["__version__", *sorted(_NAMES), *sorted(_MODULES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Return a public name, whose module loads now."""
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'trnmodel' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return __all__
