"""Three packages: the library works without the book and the lab, and a wheel holds each of them once."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections import Counter

import pytest

WORKERS = os.environ.get("TRNMODEL_WORKERS", "auto")  # of the tests inside a test
WITHOUT = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("trnbook", "trnlab"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import trnmodel
assert trnmodel.decode_step("llama-3.1-8b", "trn2.48xlarge", trnmodel.Mapping(tp=8), batch=1, context=8).time_s > 0
for module in pkgutil.walk_packages(trnmodel.__path__, "trnmodel."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"trnbook", "trnlab"}))
"""


def test_every_module_of_the_library_is_imported_without_book_and_lab():
    ended = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr


def environment(folder, *paths):
    """Python of a new environment that finds the installed distributions, and no package of this checkout."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    found = [sysconfig.get_path("purelib"), *paths]  # as plain paths, so that no .pth file in them is read
    (site / "paths.pth").write_text("".join(f"{path}\n" for path in found))
    return folder / "bin" / "python"


def clean(**more):
    """The environment of this process without what leads Python or pytest to this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"} | more


@pytest.mark.slow
@pytest.mark.one_cpu
def test_the_tests_of_the_library_pass_without_book_and_lab(root, tmp_path):
    home = tmp_path / "home"
    unwanted = shutil.ignore_patterns("__pycache__", "trnlab")
    for name in ("trnmodel", "data", "tests/library", "tests/golden", "tests/data"):
        shutil.copytree(root / name, home / name, ignore=unwanted)
    for name in ("tests/conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(root / name, home / name)
    python = environment(tmp_path / "venv", home)
    asked = [python, "-m", "pytest", "-q", "-n", WORKERS, "-p", "no:cacheprovider", "-m", "not slow", "tests/library"]
    ended = subprocess.run(asked, cwd=home, env=clean(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """The wheel of a copy of the checkout."""
    home, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.ipynb", "digest")
    for name in ("trnmodel", "book", "data", "notebooks"):
        shutil.copytree(root / name, home / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(root / name, home / name)
    (home / "trnmodel" / "__pycache__").mkdir()
    (home / "trnmodel" / "__pycache__" / "result.cpython-311.pyc").write_bytes(b"")
    code = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, made], cwd=home, capture_output=True, text=True, check=True)
    return next(made.glob("*.whl"))


def under(folder, *suffixes):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in suffixes}


@pytest.mark.slow
@pytest.mark.one_cpu
def test_a_wheel_holds_everything_once(root, wheel):
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {name.partition("/")[0] for name in names} == {"trnmodel", "trnbook", "trnlab"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".ipynb"))]
    modules = {f"trnmodel/{name}" for name in under(root / "trnmodel", ".py")}
    modules |= {f"trnbook/{name}" for name in under(root / "book" / "trnbook", ".py")}
    modules |= {f"trnlab/{name}" for name in under(root / "data" / "trnlab", ".py")}
    modules |= {f"trnbook/notebooks/{name}" for name in under(root / "notebooks" / "py", ".py")}
    modules |= {"trnbook/pages/conf.py"}
    assert {name for name in names if name.endswith(".py")} == modules
    tables = {f"trnmodel/data/{name}" for name in under(root / "data", ".csv", ".yaml", ".json")}
    assert {name for name in names if name.startswith("trnmodel/data/")} == tables
    pages = {name for name in names if name.startswith("trnbook/pages/")}
    sources = {path.relative_to(root / "book").as_posix() for path in (root / "book").rglob("*") if path.is_file()}
    sources = {name for name in sources if not name.startswith("trnbook/") and "__pycache__" not in name}
    assert pages == {f"trnbook/pages/{name}" for name in sources}


QUESTIONS = """
import sys
import trnmodel as tm
from trnbook.report import book, chapter
from trnmodel.catalog import load
assert tm.chip("trainium3").hbm_bytes == 144 * 2**30
assert len(tm.facts()) > 1000
assert (book.BOOK / "conf.py").is_file()
assert [one for one in chapter.CHAPTERS.glob("*.py") if one.stem == "decode-step"]
print(tm.__file__, load.DATA, book.BOOK, chapter.CHAPTERS, sep="\\n")
"""
DECODE = "decode llama-3.1-8b trn2.48xlarge --tp 8 --batch 4 --context 2048".split()


@pytest.mark.slow
@pytest.mark.one_cpu
def test_an_installed_wheel_answers_without_a_checkout(root, wheel, tmp_path):
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    # The wheel's own metadata come first, so that entry points are those of the wheel.
    python = environment(tmp_path / "venv")
    env = clean(PYTHONPATH=str(site))

    def said(*command):
        return subprocess.run([python, *command], cwd=empty, env=env, capture_output=True, text=True, check=True).stdout

    places = said("-c", QUESTIONS).splitlines()
    assert len(places) == 4
    assert all(place.startswith(str(site)) for place in places)
    listed = said("-m", "trnmodel.cli", "list")
    assert all(path.stem in listed for path in (root / "notebooks" / "py").glob("*.py") if path.stem != "index")
    assert "time 8.6 ms" in said("-m", "trnmodel.cli", *DECODE)
