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


LOAD = {
    "batch": st.floats(1, 4096),
    "output_tokens": st.floats(1, 1e5),
    "step_s": st.floats(1e-4, 10),
    "yielded": st.floats(1, 8),
    "prompt_s": st.floats(0, 100),
}


def test_full_load_by_hand():
    # 16 requests of 100 tokens in steps of 40 ms that yield 2 take 2 s to decode, and 16 prompts of 0.25 s take 4 s
    assert latency.full_requests_per_s(16, 100, 0.04, 2, 0.25) == pytest.approx(16 / (2 + 4))
    # a token takes 20 ms of its own and 16 x 0.25 / 100 = 40 ms of stalls
    assert latency.full_tpot_s(16, 100, 0.04, 2, 0.25) == pytest.approx(0.06)
    assert latency.full_requests_per_s(16, 100, 0.04, 2, [0.0, 0.25]) == pytest.approx([8, 8 / 3])


@given(**LOAD)
def test_full_load_is_one_account(batch, output_tokens, step_s, yielded, prompt_s):
    """What prompts leave of the time is left to decoding, and the requests in flight are the batch, by Little's law."""
    ask = batch, output_tokens, step_s, yielded, prompt_s
    rate, tpot = latency.full_requests_per_s(*ask), latency.full_tpot_s(*ask)
    left = (output_tokens * step_s / yielded) / (output_tokens * step_s / yielded + batch * prompt_s)
    assert 1 - latency.utilisation(rate, prompt_s) == pytest.approx(left, abs=1e-12)
    if left > 1e-3:  # below, 1 - lambda P loses digits
        assert tpot == pytest.approx(latency.tpot_s(step_s, latency.free_yield(rate * prompt_s, yielded)), rel=1e-9)
    assert rate * output_tokens * tpot == pytest.approx(batch)


# A Trn2 engine of the Kiln server (kiln-prices): GLM-5.3-Flash, 32 ranks in 4 attention groups, answers of 256 tokens,
# prompts of 8,192 in executions of 4,096, which are 1,024 of each group; two engines share the clients.
# Per engine: clients, execution [s], decode step alone [s]; for both: inter-token latency [s], output [token/s].
KILN = [(64, 0.888, 0.07852, 0.506, 229.5), (128, 0.899, 0.10495, 0.966, 243.9)]


@pytest.mark.parametrize(("clients", "execution_s", "step_s", "measured_itl_s", "measured_tokens_per_s"), KILN)
def test_a_measured_server_prefills_a_prompt_in_each_group(
    clients, execution_s, step_s, measured_itl_s, measured_tokens_per_s
):
    """A prompt takes 8 executions, and 4 prompts share them: 128 x 2 x 0.899 / 256 = 0.899 s of stalls a token."""
    executions = 8192 / 1024
    together_s = executions * execution_s / 4
    tpot = latency.full_tpot_s(clients, 256, step_s, 1, together_s)
    assert tpot == pytest.approx(measured_itl_s, rel=0.06)
    rate = latency.full_requests_per_s(clients, 256, step_s, 1, together_s)
    assert 2 * 256 * rate == pytest.approx(measured_tokens_per_s, rel=0.08)
    # one prompt at a time on all ranks, the other groups idle, would stall a token more than three times as long
    assert latency.full_tpot_s(clients, 256, step_s, 1, executions * execution_s) > 3 * measured_itl_s


def test_a_prompt_meets_the_prompts_of_other_groups():
    # 1.07 s alone, 1.57 s with one in each group: half way at half load
    assert latency.prompt_latency_s(1.07, 1.57, [0, 0.5, 1]) == pytest.approx([1.07, 1.32, 1.57])
    assert latency.prompt_latency_s(1.07, 1.07, 0.7) == 1.07
