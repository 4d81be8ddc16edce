"""Every parameter of every chapter is checked in full before a kernel starts: a hostile value ends in one line."""

import pytest
from typer.testing import CliRunner

from trnbook import report
from trnbook.report import kernels
from trnmodel.cli.app import app

HOSTILE = {
    "str": ["nope", "\x1b[2Jno\npe", "../../etc/passwd"],
    "int": ["-1", "1e300", "two"],
    "float": ["-1", "nan", "1e300"],
    "list[str]": ["[nope]", "nope,\x1b[2J"],
    "list[float]": ["[-1.0]", "nan", "two"],
    "list[int]": ["[-1]", "1.5", "two"],
}
CASES = [
    (slug, name, value)
    for slug in report.notebooks()
    for name, declared in report.parameters(slug).items()
    for value in HOSTILE[declared.type_name]
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs a chapter with one parameter in an empty folder; the start of a kernel fails the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "run_all", lambda *_: pytest.fail("a kernel has started"))

    def run(slug, name, value):
        result = CliRunner().invoke(app, ["run", slug, "-p", f"{name}={value}"])
        return result.exit_code, result.stdout, result.stderr, list(tmp_path.iterdir())

    return run


@pytest.mark.parametrize(("chapter", "name", "value"), CASES)
def test_a_hostile_value_is_refused_before_a_kernel_starts(run, chapter, name, value):
    status, out, error, files = run(chapter, name, value)
    assert (status, out, files) == (2, "", [])
    assert error.count("\n") == 1
    assert error.strip().isprintable()
    assert len(error) < 640


@pytest.mark.parametrize(
    ("chapter", "name", "value", "why", "expected"),
    [
        ("rack", "compared_system", "nope", "compared_system", 2),
        ("software", "rivals", "[hgx-h100, nope]", "rivals", 2),
        ("cost", "systems", "hgx-h100,nope", "systems", 2),
        ("decode-step", "tp", "0", "tp = 0", 2),
        ("decode-step", "tp", "3", "tp = 3", 3),  # a degree that other models run on
        ("cost", "region", "mars", "region", 2),
        ("cost", "prices", "rent[trn9]=3", "trn9", 2),
        ("beside-gpus", "system", "mi210-4", "mi210-4' has no NeuronCore", 2),
    ],
)
def test_the_refused_parameter_is_named(run, chapter, name, value, why, expected):
    status, _, error, files = run(chapter, name, value)
    assert (status, files) == (expected, [])
    assert why in error
