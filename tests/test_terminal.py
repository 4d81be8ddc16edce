"""What all commands share: exit statuses, names and numbers as people type them, flags in errors, lists, completion."""

import json
import subprocess
import sys
from collections import defaultdict

import pytest
import typer.main
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel import terminal, units
from trnmodel.catalog import load, names
from trnmodel.catalog.tables import DataError
from trnmodel.chapters import guard
from trnmodel.cli import app
from trnmodel.models import shipped

COMMANDS = typer.main.get_command(app).commands


def call(*args, **more):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="trnmodel", **more)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


LENGTHS = ["--in", "1k", "--out", "256"]
SLOW = ["--speed", "1M", *LENGTHS]
QUESTIONS = [
    (0, ["decode", "llama-3.1-8b", "trn2.3xlarge", "--tp", "4"]),
    (3, ["decode", "llama-3.1-405b", "trn2.3xlarge"]),
    (3, ["decode", "llama-3.1-8b", "trn2.3xlarge", "--tp", "512"]),
    (2, ["decode", "llama-3.1-8b", "trn2.3xlarge", "--tp", "0"]),
    (2, ["decode", "bert-base-uncased", "trn2.3xlarge"]),
    (0, ["prefill", "llama-3.1-8b", "trn2.3xlarge", "--in", "1k", "--tp", "4"]),
    (3, ["prefill", "llama-3.1-405b", "trn2.3xlarge", "--in", "1k"]),
    (0, ["fit", "llama-3.1-8b", "trn2.3xlarge", "--tp", "4"]),
    (3, ["fit", "llama-3.1-405b", "trn2.3xlarge", "--tp", "4"]),
    (0, ["power", "llama-3.1-8b", "hgx-h100", "--tp", "8"]),
    (3, ["power", "llama-3.1-8b", "trn1.32xlarge", "--tp", "2"]),  # no source has its watts
    (0, ["collective", "all_reduce", "64MB", "trn2.48xlarge"]),
    (3, ["collective", "all_reduce", "64MB", "trn2.48xlarge", "--chips", "17"]),
    (0, ["roofline", "trainium2", "--intensity", "100"]),
    (2, ["roofline", "trainium2", "--intensity", "100", "--dtype", "mxfp8"]),
    (0, ["goodput", "llama-3.1-8b", "trn2.48xlarge"]),
    (0, ["plan", "llama-3.1-8b", "--system", "trn2.3xlarge", "--speed", "20", *LENGTHS]),
    (3, ["plan", "llama-3.1-8b", "--system", "trn2.3xlarge", *SLOW]),
    (3, ["plan", "llama-3.1-405b", "--system", "trn1.2xlarge", "--speed", "1", *LENGTHS]),
    (0, ["cost", "llama-3.1-8b", "hgx-h200", "--speed", "20", *LENGTHS]),
    (3, ["cost", "llama-3.1-8b", "hgx-h200", *SLOW]),
    (0, ["train", "llama-3.1-8b", "hgx-h100", "--tokens", "15T", "--chips", "1k"]),
    (3, ["train", "llama-3.1-405b", "trn1.2xlarge", "--tokens", "15T", "--chips", "2"]),
    (0, ["systems", "trn3"]),
    (3, ["systems", "no such rack"]),
    (0, ["prices", "trn2"]),
    (3, ["prices", "trn3-nl72x2-pcie160"]),  # nobody publishes one
    (2, ["prices", "--region", "mars"]),
]


@pytest.mark.parametrize(
    ("status", "args"), QUESTIONS, ids=lambda value: "-".join(value) if isinstance(value, list) else ""
)
def test_the_status_says_whether_there_is_an_answer(status, args):
    assert call(*args)[0] == status
    ended, out, _ = call(*args, "--json")
    assert ended == status
    assert (out == "") == (status == 2)
    if out:
        json.loads(out)


def test_the_statuses_are_those_of_the_issue_and_documented(root):
    """0 answered, 1 our fault, 2 a bad question, 3 nothing can satisfy it, 4 and 5 reserved; 128 + SIGINT."""
    assert [int(status) for status in terminal.Status] == [0, 1, 2, 3, 4, 5, 130]
    for page in (call("--help")[1], call("decode", "--help")[1]):
        printed = page.partition("Exit status:")[2].split("\n")
        assert [line.split()[0] for line in printed if line.strip()] == [str(int(one)) for one in terminal.Status]
    table = [line for line in (root / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert {f"{int(one)}" for one in terminal.Status} <= {line.split()[1] for line in table}


@pytest.mark.parametrize(
    ("call_of", "kind"), [(guard.need, guard.UnanswerableError), (guard.possible, guard.ImpossibleError)]
)
def test_a_chapter_tells_a_bad_parameter_from_one_that_nothing_satisfies(call_of, kind):
    with pytest.raises(kind) as raised:
        call_of(False, "because")
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("status", "given"),
    [
        (3, ["-p", "model=llama-3.1-405b", "-p", "system=trn2.3xlarge", "-p", "tp=4", "-p", "ep=1"]),
        (2, ["-p", "batch=0"]),
    ],
)
def test_a_chapter_that_cannot_answer_says_by_its_status_why(tmp_path, monkeypatch, status, given):
    monkeypatch.chdir(tmp_path)
    ended, out, error = call("run", "decode-step", *given, "--no-page")
    assert (ended, out, error.count("\n")) == (status, "", 1)
    assert not list(tmp_path.iterdir())


BASE = {
    "plan": ["llama-3.1-8b", "--speed=20", "--in=1024", "--out=256", "--system=trn2.3xlarge"],
    "decode": ["llama-3.1-8b", "trn2.3xlarge"],
    "power": ["llama-3.1-8b", "hgx-h100"],
    "goodput": ["llama-3.1-8b", "trn2.48xlarge"],
    "train": ["llama-3.1-8b", "hgx-h100", "--tokens=15T", "--chips=1024"],
    "cost": ["llama-3.1-8b", "hgx-h200", "--speed=20", "--in=1024", "--out=256"],
    "prefill": ["llama-3.1-8b", "trn2.3xlarge", "--in=1024"],
    "fit": ["llama-3.1-8b", "trn2.3xlarge"],
    "collective": ["all_reduce", "1MB", "trn2.48xlarge"],
    "roofline": ["trainium2", "--intensity=10"],
    "prices": ["trn2.48xlarge"],
    "run": ["decode-step"],
    "book": [],
    "notebooks": [],
}
HOSTILE_NUMBERS = ["", " ", "nan", "inf", "-1", "1e400", "15x", "9" * 400, "1 5", "0x10", "\u0663", "1e31"]
HOSTILE_NAMES = ["", " ", "<b>", "x" * 300, "\x1b[2J", "trn9\nmore"]
OF_A_FILE = {"--parameter": "-p ", "--file": "", "--out-dir": "-o", "CHAPTER": "no chapter "}  # how their lines begin


def options():
    for name, command in COMMANDS.items():
        for one in command.params:
            listed = name in ("systems", "models", "stacks")  # whose text matches nothing at worst
            if not (listed or one.is_eager or getattr(one, "is_bool_flag", False) or one.name == "help"):
                yield pytest.param(name, one, id=f"{name} {terminal.flag(one)}")


@pytest.mark.parametrize(("name", "one"), list(options()))
def test_a_hostile_value_is_refused_by_the_flag_that_was_typed(name, one, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flag, base = terminal.flag(one), BASE[name]
    numeric = one.metavar in ("NUMBER", "BYTES")
    for value in HOSTILE_NUMBERS if numeric else HOSTILE_NAMES:
        if one.param_type_name == "argument":
            if value.startswith("-"):
                continue
            places = [item for item in COMMANDS[name].params if item.param_type_name == "argument"]
            args = [*base]
            args[[item.name for item in places].index(one.name)] = value
        else:
            args = [item for item in base if not item.startswith(f"{flag}=")] + [f"{flag}={value}"]
        if flag == "--out-dir" and value.strip():
            continue  # any other name is a folder
        status, out, error = call(name, *args)
        assert (status, out, error.count("\n")) == (2, "", 1), (value, out, error)
        assert error.startswith(OF_A_FILE.get(flag, f"{flag}=")), (value, error)
        assert error.rstrip("\n").isprintable()
