"""Scenario files: the same questions give the same numbers, and what cannot be read is refused on one line."""

import json
import os

import pytest
import yaml
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.calls import arguments_of
from trnmodel.catalog.load import DATA
from trnmodel.cli.app import app
from trnmodel.files import layout

TEXT = """
model: llama-3.1-8b
request:
  input_tokens: 1k
  output_tokens: 256
  tokens_per_s_per_user: 40
systems: [trn2.3xlarge, hgx-h200]
precision: fp8
prices:
  trn2.3xlarge: {usd_per_chip_h: 1.5, server_usd: 4000}
job: {chips: 4096, swap: drain, spare_chips: 64}
step: {tp: 4, batch: 8, context: 2048}
owner: neocloud
"""
REQUEST = tm.Request(1000, 256, tokens_per_s_per_user=40)
SYSTEMS = ["trn2.3xlarge", "hgx-h200"]


def call(*args):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "buyer.yaml"
    file.write_text(TEXT)
    return file


def asked(command, path, *more):
    """What a command prints as JSON for a scenario."""
    status, out, error = call(command, "--scenario", path, "--json", *more)
    assert (status, error) == (0, "")
    return json.loads(out)


def test_a_plan_is_the_same_through_the_call_the_scenario_and_the_terminal(path):
    rents = {"trn2.3xlarge": 1.5, "hgx-h200": "capacity-block"}
    direct = tm.plan("llama-3.1-8b", REQUEST, SYSTEMS, precision="fp8", owner="neocloud", pricing=rents)
    flags = ["--speed", 40, "--in", "1k", "--out", 256, "--precision", "fp8", "--owner", "neocloud", "--json"]
    typed = call("plan", "llama-3.1-8b", *flags, "--systems", SYSTEMS[0], "--systems", SYSTEMS[1])[1]
    through = tm.scenario(path).plan()
    assert through.to_frame(bands=True).equals(direct.to_frame(bands=True))
    answer, of_flags = asked("plan", path), json.loads(typed)
    assert answer == json.loads(json.dumps(direct.to_data()))
    assert answer["best"] == of_flags["best"]  # no flag gives a price to each system
    assert answer["best"]["tokens_per_s_per_chip"] == pytest.approx(direct.best.tokens_per_s_per_chip)


def test_a_cost_has_own_prices_through_the_call_the_scenario_and_the_terminal(path):
    pricing = {"trn2.3xlarge": 1.5, "hgx-h200": "capacity-block"}
    direct = tm.token_cost("llama-3.1-8b", REQUEST, SYSTEMS, precision="fp8", pricing=pricing)
    one = tm.scenario(path)
    assert one.token_cost().to_frame(bands=True).equals(direct.to_frame(bands=True))
    rows = asked("cost", path)
    renter = [row for row in rows if row["who"] == "renter"]
    assert [row["generated_usd_per_mtoken"] for row in renter] == pytest.approx(
        direct.to_frame().generated_usd_per_mtoken.tolist()
    )
    assert {row["usd_per_chip_h"] for row in renter if row["system"] == "trn2.3xlarge"} == {1.5}
    owned = tm.tco("trn2.3xlarge", owner="neocloud", server_usd=4000)
    assert one.tco("trn2.3xlarge").usd_per_h == owned.usd_per_h != tm.tco("trn2.3xlarge", owner="neocloud").usd_per_h
    hours = {row["usd_per_chip_h"] for row in rows if row["who"] == "owner" and row["system"] == "trn2.3xlarge"}
    assert [*hours] == pytest.approx([float(owned.useful_usd_per_h)])


def test_goodput_and_power_are_the_same_and_have_a_row_for_each_system(path):
    one, jobs, steps = tm.scenario(path), asked("goodput", path), asked("power", path)
    for place, system in enumerate(SYSTEMS):
        job = tm.goodput(system, 4096, model="llama-3.1-8b", swap="drain", spare_chips=64)
        assert one.goodput(system).goodput == job.goodput
        assert jobs[place]["answer"]["goodput"] == pytest.approx(float(job.goodput))
        step = tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=4), batch=8, context=2048, precision="fp8")
        spent = tm.energy(step)
        assert one.energy(system).server_j_per_token == spent.server_j_per_token
        assert steps[place]["answer"]["server_j_per_token"] == pytest.approx(float(spent.server_j_per_token))
        assert {row[place]["scenario"] for row in (jobs, steps)} == {str(path)}


def test_degrees_without_a_flag_reach_the_step(path):
    path.write_text(TEXT.replace("tp: 4", "tp: 4, pp: 2").replace("[trn2.3xlarge, hgx-h200]", "hgx-h200"))
    step = tm.decode_step("llama-3.1-8b", "hgx-h200", tm.Mapping(tp=4, pp=2), batch=8, context=2048, precision="fp8")
    spent = float(tm.energy(step).server_j_per_token)
    assert asked("power", path)["server_j_per_token"] == pytest.approx(spent)
    assert float(tm.scenario(path).energy().server_j_per_token) == spent


def test_what_is_typed_wins_over_the_file(path):
    answer = asked("plan", path, "--speed", 20, "--systems", "trn2.48xlarge", "--precision", "bf16")["best"]
    request = tm.Request(1000, 256, tokens_per_s_per_user=20)
    best = tm.plan("llama-3.1-8b", request, "trn2.48xlarge", precision="bf16").best
    assert (answer["system"], answer["precision"]) == ("trn2.48xlarge", "bf16")
    assert answer["tokens_per_s_per_chip"] == pytest.approx(best.tokens_per_s_per_chip)
    status, out, _ = call("cost", "--scenario", path, "--price", 3, "--json")
    assert status == 0
    assert {row["usd_per_chip_h"] for row in json.loads(out) if row["who"] == "renter"} == {3.0}
    status, out, _ = call("plan", "qwen2.5-7b", "--scenario", path)
    assert (status, out.split(",")[0]) == (0, "qwen2.5-7b")


def test_several_files_make_a_table_and_a_list(path, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(TEXT.replace("tokens_per_s_per_user: 40", "tokens_per_s_per_user: 20"))
    for command in ("plan", "cost", "power", "goodput"):
        status, out, error = call(command, "--scenario", path, "--scenario", other)
        assert (status, error) == (0, "")
        lines = out.splitlines()
        assert lines[0].startswith("scenario ")
        rows = 2 * (len(SYSTEMS) if command in ("power", "goodput") else 1)
        assert [line.split()[0] for line in lines[1:]] == sorted([str(path), str(other)] * (rows // 2))
    status, out, _ = call("plan", "--scenario", path, "--scenario", other, "--json")
    told = json.loads(out)
    assert [one["scenario"] for one in told] == [str(path), str(other)]
    assert told[0]["answer"] == asked("plan", path)
    assert told[1]["answer"] == asked("plan", other)


def test_a_table_ends_with_the_worst_status_and_an_error_names_its_file(path, tmp_path):
    fast, odd = tmp_path / "fast.yaml", tmp_path / "odd.yaml"
    fast.write_text(TEXT.replace("tokens_per_s_per_user: 40", "tokens_per_s_per_user: 40k"))
    odd.write_text(TEXT.replace("precision: fp8", "precision: fp7"))
    status, out, error = call("plan", "--scenario", path, "--scenario", fast)
    assert (status, error) == (3, "")
    assert len(out.splitlines()) == 3
    status, out, error = call("plan", "--scenario", path, "--scenario", odd)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(str(odd))


def test_a_model_path_is_seen_from_the_file_and_not_from_the_working_folder(tmp_path, monkeypatch):
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes((DATA / "models" / "qwen2.5-7b.json").read_bytes())
    (tmp_path / "asked").mkdir()
    file = tmp_path / "asked" / "one.yaml"
    text = TEXT.replace("llama-3.1-8b", "../models/mine/config.json\nname: mine-7b")
    file.write_text(text)
    monkeypatch.chdir(folder)
    best = tm.plan("qwen2.5-7b", REQUEST, SYSTEMS, precision="fp8").best
    one = tm.scenario(file)
    assert one.model.id == "mine-7b"
    assert one.model.total_params == tm.model("qwen2.5-7b").total_params
    assert one.plan().best.place == best.place
    assert asked("plan", file)["best"]["tokens_per_s_per_chip"] == pytest.approx(one.plan().best.tokens_per_s_per_chip)


def test_own_measurements_are_validated_with_the_own_model(tmp_path):
    rows = (DATA / "evidence" / "measured.csv").read_text().splitlines()[:6]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "one.yaml").write_text("model: llama-3.1-8b\nmeasurements: rows.csv\n")
    found = tm.scenario(tmp_path / "one.yaml").validate()
    assert found.equals(tm.validate(tmp_path / "rows.csv"))


def test_a_scenario_of_objects_and_one_of_its_own_plain_values_are_one_question():
    one = tm.scenario({"model": tm.model("llama-3.1-8b"), "request": REQUEST, "systems": [tm.system("hgx-h200")]})
    again = tm.scenario(json.loads(json.dumps(one.stated())))
    assert again.stated() == one.stated()
    assert again.plan().to_frame().equals(one.plan().to_frame())
    assert tm.scenario(one) is one


def test_a_rate_is_a_load_and_stands_in_one_place():
    base = {"model": "llama-3.1-8b", "request": {"input_tokens": 1000, "output_tokens": 100}}
    one = tm.scenario(base | {"load": {"requests_per_s": 5}})
    assert one.request.requests_per_s == 5
    assert dict(one.load) == {}
    twice = {"request": base["request"] | {"requests_per_s": 5}, "load": {"requests_per_s": 5}}
    with pytest.raises(ValueError, match=r"^scenario: load: requests_per_s twice: allowed is one of them$"):
        tm.scenario(base | twice)


def test_the_schema_is_made_of_the_declarations_and_holds_what_a_scenario_states():
    schema = tm.schema("scenario")
    assert json.loads(call("schema", "scenario")[1]) == schema
    assert schema["properties"]["request"]["properties"].keys() == arguments_of("Request").keys()
    assert schema["required"] == ["model"]
    declared = {name for name in arguments_of("plan") if name not in ("model", "request", "systems", *layout.LOADS)}
    assert declared <= schema["properties"].keys()
    assert {name for name in layout.LOADS if name in arguments_of("plan")} | {"requests_per_s"} == set(
        schema["properties"]["load"]["properties"]
    )
    stated = tm.scenario(yaml.safe_load(TEXT + TRAIN)).stated()
    for name, value in stated.items():
        if name in ("request", "job", "step", "training"):
            assert value.keys() <= schema["properties"][name]["properties"].keys()
        else:
            assert name in schema["properties"]


TRAIN = "training: {tokens: 100B, chips: 256, recompute: [none], zero: [1], sequence_parallel: [true], seq: 2048}\n"
RUN = {"tokens": 1e11, "chips": 256, "recompute": ["none"], "zero": [1], "sequence_parallel": [True], "seq": 2048}
OWN = {"trn2.3xlarge": 1.5, "hgx-h200": "capacity-block"}


def test_a_comparison_is_the_same_through_the_call_the_scenario_and_the_terminal(path):
    direct = tm.compare("llama-3.1-8b", REQUEST, SYSTEMS, precision="fp8", owner="neocloud", pricing=OWN)
    one = tm.scenario(path).compare()
    assert one.to_frame(bands=True).equals(direct.to_frame(bands=True))
    assert one.break_even().equals(direct.break_even())
    flags = ["--speed", 40, "--in", "1k", "--out", 256, "--precision", "fp8", "--owner", "neocloud", "--json"]
    answer, of_flags = asked("compare", path), json.loads(call("compare", "llama-3.1-8b", *SYSTEMS, *flags)[1])
    assert answer["lines"] == of_flags["lines"]
    (tie,) = answer["price_ties"]
    (published,) = of_flags["price_ties"]
    assert (tie["usd_per_chip_h"], tie["pricing"], tie["against_pricing"]) == (1.5, "own price", "capacity-block")
    # the tie of one system with the price of the other does not depend on what the first one costs
    assert tie["break_even_usd_per_chip_h"] == pytest.approx(published["break_even_usd_per_chip_h"])
    shown = call("compare", "--scenario", path)[1]
    assert "its own price is $1.5" in shown
    assert "per chip-hour, capacity-block)" in shown


def test_speeds_and_a_baseline_of_a_file_reach_a_comparison_and_a_typed_speed_wins(path):
    path.write_text(TEXT + "speeds: [50, 20]\nbaseline: trn2.3xlarge\n")
    direct = tm.compare("llama-3.1-8b", REQUEST, SYSTEMS, precision="fp8", speeds=[20, 50], baseline=SYSTEMS[0])
    assert tm.scenario(path).compare().to_frame(bands=True).equals(direct.to_frame(bands=True))
    lines = asked("compare", path)["lines"]
    assert [line["promised_tokens_per_s_per_user"] for line in lines] == [20, 20, 50, 50]
    assert {line["baseline"] for line in lines} == {"trn2.3xlarge"}
    typed = asked("compare", path, "--speed", "30")["lines"]
    assert {line["promised_tokens_per_s_per_user"] for line in typed} == {30}


def test_a_training_run_is_the_same_through_the_call_the_scenario_and_the_terminal(path):
    path.write_text(TEXT + TRAIN)
    direct = tm.train_run("llama-3.1-8b", SYSTEMS, **RUN, owner="neocloud", pricing=OWN)
    assert tm.scenario(path).train_run().to_frame(bands=True).equals(direct.to_frame(bands=True))
    rows = [row for row in asked("train", path) if row["renter_usd"]]
    assert [row["renter_usd"] for row in rows] == pytest.approx(direct.to_frame(bands=True).renter_usd.tolist())
    assert {row["system"] for row in rows} == set(SYSTEMS)
    own = next(run for run in direct.runs if run.system.id == "trn2.3xlarge")
    hours = float(own.chip_hours / own.useful().goodput)
    assert own.renter_usd().value == pytest.approx(1.5 * hours)
    assert own.precision.compute == "bf16"  # the file's fp8 is that of the deployment
    fewer = [row for row in asked("train", path, "--chips", 128) if row["renter_usd"]]
    assert {row["chips"] for row in fewer} == {128}


def test_dollars_of_a_training_run_buy_hours_at_an_own_price():
    dear = tm.train_run("llama-3.1-8b", "hgx-h200", **RUN, pricing=8.0)
    cheap = tm.train_run("llama-3.1-8b", "hgx-h200", **RUN, pricing={"hgx-h200": 2.0})
    assert dear.renter_usd().value == pytest.approx(4 * cheap.renter_usd().value)
    with pytest.raises(ValueError, match="usd="):
        tm.train_run("llama-3.1-8b", "hgx-h200", **RUN, usd=0.99 * dear.renter_usd().value, pricing=8.0)
    for wrong in ("barter", -1, [1], {"hgx-h200": 0}, {"moon": 1}):
        with pytest.raises(ValueError, match="pricing"):
            tm.train_run("llama-3.1-8b", "hgx-h200", **RUN, pricing=wrong)


def test_a_request_without_a_promised_speed_is_a_question(path):
    path.write_text(TEXT.replace("  tokens_per_s_per_user: 40\n", ""))
    free = tm.Request(1000, 256)
    plan = asked("plan", path)
    assert plan["request"]["tokens_per_s_per_user"] is None
    best = tm.plan("llama-3.1-8b", free, SYSTEMS, precision="fp8").best
    assert plan["best"]["tokens_per_s_per_chip"] == pytest.approx(best.tokens_per_s_per_chip)
    assert [line["promised_tokens_per_s_per_user"] for line in asked("compare", path)["lines"]] == [None, None]
    assert {row["promised_tokens_per_s_per_user"] for row in asked("cost", path)} == {None}
    status, out, error = call("plan", "--scenario", path, "--users", 5)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert error.startswith("--users=")


def test_own_prices_without_systems_reach_a_plan_and_the_others_keep_the_pricing(path):
    path.write_text(TEXT.replace("systems: [trn2.3xlarge, hgx-h200]", "pricing: spot") + "load: {requests_per_s: 3}\n")
    pricing = tm.scenario(path).ask("plan")["pricing"]
    assert pricing["trn2.3xlarge"] == 1.5
    assert {pricing[name] for name in tm.systems() if name != "trn2.3xlarge"} == {"spot"}
    assert asked("plan", path)["demand"]["pricing"]["trn2.3xlarge"] == 1.5


def test_a_scenario_that_nothing_satisfies_is_a_row_of_a_table(path, tmp_path):
    path.write_text(TEXT + TRAIN)
    fast = tmp_path / "fast.yaml"
    fast.write_text(TEXT + TRAIN.replace("chips: 256", "days: 1e-4"))
    status, out, error = call("train", "--scenario", path, "--scenario", fast)
    assert (status, error) == (3, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["scenario", str(path), str(fast)]
    assert "--days=0.0001: " in lines[2]
    told = json.loads(call("train", "--scenario", fast, "--scenario", path, "--json")[1])
    assert told[0]["answer"]["valid"] is False
    assert told[1]["answer"] == asked("train", path)


def test_a_table_of_comparisons_has_a_row_for_each_speed(path, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(TEXT + "speeds: [20, 30]\n")
    lines = call("compare", "--scenario", path, "--scenario", other)[1].splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[str(path), "40"], [str(other), "20"], [str(other), "30"]]


BAD = {
    "a speed that is no list": ("model: llama-3.1-8b\nspeeds: 20", "line 2: speeds=20"),
    "a speed of nothing": ("model: llama-3.1-8b\nspeeds: [0]", "line 2: speeds=0"),
    "no tokens": ("model: llama-3.1-8b\ntraining: {chips: 8}", "line 2: training: tokens is missing"),
    "half a chip": ("model: llama-3.1-8b\ntraining: {tokens: 1T, chips: 8.5}", "line 2: training.chips=8.5"),
    "an unknown policy": (
        "model: llama-3.1-8b\ntraining: {tokens: 1T, recompute: [some]}",
        "line 2: training.recompute='some'",
    ),
    "a price in the training": (
        "model: llama-3.1-8b\ntraining: {tokens: 1T, pricing: spot}",
        "line 2: training.pricing: there is no such key",
    ),
    "a key twice": ("model: llama-3.1-8b\nmodel: qwen2.5-7b", "line 2: the key 'model' stands twice"),
    "an unknown key": ("model: llama-3.1-8b\nrequests: {}", "line 2: requests: there is no such key; nearest: request"),
    "an unknown key inside": (
        "model: llama-3.1-8b\nrequest:\n  input_tokens: 5\n  output_token: 3",
        "line 4: request.output_token: there is no such key; nearest: output_tokens",
    ),
    "an unknown price": ("model: llama-3.1-8b\nprices: {trn2: {usd: 3}}", "line 2: prices.trn2.usd: there is no such"),
    "no model": ("systems: [trn2]", "model is missing"),
    "no answer": ("model: llama-3.1-8b\nrequest: {input_tokens: 5}", "line 2: request: output_tokens is missing"),
    "a number out of range": (
        "model: llama-3.1-8b\nrequest: {input_tokens: 0, output_tokens: 1}",
        "line 2: request.input_tokens=0: ",
    ),
    "NaN": ("model: llama-3.1-8b\nrequest: {input_tokens: .nan, output_tokens: 1}", "input_tokens=nan"),
    "infinity": ("model: llama-3.1-8b\nrequest: {input_tokens: .inf, output_tokens: 1}", "input_tokens=inf"),
    "a huge number": (f"model: llama-3.1-8b\nstep: {{tp: {'9' * 5000}}}", ""),
    "a list for a number": (
        "model: llama-3.1-8b\nstep: {tp: [1], batch: 1, context: 9}",
        "line 2: step.tp=[1]: allowed is one",
    ),
    "yes": ("model: llama-3.1-8b\njob: {chips: yes}", "line 2: job.chips=True"),
    "base 60": ("model: llama-3.1-8b\njob: {chips: 1:30}", "base 60"),
    "a date": ("model: 2026-01-01", "line 1: model="),
    "an unknown system": ("model: llama-3.1-8b\nsystems: [trn9]", "line 2: systems='trn9' is unknown"),
    "an unknown model": ("model: llamma-3.1-8b", "line 1: model='llamma-3.1-8b' is unknown; nearest: llama-3.1-8b"),
    "one system by two names": (
        "model: llama-3.1-8b\nprices: {trn2: {tdp_w: 1}, trn2.48xlarge: {tdp_w: 2}}",
        "one sys",
    ),
    "a folder as model": ("model: ./", "line 1: "),
    "a device as model": ("model: /dev/zero", "line 1: "),
    "a path that climbs": ("model: ../../../../../../etc/hostname", "line 1: "),
    "a device as model config": ("model: ../../../../../../../dev/zero/x.json", "line 1: "),
    "an alias": ("model: llama-3.1-8b\na: &a [1]\nb: [*a, *a]", "it is used again by an alias"),
    "a bomb": (
        "a: &a [1]\n" + "\n".join(f"{b}: &{b} [{f'*{a}, ' * 9}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "alias",
    ),
    "an object": ("model: !!python/object/apply:os.system [ls]", "line 1: could not determine a constructor"),
    "a merge key": ("model: llama-3.1-8b\n<<: {name: x}", "2002:merge"),
    "deep nesting": ("[" * 20000, "not plain YAML"),
    "a list": ("- model", "allowed is a mapping"),
    "nothing": ("", "allowed is a mapping"),
    "no YAML": ("model: [", "not plain YAML"),
    "control characters": ('model: "a\\e[2Jb"', "line 1: model="),
    "a load without a request": ("model: llama-3.1-8b\nload: {requests_per_s: 3}", "there is no request"),
    "many keys": (
        "model: llama-3.1-8b\nrequest:\n" + "\n".join(f"  k{i}: 1" for i in range(300)),
        "allowed are up to 200",
    ),
    "too large": ("model: llama-3.1-8b\n" + "#" * 2**16, "allowed are up to 65536 B"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_ends_with_one_line_that_names_it_and_status_2(path, name):
    text, told = BAD[name]
    path.write_text(text)
    status, out, error = call("plan", "--scenario", path)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert told in error
    assert "buyer.yaml" in error
    assert error[:-1].isprintable()
    assert len(error) < 500


def test_paths_that_are_no_files_are_refused(tmp_path):
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    cases = {
        tmp_path: "no regular",
        tmp_path / "none": "no such file",
        pipe: "no regular",
        tmp_path / "bytes.yaml": "UTF-8",
    }
    for path, told in cases.items():
        status, out, error = call("goodput", "--scenario", path)
        assert (status, out, error.count("\n")) == (2, "", 1)
        assert told in error
    with pytest.raises(ValueError, match=r"^source=''"):
        tm.scenario("")


def test_what_a_question_needs_is_named_where_the_file_does_not_state_it(tmp_path):
    path = tmp_path / "bare.yaml"
    path.write_text("model: llama-3.1-8b\n")
    one = tm.scenario(path)
    for ask, lacking in (
        (one.plan, "request"),
        (one.token_cost, "request"),
        (one.compare, "request"),
        (one.train_run, "systems"),
        (one.energy, "step"),
        (one.validate, "measurements"),
    ):
        with pytest.raises(ValueError, match=f"bare.yaml: {lacking} is missing, which this question needs$"):
            ask()
    with pytest.raises(ValueError, match="name one of the systems of the scenario, which are none"):
        one.goodput()
    for command in ("plan", "compare", "cost", "power", "goodput", "train"):
        status, out, error = call(command, "--scenario", path)
        assert (status, out) == (2, "")
        assert error.splitlines()[-1].startswith(("Error: Missing ", str(path)))


def test_json_a_byte_order_mark_windows_lines_and_a_link_are_read(tmp_path):
    """YAML holds JSON; a number as pricing is a price of a chip-hour of all systems."""
    text = '{"model": "llama-3.1-8b", "systems": "trn2.3xlarge", "pricing": 2.5,\r\n"request": '
    text += '{"input_tokens": 1024, "output_tokens": 256, "tokens_per_s_per_user": 20}}\r\n'
    (tmp_path / "one.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "link.yaml").symlink_to(tmp_path / "one.json")
    rows = asked("cost", tmp_path / "link.yaml")
    assert {row["usd_per_chip_h"] for row in rows if row["who"] == "renter"} == {2.5}


def test_a_list_of_options_and_prefill_systems_reach_the_plan(path):
    path.write_text(
        TEXT.replace("[trn2.3xlarge, hgx-h200]", "trn2.3xlarge").replace(
            "owner: neocloud", "prefill_systems: [trn2.3xlarge]\nefficiencies: [neuron-async, vllm-neuron-2026]"
        )
    )
    options = ["neuron-async", "vllm-neuron-2026"]
    more = {"efficiencies": options, "prefill_systems": ["trn2.3xlarge"], "precision": "fp8"}
    direct = tm.plan("llama-3.1-8b", REQUEST, "trn2.3xlarge", **more)
    assert tm.scenario(path).plan().best.option.id == direct.best.option.id
    assert tm.scenario(path).plan().to_frame().place.tolist() == direct.to_frame().place.tolist()
    assert asked("plan", path) == json.loads(json.dumps(tm.scenario(path).plan().to_data()))
    assert asked("plan", path, "--stack", "ideal")["best"]["stack"] == "ideal"


def test_a_load_that_is_typed_stands_in_for_that_of_the_file(path):
    path.write_text(TEXT.replace("[trn2.3xlarge, hgx-h200]", "trn2.3xlarge") + "load: {requests_per_s: 30}\n")
    told = call("plan", "--scenario", path)[1]
    assert "30 requests/s" in told.splitlines()[0]
    told = call("plan", "--scenario", path, "--requests=2")[1]
    assert "2 requests/s" in told.splitlines()[0]
    assert "30 requests/s" not in told
    path.write_text(TEXT.replace("[trn2.3xlarge, hgx-h200]", "hgx-h200") + "load: {site_w: 2M}\n")
    answers = [asked("plan", path, *flags)["demand"] for flags in ((), ("--users=400",), ("--mw", 3))]
    assert [one["site_w"] for one in answers] == [2e6, None, 3e6]
    assert [one["users"] for one in answers] == [None, 400, None]
