"""What a scenario file states of the parameters of a chapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trnbook.report import chapter
from trnbook.report.chapter import Parameter
from trnmodel.cli.errors import InputError
from trnmodel.files import layout
from trnmodel.files.scenarios import Scenario, scenario

CALLED = {  # other names that chapters have for an argument of the library
    "tokens_per_s_per_user": ("interactivity_tokens_per_s",),
    "speeds": ("tokens_per_s_per_user", "interactivity_tokens_per_s"),
    "efficiencies": ("stack",),
    "facility": ("site",),
    "precision": ("precisions",),
    "model": ("models",),
}
GROUPS = (  # sections that are asked together; a chapter takes those with which it has most parameters in common
    (layout.REQUEST, layout.STEP),
    (layout.JOB,),
    (layout.TRAINING,),
)


class Taken(NamedTuple):
    """Parameters of a chapter that a scenario states, and the names in the file that the chapter has no use for."""

    parameters: dict[str, object]
    unused: tuple[str, ...]


def read(path: str) -> Scenario:
    """Return the scenario of a file; InputError in one line where it cannot be read."""
    try:
        return scenario(path)
    except ValueError as error:
        raise InputError(" ".join(str(error).split())) from None


def parameters_of(one: Scenario, slug: str) -> Taken:
    """Return what a scenario states of the parameters of a chapter, under the names of the chapter.

    Raises InputError where they share no parameter.
    """
    declared = chapter.parameters(slug)
    stated = {"model": one.model.path or one.model.id, **_sections(one, declared)}
    taken, unused = _systems(one, declared), list[str]()
    for name, value in stated.items():
        place = _place(name, value, declared)
        if place is None:
            unused.append(name)
        else:
            listed = _is_list(declared[place]) and not isinstance(value, list)
            taken[place] = [value] if listed else value
    if not taken:
        has = ", ".join(declared) or "none"
        raise InputError(f"{one.origin}: chapter {slug!r} has no parameter that the file states; it has {has}")
    unused += [spec.id for spec in one.systems if spec.id not in _flat(taken.values())]
    return Taken(taken, tuple(unused))


def _sections(one: Scenario, declared: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the values of the sections that a chapter is about, with the settings and rents that it shares."""
    sections, settings = layout.sections(), layout.settings()
    shared = [name for name in settings if name in layout.SHARED]

    def common(group: Iterable[str]) -> int:
        names = {name for section in group for name in sections[section]}
        names |= set(settings if layout.REQUEST in group else shared if layout.TRAINING in group else ())
        return sum(any(place in declared for place in (name, *CALLED.get(name, ()))) for name in names)

    group = max(GROUPS, key=common)
    plain = one.stated()
    held = {
        name: value
        for section in group
        for name, value in plain.get(section, {}).items()
        if section != layout.REQUEST or value != sections[section][name].default
    }
    names = list(settings) if layout.REQUEST in group else shared
    held |= {name: one.settings[name] for name in names if name in one.settings}
    rents = [
        f"{layout.RENT}[{system}]={own[layout.RENT]!r}" for system, own in one.prices.items() if layout.RENT in own
    ]
    return held | ({layout.PRICES: rents} if rents else {})


def _place(name: str, value: Any, declared: Mapping[str, Parameter]) -> str | None:
    """Return the parameter that takes a value: one of its names, of a type that holds it."""
    if isinstance(value, Mapping) or (name == "pricing" and not isinstance(value, str)):
        return None
    fitting = (place for place in (name, *CALLED.get(name, ())) if place in declared)
    return next((place for place in fitting if _is_list(declared[place]) or not isinstance(value, list)), None)


def _is_list(parameter: Parameter) -> bool:
    return str(parameter.type).startswith("list[")


def _systems(one: Scenario, declared: Mapping[str, Parameter]) -> dict[str, object]:
    """Return the systems: the first is the one of the chapter, the others those beside it."""
    ids = [spec.id for spec in one.systems]
    first = {"system": ids[0]} if ids and "system" in declared else {}
    rest = ids[1:] if first else ids
    return first | ({"systems": rest} if rest and "systems" in declared else {})


def _flat(values: Iterable[object]) -> list[object]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def folders(paths: Iterable[str], folder: Path) -> dict[str, Path]:
    """Return the folder of the report of each file: the one that was named, or for several files one inside it each."""
    every = list(paths)
    if len(every) < 2:
        return dict.fromkeys(every, folder)
    names = [Path(path).stem for path in every]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"--scenario: two files are called {twice}; each report has a folder of this name")
    return {path: folder / name for path, name in zip(every, names, strict=True)}
