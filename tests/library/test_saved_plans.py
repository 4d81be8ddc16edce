"""A plan as a file: what it holds, and that a check names each price, fact and law that has moved since."""

import csv
import json
import math
import os

import msgspec
import pandas as pd
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.rulings import Ruled
from trnmodel.cli.app import app
from trnmodel.files import saved
from trnmodel.formulas import step as page

QUESTION = {
    "model": "llama-3.1-8b",
    "request": {"input_tokens": 1024, "output_tokens": 256, "tokens_per_s_per_user": 40},
    "systems": ["trn2.3xlarge", "trn1.32xlarge"],
}
FIGURE = "tokens_per_s_per_chip"
PRICE = ("rents.csv", "trn2.3xlarge/rent_usd_per_h:capacity-block:2026-07-22:2.235/koyakimu-capacity-blocks", "3")


def call(*args):
    """Status, standard output and standard error of `trnmodel args`."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def edit(data, file, fact_id, printed):
    """Change what a row of a copy of `data/` prints; None takes the row out."""
    path = data / "facts" / file
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert sum(row["id"] == fact_id for row in rows) == 1
    rows = [row | ({"value_printed": printed} if row["id"] == fact_id else {}) for row in rows]
    rows = [row for row in rows if row["id"] != fact_id or printed is not None]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def made(question=QUESTION):
    """What the best choice makes of a paid chip, asked through `tm.plan` alone."""
    request = tm.Request(*question["request"].values())
    return tm.plan(question["model"], request, question["systems"]).best.tokens_per_s_per_chip


def layer_time():
    """The fact that says how long the software of the best choice takes for a layer."""
    (fact_id,) = tm.scenario(QUESTION).plan().best.stack.sources["dense_layer_s"]
    return fact_id


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    tm.save_plan(QUESTION, path)
    return path


def test_a_saved_plan_holds_question_answer_bands_and_the_facts_behind_them(plan_file):
    values = json.loads(plan_file.read_text())
    best = tm.plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=40), QUESTION["systems"]).best
    assert values["answer"]["best"] == best.place == "trn2.3xlarge"
    assert values["answer"]["figures"][FIGURE] == {
        "value": best.tokens_per_s_per_chip,
        "low": best.low,
        "high": best.high,
    }
    assert tm.scenario(values["question"]).stated() == tm.scenario(QUESTION).stated()
    facts = {(row["entity"], row["quantity"], row["qualifier"]): row for row in values["facts"]}
    hbm = facts["trainium2", "hbm_bytes_per_s", ""]
    assert (hbm["value_printed"], hbm["unit_printed"], hbm["value"]) == ("2.9", "TB/sec", 2.9e12)
    assert (hbm["source"], hbm["locator"]) == ("ah-trainium2", "L30 Device Memory")
    assert facts["trn1.32xlarge", "chips", ""]["value"] == 16  # which a system reads by itself
    entities = {row["entity"] for row in values["facts"]}
    assert {"trainium2", "trainium1", "trn2.3xlarge", "trn1.32xlarge", "vllm-neuron-2026", "neuron-async"} <= entities
    cost = values["answer"]["figures"]["generated_usd_per_mtoken[capacity-block]"]["value"]
    assert cost == pytest.approx(2.235 / 3600 * best.request_chip_s / 256 * 1e6)


def test_each_other_candidate_has_a_reason_and_the_best_is_none_of_them(plan_file):
    table = pd.read_csv(plan_file.with_name("plan-rejected.csv"))
    assert table.why.notna().all()
    best = tm.scenario(QUESTION).plan().best
    key = ["system", "precision", "option", "tp", "ep", "pp", "cp"]
    assert not table.duplicated(key).any()
    winner = (best.place, best.precision, best.option.id, best.tp, best.ep, best.pp, best.cp)
    assert winner not in set(table[key].itertuples(index=False, name=None))
    assert {"bf16", "fp8"} <= set(table.precision)
    assert {"vllm-neuron-2026", "neuron-async"} <= set(table.option)
    valid = table[table.chance > 0]
    assert (valid.tokens_per_s_per_chip <= best.tokens_per_s_per_chip * 1.01).all()


def test_nothing_moved_where_nothing_moved(plan_file):
    found = tm.check(plan_file)
    assert (found.differs, found.possible, found.answer, found.moved, found.law, found.new) == (
        False,
        True,
        (),
        (),
        (),
        (),
    )
    assert found.to_frame().empty
    assert call("check", plan_file) == (0, f"{found}\n", "")


def test_check_names_a_changed_price_a_changed_fact_and_a_changed_law(copied_data, forget_data, plan_file, monkeypatch):
    """Each share is what the same calls give where that one thing alone is as it was."""
    then, former = made(), page.overlapped_s
    fact = ("efficiencies.csv", layer_time(), "300-400")
    edit(copied_data, *PRICE)
    monkeypatch.setattr(page, "overlapped_s", lambda *times: 1.1 * former(*times))
    forget_data()
    law_alone = made()
    edit(copied_data, *fact)
    forget_data()
    now = made()
    assert now < law_alone < then

    found = tm.check(plan_file)
    shares = {one.fact: {change.figure: change for change in one.effect} for one in found.moved}
    rent = "trn2.3xlarge/rent_usd_per_h[capacity-block sa-east-1,ap-southeast-4 2026-07-22]"
    layer = "/".join(fact[1].split("/")[:2])
    assert set(shares) == {rent, layer}
    assert shares[rent]["usd_per_chip_h[capacity-block]"][1:] == (2.235, 3.0)
    assert shares[rent]["generated_usd_per_mtoken[capacity-block]"].share == pytest.approx(3 / 2.235 - 1)
    assert FIGURE not in shares[rent]
    assert shares[layer][FIGURE][1:] == pytest.approx((law_alone, now))
    assert "usd_per_chip_h[capacity-block]" not in shares[layer]
    law = {change.figure: change for change in found.law}
    assert law[FIGURE][1:] == pytest.approx((then, law_alone))
    assert {change.figure: change for change in found.answer}[FIGURE][1:] == pytest.approx((then, now))
    assert found.differs
    assert found.data == ()

    assert made() == now, "the check leaves no old fact in force"


def test_the_command_tells_each_on_a_line_and_ends_with_status_5(copied_data, forget_data, plan_file, monkeypatch):
    former = page.overlapped_s
    edit(copied_data, *PRICE)
    monkeypatch.setattr(page, "overlapped_s", lambda *times: 1.1 * former(*times))
    forget_data()
    status, out, error = call("check", plan_file)
    assert (status, error) == (5, "")
    heads = [line.partition(" ")[0] for line in out.splitlines()]
    assert heads[1:] == ["Answer:", "Fact", "Law:"]
    assert ": 2.235 USD/h (koyakimu-capacity-blocks, data/pricing.json" in out
    assert " -> 3 USD/h (koyakimu-capacity-blocks, data/pricing.json" in out
    assert "(+34 %)" in out  # 3 / 2.235 - 1
    status, out, _ = call("check", plan_file, "--json")
    assert status == 5
    assert {row["cause"] for row in json.loads(out)["changes"]} == {"answer", "fact", "law"}


def test_a_fact_alone_is_named_with_its_old_and_new_value_and_no_law_is_blamed(copied_data, forget_data, plan_file):
    edit(copied_data, *PRICE)
    forget_data()
    found = tm.check(plan_file)
    assert [(one.was.value, one.now.value) for one in found.moved] == [(2.235, 3.0)]
    assert found.law == ()
    rented = {"usd_per_chip_h", saved.COST, "usd_per_month", "usd_per_mtoken"}
    assert {change.figure.partition("[")[0] for change in found.answer} == rented
    shares = {change.figure: change.share for change in found.answer}
    assert shares["usd_per_month[capacity-block]"] == pytest.approx(3 / 2.235 - 1)


def test_a_fact_of_the_owner_moves_the_owned_bill_alone(copied_data, forget_data, plan_file):
    tm.save_plan(QUESTION | {"systems": "hgx-h200"}, plan_file)
    edit(copied_data, "prices.csv", tm.owner().sources["electricity_usd_per_j"][0], "0.2")
    forget_data()
    found = tm.check(plan_file)
    assert {one.was.quantity for one in found.moved} == {"electricity_usd_per_j"}
    assert found.law == ()
    assert "usd_per_month[owned by a hyperscaler]" in {change.figure for change in found.answer}
    assert {change.figure.partition("[")[0] for change in found.answer} <= {
        *("usd_per_month", "owned_usd_per_month", "owned_usd_per_mtoken")
    }


def test_a_law_alone_is_blamed_and_no_fact(copied_data, forget_data, plan_file, monkeypatch):
    then, former = made(), page.overlapped_s
    monkeypatch.setattr(page, "overlapped_s", lambda *times: 1.25 * former(*times))
    forget_data()
    found = tm.check(plan_file)
    assert (found.moved, found.law) == ((), found.answer)
    law = {change.figure: change for change in found.law}
    assert law[FIGURE][1:] == pytest.approx((then, made()))


def test_a_fact_that_vanished_is_named_and_its_share_asked_with_it_in_force(copied_data, forget_data, plan_file):
    before = tm.rent("trn2.3xlarge", "spot").usd_per_chip_h
    edit(copied_data, "rents.csv", "trn2.3xlarge/rent_usd_per_h:spot:2026-10-03:7.7264/kiln-prices", None)
    forget_data()
    after = tm.rent("trn2.3xlarge", "spot").usd_per_chip_h
    (moved,) = tm.check(plan_file).moved
    assert moved.now is None
    assert "no longer there" in moved.describe()
    assert {change.figure: change[1:] for change in moved.effect}["usd_per_chip_h[spot]"] == (before, after)
    assert before > after


def test_a_fact_of_a_loser_moves_nothing_of_the_answer(copied_data, forget_data, plan_file):
    loser = "trn1.32xlarge/scaleup_bytes_per_s_per_dir/project"
    edit(copied_data, "systems.csv", loser, "150")
    forget_data()
    found = tm.check(plan_file)
    assert [(one.was.id, one.effect) for one in found.moved] == [(loser, ())]
    assert (found.answer, found.law, found.differs) == ((), (), True)


def test_many_moved_facts_are_asked_one_by_one_up_to_a_limit(copied_data, forget_data, plan_file, monkeypatch):
    monkeypatch.setattr(saved, "ONE_BY_ONE", 1)
    edit(copied_data, *PRICE)
    edit(copied_data, "efficiencies.csv", layer_time(), "300-400")
    forget_data()
    found = tm.check(plan_file)
    assert sorted(bool(one.why_unknown) for one in found.moved) == [False, True]
    assert found.law == ()


def test_an_own_model_is_known_by_its_configuration(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "hidden_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 4096,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
    }
    (folder / "config.json").write_text(json.dumps(config))
    path = tmp_path / "plans" / "plan.json"
    path.parent.mkdir()
    tm.save_plan(QUESTION | {"model": str(folder / "config.json"), "name": "mine-1"}, path)
    assert json.loads(path.read_text())["question"]["model"] == "../mine/config.json"
    assert not tm.check(path).differs
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 16}))
    found = tm.check(path)
    assert found.model_changed
    assert found.differs
    assert found.law == found.answer
    (folder / "config.json").unlink()
    status, out, error = call("check", path)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert "its question can no longer be asked" in error


def test_a_plan_that_nothing_can_keep_is_saved_and_checked_with_status_3(tmp_path):
    path = tmp_path / "plan.json"
    flags = ["--speed", 100000, "--in", 1024, "--out", 256, "--systems", "trn2.3xlarge"]
    assert call("plan", "llama-3.1-8b", *flags, "--save", path)[0] == 3
    assert call("check", path)[0] == 3
    assert "No system keeps the promises today." in call("check", path)[1]
    tm.save_plan(QUESTION | {"model": "deepseek-v3", "systems": "trn1.2xlarge"}, path)
    assert call("check", path)[0] == 3


def resigned(values):
    """The text of a file whose content was changed by the program itself."""
    values.pop("digest")
    return saved._signed(values)


def other_version(text):
    return resigned(json.loads(text) | {"format": 2})


def edited(text):
    return text.replace('"trn2.3xlarge"', '"trn1.32xlarge"', 1)


SPOILED = {
    "edited": (edited, "it was edited since it was saved"),
    "another version": (other_version, "format=2: it was made by another version; allowed is 1"),
    "truncated": (lambda text: text[: len(text) // 2], "not a JSON text"),
    "empty": (lambda text: "", "not a JSON text"),
    "no plan": (lambda text: '{"a": 1}', "this is no saved plan"),
    "a list": (lambda text: "[]", "holds a JSON list"),
    "NaN": (lambda text: text.replace('"format": 1', '"format": NaN'), "NaN is not a number of JSON"),
    "a key twice": (lambda text: text.replace('"format": 1', '"format": 1, "format": 1'), "more than once"),
    "nested": (lambda text: "[" * 10**5, "nested too deeply"),
    "huge": (lambda text: text + " " * (8 * 2**20), "allowed are up to 8388608 B"),
    "digits": (lambda text: text.replace('"format": 1', f'"format": {"9" * 5000}'), ""),
    "a field more": (lambda text: resigned(json.loads(text) | {"more": 1}), "unknown field `more`"),
    "no facts": (lambda text: resigned({k: v for k, v in json.loads(text).items() if k != "facts"}), "`facts`"),
    "no question": (lambda text: resigned(json.loads(text) | {"question": {"modle": "x"}}), "nearest: model"),
    "binary": (lambda text: "\0\1", "not a JSON text"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_file_ends_with_one_line_and_status_2(plan_file, name):
    spoil, told = SPOILED[name]
    plan_file.write_text(spoil(plan_file.read_text()))
    status, out, error = call("check", plan_file)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert told in error
    assert "plan.json" in error
    assert len(error) < 500


def test_paths_that_are_no_files_end_with_one_line_and_status_2(tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path, told in ((tmp_path, "no regular file"), (tmp_path / "none.json", "no such file"), (pipe, "no regular")):
        status, out, error = call("check", path)
        assert (status, out, error.count("\n")) == (2, "", 1)
        assert told in error
        assert error.startswith("PLAN.json=")


def test_where_a_plan_cannot_be_written_nothing_is_left(tmp_path, monkeypatch):
    flags = ["plan", "llama-3.1-8b", "--speed", 40, "--in", 1024, "--out", 256, "--systems", "trn2.3xlarge"]
    for path, told in ((tmp_path, ".json"), (tmp_path / "a" / "plan.json", "no such folder"), ("", "path of a file")):
        status, out, error = call(*flags, "--save", path)
        assert (status, out, error.count("\n")) == (2, "", 1)
        assert told in error
        assert error.startswith("--save=")
    path = tmp_path / "plan.json"
    assert call(*flags, "--save", path)[0] == 0
    before = path.read_bytes()

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, _, error = call(*flags, "--speed", 50, "--save", path)
    assert status == 2
    assert "No space left on device" in error
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["plan-rejected.csv", "plan.json"]


def test_the_plan_of_the_terminal_and_of_a_call_are_one_file(tmp_path, plan_file):
    flags = ["--speed", 40, "--in", 1024, "--out", 256, "--systems", "trn2.3xlarge", "--systems", "trn1.32xlarge"]
    status, out, _ = call("plan", "llama-3.1-8b", *flags, "--save", tmp_path / "other.json")
    assert (status, out) == (0, f"{tm.scenario(QUESTION).plan()}\n")
    assert (tmp_path / "other.json").read_text() == plan_file.read_text()
    assert (tmp_path / "other-rejected.csv").read_text() == plan_file.with_name("plan-rejected.csv").read_text()


def test_what_no_file_can_hold_is_refused_before_anything_is_written(tmp_path):
    own = tm.system("trn2.3xlarge").moved({"host_bytes": 1e12})
    with pytest.raises(ValueError, match=r"^systems='trn2\.3xlarge': a system of one's own cannot be written"):
        tm.save_plan(QUESTION | {"systems": [own]}, tmp_path / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_pairs_of_systems_are_candidates_too(tmp_path):
    question = QUESTION | {"systems": "trn2.3xlarge", "prefill_systems": ["trn2.3xlarge"]}
    best = tm.save_plan(question, tmp_path / "plan.json").best
    places = set(pd.read_csv(tmp_path / "plan-rejected.csv").system)
    assert places | {best.place} == {"trn2.3xlarge", "trn2.3xlarge with prefill on trn2.3xlarge"}
    assert not tm.check(tmp_path / "plan.json").differs


def test_other_facts_are_in_force_until_the_context_ends_however_it_ends():
    key = ("trainium2", "tdp_w", "")
    fact, spread = load.in_force()[key]
    watts = tm.chip("trainium2").tdp_w
    other = Ruled(msgspec.structs.replace(fact, value_printed="600", unit_printed="W"), spread)
    with load.with_facts({key: other}):
        assert tm.chip("trainium2").tdp_w == tm.system("trn2.48xlarge").chip.tdp_w == 600
        assert load.facts_rows()[fact.id].value_printed == "600"
    with pytest.raises(ValueError, match="trn9"), load.with_facts({key: other}):
        tm.chip("trn9")
    assert tm.chip("trainium2").tdp_w == watts != 600
    with load.with_facts({key: None}):
        assert math.isnan(tm.chip("trainium2").tdp_w)
        assert fact.id not in load.facts_rows()
    assert load.in_force()[key].fact == fact
