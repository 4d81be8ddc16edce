"""Watts of any step: between idle and TDP, more for more work, parts that sum, ends around the middle."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.formulas import energy as page

SYSTEMS = ["trn2.48xlarge", "trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", "hgx-h100", "hgx-b200", "hgx-h200"]
MODELS = ["llama-3.1-8b", "gpt-oss-120b", "qwen3-30b-a3b", "mixtral-8x7b"]
FIGURES = (
    "chip_w",
    "server_w",
    "all_in_w",
    "facility_w",
    "site_w",
    "tdp_w",
    "bottom_up_w",
    "chip_j_per_token",
    "server_j_per_token",
    "all_in_j_per_token",
    "facility_j_per_token",
    "chip_step_j",
    "chip_j_per_flop",
    "tokens_per_s_per_site_mw",
    "chips_per_site_mw",
)


def steps(seed, many=12):
    rng = np.random.default_rng(seed)
    for _ in range(many):
        system, tp = str(rng.choice(SYSTEMS)), int(rng.choice([4, 8]))
        ask = {"model": str(rng.choice(MODELS)), "system": system, "mapping": tm.Mapping(tp=tp)}
        batch = np.unique(np.round(np.exp(rng.uniform(0, 6, 16))))
        precision = str(rng.choice(["bf16", "fp8"]))
        yield tm.decode_step(**ask, batch=batch, context=int(rng.integers(1, 9000)), precision=precision)
        yield tm.prefill(**ask, batch=1, input_tokens=np.unique(rng.integers(1, 9000, 8)), precision=precision)


@pytest.mark.parametrize("seed", range(3))
def test_watts_lie_where_they_must(seed):
    for step in steps(seed):
        found = tm.energy(step)
        ok = found.valid
        tdp, idle = (np.broadcast_to(x, ok.shape)[ok] for x in (found.tdp_w, found.idle_w))
        watts = found.chip_w[ok]
        assert np.all((idle <= watts) & (watts <= tdp))
        np.testing.assert_allclose((found.idle_w + found.compute_w + found.hbm_w)[ok], watts, rtol=1e-12)
        assert np.all(found.bottom_up_w[ok] <= tdp * (1 + 1e-12))
        assert np.all(np.isnan(found.chip_w[~ok]))
        for name in FIGURES:
            low, high = found.ends(name)
            value = getattr(found, name)
            inside = (low <= value * (1 + 1e-12)) & (value <= high * (1 + 1e-12))
            assert np.all(np.broadcast_to(inside, ok.shape)[ok]), name


@pytest.mark.parametrize("seed", range(3))
def test_watts_scale_with_the_tdp_and_joules_with_the_watts(seed):
    for step in steps(10 + seed, 4):
        where = step.system
        twice = replace(where, chip=replace(where.chip, tdp_w=2 * where.chip.tdp_w, all_in_w=np.nan))
        one, two = tm.energy(step), tm.energy(replace(step, system=twice))
        for name in ("chip_w", "idle_w", "compute_w", "hbm_w", "static_w", "chip_j_per_token", "chip_step_j"):
            np.testing.assert_allclose(getattr(two, name), 2 * getattr(one, name), rtol=1e-12)


def test_more_activity_never_takes_less():
    rng = np.random.default_rng(5)
    a, b = np.sort(rng.uniform(0, 10, (2, 1000)), axis=0)
    tdp, idle = rng.uniform(100, 2000, 1000), rng.uniform(0, 1, 1000)
    assert np.all(page.chip_w(tdp, idle, a) <= page.chip_w(tdp, idle, b))
    assert np.all(page.chip_w(tdp, idle * 0.5, a) <= page.chip_w(tdp, idle, a))
    np.testing.assert_allclose(page.part_w(tdp, a, a + b) + page.part_w(tdp, b, a + b), tdp, rtol=1e-12)
