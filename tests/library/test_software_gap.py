"""The gap between kinds of software: its ends are plans, its factors multiply, and each stage is a plan of its own."""

from dataclasses import fields, replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import KINDS, Efficiencies
from trnmodel.catalog.trainers import Trainer
from trnmodel.search.gaps import LAST, MECHANISMS, OF_A_REQUEST, PRECISION_FREED, TRAINING_MECHANISMS, walk
from trnmodel.search.single import best_choice

ABOUT = {"id", "name", "sources", "ranges", "estimates", "fitted_on"}  # of a stack, and no value of it
CHAT = tm.Request(4096, 512, tokens_per_s_per_user=20)
CASES = {
    "dense": ("llama-3.3-70b", "trn2.48xlarge", CHAT, {}),
    "experts": ("deepseek-v3", "trn3-nl72x2-pcie160", CHAT, {}),
    "GPU": ("deepseek-v3", "hgx-h200", CHAT, {"precision": "fp8"}),
    "Trainium1": ("llama-3.1-8b", "trn1.32xlarge", tm.Request(1024, 256, tokens_per_s_per_user=50), {}),
    "no hand-tuned stack": ("llama-3.1-8b", "tpu-v6e-pod", tm.Request(1024, 256, tokens_per_s_per_user=20), {}),
}
JOB = {"tokens": 1e12, "chips": 64, "seq": 4096, "global_batch": 256}


def planned(name, kind):
    """The plan of a case on one kind of software; public software as `tm.plan` takes it without a word."""
    model, system, request, more = CASES[name]
    return tm.plan(model, request, system, efficiencies=KINDS[kind], **more).best


@pytest.fixture(scope="module")
def gaps():
    return {
        name: tm.software_gap(model, request, system, **more) for name, (model, system, request, more) in CASES.items()
    }


@pytest.mark.parametrize(
    ("stack", "mechanisms", "about"),
    [
        (Efficiencies, MECHANISMS, ABOUT | {"range_factor", "parts_measured_on", "posterior"}),
        (Trainer, TRAINING_MECHANISMS, ABOUT),
    ],
)
def test_every_field_of_a_stack_belongs_to_one_mechanism(stack, mechanisms, about):
    listed = [name for names in mechanisms.values() for name in names]
    assert sorted(listed) == sorted({one.name for one in fields(stack)} - about)
    assert list(mechanisms)[-1] == LAST


@pytest.mark.parametrize("name", CASES)
def test_the_ends_are_plans_and_the_factors_multiply_to_their_ratio(name, gaps):
    gap = gaps[name]
    for kind in gap.kinds:
        best = planned(name, kind)
        assert gap.end(kind).value == pytest.approx(best.tokens_per_s_per_chip, rel=1e-12)
        assert gap.end(kind).configuration == best.mapping
        assert gap.end(kind).basis == str(best.basis)
    table = gap.to_frame()
    ratio = planned(name, gap.kinds[-1]).tokens_per_s_per_chip / planned(name, "ideal").tokens_per_s_per_chip
    assert table.factor.prod() == pytest.approx(ratio, rel=1e-12)
    assert gap.lost() == pytest.approx(1 / ratio, rel=1e-12)
    within = table.dropna(subset="factor_low")
    assert len(within)
    assert (within.factor_low <= within.factor).all()
    assert (within.factor <= within.factor_high).all()


def test_a_chip_without_hand_tuned_software_goes_straight_to_public(gaps):
    assert gaps["no hand-tuned stack"].kinds == ("ideal", "public")
    assert gaps["dense"].kinds == tuple(KINDS)
    assert len(gaps["dense"].stages) == 1 + 2 * len(MECHANISMS)


def test_only_experts_are_routed(gaps):
    factors = {name: gap.to_frame().groupby("mechanism").factor.prod() for name, gap in gaps.items()}
    assert factors["dense"]["routing of experts"] == 1
    assert factors["experts"]["routing of experts"] < 0.5


def test_a_stage_is_the_plan_on_a_stack_with_one_mechanism_replaced(gaps):
    """Kernels come first: the ideal stack with the shares of the hand-tuned one, planned anew in the same format."""
    model, system, request, _ = CASES["experts"]
    spec, ideal = tm.system(system), planned("experts", "ideal")
    tuned = tm.efficiencies(spec.chip, "hand-tuned")
    e = replace(ideal.stack, **{name: getattr(tuned, name) for name in MECHANISMS["kernels"]})
    by_hand = best_choice(tm.model(model), request, spec, e, ideal.precision)
    stage = gaps["experts"].stages[1]
    assert (stage.mechanism, stage.value) == ("kernels", pytest.approx(by_hand.tokens_per_s_per_chip, rel=1e-12))
    assert stage.configuration == by_hand.mapping != ideal.mapping
    low = e.moved({name: tuned.ranges[name][0] for name in MECHANISMS["kernels"] if name in tuned.open_ranges})
    least = best_choice(tm.model(model), request, spec, low, ideal.precision)
    assert stage.factor_low == pytest.approx(least.tokens_per_s_per_chip / ideal.tokens_per_s_per_chip, rel=1e-12)


def test_a_walk_ends_with_all_values_of_the_next_stack():
    ideal, public = (tm.efficiencies("trainium2", kind) for kind in ("ideal", "public"))
    *_, (_, there, _) = walk(ideal, public, MECHANISMS)
    about = {"id": public.id, "name": public.name, "fitted_on": public.fitted_on, "range_factor": public.range_factor}
    assert replace(there, **about) == public


def test_a_promise_that_public_software_breaks_is_a_plan_of_nothing():
    request = tm.Request(4096, 512, tokens_per_s_per_user=100)
    gap = tm.software_gap("deepseek-v3", request, "trn3-nl72x2-pcie160")
    assert tm.plan("deepseek-v3", request, "trn3-nl72x2-pcie160").reached is False
    last = gap.to_frame().iloc[-1]
    assert (last.tokens_per_s_per_chip, gap.lost(), gap.end("ideal").reason) == (0.0, np.inf, "")
    assert last.reason.startswith("too slow for a user")
    assert gap.loss(gap.largest()) == np.inf
    assert "too slow" in repr(gap)


def test_where_nothing_keeps_the_promise_all_factors_are_one():
    gap = tm.software_gap("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=1e6), "trn2.48xlarge")
    table = gap.to_frame()
    assert (table.tokens_per_s_per_chip == 0).all()
    assert (table.factor.dropna() == 1).all()
    assert gap.largest() is None


def broken_between(gap):
    """Whether all ends keep the promise and a stage between them does not."""
    return any(stage.reason for stage in gap.stages) and not any(gap.end(kind).reason for kind in gap.kinds)


def test_the_walk_goes_on_after_a_stage_that_keeps_no_promise():
    """Public software of GPUs keeps a speed that none of the stacks between the hand-tuned and the public one keeps."""
    requests = (tm.Request(1024, 256, tokens_per_s_per_user=speed) for speed in (200, 190, 210, 180, 220, 170, 230))
    every = ((request, tm.software_gap("deepseek-v3", request, "hgx-h200")) for request in requests)
    request, gap = next((one, gap) for one, gap in every if broken_between(gap))
    table = gap.to_frame()
    broken = table[table.tokens_per_s_per_chip == 0]
    assert len(broken)
    assert set(broken.software) == {"public"}
    assert broken.reason.str.startswith("too slow").all()
    assert len(table) == 1 + 2 * len(MECHANISMS)
    best = tm.plan("deepseek-v3", request, "hgx-h200").best
    assert gap.end("public").value == pytest.approx(best.tokens_per_s_per_chip, rel=1e-12) != 0
    assert gap.lost() == pytest.approx(gap.end("ideal").value / best.tokens_per_s_per_chip)


def test_a_model_that_fits_nowhere_has_a_reason():
    gap = tm.software_gap("deepseek-v3", tm.Request(1024, 256), "trn1.2xlarge")
    assert all(stage.reason.startswith("does not fit") for stage in gap.stages)


def test_dollars_and_joules_are_those_of_the_same_plans():
    model, system, request, _ = CASES["dense"]
    usd = tm.software_gap(model, request, system, of="usd_per_mtoken")
    joules = tm.software_gap(model, request, system, of="server_j_per_token")
    costs = tm.token_cost(model, request, system)
    for kind in KINDS:
        assert usd.end(kind).value == pytest.approx(float(costs[system, kind].generated_usd_per_mtoken), rel=1e-12)
        energy = planned("dense", kind).energy()
        assert joules.end(kind).value == pytest.approx(float(energy.server_j_per_token), rel=1e-12)
    own = tm.software_gap(model, request, system, of="usd_per_mtoken", pricing=2 * float(costs.lines[0].usd_per_chip_h))
    assert own.end("public").value == pytest.approx(2 * usd.end("public").value)
    assert usd.lost() == pytest.approx(planned("dense", "ideal").merit() / planned("dense", "public").merit())
    assert all(gap.lost() > 1 and gap.loss(gap.largest()) > 1 for gap in (usd, joules))


def test_kinds_of_software_may_run_in_their_own_formats():
    """The ideal in 4 bits and the public in 16: "precision" holds the step between two formats, and no other stage."""
    model, system, request, _ = CASES["experts"]
    gap = tm.software_gap(model, request, system, precision={"ideal": "mxfp4", "public": "bf16"})
    formats = [stage.configuration.partition(",")[0] for stage in gap.stages]
    moved = [stage for stage, one, after in zip(gap.stages[1:], formats, formats[1:], strict=False) if one != after]
    assert {stage.mechanism for stage in moved} == {PRECISION_FREED}
    assert (formats[0], formats[-1]) == ("mxfp4", "bf16")
    for kind, precision in (("ideal", "mxfp4"), ("hand-tuned", None), ("public", "bf16")):
        best = tm.plan(model, request, system, precision=precision, efficiencies=KINDS[kind]).best
        assert gap.end(kind).value == pytest.approx(best.tokens_per_s_per_chip, rel=1e-12)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"of": "days"}, "of='days'"),
        ({"of": "usd_per_mtoken"}, "pricing='capacity-block'"),
        ({"precision": "mxfp9"}, "precision='mxfp9'"),
        ({"precision": {"tuned": "bf16"}}, "precision='tuned'"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(more, said):
    with pytest.raises(ValueError, match=said):
        tm.software_gap("llama-3.1-8b", CHAT, "trn3-nl72x2-pcie160", **more)


def test_a_format_in_which_the_chip_has_no_peak_is_refused():
    with pytest.raises(ValueError, match=r"precision='mxfp8'.*computes in"):
        tm.software_gap("llama-3.1-8b", CHAT, "trn1.32xlarge", precision="mxfp8")


def test_figures_of_a_gap_are_quantities():
    assert {
        tm.software_gap("llama-3.1-8b", CHAT, "trn2.48xlarge", of=of).to_frame().columns[2] for of in OF_A_REQUEST
    } == {*OF_A_REQUEST}


@pytest.mark.parametrize(
    ("model", "system"),
    [("llama-3.1-8b", "trn2-ultraserver"), ("llama-3.1-8b", "hgx-h100"), ("mixtral-8x7b-v0.1", "hgx-a100")],
)
def test_a_gap_in_training_ends_in_runs(model, system):
    gap = tm.training_gap(model, system, **JOB)
    for kind in gap.kinds:
        run = tm.train_run(model, system, efficiencies=kind, **JOB)
        assert gap.end(kind).value == pytest.approx(float(run.days), rel=1e-12)
    table = gap.to_frame()
    assert table.factor.prod() == pytest.approx(table.days.iloc[-1] / table.days.iloc[0], rel=1e-12)
    assert gap.lost() == pytest.approx(table.days.iloc[-1] / table.days.iloc[0])
    assert set(table.mechanism[1:]) == set(TRAINING_MECHANISMS)
