"""`tm.compare`: systems side by side for one request, against draws and searches that are written out here."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.draws import cause, deviations
from trnmodel.search import single as planner
from trnmodel.search.compare import objective

SMALL, LARGE, EXPERTS = "llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b"
TRN2, H100, TRN3 = "trn2.48xlarge", "hgx-h100", "trn3-nl72x2-pcie160"
CHAT = tm.Request(1024, 256)


@pytest.fixture(scope="module")
def three():
    return tm.compare(LARGE, CHAT, [TRN3, TRN2, H100], speeds=[60, 20, 60])


def test_each_line_is_the_answer_of_a_plan(three):
    assert three.speeds == (20.0, 60.0)
    for c in three.lines:
        request = replace(CHAT, tokens_per_s_per_user=c.question.request.tokens_per_s_per_user)
        best = tm.plan(LARGE, request, c.system.id).best
        assert (best.mapping, best.option.id, best.ends("tokens_per_s_per_chip"), best.chance) == (
            *(c.mapping, c.option.id),
            *(c.ends("tokens_per_s_per_chip"), c.chance),
        )


@pytest.mark.parametrize(("model", "speeds"), [(LARGE, [20, 60]), (EXPERTS, [30, 1000])])
def test_leads_and_differences_by_brute_force(model, speeds):
    """Every draw is replayed alone, and who leads in it is counted one by one."""
    found = tm.compare(model, CHAT, [TRN2, TRN3, H100], speeds=speeds)
    for speed in found.speeds:
        some = found.at(speed)
        made = []
        for c in some:
            zs = [deviations(cause(c.stack, c.system, phase)) for phase in ("decode", "prefill")]
            made.append([c.column.replay(*([z[i]] for z in zs))["tokens_per_s_per_chip"][0] for i in range(1000)])
        alone, shared, none = dict.fromkeys(range(len(some)), 0), dict.fromkeys(range(len(some)), 0), 0
        for values in np.array(made).T.tolist():
            running = [x for x in values if x == x]
            first = [i for i, x in enumerate(values) if x == x and x >= 0.99 * max(running)]
            none += not first
            for i in first:
                (alone if len(first) == 1 else shared)[i] += 1
        lead = found.leads[speed]
        for i, c in enumerate(some):
            assert lead.alone[c.system.id] == pytest.approx(alone[i] / 1000, abs=1e-12)
            assert lead.shared[c.system.id] == pytest.approx(shared[i] / 1000, abs=1e-12)
        assert lead.none == pytest.approx(none / 1000, abs=1e-12)
        assert sum(lead.alone.values()) + lead.tied + lead.none == pytest.approx(1)
        a, b = (np.array(x) for x in made[:2])
        gap = found.difference(some[0].system.id, some[1].system.id, speed)
        both = np.isfinite(a) & np.isfinite(b)
        assert gap.both == both.mean()
        if both.any():
            ordered = np.sort((a / b - 1)[both])
            last = len(ordered) - 1
            np.testing.assert_allclose(gap[1:3], [ordered[int(0.05 * last)], ordered[int(np.ceil(0.95 * last))]])
        assert sum(gap[3:]) == pytest.approx(1)


def test_the_order_of_the_systems_changes_nothing(three):
    other = tm.compare(LARGE, CHAT, [H100, TRN3, TRN2], speeds=[20, 60])
    assert other.card() == three.card()
    assert other.leads == three.leads
    assert other.flips == three.flips


def test_an_equal_twin_ties_in_all_draws():
    twin = replace(tm.system(TRN2), id="my-twin")
    both = tm.compare(SMALL, CHAT, [twin, TRN2], speeds=[30])
    assert both.leader == {30.0: TRN2}  # the catalog's comes first
    assert both.ties == {30.0: ["my-twin"]}
    assert both.leads[30.0].tied == 1
    gap = both.difference(TRN2, twin)
    assert (gap.value, gap.low, gap.high, gap.both) == (0, 0, 0, 1)
    assert both.flips == ()


def test_an_alias_is_the_system_itself():
    again = tm.compare(SMALL, CHAT, [TRN2, TRN2, tm.system(TRN2)], speeds=30)
    assert [c.system.id for c in again.lines] == [TRN2]
    assert again.leads[30.0].alone == {TRN2: 1.0}


def test_at_a_flip_the_order_of_a_plan_changes(three):
    found = tm.compare(LARGE, CHAT, [TRN2, TRN3, H100], speeds=[50])
    assert found.flips
    for flip in found.flips:
        for factor, first, second in ((1 - 1e-6, flip.below, flip.above), (1 + 1e-6, flip.above, flip.below)):
            request = replace(CHAT, tokens_per_s_per_user=flip.tokens_per_s_per_user * factor)
            one, other = (tm.plan(LARGE, request, name).best for name in (first, second))
            assert one.valid
            assert not other.valid or one.tokens_per_s_per_chip > other.tokens_per_s_per_chip


@pytest.mark.parametrize("model", [SMALL, EXPERTS])
def test_the_vectorised_objective_is_the_plan_s(model):
    request = replace(CHAT, ttft_s=3.0)
    speeds = np.array([5.0, 25.0, 80.0, 1e6])
    for name in (TRN2, TRN3, H100):
        spec, own = tm.system(name), tm.model(model)
        made = objective(planner.questions_of(own, request, spec, None, None), speeds)
        for speed, x in zip(speeds, made, strict=True):
            best = planner.best_choice(own, replace(request, tokens_per_s_per_user=float(speed)), spec, None, None)
            assert best.valid == np.isfinite(x)
            if best.valid:
                np.testing.assert_allclose(x, best.tokens_per_s_per_chip, rtol=1e-9)


def test_one_system_alone():
    one = tm.compare(SMALL, replace(CHAT, tokens_per_s_per_user=30), TRN2)
    assert (one.speeds, one.flips, one.leader) == ((30.0,), (), {30.0: TRN2})
    assert one.to_frame().role.tolist() == ["leader"]
    assert tm.compare(SMALL, CHAT, TRN2).leader == {None: TRN2}


def test_where_no_system_keeps_the_promise():
    none = tm.compare(SMALL, CHAT, [TRN2, H100], speeds=[1e6])
    assert none.leader == {1e6: None}
    assert none.ties == {1e6: []}
    assert none.leads[1e6].none == 1
    assert "no system keeps the promise" in none.card()[1]
    assert set(none.to_frame().role) == {"system"}
    gap = none.difference(TRN2, H100)
    assert np.isnan(gap.low)
    assert gap.neither == 1


def test_a_system_that_the_model_does_not_fit_says_why():
    some = tm.compare("deepseek-v3", CHAT, ["trn2.3xlarge", TRN3], speeds=[10])
    assert list(some.refused) == ["trn2.3xlarge"]
    assert "GiB" in some.refused["trn2.3xlarge"]
    assert some.to_frame(True).role.tolist() == ["leader", "refused"]
    assert some.refused["trn2.3xlarge"] in some.card()[-1]


def test_a_baseline_is_what_the_others_are_compared_with(three):
    some = tm.compare(LARGE, CHAT, [TRN2, H100], speeds=[20], baseline=TRN2)
    table = some.to_frame(True).set_index("system")
    assert set(table.baseline) == {TRN2}
    assert table.difference[TRN2] == 0
    assert table.difference[H100] == pytest.approx(
        table.tokens_per_s_per_chip[H100] / table.tokens_per_s_per_chip[TRN2] - 1
    )


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"speeds": [20, -1]}, "speeds"),
        ({"speeds": []}, "speeds"),
        ({"speeds": "fast"}, "speeds"),
        ({"speeds": np.nan}, "speeds"),
        ({"systems": []}, "systems"),
        ({"systems": None}, "systems"),
        ({"systems": ["no-such-system"]}, "systems"),
        ({"systems": [TRN2, replace(tm.system(TRN2), status="analyst")]}, "systems"),
        ({"baseline": H100}, "baseline"),
        ({"baseline": "nothing"}, "baseline"),
        ({"baseline": 3}, "baseline"),
        ({"request": replace(CHAT, input_tokens=[512, 1024])}, "request"),
        ({"request": 50}, "request"),
        ({"precision": "fp3"}, "precision"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(more, named):
    with pytest.raises(ValueError, match=named):
        tm.compare(**{"model": SMALL, "request": CHAT, "systems": [TRN2], "speeds": [20]} | more)


def test_what_cannot_be_asked_of_a_comparison(three):
    for call, named in (
        (lambda: three.at(33), "speed"),
        (lambda: three.at(), "speed"),
        (lambda: three.at([20, 60]), "speed"),
        (lambda: three.at("fast"), "speed"),
        (lambda: three.compared_with(float("nan")), "speed"),
        (lambda: three.difference(TRN2, "hgx-h200", 20), "b="),
        (lambda: three.difference([TRN2], H100, 20), "a="),
    ):
        with pytest.raises(ValueError, match=named):
            call()


@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from(["llama-3.1-8b", "llama-3.3-70b", "deepseek-v3"]),
    system=st.sampled_from(["trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-b200"]),
    speed=st.sampled_from([10.0, 20.0, 50.0, 100.0]),
    users=st.sampled_from([1, 40, 1000, 30_000]),
)
def test_whole_instances_follow_from_the_loads_of_replicas_as_a_plan_counts_them(model, system, speed, users):
    """By the equation of `Comparison.loads`; a plan has searched all points for the fewest instances."""
    loads = tm.compare(model, tm.Request(4096, 512), system, speeds=speed).loads()
    plan = tm.plan(model, tm.Request(4096, 512, tokens_per_s_per_user=speed), system, users=users)
    assert bool(len(loads)) == plan.reached
    if plan.reached:
        chips, rate = tm.system(system).chips, users * speed / 512
        replicas = np.ceil(rate / loads.requests_per_s_per_replica)
        whole = np.where(
            loads.chips <= chips, np.ceil(replicas / (chips // loads.chips)), replicas * loads.chips / chips
        )
        assert whole.min() == plan.capacity.instances


def test_no_speculation_is_the_best_plan_on_public_software_that_drafts_nothing():
    request = tm.Request(4096, 512, tokens_per_s_per_user=50.0)
    plain = tm.compare(LARGE, request, [TRN2, TRN3, H100], efficiencies="no-speculation")
    assert not any(c.option.speculates for c in plain.lines)
    made = {c.system.id: c.tokens_per_s_per_chip for c in plain.lines}
    for system in (TRN2, TRN3):
        stacks = ("vllm-neuron-2026", "vllm-neuron-2026-async")
        plans = [tm.plan(LARGE, request, system, efficiencies=stack).best for stack in stacks]
        assert made[system] == max(c.tokens_per_s_per_chip for c in plans if c.valid)
    assert made[H100] == tm.plan(LARGE, request, H100).best.tokens_per_s_per_chip  # its best drafts nothing
