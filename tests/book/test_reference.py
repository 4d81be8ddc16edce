"""The reference of the book: every public name has an entry, with its parameters and fields, and its example runs."""

import doctest
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from numpydoc.docscrape import FunctionDoc
from numpydoc.validate import ERROR_MSGS, validate

import trnmodel as tm
from trnbook.report import entries, reference
from trnbook.report.chapter import ROOT

PAGES = ROOT / "book" / "reference"
CLASSES = {name: item for name, item in reference.callables().items() if inspect.isclass(item)}
FUNCTIONS = {name: item for name, item in reference.callables().items() if not inspect.isclass(item)}
UNDOCUMENTED = '''
def undocumented(x):
    """Return x, which no section describes.

    Returns
    -------
    x : float
        What was passed. [-]

    Examples
    --------
    >>> 1
    1
    """
    return x


def silent(x):
    return x
'''


@pytest.fixture(scope="module")
def refused():
    """Checks of numpydoc that `pyproject.toml` holds."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["numpydoc_validation"]
    assert table["checks"][0] == "all"
    return set(ERROR_MSGS) - set(table["checks"])


def test_every_public_name_is_listed_once():
    assert sorted(reference.listed(PAGES)) == sorted(reference.public_names())


def test_every_page_is_in_the_contents():
    contents = (PAGES / "index.rst").read_text(encoding="utf-8")
    pages = {path.stem for path in PAGES.glob("*.rst")} - {"index"}
    assert pages == set(re.findall(r"^   (\w+)$", contents, re.MULTILINE))


def faults(name, checks):
    """What numpydoc finds wrong with a docstring, of what is held."""
    return [f"{name}: {code} {text}" for code, text in validate(name)["errors"] if code in checks]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_docstring_of_a_public_function_is_whole(name, refused):
    item = FUNCTIONS[name]
    assert faults(f"{item.__module__}.{item.__qualname__}", refused) == []


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_parameter_of_a_public_function_has_a_unit(name):
    """A description ends in its unit, so that the same parameter is never of two."""
    for parameter in FunctionDoc(FUNCTIONS[name])["Parameters"]:
        assert re.search(r"\[[^\]]+\]", "\n".join(parameter.desc)), f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_public_function_has_an_example_that_the_tests_run(name):
    item = inspect.unwrap(FUNCTIONS[name])
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(item))
    assert [one for one in examples if one.want], name
    assert not any(doctest.SKIP in one.options for one in examples)
    assert item.__module__.startswith("trnmodel."), "a module whose doctests `make test` runs"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_public_class_and_all_that_it_has_are_described(name):
    assert inspect.getdoc(CLASSES[name])
    assert reference.undescribed(CLASSES[name]) == []


@pytest.mark.parametrize("kind", reference.BASES)
def test_what_every_result_has_is_described(kind):
    assert reference.undescribed(kind) == []


def test_results_of_public_calls_are_public():
    kinds = {kind for kind in reference.makers() if hasattr(tm, kind)}
    assert {"Step", "Serving", "Plan", "Cost", "TokenCosts", "Goodput", "TrainStep", "TrainRun", "Collective"} <= kinds


def test_an_undocumented_parameter_and_function_are_found(tmp_path, monkeypatch, refused):
    (tmp_path / "planted_module.py").write_text(UNDOCUMENTED)
    monkeypatch.syspath_prepend(tmp_path)
    assert any("PR01" in fault and "'x'" in fault for fault in faults("planted_module.undocumented", refused))
    assert any("GL08" in fault for fault in faults("planted_module.silent", refused))


def test_a_field_that_nobody_describes_is_found():
    from dataclasses import make_dataclass

    assert reference.undescribed(make_dataclass("Planted", ["frobnicated", "time_s"])) == ["frobnicated"]


PLANT = """
import sys

sys.path[:0] = {paths!r}
import trnmodel as tm
from sphinx.cmd.build import main

def planted(x):
    '''Return x.'''
    return x

planted.__module__ = "trnmodel.formulas.roofline"
if {added!r}:
    tm.planted = planted
    tm.__all__.append("planted")
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The pages of the reference, and one chapter."""
    folder = tmp_path_factory.mktemp("book") / "source"
    shutil.copytree(PAGES, folder / "reference")
    (folder / "chapters").mkdir()
    text = "# How long does a step take?\n\n`tm.decode_step(...)` says it.\n"
    (folder / "chapters" / "decode-step.md").write_text(text)
    (folder / "index.md").write_text("# Book\n\n```{toctree}\nchapters/decode-step\nreference/index\n```\n")
    return folder


def small(folder, *names):
    """A source of one page that lists a few names."""
    (folder / "reference").mkdir(parents=True)
    listed = "".join(f"   {name}\n" for name in names)
    (folder / "reference" / "steps.rst").write_text(f"Steps\n=====\n\n.. entries::\n\n{listed}")
    (folder / "index.md").write_text("# Book\n\n```{toctree}\nreference/steps\n```\n")
    return folder


def build(source, target, added=False, *flags):
    """Build pages with the configuration of the book, by a script that may add a public name before."""
    paths = [os.fspath(ROOT), os.fspath(ROOT / "book"), os.fspath(ROOT / "data")]
    script = target.with_name("build_with_a_plant.py")
    script.write_text(PLANT.format(paths=paths, added=added))
    command = [sys.executable, script, "-q", "-b", "html", "-c", os.fspath(ROOT / "book"), *flags]
    return subprocess.run([*command, source, target], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    target = tmp_path_factory.mktemp("html") / "html"
    done = build(source, target, False, "--fail-on-warning", "--keep-going")
    assert done.returncode == 0, done.stderr[-3000:]
    return target


@pytest.mark.slow
def test_an_entry_has_its_parameters_equation_example_chapter_and_source(built):
    page = (built / "reference" / "steps.html").read_text(encoding="utf-8")
    for parameter in inspect.signature(tm.decode_step).parameters:
        assert f"<strong>{parameter}</strong>" in page
    for text in ("Returns", "Raises", "Examples", "math notranslate", "decode-step.html", "_modules/trnmodel/steps"):
        assert text in page
    assert 'class="pre">tm.</span>' in page


@pytest.mark.slow
def test_a_chapter_links_a_call_to_its_entry(built):
    page = (built / "chapters" / "decode-step.html").read_text(encoding="utf-8")
    assert "../reference/steps.html#trnmodel.decode_step" in page


def test_the_build_fails_on_a_public_name_without_an_entry(tmp_path):
    done = build(small(tmp_path / "source", "chip"), tmp_path / "html", True, "--fail-on-warning", "--keep-going")
    assert done.returncode
    assert "trnmodel.planted is a public name that no page of the reference lists" in done.stderr
    assert "trnmodel.chip is" not in done.stderr


def test_the_build_fails_on_an_undocumented_parameter(tmp_path):
    done = build(small(tmp_path / "source", "planted"), tmp_path / "html", True, "--fail-on-warning", "--keep-going")
    assert done.returncode
    assert "docstring for 'trnmodel.planted'" in done.stderr
    assert "Parameters {'x'} not documented" in done.stderr


def test_plain_text_of_a_field_is_code_where_it_is_code():
    assert entries.plain("`time_s` of *all*") == "``time_s`` of \\*all\\*"
