"""Decode, prefill, memory fit and serving: golden rooflines, limits and properties."""

import csv
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import IDEAL, stacks
from trnmodel.catalog.systems import roomy
from trnmodel.serving.server import disaggregate, tokens_per_step
from trnmodel.units import GIB

GOLDEN = list(csv.DictReader((Path(__file__).parents[1] / "golden" / "roofline.csv").read_text().splitlines()))
CHIPS = {"trn1": "trainium1", "trn2": "trainium2", "trn3": "trainium3"}
MODELS = [
    "llama-3.1-8b",
    "llama-3.1-70b",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
    "deepseek-v3",
    "qwen3-next-80b-a3b",
    "jamba-v0.1",
]
SYSTEMS = ["trn1.32xlarge", "inf2.48xlarge", "trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h100"]


def roofline_step(row, attention):
    """The ideal step of a row, with the peaks and bandwidth that the row was computed with."""
    chip = tm.chip(CHIPS[row["chip"]])
    peak = float(row["peak_flops_per_chip"])
    compute = row["compute_dtype"]
    chip = replace(
        chip,
        peak_flop_per_s={compute: peak, "bf16": float(row["bf16_peak_per_chip"])},
        hbm_bytes_per_s=float(row["hbm_bw_per_chip"]),
    )
    weights = row["weight_format"].removesuffix("_linear")
    precision = Precision(weights=weights, compute=compute, attention=compute if attention == "same" else "bf16")
    ranks = int(row["n_chips"]) * int(chip.cores // chip.lnc_default)
    ask = {"precision": precision, "efficiencies": "ideal", "batch": int(row["batch"])}
    length = int(row["seq_or_context"])
    if row["phase"] == "decode":
        return tm.decode_step(row["model"], chip, tm.Mapping(tp=ranks), context=length, **ask)
    return tm.prefill(row["model"], chip, tm.Mapping(tp=ranks), input_tokens=length, **ask)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["case"])
def test_roofline_golden(row):
    step, at_bf16 = roofline_step(row, "same"), roofline_step(row, "bf16")
    ms = 1e-3
    assert float(step.compute_s) == pytest.approx(float(row["t_compute_ms"]) * ms, rel=1e-5)
    assert float(step.memory_s) == pytest.approx(float(row["t_memory_ms"]) * ms, rel=1e-5)
    assert float(at_bf16.compute_s) == pytest.approx(float(row["t_compute_attn_at_bf16_ms"]) * ms, rel=1e-5)
    longest = max(float(row["t_compute_ms"]), float(row["t_memory_ms"]))
    assert longest == pytest.approx(float(row["t_roofline_max_ms"]), rel=1e-6)
    assert (step.bound == row["bound"]) or float(step.network_s) > longest * ms


def decode(model="llama-3.1-70b", system="trn2.48xlarge", tp=64, batch=8, context=4096, pp=1, **more):
    return tm.decode_step(model, system, tm.Mapping(tp=tp, pp=pp), batch=batch, context=context, **more)


@given(st.sampled_from(MODELS), st.sampled_from(SYSTEMS[:4]), st.integers(0, 6), st.integers(0, 9), st.integers(7, 17))
@settings(max_examples=60)
def test_bounds_bracket_the_step(model, system, tp, batch, context):
    for stack in ("ideal", None, "transformers-neuronx-2.18.1"):
        step = decode(model, system, 2**tp, 2**batch, 2**context, efficiencies=stack)
        if step.valid:
            assert step.lower_s <= step.time_s * (1 + 1e-9) <= step.upper_s * (1 + 2e-9)
            parts = step.compute_s + step.memory_s + step.network_s + step.overhead_s
            assert float(step.upper_s) == pytest.approx(float(parts), rel=1e-9)
        else:
            assert np.isnan(step.time_s)
            assert step.reason


@given(st.sampled_from(MODELS), st.integers(0, 6), st.integers(0, 8), st.integers(7, 16))
@settings(max_examples=40)
def test_faster_parts_never_slow_a_step(model, tp, batch, context):
    chip = tm.chip("trainium2")
    ask = {"tp": 2**tp, "batch": 2**batch, "context": 2**context}
    base = decode(model, chip, **ask)
    if not base.valid:
        return
    peaks = {dtype: 2 * value for dtype, value in chip.peak_flop_per_s.items()}
    faster = [
        {"hbm_bytes_per_s": 2 * chip.hbm_bytes_per_s},
        {"scaleup_bytes_per_s_per_dir": 2 * chip.scaleup_bytes_per_s_per_dir},
        {"peak_flop_per_s": peaks},
    ]
    for change in faster:
        assert decode(model, replace(chip, **change), **ask).time_s <= base.time_s * (1 + 1e-12)


def test_scalar_equals_array():
    batch, context, tp = np.array([1, 7, 64]), np.array([100, 5000]), np.array([8, 24, 64])
    many = decode(tp=tp, batch=batch[:, None, None], context=context[:, None])
    for i, b in enumerate(batch):
        for j, c in enumerate(context):
            for k, t in enumerate(tp):
                one = decode(tp=int(t), batch=int(b), context=int(c))
                assert one.valid == many.valid[i, j, k]
                np.testing.assert_array_equal(one.time_s, many.time_s[i, j, k])
                np.testing.assert_array_equal(one.memory_bytes_per_rank, many.memory_bytes_per_rank[i, j, k])


def test_no_nan_or_negative_in_many_valid_points():
    rng = np.random.default_rng(7)
    n = 100_000 // len(MODELS)
    for model in MODELS:
        mapping = tm.Mapping(
            tp=2.0 ** rng.integers(0, 8, n), pp=2.0 ** rng.integers(0, 3, n), dp=2.0 ** rng.integers(0, 3, n)
        )
        ask = {"batch": rng.integers(1, 512, n), "context": rng.integers(1, 200_000, n)}
        step = tm.decode_step(model, "trn3-nl72x2-pcie160", mapping, **ask)
        for name in (
            "time_s",
            "compute_s",
            "memory_s",
            "network_s",
            "overhead_s",
            "tokens_per_s",
            "memory_bytes_per_rank",
        ):
            numbers = np.broadcast_to(getattr(step, name), step.valid.shape)
            assert np.all(numbers[step.valid] >= 0)
            assert np.all(np.isnan(numbers[~step.valid]))
        assert np.all((step.reason == "") == step.valid)


@pytest.mark.parametrize("placement", [("tp", "cp", "ep", "pp", "dp"), ("ep", "tp", "cp", "pp", "dp")])
@pytest.mark.parametrize("system", ["trn2-ultraserver", "trn3-nl32x2-torus", "trn3-nl72x2-pcie160", "hgx-h100"])
def test_every_placement_of_experts_and_contexts_has_a_time(system, placement):
    rng = np.random.default_rng(3)
    draw = lambda *choices: rng.choice(choices, 5_000)  # noqa: E731
    degrees = {"tp": draw(1, 2, 3, 4, 8, 64), "ep": draw(1, 2, 8, 9, 32, 144), "cp": draw(1, 2, 4), "pp": draw(1, 2)}
    mapping = tm.Mapping(**degrees, placement=placement)
    step = tm.decode_step("deepseek-v3", system, mapping, batch=draw(1, 64, 1024), context=draw(100, 100_000))
    time_s, network_s = np.broadcast_arrays(step.time_s, step.network_s)
    assert np.all(network_s[step.valid] >= 0)
    assert np.all(time_s[step.valid] > 0)
    assert np.all(np.isnan(time_s[~step.valid]))


def test_experts_pay_the_tier_that_they_cross():
    """EP over the 32 chips of a rack, TP on a chip: 2 all-to-alls in each of DeepSeek-V3's 58 expert layers.

    A rank sends 2 sequences x top-8 x 7,168 x 2 B, a quarter of it for each rank of TP=4; of a chip's four ranks 30 of
    32 parts leave the tray over its 64 backplane lanes of 8 GB/s. The all-reduces of TP, 2 in each of 61 layers, stay
    on the chip: twice 3/4 of 2 x 7,168 x 2 B by the DMA engines of two cores, 2 x 16 x 33 GB/s.
    """
    mapping = tm.Mapping(tp=4, ep=32)
    step = tm.decode_step(
        "deepseek-v3", "trn3-nl32x2-pcie160", mapping, batch=64, context=1000, efficiencies="ideal", precision="fp8"
    )
    sent, kept = 2 * 8 * 7168 * 2 / 4, 2 * 3 / 4 * 2 * 7168 * 2
    on_chip = 2 * 61 * kept / (2 * 16 * 33e9)
    assert float(step.network_s) == pytest.approx(2 * 58 * 4 * sent * 30 / 32 / (64 * 8e9) + on_chip)


def test_invalid_points_say_why():
    assert "more ranks" in decode(tp=128).reason
    assert "memory" in decode(tp=1).reason
    assert "stages" in tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(pp=64), batch=1, context=9).reason
    assert "experts" in tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(ep=4), batch=4, context=9).reason
    with pytest.raises(ValueError, match="more ranks"):
        decode(tp=128).require_valid()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": float("nan")}, "batch=nan: allowed are numbers from 1"),
        ({"context": float("inf")}, "context=inf: allowed are numbers from 1"),
        ({"context": -1}, "context"),
        ({"context": "long"}, "context"),
        ({"model": "no-such-model"}, "no-such-model"),
        ({"system": "trn9"}, "trn9"),
        ({"precision": "fp3"}, "fp3"),
        ({"efficiencies": "magic"}, "magic"),
        ({"expert_read": "some"}, "expert_read"),
        ({"network_overlap": 2.0}, "network_overlap"),
        ({"model": "bert-large-uncased"}, "encoder"),
    ],
)
def test_wrong_input_is_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        decode(**wrong)


@pytest.mark.parametrize(
    ("model", "system", "degrees"),
    [("llama-3.1-70b", "trn2.48xlarge", {"tp": 64}), ("deepseek-v3", "trn3-nl72x2-pcie160", {"tp": 4, "ep": 64})],
)
def test_more_sequences_or_longer_ones_never_shorten_a_step(model, system, degrees):
    for stack in ("ideal", None):
        ask = {"model": model, "system": system, "mapping": tm.Mapping(**degrees), "efficiencies": stack}
        wide = tm.decode_step(**ask, batch=np.arange(1, 500), context=1000, precision="fp8").time_s
        long = tm.decode_step(**ask, batch=8, context=np.arange(1, 30_000, 50), precision="fp8").time_s
        for time_s in (wide[~np.isnan(wide)], long):
            assert np.all(np.diff(time_s) >= -1e-12)


@pytest.mark.parametrize("mapping", ["tp8", {"tp": 8}, 8])
def test_a_mapping_is_a_mapping(mapping):
    with pytest.raises(ValueError, match=r"mapping=.*allowed is a Mapping"):
        tm.decode_step("llama-3.1-8b", "trn2.48xlarge", mapping, batch=1, context=100)


def test_context_bucket_runs_the_compiled_length():
    at = [float(decode(context=c, max_context=8192).time_s) for c in (1025, 1500, 2048, 2049)]
    assert at[0] == at[1] == at[2] < at[3]
    assert float(decode(batch=3, compiled_batch=40).time_s) == float(decode(batch=40).time_s)
    assert float(decode(context=1025, efficiencies="ideal").time_s) < float(
        decode(context=2048, efficiencies="ideal").time_s
    )


def test_every_stack_answers_and_the_ideal_is_fastest():
    ideal = float(decode(efficiencies="ideal").time_s)
    for stack in stacks():
        e = tm.efficiencies("trainium2", stack)
        assert all(source for source in e.sources.values())
        assert float(decode(efficiencies=stack).time_s) >= ideal
    assert tm.efficiencies("trainium2").id == "vllm-neuron-2026"
    assert tm.efficiencies("h100").id == "gpu-serving"
    assert "weight_stream_share" in tm.efficiencies("trainium2").estimates
    low, high = tm.efficiencies("trainium2").range("weight_stream_share")
    assert low < tm.efficiencies("trainium2").weight_stream_share < high


def test_chunks_of_prefill_add_up():
    """Chunked causal attention does the work of the whole: n(n+1)/2 pairs."""
    whole = tm.prefill("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=4), input_tokens=4096, efficiencies="ideal")
    chunks = [
        tm.prefill(
            "llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=4), input_tokens=1024, past=past, efficiencies="ideal"
        )
        for past in (0, 1024, 2048, 3072)
    ]
    head = 3 * 2 * 4096 * 128256 / 4  # logits of three more last tokens, on four ranks
    assert sum(float(c.work_flop_per_rank) for c in chunks) == pytest.approx(
        float(whole.work_flop_per_rank) + head, rel=1e-9
    )


def test_operators_add_up_to_the_step():
    step = decode("llama-3.1-8b", tp=2, batch=4, context=2048, efficiencies="ideal", breakdown=True)
    compute = sum(float(line.compute_s) for line in step.operators.values())
    memory = sum(float(line.memory_s) for line in step.operators.values())
    assert compute == pytest.approx(float(step.compute_s), rel=1e-9)
    assert memory == pytest.approx(float(step.memory_s), rel=1e-9)
    assert "operators" not in step.to_frame().columns


@pytest.mark.parametrize("stack", stacks())
@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3", "llama-4-scout", "qwen3-next-80b-a3b", "jamba-v0.1"]
)
def test_lines_of_a_breakdown_add_up(model, stack):
    """Compute, memory, network and overhead of every line sum to the step's, whatever is cut how."""
    degrees = dict(zip(("tp", "pp", "cp", "ep"), np.meshgrid(*[[1.0, 2.0, 4.0]] * 4), strict=True))
    ask = {"mapping": tm.Mapping(**degrees), "efficiencies": stack, "batch": 3, "breakdown": True}
    where = roomy(tm.system("trn2-ultraserver"))
    for step in (
        tm.decode_step(model, where, context=9000, max_context=16384, **ask),
        tm.prefill(model, where, input_tokens=3000, past=100, **ask),
    ):
        assert np.any(step.valid)
        for resource in ("compute_s", "memory_s", "network_s", "overhead_s"):
            lines = sum(np.asarray(getattr(line, resource)) for line in step.operators.values())
            whole = np.asarray(getattr(step, resource))
            np.testing.assert_allclose(np.where(step.valid, lines, np.nan), whole, rtol=1e-9, atol=1e-18)


def test_a_pipeline_runs_whole_sequences():
    """One sequence passes all stages of a pipeline: as many FLOP as on one stage, whatever the stages."""
    one, four = (decode("llama-3.1-8b", tp=2, batch=1, pp=pp) for pp in (1, 4))
    assert float(four.work_flop_per_rank) == float(one.work_flop_per_rank)
    assert float(four.memory_s) == float(one.memory_s)


def test_memory_fit_of_the_measured_server():
    """Llama-3.1-8B, TP 8, batch 32, 4,096 tokens: KV cache 2,048 MiB = 32 x 2 x 128 x 2 B x 4096 x 32 a rank."""
    fit = tm.memory_fit("llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), batch=32, context=4096)
    assert float(fit.cache_bytes) == 32 * 2 * 128 * 2 * 4096 * 32
    kinds = [
        fit.weight_bytes,
        fit.cache_bytes,
        fit.scratchpad_bytes,
        fit.collective_buffer_bytes,
        fit.ring_bytes,
        fit.code_bytes,
        fit.runtime_bytes,
    ]
    assert float(fit.total_bytes) == pytest.approx(sum(float(kind) for kind in kinds))
    assert float(fit.first_rank_total_bytes) > float(fit.total_bytes)
    assert fit.valid


COUNTED = ("weight_bytes", "cache_bytes")
ESTIMATED = ("scratchpad_bytes", "collective_buffer_bytes", "ring_bytes", "code_bytes", "runtime_bytes")


@pytest.mark.parametrize("model", ["llama-3.3-70b", "deepseek-v3", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("system", ["inf2.48xlarge", "trn2.48xlarge", "trn3-nl72x2-switched", "hgx-h100"])
def test_the_band_of_memory_widens_what_is_estimated_alone(model, system):
    """Weights and cache have no width, no total ends below them, and ends of kinds add up to those of the total."""
    fit = tm.memory_fit(model, system, tm.Mapping(tp=[4, 8]), batch=8, context=4096)
    counted = sum(getattr(fit, name) for name in COUNTED)
    for name in COUNTED:
        for end in fit.ends(name):
            np.testing.assert_array_equal(end, getattr(fit, name))
    for side in (0, 1):
        whole = sum(fit.ends(name)[side] for name in (*COUNTED, *ESTIMATED))
        np.testing.assert_allclose(whole, fit.ends("total_bytes")[side], rtol=1e-9)
        assert (fit.ends("total_bytes")[side] >= counted * (1 - 1e-12)).all()
    assert (fit.ends("first_rank_total_bytes")[1] > fit.first_rank_total_bytes).all()
    assert not {"room_bytes", "capacity_bytes", "first_rank_capacity_bytes"} & {*fit.figures()}


def test_the_ends_of_a_rank_by_hand():
    """One total of 100 B, 80 of them counted, with half-widths of ln 1.5: 66.7 is below 80, so that it ends at 80."""
    fit = tm.memory_fit("llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), batch=32, context=4096)
    sizes = dict.fromkeys(("weight_bytes", "cache_bytes"), np.float64(40)) | {"total_bytes": np.float64(100)}
    sizes |= {"first_rank_total_bytes": np.float64(200), "code_bytes": np.float64(20)}
    wide = replace(fit, **sizes)
    wide.question.saved_widths[""] = (np.log(1.5), np.log(1.5))
    assert wide.ends("total_bytes") == pytest.approx((80, 150))
    assert wide.ends("first_rank_total_bytes") == pytest.approx((200 / 1.5, 300))
    assert wide.ends("code_bytes") == pytest.approx((0, 70))


def test_every_measured_total_of_a_rank_lies_in_the_band_of_the_call():
    """Sysfs of Llama-3.1-8B on Inferentia2, and three of Kimi-K2.5 on Trainium2, of which a page prints a bank."""
    ran = {"batch": 32, "context": 4096, "efficiencies": "optimum-neuron-2025"}
    fit = tm.memory_fit("llama-3.1-8b", "inf2.48xlarge", tm.Mapping(tp=8), **ran)
    assert fit.low < 5600 * 2**20 < fit.high
    low, high = fit.ends("first_rank_total_bytes")
    assert low < 8029 * 2**20 < high
    experts = replace(load.precision("bf16"), experts="fp8")
    sizes = {"batch": 1, "context": [128, 512, 1024], "precision": experts}
    kimi = tm.memory_fit("kimi-k2.5", "trn2.48xlarge", tm.Mapping(tp=64), **sizes)
    measured = np.array([20.9, 21.9, 23.4]) * 2**30
    assert ((kimi.low < measured) & (measured < kimi.high)).all()


def test_logical_core_size_splits_the_memory():
    fits = [
        tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8, lnc=n), batch=1, context=4096) for n in (1, 2)
    ]
    assert 2 * float(fits[0].capacity_bytes) == float(fits[1].capacity_bytes)


def stored(gib, ranks, first=0.0, lnc=1, system="trn2.48xlarge"):
    """A memory fit whose ranks store so many GiB each, of one sequence's cache, and the first one more."""
    e = replace(IDEAL, id="bare", first_rank_bytes=first * GIB)
    ask = {"batch": 1, "efficiencies": e, "input_tokens": 1}
    # the cache of Llama-3.1-8B is 131,072 B a token: 8,192 tokens are a GiB
    endless = replace(tm.model("llama-3.1-8b"), max_context=0)
    bare = tm.memory_fit(endless, system, tm.Mapping(tp=ranks, lnc=lnc), context=1, **ask)
    tokens = np.floor((gib * GIB - bare.total_bytes) * ranks / 131_072)
    return tm.memory_fit(endless, system, tm.Mapping(tp=ranks, lnc=lnc), context=tokens, **ask)


def test_two_ranks_of_a_bank_share_it_and_one_has_it_all():
    """A bank of Trainium2 is 24 GiB for two cores: at LNC 1 one rank of 20 GiB fits, two of 13 do not."""
    assert float(stored(20, 1).total_bytes) == pytest.approx(20 * GIB, rel=1e-4)
    assert stored(20, 1).valid
    assert not stored(24.1, 1).valid
    assert stored(13, 2).reason.startswith("does not fit in memory")
    assert stored(11.9, 2).valid
    assert stored(11.9, 8).valid
    assert not stored(12.1, 3).valid  # two of three share a bank
    assert stored(13, 2, lnc=2).valid


def test_the_first_rank_takes_what_its_neighbour_leaves():
    """10 + 10 + 3 GiB fit a bank of 24, of which the share is 12; 11 + 11 + 3 do not."""
    assert stored(10, 2, first=3).valid
    assert stored(11, 2, first=3).reason == "the first rank, which holds more, does not fit in memory"
    assert not stored(12, 2, first=3).valid
    assert stored(22, 1, first=3).valid  # a rank by itself leads no others
    assert float(stored(10, 2, first=3).room_bytes) == pytest.approx(1 * GIB, rel=1e-3)


def test_a_bank_that_is_shared_is_the_same_one_by_one_and_at_once():
    """Also with so many mappings that each is resolved once, and where a step is asked."""
    tps = np.array([1, 2, 4, 8, 3])
    many = np.tile(tps, 2000)
    ask = {"batch": 8, "context": 4096}
    fit = tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=many, lnc=1), **ask)
    step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=many, lnc=1), **ask)
    for place, tp in enumerate(tps):
        one = tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=int(tp), lnc=1), **ask)
        for name in ("total_bytes", "capacity_bytes", "first_rank_capacity_bytes", "room_bytes", "reason_mask"):
            assert getattr(fit, name)[place] == getattr(one, name)
        alone = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=int(tp), lnc=1), **ask)
        assert step.reason_mask[place] == alone.reason_mask
    assert (fit.capacity_bytes[:2] / GIB).tolist() == [24, 12]


def test_speculation():
    # 1 + a + a^2 + a^3 at a = 0.5
    assert float(tokens_per_step(3, 0.5)) == pytest.approx(1.875)
    with pytest.raises(ValueError, match="acceptance"):
        tokens_per_step(3, 1.5)
    ask = {"request": tm.Request(1000, 500, requests_per_s=0.05), "max_batch": 1}
    plain = tm.serve("llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64), **ask)
    draft = {"draft_tokens": 4, "acceptance": 0.8, "draft_step_s": 2e-3}
    drafted = tm.serve("llama-3.1-70b", system="trn2.48xlarge", mapping=tm.Mapping(tp=64), **ask, **draft)
    assert drafted.tpot_mean_s < plain.tpot_mean_s


def test_serving_limits():
    ask = {"system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8), "max_batch": 40, "max_context": 1536}
    rates = np.array([1e-6, 0.2, 0.8, 50.0])
    served = tm.serve("seed-oss-36b", tm.Request(1000, 500, requests_per_s=rates), **ask)
    idle = float(served.tpot_mean_s[0])
    assert idle == pytest.approx(float(served.step_s[0]), rel=1e-4)  # nobody else stalls it
    assert np.all(np.diff(served.tpot_mean_s[:3]) > 0)
    assert np.all(served.ttft_p99_s[:3] >= served.ttft_p50_s[:3])
    assert "faster than they are prefilled" in served.reason[3]
    assert np.isnan(served.tokens_per_s[3])
    np.testing.assert_allclose(served.tokens_per_s[:3], rates[:3] * 500)
    static = tm.serve("seed-oss-36b", tm.Request(1000, 500, requests_per_s=0.8), batching="static", **ask)
    assert static.ttft_p50_s > served.ttft_p50_s[2]
    with pytest.raises(ValueError, match="batching"):
        tm.serve("seed-oss-36b", tm.Request(1000, 500, requests_per_s=1), batching="magic", **ask)


def test_cached_prefix_and_chunks():
    ask = {"system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8), "max_batch": 8}
    requests = [tm.Request(8192, 200, requests_per_s=0.1, prefix_share=share) for share in (0.0, 0.9)]
    serve = [tm.serve("llama-3.1-8b", request, **ask) for request in requests]
    assert serve[1].ttft_p50_s < serve[0].ttft_p50_s
    chunked = tm.serve("llama-3.1-8b", requests[0], chunk_tokens=1024, **ask)
    assert chunked.ttft_p50_s > serve[0].ttft_p50_s


def test_disaggregated_ratio_balances():
    """At the ratio found, prompts prefilled a second equal requests decoded a second."""
    found = disaggregate(
        "llama-3.1-70b",
        "trn2.48xlarge",
        tm.Mapping(tp=16),
        "trn2.48xlarge",
        tm.Mapping(tp=32),
        batch=[1, 16],
        input_tokens=4000,
        output_tokens=400,
    )
    prefilled = found.prefill_replicas_per_decode_replica / found.prefill_s
    np.testing.assert_allclose(prefilled, found.requests_per_s_per_decode_replica)
    # 4,000 tokens x 327,680 B over 4 chips of 200 Gb/s
    assert float(found.transfer_s[0]) == pytest.approx(4000 * 327680 / (4 * 25e9))


def test_results_are_frozen_tables():
    step = decode(batch=[1, 2, 4])
    with pytest.raises(AttributeError):
        step.time_s = 0
    assert len(step.to_frame()) == 3
    assert {"model", "batch", "time_s", "valid", "reason", "bound"} <= set(step.to_frame().columns)


def test_a_grid_is_one_call():
    batch, context, tp = (
        np.arange(1, 101)[:, None, None],
        np.linspace(128, 131072, 500)[:, None],
        np.array([8, 16, 32, 64]),
    )
    times = decode(tp=tp, batch=batch, context=context).time_s  # `make bench` prints how many points a second
    assert times.shape == (100, 500, 4)
    for i, j, k in ((0, 0, 0), (99, 499, 3), (7, 100, 2)):
        one = decode(tp=tp[k], batch=batch[i, 0, 0], context=context[j, 0]).time_s
        assert times[i, j, k] == pytest.approx(float(one), rel=1e-12, nan_ok=True)
    assert np.isfinite(times[7, 100, 2])


@pytest.mark.parametrize("name", ["llama-3.1-8b", "jamba-v0.1", "qwen3-next-80b-a3b", "deepseek-v3"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_ranks_share_all_work_and_bytes_evenly_on_the_ideal_stack(name, phase):
    """Weights, caches and recurrent states: four ranks move what one moves, and compute what one computes."""
    roomy = replace(tm.chip("trainium3"), hbm_bytes=1e15)
    where = {"system": roomy, "efficiencies": "ideal", "batch": 8}
    ask = {"decode": (tm.decode_step, {"context": 4096}), "prefill": (tm.prefill, {"input_tokens": 4096})}
    call, lengths = ask[phase]
    one, four = (call(name, mapping=tm.Mapping(tp=tp), **where, **lengths) for tp in (1, 4))
    assert 4 * four.moved_bytes_per_rank == pytest.approx(float(one.moved_bytes_per_rank))
    assert 4 * four.work_flop_per_rank == pytest.approx(float(one.work_flop_per_rank))


def test_ideal_software_loses_nothing_and_adds_nothing():
    """Every share, ratio and factor is 1, every rate of its own unlimited, every time, pass and buffer 0."""
    for field in fields(IDEAL):
        value = getattr(IDEAL, field.name)
        if isinstance(value, float):
            ends = ("share", "ratio", "overlap", "factor", "slowdown", "_reads", "cache_passes", "p50", "_level")
            one = field.name.endswith(ends)
            free = field.name.endswith("_per_s") or field.name == "graph_layers"
            assert value == (1.0 if one else np.inf if free else 0.0), field.name
