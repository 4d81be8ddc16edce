"""What the documents say of the tree is so."""

import re
import tomllib


def named(text, pattern):
    return set(re.findall(pattern, text))


def test_every_data_file_has_a_line_in_the_readme(root):
    table = named((root / "data" / "README.md").read_text(), r"`([\w./*-]+\.(?:csv|yaml|json))`")
    files = {path.relative_to(root / "data").as_posix() for path in (root / "data").rglob("*") if path.is_file()}
    files = {name for name in files if name != "README.md" and not name.startswith("trnlab/")}
    known = {path.relative_to(root / "data").as_posix() for name in table for path in (root / "data").glob(name)}
    assert files == known
    assert all(any((root / "data").glob(name)) for name in table)


def test_every_file_that_the_architecture_names_is_there(root):
    text = (root / "docs" / "architecture.md").read_text()
    files = named(text, r"`((?:trnmodel|tests|data|docs)/[\w./*-]+\.\w+)`")
    assert len(files) > 25
    assert not [name for name in files if not any(root.glob(name))]


def test_every_room_has_a_sentence(root):
    rooms = {path.parent.name for path in (root / "trnmodel").glob("*/__init__.py")}
    assert rooms == named((root / "docs" / "architecture.md").read_text(), r"(?m)^- \*\*(\w+)\*\*: ")


def test_the_readme_names_the_oldest_python_that_is_allowed(root):
    readme, project = (root / "README.md").read_text(), tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')}" in readme


def test_nothing_is_promised_that_is_not_there(root):
    """No question of power and money before something public answers it."""
    told = "\n".join((root / name).read_text() for name in ("README.md", "trnmodel/cli/app.py", "trnmodel/__init__.py"))
    for word, names in {"power": ("energy", "power"), "money": ("token_cost",), "cost": ("token_cost",)}.items():
        there = any(
            (root / "trnmodel" / room / f"{name}.py").is_file() for room in ("search", "formulas") for name in names
        )
        assert there or not re.search(rf"\b{word}\b", told), word
