"""Waiting, requests in flight and tokens of requests: limits and arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnmodel.formulas import latency


@given(st.integers(0, 12), st.floats(0, 1))
def test_drafts_yield_the_sum_of_their_chances(draft, acceptance):
    """1 + a + a^2 + ... + a^d."""
    assert latency.tokens_per_step(draft, acceptance) == pytest.approx(sum(acceptance**i for i in range(draft + 1)))


def test_waiting_by_hand():
    # half busy, service of 2 s: those that wait do so for 2 / (2 x 0.5) = 2 s on average; ln(0.5 / 0.01) = 3.912 of it
    assert latency.waiting_s(0.5, 2.0, 0.99) == pytest.approx(2 * np.log(50))
    assert latency.waiting_s(0.005, 2.0, 0.99) == 0
    assert latency.waiting_s(1.5, 2.0, 0.5) > 1e15


@given(st.floats(0.01, 0.98), st.floats(0.01, 0.98), st.floats(0.5, 0.999))
def test_a_busier_server_is_waited_for_longer(one, other, quantile):
    low, high = sorted((one, other))
    assert latency.waiting_s(low, 1.0, quantile) <= latency.waiting_s(high, 1.0, quantile)


def test_in_flight_is_the_rate_times_the_time_in_the_server():
    # 2 requests/s of 100 tokens, 40 ms a step of 1.6 tokens while prefills take a fifth: 2 x 100 x 0.04 / 1.28
    worth = latency.free_yield(0.2, 1.6)
    assert latency.in_flight(2.0, 100, 0.04, worth) == pytest.approx(6.25)
    assert latency.in_flight(2.0, 100, 0.04, worth) == pytest.approx(2 * 100 * latency.tpot_s(0.04, worth))
    assert np.isnan(latency.free_yield(1.0, 1.6))


def test_times_of_a_request():
    assert latency.first_token_s(1.0, 1, 0.1) == pytest.approx(1.05)
    assert latency.request_s(1.0, 0.1, 11) == pytest.approx(2.0)
    assert latency.late_tpot_s(0.1, 0.5, 0.0, 10, 2.3) == 0.1
    # 4 requests/s x 25 tokens x 0.25 s = 25 prefills met, sqrt 5: two deviations of 0.5 s each over 25 tokens
    assert latency.late_tpot_s(0.25, 0.5, 4, 25, 2) == pytest.approx(0.25 + 2 * 0.5 * 5 / 25)


def test_static_batches_fill_and_run():
    assert latency.filling_s(9, 4.0) == 2
    assert latency.utilisation(4.0, 2.0, 16) == 0.5
    assert latency.replicas_ratio(0.5, 64, 256, 0.125) == 1
