"""The command line: one clear line and a status for whatever goes wrong, and nothing left behind."""

import pytest
from typer.testing import CliRunner

import trnmodel
from trnmodel.cli import app
from trnmodel.report import book, chapter, execute

CHAPTER = """\
# ---
# jupyter:
#   trnmodel:
#     order: 1
# ---

# %% [markdown]
# # What is it?
#
# A question.

# %% tags=["parameters"]
batch: int = 8
share: float | None = None
chip: str = "trainium3"

# %%
print(batch / share if share else batch, chip)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder as the working folder, with one chapter elsewhere."""
    chapters, here = tmp_path / "chapters", tmp_path / "here"
    chapters.mkdir()
    here.mkdir()
    (chapters / "small.py").write_text(CHAPTER)
    monkeypatch.setattr(chapter, "CHAPTERS", chapters)
    for module, name in [(book, "BOOK"), (execute, "PACKAGE"), (execute, "DATA")]:
        monkeypatch.setattr(module, name, tmp_path / "none")
    monkeypatch.chdir(here)
    return here


def call(*args):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_run_leaves_one_notebook(home):
    assert call("run", "small", "-p", "batch=9") == (0, "reports/small.ipynb\n", "")
    assert "9 trainium3" in (home / "reports" / "small.ipynb").read_text()
    assert [path.name for path in home.rglob("*")] == ["reports", "small.ipynb"]
    assert call("run", "small", "-p", "batch=9") == (0, "reports/small.ipynb (up to date)\n", "")


def test_a_parameter_on_the_line_wins_over_the_file(home):
    (home / "params.yaml").write_text("batch: 2\nshare: 4\n")
    assert call("run", "small", "-f", "params.yaml", "-p", "batch=1", "-o", "out")[0] == 0
    assert "0.25 trainium3" in (home / "out" / "small.ipynb").read_text()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["-p", "bacth=1"], "chapter 'small' has no parameter 'bacth'; nearest: batch"),
        (["-p", "batch=many"], "parameter batch = 'many' must be of type int"),
        (["-p", "share=nan"], "parameter share = nan must be finite"),
        (["-p", "batch"], "-p batch: expected name=value"),
        (["-f", "none.yaml"], "none.yaml: no such file"),
    ],
)
def test_bad_input_is_one_line_and_status_2(home, args, line):
    assert call("run", "small", *args) == (2, "", line + "\n")
    assert not list(home.iterdir())


def test_an_unknown_chapter_is_told_the_nearest(home):
    assert call("run", "smal") == (2, "", "no chapter 'smal'; nearest: small\n")
    assert not list(home.iterdir())


def test_a_folder_that_is_a_file_is_told(home):
    (home / "reports").write_text("mine")
    status, _, line = call("run", "small")
    assert (status, line.count("\n")) == (2, 1)
    assert (home / "reports").read_text() == "mine"


def test_a_failing_chapter_is_one_line_and_status_1(home):
    status, _, line = call("run", "small", "-p", "share=1e-320", "-p", "batch=1000")
    assert status == 0  # inf is a float like any other inside a chapter
    (chapter.CHAPTERS / "small.py").write_text(CHAPTER + "\n1 / 0\n")
    status, out, line = call("run", "small", "-o", "out")
    assert (status, out) == (1, "")
    assert line == "chapter 'small' failed: ZeroDivisionError: division by zero (see out/small.error.ipynb)\n"
    assert [path.name for path in (home / "out").iterdir()] == ["small.error.ipynb"]


def test_list_prints_parameters(home):
    status, out, _ = call("list")
    assert status == 0
    assert out.splitlines()[0] == "small"
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["batch:", "int", "=", "8"],
        ["share:", "float", "|", "None", "=", "None"],
        ["chip:", "str", "=", "'trainium3'"],
    ]


def test_version():
    assert call("--version") == (0, f"trnmodel {trnmodel.__version__}\n", "")


def test_book_without_its_folder_is_one_line(home):
    status, _, line = call("book")
    assert (status, line.count("\n")) == (2, 1)
    assert not list(home.iterdir())


@pytest.mark.parametrize("given", ["chop=1", "chip=trainium9", "intensity_flop_per_byte=high", "comparators=h100,h101"])
def test_the_first_chapter_refuses_what_it_does_not_know(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    status, out, line = call("run", "chip-roofline", "-p", given)
    assert (status, out, line.count("\n")) == (2, "", 1)
    assert given.partition("=")[0] in line
    assert not list(tmp_path.iterdir())


def test_the_first_chapter_runs_for_another_chip(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("run", "chip-roofline", "-p", "chip=trainium2", "--no-page") == (0, "reports/chip-roofline.ipynb\n", "")
