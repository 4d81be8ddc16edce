"""Break the package in one place at a time, and see whether a test notices: `make mutants`.

A mutant is one number, operator, comparison or truth value changed in a room of the library or in the lab; which ones
is drawn by the commit. Tests that reach the changed function run first, from its fastest; then whole files that reach
it; last the chapters, each held to the bytes that are committed, which is told apart. Mutants that no test can kill
stand in `tests/equivalent.csv` with the reason: a row names the function, the change, and which of several such
changes it is.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = """units arguments quantities declared calls result formulas catalog bands fabric models steps kernels serving
    power reliability training cost search evidence""".split()
ELSEWHERE = ("browser", "notebooks", "test_killed.py", "test_report.py")  # of pages and processes
CHAPTERS = "tests/book/notebooks/test_chapters.py::test_a_run_ends_with_the_committed_notebook_and_digest"
CHAPTERS_S = 120.0
QUIETLY = ["-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
LARGE = "altair msgspec networkx pandas scipy.optimize scipy.sparse.csgraph tqdm.auto yaml".split()
SWAPS = {
    ast.Add: "+-",
    ast.Sub: "-+",
    ast.Mult: "*/",
    ast.Div: "/*",
    ast.BitAnd: "&|",
    ast.BitOr: "|&",
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.Not: ("not ", ""),
    ast.USub: ("-", ""),
    ast.Invert: ("~", ""),
}
SILENT = {"strict", "copy", "repr", "maxsize"}  # keywords that change no answer
MOST = 60  # tests of a function that run first, one for each of its parameters
SIZES = {"SHOWN", "FEW", "LONGEST_RANGE", "_REPR"}  # of messages


@dataclass(frozen=True)
class Mutant:
    """One change: bytes `start` to `end` of a file become `text`, inside a function or at import ("")."""

    file: str
    line: int
    function: str
    start: int
    end: int
    text: bytes
    source: bytes = field(repr=False)
    place: int = 0  # among the same changes of the function, from 1

    @property
    def applied(self) -> bytes:
        return self.source[: self.start] + self.text + self.source[self.end :]

    @property
    def lines(self) -> tuple[str, str]:
        """The line before and after."""
        return tuple(text.decode().splitlines()[self.line - 1].strip() for text in (self.source, self.applied))

    @property
    def change(self) -> tuple[str, str, str, str]:
        """The file, the function, and which text becomes which."""
        return self.file, self.function.strip("."), self.source[self.start : self.end].decode(), self.text.decode()


def _quiet(node: ast.AST) -> bool:
    """What is said and not computed: annotations aside, messages, checks, names, sizes of caches."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return True
    if isinstance(node, ast.Assign):
        return any({n.id for n in ast.walk(target) if isinstance(n, ast.Name)} & SIZES for target in node.targets)
    if isinstance(node, ast.keyword) and node.arg in SILENT:
        return True
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return called == "refuse"


def computed(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Every node that computes, with the name of the function that it stands in."""
    yield node, function
    inside = f"{function}.{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
    for part, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            said = part in ("annotation", "returns", "decorator_list")
            if isinstance(child, ast.AST) and not said and not _quiet(child):
                yield from computed(child, inside)


def _replaced(constant: object) -> str | None:
    if isinstance(constant, bool):
        return str(not constant)
    if isinstance(constant, int):
        return str(constant + 1)
    return repr(constant * 1.25 if constant else 1.0) if isinstance(constant, float) else None


class Source:
    """A file, whose nodes are bytes from one place to another."""

    def __init__(self, file: str) -> None:
        self.file, self.text = file, (ROOT / file).read_bytes()
        self.starts = [0, *(place + 1 for place, byte in enumerate(self.text) if byte == ord("\n"))]

    def at(self, node: ast.AST) -> tuple[int, int]:
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def swapped(self, function: str, start: int, end: int, op: ast.AST) -> Iterator[Mutant]:
        old, new = SWAPS.get(type(op), ("", ""))
        place = self.text.find(old.encode(), start, end) if old else -1
        if place >= 0:
            line = self.text.count(b"\n", 0, place) + 1
            yield Mutant(self.file, line, function, place, place + len(old), new.encode(), self.text)

    def mutants(self) -> Iterator[Mutant]:
        """Every change of the file, counted among the same changes of its function."""
        seen: Counter[tuple[str, str, str, str]] = Counter()
        for mutant in self._changes():
            seen[mutant.change] += 1
            yield replace(mutant, place=seen[mutant.change])

    def _changes(self) -> Iterator[Mutant]:
        for node, function in computed(ast.parse(self.text)):
            if isinstance(node, ast.Constant) and (text := _replaced(node.value)):
                yield Mutant(self.file, node.lineno, function, *self.at(node), text.encode(), self.text)
            elif isinstance(node, ast.UnaryOp):
                yield from self.swapped(function, self.at(node)[0], self.at(node.operand)[0], node.op)
            for left, op, right in _operations(node):
                yield from self.swapped(function, self.at(left)[1], self.at(right)[0], op)


def _operations(node: ast.AST) -> list[tuple[ast.AST, ast.AST, ast.AST]]:
    """Left, operator and right of what joins two."""
    if isinstance(node, ast.BinOp):
        return [(node.left, node.op, node.right)]
    if isinstance(node, ast.BoolOp):
        return [(left, node.op, right) for left, right in pairwise(node.values)]
    if isinstance(node, ast.Compare):
        return list(zip([node.left, *node.comparators], node.ops, node.comparators, strict=False))
    return []


def package() -> list[str]:
    """Return the files that are broken: the rooms of the library, and the lab."""
    paths = [path.relative_to(ROOT) for path in sorted((ROOT / "trnmodel").rglob("*.py"))]
    lab = [path.relative_to(ROOT) for path in sorted((ROOT / "data" / "trnlab").rglob("*.py"))]
    return [str(path) for path in [*(path for path in paths if path.with_suffix("").parts[1] in ROOMS), *lab]]


def reach(file: str) -> dict[str, dict]:
    """Run one test file: seconds of each test, and the functions that each reaches."""
    import coverage

    cover = coverage.Coverage(
        data_file=None, include=[str(ROOT / "trnmodel/*"), str(ROOT / "data/trnlab/*")], messages=False
    )
    seconds: dict[str, float] = defaultdict(float)

    class Contexts:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            cover.switch_context(nodeid)

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            seconds[report.nodeid] += report.duration

    cover.start()
    pytest.main([*QUIETLY, file], plugins=[Contexts()])
    cover.stop()
    found: dict[str, dict[str, set]] = defaultdict(lambda: defaultdict(set))
    for name in package():
        lines = cover.get_data().contexts_by_lineno(str(ROOT / name))
        for node, outer in computed(ast.parse((ROOT / name).read_bytes())):
            if isinstance(node, ast.FunctionDef):
                body = range(node.body[0].lineno, node.end_lineno + 1)
                found[name][f"{outer}.{node.name}"] |= {test for line in body for test in lines.get(line, ()) if test}
    reached = {name: {k: sorted(v) for k, v in functions.items() if v} for name, functions in found.items()}
    return {"seconds": dict(seconds), "reached": reached}


def reach_map(path: Path) -> dict[str, dict]:
    """What each test file reaches, from `path` where it was written before."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    tests = [p.relative_to(ROOT) for p in sorted((ROOT / "tests").rglob("test_*.py"))]
    for file in [*package(), *(str(p) for p in tests if not {*p.parts} & {*ELSEWHERE})]:
        digest = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
        if known.get(file, {}).get("digest") != digest:
            print("reaching", file, flush=True)
            call = [sys.executable, __file__, "--reach", file, "--map", str(path.with_suffix(".part"))]
            subprocess.run(call, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            known[file] = json.loads(path.with_suffix(".part").read_text()) | {"digest": digest}
            path.write_text(json.dumps(known))
    return known


def stages(mutant: Mutant, known: dict[str, dict], patience_s: float) -> Iterator[list[str]]:
    """Tests in the order in which they run: of the function, files that reach it or its module, chapters."""
    seconds = {test: s for of in known.values() for test, s in of["seconds"].items()}
    cost = {file: sum(of["seconds"].values()) for file, of in known.items()}
    hits = {f: of["reached"].get(mutant.file, {}) for f, of in known.items()}
    tests = {test for functions in hits.values() for test in functions.get(mutant.function, ())}
    files = [f for f, functions in hits.items() if mutant.function in functions]
    files = files or [f for f in hits if hits[f]] or [*hits]
    own = [f for f in known if f == mutant.file and known[f]["seconds"]]
    first = {test.partition("[")[0]: test for test in sorted(tests, key=seconds.__getitem__, reverse=True)}
    yield own + sorted((t for t in first.values() if not t.startswith(mutant.file)), key=seconds.__getitem__)[:MOST]
    ranked = sorted((file for file in files if cost[file] and file not in own), key=cost.__getitem__)
    spent = accumulate(map(cost.__getitem__, ranked))
    yield [file for file, total in zip(ranked, spent, strict=True) if total <= patience_s]
    yield [CHAPTERS]


class Tree:
    """A copy of the repository in which one mutant lives at a time."""

    def __init__(self, folder: Path) -> None:
        ignored = shutil.ignore_patterns(".git", ".venv", "build", ".*_cache", ".hypothesis", "__pycache__")
        self.root = Path(shutil.copytree(ROOT, folder, ignore=ignored))
        self.clock = int(time.time())
        self.sound: dict[str, bool] = {}  # whether a test passes where nothing is broken

    def write(self, file: str, text: bytes) -> None:
        (self.root / file).write_bytes(text)
        self.clock += 1
        os.utime(self.root / file, (self.clock, self.clock))  # bytecode is told apart by seconds

    def failed(self, tests: list[str], limit_s: float) -> str:
        """The first test that fails, or "". Runs in a fork, which has the large packages imported already."""
        broken = [f"--deselect={test}" for test, passes in self.sound.items() if not passes]
        log = self.root / "build.log"
        if not (child := os.fork()):
            os.chdir(self.root)
            roots = [str(self.root / folder) for folder in (".", "book", "data")]
            sys.path[:0] = roots
            os.environ |= {
                "PYTHONPATH": os.pathsep.join(roots),
                "PYTHONWARNINGS": "ignore::SyntaxWarning",
                "COLUMNS": "999",
            }
            with log.open("wb") as stream:
                os.dup2(stream.fileno(), 1), os.dup2(stream.fileno(), 2)
            os._exit(pytest.main([*QUIETLY, "-x", *tests, *broken]))
        ends = time.monotonic() + limit_s
        while not (done := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "time"
            time.sleep(0.1)
        told = log.read_text(errors="replace")
        if os.waitstatus_to_exitcode(done[1]) in (0, 4, 5) and "while loading conftest" not in told:
            return ""  # passed, or found none
        lines = told.splitlines()
        failed = [line.partition(" ")[2].partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
        return (failed or ["collection"])[0]

    def judge(self, mutant: Mutant, known: dict[str, dict], patience_s: float) -> str:
        """The test that kills a mutant and passes without it, or "" where it survives."""
        for tests in filter(None, stages(mutant, known, patience_s)):
            alone_s = CHAPTERS_S if tests == [CHAPTERS] else 1.0
            limit_s = 120 + 5 * sum(sum(known[t]["seconds"].values()) if t in known else alone_s for t in tests)
            killer = "?"
            while killer:
                self.write(mutant.file, mutant.applied)
                killer = self.failed(tests, limit_s)
                self.write(mutant.file, mutant.source)
                if "::" not in killer or self.sound.get(killer):
                    break
                self.sound[killer] = not self.failed([killer], limit_s)
                if self.sound[killer]:
                    break
            if killer:
                return killer
        return ""


def drawn(seed: str, count: int) -> list[Mutant]:
    every = [mutant for file in package() for mutant in Source(file).mutants()]
    return random.Random(int(seed, 16)).sample(every, count)


def verdicts(
    mutants: list[Mutant], known: dict[str, dict], workers: int, patience_s: float
) -> Iterator[tuple[Mutant, str]]:
    """What becomes of each mutant, in trees that are copies of this one."""
    with (ROOT / "tests" / "equivalent.csv").open(newline="") as stream:
        excused = {tuple(row.values())[:-1] for row in csv.DictReader(stream)}  # all but the reason
    trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()

    def one(mutant: Mutant) -> tuple[Mutant, str]:
        if (*mutant.change, str(mutant.place)) in excused:
            return mutant, "equivalent"
        tree = trees.get()
        killer = tree.judge(mutant, known, patience_s)
        trees.put(tree)
        return mutant, f"killed by {killer}" if killer else "SURVIVED"

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        for number in range(workers):
            trees.put(Tree(Path(folder) / str(number)))
        yield from pool.map(one, mutants)


def main() -> None:
    """Draw, judge, print."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=head[:8] or "0", help="hex; by default of the commit")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--start", type=int, default=0, help="mutants of the draw to pass over")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--patience", type=float, default=300.0, help="seconds of whole test files for a mutant")
    parser.add_argument("--map", type=Path, default=ROOT / "build" / "mutants.json")
    parser.add_argument("--reach", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.map.parent.mkdir(exist_ok=True)
    if asked.reach:
        asked.map.write_text(json.dumps(reach(asked.reach)))
        return
    counts: dict[str, int] = defaultdict(int)
    for name in LARGE:
        importlib.import_module(name)
    picked, known = drawn(asked.seed, asked.count), reach_map(asked.map)
    for mutant, verdict in verdicts(picked[asked.start :], known, asked.workers, asked.patience):
        counts[verdict.partition(" ")[0] + " by a chapter alone" * (CHAPTERS.partition("::")[0] in verdict)] += 1
        before, after = mutant.lines
        print(f"{mutant.file}:{mutant.line} {verdict[:100]}\n    - {before}\n    + {after}", flush=True)
    judged = sum(counts.values()) - counts["equivalent"]
    print(f"seed {asked.seed}: {dict(counts)}, {1 - counts['SURVIVED'] / judged:.1%} of {judged} killed")


if __name__ == "__main__":
    main()
