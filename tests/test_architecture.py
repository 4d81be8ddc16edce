"""The plan of the house, enforced on the source tree."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, BOOK, LAB = ROOT / "trnmodel", ROOT / "book" / "trnbook", ROOT / "data" / "trnlab"
MODULES = sorted(path for package in (PACKAGE, BOOK, LAB) for path in package.rglob("*.py"))

LEVELS = [
    ["trnmodel.units", "trnmodel.arguments", "trnmodel.declared", "trnmodel.quantities", "trnmodel.result"],
    ["trnmodel.formulas", "trnmodel.catalog"],
    ["trnmodel.neighbours"],
    ["trnmodel.bands", "trnmodel.draws"],
    ["trnmodel.fabric", "trnmodel.models"],
    ["trnmodel.steps", "trnmodel.kernels"],
    ["trnmodel.serving", "trnmodel.reliability", "trnmodel.training"],
    ["trnmodel.power"],
    ["trnmodel.cost"],
    ["trnmodel.search"],
    ["trnmodel.evidence"],
    ["trnmodel.explained"],
    ["trnmodel.calls"],
    ["trnmodel.files"],
    ["trnmodel.cli"],
    ["trnbook.charts", "trnbook.drawings", "trnlab"],
    ["trnbook.shared"],
    ["trnbook.workbench"],
    ["trnbook.chapters", "trnbook.report", "trnbook.commands"],
]


FACES = {"trnmodel", "trnbook", "trnlab"}


def dotted(path):
    home = next(package.parent for package in (PACKAGE, BOOK, LAB) if path.is_relative_to(package))
    parts = path.relative_to(home).with_suffix("").parts
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
    trees = {dotted(path): ast.parse(path.read_text()) for path in MODULES if dotted(path) not in FACES}
    return [(here, name) for here, tree in trees.items() for name in imported(tree) if name.partition(".")[0] in FACES]


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
    ground, face = LEVELS[0], {"trnbook.commands", "trnbook.report"}  # the commands run reports
    asked = {(room(here), room(name)) for here, name in checked_imports() if {room(here), room(name)} != face}
    floors = [names for names in LEVELS if names is not ground]
    assert sorted((a, b) for a, b in asked for names in floors if a != b and {a, b} <= set(names)) == []


def test_the_library_knows_neither_book_nor_lab_and_these_two_do_not_know_each_other():
    forbidden = {("trnmodel", "trnbook"), ("trnmodel", "trnlab"), ("trnlab", "trnbook"), ("trnbook", "trnlab")}
    pairs = {(here, name) for here, name in checked_imports()}
    assert not [pair for pair in pairs if tuple(one.partition(".")[0] for one in pair) in forbidden]


def test_a_notebook_reads_the_lab_s_tables_and_imports_none_of_its_modules(root):
    for path in (root / "notebooks" / "py").glob("*.py"):
        assert "trnlab" not in {name.partition(".")[0] for name in imported(ast.parse(path.read_text()))}, path.name


def test_tests_of_the_library_know_neither_book_nor_lab(root):
    """They run without both in `tests/test_packages.py`, which is slow."""
    for path in (root / "tests" / "library").rglob("*.py"):
        known = {name.partition(".")[0] for name in imported(ast.parse(path.read_text()))}
        assert not known & {"trnbook", "trnlab"}, path.name


SHARED = {"trnbook.chapters.common", "trnbook.chapters.guard"}


def slugs(root):
    return {path.stem.replace("-", "_") for path in (root / "notebooks" / "py").glob("*.py")}


def chapter_of(module, root):
    """The chapter whose tables a module makes: `cost` of `trnbook.chapters.cost_comparison`, the longest that fits."""
    name = module.rpartition(".")[2]
    return max((slug for slug in slugs(root) if f"{name}_".startswith(f"{slug}_")), key=len, default=None)


def test_a_chapter_has_a_notebook_a_module_and_a_test_of_one_name(root):
    """Notebook `torus-or-switch`, module `torus_or_switch`, test `test_torus_or_switch`; more modules begin so."""
    modules = {path.stem for path in (BOOK / "chapters").glob("*.py")} - {"__init__", "common", "guard"}
    tests = {path.stem.removeprefix("test_") for path in (root / "tests" / "book" / "chapters").glob("test_*.py")}
    assert slugs(root) == tests - {"guard", "refused_arguments"}
    assert slugs(root) <= modules
    assert not [name for name in modules if chapter_of(name, root) is None]


def test_no_chapter_knows_another_and_nothing_else_knows_any(root):
    modules = {dotted(path) for path in MODULES if room(dotted(path)) == "trnbook.chapters"}
    asked = {(here, name) for here, name in checked_imports() if name in modules - {"trnbook.chapters"}}
    assert {here for here, _ in asked} <= modules
    assert not [pair for pair in asked if pair[1] not in SHARED and len({chapter_of(one, root) for one in pair}) > 1]


def test_a_notebook_asks_its_own_modules(root):
    for path in (root / "notebooks" / "py").glob("*.py"):
        asked = {name for name in imported(ast.parse(path.read_text())) if name.startswith("trnbook.chapters.")}
        modules = {".".join(name.split(".")[:3]) for name in asked} - SHARED
        assert {chapter_of(name, root) for name in modules} <= {path.stem.replace("-", "_")}, path.name


def test_one_notation_helper():
    names = [
        node.name
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert names.count("notation") == 1


def test_every_module_has_a_room():
    homeless = [dotted(path) for path in MODULES if dotted(path) not in FACES and level(dotted(path)) is None]
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
            - {
                "trnmodel.units",
                "trnmodel.arguments",
                "trnmodel.declared",
                "trnmodel.result",
                "dataclasses",
                "trnmodel",
            }
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
    "trnmodel.fabric.runtime.launch_s": "a fit of the software that the argument names",
    "trnmodel.fabric.wiring.answers": "what the graphs of the catalogue answer, computed before",
    "trnmodel.fabric.scaleout.distances": "fibre and optics, which no system has as parts yet",
    "trnmodel.fabric.scaleout.nic": "ports and modules of AWS's network, which no system has as parts yet",
    "trnmodel.fabric.scaleout.switch_bits_per_s": "which switches are offered",
    "trnmodel.fabric.what_if._printed": "what sources print, beside what the graph counts",
    "trnmodel.fabric.what_if._verdict": "what sources print, beside what the graph counts",
    "trnmodel.fabric.what_if.assumptions": "other readings of the sources",
    "trnmodel.search.launch._page": "who documents an option, beside its command",
    "trnmodel.search.trainings.stated": "what sources print of runs, beside what is computed",
    "trnmodel.cost.workbook._cells": "what a source prints of a price, where and when, beside its value",
    "trnmodel.kernels.engines._operators": "which operators there are",
    "trnmodel.kernels.engines.stacks": "which stacks there are",
}
ASKED = {"value", "fact_in_force", "facts_rows", "facts", "entities", "stated", "read_csv", "borrowed"}
ROOMS = "formulas fabric steps kernels serving power reliability training cost search".split()


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
