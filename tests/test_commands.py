"""Every command and snippet that README, documents and book print does what it says.

Commands of the package run here, in this process and in an empty folder. `trnmodel run` is parsed and its parameters
are checked, but nothing is executed: tests/book/notebooks executes chapters. Targets of make, modules and extras must
exist.
"""

import ast
import importlib.util
import re
import shlex
import shutil
import tomllib

import pytest
from typer.testing import CliRunner

from trnbook import report
from trnbook.report import chapter
from trnmodel.cli import app as cli
from trnmodel.models.shipped import MODELS, catalog

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*(?:\n|\Z))+")
INLINE = re.compile(r"`((?:make|trnmodel|python\s-m|pip)\s[^`]+)`")
SHELLS = {"console", "bash", "sh"}
PICTURES = {"docs/architecture.md"}  # their indented blocks are drawings
LONG = {"book", "notebooks"}  # they execute all chapters


def documents(root):
    """Texts with Markdown by the name of their file; of a notebook, its cells, and what its index has computed."""
    names = [
        "README.md",
        "CONTRIBUTING.md",
        "data/README.md",
        *sorted(f"docs/{p.name}" for p in root.glob("docs/*.md")),
    ]
    names += sorted(f"book/{path.name}" for path in root.glob("book/*.md"))
    texts = {name: (root / name).read_text() for name in names}
    texts["notebooks/digest/index.txt"] = (root / "notebooks" / "digest" / "index.txt").read_text()
    for slug in chapter.notebooks():
        cells = [cell.source for cell in chapter.read(slug).cells if cell.cell_type == "markdown"]
        texts[f"notebooks/py/{slug}.py"] = "\n\n".join(cells)
    return texts


def commands(name, text):
    """Lines for a shell: of fenced and indented blocks, and those that stand in a sentence."""
    blocks = [body for kind, body in FENCE.findall(text) if kind in SHELLS]
    prose = FENCE.sub("", text)
    blocks += [] if name in PICTURES else INDENTED.findall(prose)
    lines = [line.strip().partition("  #")[0].rstrip() for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line], INLINE.findall(prose)


def snippets(text):
    return [body for kind, body in FENCE.findall(text) if kind in ("python", "py")]


@pytest.fixture
def here(root, tmp_path, monkeypatch):
    """An empty folder as the working folder, but for the data and the files that commands name; nothing is executed."""
    (tmp_path / "data").symlink_to(root / "data")
    (tmp_path / "path" / "to").mkdir(parents=True)
    shutil.copy(MODELS / catalog()["qwen3-30b-a3b"].file, tmp_path / "path" / "to" / "config.json")
    (tmp_path / "buyer.yaml").write_text(
        re.search(r"```yaml\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)[1]
    )
    for name in ("results.json", "runs.json"):
        shutil.copy(root / "data" / "evidence" / "example_vllm_bench.json", tmp_path / name)
    monkeypatch.setattr(report, "run", lambda *asked: [])
    monkeypatch.chdir(tmp_path)
    saved = "plan llama-3.1-8b --in 1024 --out 256 --speed 50 --systems trn2.48xlarge --save plan.json"
    CliRunner().invoke(cli.app, saved.split())
    return root


def judge(root, command, whole=True):
    """Fail where a command is wrong; one that stands in a sentence need not be `whole`."""
    words = shlex.split(command.removeprefix(".venv/bin/"))
    match words:
        case ["make", target, *assigned]:
            assert re.search(rf"^{re.escape(target)}:", (root / "Makefile").read_text(), re.MULTILINE), command
            assert all(re.fullmatch(r"[A-Z]+=\S+", word) for word in assigned), command
        case ["python", "-m", module]:
            found = importlib.util.find_spec(module) if module.startswith("trnmodel") else None
            assert found or any(
                list((root / home).glob(f"{module.replace('.', '/')}*")) for home in ("", "book", "data")
            ), command
        case ["pip", "install", wanted]:
            extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert set(re.findall(r"[\w-]+", wanted.partition("[")[2])) <= set(extras), command
        case ["trnmodel", verb, *rest]:
            asked = [verb, *rest] if whole and verb not in LONG else [verb, "--help"]
            done = CliRunner().invoke(cli.app, asked)
            assert done.exit_code == 0, f"{command}: {done.output}"
            assert done.stdout.strip() or verb == "run", command
        case _:
            raise AssertionError(f"nothing checks {command!r}")


def test_every_command_of_a_block_works(here):
    asked = {line for name, text in documents(here).items() for line in commands(name, text)[0]}
    assert len(asked) > 15
    for line in sorted(asked):
        judge(here, line)


def test_every_command_in_a_sentence_is_one(here):
    asked = {line for name, text in documents(here).items() for line in commands(name, text)[1]}
    assert len(asked) >= 5
    for line in sorted(asked):
        judge(here, line, whole=False)


def test_every_snippet_runs(here):
    found = {name: snippets(text) for name, text in documents(here).items()}
    assert found["README.md"]
    for name, bodies in found.items():
        scope = {}
        for body in bodies:
            exec(compile(ast.parse(body), name, "exec"), scope)


@pytest.mark.parametrize(
    "command",
    [
        "trnmodel plan llama-3.3-70b --sped 50 --in 4096 --out 512",
        "trnmodel plan llama-3.9-70b --speed 50 --in 4096 --out 512",
        "trnmodel roofline trainium3",
        ".venv/bin/trnmodel run serving -p tpp=8",
        "trnmodel run servng",
        "trnmodel lst",
        "make boook",
        "make test test",
        "maek book",
        "python -m trnmodel.evidence.jmps",
        "pip install 'trnmodel[bok]'",
    ],
)
def test_a_broken_command_fails(here, command):
    with pytest.raises(AssertionError, match=re.escape(command)):
        judge(here, command)


def test_all_of_a_text_is_found():
    text = """
Say `trnmodel plan` or `make book PYTHON=x`, not `makes`.

    make test   # everything
    trnmodel list

* an item

```console
$ trnmodel roofline trainium3 --intensity 100
```

```python
1 / 0
```
"""
    blocks, inline = commands("README.md", text)
    assert blocks == ["trnmodel roofline trainium3 --intensity 100", "make test", "trnmodel list"]
    assert inline == ["trnmodel plan", "make book PYTHON=x"]
    assert snippets(text) == ["1 / 0\n"]
    assert commands("docs/architecture.md", text)[0] == blocks[:1]


def test_no_line_of_the_readme_that_names_the_program_is_left_out(root):
    text = (root / "README.md").read_text()
    blocks, _ = commands("README.md", text)
    assert len(blocks) == len(re.findall(r"^ {4}(?:\.venv/bin/trnmodel|make) ", text, re.MULTILINE))
