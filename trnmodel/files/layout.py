"""What a scenario file may hold, as the public calls that it is asked through declare it, and the check of its values.

No argument is listed here twice: a call that takes another argument takes it from a scenario too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from trnmodel.arguments import nearest, refuse, shown
from trnmodel.calls import Argument, arguments_of, property_of
from trnmodel.declared import Allowed, Flag, Integer, Named, Number, Numbers, Object, Several, Text, Word
from trnmodel.units import read_number

MODEL, NAME, REQUEST, SYSTEMS, PRICES, MEASUREMENTS = "model", "name", "request", "systems", "prices", "measurements"
LOAD, JOB, STEP, TRAINING = "load", "job", "step", "training"
LOADS = ("users", "chips", "site_w", "usd_per_month")  # of a plan; the rate of a request is a load too
RATE = "requests_per_s"
PART_PRICES = ("chip_usd", "server_usd", "switch_usd_per_lane", "tdp_w")  # of `tco`, of one system
RENT = "usd_per_chip_h"
MOST_KEYS, MOST_ITEMS, LONGEST = 200, 1000, 4096
SETTINGS = {  # what stands at the top, from each call: all of it, or the arguments that are named
    "plan": None,
    "token_cost": None,
    "compare": ("speeds", "baseline"),
    "tco": ("owner",),
    "energy": ("facility",),
}
SHARED = ("pricing", "region", "owner")  # of a training run, that stand at the top as those of a deployment do
LISTED = ("speeds",)  # arguments that take an array, of which a file states a list
OWN_PLACE = {MODEL, REQUEST, SYSTEMS, *LOADS}
SECTIONS = {
    REQUEST: "What a user sends and is promised, as of tm.Request.",
    LOAD: "How much of it there is: the arguments of tm.plan for that, or the rate of the request.",
    JOB: "A training job, as of tm.goodput.",
    STEP: "A decode step, as of tm.decode_step, with the degrees of its mapping.",
    TRAINING: "A training run, as of tm.train_run.",
}


class Place(NamedTuple):
    """Where a scenario comes from, for messages: its name, and the line of each key where it is a file."""

    origin: str
    lines: Mapping[tuple[str, ...], int]

    def of(self, *path: str) -> str:
        """Return where a key stands: the file and its line, with the sections around it."""
        line = self.lines.get(path)
        return f"{self.origin}{f' line {line}' if line else ''}"

    def name(self, *path: str) -> str:
        """Return a key as errors name it: where it stands, and what it is."""
        return f"{self.of(*path)}: {'.'.join(path) or 'scenario'}"


@cache
def settings() -> dict[str, Argument]:
    """Return the arguments that stand at the top of a scenario, by name."""
    arguments: dict[str, Argument] = {}
    for call, names in SETTINGS.items():
        for name, one in arguments_of(call).items():
            if name in (names or arguments_of(call)) and name not in OWN_PLACE and not isinstance(one.allowed, Object):
                arguments.setdefault(name, _listed(one) if name in LISTED else one)
    return arguments


def _listed(one: Argument) -> Argument:
    """Return an argument that takes numbers as one that takes a list of them."""
    rule = one.allowed
    return one._replace(allowed=Several(Number(rule.low, rule.high))) if isinstance(rule, Numbers) else one


@cache
def sections() -> dict[str, dict[str, Argument]]:
    """Return the arguments of each section, by name."""
    step, plan = arguments_of("decode_step"), arguments_of("plan")
    own = {MODEL, "system", "mapping", "precision", "efficiencies", "breakdown"}
    request = arguments_of("Request")
    return {
        REQUEST: request,
        LOAD: {name: plan[name] for name in LOADS if name in plan} | {RATE: request[RATE]},
        JOB: {n: one for n, one in arguments_of("goodput").items() if n not in (MODEL, "system", "checkpoint_bytes")},
        TRAINING: {
            name: one for name, one in arguments_of("train_run").items() if name not in (MODEL, SYSTEMS, *SHARED)
        },
        STEP: _degrees(step["mapping"]) | {name: one for name, one in step.items() if name not in own},
    }


def _degrees(mapping: Argument) -> dict[str, Argument]:
    """Return the degrees of a mapping as arguments, as the schema of the mapping has them."""
    names = (mapping.allowed.json or {})["properties"]  # type: ignore[attr-defined]
    numbers = {name: rule for name, rule in names.items() if name not in ("placement", "lnc")}
    many = {name: Argument(name, f"Ranks of {name.upper()}.", "-", False, None, Integer(), True) for name in numbers}
    lnc = Argument("lnc", "Physical cores of a rank; default the chip's.", "-", False, None, Integer(), True)
    return many | {"lnc": lnc}


@cache
def own_prices() -> dict[str, Argument]:
    """Return the own prices of a system, by name."""
    rent = Argument(RENT, "Own price of an hour of a chip.", "USD/h", False, None, Number(1e-30), True)
    return {RENT: rent} | {name: arguments_of("tco")[name] for name in PART_PRICES}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario."""
    system = arguments_of("plan")[SYSTEMS]
    model = property_of(arguments_of("plan")[MODEL])
    model["description"] = "Id or name of a model, or the path of its config.json, as seen from the file."
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    properties = {
        MODEL: model,
        NAME: text | {"description": "Name of a model that is read from a file."},
        **{name: _object(SECTIONS[name], own) for name, own in sections().items()},
        SYSTEMS: property_of(system),
        **{name: property_of(one) for name, one in settings().items()},
        PRICES: {
            "type": "object",
            "description": "Own prices, by the id or name of a system.",
            "additionalProperties": _object("Own prices of a system.", own_prices()),
        },
        MEASUREMENTS: text | {"description": "CSV file of measurements, as tm.validate reads it."},
    }
    return {
        "title": "scenario",
        "description": "A question of a deployment: model, request, load, systems, own prices and own measurements.",
        "type": "object",
        "properties": properties,
        "required": [MODEL],
        "additionalProperties": False,
    }


def _object(description: str, arguments: Mapping[str, Argument]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {name: property_of(one) for name, one in arguments.items()},
        "required": [one.name for one in arguments.values() if one.required],
        "additionalProperties": False,
    }


def known(place: Place, path: tuple[str, ...], value: Any, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping of which each key is known, without those that hold nothing."""
    if not isinstance(value, Mapping):
        refuse(place.name(*path), value, "allowed is a mapping of names to values")
    if len(value) > MOST_KEYS:
        refuse(place.name(*path), f"{len(value)} keys", f"allowed are up to {MOST_KEYS}")
    for key in value:
        if not isinstance(key, str) or key not in names:
            near = ", ".join(nearest(key, names))
            here = ".".join((*path, shown(key).strip("'\"")))
            raise ValueError(f"{place.of(*path, str(key))}: {here}: there is no such key; nearest: {near}")
    return {name: one for name, one in value.items() if one is not None}


def checked(place: Place, path: tuple[str, ...], value: Any, arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Return the values of a section, each checked by the declaration of its argument."""
    stated = known(place, path, value, arguments)
    lacking = [name for name, one in arguments.items() if one.required and name not in stated]
    if lacking:
        raise ValueError(f"{place.name(*path)}: {', '.join(lacking)} is missing")
    return {name: one_value(place.name(*path, name), arguments[name].allowed, one) for name, one in stated.items()}


def one_value(name: str, allowed: Allowed, value: Any) -> Any:
    """Return a value of a file as an argument takes it: one number (text with a suffix too), a word, a name, a list."""
    if isinstance(allowed, Numbers | Number | Integer):
        checked = allowed.check(name, read_number(name, value) if isinstance(value, str) else value)
        if np.ndim(checked):
            refuse(name, value, "allowed is one number")
        x = float(checked)
        return int(x) if x % 1 == 0 and abs(x) < 2**53 else x
    if isinstance(allowed, Flag | Word | Text | Several):
        return allowed.check(name, value)
    if isinstance(allowed, Named):
        return _names(name, value, allowed.describe()) if isinstance(value, list) else _text(name, value, allowed)
    return _plain(name, value, allowed)


def _text(name: str, value: Any, allowed: Allowed) -> str:
    """Return a name; the call that reads it says whether there is such a thing."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or not value.isprintable():
        refuse(name, value, f"allowed is {allowed.describe()}")
    return value


def _names(name: str, value: list[Any], thing: str) -> list[str]:
    """Return a list of names."""
    if not 0 < len(value) <= MOST_ITEMS or not all(isinstance(one, str) and 0 < len(one) <= LONGEST for one in value):
        refuse(name, value, f"allowed is {thing}, or a list of them")
    return value


def _plain(name: str, value: Any, allowed: Allowed) -> Any:
    """Return what a call checks by itself: a word, a number, a list of names, or a mapping of names to such values."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | list | Mapping):
        refuse(name, value, f"allowed is {allowed.describe()}")
    if isinstance(value, list):
        return _names(name, value, allowed.describe())
    if isinstance(value, Mapping):
        if len(value) > MOST_KEYS or not all(
            isinstance(key, str) and isinstance(one, str | int | float) for key, one in value.items()
        ):
            refuse(name, value, f"allowed is {allowed.describe()}")
        return dict(value)
    return _text(name, value, allowed) if isinstance(value, str) else value
