"""The command line: one clear line and a status for whatever goes wrong, and nothing left behind."""

import json
import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import trnmodel
from trnmodel.cli import app
from trnmodel.report import book, chapter, execute, kernels

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
    refusal = "from trnmodel.chapters import guard\nguard.within(1, 10, batch=batch)\n"
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


def test_a_reader_that_leaves_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "trnmodel.cli", "list"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


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


PLAN = ["plan", "llama-3.1-8b", "--speed", "50", "--in", "1024", "--out", "256", "--system", "trn2.48xlarge"]
COST = ["cost", "llama-3.1-8b", "hgx-h200", "--speed", "40", "--in", "2048", "--out", "512"]


def test_plan_prints_six_lines_and_its_table():
    status, out, error = call(*PLAN, "--system", "trn1.32xlarge", "--system", "trn2.3xlarge")
    lines = out.splitlines()
    assert (status, error, len(lines)) == (0, "", 6)
    assert [line.split()[0] for line in lines[2:5]] == ["other", "runner-up:", "others:"]
    assert "tokens/s a chip (" in lines[0]
    assert lines[5].startswith("NEURON_LOGICAL_NC_CONFIG=2 vllm serve")
    rows = json.loads(call(*PLAN, "--json")[1])
    best = trnmodel.plan(
        "llama-3.1-8b", "trn2.48xlarge", tokens_per_s_per_user=50, input_tokens=1024, output_tokens=256
    )
    assert [row["role"] for row in rows] == ["best", "mapping", "beside", "beside"]
    assert rows[0]["tokens_per_s_per_chip"] == pytest.approx(best.best.tokens_per_s_per_chip)
    assert (rows[0]["command"], rows[1]["command"]) == (best.command, "")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("decode llama-3.1-8b trn1.32xlarge --tp 2 --context 2048 --stack ideal", "time 18.63 ms (ideal), "),
        ("roofline trainium2 --intensity 100", "290 TFLOP/s (ideal), memory-bound"),  # 100 x 2.9 TB/s
        ("roofline trainium2 --intensity 1e4", "667 TFLOP/s (ideal), compute-bound"),
        ("collective all_reduce 64MB trn2.48xlarge --chips 16", "time "),
        ("prefill llama-3.1-8b trn2.3xlarge --tp 4 --in 1000", "time "),
    ],
)
def test_a_question_is_answered_in_a_line(args, line):
    said_in_a_line(0, args, line)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("decode llama-3.1-405b trn2.3xlarge", "llama-3.1-405b cannot run on trn2.3xlarge on one rank with "),
        ("power llama-3.1-405b trn2.3xlarge", "llama-3.1-405b cannot run on trn2.3xlarge on one rank with "),
        ("power llama-3.1-8b trn1.32xlarge --tp 2", "cannot exist: no source has watts of the chip"),
        ("fit llama-3.1-405b trn2.3xlarge --tp 4 --stack ideal", "llama-3.1-405b cannot run on trn2.3xlarge at TP 4 "),
    ],
)
def test_a_question_that_nothing_satisfies_is_answered_in_a_line_too(args, line):
    said_in_a_line(3, args, line)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ("qwen2.5-7b trn2.48xlarge --tp 16", ["vllm-neuron-2026", "TP 16", "28 attention heads", "4 KV heads"]),
        ("mixtral-8x7b-v0.1 trn2.48xlarge --tp 4 --ep 3", ["TP 4 x EP 3", "8 experts"]),
        ("jamba-v0.1 hgx-h100 --tp 3", ["TP 3", "32 and 8,192 attention heads"]),
        ("qwen2.5-7b trn2.48xlarge --tp 4 --context 33k", ["TP 4", "32,768 tokens"]),
        ("llama-3.1-405b trn2.3xlarge", ["memory"]),
    ],
)
@pytest.mark.parametrize("command", ["decode", "fit", "power"])
def test_a_point_that_no_software_runs_is_told_with_what_the_model_has(command, args, parts):
    status, out, error = call(command, *args.split())
    assert (status, error, out.count("\n")) == (3, "", 1)
    for part in (*args.split()[:2], *parts):
        assert part in out
    assert ("layers" in out) == ("memory" not in parts)  # a model is described where a rule forbids to cut it so
    assert len(out) < 500


def said_in_a_line(ended, args, line):
    status, out, error = call(*args.split())
    assert (status, error, out.count("\n")) == (ended, "", 1)
    assert out.startswith(line)
    figures = json.loads(call(*args.split(), "--json")[1])
    assert isinstance(figures, dict)
    assert "NaN" not in json.dumps(figures)


def test_power_is_joules_at_the_server_with_band_and_basis():
    """Watts over rate: 8 x H100 run a server of no more than 1.029 x 700 + 226.5 = 947 W a chip."""
    args = "power llama-3.1-70b hgx-h100 --tp 8 --batch 64 --context 2048".split()
    said, row = call(*args)[1], json.loads(call(*args, "--json")[1])
    assert re.match(
        r"[\d.]+ J a token at the server \([\d.]+ to [\d.]+; \w+\), \d+ W \(.*\) a chip of TDP 700 W\n", said
    )
    assert row["server_w"] <= 1.029 * 700 + 226.5
    assert row["server_j_per_token"] == pytest.approx(row["server_w"] / row["tokens_per_s_per_chip"])
    assert row["low"] < row["server_j_per_token"] < row["high"]
    chilled = json.loads(call(*args, "--facility", "aws-chilled", "--json")[1])
    assert chilled["facility_w"] / row["facility_w"] == pytest.approx(1.25 / 1.14)


def test_goodput_is_a_share_with_band_and_basis():
    """Llama 3's own rate: 419 interruptions of 16,384 GPUs in 54 days are one in 54 x 24 / 419 = 3.1 h."""
    args = "goodput llama-3.1-405b hgx-h100 --chips 16384 --fleet llama-3-h100".split()
    said, row = call(*args)[1], json.loads(call(*args, "--json")[1])
    assert re.fullmatch(
        r"\d+% \(\d+ to \d+; extrapolated\) of the time is useful, 3.1 h between interruptions, "
        r"restarting takes most \([\d.]+%\)\n",
        said,
    )
    assert sum(share for name, share in row.items() if name.endswith("_lost")) + row["goodput"] == pytest.approx(1)
    assert row["low"] < row["goodput"] < row["high"] < 1
    drained = json.loads(call(*args, "--swap", "drain", "--interval", "60", "--spares", "0", "--json")[1])
    assert (drained["interval_s"], drained["spare_lost"]) == (60, 0)


def test_cost_stands_on_every_kind_of_software_with_the_age_of_its_price():
    """p5e and p5en: the newest prices of capacity blocks are of 2026-07-22."""
    args = "cost llama-3.1-8b hgx-h200 trn3-nl72x2-pcie160 --speed 40 --in 2048 --out 512".split()
    said, rows = call(*args)[1], json.loads(call(*args, "--json")[1])
    number = r"[\d.]+ \([\d.]+ to [\d.]+; \w+\)"
    told = rf"hgx-h200: public {number}, hand-tuned {number}, ideal {number}; .* of 2026-07-22, \d+ days old\n"
    assert re.search(told, said)
    assert "no price is published of trn3-nl72x2-pcie160" in said
    assert re.search(r"trn3-nl72x2-pcie160 ties with hgx-h200 at USD a chip-hour: public [\d.]+ \(", said)
    assert re.search(r"trn3-nl72x2-pcie160: public .* USD a chip-hour, owned by a hyperscaler\n", said)
    assert [row["stack_kind"] for row in rows] == 4 * ["public", "hand-tuned", "ideal"]
    assert [row["who"] for row in rows] == 6 * ["renter"] + 6 * ["owner"]
    assert [row["blended_usd_per_mtoken"] is None for row in rows] == 3 * [False] + 3 * [True] + 6 * [False]
    busy = json.loads(call(*args[:3], *args[4:], "--price", "2", "--requests", "1", "--duty", "0.5", "--json")[1])
    assert all(row["at_load_usd_per_mtoken"] == pytest.approx(8 * 2 / 3600 / 0.5 / 2560 * 1e6) for row in busy[:3])


def test_units_of_bytes_are_those_asked_for():
    sizes = {"64MB": 64e6, "64000000": 64e6, "1GiB": 2.0**30, "1.5KiB": 1536.0}
    for text, size in sizes.items():
        assert json.loads(call("collective", "all_reduce", text, "trn2.48xlarge", "--json")[1])["message_bytes"] == size


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([*PLAN[:3], "-5", *PLAN[4:]], "--speed=-5.0: allowed are numbers from 1e-30 to 1e+30"),
        ([*PLAN, "--stack", "gpu-serving"], "--stack='gpu-serving': gpu-serving does not run on trainium2"),
        ([*PLAN, "--system", "trn9"], "'trn9' is unknown; nearest"),
        (["plan", "/dev/null", *PLAN[2:]], "/dev/null"),
        (["decode", "bert-base-uncased", "trn2.3xlarge"], "an encoder has no decode step"),
        (["decode", "llama-3.1-8b", "trn2.3xlarge", "--batch", "nan"], "--batch='nan'"),
        (["power", "llama-3.1-8b", "hgx-h100", "--facility", "<b>"], "facility='<b>' is unknown"),
        (["goodput", "llama-3.1-8b", "trn2.48xlarge", "--swap", "warm"], "swap='warm'"),
        (["goodput", "llama-3.1-8b", "trn2.48xlarge", "--chips", "0"], "--chips=0.0: allowed are whole numbers from 1"),
        (["goodput", "llama-3.1-8b", "trn2.48xlarge", "--fleet", "<b>"], "fleet='<b>' is unknown"),
        ([*COST, "--duty", "0"], "duty=0.0: allowed are numbers from 1e-30 to 1"),
        ([*COST, "--way", "lease"], "way='lease': allowed are capacity-block"),
        ([*COST, "--against", "hgx-h100"], "against='hgx-h100'"),
        (["power", "bert-base-uncased", "hgx-h100"], "an encoder has no decode step"),
        (["fit", "llama-3.1-8b", "<b>"], "'<b>' is unknown"),
        (
            ["collective", "all_reduce", "64XB", "trn2.48xlarge"],
            "BYTES='64XB': allowed are numbers with or without a unit",
        ),
        (["collective", "all_reduce", "9" * 5000, "trn2.48xlarge"], "BYTES='999"),
        (["collective", "all_reduce", "1..2MB", "trn2.48xlarge"], "BYTES='1..2MB'"),
        (["collective", "gossip", "1MB", "trn2.48xlarge"], "KIND='gossip' is unknown; nearest: "),
        (["roofline", "trainium2", "--intensity", "-1"], "--intensity=-1.0"),
        (
            ["roofline", "trainium2", "--intensity", "1", "--dtype", "mxfp8"],
            "dtype='mxfp8': trainium2 has no",
        ),
    ],
)
def test_a_question_that_has_no_answer_is_one_line_and_status_2(args, line):
    status, out, error = call(*args)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert line in error
    assert len(error) < 1001


def test_the_version_loads_nothing_that_takes_time():
    listed = (
        "import sys, trnmodel.cli; print([m for m in ('numpy', 'pandas', 'jupytext', 'papermill') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
