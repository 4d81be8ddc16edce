"""Where a number comes from: parts add up, shares are finite differences, rivals are asked by hand, sources exist."""

import json
import math
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.rulings import Ruled
from trnmodel.cli.app import app
from trnmodel.explained.readings import FROM_CALL, readings, rivals
from trnmodel.explained.trees import walk
from trnmodel.serving.server import serve

H = 1e-4
SERVED = {"model": "llama-3.3-70b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=64)}
ALONE = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "batch": 1, "context": 2048, "efficiencies": "ideal"}
REQUEST = tm.Request(1024, 256, tokens_per_s_per_user=40)


def decode(**changes):
    return tm.decode_step(**SERVED | {"batch": 16, "context": 4608} | changes)


def prefill(**changes):
    return tm.prefill(**SERVED | {"input_tokens": 4096} | changes)


def mixture(**changes):
    ask = {"model": "deepseek-v3", "system": "trn3-nl72x2-pcie160", "precision": "mxfp8", "batch": 256}
    return tm.decode_step(**ask | {"mapping": tm.Mapping(tp=8, ep=32), "context": 4608} | changes)


def fit(**changes):
    return tm.memory_fit(**SERVED | {"batch": 16, "context": 4608} | changes)


def exchange(**changes):
    return tm.collective(**{"kind": "all_reduce", "message_bytes": 2**24, "system": "trn2.48xlarge"} | changes)


def joules(**changes):
    return tm.energy(decode(**changes))


def choice(request=REQUEST):
    return tm.plan("llama-3.1-8b", request, "trn2.48xlarge").best


def cost(**changes):
    return tm.token_cost("llama-3.1-8b", REQUEST, "trn2.48xlarge", **changes).lines[0]


def training(**changes):
    ask = {"global_batch": 64, "seq": 2048, "count": 8, "mapping": tm.Mapping(tp=8, pp=8)}
    return tm.train_step("gpt3-175b", **{"system": "hgx-a100"} | ask | changes)


def run():
    return tm.train_run("llama-3.1-8b", "trn2.48xlarge", tokens=1e12, chips=64)


MADE = [decode, prefill, mixture, fit, exchange, joules, choice, cost, training, run]


@cache
def explained(made):
    return tm.explain(made())


def found(why, quantity, about=""):
    return next(one for one in why.facts if one.quantity == quantity and about in one.about)


def shares(why):
    return {node.path: node.weight * node.branch.value / why.value for node in walk(why.tree)}


# --- the answer is the sum of its parts -------------------------------------------------------------------------------


def test_the_time_of_a_step_by_hand():
    """One sequence on one rank of ideal software: bytes of weights and cache over a quarter of 2.9 TB/s."""
    why = tm.explain(tm.decode_step(**ALONE))
    layer = 2 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336) + 2 * 2 * 4096
    weights = 32 * layer + 2 * (128256 * 4096 + 4096 + 4096)  # head, the last norm, and one row of the embedding
    cache = 32 * 2 * 1024 * 2 * (2048 + 1)  # read at 2,048 tokens, one written
    assert why.value == pytest.approx((weights + cache) / (2.9e12 / 4), rel=1e-9)
    values = {node.branch.name: node.branch.value for node in walk(why.tree)}
    assert values["bytes of weights"] == weights
    assert values["bytes of the cache"] == cache
    assert values["rate of reads of weights"] == 2.9e12 / 4


@pytest.mark.parametrize("made", MADE)
def test_the_figure_that_is_explained_is_that_of_the_answer(made):
    answer = made()
    assert explained(made).value == pytest.approx(float(answer.figure(answer.FIGURE)), rel=1e-12)


@pytest.mark.parametrize("made", [decode, prefill, mixture, training, fit, exchange])
def test_shares_of_times_and_sizes_that_add_up_or_overlap_sum_to_one(made):
    why = explained(made)
    first = [share for path, share in shares(why).items() if len(path) == 2]
    assert sum(first) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("made", [decode, prefill, mixture])
def test_a_step_follows_from_the_four_times_of_a_rank_its_exchanges_and_its_costs(made):
    step = made()
    values = {node.branch.name: node.branch.value for node in walk(tm.explain(step).tree)}
    linear, weights, scores, cache = (
        values[name] for name in ("matrix products", "reads of weights", "attention products", "reads of the cache")
    )
    own = max(linear, weights) + max(scores, cache)  # the phases of this software wait for each other
    assert own == pytest.approx(values["own work of a rank"], rel=1e-12)
    whole = own + values["exchanges between ranks"] + values["fixed costs"]
    assert whole == pytest.approx(float(step.time_s), rel=1e-12)
    assert linear + scores == pytest.approx(float(step.compute_s), rel=1e-12)
    assert weights + cache == pytest.approx(float(step.memory_s), rel=1e-12)


def test_software_that_hides_a_part_of_the_network():
    """Overlaps of a half: the longer time, and half of the shorter."""
    half = {"compute_memory_overlap": 0.5, "network_overlap": 0.5, "efficiencies": "ideal"}
    why = tm.explain(decode(**half))
    values = {node.branch.name: node.branch.value for node in walk(why.tree)}
    own, sent = values["own work of a rank"], values["exchanges between ranks"]
    assert why.value == pytest.approx(max(own, sent) + min(own, sent) / 2, rel=1e-12)
    assert why.tree.formula.startswith("max(own work of a rank, exchanges between ranks) + 0.5 x min(")


def test_a_full_batch_by_hand():
    """Tokens/s of a chip: sequences over the time in which each gets its answer and the next ones their prompts."""
    best = choice(tm.Request(1024, 256))
    values = {node.branch.name: node.branch.value for node in walk(tm.explain(best).tree)}
    step = values.get("time of a decode step with drafts", values["time of a decode step"])
    prompts = values["time of a prompt"]
    load = best.batch / (256 * step / float(best.times.tokens_per_step) + best.batch * prompts)
    assert values["load of a replica"] == pytest.approx(load, rel=1e-12)
    assert best.tokens_per_s_per_chip == pytest.approx(load * 256 / best.paid_chips, rel=1e-12)


def test_a_cost_by_hand():
    line = cost()
    values = {node.branch.name: node.branch.value for node in walk(tm.explain(line).tree)}
    made = values["price of a chip-hour"] / 3600 / values["tokens/s of a paid chip"] * 1e6
    assert made == pytest.approx(float(line.generated_usd_per_mtoken), rel=1e-12)


# --- shares are asked through the public call -------------------------------------------------------------------------


def faster(system, name, by):
    spec = tm.system(system)
    return replace(spec, chip=spec.chip.moved({name: spec.chip.at(name) * by}))


@pytest.mark.parametrize("made", [decode, prefill])
@pytest.mark.parametrize("name", ["hbm_bytes_per_s", "peak_flop_per_s[bf16]", "intra_chip_bytes_per_s"])
def test_the_share_of_a_chip_is_a_finite_difference_of_the_public_call(made, name):
    up, own, down = (float(made(system=faster("trn2.48xlarge", name, by)).time_s) for by in (1 + H, 1, 1 - H))
    one = found(explained(made), name.partition("[")[0], "trainium2")
    assert one.share == pytest.approx((up - down) / (2 * H) / own, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["kv_stream_share", "dense_layer_s", "hop_s", "rdh_traffic_ratio"])
def test_the_share_of_a_constant_of_software_is_a_finite_difference_of_the_public_call(name):
    stack = tm.efficiencies("trainium2")
    times = [float(decode(efficiencies=stack.moved({name: stack.at(name) * by})).time_s) for by in (1 + H, 1, 1 - H)]
    assert found(explained(decode), name).share == pytest.approx((times[0] - times[2]) / (2 * H) / times[1], rel=1e-6)


def test_the_share_of_what_ends_at_one_is_asked_below_it():
    """All of the shorter of compute and memory hides; what hides less adds as much of it."""
    one = found(explained(decode), "compute_memory_overlap")
    less = float(decode(compute_memory_overlap=1 - H).time_s)
    assert one.share == pytest.approx((1 - less / float(decode().time_s)) / H, rel=1e-6)
    assert one.share < 0


def test_the_share_of_a_plan_is_a_finite_difference_of_a_server_with_its_mapping_and_batch():
    best = choice()
    q = best.question

    def made(by):
        system = faster("trn2.48xlarge", "hbm_bytes_per_s", by)
        ask = {"max_batch": best.batch, "precision": q.precision, "efficiencies": q.option.id}
        one = serve(q.model, q.request, system, best.degrees, **ask)
        return float(one.tokens_per_s_per_chip)

    one = found(tm.explain(best), "hbm_bytes_per_s")
    assert made(1) == pytest.approx(best.tokens_per_s_per_chip, rel=1e-9)
    assert one.share == pytest.approx((made(1 + H) - made(1 - H)) / (2 * H) / made(1), rel=1e-4)


def test_a_price_moves_the_cost_in_proportion():
    one = found(explained(cost), "rent_usd_per_h")
    assert one.share == pytest.approx(1.0, abs=1e-9)
    assert float(cost(pricing=4.0).generated_usd_per_mtoken) == pytest.approx(
        2 * float(cost(pricing=2.0).generated_usd_per_mtoken), rel=1e-12
    )


@pytest.mark.parametrize("made", MADE)
def test_what_passes_through_the_terms_is_the_whole_share(made):
    for one in explained(made).facts:
        if one.through:
            assert sum(one.through.values()) == pytest.approx(one.share, abs=2e-4), one.fact


def test_a_time_that_is_all_memory_stands_on_the_bandwidth_alone():
    why = tm.explain(tm.decode_step(**ALONE))
    assert [round(one.share, 6) for one in why.facts if abs(one.share) > 0.5] == [-1.0]


# --- another source's value -------------------------------------------------------------------------------------------


def test_a_rival_reading_changes_the_answer_as_asking_by_hand_does():
    one = found(explained(decode), "hbm_bytes_per_s")
    assert {rival.value for rival in one.rivals} == {3e12, 2.4e12}
    for rival in one.rivals:
        by_hand = decode(system=faster("trn2.48xlarge", "hbm_bytes_per_s", rival.value / 2.9e12))
        assert rival.answer == pytest.approx(float(by_hand.time_s), rel=1e-12)
    assert (one.rival.value, one.rival.source) == (3e12, "nk-trainium2")  # AWS's own comes before a page of others


def test_a_rival_reading_is_what_the_answer_is_with_that_fact_in_force():
    """With the other row of `data/` in the place of the one in force, all that is read of it is read anew."""
    one = found(explained(decode), "hbm_bytes_per_s")
    key = ("trainium2", "hbm_bytes_per_s", "")
    for rival in one.rivals:
        fact = load.facts_rows()[rival.fact]
        with load.with_facts({key: Ruled(msgspec.structs.replace(fact), None)}):
            there = float(decode().time_s)
        assert rival.answer == pytest.approx(there, rel=1e-12)


def test_an_open_rival_comes_first():
    one = found(explained(mixture), "hbm_bytes_per_s")
    assert one.rival.status == "open"
    assert one.rival.answer > explained(mixture).value  # a lower bandwidth takes longer


def test_a_rival_with_which_there_is_no_answer_says_why():
    """A page gives Trainium2 32 GB of HBM, in which the weights of a rank do not fit."""
    large = tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=8), batch=16, context=4608)
    rival = next(one for one in found(tm.explain(large), "hbm_bytes").rivals if one.value == 32e9)
    assert math.isnan(rival.answer)
    assert rival.why == "does not fit in memory"


def test_a_rate_without_a_key_of_a_mapping_is_moved_as_any_other():
    """The links of a TPU pod are a mapping with one rate, which no word names."""
    ask = {"model": "llama-3.1-8b", "mapping": tm.Mapping(tp=64), "batch": 8, "context": 2048, "efficiencies": "ideal"}
    pod = tm.system("tpu-v5p-pod")
    times = [
        float(tm.decode_step(system=pod.moved({"scaleup_bytes_per_s_per_dir": 1e11 * by}), **ask).network_s)
        for by in (1.0, 2.0)
    ]
    assert times[0] == pytest.approx(2 * times[1], rel=1e-9)
    share = found(tm.explain(tm.decode_step(system=pod, **ask)), "scaleup_bytes_per_s_per_dir").share
    assert share <= 0


def test_a_fact_about_one_number_format_is_no_rival_of_another():
    chip = tm.chip("trainium3")
    peak = next(one for one in readings([chip]) if one.id == "trainium3/peak_flop_per_s:mxfp8|mxfp4/ah-trainium3")
    assert {label for rival in rivals(peak, [chip]) for _, _, label in rival.factors} <= {
        "peak_flop_per_s[mxfp8]",
        "peak_flop_per_s[mxfp4]",
    }


def test_the_prices_beside_the_median_are_rivals():
    line = cost()
    one = found(tm.explain(line), "rent_usd_per_h")
    low, high = (end * line.rent.sold_chips for end in line.rent.range("usd_per_chip_h"))
    assert [rival.value for rival in one.rivals] == pytest.approx([low, high])
    by_hand = cost(pricing=high / line.rent.sold_chips)
    assert one.rivals[-1].answer == pytest.approx(float(by_hand.generated_usd_per_mtoken), rel=1e-9)


# --- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", MADE)
def test_every_fact_has_a_source_and_a_locator_and_so_has_the_model(made):
    why = explained(made)
    frame = why.to_frame()
    leaves = frame[frame.fact != ""]
    assert len(leaves) > len(why.facts) / 2
    assert (leaves.source != "").all()
    assert (leaves.locator != "").all()
    known = load.sources()
    assert {one.source for one in why.facts} <= {*known, FROM_CALL}
    assert all(one.source in known for one in why.facts)  # nothing was given with these calls
    with_rival = leaves[leaves.rival_value.notna()]
    assert (with_rival.rival_source != "").all()
    assert set(frame[frame.level == 0].fact) <= {""}


def test_a_number_of_the_caller_is_told_from_the_fact_in_its_place():
    why = tm.explain(decode(system=faster("trn2.48xlarge", "hbm_bytes_per_s", 2.0)))
    one = found(why, "hbm_bytes_per_s")
    assert (one.source, one.locator, one.value) == (FROM_CALL, "trainium2/hbm_bytes_per_s", 5.8e12)
    assert one.rivals == ()
    assert "5.8 TB/s" in one.printed


def test_a_stack_of_the_caller_has_no_facts():
    own = replace(tm.efficiencies("trainium2", "ideal"), id="mine", layer_s=1e-4, sources={})
    why = tm.explain(tm.decode_step(**ALONE | {"efficiencies": own}))
    one = found(why, "layer_s")
    assert one.source == FROM_CALL
    assert one.share == pytest.approx(32 * 1e-4 / why.value, rel=1e-6)


def test_the_name_of_an_own_model_is_not_that_of_a_shipped_one(tmp_path):
    shipped = load.DATA / "models" / "llama-3.2-1b.json"
    path = tmp_path / "config.json"
    path.write_text(shipped.read_text())
    why = tm.explain(tm.decode_step(str(path), "trn2.48xlarge", batch=1, context=64))
    assert why.model_source == FROM_CALL
    assert why.model_locator == str(path)


# --- tables, cards, the terminal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", MADE)
def test_card_and_tables(made):
    why = explained(made)
    text = "\n".join(why.card())
    assert "nan" not in text.lower().replace("finance", "")
    assert text.startswith(why.head)
    frame, facts = why.to_frame(), why.by_share()
    assert frame.level.iloc[0] == 0
    assert frame.share.iloc[0] == 1.0
    assert set(frame.level.diff().dropna()) <= {1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0}  # no level is skipped
    assert set(facts.fact) == {one.fact for one in why.facts}
    assert facts.share.abs().dropna().is_monotonic_decreasing


def call(*args):
    result = CliRunner().invoke(app, [*args])
    return result.exit_code, result.output


COMMANDS = [
    "decode llama-3.1-8b trn2 --tp 8",
    "prefill llama-3.1-8b trn2 --tp 8 --in 2000",
    "fit llama-3.1-8b trn2 --tp 8",
    "power llama-3.1-8b trn2 --tp 8",
    "collective all_reduce 64MB trn2",
    "plan llama-3.1-8b --in 1000 --out 200 --speed 50 --systems trn2",
    "cost llama-3.1-8b trn2 hgx-h100 --in 1000 --out 200",
    "train llama-3.1-8b --systems trn2 --tokens 1T --chips 64",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_where_its_answer_comes_from(command):
    status, plain = call(*command.split())
    explained = call(*command.split(), "--explain")
    assert (status, explained[0]) == (0, 0)
    assert explained[1].startswith(plain.rstrip("\n"))
    assert "It stands most on: " in explained[1]


@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[5], COMMANDS[6]])
def test_an_explanation_as_json(command):
    data = json.loads(CliRunner().invoke(app, [*command.split(), "--json", "--explain"]).stdout)
    rows = data["explanation"]
    assert rows[0]["level"] == 0
    assert {"name", "formula", "values", "share", "fact", "source", "locator", "answer_under_rival"} <= {*rows[0]}
    assert "explanation" not in json.loads(CliRunner().invoke(app, [*command.split(), "--json"]).stdout)


def test_several_scenarios_are_explained_as_json_alone(tmp_path):
    text = "model: llama-3.2-1b\nsystems: [trn2.3xlarge]\nrequest: {input_tokens: %d, output_tokens: 64}\n"
    for name, tokens in (("a", 512), ("b", 1024)):
        (tmp_path / f"{name}.yaml").write_text(text % tokens)
    args = [word for name in "ab" for word in ("--scenario", str(tmp_path / f"{name}.yaml"))]
    refused = CliRunner().invoke(app, ["cost", *args, "--explain"])
    assert refused.exit_code == 2
    assert "--explain: a table of several scenarios has no room for it" in refused.stderr
    both = json.loads(CliRunner().invoke(app, ["cost", *args, "--explain", "--json"]).stdout)
    assert [one["answer"]["explanation"][0]["level"] for one in both] == [0, 0]


def test_what_cannot_be_is_not_explained():
    status, text = call("decode", "llama-3.3-70b", "trn2", "--tp", "1", "--explain")
    assert status == 3
    assert "It stands most on" not in text


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, 0.037, "time", [], np.ones(3), tm.Request(1, 1), tm.chip("trainium2")])
def test_what_is_no_answer_is_refused_by_name(answer):
    with pytest.raises(ValueError, match=r"^answer=.*allowed is an answer of one point: a Step, "):
        tm.explain(answer)


@pytest.mark.parametrize("batch", [[1, 2], [16]])
def test_arrays_of_points_are_refused(batch):
    with pytest.raises(ValueError, match=r"answer='Step of an array': .*asked with plain numbers"):
        tm.explain(decode(batch=batch))


def test_a_point_that_cannot_exist_is_refused_with_its_reason():
    with pytest.raises(ValueError, match="answer='Step that cannot exist': does not fit in memory"):
        tm.explain(decode(mapping=tm.Mapping(tp=1)))


def test_an_owners_cost_is_refused():
    costs = tm.token_cost("llama-3.1-8b", REQUEST, "hgx-h100")
    owned = costs.priced({"hgx-h100": tm.tco("hgx-h100")})
    with pytest.raises(ValueError, match="answer='TokenCost of an owner'"):
        tm.explain(owned.lines[0])


def test_a_plan_is_explained_by_its_best_choice():
    plan = tm.plan("llama-3.1-8b", REQUEST, "trn2.48xlarge")
    assert tm.explain(plan).value == tm.explain(plan.best).value


def test_a_choice_at_a_stated_rate_is_explained_by_the_load_of_a_replica():
    """Whole systems are paid for a stated rate, which a small change does not move."""
    best = choice(replace(REQUEST, requests_per_s=40.0))
    why = tm.explain(best)
    assert why.value == pytest.approx(best.requests_per_s_per_replica)
    assert "Whole systems are paid for its requests, in jumps" in why.head
