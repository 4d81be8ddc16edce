"""Chapters: parameters checked before anything runs; outputs whole, repeatable and made again only when due."""

import contextvars
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import nbformat
import pytest

import trnmodel
from trnbook import report
from trnbook.report import book, chapter, execute, folders, kernels

PATIENCE_S = 600  # for a machine that does much else
HEADER = """\
# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
#   trnmodel:
#     order: {order}
# ---

# %% [markdown]
# # What is {slug}?
#
# A question.

# %% tags=["parameters"]
{parameters}

# %%
{code}
"""
PARAMETERS = """\
from typing import Literal

batch: int = 8
share: float = 0.5
flag: bool = True
limit_s: float | None = None
phases: list[str] = ["prefill"]
counts: list[int] = [1, 2]
kind: Literal["causal", "full"] = "causal"
note: str = ""
folder: str = ""
chip: str = "trainium3"
rival_chips: list[str] = ["trainium2"]
words: list[str] = []"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes a chapter into an empty notebooks folder."""
    folder = tmp_path / "notebooks" / "py"
    folder.mkdir(parents=True)
    monkeypatch.setattr(chapter, "CHAPTERS", folder)
    monkeypatch.setattr(execute, "PACKAGE", tmp_path / "package")
    monkeypatch.setattr(execute, "DATA", tmp_path / "data")
    monkeypatch.setattr(trnmodel, "chip", known_chip, raising=False)

    def write(slug, code="print(batch)", parameters=PARAMETERS, order=1):
        text = HEADER.format(slug=slug, order=order, parameters=parameters, code=textwrap.dedent(code))
        (folder / f"{slug}.py").write_text(text)

    return write


def known_chip(name):
    if name not in ("trainium2", "trainium3"):
        raise ValueError(f"chip={name!r} is unknown; nearest: trainium2, trainium3")


def stdout(path):
    outputs = [output for cell in nbformat.read(path, 4).cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def run(slugs, out_dir, **kwargs):
    return report.run(slugs, out_dir=out_dir, progress=False, **kwargs)


# Chapters and parameters


def test_chapters_come_in_the_order_of_their_headers(write):
    write("alpha", order=2)
    write("omega", order=1)
    write("index", order=3)
    assert report.chapters() == ["omega", "alpha"]
    assert report.notebooks() == ["omega", "alpha", "index"]


def test_parameters_have_the_declared_types(write):
    write("a")
    declared = report.parameters("a")
    assert declared["batch"] == (int, 8)
    assert declared["counts"] == (list[int], [1, 2])
    assert [declared[name].type_name for name in ("batch", "limit_s", "phases", "kind")] == [
        "int",
        "float | None",
        "list[str]",
        "Literal['causal', 'full']",
    ]


@pytest.mark.parametrize("line", ["batch = 8", "batch: int = 'eight'", "batch: int = 2 * n", "batch: tensor = 8", "1"])
def test_a_parameter_cell_holds_typed_literals_only(write, line):
    write("a", parameters=line)
    with pytest.raises(ValueError, match="is not `name: type = literal`"):
        report.parameters("a")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("batch", "16", 16),
        ("batch", 32.0, 32),
        ("share", "1e-3", 1e-3),
        ("share", 2, 2.0),
        ("flag", "false", False),
        ("limit_s", "null", None),
        ("limit_s", "3", 3.0),
        ("phases", "prefill,decode", ["prefill", "decode"]),
        ("phases", "['prefill', 'decode']", ["prefill", "decode"]),
        ("counts", "[3, 4]", [3, 4]),
        ("kind", "full", "full"),
        ("words", "", []),
        ("note", "a = \"b\"\n'c'", "a = \"b\"\n'c'"),
        ("chip", "trainium2", "trainium2"),
    ],
)
def test_values_are_read_as_their_type(write, name, given, value):
    write("a")
    checked = report.check_parameters("a", {name: given})
    assert checked == {name: value}
    assert type(checked[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("bacth", "8", "chapter 'a' has no parameter 'bacth'; nearest: batch"),
        ("batch", "many", "parameter batch = 'many' must be of type int"),
        ("batch", 8.5, "parameter batch = 8.5 must be of type int"),
        ("batch", True, "parameter batch = True must be of type int"),
        ("batch", None, "parameter batch = None must be of type int"),
        ("share", "half", "parameter share = 'half' must be of type float"),
        ("share", "nan", "parameter share = nan must be finite"),
        ("share", float("inf"), "parameter share = inf must be finite"),
        ("limit_s", "-inf", "parameter limit_s = -inf must be finite"),
        ("flag", "maybe", "parameter flag = 'maybe' must be of type bool"),
        ("counts", "1,two", "parameter counts = ['1', 'two'] must be of type list[int]"),
        ("kind", "fll", "parameter kind = 'fll' must be of type Literal['causal', 'full']"),
        ("note", 3, "parameter note = 3 must be of type str"),
        ("note", "a\0b", "parameter note = 'a\\x00b' must be text without NUL and broken characters"),
        ("note", "\udcff", "parameter note = '\\udcff' must be text without NUL and broken characters"),
        ("counts", "", "parameter counts = [] must hold at least one item"),
        ("counts", [1, 10**31], f"parameter counts = 1{'0' * 31} must be no larger than 1e+30"),
        pytest.param(
            "batch",
            10**5000,
            "parameter batch = int with a whole number of too many digits must be no larger than 1e+30",
            id="huge",
        ),
        ("share", -1e40, "parameter share = -1e+40 must be no larger than 1e+30"),
        ("chip", "trainium9", "parameter chip: chip='trainium9' is unknown; nearest: trainium2, trainium3"),
        ("rival_chips", "trainium2,h1", "parameter rival_chips: chip='h1' is unknown; nearest: trainium2, trainium3"),
    ],
)
def test_wrong_values_are_named(write, name, given, message):
    write("a")
    with pytest.raises(report.InputError) as raised:
        report.check_parameters("a", {name: given})
    assert str(raised.value) == message


def test_an_unknown_chapter_is_told_the_nearest(write):
    write("roofline")
    with pytest.raises(report.InputError, match="no chapter 'rofline'; nearest: roofline"):
        report.parameters("rofline")
    with pytest.raises(report.InputError, match="no chapter"):
        report.parameters("../py/roofline")


BOMB = b"a: &a [x, x]\n" + b"".join(
    f"{c}: &{c} [{f'*{p},' * 9}]\n".encode() for p, c in zip("abcdef", "bcdefg", strict=True)
)
MERGE_BOMB = b"a: &a {x: 1}\n" + b"".join(
    f"{c}: &{c} {{<<: [{f'*{p},' * 9}]}}\n".encode() for p, c in zip("abcdefghijk", "bcdefghijkl", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"batch: 8\n" + b"# x\n" * 20_000, "more than 64000 bytes"),
        (b"batch: !!python/object/apply:os.getcwd []", "not plain YAML at line 1"),
        (b"- batch\n", "expected a mapping"),
        (b"8", "expected a mapping"),
        (b"", "expected a mapping"),
        (b"1: 2", "expected a mapping"),
        (b"batch: [8\nshare: 1", "not plain YAML at line 2"),
        (b"# ours\nbatch: 8\nshare: 1\nbatch: 9\n", "line 4: .*'batch'"),
        (b"batch: 8\n'batch': 8\n", "line 2: .*'batch'"),
        (b"phases:\n- {a: 1,\n   a: 2}\n", "line 3: .*'a'"),
        (b"share: 1\nbatch: 190:20\n", "line 2: '190:20'"),
        (b"share: -1:30.5\n", "line 1: '-1:30.5'"),
        (b"share: 1\nbatch: 010\n", "line 2: '010'"),
        (b"batch: 2026-99-99", "not plain YAML"),
        (b"batch: !!timestamp x", "not plain YAML"),
        (b"batch: !!bool maybe", "not plain YAML"),
        (b"batch: !!int ''", "not plain YAML"),
        (b"batch: " + b"1:" * 20_000 + b"1.5", "not plain YAML"),
        (b"batch: " + b"1" * 5000, "not plain YAML"),
        (MERGE_BOMB, "not plain YAML at line 2"),
        (b"\xff\xfe\xff", "not plain YAML"),
        (b"batch: " + b"[" * 30_000, "not plain YAML"),
        (b"? [a, b]\n: 1", "not plain YAML|expected a mapping"),
        (BOMB, "has no parameter"),
        (BOMB.replace(b"g: &g", b"batch:"), "must be of type int|has no parameter"),
    ],
)
def test_hostile_parameter_files_end_in_one_line(write, tmp_path, text, message):
    write("a")
    path = tmp_path / "params.yaml"
    path.write_bytes(text)
    with pytest.raises(report.InputError, match=message) as raised:
        report.check_parameters("a", report.read_parameters(path))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_a_parameter_file_is_a_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml", Path(os.devnull)):
        with pytest.raises(report.InputError, match="no such file"):
            report.read_parameters(path)


def test_a_parameter_file_gives_values(write, tmp_path):
    write("a")
    path = tmp_path / "params.yaml"
    path.write_text("batch: 16\nshare: 1e-3\nphases: [decode]\nlimit_s: null\n")
    assert report.check_parameters("a", report.read_parameters(path)) == {
        "batch": 16,
        "share": 1e-3,
        "phases": ["decode"],
        "limit_s": None,
    }


def test_a_number_with_colons_may_be_quoted_as_text(write, tmp_path):
    write("a")
    path = tmp_path / "params.yaml"
    path.write_text("note: '190:20'\nshare: 0\nbatch: 10\n")
    values = {"note": "190:20", "share": 0.0, "batch": 10}
    assert report.check_parameters("a", report.read_parameters(path)) == values


# Running


def test_wrong_parameters_leave_nothing(write, tmp_path):
    write("a")
    write("b", parameters="other: int = 1")
    with pytest.raises(report.InputError, match="'b' has no parameter 'batch'"):
        run(["a", "b"], tmp_path / "out", parameters={"batch": 1})
    assert not (tmp_path / "out").exists()


def test_parameters_reach_the_kernel_as_text_not_code(write, tmp_path):
    write("a", "print(batch, repr(note), limit_s, phases)")
    note = "\"; raise SystemExit #'\n\\"
    run(["a"], tmp_path, parameters={"batch": "3", "note": note, "limit_s": "2", "phases": "x,y"})
    assert stdout(tmp_path / "a.ipynb") == f"3 {note!r} 2.0 ['x', 'y']\n"


def test_two_runs_give_the_same_bytes(write, tmp_path):
    write("a", "import sys\nprint({'x', 'y', 'z'})\nprint('careful', file=sys.stderr)\nprint('on')\nbatch")
    for name in ("one", "two"):
        run(["a"], tmp_path / name, parameters={"batch": 2})
    one, two = ((tmp_path / name / "a.ipynb").read_bytes() for name in ("one", "two"))
    assert one == two
    notebook = nbformat.reads(one.decode(), 4)
    nbformat.validate(notebook)
    assert not [cell for cell in notebook.cells if "papermill" in cell.metadata or cell.metadata.get("tags") == []]
    assert set(notebook.metadata) == {"kernelspec", "language_info", "trnmodel"}
    assert notebook.metadata.trnmodel.parameters == {"batch": 2}
    assert str(tmp_path).encode() not in one


def test_only_what_changed_runs_again(write, tmp_path, monkeypatch):
    lock = tmp_path / "lock"
    lock.write_text("one")
    monkeypatch.setattr(execute, "LOCK", lock)
    write("a")
    write("b")

    def ran(**parameters):
        return [outcome.slug for outcome in run(["a", "b"], tmp_path / "out", parameters=parameters) if outcome.ran]

    assert ran() == ["a", "b"]
    assert ran() == []
    write("b", "print('changed')")
    assert ran() == ["b"]
    assert ran(batch=9) == ["a", "b"]
    (tmp_path / "out" / "a.ipynb").write_text("{ half a notebo")
    assert ran(batch="9") == ["a"]
    lock.write_text("two")
    assert ran(batch=9) == ["a", "b"]


def test_the_digest_covers_package_data_and_named_files(write, tmp_path, monkeypatch):
    write("a")
    rows, package, data = tmp_path / "rows.csv", tmp_path / "package", tmp_path / "data"
    for path in (rows, package / "module.py", data / "facts" / "x.csv"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one")

    def digest():
        return execute._digest("a", {"folder": str(rows)}, execute.inputs())

    seen = {digest(), digest()}
    for path in (rows, package / "module.py", data / "facts" / "x.csv"):
        path.write_text("two")
        seen.add(digest())
    assert len(seen) == 4
    lab = data / "trnlab" / "module.py"  # no chapter imports it
    lab.parent.mkdir()
    lab.write_text("one")
    assert digest() in seen


def test_the_digest_covers_folders_and_lists_of_files(write, tmp_path, monkeypatch):
    write("a")
    monkeypatch.setattr(execute, "MAX_INPUT_BYTES", 100)
    folder, rows = tmp_path / "model", tmp_path / "rows.csv"
    folder.mkdir()
    config = folder / "config.json"

    def digest():
        return execute._digest("a", {"folder": str(folder), "phases": ["x", str(rows)]}, "")

    seen = [digest()]
    for path, text in [(config, "one"), (config, "two"), (rows, "one"), (rows, "two"), (rows, "long" * 100)]:
        path.write_text(text)
        seen += [digest(), digest()]
        assert seen[-1] == seen[-2] != seen[-3]
    os.utime(rows, ns=(0, 0))  # of what is too long to read, the time of its last change counts
    seen.append(digest())
    (folder / "model.safetensors").write_text("weights are not read")
    assert len({*seen}) == 7
    assert digest() == seen[-1]
    config.unlink()
    rows.unlink()
    assert digest() == seen[0]


def test_an_edited_model_folder_is_run_again(write, tmp_path):
    write("a", "from pathlib import Path\nprint(Path(folder, 'config.json').read_text())")
    model = tmp_path / "model"
    model.mkdir()
    for text in ("one", "two"):
        (model / "config.json").write_text(text)
        (outcome,) = run(["a"], tmp_path / "out", parameters={"folder": str(model)})
        assert outcome.ran
        assert stdout(outcome.path) == text + "\n"
    assert not run(["a"], tmp_path / "out", parameters={"folder": str(model)})[0].ran


def test_what_is_no_report_is_never_overwritten(write, tmp_path):
    write("a")
    out = tmp_path / "out"
    out.mkdir()
    place = out / "a.ipynb"
    for text in ('{"metadata": {"trnmodel": {"order": 1}}, "cells": []}', '{"metadata": {"trnmodel": 3}}', "[1]", "3"):
        place.write_text(text)
        with pytest.raises(report.InputError, match=r"a\.ipynb is in the way: it is no report made here"):
            run(["a"], out)
        assert place.read_text() == text
    for text in ("", "{", '{"a": ' * 100_000, "\x00"):
        place.write_text(text)
        assert run(["a"], out)[0].ran
        place.unlink()


def test_the_error_notebook_shows_an_error_as_text(write, tmp_path, monkeypatch):
    write("a")

    def dies(*args):
        raise RuntimeError("<img src=x onerror=alert(1)>\n\n<script>alert(2)</script>")

    monkeypatch.setattr(kernels, "_execute", dies)
    with pytest.raises(report.ChapterError) as raised:
        run(["a"], tmp_path)
    assert "\n" not in str(raised.value)
    told = nbformat.read(tmp_path / "a.error.ipynb", 4).cells[0].source
    assert told.splitlines()[2:] == ["    RuntimeError: <img src=x onerror=alert(1)> <script>alert(2)</script>"]


def test_a_folder_is_claimed_by_one_and_left_as_it_was(tmp_path):
    out = tmp_path / "new" / "out"
    with report.claimed(out), report.claimed(tmp_path / "new" / "." / "out"):
        assert names(out) == [".trnmodel.lock"]
        told = contextvars.Context().run(refused, out)
        assert told == f"another run is writing into {out}; wait for it, or name another folder"
    assert not (tmp_path / "new").exists()
    with report.claimed(tmp_path):
        (tmp_path / "kept").touch()
    assert names(tmp_path) == ["kept"]


MANY = """\
from trnbook.report import folders
for turn in range(60):
    with folders.temporary() as folder:
        (folder / "work").touch()
        assert (folder / folders.LOCK).exists()
"""


def test_runs_at_the_same_time_leave_each_other_their_temporary_folders(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("s")
    env = os.environ | {"TMPDIR": str(scratch)}
    runs = [subprocess.Popen([sys.executable, "-c", MANY], env=env, stderr=subprocess.PIPE) for _ in range(4)]
    assert [run.communicate(timeout=PATIENCE_S)[1] for run in runs] == [b""] * 4
    assert not names(scratch)


def refused(folder):
    try:
        with report.claimed(folder):
            return None
    except report.InputError as error:
        return str(error)


def test_temporary_folders_of_killed_runs_go_and_those_of_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, empty, mine, long = (
        tmp_path / f"trnmodel-{name}" for name in ("deadrun1", "emptyrun", "mine_all", "of_somebody")
    )
    for folder in (dead, empty, mine, long):
        folder.mkdir()
    for path in (dead / ".trnmodel.lock", dead / "s-1", mine / "work", long / ".trnmodel.lock"):
        path.touch()
    with folders.temporary() as alive:
        (alive / "s-1").touch()
        with folders.temporary() as other:
            assert other != alive
        assert names(tmp_path) == sorted([alive.name, mine.name, long.name])
        assert (alive / "s-1").exists()
    assert names(tmp_path) == [mine.name, long.name]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    (tmp_path / ("x" * 100)).mkdir()
    with pytest.raises(report.InputError, match="too long a path for sockets; set TMPDIR"), folders.temporary():
        pass


def test_a_failing_chapter_leaves_its_error_notebook_and_the_others_finish(write, tmp_path):
    write("bad", "print('so far')\nraise KeyError('gone')")
    write("dead", "import os\nprint('last words', flush=True)\nos._exit(3)")
    write("good")
    with pytest.raises(report.ChapterError) as raised:
        run(["bad", "dead", "good"], tmp_path / "out")
    bad, dead = str(raised.value).splitlines()
    assert bad == f"chapter 'bad' failed: KeyError: 'gone' (see {tmp_path / 'out' / 'bad.error.ipynb'})"
    assert dead.startswith("chapter 'dead' failed: DeadKernelError: Kernel died")
    assert names(tmp_path / "out") == ["bad.error.ipynb", "dead.error.ipynb", "good.ipynb"]
    assert "so far" in stdout(tmp_path / "out" / "bad.error.ipynb")
    assert "The run ended here" in (tmp_path / "out" / "dead.error.ipynb").read_text()
    write("bad")
    run(["bad"], tmp_path / "out")
    assert names(tmp_path / "out") == ["bad.ipynb", "dead.error.ipynb", "good.ipynb"]


def test_two_kernels_run_in_parallel_and_no_more(write, tmp_path):
    code = """
        import time
        from pathlib import Path
        began = time.monotonic()
        Path(folder, f"{began}.began").touch()
        while len(list(Path(folder).glob("*.began"))) < 2 and time.monotonic() < began + 300:
            time.sleep(0.02)
        time.sleep(0.2)
        print(began, time.monotonic())
    """
    for slug in "abcd":
        write(slug, code)
    run("abcd", tmp_path / "out", parameters={"folder": str(tmp_path)})
    spans = [tuple(map(float, stdout(tmp_path / "out" / f"{slug}.ipynb").split())) for slug in "abcd"]
    at_once = [sum(began <= moment < ended for began, ended in spans) for moment, _ in spans]
    assert max(at_once) == 2


def test_an_output_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "a.ipynb"
    folders.write_whole(target, "old")

    def full_disk(self, *args, **kwargs):
        with self.open("w") as file:
            file.write("ha")
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="no space left"):
        folders.write_whole(target, "new")
    assert names(tmp_path) == ["a.ipynb"]
    assert target.read_text() == "old"


SCRIPT = """
import signal, sys
from pathlib import Path
from trnmodel.cli import app as cli
from trnbook import report
from trnbook.report import chapter, execute
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell without one may have switched off
execute.PACKAGE = execute.DATA = chapter.CHAPTERS = Path(sys.argv.pop(1))
report.run = lambda slugs, *rest: execute.run(["quick", *slugs], *rest, workers=1)
cli.app()
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_started_again(write, tmp_path, tmp_path_factory, sent):
    write("quick")
    wait = """
        import os, time
        from pathlib import Path
        Path(folder, "pid").write_text(str(os.getpid()))
        while not Path(folder, "go").exists():
            time.sleep(0.02)
    """
    write("slow", wait)
    out, pid, scratch = tmp_path / "out", tmp_path / "pid", tmp_path_factory.mktemp("s")  # short, for sockets
    command = [sys.executable, "-c", SCRIPT, str(chapter.CHAPTERS), "run", "slow", "-p", f"folder={tmp_path}"]
    command += ["-o", str(out), "--no-page"]
    env = os.environ | {"TMPDIR": str(scratch)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        kernel = int(pid.read_text())
        process.send_signal(sent)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert told == "interrupted; the same command goes on from here\n"
    assert names(out) == ["quick.ipynb"]
    assert not names(scratch)
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)
    (tmp_path / "go").touch()
    again = subprocess.run(command, capture_output=True, text=True, env=env, timeout=PATIENCE_S, check=True)
    assert again.stdout == f"{out / 'quick.ipynb'} (up to date)\n{out / 'slow.ipynb'}\n"


# Book and committed notebooks


@pytest.fixture
def small_book(write, tmp_path, monkeypatch):
    """A book of a first page, two chapters and a page of reference in a plain theme."""
    folder = tmp_path / "book"
    (folder / "reference").mkdir(parents=True)
    (folder / "reference" / "index.md").write_text("# Reference\n")
    (folder / "conf.py").write_text("extensions = ['myst_nb']\nnb_execution_mode = 'off'\nhtml_theme = 'basic'\n")
    monkeypatch.setattr(book, "BOOK", folder)
    write("index", order=0)
    write("later", "print(6 * 7)", order=2)
    write("first", "print(6 * 9)", order=1)
    return folder


def test_the_book_is_replaced_whole(small_book, write, tmp_path):
    pytest.importorskip("myst_nb")
    out = tmp_path / "build"
    index = report.build_book(out, progress=False)
    assert index == out / "html" / "index.html"
    page = index.read_text()
    listed = page[page.index("Chapters") :]
    assert 0 < listed.index("1. What is first?") < listed.index("2. What is later?")
    assert "42" in (out / "html" / "chapters" / "later.html").read_text()
    whole = (chapter.CHAPTERS / "index.py").read_text()
    (chapter.CHAPTERS / "index.py").write_text(whole.replace("A question", "{doc}`nowhere`"))
    with pytest.raises(report.ChapterError, match="nowhere") as raised:
        report.build_book(out, progress=False)
    assert str(tmp_path) not in str(raised.value)
    assert index.read_text() == page
    (chapter.CHAPTERS / "index.py").write_text(whole.replace("What is index?", "Anew"))
    report.build_book(out, progress=False)
    assert "Anew" in index.read_text()
    assert names(out) == ["html", "notebooks"]


def test_pages_are_made_again_only_where_they_or_their_text_changed(small_book, tmp_path, monkeypatch):
    pytest.importorskip("myst_nb")
    out, asked, sphinx = tmp_path / "build", [], book._sphinx
    monkeypatch.setattr(book, "_sphinx", lambda *given: asked.append(given) or sphinx(*given))
    index = report.build_book(out, progress=False)
    assert report.build_book(out, progress=False) == index
    assert len(asked) == 1
    whole = index.read_bytes()
    index.write_text("half a page")  # not as it was made
    report.build_book(out, progress=False)
    assert (len(asked), index.read_bytes()) == (2, whole)
    (out / "html" / book.MARK).unlink()  # made by who knows what
    report.build_book(out, progress=False)
    (small_book / "conf.py").write_text((small_book / "conf.py").read_text() + "html_title = 'Anew'\n")
    report.build_book(out, progress=False)
    assert len(asked) == 4


def test_a_failing_chapter_stops_the_book(small_book, write, tmp_path):
    write("first", "1 / 0")
    with pytest.raises(report.ChapterError, match="ZeroDivisionError"):
        report.build_book(tmp_path / "build", progress=False)
    assert names(tmp_path / "build") == ["notebooks"]
    assert names(tmp_path / "build" / "notebooks") == ["first.error.ipynb", "index.ipynb", "later.ipynb"]


def test_a_report_has_a_page_of_its_own(small_book, tmp_path):
    pytest.importorskip("myst_nb")
    (outcome,) = run(["first"], tmp_path / "out")
    page = report.build_page(outcome.path)
    assert page == tmp_path / "out" / "first" / "index.html"
    assert "54" in page.read_text()
    stamp = page.stat().st_mtime_ns
    assert report.build_page(outcome.path).stat().st_mtime_ns == stamp
    outcome.path.touch()
    assert report.build_page(outcome.path).stat().st_mtime_ns > stamp
    assert names(tmp_path / "out") == ["first", "first.ipynb"]
    shutil.rmtree(page.parent)
    page.parent.mkdir()
    (page.parent / "mine").touch()
    with pytest.raises(report.InputError, match="first is in the way"):
        report.build_page(outcome.path)
    assert names(page.parent) == ["mine"]


def test_without_the_book_there_is_a_clear_error(write, tmp_path, monkeypatch):
    monkeypatch.setattr(book, "BOOK", tmp_path / "none")
    write("a")
    with pytest.raises(report.InputError, match="the book needs its folder"):
        report.build_book(tmp_path / "build")
    assert not (tmp_path / "build").exists()
    (outcome,) = run(["a"], tmp_path / "out")
    assert report.build_page(outcome.path) is None


def test_printing_needs_a_browser(small_book, tmp_path, monkeypatch):
    monkeypatch.setattr(book, "BROWSERS", ("no-such-browser",))
    with pytest.raises(report.InputError, match="needs one of no-such-browser"):
        report.build_book(tmp_path / "build", pdf=True)
    assert not (tmp_path / "build").exists()


@pytest.mark.slow
def test_the_browser_prints_all_pages_into_one_file(small_book, tmp_path, monkeypatch):
    pytest.importorskip("myst_nb")
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\n" + textwrap.dedent(BROWSER))
    browser.chmod(0o755)
    monkeypatch.setattr(book, "BROWSERS", (str(browser),))
    pdf = report.build_book(tmp_path / "build", pdf=True, progress=False)
    assert pdf == tmp_path / "build" / "trnmodel.pdf"
    assert pdf.read_text().count("What is first?") > 0 < pdf.read_text().count("What is later?")
    assert names(tmp_path / "build") == ["notebooks", "trnmodel.pdf"]
    browser.write_text("#!/bin/sh\necho 'no display' >&2\nexit 1\n")
    with pytest.raises(report.ChapterError, match="could not print the page: no display"):
        report.build_book(tmp_path / "build", pdf=True, progress=False)
    assert names(tmp_path / "build") == ["notebooks", "trnmodel.pdf"]


BROWSER = """
    import sys
    from pathlib import Path
    from urllib.parse import urlparse
    options = dict(word.split("=", 1) for word in sys.argv[1:-1] if "=" in word)
    Path(options["--print-to-pdf"]).write_text(Path(urlparse(sys.argv[-1]).path).read_text())
"""


def test_committed_notebooks_carry_outputs_and_no_digest(write, tmp_path):
    write("a")
    write("b", "print('b')")
    targets = report.write_reference_notebooks(tmp_path / "build", progress=False)
    committed = ["a.ipynb", "digest/a.txt", "b.ipynb", "digest/b.txt"]
    assert targets == [tmp_path / "notebooks" / name for name in committed]
    assert targets[3].read_text() == "# What is b?\n\nb\n"
    notebook = nbformat.read(targets[0], 4)
    text = chapter.read("a")
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == [
        (cell.cell_type, cell.source) for cell in text.cells
    ]
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == [1, 2]
    assert notebook.metadata.trnmodel == {"order": 1}
    assert "digest" not in json.dumps(notebook.metadata)
    write("b", "print('c')")
    assert report.write_reference_notebooks(tmp_path / "build", progress=False) == targets[2:]
