"""Uneven load of experts: the printed tables, limits by hand, and that no answer gains from it."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.formulas import moe
from trnmodel.steps import assemble

NVL72, NL72 = "gb200-nvl72", "trn3-nl72x2-pcie160"
FULLEST_OF_64 = NormalDist().inv_cdf((64 - 0.375) / 64.25)
DEEPSEEK = {"model": "deepseek-v3", "system": NVL72, "precision": "fp8", "efficiencies": "hand-tuned"}


def spread_of(std, mean):
    """Spread beside that of drawing tokens: variance of the load less 1/m, m tokens a rank."""
    return np.sqrt((std / mean) ** 2 - 1 / mean)


@pytest.mark.parametrize(("ranks", "std", "printed"), [(32, 52.0, 0.109), (36, 53.9, 0.115)])
def test_the_fullest_rank_with_a_balancer_is_as_full_as_printed(ranks, std, printed):
    """TensorRT-LLM, table 1: the standard deviation goes in, the printed (max - mean) / mean comes out, within 5 %."""
    found = moe.load_imbalance(ranks, 1024, spread_of(std, 1024))
    assert found - 1 == pytest.approx(printed, rel=0.05)


def test_without_a_balancer_the_tail_is_heavier_than_normal():
    """491.6 of 1,024 tokens on 32 ranks: 2.564 printed, and a normal law stops below."""
    found = moe.load_imbalance(32, 1024, spread_of(491.6, 1024))
    assert 1.9 < found < 2.564


def test_tokens_that_are_drawn_fill_ranks_unevenly_as_simulated():
    """Equal experts, 16 ranks, 64 tokens' experts a rank: the mean of the fullest of many draws."""
    rng = np.random.default_rng(5)
    drawn = rng.multinomial(16 * 64, [1 / 16] * 16, size=4000).max(axis=1).mean() / 64
    assert moe.load_imbalance(16, 64, 1e-9) == pytest.approx(drawn, rel=0.02)


def test_limits_of_the_load():
    assert moe.load_imbalance(1, 1e-3, 0.5) == 1
    assert moe.load_imbalance(64, 1e-3, 0.0) == 1
    assert moe.load_imbalance(8, 1e-6, 0.1) == 8  # one token: one rank has it all
    assert moe.load_imbalance(2, np.inf, 0.1) == pytest.approx(1 + 0.1 * 0.5895, rel=1e-3)  # Blom of two


def test_a_step_takes_the_spread_of_its_software():
    """64 ranks, 1,024 sequences, 8 experts each: 128 a rank; the step is that of the imbalance by hand."""
    ask = DEEPSEEK | {"mapping": tm.Mapping(ep=64), "batch": 1024, "context": 4096}
    c = tm.efficiencies("gb200", "hand-tuned").expert_spread
    uneven = 1 + np.sqrt(c**2 + 1 / 128) * FULLEST_OF_64
    assert tm.decode_step(**ask).time_s == pytest.approx(
        float(tm.decode_step(**ask, expert_imbalance=uneven).time_s), rel=1e-6
    )
    assert tm.decode_step(**ask).time_s > tm.decode_step(**ask, expert_imbalance=1.0).time_s
    low, high = (
        tm.decode_step(**ask | {"efficiencies": replace(tm.efficiencies("gb200", "hand-tuned"), expert_spread=x)})
        for x in tm.efficiencies("gb200", "hand-tuned").range("expert_spread")
    )
    assert low.time_s < tm.decode_step(**ask).time_s < high.time_s


def test_the_ideal_and_dense_models_have_none():
    ask = DEEPSEEK | {"mapping": tm.Mapping(ep=64), "batch": 1024, "context": 4096, "efficiencies": "ideal"}
    assert tm.decode_step(**ask).time_s == tm.decode_step(**ask, expert_imbalance=1.0).time_s
    dense = {"model": "llama-3.3-70b", "system": NVL72, "mapping": tm.Mapping(tp=8), "efficiencies": "hand-tuned"}
    dense |= {"batch": 64, "context": 4096}
    assert tm.decode_step(**dense).time_s == tm.decode_step(**dense, expert_imbalance=1.0).time_s


def test_experts_that_all_run_do_not_follow_their_load():
    """Public software on Trainium runs all experts of a rank on all tokens under EP: the load changes nothing there."""
    e = replace(tm.efficiencies("trainium3"), expert_spread=0.5)
    ask = {"model": "deepseek-v3", "system": NL72, "mapping": tm.Mapping(tp=4, ep=32), "batch": 256, "context": 4096}
    ask |= {"precision": "mxfp8", "efficiencies": e}
    assert tm.decode_step(**ask).time_s == tm.decode_step(**ask, expert_imbalance=1.0).time_s


@pytest.mark.parametrize("system", [NVL72, NL72, "hgx-h200", "trn2-ultraserver"])
def test_no_random_step_gains_from_a_larger_spread(system):
    rng = np.random.default_rng(11)
    e = tm.efficiencies(tm.system(system).chip, "hand-tuned")
    spreads = np.sort(np.r_[0.0, 10.0 ** rng.uniform(-3, 0.5, 6)])
    for _ in range(12):
        ep, tp = 2 ** rng.integers(0, 7), 2 ** rng.integers(0, 3)
        ask = {"system": system, "mapping": tm.Mapping(ep=ep, tp=tp), "precision": "bf16"}
        ask |= {"model": ("qwen3-30b-a3b", "deepseek-v3")[rng.integers(2)]}
        at = replace(e, expert_spread=spreads)
        steps = (
            tm.decode_step(batch=ep * 2.0 ** rng.integers(0, 9), context=2048, efficiencies=at, **ask),
            tm.prefill(batch=ep, input_tokens=2.0 ** rng.integers(5, 13), efficiencies=at, **ask),
        )
        for step in steps:
            times = np.broadcast_to(step.compute_s + step.memory_s + step.network_s, spreads.shape)
            if np.isfinite(times).all():
                assert np.all(np.diff(times) >= -1e-12 * times[:-1]), (system, ask)
                assert np.all(np.diff(np.broadcast_to(step.time_s, spreads.shape)) >= -1e-12)


def test_plan_cost_and_energy_pay_for_it():
    """The same search with even and with uneven experts: fewer tokens, more dollars and more joules per token."""
    e = replace(tm.efficiencies("gb200", "hand-tuned"), ranges={})
    ask = {"model": "deepseek-v3", "request": tm.Request(4096, 512, 20), "precision": "fp8", "systems": [NVL72]}
    plans = [tm.plan(**ask, users=5000, efficiencies=replace(e, expert_spread=x)) for x in (0.0, 0.02, 0.5)]
    rates = [float(one.best.tokens_per_s_per_chip) for one in plans]
    assert rates[0] >= rates[1] >= rates[2]  # another mapping may be the best then
    steps = [
        tm.decode_step(**DEEPSEEK | {"efficiencies": replace(e, expert_spread=x)}, mapping=tm.Mapping(ep=64),
                       batch=1024, context=4096)
        for x in (0.0, 0.02, 0.5)
    ]  # fmt: skip
    joules = [float(tm.energy(step).server_j_per_token) for step in steps]
    assert joules[0] < joules[1] < joules[2]


def test_the_load_reaches_the_work_of_a_rank():
    question = tm.decode_step(**DEEPSEEK, mapping=tm.Mapping(ep=64), batch=64, context=1024).question
    work = question.step_work().work
    c = question.setting.e.expert_spread
    assert work.expert_imbalance == pytest.approx(1 + np.sqrt(c**2 + 1 / 8) * FULLEST_OF_64, rel=1e-12)
    assert assemble.EXPERT_EXECUTIONS[int(work.expert_execution)] == "needed"
