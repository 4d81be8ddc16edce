"""A model of the user's own: what it is called, what the start command loads, and how an unknown one is declared."""

import json
import re
import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.cli.app import app
from trnmodel.cli.terminal import flag
from trnmodel.models.shipped import MODELS

CONFIG = json.loads((MODELS / "llama-3.1-8b.json").read_text())


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A function that writes a configuration below the folder that we are in."""
    monkeypatch.chdir(tmp_path)

    def write(place, **keys):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(CONFIG | keys))
        return place

    return write


@pytest.mark.parametrize(
    ("place", "name", "expected"),
    [
        ("w/config.json", "our-org/our-llama", "our-llama"),
        ("w/config.json", "/data/checkpoints/step-500/", "step-500"),
        ("w/config.json", "C:\\models\\ours", "ours"),
        ("w/config.json", "", "w"),
        ("w/config.json", ".", "w"),
        ("w/config.json", None, "w"),
        ("w/config.json", ["a"], "w"),
        ("w/ours.json", "", "ours"),
        ("w/config.json", "x; rm -rf <b>\x1b[2J", "x--rm--rf--b---2J"),
        ("w/config.json", "y" * 5000, "y" * 60),
    ],
)
def test_a_model_is_called_as_its_configuration_or_its_file(own, place, name, expected):
    assert tm.model(own(place, _name_or_path=name)).id == expected


def test_a_configuration_that_names_a_shipped_model_does_not_become_it(own):
    m = tm.model(own("w/config.json", _name_or_path="meta-llama/llama-3.1-70b"))
    assert (m.id, m.total_params) == ("llama-3.1-70b", tm.model("llama-3.1-8b").total_params)
    assert loaded(m) == "w"


def loaded(model):
    """What the server of a plan loads, as a shell reads the command."""
    plan = tm.plan(
        model, tm.Request(1000, 100, tokens_per_s_per_user=20.0), ["trn2.48xlarge"], efficiencies="vllm-neuron-2026"
    )
    words = shlex.split(plan.command)
    return words[words.index("serve") + 1]


@pytest.mark.parametrize(
    ("place", "asked", "expected"),
    [
        ("w/config.json", "w", "w"),
        ("w/config.json", "w/config.json", "w"),
        ("config.json", "config.json", "."),
        ("a b'; ls $HOME/config.json", "a b'; ls $HOME", "a b'; ls $HOME"),
        ("-rf/config.json", "-rf/config.json", "./-rf"),
    ],
)
def test_the_start_command_loads_the_folder_that_was_given(own, place, asked, expected):
    own(place, _name_or_path="our-org/our-llama")
    assert loaded(tm.model(asked)) == expected


def test_no_control_character_of_a_path_reaches_the_command(own):
    own("a\x1b[2Jb\n/config.json", _name_or_path="ours")
    assert loaded(tm.model("a\x1b[2Jb\n")) == "ours"


def test_a_shipped_model_is_loaded_by_its_published_name():
    assert loaded("llama-3.1-8b") == "meta-llama/Llama-3.1-8B"


def ask(*words):
    return CliRunner().invoke(app, ["plan", *words, "--speed", "20", "--in", "1000", "--out", "100"])


def test_a_name_of_ones_own_is_in_the_answer_and_the_path_in_the_command(own):
    answer = ask(own("w/config.json"), "--systems", "trn2.48xlarge", "--name", "ours-8b")
    assert answer.exit_code == 0
    assert "ours-8b" in answer.stdout
    assert "vllm serve w --" in answer.stdout
    assert tm.model("w", name="ours-8b").id == "ours-8b"


QUESTIONS = {
    "plan": ["--speed", "20", "--in", "1k", "--out", "100", "--systems", "trn2.48xlarge"],
    "decode": ["trn2.48xlarge", "--tp", "8"],
    "prefill": ["trn2.48xlarge", "--in", "1k", "--tp", "8"],
    "fit": ["trn2.48xlarge", "--tp", "8"],
    "power": ["hgx-h100", "--tp", "8"],
    "goodput": ["trn2.48xlarge"],
    "train": ["--systems", "hgx-h100", "--tokens", "1T", "--chips", "8"],
    "cost": ["trn2.48xlarge", "--speed", "20", "--in", "1k", "--out", "100"],
    "support": ["trn2.48xlarge"],
    "compare": ["trn2.48xlarge", "trn1.32xlarge", "--speed", "20", "--in", "1k", "--out", "100"],
}


def test_every_command_that_takes_a_model_takes_its_name():
    flags = {name: {flag(one) for one in command.params} for name, command in get_command(app).commands.items()}
    assert {name for name, known in flags.items() if "MODEL" in known} == set(QUESTIONS)
    assert {name for name, known in flags.items() if "--name" in known} == {*QUESTIONS, "validate"}  # by its --model


@pytest.mark.parametrize("command", QUESTIONS)
def test_a_name_of_ones_own_changes_nothing_but_the_name(own, command):
    place = own("w/config.json")

    def answer(*words):
        return CliRunner().invoke(app, [command, *words, *QUESTIONS[command]])

    def rows(*words):
        answered = answer(*words, "--json")
        assert answered.exit_code == 0
        found = json.loads(answered.stdout)
        return found if isinstance(found, list) else [found]

    named, unnamed = rows(place, "--name", "ours-8b"), rows(place)
    assert named == [row | ({"model": "ours-8b"} if row.get("model") == "w" else {}) for row in unnamed]
    assert (named == unnamed) == (command in ("fit", "compare"))  # whose tables name no model
    for model, name in ((place, "a b"), ("llama-3.1-8b", "ours-8b")):
        refused = answer(model, "--name", name)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"--name={name!r}: ")


@pytest.mark.parametrize("name", ["", "a b", "x" * 61, "<b>", "\x1b[2J", ".."])
def test_a_name_that_is_no_name_is_refused(own, name):
    answer = ask(own("w/config.json"), "--name", name)
    assert answer.exit_code == 2
    assert answer.stderr.count("\n") == 1


def test_a_shipped_model_keeps_its_name():
    with pytest.raises(ValueError, match="keeps its name"):
        tm.model("llama-3.1-8b", name="ours")


@pytest.mark.parametrize("model_type", ["lama", "llama5", "qwen3_moes"])
def test_the_error_of_an_unknown_architecture_says_how_to_declare_the_nearest(own, model_type):
    """Doing what it says ends in a model, or in the name of a key that the nearest architecture needs."""
    path = own("w/config.json", model_type=model_type, architectures=["NobodysForCausalLM"])
    with pytest.raises(ValueError, match="not an architecture") as raised:
        tm.model(path)
    declared = json.loads(f"{{{re.search(r'copy of the file: (.*)$', str(raised.value))[1]}}}")
    assert set(declared) == {"model_type", "architectures"}
    if "llama" in declared["model_type"]:
        assert tm.model(own("w/config.json", **declared)).total_params == tm.model("llama-3.1-8b").total_params
    else:
        with pytest.raises(ValueError, match="missing"):
            tm.model(own("w/config.json", **declared))
