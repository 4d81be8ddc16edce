"""What the workbench works out is what the public calls answer, or the library's own reason in words."""

import random

import numpy as np
import pytest

import trnmodel as tm
from trnbook.shared import case
from trnbook.workbench import ServingState, TrainingState, answers, best, side_by_side
from trnbook.workbench.answers import FIRST, ORDINARY, tiers_of
from trnbook.workbench.shown import page
from trnbook.workbench.state import drafts, software, training_software

PLACES = [  # a dense model, mixtures of experts, three generations of Trainium and a GPU
    ("llama-3.1-8b", "trn1.32xlarge", "bf16"),
    ("llama-3.3-70b", "trn2.48xlarge", "fp8"),
    ("qwen3-30b-a3b", "trn2.48xlarge", "bf16"),
    ("deepseek-v3", "trn3-nl72x2-pcie160", "mxfp8"),
    ("deepseek-v3", "hgx-h200", "fp8"),
    ("llama-3.1-8b", "hgx-h200", "bf16"),
]


def states(model, system, precision, n=12):
    """Random servers of one place: degrees, batch and lengths, some of which cannot run."""
    drawn = random.Random(f"{model} on {system}")
    for _ in range(n):
        prompt = drawn.choice([128, 1000, 4096, 100_000])
        yield ServingState(
            model=model,
            system=system,
            precision=precision,
            tp=drawn.choice([1, 2, 4, 8, 16]),
            ep=drawn.choice([1, 1, 4, 16]) if model in ("qwen3-30b-a3b", "deepseek-v3") else 1,
            batch=drawn.choice([1, 4, 16, 64]),
            prompt=prompt,
            context=prompt + drawn.choice([1, 64, 1024]),
            speed=drawn.choice([0.0, 0.0, 20.0]),
        )


def calls(s):
    """The public calls for a server without drafts on the chip's public software."""
    at, ask = (s.model, s.system, tm.Mapping(tp=s.tp, ep=s.ep)), {"precision": s.precision}
    mean = s.prompt + (s.context - s.prompt) / 2
    step = tm.decode_step(*at, batch=s.batch, context=mean, max_context=s.context, **ask)
    prompts = min(s.ep, s.batch)
    fit = tm.memory_fit(*at, batch=s.batch, context=s.context, input_tokens=s.prompt, prompts=prompts, **ask)
    request = tm.Request(s.prompt, s.context - s.prompt, tokens_per_s_per_user=s.speed or None)
    return step, fit, tm.serve(s.model, request, *at[1:], max_batch=s.batch, **ask)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " on ".join(place[:2]))
def test_answers_are_those_of_the_public_calls(place):
    ran = 0
    for state in states(*place):
        one, (step, fit, served) = answers(state), calls(state)
        if not one.runs:
            assert not (step.valid and fit.valid)
            assert one.reason in (str(fit.reason), str(step.reason))
            assert one.figures.empty
            assert one.spans.empty
            continue
        ran += 1
        assert one.value("time_s") == step.time_s
        assert one.value("first_rank_total_bytes") == fit.first_rank_total_bytes
        assert one.value("total_bytes") == fit.total_bytes
        if not one.note:
            assert one.value("tokens_per_s_per_user") == served.tokens_per_s_per_user
            assert one.value("tokens_per_s_per_chip") == served.tokens_per_s_per_chip
            assert one.value("ttft_s") == served.ttft_s
        rows = one.figures.set_index("figure")
        assert (rows.loc["time_s", ["low", "high"]] == [step.low, step.high]).all()
        assert rows.basis["time_s"] == step.basis
    assert ran > 1, "some of the states can run"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " on ".join(place[:2]))
def test_parts_bytes_and_exchanges_add_up(place):
    for state in states(*place):
        one = answers(state)
        if one.runs:
            assert one.spans.time_s.sum() == pytest.approx(one.value("time_s"), rel=1e-9)
            stored = one.memory.groupby("rank").stored_bytes.sum()
            assert stored[FIRST] == pytest.approx(one.value("first_rank_total_bytes"))
            assert stored[ORDINARY] == pytest.approx(one.value("total_bytes"))
            step, _, _ = calls(state)
            assert one.exchanges.time_s.sum() == pytest.approx(float(step.network_s))


def test_drafts_and_software_reach_every_call():
    """The plan of the running case drafts seven tokens; the workbench shows its figures, to the last bit."""
    c = case.choice("llama-3.3-70b", "trn2.48xlarge")
    one = answers(best(ServingState(precision=c.precision)))
    assert one.state.drafts == c.option.id
    figures = {"tokens_per_s_per_chip": c.tokens_per_s_per_chip, "ttft_s": c.ttft_s, "time_s": float(c.step.time_s)}
    assert {name: one.value(name) for name in figures} == pytest.approx(figures, rel=1e-12)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " on ".join(place[:2]))
def test_the_best_mapping_is_that_of_the_plan(place):
    model, system, precision = place
    state = best(ServingState(model=model, system=system, precision=precision, speed=20.0))
    c = tm.plan(model, tm.Request(4096, 512, tokens_per_s_per_user=20), system, precision=precision).best
    assert (state.tp, state.ep, state.pp, state.cp, state.batch) == (c.tp, c.ep, c.pp, c.cp, c.batch)
    assert state.option.id == c.option.id
    one = answers(state)
    assert one.runs
    assert one.value("tokens_per_s_per_chip") == pytest.approx(float(c.tokens_per_s_per_chip), rel=1e-9)
    low, high = c.ends("tokens_per_s_per_chip")
    row = one.figures.set_index("figure").loc["tokens_per_s_per_chip"]
    assert (row.low, row.high) == pytest.approx((float(low), float(high)), rel=1e-9)


def test_a_command_is_that_of_the_plan():
    state = best(ServingState(model="llama-3.1-8b", precision="bf16"))
    plan = tm.plan("llama-3.1-8b", state.request, "trn2.48xlarge", precision="bf16")
    one = answers(state)
    assert (one.command, one.no_command.partition(";")[0]) == (plan.command, plan.no_command)


REFUSED = {  # what is asked, and a part of the library's reason
    "heads": (ServingState(tp=3), "attention heads that TP divides"),
    "ranks": (ServingState(tp=64, pp=64), "more ranks than the system has"),
    "memory": (ServingState(tp=1), "does not fit in memory"),
    "first rank": (ServingState(tp=4, batch=14), "the first rank, which holds more, does not fit in memory"),
    "long": (ServingState(prompt=200_000, context=201_000), "longer than the model's longest context"),
    "answer": (ServingState(context=4096), "has no room for an answer"),
    "model": (ServingState(model="llama-9"), "model='llama-9' is unknown; nearest"),
    "path": (ServingState(model="nowhere/config.json"), "no such file"),
    "format": (ServingState(system="trn1.32xlarge", precision="mxfp8"), "no dense peak"),
    "encoder": (ServingState(model="bert-base-uncased", precision="bf16"), ""),
    "LNC": (ServingState(lnc=5), "lnc"),
    "train heads": (TrainingState(tp=3), "attention heads that TP divides"),
    "train memory": (TrainingState(tp=1), "does not fit in memory"),
    "no stack": (TrainingState(system="inf2.48xlarge"), "no public training stack"),
    "batch": (TrainingState(global_batch=100), "whole number of micro-batches"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_run_says_why_in_words_and_shows_no_number(name):
    state, why = REFUSED[name]
    one = answers(state)
    assert why in one.reason
    assert one.reason.isprintable()
    assert one.figures.empty
    assert one.spans.empty
    html = page(one)
    assert "This cannot run" in html
    assert "Traceback" not in html


def test_bytes_of_what_does_not_fit_are_shown_and_of_what_is_illegal_are_not():
    large, illegal = answers(ServingState(tp=1)), answers(ServingState(tp=3))
    assert (large.memory.groupby("rank").stored_bytes.sum() > large.memory.capacity_bytes.iloc[0]).all()
    assert illegal.memory.empty


def test_a_promise_that_is_not_kept_is_said_and_figures_are_those_without_it():
    missed, free = answers(ServingState(speed=1000.0)), answers(ServingState(speed=0.0))
    assert "The promise of 1,000 tokens/s per user is not kept" in missed.note
    assert missed.figures.value.tolist() == free.figures.value.tolist()
    assert not free.note


def test_names_of_others_are_text():
    html = page(answers(ServingState(model='<img src=x onerror="1">')))
    assert "<img" not in html
    assert "&lt;img" in html


TRAINED = [
    TrainingState(),
    TrainingState(micro_batch=2, recompute="full", zero=3, interleave=1),
    TrainingState(model="qwen3-30b-a3b", tp=4, pp=1, dp=4, ep=16, interleave=1, global_batch=256, zero=3),
    TrainingState(model="llama-3.1-8b", system="hgx-h200", tp=8, pp=1, dp=4, interleave=1, global_batch=64),
    TrainingState(model="llama-3.1-8b", system="trn1.32xlarge", tp=8, pp=4, dp=8, global_batch=256, seq=4096),
]


@pytest.mark.parametrize("s", TRAINED, ids=lambda s: f"{s.model} on {s.system}, ZeRO {s.zero}")
def test_a_training_step_is_that_of_the_public_call(s):
    degrees = {"tp": s.tp, "pp": s.pp, "dp": s.dp, "ep": s.ep, "cp": s.cp}
    mapping = tm.Mapping(**degrees, placement=("tp", "cp", "ep", "dp", "pp"))
    spec = tm.system(s.system)
    chips = np.ceil(float(mapping.ranks) / (spec.chip.cores / spec.chip.logical(None)))
    ask = {
        name: getattr(s, name) for name in "micro_batch global_batch seq interleave recompute zero precision".split()
    }
    step = tm.train_step(s.model, s.system, mapping, count=int(np.ceil(chips / spec.domain_chips)), **ask)
    one = answers(s)
    assert one.runs == bool(step.valid)
    assert one.memory.stored_bytes.sum() == pytest.approx(float(step.memory_bytes_per_rank))
    if one.runs:
        assert (one.value("time_s"), one.value("mfu")) == (step.time_s, step.mfu)
        assert one.spans.time_s.sum() == pytest.approx(float(step.time_s))
        assert one.value("chips") == step.chips == chips
        assert one.value("days") == pytest.approx(float(step.run_s(s.tokens)) / 86400)


def test_training_examples_run():
    assert sum(answers(s).runs for s in TRAINED) >= 3


@pytest.mark.parametrize("state", [ServingState(), best(ServingState()), TrainingState(), TRAINED[3]])
def test_a_scenario_states_the_question(state):
    one = tm.scenario(state.scenario)
    assert (one.model.id, one.systems[0].id) == (state.model, state.system)
    if isinstance(state, ServingState):
        assert one.request == state.request
        assert one.settings["precision"] == state.precision
        assert {name: one.step[name] for name in ("tp", "ep", "pp", "cp", "batch")} == {
            name: getattr(state, name) for name in ("tp", "ep", "pp", "cp", "batch")
        }
        assert one.plan().best is not None
    else:
        assert one.training["chips"] == answers(state).value("chips")
        assert one.training["global_batch"] == state.global_batch


def test_tiers_are_named_from_the_chip_outwards():
    """TP 4 fills a chip of Trainium2, EP 16 both axes of its torus; domains beyond the first are scale-out."""
    spec, mapping = tm.system("trn2.48xlarge"), tm.Mapping(tp=4, ep=16)
    assert [tiers_of(spec, mapping, group) for group in ("tp", "ep", "pp")] == ["chip", "torus x, torus y", "one rank"]
    assert tiers_of(tm.system("hgx-h200"), tm.Mapping(tp=8), "tp") == "domain"
    assert set(answers(TrainingState()).exchanges.tiers) >= {"scale-out"}


def test_software_that_there_is_can_be_asked():
    """Every choice of the lists is one that the public calls take, for models that have drafts and that have none."""
    for model, system in (("llama-3.3-70b", "trn2.48xlarge"), ("deepseek-v3", "hgx-h200"), ("gpt2", "inf2.48xlarge")):
        for name in software(model, system):
            for drafting in ("", *drafts(model, system, name)):
                ask = {"model": model, "system": system, "precision": "bf16", "prompt": 512, "context": 640}
                one = answers(ServingState(**ask, tp=8, software=name, drafts=drafting))
                assert "unknown" not in one.reason
                assert "allowed" not in one.reason
    assert training_software("inf2.48xlarge")[-1] == "ideal"


def test_configurations_stand_side_by_side():
    several = [answers(ServingState()), answers(ServingState(tp=3)), answers(TrainingState())]
    table = side_by_side(several).set_index("what")
    assert table.columns.tolist() == ["A", "B", "C"]
    assert table.A["mapping"] == "TP 4"
    assert "attention heads" in table.B["cannot run"]
    assert table.B["Decode step"] == ""
    assert table.C["mapping"] == "TP 16 x PP 4 x DP 128"
