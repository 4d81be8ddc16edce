"""Scripts that measure a saved plan: flags, quoting, the runs that they ask, and the folder that holds them."""

import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.cli.app import app
from trnmodel.files import measure as module
from trnmodel.search.points import NARROWED, points

QUESTION = {
    "model": "qwen3-30b-a3b",
    "request": {"input_tokens": 4096, "output_tokens": 512, "tokens_per_s_per_user": 30, "prefix_share": 0.25},
    "systems": ["trn2.48xlarge"],
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def call(*args):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def saved(folder, **changes):
    """The path of a saved plan."""
    path = folder / "plan.json"
    tm.save_plan(QUESTION | changes, path)
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("measure")
    return tm.measure(saved(place), place / "scripts"), place / "scripts"


def benches(path):
    """The flags of each call of `vllm bench serve` in a script, with what is behind `--metadata` as a mapping."""
    calls = []
    for line in path.read_text().splitlines():
        if not line.startswith("vllm bench serve"):
            continue
        flags, name = {}, ""
        for word in shlex.split(line)[3:]:
            if word.startswith("--"):
                name = word[2:]
                flags[name] = []
            else:
                flags[name].append(word)
        flags["metadata"] = dict(item.split("=", 1) for item in flags["metadata"])
        calls.append(
            {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in flags.items()}
        )
    return calls


def test_the_own_point_is_that_of_the_plan(written):
    result, folder = written
    plan = tm.scenario(QUESTION).plan()
    c = plan.best
    (own, *_) = benches(folder / "bench.sh")
    assert own["model"] == "Qwen/Qwen3-30B-A3B"
    assert float(own["request-rate"]) == pytest.approx(c.requests_per_s_per_replica, rel=1e-5)
    assert int(own["max-concurrency"]) == c.batch
    assert [int(own[f"random-{name}-len"]) for name in ("prefix", "input", "output")] == [1024, 3072, 512]
    assert own["metadata"] | {"release": ""} == {
        "system": "trn2.48xlarge",
        "chips": f"{c.chips:g}",
        "tp": f"{c.tp:g}",
        "ep": f"{c.ep:g}",
        "pp": "1",
        "lnc": str(c.lnc),
        "precision": c.precision,
        "max_num_seqs": f"{c.batch:g}",
        "engine": "vllm-neuron",
        "release": "",
    }
    assert own["metadata"]["release"] == "$RELEASE"
    assert own["save-result"] == []
    assert own["ignore-eos"] == []
    server = (folder / "server.sh").read_text().splitlines()[-1]
    assert server == plan.command
    assert result.runs[0].point.duration_s == pytest.approx(
        int(own["num-prompts"]) / float(own["request-rate"]), rel=1e-4
    )


def test_a_run_at_another_batch_has_a_server_of_its_own_where_graphs_are_compiled(written):
    result, folder = written
    others = {run.server for run in result.runs} - {"server.sh"}
    assert others
    for run in result.runs:
        slots = re.search(r"--max-num-seqs (\d+)", (folder / run.server).read_text())[1]
        assert int(slots) * tm.scenario(QUESTION).plan().best.ep == run.point.batch


def test_on_a_gpu_one_server_answers_all_runs(tmp_path):
    result = tm.measure(saved(tmp_path, model="llama-3.3-70b", systems=["hgx-h200"]), tmp_path / "scripts")
    assert {run.server for run in result.runs} == {"server.sh"}
    calls = benches(tmp_path / "scripts" / "bench.sh")
    assert len({one["result-filename"] for one in calls}) == len(calls) == len(result.runs)
    assert len({one["metadata"]["max_num_seqs"] for one in calls}) == 1
    text = (tmp_path / "scripts" / "collective.sh").read_text()
    assert "all_reduce_perf -b " in text
    assert not (tmp_path / "scripts" / "power.sh").exists()


def test_scripts_are_shell_and_their_sizes_powers(written):
    result, folder = written
    for path in folder.glob("*.sh"):
        subprocess.run(["bash", "-n", path], check=True)
        assert os.access(path, os.X_OK)
    line = (folder / "collective.sh").read_text().splitlines()[-1]
    words = shlex.split(line)
    flags = dict(pairwise(words))
    low, high = int(flags["-b"]), int(flags["-e"])
    assert np.log2(low) % 1 == np.log2(high) % 1 == 0
    assert low < high
    assert flags["--report-to-json-file"].startswith("results/")
    assert flags["-r"] == f"{tm.scenario(QUESTION).plan().best.ep:g}"
    monitor = json.loads((folder / "monitor.json").read_text())
    assert {"period", "neuron_runtimes", "system_metrics"} == monitor.keys()
    assert set(result.files) | {"measure.json"} == {path.name for path in folder.iterdir()}


def test_the_text_says_why_each_run_is_there_and_what_it_costs(written):
    result, folder = written
    text = " ".join((folder / "README.txt").read_text().split())
    for run in result.runs:
        assert run.name in text
        assert run.script in text
    assert "instance-hours" in text
    assert "trnmodel validate results/*.json" in text
    assert result.usd == pytest.approx(result.instance_h * tm.rent("trn2.48xlarge").usd_per_chip_h * 16)
    assert max(map(len, (folder / "README.txt").read_text().splitlines())) <= 100


def test_further_points_narrow_the_constants_in_their_order():
    c = tm.plan("llama-3.1-8b", tm.Request(2048, 256, tokens_per_s_per_user=20), "hgx-h100").best
    own, *others = points(c)
    assert (own.batch, own.input_tokens) == (c.batch, 2048)
    assert others
    for point in others:
        assert (point.batch, point.input_tokens) != (own.batch, own.input_tokens)
        assert point.narrowed
        shares = [after / before for _, before, after in point.tells]
        assert shares == sorted(shares)
        assert all(0 < share <= 1 + 1e-12 for share in shares)
        assert shares[0] <= NARROWED


def test_a_constant_of_one_part_is_known_as_one_reading_tells_it():
    """With one constant the standard deviation after n readings of effect J is 1 / sqrt(1 + n (J / s)^2)."""
    e = tm.efficiencies("h100").moved({})
    alone = {name: ends for name, ends in e.ranges.items() if name == "weight_stream_share"}
    plan = tm.plan("llama-3.1-8b", tm.Request(2048, 256), "hgx-h100", efficiencies=replace(e, ranges=alone, id="mine"))
    (name, before, after), *_ = points(plan.best)[0].tells
    c = plan.best
    times = [
        float(
            c.question._replace(option=replace(c.option, efficiencies=c.stack.moved({name: end})))
            .decode(c.degrees, np.asarray(c.batch))
            .time_s
        )
        for end in alone[name]
    ]
    effect = np.log(times[0] / times[1]) / 2 / 1.6448536 / (0.03007 / 0.6744898)
    assert (name, before) == ("weight_stream_share", 1.0)
    assert after == pytest.approx(1 / np.sqrt(1 + effect**2), rel=0.02)


def test_hostile_names_are_words_of_a_shell(tmp_path):
    place = tmp_path / "a b;$(touch owned)'\"`"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    path = saved(tmp_path, model=str(place), name="mine", systems=["trn2.3xlarge"])
    result = tm.measure(path, tmp_path / "scripts")
    for script in (tmp_path / "scripts").glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)
    (own, *_) = benches(tmp_path / "scripts" / "bench.sh")
    assert own["model"] == str(place)
    server = (tmp_path / "scripts" / "server.sh").read_text().splitlines()[-1]
    assert str(place) in shlex.split(server)
    stub = tmp_path / "bin"
    stub.mkdir()
    (stub / "vllm").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$OUT"\n')
    (stub / "vllm").chmod(0o755)
    ran = {"PATH": f"{stub}:{os.environ['PATH']}", "OUT": str(tmp_path / "said"), "RELEASE": "1; $(touch owned)"}
    subprocess.run(["bash", tmp_path / "scripts" / "bench.sh"], check=True, cwd=tmp_path, env=ran)
    said = (tmp_path / "said").read_text().splitlines()
    assert str(place) in said
    assert "release=1; $(touch owned)" in said
    assert not list(tmp_path.rglob("owned"))
    assert result.runs[0].name == "own-point"


def test_a_folder_is_written_anew_and_results_in_it_stay(tmp_path):
    path, folder = saved(tmp_path), tmp_path / "scripts"
    first = tm.measure(path, folder)
    (folder / "results").mkdir()
    (folder / "results" / "own-point.json").write_text("{}")
    assert any(run.server != "server.sh" for run in first.runs)
    second = tm.measure(saved(tmp_path, model="llama-3.3-70b", systems=["hgx-h200"]), folder)
    assert {path.name for path in folder.iterdir()} == {*second.files, "measure.json", "results"}
    assert (folder / "results" / "own-point.json").read_text() == "{}"


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path):
    path = saved(tmp_path)
    for name, text, why in (
        ("other", None, "it holds other files"),
        ("edited", '{"kind": "mine"}', "was not written by trnmodel measure"),
        ("broken", "{", "not a JSON text"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / ("measure.json" if text else "mine.txt")).write_text(text or "mine")
        before = sorted(folder.iterdir())
        with pytest.raises(ValueError, match=re.escape(f"folder={folder}") + f".*{why}"):
            tm.measure(path, folder)
        assert sorted(folder.iterdir()) == before
    with pytest.raises(ValueError, match="this is a file"):
        tm.measure(path, path)


def test_a_mark_that_was_edited_removes_nothing_outside(tmp_path):
    path, folder = saved(tmp_path), tmp_path / "scripts"
    tm.measure(path, folder)
    (tmp_path / "mine.txt").write_text("mine")
    mark = json.loads((folder / "measure.json").read_text())
    mark["files"] = ["../mine.txt", "/etc/hosts", 3, "results", "old.sh"]
    (folder / "measure.json").write_text(json.dumps(mark))
    (folder / "old.sh").write_text("")
    tm.measure(path, folder)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (folder / "old.sh").exists()


def test_nothing_is_left_of_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    path, folder = saved(tmp_path), tmp_path / "new" / "scripts"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        tm.measure(path, folder)
    assert not (tmp_path / "new").exists()


def test_the_command_writes_the_folder_and_ends_by_cause(tmp_path):
    path = saved(tmp_path)
    status, out, error = call("measure", path, "-o", tmp_path / "scripts")
    assert (status, error) == (0, "")
    assert out.splitlines()[0].startswith(f"{tmp_path / 'scripts'}: ")
    status, out, _ = call("measure", path, "-o", tmp_path / "scripts", "--json")
    assert json.loads(out)[0]["run"] == "own-point"
    status, out, error = call("measure", path, "-o", path)
    assert (status, out) == (2, "")
    assert error.startswith(f"--folder={path}: this is a file")
    assert call("measure", tmp_path / "none.json", "-o", tmp_path / "x")[2].endswith("none.json: no such file\n")
    assert not (tmp_path / "x").exists()
    request = QUESTION["request"] | {"tokens_per_s_per_user": 1e6}
    status, _, error = call("measure", saved(tmp_path, request=request), "-o", tmp_path / "x")
    assert status == 3
    assert "no system keeps the promises" in error


def test_advice_stands_where_the_plan_has_a_load_and_a_rival(tmp_path):
    more = {"systems": ["trn2.48xlarge", "hgx-h200"], "load": {"users": 500}}
    result = tm.measure(saved(tmp_path, **more), tmp_path / "scripts")
    assert result.advice
    assert result.advice in " ".join((tmp_path / "scripts" / "README.txt").read_text().split())
