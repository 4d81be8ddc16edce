"""A chapter in the terminal tells a bad parameter from one that nothing satisfies."""

import pytest
from typer.testing import CliRunner

from trnbook.chapters import guard
from trnmodel.cli.app import app


def call(*args):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


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


def test_the_shell_completes_chapters():
    env = {"_TRNMODEL_COMPLETE": "complete_bash", "COMP_WORDS": "trnmodel run chip-r", "COMP_CWORD": "2"}
    assert CliRunner().invoke(app, [], prog_name="trnmodel", env=env).stdout.split() == ["chip-roofline"]
