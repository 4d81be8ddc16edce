"""Expert routing: hand-counted cases and limits."""

from itertools import combinations

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
