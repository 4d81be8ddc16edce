"""kill -9 in the middle of `run`, `book` and `notebooks`: old output whole, the next run succeeds, nothing is left."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHAPTER = """\
# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What is it?

# %% tags=["parameters"]
answer: int = 1

# %%
"""
CONF = "import os, time\nextensions = ['myst_nb']\nnb_execution_mode = 'off'\nhtml_theme = 'basic'\n"

# A run that sees the chapters and the book of a folder, and kills itself when it comes to call what DIE names.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from trnmodel.cli import app as cli
from trnbook.report import book, chapter, execute, kernels

home = Path.cwd()
chapter.CHAPTERS = home / "notebooks" / "py"
book.BOOK = home / "book"
execute.PACKAGE = execute.DATA = book.PACKAGE = home / "none"

def fake_sphinx(builder, source, built, home, *flags):
    built.mkdir()
    for name in ("index.html", "searchindex.js"):
        pages = sorted(path.read_text() for path in source.rglob("*.ipynb"))
        (built / name).write_text("".join(pages))
    (built / "_sources").mkdir()
    for path in source.rglob("index.ipynb"):
        (built / "_sources" / path.name).write_bytes(path.read_bytes())

if "fake" in os.environ["HOW"]:
    book._sphinx = fake_sphinx

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def dying(whole, call):
    left = [int(call)]
    def counted(*args, **kwargs):
        left[0] -= 1
        return whole(*args, **kwargs) if left[0] else die()
    return counted

place, _, call = os.environ.get("DIE", "").partition(" ")
if place == "replace":
    Path.replace = dying(Path.replace, call)
elif place == "rename":
    Path.rename = dying(Path.rename, call)
elif place == "execute":
    kernels._execute = dying(kernels._execute, call)
cli.app()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A function that gives a source tree in which a command has run once; each is made once, and copied."""
    done = {}

    def made(command):
        if command not in done:
            done[command] = tree(tmp_path_factory.mktemp(command[0]))
            assert finish(start(done[command], *command))[::2] == (0, "")
        return done[command]

    return made


@pytest.fixture
def short(tmp_path_factory):
    """A folder whose path leaves room for the names of sockets."""
    return tmp_path_factory.mktemp("h")


@pytest.fixture
def after(made, short):
    """A function that gives a copy of the tree in which a command has run."""
    return lambda command: Path(shutil.copytree(made(command), short / "home"))


@pytest.fixture
def home(short):
    return tree(short)


def tree(home):
    """A source tree of one chapter and a plain book, with a temporary folder of its own."""
    for folder in ("notebooks/py", "book", "tmp"):
        (home / folder).mkdir(parents=True)
    write(home, "print('old')")
    (home / "book" / "conf.py").write_text(CONF)
    (home / "book" / "index.md").write_text("# Book\n\n```{toctree}\nchapters/one\n```\n")
    return home


def write(home, code):
    (home / "notebooks" / "py" / "one.py").write_text(CHAPTER + code + "\n")


def start(home, *args, die="", how="fake"):
    env = os.environ | {"TMPDIR": str(home / "tmp"), "DIE": die, "HOW": how, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *args],
        cwd=home,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, errors = process.communicate(timeout=600)
    return process.returncode, out, errors


def content(folder):
    """Every file of a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def gone(pid, patience_s=300):
    """Whether a process ends by itself."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


slow = functools.partial(pytest.param, marks=pytest.mark.slow)
RUN, BOOK, NOTEBOOKS = ("run", "one", "-o", "out"), ("book", "-o", "out"), ("notebooks", "-o", "out")


@pytest.mark.parametrize(
    ("command", "die"),
    [
        (RUN, "execute 1"),
        (RUN, "replace 1"),  # the notebook is drafted
        slow(RUN, "rename 1"),  # the page is made, the old one in its place
        (RUN, "rename 2"),  # the old page is away
        slow(RUN, "rename 3"),  # the new page is there, the old one not yet removed
        (BOOK, "execute 1"),
        slow(BOOK, "rename 1"),
        (BOOK, "rename 2"),
        slow(BOOK, "rename 3"),
        (NOTEBOOKS, "execute 1"),
        slow(NOTEBOOKS, "replace 1"),
        (NOTEBOOKS, "replace 2"),  # the committed notebook is drafted
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_killed_run_leaves_the_old_and_no_trace(after, command, die):
    home = after(command)
    folders = [home / "out", home / "notebooks"]
    old = [content(folder) for folder in folders]
    write(home, "print('new')")
    assert finish(start(home, *command, die=die))[0] == -signal.SIGKILL
    for folder, before in zip(folders, old, strict=True):
        now = content(folder)
        for name, text in before.items():
            moved = [found for path, found in now.items() if path.startswith(".trnmodel") and path.endswith(name)]
            assert (
                now.get(name, moved and moved[0]) == text
                or b"new" in now[name]
                or name.endswith(("one.py", "made-from.txt"))
            )
    status, _, errors = finish(start(home, *command))
    assert (status, errors) == (0, "")
    for folder, before in zip(folders, old, strict=True):
        now = content(folder)
        assert now.keys() == before.keys()
        assert not [name for name, text in now.items() if b"old" in text]
    assert not list((home / "tmp").iterdir())


def test_what_a_killed_run_was_about_to_replace_comes_back_even_if_the_next_fails(after):
    home = after(BOOK)
    old = content(home / "out" / "html")
    write(home, "print('new')")
    assert finish(start(home, *BOOK, die="rename 2"))[0] == -signal.SIGKILL
    assert not (home / "out" / "html").exists()
    write(home, "1 / 0")
    assert finish(start(home, *BOOK))[0] == 1
    assert content(home / "out" / "html") == old
    assert not [path.name for path in (home / "out").iterdir() if path.name.startswith(".")]


WAITS = """\
import os, tempfile, time
from pathlib import Path
tempfile.mkdtemp()
Path({folder!r}, "pid").write_text(str(os.getpid()))
while not Path({folder!r}, "go").exists():
    time.sleep(0.02)
"""


def await_pid(path):
    end = time.monotonic() + 300
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return int(path.read_text())


@pytest.mark.parametrize("command", [RUN, BOOK, NOTEBOOKS], ids=lambda command: command[0])
def test_the_kernel_of_a_killed_run_ends_and_keeps_nobody_out(after, command):
    home = after(command)
    old = content(home / "out")
    write(home, WAITS.format(folder=str(home)))
    process = start(home, *command)
    kernel = await_pid(home / "pid")
    process.kill()
    finish(process)
    assert content(home / "out").items() >= old.items()
    (home / "go").touch()
    assert finish(start(home, *command))[0] == 0
    assert gone(kernel)
    assert content(home / "out").keys() == old.keys()
    assert not list((home / "tmp").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("command", [RUN, BOOK], ids=lambda command: command[0])
def test_the_pages_of_a_killed_run_are_built_no_further(home, command):
    pytest.importorskip("myst_nb")
    assert finish(start(home, *command, how="real"))[0] == 0
    old = content(home / "out")
    write(home, "print('new')")
    (home / "book" / "conf.py").write_text(CONF + WAITS.format(folder=str(home)))
    process = start(home, *command, how="real")
    sphinx = await_pid(home / "pid")
    process.kill()
    finish(process)
    assert gone(sphinx)
    pages = {name: text for name, text in old.items() if name.startswith(("one/", "html/"))}
    assert pages
    assert content(home / "out").items() >= pages.items()
    (home / "go").touch()
    assert finish(start(home, *command, how="real"))[0] == 0
    assert content(home / "out").keys() == old.keys()
    assert not list((home / "tmp").iterdir())


def test_a_second_run_into_a_folder_is_refused(home):
    write(home, WAITS.format(folder=str(home)))
    first = start(home, *RUN)
    await_pid(home / "pid")
    for command in (RUN, BOOK):
        told = finish(start(home, *command))
        assert told == (2, "", "another run is writing into out; wait for it, or name another folder\n")
    (home / "go").touch()
    assert finish(first) == (0, "out/one.ipynb\nout/one/index.html\n", "")
    assert sorted(path.name for path in (home / "out").iterdir()) == ["one", "one.ipynb"]
