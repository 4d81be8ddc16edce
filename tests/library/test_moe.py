"""Expert routing: hand-counted cases and limits."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnmodel.formulas import moe


@pytest.mark.parametrize(("experts", "k", "groups"), [(4, 2, 2), (8, 2, 4), (8, 3, 2), (12, 4, 3), (6, 6, 3)])
def test_destinations_by_counting_every_draw(experts, k, groups):
    draws = list(combinations(range(experts), k))
    counted = sum(len({e * groups // experts for e in draw}) for draw in draws) / len(draws)
    assert moe.distinct_destinations(experts, k, groups) == pytest.approx(counted)


def test_distinct_experts_by_hand():
    # two tokens, 1 of 4 experts each: 1 + 3/4 = 1.75; DeepSeek-V3 at batch 32: 256 (1 - (31/32)^32) = 163.3
    assert moe.distinct_experts(4, 1, 2) == pytest.approx(1.75)
    assert moe.distinct_experts(256, 8, 32) == pytest.approx(256 * (1 - (31 / 32) ** 32))


@given(st.integers(1, 64), st.integers(1, 8), st.floats(1, 1e6))
def test_bounds(per_group, k, tokens):
    experts = per_group * 8
    k = min(k, experts)
    distinct = moe.distinct_experts(experts, k, tokens)
    assert k * (1 - 1e-9) <= distinct <= experts
    destinations = moe.distinct_destinations(experts, k, 8)
    assert 1 - 1e-9 <= destinations <= min(k, 8) + 1e-9


def test_arrays_equal_scalars():
    groups = np.array([1, 2, 4, 8, 16])
    k = np.array([[1], [2], [8]])
    together = moe.distinct_destinations(256, k, groups)
    alone = [[float(moe.distinct_destinations(256, a, b)) for b in groups] for a in k[:, 0]]
    np.testing.assert_allclose(together, alone, rtol=1e-14)


@pytest.mark.parametrize(("experts", "k", "tokens", "block"), [(4, 1, 6, 2), (4, 2, 5, 3), (3, 1, 9, 4), (5, 2, 2, 2)])
def test_blocks_hold_the_worst_of_all_distributions(experts, k, tokens, block):
    """The most blocks over every way to give T k routed rows to experts, an expert taking at most T of them."""
    ways = product(range(tokens + 1), repeat=experts)
    worst = max(sum(-(-rows // block) for rows in way) for way in ways if sum(way) == tokens * k)
    assert worst <= moe.expert_blocks(experts, k, tokens, block) <= tokens * k
    if tokens * k >= experts - 1 + block:
        assert moe.expert_blocks(experts, k, tokens, block) <= worst + 1


def test_blocks_by_hand():
    # Trinity Mini, prompt of 2,048: (2048 x 8 - 127) / 512 = 31.8 -> 32 blocks, and one for each of 127 other experts
    assert moe.expert_blocks(128, 8, 2048, 512) == 159
    assert moe.expert_blocks(16, 1, 8, 1) == 8


def test_routing_grows_with_waiting_cores_and_selected_tokens():
    # 94 layers x 20 us x log2(2 x 64) x the fourth root of 2 x 8 experts; from 128/8 tokens on as long as there
    assert moe.routing_s(94, 20e-6, 64, 2, 128, 8, True) == pytest.approx(94 * 20e-6 * 7 * 2)
    assert moe.routing_s(94, 20e-6, 64, 1000, 128, 8, True) == moe.routing_s(94, 20e-6, 64, 16, 128, 8, True)
    # all of a rank's experts on all tokens: one token's 16 experts, whatever the batch
    assert moe.routing_s(94, 20e-6, 64, 1000, 128, 16, False) == pytest.approx(94 * 20e-6 * 7 * 2)
    assert moe.routing_s(94, 20e-6, 1, 1, 128, 1, True) == pytest.approx(94 * 20e-6)


def test_blocks_run_full_and_read_their_expert_each():
    # 159 blocks of 512 rows for 2,048 x 8 routed ones; one read of an expert a block
    assert moe.block_work_ratio(159, 512, 2048 * 8, 128, 8) == 159 * 512 / (2048 * 8)
    assert moe.block_read_share(159, 128) == 159 / 128
    assert (moe.block_work_ratio(0, 512, 32, 128, 8), moe.block_read_share(0, 128)) == (16, 1)
