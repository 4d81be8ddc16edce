"""What all commands share: exit statuses, names and numbers as people type them, flags in errors, lists, completion."""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel import units
from trnmodel.catalog import load, names
from trnmodel.catalog.options import documented
from trnmodel.catalog.tables import DataError
from trnmodel.cli import terminal
from trnmodel.cli.app import app
from trnmodel.models import shipped

COMMANDS = typer.main.get_command(app).commands


def call(*args, **more):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="trnmodel", **more)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


FILES = Path(__file__).parents[1] / "data" / "formats"  # that benchmark tools wrote
LENGTHS = ["--in", "1k", "--out", "256"]
MEASURED = ["workload=llama-3.1-8b", "metric=TPOT", "value=450", "unit=ms", "tp=4", "batch=1", "seq_len=2048"]
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
    (0, ["plan", "llama-3.1-8b", "--systems", "trn2.3xlarge", "--speed", "20", *LENGTHS]),
    (3, ["plan", "llama-3.1-8b", "--systems", "trn2.3xlarge", *SLOW]),
    (3, ["plan", "llama-3.1-405b", "--systems", "trn1.2xlarge", "--speed", "1", *LENGTHS]),
    (0, ["compare", "llama-3.1-8b", "trn2.3xlarge", "hgx-h200", "--speed", "20,50", *LENGTHS]),
    (3, ["compare", "llama-3.1-8b", "hgx-h200", *SLOW]),
    (0, ["cost", "llama-3.1-8b", "hgx-h200", "--speed", "20", *LENGTHS]),
    (3, ["cost", "llama-3.1-8b", "hgx-h200", *SLOW]),
    (0, ["train", "llama-3.1-8b", "--systems", "hgx-h100", "--tokens", "15T", "--chips", "1k"]),
    (3, ["train", "llama-3.1-405b", "--systems", "trn1.2xlarge", "--tokens", "15T", "--chips", "2"]),
    (0, ["systems", "trn3"]),
    (3, ["systems", "no such rack"]),
    (0, ["facts", "trainium3", "hbm_bytes"]),
    (3, ["facts", "no such fact"]),
    (0, ["options", "trainium3"]),
    (3, ["options", "no such draft"]),
    (0, ["prices", "trn2"]),
    (3, ["prices", "trn3-nl72x2-pcie160"]),  # nobody publishes one
    (2, ["prices", "--region", "mars"]),
    (0, ["doctor", "--row", "instance=trn2.3xlarge", *MEASURED]),
    (3, ["doctor", "--row", "instance=trn9.3xlarge", *MEASURED]),
    (2, ["doctor", "--row", *MEASURED]),  # no instance
    (0, ["claims", "--topic", "memory"]),
    (0, ["claims", "NC009", "NC118"]),
    (3, ["claims", "--topic", "roadmap", "--source", "trn1-arch"]),  # which prints nothing on chips to come
    (2, ["claims", "--verdict", "true"]),
    (2, ["claims", "NC9999"]),
    (2, ["claims", "NC009", "--topic", "memory"]),
    (0, ["support", "llama-3.1-8b"]),
    (0, ["support", "deepseek-v3", "trn2.48xlarge"]),  # not listed, which is an answer
    (2, ["support", "llama-3.1-8b", "--stack", "ideal"]),  # of which system
    (0, ["validate", f"{FILES}/own.csv"]),
    (3, ["validate", f"{FILES}/vllm_old.json"]),  # which names no machine
    (2, ["validate", f"{FILES}/no-such.json"]),
    (2, ["validate", __file__]),  # holds no measurement
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
    """0 answered, 1 our fault, 2 a bad question, 3 nothing can satisfy it, 4 reserved, 5 a plan moved; 128 + SIGINT."""
    assert [int(status) for status in terminal.Status] == [0, 1, 2, 3, 4, 5, 130]
    for page in (call("--help")[1], call("decode", "--help")[1]):
        printed = page.partition("Exit status:")[2].split("\n")
        assert [line.split()[0] for line in printed if line.strip()] == [str(int(one)) for one in terminal.Status]
    table = [line for line in (root / "README.md").read_text().splitlines() if line.startswith("| ")]
    assert {f"{int(one)}" for one in terminal.Status} <= {line.split()[1] for line in table}


BASE = {
    "plan": ["llama-3.1-8b", "--speed=20", "--in=1024", "--out=256", "--systems=trn2.3xlarge"],
    "compare": ["llama-3.1-8b", "trn2.3xlarge", "hgx-h200", "--speed=20,50", "--in=1024", "--out=256"],
    "decode": ["llama-3.1-8b", "trn2.3xlarge"],
    "power": ["llama-3.1-8b", "hgx-h100"],
    "goodput": ["llama-3.1-8b", "trn2.48xlarge"],
    "train": ["llama-3.1-8b", "--systems=hgx-h100", "--tokens=15T", "--chips=1024"],
    "cost": ["llama-3.1-8b", "hgx-h200", "--speed=20", "--in=1024", "--out=256"],
    "prefill": ["llama-3.1-8b", "trn2.3xlarge", "--in=1024"],
    "fit": ["llama-3.1-8b", "trn2.3xlarge"],
    "collective": ["all_reduce", "1MB", "trn2.48xlarge"],
    "roofline": ["trainium2", "--intensity=10"],
    "prices": ["trn2.48xlarge"],
    "support": ["llama-3.1-8b", "trn2.48xlarge"],
    "doctor": ["rows.csv"],
    "claims": ["NC009"],
    "schema": ["decode_step"],
    "check": ["plan.json"],
    "measure": ["plan.json", "--folder=scripts"],
    "calibrate": ["rows.csv"],
    "run": ["decode-step"],
    "validate": [f"{FILES}/vllm_old.json"],
    "book": [],
    "notebooks": [],
}
HOSTILE_NUMBERS = ["", " ", "nan", "inf", "-1", "1e400", "15x", "9" * 400, "1 5", "0x10", "\u0663", "1e31"]
HOSTILE_NAMES = ["", " ", "<b>", "x" * 300, "\x1b[2J", "trn9\nmore"]
OF_A_FILE = {"--parameter": "-p ", "--file": "", "--out-dir": "-o", "CHAPTER": "no chapter "}  # how their lines begin


def options():
    for name, command in COMMANDS.items():
        for one in command.params:
            listed = name in ("systems", "models", "stacks", "options", "facts")  # whose text matches nothing at worst
            if not (listed or one.is_eager or getattr(one, "is_bool_flag", False) or one.name == "help"):
                yield name, one


def cases():
    """Every flag; each third one in `make test`, the others in `make test-all`."""
    for n, (name, one) in enumerate(options()):
        yield pytest.param(name, one, id=f"{name} {terminal.flag(one)}", marks=[pytest.mark.slow] if n % 3 else [])


@pytest.mark.parametrize(("name", "one"), list(cases()))
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
        if flag in ("--out-dir", "--folder") and value.strip():
            continue  # any other name is a folder
        status, out, error = call(name, *args)
        assert (status, out, error.count("\n")) == (2, "", 1), (value, out, error)
        assert error.startswith(OF_A_FILE.get(flag, f"{flag}=")), (value, error)
        assert error.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("2k", 2000),
        ("2K", 2000),
        ("4Ki", 4096),
        ("4.1M", 4_100_000),
        ("300b", 3e11),
        ("300 B", 3e11),
        ("1G", 1e9),
        ("15T", 15e12),
        ("1.5e12", 1.5e12),
        (".5", 0.5),
        ("-5", -5),
        ("1Gi", 2**30),
        ("1ti", 2**40),
    ],
)
def test_a_number_is_read_as_people_type_it(typed, value):
    assert units.read_number("--in", typed) == value


@pytest.mark.parametrize(
    ("typed", "value"),
    [("64MB", 64_000_000), ("64M", 64_000_000), ("1.5 GiB", 1.5 * 2**30), ("65536", 65536), ("7B", 7), ("2kB", 2000)],
)
def test_a_size_is_read_with_its_unit(typed, value):
    assert units.read_number("BYTES", typed, of_bytes=True) == value


@pytest.mark.parametrize(
    "typed", ["64mb", "64Mb", "64MBB", "64Q", "MB", "1 000", "1,5", "+-1", "1e5e5", "²", "1\n", " 1", "1  k"]
)
def test_anything_else_is_no_number(typed):
    for of_bytes in (False, True):
        with pytest.raises(ValueError, match=r"^--in="):
            units.read_number("--in", typed, of_bytes=of_bytes)


def test_every_numeric_flag_reads_suffixes():
    """None is left that typer itself reads as a number."""
    numeric = [one for command in COMMANDS.values() for one in command.params if one.metavar in ("NUMBER", "BYTES")]
    assert len(numeric) > 30
    assert all(one.callback is not None for one in numeric)
    rows = [
        json.loads(call("prefill", "llama-3.1-8b", "trn2.3xlarge", "--tp", "4", "--in", text, "--json")[1])
        for text in ("2k", "2000")
    ]
    assert rows[0] == rows[1]


SAME = [  # what people type, and AWS's, the publishers' and nccom-test's own name for it
    (tm.system, "trn2", "trn2.48xlarge"),
    (tm.system, "Trn3 NL32x2", "trn3-nl32x2-pcie160"),
    (tm.system, "trn3_nl72x2", "trn3-nl72x2-pcie160"),
    (tm.system, "TRN3 GEN1 ULTRASERVER", "trn3-nl32x2-pcie160"),
    (tm.system, "p5en.48xlarge", "hgx-h200"),
    (tm.chip, "trn2", "trainium2"),
    (tm.chip, "Trainium-2", "trainium2"),
    (tm.model, "llama3.3", "llama-3.3-70b"),
    (tm.model, "Llama 3.3 70B", "llama-3.3-70b"),
    (tm.model, "DeepSeek V3", "deepseek-v3"),
    (tm.model, "meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
]


@pytest.mark.parametrize(("find", "typed", "meant"), SAME)
def test_a_name_is_resolved_by_the_library(find, typed, meant):
    assert find(typed) is find(meant)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("allreduce", "all_reduce"),
        ("All-to-All", "all_to_all"),
        ("ReduceScatter", "reduce_scatter"),
        ("allg", "all_gather"),
        ("sendrecv", "p2p"),
    ],
)
def test_a_collective_is_resolved_by_the_library(typed, meant):
    one, other = (tm.collective(kind, 1e6, "trn2") for kind in (typed, meant))
    assert one.kind == other.kind == meant
    assert one.time_s == other.time_s


def test_other_names_are_resolved_too():
    assert load.precision("BF16") is load.precision("bf16")
    assert tm.efficiencies("trn2", "Hand-Tuned").id == tm.efficiencies("trn2", "hand-tuned").id
    assert tm.efficiencies("trn2", "public") is tm.efficiencies("trn2")


def test_the_answer_names_what_was_read_as_something_else():
    args = ["--tp", "64", "--context", "2k"]
    status, out, error = call("decode", "DeepSeek V3", "trn2", *args)
    plain = call("decode", "deepseek-v3", "trn2.48xlarge", *args)[1]
    assert (status, error) == (0, "")
    assert out.endswith(plain)
    note = out.removesuffix(plain)
    assert all(name in note for name in ("DeepSeek V3", "deepseek-v3", "trn2", "trn2.48xlarge"))
    status, out, error = call("decode", "deepseek-v3", "trn2", *args, "--json")
    assert json.loads(out)["system"] == "trn2.48xlarge"
    assert "trn2.48xlarge" in error


def tables():
    for kind in sorted({one.kind for one in load.entities().values()}):
        yield kind, load.ids_by_name(kind), [row for row in load.names() if load.entities()[row.id].kind == kind]


def test_every_alias_means_one_thing_among_its_kind():
    for kind, ids, rows in tables():
        meant = defaultdict(set)
        for row in rows:
            meant[names.folded(row.alias)].add(row.id)
            assert load.resolve(kind, row.alias) == row.id
        assert [alias for alias, several in meant.items() if len(several) > 1] == []
        assert all(ids[names.folded(one)] == one for one in set(ids.values()))
    for row in shipped.catalog().values():
        for alias in (row.id, *filter(None, row.aliases.split(";"))):
            assert tm.model(alias).id == row.id


def test_one_name_of_two_things_is_refused():
    with pytest.raises(DataError, match="trn 3"):
        names.index([("Trn3", "a"), ("trn 3", "b")], "names.csv")


@pytest.mark.parametrize(
    ("find", "typed", "near"),
    [
        (tm.system, "trn2.48xlage", "trn2.48xlarge"),
        (tm.chip, "trainum3", "trainium3"),
        (tm.model, "deepsek-v3", "deepseek-v3"),
        (tm.model, "llama3.1", "llama-3.1-8b"),
        (load.precision, "bf17", "bf16"),
        (lambda kind: tm.collective(kind, 1e6, "trn2"), "allreduse", "all_reduce"),
        (lambda stack: tm.efficiencies("trn2", stack), "vllm-neuron", "vllm-neuron-2026"),
    ],
)
def test_an_unknown_name_is_answered_with_the_two_nearest(find, typed, near):
    with pytest.raises(ValueError, match="nearest: ") as refused:
        find(typed)
    told = str(refused.value).partition("nearest: ")[2].split(", ")
    assert len(told) == 2
    assert near in told


LISTS = ("systems", "models", "stacks", "options", "prices", "facts")


def test_facts_are_listed_with_their_lines():
    assert len(json.loads(call("facts", "--json")[1])) == len(tm.facts())
    printed = json.loads(call("facts", "Trainium3", "hbm_bytes_per_s", "ah-trainium3", "--json")[1])
    assert {(row["value_printed"], row["locator"][:3]) for row in printed} >= {("4.9", "L35")}


def test_lists_hold_everything_and_filter():
    rows = {name: json.loads(call(name, "--json")[1]) for name in LISTS}
    assert {row["id"] for row in rows["systems"]} == set(tm.systems())
    assert {row["id"] for row in rows["models"]} == set(tm.model_ids())
    assert {"vllm-neuron-2026", "hand-tuned-gpu", "megatron-core", "ideal"} <= {row["id"] for row in rows["stacks"]}
    assert {"us-east-2", "ap-northeast-1"} <= {row["place"] for row in rows["prices"]}
    sizes = {row["id"]: row["total_params"] for row in rows["models"]}
    assert round(sizes["deepseek-v3"] / 1e9) == 671  # as its publisher prints it
    chips = {row["id"]: row["chips"] for row in rows["systems"]}
    assert (chips["trn2.48xlarge"], chips["gb200-nvl72"], chips["trn3-nl72x2-pcie160"]) == (16, 72, 144)
    status = {row["id"]: (row["status"], row["alternative_of"]) for row in rows["systems"]}
    assert status["trn2.48xlarge"] == ("for rent", "")
    assert status["trn3-nl72x2-aws-lanes"] == ("our reading", "trn3-nl72x2-pcie160")
    assert "our reading" in call("systems", "aws-lanes")[1]
    some = json.loads(call("models", "Llama 3.3", "--json")[1])
    assert [row["id"] for row in some] == ["llama-3.3-70b"]
    one = json.loads(call("prices", "trn2", "--pricing", "capacity-block", "--region", "us-east-2", "--json")[1])
    assert {(row["entity"], row["pricing"], row["place"]) for row in one} == {
        ("trn2.48xlarge", "capacity-block", "us-east-2")
    }
    assert {row["id"] for row in rows["options"]} == {one.id for one in documented()}
    eagle = {row["id"]: row for row in rows["options"]}["neuron-eagle3-llama-3.1-8b"]
    assert (eagle["tokens_per_step"], eagle["covers"], eagle["server"]) == (3.22, "llama-3.1-8b", "vllm-neuron")
    assert "sdk-eagle3-llama" in eagle["sources"].split()
    some = json.loads(call("options", "B200", "--json")[1])
    assert {row["id"] for row in some} == {"trtllm-mtp1", "trtllm-mtp2", "trtllm-mtp3", "vllm-eagle3-llama-4-maverick"}
    line = next(one for one in call("options", "neuron-async")[1].splitlines() if one.startswith("neuron-async "))
    assert all(word in line for word in ("vLLM Neuron, page of August 2026", "trainium2 trainium3", "any"))
    assert "steps of vllm-neuron-2026-async" in line
    assert "3.22 tokens per step" in call("options", "llama-3.1")[1]
    for name in LISTS:
        lines = call(name)[1].splitlines()
        assert len(lines) == len(rows[name]) + 1


def completed(*words):
    """What bash is offered for the last word of `trnmodel words`."""
    env = {
        "_TRNMODEL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["trnmodel", *words]),
        "COMP_CWORD": str(len(words)),
    }
    return CliRunner().invoke(app, [], prog_name="trnmodel", env=env).stdout.split()


@pytest.mark.parametrize(
    ("words", "first", "only"),
    [
        (["decode", "llama-3.3"], "llama-3.3-70b", True),
        (["decode", "llama-3.3-70b", "trn2.4"], "trn2.48xlarge", True),
        (["decode", "llama-3.3-70b", "trn2.48xlarge", "--precision", "mxfp8"], "mxfp8", False),
        (["decode", "llama-3.3-70b", "trn2.48xlarge", "--stack", "hand"], "hand-tuned", False),
        (["train", "llama-3.3-70b", "--systems", "hgx-h100", "--stack", "megatron-c"], "megatron-core", False),
        (["train", "llama-3.3-70b", "--systems", "hgx-h100,gb200"], "hgx-h100,gb200-nvl72", True),
        (["plan", "llama-3.3-70b", "--stack", "neuron-as"], "neuron-async", True),
        (["opt"], "options", True),
        (["collective", "all_r"], "all_reduce", True),
        (["roofline", "trainium3"], "trainium3", True),
        (["cost", "llama-3.3-70b", "trn2.48xlarge", "hgx-h2"], "hgx-h200", True),
        (["cost", "llama-3.3-70b", "trn2.48xlarge", "--pricing", "capacity"], "capacity-block", True),
        (["pri"], "prices", True),
    ],
)
def test_the_shell_completes(words, first, only):
    offered = completed(*words)
    assert offered[0] == first
    assert len(offered) == 1 or not only
    assert completed(*words[:-1], "zzz") == []


def test_completion_loads_no_pandas():
    """It is asked for at every touch of a key."""
    words = [
        ["decode", "l"],
        ["decode", "l", "t"],
        ["decode", "l", "t", "--precision", "f"],
        ["collective", "a"],
        ["decode", "l", "t", "--stack", "i"],
        ["run", "c"],
    ]
    code = (
        "import os, sys; from typer.testing import CliRunner; from trnmodel.cli.app import app\n"
        f"for words in {words}:\n"
        "    env = {'_TRNMODEL_COMPLETE': 'complete_bash', 'COMP_WORDS': ' '.join(['trnmodel', *words]),"
        " 'COMP_CWORD': str(len(words))}\n"
        "    assert CliRunner().invoke(app, [], prog_name='trnmodel', env=env).stdout.split(), words\n"
        "print([m for m in ('pandas', 'scipy', 'networkx', 'jupytext', 'papermill') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
