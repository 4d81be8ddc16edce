"""What every test can ask for."""

import fcntl
import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import trnmodel as tm

# A slow or busy machine is no failure: nothing here looks at a clock.
settings.register_profile("trnmodel", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trnmodel")

ROOT = Path(__file__).resolve().parents[1]
# Folders and files that look at text, structure, refusals, processes or counts, in which no CPU has a say, or at random
# points whose answers are compared with each other: `make test-restricted` runs everything else.
SAME_ON_EVERY_CPU = """
    browser notebooks properties
    test_architecture test_arguments test_array_fields test_book_links test_catalog test_cli test_commands test_data
    test_documents test_every_machine test_formulas_reached test_guard test_killed test_locators
    test_model_config test_new_chip test_own_model test_public test_refused_arguments test_refused_parameters
    test_release test_report test_source_rules test_what_is_kept
""".split()


def pytest_collection_modifyitems(items):
    names = {path.stem for path in ROOT.glob("tests/**/*") if path.suffix == ".py" or path.is_dir()}
    if (ROOT / "book").is_dir() and (gone := set(SAME_ON_EVERY_CPU) - names):
        raise pytest.UsageError(f"tests/conftest.py: SAME_ON_EVERY_CPU names what is no file or folder: {gone}")
    for item in items:
        path = Path(item.nodeid.partition("::")[0])
        if not {*path.parts, path.stem}.isdisjoint(SAME_ON_EVERY_CPU):
            item.add_marker("one_cpu")


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that gives what `make` returns: made by the first worker that asks, read from a file by the others."""

    def made_once(name, make):
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return make()
        path = tmp_path_factory.getbasetemp().parent / f"{name}.pickle"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                path.write_bytes(pickle.dumps(make()))
            return pickle.loads(path.read_bytes())

    return made_once


@pytest.fixture(scope="session")
def git_checkout(tmp_path_factory):
    """A function that commits some of the project's files to a repository of their own, and returns its folder."""

    def checkout(*paths):
        folder = tmp_path_factory.mktemp("checkout")
        for path in (".gitattributes", ".gitignore", *paths):
            source = ROOT / path
            if source.is_dir():
                shutil.copytree(source, folder / path, ignore=shutil.ignore_patterns(".*"))
            else:
                shutil.copy(source, folder / path)
        author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
        for command in (["init", "--quiet"], ["add", "--all"], [*author, "commit", "--quiet", "--message=test"]):
            subprocess.run(["git", *command], cwd=folder, env=env, check=True)
        return folder

    return checkout


@pytest.fixture(scope="session")
def git_status():
    """A function that returns what differs from the commit in a checkout: nothing where all is as committed."""

    def status(folder):
        return subprocess.check_output(["git", "status", "--porcelain"], cwd=folder, text=True)

    return status


@pytest.fixture(scope="session")
def validated(made_once):
    """Every measured row beside its prediction; nobody changes it."""
    return made_once("validation", tm.validation)


def pytest_generate_tests(metafunc):
    """A test with an argument `slug` runs once for each notebook, or for each chapter (mark `chapters`).

    Where a mark `few` names some of them, the others are slow.
    """
    if "slug" in metafunc.fixturenames:
        slugs = sorted(path.stem for path in (ROOT / "notebooks" / "py").glob("*.py"))
        left_out = {"index"} if metafunc.definition.get_closest_marker("chapters") else set()
        few = metafunc.definition.get_closest_marker("few")
        quick = slugs if few is None else few.args
        marks = {slug: () if slug in quick else (pytest.mark.slow,) for slug in slugs if slug not in left_out}
        metafunc.parametrize("slug", [pytest.param(slug, marks=mark, id=slug) for slug, mark in marks.items()])
