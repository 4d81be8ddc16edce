"""Names are the field's: the words of a private vocabulary are few in every module."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = set((ROOT / "tests" / "private_words.txt").read_text().split())
PACKAGES = [ROOT / "trnmodel", ROOT / "book" / "trnbook"]
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
MOST = 0.01


def bound_names(tree):
    """Names of functions, classes, arguments, variables and import aliases."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def private(names):
    """Those names of which a part between underscores is a word of the list."""
    return [name for name in names if not WORDS.isdisjoint(name.lower().split("_"))]


def test_a_private_name_is_seen():
    names = bound_names(ast.parse("def told(given, *, x_kept):\n    WAYS = found = 1\n    _ask_worth: int = 2"))
    assert sorted(private(names)) == ["WAYS", "_ask_worth", "found", "given", "told", "x_kept"]
    assert not private(bound_names(ast.parse("def result(request, saved_bytes):\n    foundation = wordless = 1")))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_private_vocabulary_is_rare(path):
    names = list(bound_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert len(private(names)) <= MOST * len(names), private(names)
