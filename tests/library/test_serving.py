"""Serving worked out by hand: a machine of endless rates, on which steps and prompts take what the stack says."""

from dataclasses import fields, replace
from math import log, sqrt

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL
from trnmodel.draws import TAIL, cause, deviations
from trnmodel.serving import server
from trnmodel.serving.server import disaggregate

CHIP = replace(tm.chip("h100"), peak_flop_per_s={"bf16": 1e28}, hbm_bytes_per_s=1e28, hbm_bytes=1e18)
STACK = replace(IDEAL, id="mine", prefill_overhead_s=1.5, step_overhead_s=0.02, sequence_s=0.004)
ASK = {"model": "llama-3.1-8b", "system": CHIP, "max_batch": 64}
REQUEST = {"input_tokens": 1000, "output_tokens": 500}
STATED = {one.name for one in fields(tm.Request)}
Z99 = 2.3263478740408408


def serve(rate, **more):
    stated = REQUEST | {name: more.pop(name) for name in STATED if name in more}
    return tm.serve(**ASK | {"request": tm.Request(**stated, requests_per_s=rate), "efficiencies": STACK} | more)


def holds(found, expected):
    assert {name: float(getattr(found, name)) for name in expected} == pytest.approx(expected, rel=1e-9)


def test_requests_of_two_replicas():
    """Each takes 0.1 requests/s: 15 % of its time are prompts, and n = 50 (0.02 + 0.004 n) / 0.85 = 1 / 0.65 decode."""
    step_s = 0.02 + 0.004 / 0.65
    tpot_s = step_s / 0.85
    first_s = 1.5 + step_s / 2
    holds(
        serve(0.2, mapping=tm.Mapping(dp=2)),
        {
            "requests_per_s": 0.2,
            "batch": 1 / 0.65,
            "step_s": step_s,
            "prefill_s": 1.5,
            "tokens_per_step": 1,
            "prefill_utilisation": 0.15,
            "ttft_p50_s": first_s,  # a queue of 15 % is empty more often than not
            "ttft_p99_s": first_s + 1.5 / (2 * 0.85) * log(15),
            "tpot_mean_s": tpot_s,
            "tpot_p99_s": tpot_s + 1.5 * Z99 * sqrt(0.1 * 500 * tpot_s) / 500,
            "request_s": first_s + 499 * tpot_s,
            "tokens_per_s": 100,
            "tokens_per_s_per_user": 0.85 / step_s,
            "tokens_per_s_per_chip": 50,
        },
    )


def test_chunks_behind_a_prefix_with_a_draft():
    """750 tokens after 250 in chunks of 200 are 4; a draft of 3, each accepted half the time, yields 1.875 tokens."""
    batch = 50 * 0.023 / 0.55  # n = 50 (0.02 + 3 x 0.001 + 0.004 n) / (0.4 x 1.875)
    step_s, worth = 0.023 + 0.004 * batch, 0.75
    first_s = 6 + 3.5 * step_s
    draft = {"draft_tokens": 3, "acceptance": 0.5, "draft_step_s": 0.001}
    holds(
        serve(0.1, prefix_share=0.25, chunk_tokens=200, **draft),
        {
            "batch": batch,
            "step_s": step_s,
            "prefill_s": 6,
            "tokens_per_step": 1.875,
            "prefill_utilisation": 0.6,
            "ttft_p50_s": first_s + 6 / (2 * 0.4) * log(0.6 / 0.5),
            "ttft_p99_s": first_s + 6 / (2 * 0.4) * log(60),
            "tpot_mean_s": step_s / worth,
            "request_s": first_s + 6 / (2 * 0.4) * log(0.6 / 0.5) + 499 * step_s / worth,
        },
    )


@pytest.mark.parametrize(
    ("more", "batch", "step_s"),
    [
        ({"compiled": True}, 50 * 0.276 / 0.85, 0.02 + 64 * 0.004),
        ({"compiled": False}, 1 / 0.65, 0.02 + 0.004 / 0.65),
        ({"efficiencies": replace(STACK, batch_bucket="maximum")}, 50 * 0.276 / 0.85, 0.276),
        ({"efficiencies": replace(STACK, batch_bucket="power-of-two")}, 50 * 0.028 / 0.85, 0.028),  # 1.6 run as 2
        ({"efficiencies": replace(STACK, batch_bucket="maximum"), "compiled": False}, 1 / 0.65, 0.02 + 0.004 / 0.65),
        ({"output_tokens": 50, "efficiencies": replace(STACK, batch_bucket="power-of-two")}, 5 * 0.024 / 0.85, 0.024),
        ({"output_tokens": 50}, 5 * 0.024 / 0.85, 0.024),  # 0.14 in flight, and a step runs one
    ],
)
def test_a_step_runs_what_is_compiled(more, batch, step_s):
    holds(serve(0.1, **more), {"batch": batch, "step_s": step_s, "tpot_mean_s": step_s / 0.85})


def test_what_cannot_be_served_says_why():
    """Prompts of 0.5 s take half of the time at one a second; 16 tokens of 0.25 s each then keep 8 in flight."""
    e = replace(IDEAL, id="mine", prefill_overhead_s=0.5, step_overhead_s=0.25)
    ask = {"input_tokens": 1, "output_tokens": 16, "efficiencies": e}
    for compiled in (True, False):
        found = serve([1, 1, 2], max_batch=[8, 7, 64], compiled=compiled, **ask)
        assert found.reason.tolist() == [
            "",
            "more requests in flight than the largest batch",
            "prompts arrive faster than they are prefilled",
        ]
    assert found.batch[0] == pytest.approx(8, rel=1e-9)
    late = serve(0.25, max_batch=8, batching="static", **ask | {"output_tokens": 127})  # runs of 32 s, 8 in each
    assert late.reason == "prompts arrive faster than they are prefilled"
    small = serve(0.1, system=replace(CHIP, hbm_bytes=1e10))
    assert "does not fit in memory" in small.reason


def test_more_arrive_than_any_batch_can_hold():
    """At 0.3/s n = 150 (0.02 + 0.004 n) / 0.55 = 5.5 + 1.09 n has no solution, though one sequence alone is fast.

    At 0.25/s n = 125 (0.02 + 0.004 n) / 0.625 = 4 + 0.8 n = 20, which a largest batch of 20 holds and one of 19 does
    not. Steps of one sequence that would take 0.024 s must not be taken for those of a full batch.
    """
    assert serve([0.3, 0.5]).reason.tolist() == ["more requests in flight than the largest batch"] * 2
    found = serve(0.25, max_batch=[20, 64, 19])
    assert found.reason.tolist() == ["", "", "more requests in flight than the largest batch"]
    assert found.batch[:2] == pytest.approx([20, 20], rel=1e-6)


def test_the_load_at_which_promises_hold():
    """Without a rate a replica is full at 64: 500 steps of 0.276 s and 64 prompts of 1.5 s are 138 + 96 = 234 s.

    With 2 tokens/s promised a token takes at most 0.5 s: B sequences take 0.02 + 0.004 B and B x 1.5 / 500 s of stalls,
    0.02 + 0.007 B, so that 68 would do; with 5 tokens/s 25.7 would, and 25 are served.
    """
    full = serve(None)
    holds(full, {"batch": 64, "requests_per_s": 64 / 234, "tpot_mean_s": 234 / 500, "prefill_utilisation": 96 / 234})
    for speed, batch in ((2, 64), (5, 25)):
        found = serve(None, tokens_per_s_per_user=speed)
        holds(
            found, {"batch": batch, "tpot_mean_s": 0.02 + 0.007 * batch, "tokens_per_s": batch / (0.02 + 0.007 * batch)}
        )
        assert found.keeps_promise
    slow = serve(None, tokens_per_s_per_user=50)  # one sequence takes 0.027 s a token, more than 0.02
    assert slow.reason == "too slow for a user at any load"
    assert not slow.keeps_promise
    late = serve(None, ttft_s=1.5)  # the prompt alone takes that, and half a step more
    assert late.reason == "the first token comes too late at any load"


def test_a_compiled_batch_is_filled_as_far_as_its_promises_hold():
    """Steps of 64 take 0.276 s whatever is active. With 0.4 s a token, prompts take 1 - 0.276 / 0.4 = 31 % of the time.

    That is 0.31 / 1.5 = 0.2067 requests/s, and 0.2067 x 500 x 0.4 = 41.3 sequences in flight.
    """
    found = serve(None, compiled=True, tokens_per_s_per_user=2.5)
    holds(found, {"prefill_utilisation": 0.31, "requests_per_s": 0.31 / 1.5, "batch": 0.31 / 1.5 * 500 * 0.4})
    assert found.keeps_promise


def test_the_percentile_of_the_first_token():
    """A queue of 15 % of prompts of 1.5 s: 10 % of them wait 1.5 / 1.7 ln(1.5) s or longer, one in 20 that of ln(3)."""
    step_s = 0.02 + 0.004 / 0.65
    for percentile, longer in ((90, 1.5), (95, 3), (99, 15), (50, 1)):
        found = serve(0.1, ttft_s=100.0, ttft_percentile=percentile)
        holds(found, {"ttft_s": 1.5 + step_s / 2 + 1.5 / 1.7 * log(longer)})
        assert found.keeps_promise
    assert not serve(0.1, ttft_s=1.5).keeps_promise  # at a rate that is stated the promise may break
    assert serve(0.1, ttft_s=1.5).valid


def test_batches_that_fill_up():
    """8 requests at 0.1/s: the first waits 70 s, the last not at all; a run takes 1.5 s and 499 steps of 0.052 s."""
    run_s = 1.5 + 499 * 0.052
    busy = 0.1 * run_s / 8
    holds(
        serve(0.1, max_batch=8, batching="static"),
        {
            "batch": 8,
            "step_s": 0.052,
            "prefill_s": 1.5,
            "tokens_per_step": 1,
            "prefill_utilisation": busy,
            "ttft_p50_s": 1.5 + 35,
            "ttft_p99_s": 1.5 + 0.99 * 70 + run_s / (2 * (1 - busy)) * log(busy / 0.01),
            "tpot_mean_s": 0.052,
            "tpot_p99_s": 0.052,
            "request_s": 1.5 + 35 + 499 * 0.052,
            "tokens_per_s": 50,
        },
    )


def test_the_context_of_a_step_is_half_way():
    """KV of 131,072 B a token at 1e6 B/s: a step reads prompt and half of the output, and writes its own token."""
    slow = replace(STACK, kv_stream_bytes_per_s=1e6, sequence_s=0.0)
    for more in ({"batching": "static"}, {"compiled": True}):
        found = serve(1e-9, max_batch=2, efficiencies=slow, **more)
        assert float(found.step_s) == pytest.approx(0.02 + 2 * 1251 * 131_072 / 1e6, rel=1e-9)


def test_prefill_and_decode_on_machines_of_their_own():
    """2 chips of 1 GB/s send 131,072 B a token to one of 3 GB/s, at half of the slower rate; 8 at once decode."""
    first, then = (replace(CHIP, scaleout_bytes_per_s_per_dir=rate) for rate in (1e9, 3e9))
    ask = {"batch": 8, "input_tokens": 1000, "output_tokens": 500, "transfer_share": 0.5}
    stacks = {"prefill_efficiencies": STACK, "decode_efficiencies": STACK}
    found = disaggregate("llama-3.1-8b", first, tm.Mapping(tp=2), then, tm.Mapping(), **ask, **stacks)
    ratio, sent_s = float(found.prefill_s) * 8 / (500 * 0.052), 131_072_000 / 1e9
    holds(
        found,
        {
            "step_s": 0.052,
            "transfer_bytes": 131_072_000,
            "transfer_s": sent_s,
            "ttft_s": float(found.prefill_s) + sent_s + 0.052,
            "prefill_replicas_per_decode_replica": ratio,
            "prefill_chips_per_decode_chip": 2 * ratio,
            "requests_per_s_per_decode_replica": 8 / (500 * 0.052),
            "tokens_per_s_per_chip": 8 / 0.052 / (1 + 2 * ratio),
        },
    )
    assert 1.5 < found.prefill_s < 1.6
    assert found.stack_kind == "given"
    with pytest.raises(ValueError, match="different kinds of stack"):
        disaggregate(
            "llama-3.1-8b", first, tm.Mapping(), then, tm.Mapping(), **ask, **stacks | {"decode_efficiencies": "ideal"}
        )
    small = replace(CHIP, hbm_bytes=1e10)
    for sides, reason in (((small, CHIP), "prefill"), ((CHIP, small), "decode")):
        pair = disaggregate("llama-3.1-8b", sides[0], tm.Mapping(), sides[1], tm.Mapping(), **ask, **stacks)
        assert pair.reason == f"{reason} cannot exist"


def test_a_draft_is_shorter_than_what_it_drafts():
    for name in ("input_tokens", "output_tokens"):
        assert serve(0.01, draft_tokens=4, acceptance=0.5, **{name: 5}).valid
        with pytest.raises(ValueError, match="draft_tokens=5: allowed are fewer than"):
            serve(0.01, draft_tokens=5, acceptance=0.5, **{name: 5})
    assert np.isfinite(serve(0.01, prefix_share=1.0).prefill_s)  # a token of the prompt is new all the same


def test_what_cannot_be_says_so_alone():
    """A model that no rank holds is not one whose prompts arrive too fast."""
    ask = tm.Request(128, 16, requests_per_s=0.01), "trn2.48xlarge", tm.Mapping(tp=1)
    for chunked in ({}, {"chunk_tokens": 64}):
        found = tm.serve("llama-3.3-70b", *ask, max_batch=4, **chunked)
        assert not found.valid
        assert "prompts" not in str(found.reason)


def test_a_draft_that_costs_nothing_and_is_never_accepted():
    """It yields the one token of the step, which takes no longer for it."""
    for more in ({"draft_tokens": 3}, {"draft_tokens": 3, "acceptance": 0.0, "draft_step_s": 0.0}):
        found = serve(1e-9, **more)
        holds(found, {"tokens_per_step": 1, "step_s": 0.024})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunk_tokens", [1, 2, 3]),
        ("max_context", [1500, 1600, 1700]),
        ("draft_tokens", [0, 1, 2]),
        ("acceptance", [0.1, 0.2, 0.3]),
        ("draft_step_s", [1, 2, 3]),
    ],
)
def test_arrays_that_do_not_fit_are_named(name, value):
    with pytest.raises(ValueError, match=rf"{name} of shape \(3,\) does not fit|does not fit {name} of shape \(3,\)"):
        serve([0.1, 0.2], **{name: value})


def test_a_prompt_reads_what_is_cached_before_each_chunk():
    """750 tokens after 250 in 4 chunks of 200: half way 525 are cached. 131,072 B of each pass at 1 MB/s.

    Of a prompt whose prefix is all there the last token is computed, after the 999 before it. A step reads 1,000 and
    250 of the output, and writes one.
    """
    slow, token_s = replace(STACK, kv_stream_bytes_per_s=1e6, sequence_s=0.0), 131_072 / 1e6
    found = serve(1e-9, efficiencies=slow, prefix_share=0.25, chunk_tokens=200)
    assert float(found.prefill_s) == pytest.approx(4 * (1.5 + (525 + 200) * token_s), rel=1e-9)
    found = serve(1e-9, efficiencies=slow, prefix_share=1.0)
    assert float(found.prefill_s) == pytest.approx(1.5 + 1000 * token_s, rel=1e-9)
    assert float(found.step_s) == pytest.approx(0.02 + 1251 * token_s, rel=1e-9)
    first, ask = (
        {"prefill_efficiencies": slow, "decode_efficiencies": slow},
        {"input_tokens": 1000, "output_tokens": 500},
    )
    apart = disaggregate("llama-3.1-8b", CHIP, tm.Mapping(), CHIP, tm.Mapping(), batch=2, **first, **ask)
    assert float(apart.step_s) == pytest.approx(0.02 + 2 * 1251 * token_s, rel=1e-9)


@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_steps_that_fit_do_not_help_prompts_that_do_not(batching):
    """A prompt's activations take more memory than the cache of its output, which alone a step has more."""
    ask = {"efficiencies": IDEAL, "max_context": 1500}
    step = tm.decode_step("llama-3.1-8b", CHIP, batch=1, context=1250, **ask)
    prompt = tm.prefill("llama-3.1-8b", CHIP, input_tokens=1000, **ask)
    between = float(step.memory_bytes_per_rank + prompt.memory_bytes_per_rank) / 2
    assert step.memory_bytes_per_rank < between
    found = serve(0.1, system=replace(CHIP, hbm_bytes=between), max_batch=1, batching=batching, efficiencies=IDEAL)
    assert found.reason == "does not fit in memory"


TRN2 = tm.system("trn2.48xlarge")
LLAMA = {"model": "llama-3.1-8b", "system": TRN2, "mapping": tm.Mapping(tp=8)}


def in_order(values):
    """The 50th lowest and the 50th highest of 1,000 draws bound the 90 % between them."""
    return np.sort(values)[[49, 950]]


def stretched(phase, widths):
    """Factors of a time in the common draws, from its half-widths."""
    z = deviations(cause(tm.efficiencies("trainium2"), TRN2, phase)) / TAIL
    return np.exp(np.where(z < 0, z * widths[0], z * widths[1]))


def test_a_band_of_few_slots_by_hand():
    """8 slots make more than fewer do, so that no draw has others: 8 requests take 256 steps and 8 prompts."""
    found = tm.serve(**LLAMA, request=tm.Request(1024, 256), max_batch=8)
    step = tm.decode_step(**LLAMA, batch=8, context=1024 + 128, max_context=1280)
    prompt = tm.prefill(**LLAMA, input_tokens=1024, max_context=1280)
    steps_s = 256 * float(step.time_s) * stretched("decode", step.widths("time_s"))
    prompts_s = 8 * float(prompt.time_s) * stretched("prefill", prompt.widths("time_s"))
    rate = 8 / (steps_s + prompts_s)
    for name, drawn in (
        ("requests_per_s", rate),
        ("tokens_per_s", 256 * rate),
        ("tokens_per_s_per_chip", 256 * rate / 2),  # 4 logical cores of a chip
        ("tpot_mean_s", (steps_s + prompts_s) / 256),
        ("prefill_utilisation", prompts_s / (steps_s + prompts_s)),
    ):
        assert found.ends(name) == pytest.approx(in_order(drawn), rel=1e-9), name
    assert found.ends("batch") == pytest.approx((8, 8))


def test_slots_adapt_in_the_draws_so_that_the_promise_holds():
    """At 30 tokens/s the slowest software has fewer than 64 sequences; with 8 slots it never needs to."""
    ask = {**LLAMA, "request": tm.Request(1024, 256, tokens_per_s_per_user=30)}
    many, few = (tm.serve(**ask, max_batch=slots) for slots in (64, 8))
    assert many.ends("batch")[0] < 60
    assert few.ends("batch") == pytest.approx((8, 8))
    for one in (many, few):
        assert one.ends("tpot_mean_s")[1] <= 1 / 30 * (1 + 1e-9)
        low, high = one.ends("tokens_per_s_per_chip")
        assert low < 0.9 * one.tokens_per_s_per_chip < one.tokens_per_s_per_chip < 0.97 * high
    broken = tm.serve(**LLAMA, request=tm.Request(1024, 256, tokens_per_s_per_user=1e4), max_batch=64)
    assert np.isnan(broken.ends("tokens_per_s_per_chip")).all()


def test_a_stated_load_has_no_band_and_its_times_have_that_of_their_steps():
    found = tm.serve(**LLAMA, request=tm.Request(1024, 256, requests_per_s=1), max_batch=8)
    for name in ("requests_per_s", "tokens_per_s", "tokens_per_s_per_chip"):
        assert found.ends(name) == (getattr(found, name),) * 2
    below, above = found.decode_step.widths("time_s", part="load")
    wider = np.maximum(found.decode_step.widths("time_s"), (below, above))
    assert found.ends("tpot_mean_s") == pytest.approx(found.tpot_mean_s * np.exp([-wider[0], wider[1]]))


@pytest.mark.parametrize(("points", "at_once"), [(40_000, 4), (30, 1), (1, 8)])
def test_bands_of_many_servers_are_those_of_each(monkeypatch, points, at_once):
    """Prompts, speeds, slots, mappings and a field of the chip vary; 30 tokens/s are too fast for the last."""
    monkeypatch.setattr(server, "POINTS", points)
    monkeypatch.setattr(server, "DRAWN_AT_ONCE", at_once)
    prompts, tps, speeds, slots = [[512], [2048]], [[2], [8]], [10, 20, 1000], [16, 8, 4]
    rates = TRN2.chip.hbm_bytes_per_s * np.array([0.9, 0.5, 0.9])
    chips = [replace(TRN2, chip=replace(TRN2.chip, hbm_bytes_per_s=rate)) for rate in (rates, *rates)]

    def served(where, prompt, tp, speed, slots):
        return tm.serve("llama-3.1-8b", tm.Request(prompt, 128, speed), where, tm.Mapping(tp=tp), max_batch=slots)

    many = served(chips[0], np.array(prompts), np.array(tps), speeds, slots)
    for name in ("tokens_per_s_per_chip", "ttft_s", "tpot_p99_s", "request_s"):
        low, high = many.ends(name)
        assert low.shape == high.shape == (2, 3)
        for i, j in np.ndindex(2, 3):
            one = served(chips[1 + j], prompts[i][0], tps[i][0], speeds[j], slots[j])
            expected = pytest.approx(tuple(map(float, one.ends(name))), rel=1e-9, nan_ok=True)
            assert (low[i, j], high[i, j]) == expected, (name, i, j)
            assert np.isnan(low[i, j]) == (j == 2)


def test_a_server_that_runs_has_a_band_where_a_plan_has_no_room():
    """Steps and prompts fit by themselves, cache and prompts together at no batch: the draws keep its own slots."""
    ask = {"model": "llama-3.1-8b", "efficiencies": "ideal", "mapping": tm.Mapping(ep=1)}
    prompt = tm.prefill(**ask, system=CHIP, input_tokens=1000, max_context=1500)
    fit = tm.memory_fit(**ask, system=CHIP, batch=1, context=1500, input_tokens=1000)
    assert prompt.memory_bytes_per_rank < fit.total_bytes
    between = float(prompt.memory_bytes_per_rank + fit.total_bytes) / 2
    found = tm.serve(**ask, request=tm.Request(**REQUEST), system=replace(CHIP, hbm_bytes=between), max_batch=1)
    assert found.valid
    assert found.ends("tokens_per_s_per_chip") == pytest.approx((found.tokens_per_s_per_chip,) * 2)
