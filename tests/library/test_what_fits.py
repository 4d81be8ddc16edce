"""Runs that were measured fit in memory; what a runtime and a server keep; more of anything never needs less."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL, stacks
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.questions import predict, stored_bytes
from trnmodel.evidence.readings import ENERGY, TRAINING, reading
from trnmodel.evidence.rows import COMPARATORS, LATER, MEASURED, THIRD, read_rows
from trnmodel.units import GIB, MIB

CONTRADICTIONS = {"opt-13b", "opt-30b"}  # workloads of rows whose page contradicts itself
SERVING = "hgx-h100", "hgx-h200", "hgx-b200", "mi300x-8"


def read():
    """Yield each measured row with its reading, or with the reason for none."""
    for path in (MEASURED, LATER, THIRD, COMPARATORS):
        for row in read_rows(path):
            try:
                yield row, reading(row), ""
            except UnreadableRowError as reason:
                yield row, None, str(reason)


@pytest.fixture(scope="module")
def readings():
    return list(read())


def prompts_of_a_worker(row):
    """Sequences that a prefill worker of a split server holds where a first token is printed; 0 of other rows."""
    workers = re.match(r"disagg P:\d+x\(tp\d+ adp(\d+) ep\d+ bs(\d+)\)", row["note"])
    return float(workers[1]) * float(workers[2]) if workers and "ttft" in row["metric"].lower() else 0.0


def test_every_measured_run_fits(readings):
    """No row is refused for memory: neither by its own question nor by what its largest batch and length store."""
    refused, asked = [], 0
    for row, r, _ in readings:
        if r is None or not r.model or not r.where:
            continue
        try:
            predict(r)
        except ValueError as reason:
            refused += [(row["id"], str(reason))] if "memory" in str(reason) else []
        batch = prompts_of_a_worker(row) or max(r.batch, r.compiled_batch)
        context = float(np.fmax(np.fmax(r.context, r.max_context), r.prompt))
        own = ("context_is", "assumed") in r.arguments  # whose length is no more than what fits
        if r.meaning.startswith((TRAINING, ENERGY, "memory:", "layer")) or np.isnan(context) or own:
            continue
        if r.where == "mi325x":  # a chip that the catalog does not have
            continue
        fit = stored_bytes(r, batch, context)
        asked += 1
        refused += [] if fit.valid else [(row["id"], str(fit.reason))]
    assert asked > 2000
    assert not refused


def test_rows_that_cannot_be_runs_say_why(readings):
    """Six rows of two tables of OPT: 256 x 2,048 x 819,200 B are 400 GiB, and 30 billion weights of 2 B are 60 GB."""
    odd = [(row, reason) for row, _, reason in readings if "contradicts itself" in reason]
    assert len(odd) == 6
    assert {row["workload"] for row, _ in odd} == CONTRADICTIONS
    assert 256 * 2048 * tm.model("opt-13b").kv_bytes_per_token() / GIB == pytest.approx(400)
    assert 400 > tm.system("inf2.48xlarge").hbm_bytes / GIB == 384
    assert all("400 GiB" in why or "60 GB" in why for _, why in odd)


def test_columns_that_are_one_place_off(readings):
    """One sequence of OPT-13B at 17.7 ms a token makes 56.5 tokens/s; the page prints 56.1 under P99."""
    rows = {row["id"]: r for row, r, _ in readings if r and "trn1_latency_data_LLM" in row["source"]}
    step, rate = rows["7fcec7c847"], rows["6bf194367c"]
    assert (step.meaning, step.scale, step.batch) == ("run-per-token", 1e-3, 1)
    assert (rate.meaning, rate.scale, rate.batch) == ("total-throughput", 1, 1)
    assert pytest.approx(56.1, rel=0.01) == 1 / 0.0177
    assert predict(step) == pytest.approx(0.0177, rel=0.15)
    assert predict(rate) == pytest.approx(56.1, rel=0.15)


# ---------------------------------------------------------------- printed sizes
def fit_of(model, system, mapping, **ask):
    return tm.memory_fit(model, system, mapping, **{"batch": 1, "context": 512} | ask)


def test_shards_of_deepseek_v3():
    """AWS prints files of ~21.4 GB for each of 64 ranks, and two in a bank do not fit; GB are 2^30 there."""
    fit = fit_of("deepseek-v3", "trn2.48xlarge", tm.Mapping(tp=64, lnc=2), batch=np.array([1, 2, 4, 8]))
    assert float(fit.weight_bytes) / GIB == pytest.approx(21.4, abs=0.05)
    assert fit.valid.all()  # all four batches were served
    paired = fit_of("deepseek-v3", "trn2.48xlarge", tm.Mapping(tp=64, lnc=1))
    assert not paired.valid
    assert not fit_of("deepseek-v3", "trn2.48xlarge", tm.Mapping(tp=32, lnc=2)).valid


def test_tensors_of_kimi_k2():
    """The page prints 17.55 of 24 GB of inputs and outputs on each of 64 ranks, TP 32 times EP 2."""
    wide = dict.fromkeys(("weights", "kv", "activations", "compute", "attention"), "bf16")
    precision = tm.Precision(**wide, experts="fp8")
    fit = fit_of("kimi-k2-instruct", "trn2.48xlarge", tm.Mapping(tp=32, ep=2, lnc=2), context=1024, precision=precision)
    assert float(fit.weight_bytes + fit.cache_bytes) / GIB == pytest.approx(17.55, rel=0.01)
    assert fit.valid


@pytest.mark.parametrize(("batch", "needed"), [(8, 19_004_423_264), (16, 23_045_971_136)])
def test_tensors_that_a_compiler_adds_up(batch, needed):
    """Qwen3-235B-A22B, TP 32, 10,496 tokens: what the compiler needed, to a thousandth; 94 x 512 B a token."""
    fit = fit_of("qwen3-235b-a22b", "trn2.48xlarge", tm.Mapping(tp=32, lnc=2), batch=batch, context=10_496)
    assert float(fit.weight_bytes + fit.cache_bytes) == pytest.approx(needed, rel=1e-3)
    assert float(fit.cache_bytes) == batch * 10_496 * 94 * 2 * 128 * 2


# SGLang, DeepSeek V3/V3.1/R1 usage, recommended settings: what holds the official weights in FP8, and in BF16
@pytest.mark.parametrize(
    ("precision", "system", "count", "fits"),
    [
        ("fp8", "hgx-h200", 1, True),
        ("fp8", "hgx-b200", 1, True),
        ("fp8", "mi300x-8", 1, True),
        ("fp8", "hgx-h100", 1, False),
        ("fp8", "hgx-h100", 2, True),
        ("bf16", "hgx-h200", 1, False),
        ("bf16", "hgx-h200", 2, True),
        ("bf16", "mi300x-8", 2, True),
        ("bf16", "hgx-h100", 2, False),
        ("bf16", "hgx-h100", 4, True),
        ("bf16", "hgx-a100", 4, True),
    ],
)
def test_servers_that_hold_deepseek_v3(precision, system, count, fits):
    where = tm.system(system, count)
    tp = tm.Mapping(tp=8, pp=count)
    assert bool(fit_of("deepseek-v3", where, tp, precision=precision, context=4096, input_tokens=1024).valid) is fits


def test_a_server_on_a_gpu_keeps_memory_for_itself():
    """vLLM on an H100: 0.9 of it by default, 1.79 GiB outside of PyTorch (pull request 10511), NCCL 342 or 392 MiB."""
    e = tm.efficiencies("h100")
    low, high = e.ranges["memory_share"]
    assert low == 0.9 <= e.memory_share <= high <= 1
    low, high = e.ranges["runtime_bytes"]
    assert low < 1.79 * GIB < high
    one, two = (fit_of("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=tp)) for tp in (1, 2))
    assert float(one.collective_buffer_bytes) == 0
    assert 342 * MIB <= float(two.collective_buffer_bytes) <= 392 * MIB
    assert float(one.capacity_bytes) == tm.chip("h100").hbm_bytes * e.memory_share
    # Llama-3-8B at 0.9: 71.29 GiB less 14.96 of weights, 1.79 and 1.26 of activations leave 53.29 for the cache
    room = float(one.capacity_bytes - one.total_bytes + one.cache_bytes) / GIB
    assert room == pytest.approx(53.29, rel=0.1)


def test_only_the_first_of_several_ranks_leads_them():
    for tp, more in ((1, 0), (8, 610 * MIB)):
        fit = fit_of("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=tp))
        assert float(fit.first_rank_total_bytes - fit.total_bytes) == pytest.approx(more)
    whole = fit_of("llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), efficiencies="optimum-neuron-2025")
    tables = 2 * 128_256 * 4096 * 2 * 7 / 8  # embedding and head, less what every rank has of them
    assert float(whole.first_rank_total_bytes - whole.total_bytes) == pytest.approx(610 * MIB + tables)


def test_microcode_is_of_each_physical_core():
    one, two = (float(fit_of("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8, lnc=lnc)).code_bytes) for lnc in (1, 2))
    assert two - one == 96 * MIB
    assert one == (32 * 4.125 + 96) * MIB


# ---------------------------------------------------------------- more never needs less
COUNTS = st.integers(1, 64)


@settings(max_examples=60, deadline=None)
@given(
    stack=st.sampled_from([*stacks()]),
    model=st.sampled_from(["llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "glm-5.3-flash", "jamba-v0.1"]),
    batch=COUNTS,
    context=st.integers(64, 100_000),
    more=st.sampled_from(["batch", "context", "input_tokens", "precision"]),
)
def test_more_work_never_needs_less_memory(stack, model, batch, context, more):
    endless = replace(tm.model(model), max_context=0)
    ask = {"batch": batch, "context": context, "input_tokens": max(1, context // 4), "precision": "fp8"}
    ask |= {"efficiencies": stack, "mapping": tm.Mapping(tp=4)}
    larger = ask | ({"precision": "bf16"} if more == "precision" else {more: ask[more] * 2})
    if more == "input_tokens":
        larger["input_tokens"] = min(larger["input_tokens"], context)
    one, two = (tm.memory_fit(endless, "trn2.48xlarge", **each) for each in (ask, larger))
    assert float(two.total_bytes) >= float(one.total_bytes)
    assert float(two.first_rank_total_bytes) >= float(one.first_rank_total_bytes)
    assert not (two.valid and not one.valid)


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0.2, 1.0), kept=st.integers(0, 4096), micro=st.integers(0, 200))
def test_what_is_kept_takes_from_what_fits(share, kept, micro):
    """A share of the memory is a share of each capacity; bytes that are kept add to each rank, also as arrays."""
    e = replace(IDEAL, id="keeps", memory_share=share, runtime_bytes=kept * MIB, microcode_bytes_per_core=micro * MIB)
    bare, held = (
        fit_of("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=2, lnc=1), efficiencies=each) for each in (IDEAL, e)
    )
    assert float(held.capacity_bytes) == pytest.approx(share * float(bare.capacity_bytes))
    added = float(held.total_bytes - bare.total_bytes)
    assert added == pytest.approx((kept + micro) * MIB, abs=16)
    assert bool(held.valid) == (2 * float(held.total_bytes) <= share * 24 * GIB)
    several = replace(e, memory_share=np.array([share, share / 2]))
    fits = fit_of("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=2, lnc=1), efficiencies=several)
    assert fits.capacity_bytes[1] == pytest.approx(float(fits.capacity_bytes[0]) / 2)


@settings(max_examples=30, deadline=None)
@given(tp=st.sampled_from([1, 2, 4, 8, 16, 64]), model=st.sampled_from(["llama-3.1-8b", "deepseek-v3", "jamba-v0.1"]))
def test_ranks_that_share_out_tokens_store_no_copies(tp, model):
    """By heads a rank stores at least its part of the cache, by tokens exactly that, and the states as before."""
    by_heads, by_tokens = (
        fit_of(model, "trn2-ultraserver", tm.Mapping(tp=tp), batch=4, context=4096, efficiencies=e)
        for e in ("vllm-neuron-2026", replace(tm.efficiencies("trainium2"), cache_split="tokens"))
    )
    tokens = 4 * tm.model(model).kv_bytes(4096) / tp
    assert float(by_tokens.cache_bytes) <= float(by_heads.cache_bytes)
    if model != "jamba-v0.1":
        assert float(by_tokens.cache_bytes) == pytest.approx(tokens)
    assert float(by_tokens.weight_bytes) == float(by_heads.weight_bytes)
