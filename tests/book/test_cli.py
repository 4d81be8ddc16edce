"""The commands `run`, `list`, `book` and `notebooks`: one clear line and a status for whatever goes wrong."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from trnbook.report import book, chapter, execute, kernels, scenarios
from trnmodel.cli.app import app

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


def test_a_question_without_an_answer_is_one_line_and_status_2(home):
    call("run", "small", "-p", "batch=9")
    before = (home / "reports" / "small.ipynb").read_bytes()
    refusal = "from trnbook.chapters import guard\nguard.within(1, 10, batch=batch)\n"
    (chapter.CHAPTERS / "small.py").write_text(CHAPTER.replace("print(", refusal + "print("))
    line = "chapter 'small' cannot answer: batch = 11 must be from 1 to 10\n"
    assert call("run", "small", "-p", "batch=11") == (2, "", line)
    assert call("run", "small", "-p", "batch=11", "-o", "new") == (2, "", line)
    assert [path.name for path in home.rglob("*")] == ["reports", "small.ipynb"]
    assert (home / "reports" / "small.ipynb").read_bytes() == before


def test_a_report_with_other_parameters_is_replaced_aloud(home):
    told = "it replaces a report with batch = 9; -o FOLDER keeps both\n"
    assert call("run", "small", "-p", "batch=9") == (0, "reports/small.ipynb\n", "")
    assert call("run", "small", "-p", "batch=8") == (0, "reports/small.ipynb\n", told)
    assert call("run", "small") == (0, "reports/small.ipynb\n", "")  # 8 is the default
    (chapter.CHAPTERS / "small.py").write_text(CHAPTER + "\n2\n")
    assert call("run", "small") == (0, "reports/small.ipynb\n", "")


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("", "-o: an empty name is no folder; the one you are in is ."),
        ("taken", "taken is no folder that can be written: File exists"),
        ("taken/x", "taken/x is no folder that can be written: Not a directory"),
        ("a\0b", r"a\x00b is no name of a folder"),
        ("a" * 300, "a" * 300 + " is no folder that can be written: File name too long"),
        ("dangling", "dangling is no folder that can be written: File exists"),
        ("folder", "folder/small.ipynb is in the way: it is no file"),
        ("failed", "failed/small.error.ipynb is in the way: it is no file"),
        ("foreign", "foreign/small.ipynb is in the way: it is no report made here"),
        ("paged", "paged/small is in the way: it holds no pages made here"),
        ("no\nscreen\x1b[2J", r"no\nscreen\x1b[2J/small is in the way: it holds no pages made here"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(home, monkeypatch, folder, line):
    (home / "taken").write_text("mine")
    (home / "dangling").symlink_to("nowhere")
    for name in ("folder/small.ipynb", "failed/small.error.ipynb", "foreign", "paged/small", "no\nscreen\x1b[2J/small"):
        (home / name).mkdir(parents=True)
    (home / "foreign" / "small.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    before = sorted(home.rglob("*"))
    monkeypatch.setattr(kernels, "run_all", None)
    assert call("run", "small", "-o", folder) == (2, "", line + "\n")
    assert sorted(home.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder_is_refused_before_the_work(home, monkeypatch):
    (home / "closed").mkdir(mode=0o500)
    monkeypatch.setattr(kernels, "run_all", None)
    line = "closed is no folder that can be written: Permission denied\n"
    assert call("run", "small", "-o", "closed") == (2, "", line)


ODD = ["", " ", "nan", "-inf", "1e400", "-1", "9" * 5000, "0x10", "true", "null", "[", "[[1]]", "{}", "'", '"', "\\"]
ODD += ["\n", "\r", "\0", "\x1b[2J", "\udcff", "\ud800\udc00", "\u202e", "é", "💥", "a" * 300, "a" * 10_000, "../x"]
ODD += [".", "~", "$HOME", "%s", "{batch}", "</script>", "<img src=x onerror=alert(1)>", "=", "a,b,,c", "file", "fifo"]
ODD += ["loop", "/", "/etc/passwd", "/dev/zero", "/dev/null", "/proc/self/mem"]


@pytest.mark.slow  # the terminal asks hostile values of every flag in test_terminal.py
def test_odd_arguments_end_in_a_line_or_a_report(home, monkeypatch):
    monkeypatch.setattr(kernels, "_execute", lambda job, kernels, home, tick, live: live[0])
    (home / "file").write_text("x")
    (home / "loop").symlink_to("loop")
    os.mkfifo(home / "fifo")
    wrong = []
    for odd in ODD:
        asked = [["run", "small", "-p", f"{name}={odd}"] for name in ("batch", "share", "chip", odd)]
        asked += [["run", "small", "-o", odd], ["run", "small", "-f", odd], ["run", odd], ["run", "small", "-p", odd]]
        asked += [["book", "-o", odd], ["notebooks", "-o", odd]]
        for args in asked if odd != "/" else asked[:3]:
            status, out, error = call(*args)
            told = error.count("\n") == (status == 2) or error.startswith(("it replaces", "Usage: "))
            clean = (out + error).replace("\n", "").isprintable() and len(error) < 1100
            if status not in (0, 2) or not told or not clean or (status == 2 and out):
                wrong.append((args, status, out[:200], error[:200]))
    assert not wrong


def test_list_prints_parameters(home):
    status, out, _ = call("list")
    assert status == 0
    assert out.splitlines()[0] == "small"
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["batch:", "int", "=", "8"],
        ["share:", "float", "|", "None", "=", "None"],
        ["chip:", "str", "=", "'trainium3'"],
    ]


def test_book_without_its_folder_is_one_line(home):
    status, _, line = call("book")
    assert (status, line.count("\n")) == (2, 1)
    assert not list(home.iterdir())


def test_a_reader_that_leaves_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "trnmodel.cli", "list"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


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


SCENARIO = """
model: qwen2.5-7b
request: {input_tokens: 1k, output_tokens: 256, tokens_per_s_per_user: 40}
systems: [trn2.3xlarge, hgx-h200, trn2.48xlarge]
pricing: spot
efficiencies: [neuron-async, vllm-neuron-2026]
prices: {trn2.3xlarge: {usd_per_chip_h: 1.5}}
job: {chips: 4096, swap: drain}
training: {tokens: 2T, chips: 64, seq: 4096}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "buyer.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_chapter_takes_what_a_scenario_states_under_its_own_names(file):
    one = scenarios.read(str(file))
    taken = scenarios.parameters_of(one, "cost")
    assert taken.parameters == {
        "model": "qwen2.5-7b",
        "system": "trn2.3xlarge",
        "systems": ["hgx-h200", "trn2.48xlarge"],
        "input_tokens": 1000,
        "output_tokens": 256,
        "tokens_per_s_per_user": 40,
        "pricing": "spot",
        "prices": ["usd_per_chip_h[trn2.3xlarge]=1.5"],
    }
    assert taken.unused == ("efficiencies",)
    goodput, training = (scenarios.parameters_of(one, slug).parameters for slug in ("goodput", "training"))
    assert (goodput["chips"], goodput["swap"]) == (4096, "drain")
    assert (training["chips"], training["tokens"], training["seq"]) == (64, 2e12, 4096)
    assert scenarios.parameters_of(one, "serving").parameters["tokens_per_s_per_user"] == 40
    assert "stack" not in scenarios.parameters_of(one, "serving").parameters  # which takes one software
    assert scenarios.parameters_of(one, "scale-out").parameters == {"system": "trn2.3xlarge", "models": ["qwen2.5-7b"]}


STATED = {"model", "models", "system", "systems", "input_tokens"}


def test_every_chapter_takes_a_scenario_or_says_that_it_shares_nothing(file):
    one = scenarios.read(str(file))
    for name in chapter.notebooks():
        if STATED & chapter.parameters(name).keys():
            chapter.check_parameters(name, scenarios.parameters_of(one, name).parameters)
        else:
            with pytest.raises(ValueError, match=f"chapter '{name}' has no parameter that the file states; it has "):
                scenarios.parameters_of(one, name)


SERVER = CHAPTER.replace('chip: str = "trainium3"', 'model: str = "llama-3.1-8b"').replace("chip)", "model)")


def test_a_scenario_fills_the_parameters_of_a_report_and_what_is_typed_wins(home, file):
    (chapter.CHAPTERS / "server.py").write_text(SERVER)
    status, out, error = call("run", "server", "--scenario", file, "--no-page")
    assert (status, out) == (0, "reports/server.ipynb\n")
    assert error.startswith(f"{file}: the chapter takes model; the chapter does not use input_tokens, ")
    assert "8 qwen2.5-7b" in (home / "reports" / "server.ipynb").read_text()
    status, out, error = call("run", "server", "--scenario", file, "-p", "model=llama-3.2-1b", "--no-page")
    assert "8 llama-3.2-1b" in (home / "reports" / "server.ipynb").read_text()
    assert error.startswith(f"{file}: the chapter takes nothing; ")


def test_several_scenarios_make_a_report_each_or_none(home, file, tmp_path):
    (chapter.CHAPTERS / "server.py").write_text(SERVER)
    other = tmp_path / "other.yaml"
    other.write_text("model: llama-3.2-1b\n")
    status, out, _ = call("run", "server", "--scenario", file, "--scenario", other, "--no-page", "-o", "out")
    assert (status, out) == (0, "out/buyer/server.ipynb\nout/other/server.ipynb\n")
    assert "8 llama-3.2-1b" in (home / "out" / "other" / "server.ipynb").read_text()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "buyer.yaml").write_text("model: llama-3.2-1b\n")
    other.write_text("model: llama-3.2-1b\nmodel: llama-3.2-1b\n")
    for more, told in (
        (tmp_path / "more" / "buyer.yaml", "--scenario: two files are called buyer; "),
        (other, f"{other}: not plain YAML at line 2: the key 'model' stands twice"),
        (tmp_path / "none.yaml", "source="),
    ):
        status, out, error = call("run", "server", "--scenario", file, "--scenario", more, "--no-page", "-o", "new")
        assert (status, out) == (2, "")
        assert told in error.splitlines()[-1]
        assert not (home / "new").exists()


def test_a_chapter_that_shares_no_parameter_with_a_scenario_says_so(home, file):
    status, out, error = call("run", "small", "--scenario", file, "--no-page")
    assert (status, out) == (2, "")
    assert error == f"{file}: chapter 'small' has no parameter that the file states; it has batch, share, chip\n"
    assert list(home.iterdir()) == []
