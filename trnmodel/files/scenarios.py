"""A scenario: the question of a deployment, from a YAML file or a mapping, and the public calls that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import choice, instance, refuse
from trnmodel.calls import arguments_of
from trnmodel.catalog import plain_yaml, untrusted
from trnmodel.catalog.posterior import is_file
from trnmodel.catalog.specs import mapping_field
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import find as find_system
from trnmodel.catalog.systems import systems as systems_of_the_catalog
from trnmodel.cost.tco import Cost, tco
from trnmodel.declared import Checked, declare
from trnmodel.evidence.score import validate
from trnmodel.files import layout
from trnmodel.files.layout import (
    JOB,
    LOAD,
    MEASUREMENTS,
    MODEL,
    NAME,
    PRICES,
    RATE,
    RENT,
    REQUEST,
    STEP,
    SYSTEMS,
    TRAINING,
    Place,
)
from trnmodel.models.shipped import known
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.power.energy import Energy, RequestEnergy, energy
from trnmodel.reliability.goodput import Goodput, goodput
from trnmodel.result import Card
from trnmodel.search.compare import Comparison, compare
from trnmodel.search.plan import Plan, asked_systems, plan
from trnmodel.search.token_cost import TokenCosts, token_cost
from trnmodel.search.train_run import train_run
from trnmodel.search.train_runs import TrainRuns
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.request import Request
from trnmodel.units import KIB

if TYPE_CHECKING:
    import pandas as pd

MAX_FILE_BYTES = 64 * KIB
NOWHERE = Place("scenario", {})
ASKED = ("plan", "token_cost", "compare", "train_run")  # calls that are asked about all systems


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Scenario(Card):
    """A question of a deployment: model, request, load, systems, own prices and own measurements.

    Each method asks the public call of its name, with what the scenario states of the arguments of that call; `ask`
    shows them. `load` says how much there is of the request, `job` is a training job whose goodput is asked, `step` a
    decode step with the degrees of its mapping, `training` a training run, `prices` are own prices by system.
    `settings` are the other arguments of `tm.plan`, `tm.token_cost`, `tm.compare`, `tm.tco` and `tm.energy`. `origin`
    is the file, empty where the scenario was made of a mapping.
    """

    model: Transformer
    request: Request | None = None
    systems: tuple[System, ...] = ()
    load: Mapping[str, Any] = mapping_field()
    settings: Mapping[str, Any] = mapping_field()
    job: Mapping[str, Any] = mapping_field()
    step: Mapping[str, Any] = mapping_field()
    training: Mapping[str, Any] = mapping_field()
    prices: Mapping[str, Mapping[str, float]] = mapping_field()
    measurements: str = ""
    origin: str = ""

    def __getstate__(self) -> dict[str, Any]:
        """Plain dictionaries, since a read-only view cannot be pickled."""
        return {name: _unlocked(value) for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _locked(value))

    def card(self) -> list[str]:
        """Return the scenario on a few lines."""
        request = [self.request.describe()] if self.request else []
        named = [one.id for one in self.systems]
        lines = [", ".join([f"Scenario: {self.model.id}", *request])]
        lines += [f"systems: {', '.join(named)}"] * bool(named)
        for name in (LOAD, "settings", JOB, STEP, TRAINING, PRICES):
            stated = getattr(self, name)
            if stated:
                lines.append(f"{name}: {', '.join(f'{key} {value}' for key, value in stated.items())}")
        return lines

    def ask(self, call: str) -> dict[str, Any]:
        """Return the arguments that the scenario states of a public call: `plan`, `token_cost`, `compare`, `train_run`.

        Raises ValueError where the call needs something that the scenario does not state.
        """
        names = arguments_of(choice("call", call, ASKED))
        arguments: dict[str, Any] = {MODEL: self.model}
        if REQUEST in names:
            arguments[REQUEST] = needed(self, REQUEST)
        if self.systems or names[SYSTEMS].required:
            arguments[SYSTEMS] = needed(self, SYSTEMS)
        if call == "train_run":
            arguments |= needed(self, TRAINING)
        return arguments | named_arguments(self, call)

    def _system(self, system: str | System | None) -> System:
        """Return the system that a question of one system is about: the named one, or the only one of the scenario."""
        if system is not None:
            return find_system(instance("system", system, str | System, "an id or a System"), "system")
        if len(self.systems) != 1:
            ids = ", ".join(one.id for one in self.systems) or "none"
            refuse("system", None, f"name one of the systems of the scenario, which are {ids}")
        return self.systems[0]

    def plan(self) -> Plan:
        """Return what `tm.plan` answers."""
        return plan(**self.ask("plan"))

    def token_cost(self) -> TokenCosts:
        """Return what `tm.token_cost` answers, with the scenario's own prices of a chip-hour."""
        return token_cost(**self.ask("token_cost"))

    def compare(self) -> Comparison:
        """Return what `tm.compare` answers, with the scenario's own prices of a chip-hour."""
        return compare(**self.ask("compare"))

    def train_run(self) -> TrainRuns:
        """Return what `tm.train_run` answers for the scenario's training run on its systems, side by side."""
        return train_run(**self.ask("train_run"))

    def tco(self, system: str | System | None = None) -> Cost:
        """Return what `tm.tco` answers for a system, with the scenario's own prices of parts; default its only one."""
        where = self._system(system)
        prices = self.prices.get(where.id, {})
        own: dict[str, Any] = {name: value for name, value in prices.items() if name != RENT}
        more = {name: self.settings[name] for name in ("owner",) if name in self.settings}
        return tco(where, **more, **own)

    def goodput(self, system: str | System | None = None) -> Goodput:
        """Return what `tm.goodput` answers for the scenario's job on a system; default its only one."""
        return goodput(self._system(system), model=self.model, **self.job)

    def energy(self, system: str | System | None = None) -> Energy | RequestEnergy:
        """Return what `tm.energy` answers for the scenario's decode step on a system; default its only one."""
        needed(self, STEP)
        names = arguments_of("decode_step")
        own = {name: value for name, value in self.step.items() if name in names}
        degrees = Degrees(**{name: value for name, value in self.step.items() if name not in names})
        more = {name: self.settings[name] for name in ("precision", "efficiencies") if name in self.settings}
        one = decode_step(self.model, self._system(system), degrees, **own, **more)
        return energy(one, **{name: self.settings[name] for name in ("facility",) if name in self.settings})

    def validate(self) -> pd.DataFrame:
        """Return the scenario's own measurements beside their predictions, as `tm.validate` gives them."""
        path = needed(self, MEASUREMENTS)
        return validate(path, {self.model.id: self.model} if self.model.path else None)

    def stated(self) -> dict[str, Any]:
        """Return the scenario as a mapping of plain values, from which `tm.scenario` makes it again.

        Raises ValueError for a system or a setting of one's own that is no plain value.
        """
        own = {MODEL: self.model.path, NAME: self.model.id} if self.model.path else {MODEL: self.model.id}
        mapping: dict[str, Any] = dict(own)
        if self.request:
            numbers = {one.name: getattr(self.request, one.name) for one in fields(self.request)}
            mapping[REQUEST] = {name: value for name, value in numbers.items() if value is not None}
        mapping[SYSTEMS] = [_plain_system(one) for one in self.systems]
        for name in (LOAD, JOB, STEP, TRAINING, PRICES):
            mapping[name] = {key: dict(one) if name == PRICES else one for key, one in getattr(self, name).items()}
        mapping |= {name: _plain_value(name, value) for name, value in self.settings.items()}
        mapping[MEASUREMENTS] = self.measurements
        return {name: value for name, value in mapping.items() if value not in ({}, [], "")}


def needed(one: Scenario, name: str) -> Any:
    """Return a part of a scenario that a call needs."""
    value = getattr(one, name)
    if not value:
        raise ValueError(f"{one.origin or 'scenario'}: {name} is missing, which this question needs")
    return list(value) if name == SYSTEMS else value


def named_arguments(one: Scenario, call: str) -> dict[str, Any]:
    """Return what a scenario states of a call beside model, request, systems and sections: load, own prices, settings.

    A training run has a precision and software of its own.
    """
    apart = layout.sections()[TRAINING] if call == "train_run" else {}
    names = [name for name in arguments_of(call) if name not in apart]
    held = {name: value for name, value in {**one.settings, **one.load}.items() if name in names}
    own = {system: prices[RENT] for system, prices in one.prices.items() if RENT in prices}
    if own and "pricing" in names:
        held["pricing"] = _pricing(one, own, call)
    return held


def _pricing(one: Scenario, own: Mapping[str, float], call: str) -> dict[str, Any]:
    """Return own prices of a chip-hour by system, with the pricing of those that have none.

    The price of a system of one's own is published nowhere, and `tm.token_cost` alone takes its name.
    """
    default = arguments_of(call)["pricing"].default
    general = one.settings.get("pricing", default)
    if isinstance(general, Mapping):
        return {**general, **own}
    stated = [system.id for system in one.systems if call == "token_cost" or system.status != "custom"]
    every = systems_of_the_catalog() if not stated and general != default else stated
    return {**dict.fromkeys(every, general), **own}


def _unlocked(value: Any) -> Any:
    """Return read-only mappings as dictionaries, those inside too."""
    return {name: _unlocked(one) for name, one in value.items()} if isinstance(value, MappingProxyType) else value


def _locked(value: Any) -> Any:
    """Return dictionaries as read-only mappings, those inside too."""
    return MappingProxyType({name: _locked(one) for name, one in value.items()}) if isinstance(value, dict) else value


def _plain_system(one: System) -> str:
    if one.status == "custom" or find_system(one.id, SYSTEMS) != one:
        refuse(SYSTEMS, one.id, "a system of one's own cannot be written to a file; allowed are ids of the catalog")
    return one.id


def _plain_value(name: str, value: Any) -> Any:
    """Return a setting if it is a plain value: text, a number, a list or a mapping of them."""
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, str | int | float | bool) for one in items):
        refuse(name, value, "an object cannot be written to a file; allowed are names and numbers")
    return dict(value) if isinstance(value, Mapping) else value


@declare(source=Checked("the path of a scenario file, or a mapping of the same keys", {"type": "string"}))
def scenario(source: str | Path | Mapping[str, Any] | Scenario) -> Scenario:
    """Return a scenario from a YAML file, or from a mapping of the same keys; a `Scenario` is returned as it is.

    Parameters
    ----------
    source : str, Path, Mapping or Scenario
        A regular file of at most 64 KiB in UTF-8. Paths in it are seen from its folder. In a mapping, model, request
        and systems may be objects. `tm.schema("scenario")` says what may stand in either. [-]

    Returns
    -------
    scenario : Scenario
        `.plan()`, `.token_cost()`, `.compare()`, `.train_run()`, `.tco()`, `.goodput()`, `.energy()`, `.validate()`;
        `.model`, `.request`, `.systems` and `.load` are what they are asked with.

    Raises
    ------
    ValueError
        There is no such file, it is no plain YAML, a key is unknown (with the nearest), stands twice, or is missing, or
        a value is out of its range; the message names the file and the line.

    Examples
    --------
    >>> import trnmodel as tm
    >>> asked = {"model": "llama-3.1-8b", "request": {"input_tokens": 1024, "output_tokens": 256}}
    >>> one = scenario(asked | {"systems": ["trn2.48xlarge"]})
    >>> one.request, one.systems[0].id
    (Request(1,024 tokens in, 256 out), 'trn2.48xlarge')
    >>> scenario({"modle": "llama-3.1-8b"})
    Traceback (most recent call last):
    ValueError: scenario: modle: there is no such key; nearest: model
    """
    if isinstance(source, Scenario):
        return source
    if isinstance(source, Mapping):
        return _scenario(source, NOWHERE, Path())
    path = untrusted.as_path("source", source)
    text = untrusted.decoded("source", path, MAX_FILE_BYTES)
    origin = untrusted.printed(path)
    try:
        place = Place(origin, plain_yaml.lines_of(text))
        values = plain_yaml.read(text)
    except plain_yaml.YamlError as error:
        raise ValueError(f"{origin}: {error}") from None
    return _scenario(values, place, path.parent, origin)


scenario.json_schema = layout.schema  # type: ignore[attr-defined]


def _scenario(values: Any, place: Place, folder: Path, origin: str = "") -> Scenario:
    """Return a scenario of a mapping, each value checked where it stands."""
    own = (MODEL, NAME, REQUEST, SYSTEMS, PRICES, MEASUREMENTS, *layout.sections())
    held = layout.known(place, (), values, dict.fromkeys([*own, *layout.settings()]))
    if MODEL not in held:
        raise ValueError(f"{place.origin}: {MODEL} is missing")
    parts = {
        name: layout.checked(place, (name,), held[name], own)
        for name, own in layout.sections().items()
        if name in held and not isinstance(held[name], Request)
    }
    request = _request(held.get(REQUEST), parts, place)
    systems = asked_systems(held[SYSTEMS], place.name(SYSTEMS)) if SYSTEMS in held else []
    settings = {
        name: layout.one_value(place.name(name), one.allowed, held[name])
        for name, one in layout.settings().items()
        if name in held
    }
    software = settings.get("efficiencies")
    if isinstance(software, str) and is_file(software):
        settings["efficiencies"] = str(folder / software)
    if isinstance(settings.get("pricing"), dict):
        settings["pricing"] = _by_id(place.name("pricing"), settings["pricing"])
    return Scenario(
        model=_model(held[MODEL], held.get(NAME), folder, place),
        request=request,
        systems=tuple(systems),
        **{name: MappingProxyType(parts.get(name, {})) for name in (LOAD, JOB, STEP, TRAINING)},
        settings=MappingProxyType(settings),
        prices=_prices(held.get(PRICES, {}), place),
        measurements=_csv(place.name(MEASUREMENTS), held[MEASUREMENTS], folder) if MEASUREMENTS in held else "",
        origin=origin,
    )


def _request(value: Any, parts: dict[str, dict[str, Any]], place: Place) -> Request | None:
    """Return the request; its rate may stand in the load, which then no longer has it."""
    load, rate = parts.get(LOAD, {}), parts.get(LOAD, {}).pop(RATE, None)
    if value is None:
        if rate is not None:
            raise ValueError(f"{place.of(LOAD, RATE)}: {LOAD}.{RATE}: there is no {REQUEST} that arrives so often")
        return None
    numbers = parts.get(REQUEST) or {one.name: getattr(value, one.name) for one in fields(value)}
    twice = rate is not None and numbers.get(RATE) is not None
    if twice or (load and (rate is not None or numbers.get(RATE) is not None)):
        loads = ", ".join([*load, f"{RATE} of the {REQUEST}" if not twice else f"{RATE} twice"])
        raise ValueError(f"{place.of(LOAD)}: {LOAD}: {loads}: allowed is one of them")
    return Request(**numbers | ({RATE: rate} if rate is not None else {}))


def _model(value: Any, name: Any, folder: Path, place: Place) -> Transformer:
    """Return the model: a shipped one, or one of a file as seen from the folder of the scenario."""
    if isinstance(value, Transformer):
        return value
    text = instance(place.name(MODEL), value, str, "the id or name of a model, or the path of its config.json")
    if name is not None:
        instance(place.name(NAME), name, str, "the name of a model that is read from a file")
    own = folder / text
    is_path = not known(text) and ("/" in text or text.endswith(".json") or _there(own))
    try:
        model = read_model(str(own) if is_path else text, name)
    except ValueError as error:
        raise ValueError(f"{place.of(MODEL)}: {error}") from None
    return model


def _there(path: Path) -> bool:
    try:
        return path.is_file() or path.is_dir()
    except (OSError, ValueError):
        return False


def _csv(name: str, value: Any, folder: Path) -> str:
    """Return the path of a file of measurements, which is read when somebody asks for it."""
    return str(folder / untrusted.as_path(name, value))


def _by_id(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the ids of systems; refuse a system that is named twice."""
    by_id = {find_system(one, name).id: value for one, value in values.items()}
    if len(by_id) < len(values):
        refuse(name, [*values], "two of these names are one system")
    return by_id


def _prices(values: Any, place: Place) -> Mapping[str, Mapping[str, float]]:
    """Return own prices by the id of a system."""
    if not isinstance(values, Mapping):
        refuse(place.name(PRICES), values, "allowed is a mapping of systems to their prices")
    names = layout.known(place, (PRICES,), values, dict.fromkeys(values))
    checked = {
        name: MappingProxyType(layout.checked(place, (PRICES, name), one, layout.own_prices()))
        for name, one in names.items()
    }
    return MappingProxyType(_by_id(place.name(PRICES), checked))
