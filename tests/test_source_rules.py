"""What the source may not do: catch everything, or wrap a function only to give its errors another name."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [ROOT / "trnmodel", ROOT / "book" / "trnbook", ROOT / "data" / "trnlab"]
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
TOO_WIDE = {"Exception", "BaseException"}


def caught(handler):
    """Names of the exceptions that a handler catches; "everything" for a bare one."""
    if handler.type is None:
        return {"everything"}
    return {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}


def catch_alls(tree):
    """Lines that catch whatever is raised."""
    wide = TOO_WIDE | {"everything"}
    yield from (n.lineno for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler) and caught(n) & wide)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "suppress":
            yield from (node.lineno for arg in node.args if getattr(arg, "id", "") in TOO_WIDE)


def raises_again(handler):
    """Whether all that a handler does is to raise, be it the same error or another."""
    return all(isinstance(statement, ast.Raise) for statement in handler.body)


def translators(tree):
    """Functions whose body is nothing but a `try` around a call of what they were given, with errors raised anew."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        given = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
        for inner in [node, *(n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n is not node)]:
            body = inner.body[1:] if ast.get_docstring(inner) else inner.body
            only_try = len(body) == 1 and isinstance(body[0], ast.Try) and all(map(raises_again, body[0].handlers))
            if only_try and any(
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in given
                for statement in body[0].body
                for call in ast.walk(statement)
            ):
                yield inner.lineno


def managers(tree):
    """Context managers that give errors another name: a `try` around a lone `yield`, with errors raised anew."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and node.handlers and all(map(raises_again, node.handlers)):
            yields = [n for statement in node.body for n in ast.walk(statement) if isinstance(n, ast.Yield)]
            yield from (node.lineno for _ in yields[:1])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_catches_everything_or_translates_errors(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert list(catch_alls(tree)) == []
    assert [*translators(tree), *managers(tree)] == []


WRONG = {
    "bare": "try:\n    f()\nexcept:\n    pass",
    "wide": "try:\n    f()\nexcept (ValueError, Exception):\n    pass",
    "suppressed": "with contextlib.suppress(BaseException):\n    f()",
    "decorator": """
def named(function):
    def run(*args):
        try:
            return function(*args)
        except TypeError as error:
            raise ValueError("x") from error
    return run
""",
    "manager": """
@contextmanager
def named():
    try:
        yield
    except TypeError:
        raise ValueError("x") from None
""",
}


@pytest.mark.parametrize("source", WRONG.values(), ids=WRONG)
def test_the_rules_see_what_they_forbid(source):
    tree = ast.parse(source)
    assert [*catch_alls(tree), *translators(tree), *managers(tree)]


def test_the_rules_allow_a_narrow_boundary():
    tree = ast.parse(
        "def f(path):\n    try:\n        return parse(path)\n    except OSError:\n        raise ValueError('x')"
    )
    assert [*catch_alls(tree), *translators(tree), *managers(tree)] == []
