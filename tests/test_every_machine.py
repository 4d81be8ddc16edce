"""What keeps the same bytes on every machine, and a machine from lacking what is used, held on the source tree."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib

import pytest

RUN = {  # used without an import: where, and the word that says so
    "ipykernel": ("book/trnbook/report/kernels.py", "ipykernel_launcher"),
    "myst-nb": ("book/conf.py", '"myst_nb"'),
    "sphinx-book-theme": ("book/conf.py", '"sphinx_book_theme"'),
    "sphinx-copybutton": ("book/conf.py", '"sphinx_copybutton"'),
    "sphinx-design": ("book/conf.py", '"sphinx_design"'),
    "font-source-sans-pro": ("book/conf.py", '"font-source-sans-pro"'),
    "sphinx-mathjax-offline": ("book/conf.py", '"sphinx-mathjax-offline"'),
    "jupyterlab": ("Makefile", "jupyter lab"),
    "jupyterlab-myst": ("pyproject.toml", "jupyterlab-myst"),  # Lab finds it by itself
    "mypy": ("Makefile", "(BIN)/mypy"),
    "pytest-xdist": ("Makefile", "-n auto"),
    "ruff": ("Makefile", "ruff check"),
    "nbval": ("Makefile", "--nbval"),
    "distributed": ("tests/library/test_sweep_elsewhere.py", "distributed"),  # whose executor a user hands in
}
PACKAGES = ("trnmodel", "book/trnbook", "data/trnlab")
OF_THE_LIBRARY = set("numpy scipy pandas networkx pyyaml msgspec typer tqdm openpyxl".split())
WHERE_ASKED = {"fastparquet"}  # an extra, imported by the call or the command that needs it
OF_THE_BOOK = {
    "cyclonedx-python-lib",
    "docutils",
    "packageurl-python",
    "sphinx",
}  # imported when Sphinx builds the book
OF_THE_LAB = {"ipywidgets"}  # imported where a notebook is open in JupyterLab


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def names(requirements):
    return {plain(re.match(r"[A-Za-z0-9._-]+", requirement)[0]) for requirement in requirements}


def calls(root):
    """Every call in the packages and the chapters: its file and line, the name called, and its keywords."""
    for folder in (*PACKAGES, "notebooks/py"):
        for path in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    yield f"{path.relative_to(root)}:{node.lineno}", called, keywords


def imported(root, folder):
    """Distributions that the modules of a folder import."""
    owners, modules = importlib.metadata.packages_distributions(), set()
    for path in [root / folder] if folder.endswith(".py") else (root / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    own = {path.stem for path in root.glob("tests/**/*.py")} | {"trnmodel", "trnbook", "trnlab", "tests", "hostile"}
    foreign = modules - sys.stdlib_module_names - own
    return {plain(owners[module][0]) for module in foreign}


def test_what_is_imported_is_declared(root, project):
    needed = names(project["dependencies"])
    extras = set().union(*map(names, project["optional-dependencies"].values()))
    book = names(project["optional-dependencies"]["book"])
    assert book >= OF_THE_BOOK
    allowed = {
        "trnmodel": OF_THE_LIBRARY | WHERE_ASKED,
        "data/trnlab": OF_THE_LIBRARY,
        "book/trnbook": needed | OF_THE_BOOK | OF_THE_LAB | WHERE_ASKED,
    }
    allowed |= {"notebooks/py": needed, "book/conf.py": needed | book}
    for folder, declared in (allowed | {"tests": needed | extras}).items():
        undeclared = imported(root, folder) - declared
        assert not undeclared, folder


def test_what_is_declared_is_used(root, project):
    used = set().union(*(imported(root, folder) for folder in (*PACKAGES, "notebooks/py", "book/conf.py", "tests")))
    declared = names(project["dependencies"]).union(*map(names, project["optional-dependencies"].values()))
    assert declared - used == set(RUN)
    for file, word in RUN.values():
        assert word in (root / file).read_text()


def test_the_lock_holds_what_is_declared_and_names_no_host(root, project):
    lock = (root / "requirements.lock").read_text()
    locked = {plain(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)}
    assert names(project["dependencies"]).union(*map(names, project["optional-dependencies"].values())) <= locked
    assert "://" not in lock
    assert not re.search(r"^\s*-", lock.replace("    --hash=sha256:", ""), re.MULTILINE)


def test_sorts_are_stable(root):
    """NumPy sorts by the widest vectors that a CPU has, and each width leaves ties in an order of its own."""
    sorts = [
        (place, keywords.get("kind"))
        for place, called, keywords in calls(root)
        if called in ("sort_values", "argsort", "argpartition", "partition_rows")
    ]
    assert sorts
    assert not [place for place, kind in sorts if kind != "'stable'"]


def test_fits_go_through_one_door(root):
    """LAPACK's least squares follow the CPU; `evidence/search.py` says what makes a fit end at the same answer."""
    doors = [place for place, called, _ in calls(root) if called in ("lstsq", "polyfit", "curve_fit", "least_squares")]
    assert [place.partition(":")[0] for place in doors] == ["trnmodel/evidence/search.py"]


def test_no_test_looks_at_a_clock(root):
    """Times belong to `make bench`, which prints them beside their targets; a busy machine is no failure."""
    clocks = {"perf_counter", "process_time", "thread_time", "timeit"}  # time.monotonic: how long to wait at most
    for path in (root / "tests").rglob("test_*.py"):
        found = [node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        assert not clocks & set(found), path


def test_the_restricted_set_switches_off_what_this_numpy_can_choose(root):
    """Under `.ci/restricted.py`, also under itself."""
    code = (
        "from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__;"
        "print([name for name in __cpu_dispatch__ if __cpu_features__.get(name)])"
    )
    command = [sys.executable, root / ".ci" / "restricted.py", sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
