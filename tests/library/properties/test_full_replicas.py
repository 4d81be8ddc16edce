"""A plan for users also says what its replicas do when they are full, which `compare`, `token_cost` and `energy` say.

Where whole instances leave room, several mappings serve the users on as few of them; the plan takes the one that a
plan without users takes.
"""

import itertools

import numpy as np
import pytest

import trnmodel as tm

MODELS = ("llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b", "deepseek-v3")
SYSTEMS = ("trn2.48xlarge", "trn2.3xlarge", "trn3-nl32x2-pcie160", "hgx-b200", "hgx-h100")
SPEEDS, USERS = (10.0, 20.0, 50.0), (7.0, 100.0, 777.0, 20000.0)
SAME = ("tokens_per_s_per_chip", "ttft_s", "tokens_per_s_per_user", "request_chip_s")
CLOSE = 1e-9


@pytest.fixture(scope="module")
def asked():
    """Plans for users beside the plan of the same request without them."""
    draw, found = np.random.default_rng(34), list[tuple[tm.Plan, tm.Plan]]()
    for model, system in itertools.product(MODELS, SYSTEMS):
        request = tm.Request(2048, 256, float(draw.choice(SPEEDS)))
        without = tm.plan(model, request, system)
        if without.reached:
            found += [(without, tm.plan(model, request, system, users=users)) for users in USERS]
    return found


def test_the_questions_reach_many_plans(asked):
    assert len(asked) >= 40


def test_users_take_the_mapping_of_full_replicas_unless_another_takes_fewer_instances(asked):
    other = 0
    for without, sized in asked:
        whole, full = sized.capacity.instances, sized.best.full
        rate = sized.request.requests_per_s
        replicas = np.ceil(rate / without.best.requests_per_s_per_replica * (1 - 1e-12))
        needed = np.ceil(replicas / max(without.best.replicas_per_instance, 1)) * without.best.instances
        assert whole <= needed
        assert full.tokens_per_s_per_chip <= without.best.tokens_per_s_per_chip * (1 + CLOSE)
        if full.tokens_per_s_per_chip < without.best.tokens_per_s_per_chip * (1 - CLOSE):
            assert whole < needed, (sized.best.mapping, without.best.mapping)
            other += 1
    assert other < len(asked) / 4


def test_full_figures_are_those_of_the_plan_without_users(asked):
    same = 0
    for without, sized in asked:
        if sized.best.mapping != without.best.mapping:
            continue
        same += 1
        full = sized.best.full
        for name in SAME:
            assert getattr(full, name) == pytest.approx(getattr(without.best, name), rel=CLOSE), name
            assert full.ends(name) == pytest.approx(without.best.ends(name), rel=CLOSE), name
    assert same > len(asked) / 2


def test_full_dollars_and_joules_are_those_of_the_other_calls(asked):
    for without, sized in asked[::5]:
        full, c = sized.capacity.full, sized.best.full
        cost = tm.token_cost(without.model, without.request, c.system)[c.system.id, "public"]
        if sized.best.mapping == without.best.mapping:
            assert full.usd_per_mtoken == pytest.approx(float(cost.generated_usd_per_mtoken), rel=CLOSE, nan_ok=True)
        assert full.server_j_per_token == pytest.approx(float(c.energy().server_j_per_token), rel=CLOSE)


def test_a_plan_of_no_rate_is_full_already(asked):
    for without, _ in asked[::4]:
        assert without.best.full is without.best
        assert without.capacity.full.instances == without.best.instances


def test_a_limit_and_spares_do_not_move_what_a_full_replica_does():
    request = tm.Request(2048, 256, 20.0)
    plain = tm.plan("llama-3.1-8b", request, "trn2.48xlarge").capacity
    for size in ({"chips": 100}, {"usd_per_month": 1e6}, {"users": 500, "availability": 0.999}):
        full = tm.plan("llama-3.1-8b", request, "trn2.48xlarge", **size).capacity.full
        assert full.usd_per_mtoken == pytest.approx(plain.usd_per_mtoken, rel=CLOSE)
        assert full.spare_instances == 0
