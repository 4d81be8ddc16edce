"""The plan of the house, enforced on the source tree."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "trnmodel"
MODULES = sorted(PACKAGE.rglob("*.py"))

LEVELS = [
    ["trnmodel.units", "trnmodel.arguments", "trnmodel.result"],
    ["trnmodel.formulas", "trnmodel.catalog"],
    ["trnmodel.bands"],
    ["trnmodel.fabric", "trnmodel.models"],
    ["trnmodel.steps", "trnmodel.kernels"],
    ["trnmodel.planner"],
    ["trnmodel.evidence"],
    ["trnmodel.charts", "trnmodel.bookmime"],
    ["trnmodel.chapters", "trnmodel.report", "trnmodel.cli"],
]


def dotted(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def level(module):
    for number, names in enumerate(LEVELS):
        if any(module == name or module.startswith(name + ".") for name in names):
            return number
    return None


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def checked_imports():
    trees = {dotted(path): ast.parse(path.read_text()) for path in MODULES if dotted(path) != "trnmodel"}
    return [(here, name) for here, tree in trees.items() for name in imported(tree) if name.startswith("trnmodel.")]


def test_imports_point_down():
    bad = [
        f"{here} imports {name}"
        for here, name in checked_imports()
        if level(here) is not None and level(name) is not None and level(name) > level(here)
    ]
    assert not bad


def room(module):
    return next((name for names in LEVELS for name in names if module == name or module.startswith(name + ".")), None)


def test_rooms_of_one_floor_do_not_know_each_other():
    ground, face = LEVELS[0], {"trnmodel.cli", "trnmodel.report"}  # the terminal runs reports
    asked = {(room(here), room(name)) for here, name in checked_imports() if {room(here), room(name)} != face}
    floors = [names for names in LEVELS if names is not ground]
    assert sorted((a, b) for a, b in asked for names in floors if a != b and {a, b} <= set(names)) == []


SHARED = {"trnmodel.chapters.common", "trnmodel.chapters.guard"}


def test_a_chapter_is_three_files_of_one_name(root):
    """Notebook `torus-or-switch`, module `torus_or_switch`, test `test_torus_or_switch`; else `common` and `guard`."""
    notebooks = {path.stem.replace("-", "_") for path in (root / "notebooks" / "py").glob("*.py")}
    modules = {path.stem for path in (PACKAGE / "chapters").glob("*.py")} - {"__init__", "common", "guard"}
    tests = {path.stem.removeprefix("test_") for path in (root / "tests" / "chapters").glob("test_*.py")}
    assert modules == notebooks == tests - {"doors", "guard"}


def test_no_chapter_knows_another_and_nothing_else_knows_any():
    modules = {dotted(path) for path in MODULES if room(dotted(path)) == "trnmodel.chapters"}
    asked = {(here, name) for here, name in checked_imports() if name in modules - {"trnmodel.chapters"}}
    assert {here for here, _ in asked} <= modules
    assert {name for _, name in asked} <= SHARED


def test_a_notebook_asks_its_own_module(root):
    for path in (root / "notebooks" / "py").glob("*.py"):
        asked = set(re.findall(r"from trnmodel\.chapters import (.*)", path.read_text()))
        assert asked <= {"common, guard", "guard", f"{path.stem.replace('-', '_')} as tables"}, path.name


def test_one_notation_helper():
    names = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert names.count("notation") == 1


def test_every_module_has_a_room():
    homeless = [dotted(path) for path in MODULES if dotted(path) != "trnmodel" and level(dotted(path)) is None]
    assert not homeless


def test_formula_pages_know_no_spec_and_no_other_page():
    allowed = {"itertools", "numpy", "numpy.typing", "__future__", "math", "collections.abc", "typing"}
    allowed |= {"scipy"}  # its special functions: Lambert's W, the laws of Poisson and of Bernoulli
    for path in (PACKAGE / "formulas").glob("*.py"):
        foreign = (
            {
                name
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Import | ast.ImportFrom)
                for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module])
            }
            - allowed
            - {"trnmodel.units", "trnmodel.arguments", "trnmodel.result", "dataclasses", "trnmodel"}
        )
        assert not foreign, f"{path.name} imports {foreign}"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_no_unit_factor_is_typed(path):
    """GB, GiB and their kin live in units.py: a bare factor elsewhere is a second copy of a number."""
    if path.name == "units.py":
        return
    tree = ast.parse(path.read_text())
    factors = {1024, 1e9, 1e12, 1e15, 2**20, 2**30, 2**40, 3600}
    found = [
        n.lineno
        for n in ast.walk(tree)
        if isinstance(n, ast.Constant) and type(n.value) in (int, float) and n.value in factors
    ]
    assert not found, f"{dotted(path)}: unit factor typed at lines {found}"


def test_import_is_cheap():
    """`import trnmodel` loads no third-party package but NumPy."""
    import subprocess
    import sys

    code = (
        "import sys, trnmodel;"
        "heavy = {'pandas', 'altair', 'scipy', 'networkx', 'papermill', 'yaml', 'msgspec', 'typer'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_tree_names_no_machine_and_no_registry():
    root = PACKAGE.parent
    registry = re.compile("|".join(["pypi" + r"\.org", "files\\.python" + "hosted", "registry\\.npm" + "js"]))
    suffixes = {".py", ".toml", ".lock", ".md", ".yaml", ".yml", ".csv", ".cff", ".txt", ".css", ".js"}
    skipped = {".venv", "build", ".git", "node_modules"}
    for path in root.rglob("*"):
        if path.suffix in suffixes and path.is_file() and not skipped & set(path.relative_to(root).parts):
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not registry.search(text), f"{path.relative_to(root)} names a package registry"


LOOKED_UP = {  # below the chapters: what still asks data by name, and why it is no value of a machine
    "trnmodel.fabric.runtime.graph_barrier_s": "a fit of the runtime that the argument names",
    "trnmodel.fabric.scaleout.distances": "fibre and optics, which no system has as parts yet",
    "trnmodel.fabric.scaleout.nic": "ports and modules of AWS's network, which no system has as parts yet",
    "trnmodel.fabric.scaleout.switch_bits_per_s": "which switches are offered",
    "trnmodel.planner.placements._exposed": "to be read off the chip: Chip.hop_s",
    "trnmodel.fabric.what_if._printed": "what sources print, beside what the graph counts",
    "trnmodel.fabric.what_if._verdict": "what sources print, beside what the graph counts",
    "trnmodel.fabric.what_if.assumptions": "other readings of the sources",
    "trnmodel.planner.given.price_list": "which source a price has, beside its value",
    "trnmodel.planner.trainings.stated": "what sources print of runs, beside what is computed",
    "trnmodel.planner.workbook._cells": "what a source prints of a price, where and when, beside its value",
    "trnmodel.planner.worth.against_printed": "what sources print, beside what is computed",
    "trnmodel.kernels.engines._operators": "which operators there are",
    "trnmodel.kernels.engines.stacks": "which stacks there are",
}
ASKED = {"value", "fact_in_force", "facts_rows", "facts", "entities", "stated", "read_csv", "borrowed"}
ROOMS = ("formulas", "fabric", "steps", "kernels", "planner")


def lookups(path):
    """Functions of a module that ask `catalog.load` for a fact, and whether the module imports one by name."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "trnmodel.catalog.load":
            yield from (dotted(path) for alias in node.names if alias.name in ASKED)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            asked = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.attr in ASKED]
            if any(isinstance(node.value, ast.Name) and node.value.id == "load" for node in asked):
                yield f"{dotted(path)}.{function.name}"


def test_values_of_machines_are_fields_and_not_looked_up_by_name():
    found = {name for room in ROOMS for path in (PACKAGE / room).glob("*.py") for name in lookups(path)}
    assert found == set(LOOKED_UP)
