"""Every formula keeps its units: scale each argument by its docstring unit, and the answer scales by its own.

Also: a docstring names exactly the parameters of the signature. The test finds all public functions of
`trnmodel/formulas` by itself. It reads the numpydoc types: `numeric` and `tuple of numeric` are drawn, `{"a", "b"}` and
`tuple of {"a", "b"}` are categories and all their values are tried, anything else keeps its default. Only base units
that occur among the parameters are scaled: the 2 FLOP of a multiply-accumulate may enter an answer from mathematics.
"""

import importlib
import inspect
import itertools
import pkgutil
import re

import numpy as np
import pytest

import trnmodel.formulas
from trnmodel.result import Result

BASE = ["FLOP", "B", "s", "J", "USD", "token", "m", "kg", "L", "request"]
DERIVED = {
    "W": {"J": 1, "s": -1},
    "MW": {"J": 1, "s": -1},
    "Hz": {"s": -1},
    "h": {"s": 1},
    "year": {"s": 1},
    "bit": {"B": 1},
    "Mtoken": {"token": 1},
}
COUNTED = {"-", "1", "", "cycle"}  # a cycle is a count; a rate of them is Hz
DRAWS = 4


def parse_unit(text):
    """Exponents of the base units in a unit such as "FLOP/B", "B*s" or "USD/h"."""
    exponents = {}
    for position, part in enumerate(text.split("/")):
        for symbol in part.split("*"):
            if symbol in COUNTED:
                continue
            if symbol not in DERIVED and symbol not in BASE:
                raise ValueError(f"unit {text!r}: {symbol!r} is unknown; allowed are {[*BASE, *DERIVED, *COUNTED]}")
            for base, power in DERIVED.get(symbol, {symbol: 1}).items():
                exponents[base] = exponents.get(base, 0) + (power if position == 0 else -power)
    return exponents


def section(doc, title):
    """Entries of a numpydoc section as {name: (type, unit or None)}."""
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", doc, re.S | re.M)
    entries = re.findall(r"^(\w[\w, ]*?) : ([^\n]*)\n((?:[ \t]+[^\n]*\n?|\n)*)", match[1] if match else "", re.M)
    found = {}
    for names, kind, description in entries:
        unit = re.search(r"\[([^\[\]]+)\]\s*$", description)
        found |= {name.strip(): (kind, unit and unit[1]) for name in names.split(",")}
    return found


def public_functions():
    for module_info in pkgutil.iter_modules(trnmodel.formulas.__path__):
        module = importlib.import_module(f"trnmodel.formulas.{module_info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and function.__module__ == module.__name__:
                yield pytest.param(function, id=f"{module_info.name}.{name}")


FUNCTIONS = list(public_functions())


def choices(kind):
    """Values to try for a category; None for a parameter that is no category."""
    options = re.findall(r'"([^"]+)"', kind) if "{" in kind else []
    return [(option, option) for option in options] if kind.startswith("tuple of {") else options or None


def draw(rng, kind, unit):
    """A power of two, so that scaling by powers of two is exact; counts and shares where there is no unit."""
    if kind.startswith("tuple of"):
        return tuple(draw(rng, "numeric", unit) for _ in range(2))
    if parse_unit(unit):
        return float(2.0 ** rng.integers(-3, 9))
    return float(rng.choice([0.25, 0.5, 0.75, 1, 1, 2, 2, 3, 4, 4, 8]))


def scaled(value, unit, scale):
    factor = factor_of(unit, scale)
    return tuple(part * factor for part in value) if isinstance(value, tuple) else value * factor


def factor_of(unit, scale):
    return float(np.prod([scale.get(base, 1.0) ** power for base, power in parse_unit(unit).items()] or [1.0]))


def outputs(answer, doc):
    """(value, unit) of each number in an answer: one array, several, or a result with documented fields."""
    if isinstance(answer, Result):
        fields = section(inspect.cleandoc(type(answer).__doc__), "Attributes")
        units = {name: unit for name, (_, unit) in fields.items() if unit}
        for name, item in inspect.getmembers(type(answer), lambda member: isinstance(member, property)):
            unit = re.search(r"\[([^\[\]]+)\]\.?\s*$", item.__doc__ or "")
            units |= {name: unit[1]} if unit else {}
        return [(getattr(answer, name), unit) for name, unit in units.items()]
    units = [unit for _, unit in section(doc, "Returns").values()]
    values = answer if isinstance(answer, tuple) else (answer,)
    return list(zip(values, units, strict=True))


def draw_arguments(function, rng, kinds, fixed):
    """Random arguments that the function accepts and answers with finite numbers."""
    for _ in range(2000):
        arguments = {name: draw(rng, *kind) for name, kind in kinds.items()}
        try:
            found = outputs(function(**arguments, **fixed), inspect.getdoc(function))
        except ValueError:
            continue
        if all(np.all(np.isfinite(value)) for value, _ in found):
            return arguments, found
    raise AssertionError("no random arguments were accepted")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_docstring_names_the_parameters(function):
    documented = section(inspect.getdoc(function) or "", "Parameters")
    assert list(documented) == list(inspect.signature(function).parameters)
    for name, (kind, unit) in documented.items():
        if "numeric" in kind:
            assert unit is not None, f"{name}: the description must end in a [unit]"
            parse_unit(unit)
    assert section(inspect.getdoc(function), "Returns"), "no Returns section"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS)
def test_answer_scales_by_its_unit(function):
    doc = inspect.getdoc(function)
    documented = section(doc, "Parameters")
    kinds = {name: kind for name, kind in documented.items() if "numeric" in kind[0]}
    categories = {name: choices(kind) for name, (kind, _) in documented.items() if choices(kind)}
    defaults = inspect.signature(function).parameters
    unknown = [
        n for n in documented.keys() - kinds.keys() - categories.keys() if defaults[n].default is defaults[n].empty
    ]
    if unknown:
        pytest.skip(f"cannot draw {sorted(unknown)}")
    present = {base for _, unit in kinds.values() for base in parse_unit(unit)}
    rng = np.random.default_rng(2)
    for fixed in (dict(zip(categories, values, strict=True)) for values in itertools.product(*categories.values())):
        for _ in range(DRAWS):
            arguments, before = draw_arguments(function, rng, kinds, fixed)
            scale = {base: 2.0 ** rng.integers(3, 30) for base in sorted(present)}
            larger = {name: scaled(value, kinds[name][1], scale) for name, value in arguments.items()}
            after = outputs(function(**larger, **fixed), doc)
            for (value, unit), (expected, _) in zip(after, before, strict=True):
                np.testing.assert_allclose(value, expected * factor_of(unit, scale), rtol=1e-9, err_msg=str(fixed))


@pytest.mark.parametrize("text", ["GB", "b/s", "Gbit", "FLOPS"])
def test_unknown_unit_is_refused(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_unit(text)


def test_a_wrong_formula_is_caught():
    def wrong_s(work_flop, rate_flop_per_s, start_s):
        """Time of work.

        Parameters
        ----------
        work_flop : numeric
            Work. [FLOP]
        rate_flop_per_s : numeric
            Rate. [FLOP/s]
        start_s : numeric
            Start-up, multiplied where it ought to be added. [s]

        Returns
        -------
        time_s : numeric
            Time. [s]
        """
        return work_flop / rate_flop_per_s * start_s

    with pytest.raises(AssertionError):
        test_answer_scales_by_its_unit(wrong_s)
