"""The grid of frontiers: each point is a decode step, and what has no points says why."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters.serving_explorer import frontier_grid
from trnmodel.catalog.stacks import KINDS
from trnmodel.search.deployments import frontiers, spread_evenly

GIB = 2**30
CASES = [
    ("llama-3.1-8b", "trn1.32xlarge", "public", "bf16", 4096.0),
    ("llama-3.3-70b", "trn2.48xlarge", "hand-tuned", "fp8", 32768.0),
    ("deepseek-v3", "trn3-nl72x2-pcie160", "public", "mxfp8", 4096.0),
    ("deepseek-v3", "trn2-ultraserver", "ideal", "bf16", 32768.0),
]


def grid(model, system, kind, precision, context, **more):
    return frontier_grid([model], [system], [kind], [precision], [context], **more)


@pytest.mark.parametrize("case", CASES)
def test_each_point_is_the_step_of_its_mapping(case):
    table = grid(*case)
    assert 2 <= len(table) <= 12
    assert (table.why == "").all()
    for row in table.itertuples():
        ask = {"batch": row.batch, "context": row.context, "precision": row.precision}
        mapping = tm.Mapping(tp=row.tp, ep=row.ep)
        step = tm.decode_step(row.model, row.system, mapping, efficiencies=KINDS[row.stack_kind], **ask)
        low, high = (float(end) / row.chips for end in step.ends("tokens_per_s"))
        assert row.tokens_per_s_per_chip == pytest.approx(row.batch / float(step.time_s) / row.chips)
        assert row.tokens_per_s_per_user == pytest.approx(1 / float(step.time_s))
        assert (row.tokens_per_s_per_chip_low, row.tokens_per_s_per_chip_high) == pytest.approx((low, high))
        assert row.time_s == pytest.approx(float(step.time_s))
        for part in ("compute_s", "memory_s", "network_s", "overhead_s"):
            assert getattr(row, part) == pytest.approx(float(getattr(step, part)))
        assert row.basis == step.basis
        e = tm.energy(step)
        if case[1] == "trn1.32xlarge":  # nobody has its watts
            assert np.isnan(row.server_j_per_token)
            assert row.energy_basis == ""
        else:
            joules = row.server_j_per_token, row.server_j_per_token_low, row.server_j_per_token_high
            assert joules == pytest.approx((float(e.server_j_per_token), *map(float, e.ends("server_j_per_token"))))
            assert row.energy_basis == e.basis
            assert joules[0] * row.tokens_per_s_per_chip == pytest.approx(float(e.server_w))


@pytest.mark.parametrize("case", CASES)
def test_each_point_has_its_owners_hour(case):
    table, cost = grid(*case), tm.tco(case[1])
    row = table.iloc[0]
    if case[1] == "trn1.32xlarge":  # nobody prices its server
        assert table.useful_usd_per_h.isna().all()
        assert row.cost_basis == ""
    else:
        dollars = row.useful_usd_per_h, row.useful_usd_per_h_low, row.useful_usd_per_h_high
        assert dollars == pytest.approx((float(cost.usd_per_h), float(cost.low), float(cost.high)))
        assert table.useful_usd_per_h.nunique() == 1
        assert row.cost_basis == "extrapolated"


@pytest.mark.parametrize("case", CASES)
def test_the_points_are_those_of_the_frontier_with_both_ends(case):
    model, system, kind, precision, context = case
    table = grid(*case)
    whole = frontiers(model, [system], context, [precision], efficiencies=KINDS[kind])
    ends = whole.tokens_per_s_per_user.iloc[[0, -1]].tolist()
    assert table.tokens_per_s_per_user.iloc[[0, -1]].tolist() == pytest.approx(ends)
    assert table.place.tolist() == list(range(1, len(table) + 1))
    assert (np.diff(table.tokens_per_s_per_user) > 0).all()
    assert (np.diff(table.tokens_per_s_per_chip) < 0).all()


def test_what_is_too_large_says_by_how_much():
    """671 billion weights of two bytes are 1,250 GiB; 16 chips of 32 GiB hold 512."""
    table = grid("deepseek-v3", "trn1.32xlarge", "ideal", "bf16", 4096)
    assert table.why.tolist() == [f"does not fit: {671e9 * 2 / GIB:,.0f} of 512 GiB"]
    assert table.tokens_per_s_per_chip.isna().all()


def test_a_format_that_a_chip_lacks_and_a_context_that_a_model_lacks_are_told():
    """Trainium1's page prints no FP8 peak; Llama-3.1 ends at 128 Ki tokens."""
    table = frontier_grid(["llama-3.1-8b"], ["trn1.32xlarge"], ["public"], ["bf16", "fp8"], [4096, 2**17 + 1], points=2)
    why = table.set_index(["precision", "context"]).why
    assert why["bf16", 4096.0].tolist() == ["", ""]
    assert why["fp8", 4096.0].endswith("not in fp8")
    assert why["bf16", 2**17 + 1] == "llama-3.1-8b has contexts of up to 131,072 tokens"


def test_a_chip_without_such_software_says_so():
    table = frontier_grid(["llama-3.1-8b"], ["tpu-v6e-pod"], ["hand-tuned"], ["bf16"], [4096])
    assert table.why.tolist() == ["no hand-tuned software of TPU v6e (Trillium) is described"]


def test_half_the_bandwidth_is_twice_the_memory_time():
    spec = tm.system("trn2.48xlarge")
    slow = replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=spec.chip.hbm_bytes_per_s / 2))
    fast, half = (grid("llama-3.1-8b", one, "ideal", "bf16", 4096) for one in (spec, slow))
    mapping = tm.Mapping(tp=half.tp.iloc[-1], ep=1)
    step = tm.decode_step("llama-3.1-8b", spec, mapping, batch=half.batch.iloc[-1], context=4096, efficiencies="ideal")
    assert half.memory_s.iloc[-1] == pytest.approx(2 * float(step.memory_s))
    assert half.tokens_per_s_per_chip.max() < fast.tokens_per_s_per_chip.max()


def test_what_is_named_twice_stands_once_and_what_is_unknown_is_refused():
    once = grid("llama-3.1-8b", "trn1.2xlarge", "public", "bf16", 2048)
    ask = ["llama-3.1-8b"] * 2, ["trn1.2xlarge"] * 2, ["public"] * 2, ["bf16"] * 2, [2048, 2048.0]
    assert len(frontier_grid(*ask)) == len(once)
    for bad in ({"stack_kinds": ["fast"]}, {"contexts": [0]}, {"points": 1}, {"precisions": ["fp9"]}, {"models": []}):
        with pytest.raises(ValueError, match=next(iter(bad)).rstrip("s")):
            frontier_grid(**{"models": ["llama-3.1-8b"], "systems": ["trn1.2xlarge"]} | bad)


def test_places_are_spread_over_the_logarithm():
    """1 to 10,000 in three: both ends, and 100, the middle of the logarithm."""
    assert spread_evenly([1, 2, 90, 5000, 10000], 3).tolist() == [0, 2, 4]
    assert spread_evenly([7.0], 5).tolist() == [0]
