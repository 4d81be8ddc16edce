"""Lines of a step worked out by hand: what each cost of a stack is paid for, and what experts read and work on."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL
from trnmodel.serving.server import disaggregate
from trnmodel.steps.assemble import ranks_of
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.ground import joint_spread
from trnmodel.steps.mapping import hold, shard

# DeepSeek-V3: 61 layers of 7,168, 58 of them with 256 experts of 2,048, 8 a token; 129,280 words
NAME, LAYERS, EXPERT_LAYERS, HIDDEN, WORDS = "deepseek-v3", 61, 58, 7168, 129_280
CHIP = replace(tm.chip("trainium2"), hbm_bytes=1e16)  # cores of 128 rows, 24 MiB of SBUF; logical ones of 2


def stack(**values):
    return replace(IDEAL, id="mine", **values)


def costs(step):
    """Seconds of the lines that are costs alone; of them only blocks of experts move anything."""
    found = {name: line for name, line in step.operators.items() if np.any(line.overhead_s)}
    assert not any(np.any(line.memory_s) for name, line in found.items() if name != "expert blocks")
    return {name: float(line.overhead_s) for name, line in found.items()}


def decoded(model, mapping, e, **ask):
    return tm.decode_step(model, CHIP, mapping, efficiencies=e, breakdown=True, **ask)


def prefilled(model, mapping, e, **ask):
    return tm.prefill(model, CHIP, mapping, efficiencies=e, breakdown=True, **ask)


def test_costs_of_a_decode_step():
    """24 sequences through 2 stages and 4 expert ranks: 12, then 3 at once; of 3 new tokens 9 rows, 36 for experts.

    58 layers of experts in graphs of 10 are 6, in each of which 8 x 4 ranks meet over 5 doublings; 64 cores route over
    log2(128) = 7.
    """
    e = stack(
        host_logit_bytes_per_s=1e6,
        layer_s=2e-3,
        dense_layer_s=3e-3,
        graph_layers=10,
        graph_doubling_s=5e-3,
        sequence_s=7e-3,
        expert_serial_s=11e-3,
        step_overhead_s=13e-3,
        server_step_s=17e-3,
        expert_core_s=19e-3,
    )
    step = decoded(NAME, tm.Mapping(tp=8, ep=4, pp=2), e, batch=24, context=1000, new_tokens=3)
    assert costs(step) == pytest.approx(
        {
            "expert routing": EXPERT_LAYERS * 19e-3 * 7 * 8**0.25,
            "logits to the host": 9 * WORDS * 4 / 1e6,
            "layers": 61 * 2e-3,
            "layers without experts": 3 * 3e-3,
            "graphs": 6 * 5 * 5e-3,
            "sequences": 3 * 7e-3,
            "experts one after another": 58 * 11e-3,
            "step": 30e-3,
        },
        rel=1e-12,
    )
    assert float(step.overhead_s) == pytest.approx(sum(costs(step).values()), rel=1e-12)


@pytest.mark.parametrize(
    ("policy", "degrees", "batch", "way", "work", "read"),
    [
        ("distinct", {"tp": 4}, 3, "needed", 1, 1 - (1 - 8 / 256) ** 3),
        ("per_token", {"tp": 4}, 3, "selected", 1, 3 * 8 * 1.5 / 256),
        ("per_token", {"tp": 4}, 31, "selected", 1, 1),  # 248 of 256, read one and a half times: no more than all
        ("per_token", {"tp": 4}, 32, "all", 256 / 8, 1),
        ("per_token", {"ep": 4}, 3, "all", 256 / 8, 1),
        ("per_token", {"tp": 4, "moe_ep": 2}, 3, "all", 256 / 8, 1),
        ("all", {"tp": 4}, 3, "all", 256 / 8, 1),
    ],
)
def test_experts_of_a_decode_step(policy, degrees, batch, way, work, read):
    """Up has 2 x 2,048 columns; each of four ranks works on a quarter of what is routed, and stores a quarter."""
    e = stack(expert_read=policy, expert_gather_reads=1.5)
    step = decoded(NAME, tm.Mapping(**degrees), e, batch=batch, context=100, expert_imbalance=1.25)
    assert step.experts == way
    line = step.operators["latent attention + experts: expert_up"]
    elements = EXPERT_LAYERS * HIDDEN * 4096
    flop = 2 * 8 * elements * batch * work * 1.25 / 4
    assert float(line.compute_s) == pytest.approx(flop / (CHIP.peak("bf16") / 4), rel=1e-12)
    moved = 2 * 256 * elements * min(read * 1.25, 1) / 4  # no more than what it stores
    assert float(line.memory_s) == pytest.approx(moved / (CHIP.hbm_bytes_per_s / 4), rel=1e-12)


def test_experts_meet_every_new_token():
    """3 sequences of 5 new tokens route 15 rows, as 15 of one do."""
    for policy in ("distinct", "per_token", "all"):
        several, single = (
            decoded(NAME, tm.Mapping(tp=4), stack(expert_read=policy), batch=batch, context=100, new_tokens=new)
            for batch, new in ((3, 5), (15, 1))
        )
        for name in ("expert_up", "expert_down"):
            lines = (step.operators[f"latent attention + experts: {name}"] for step in (several, single))
            assert np.array_equal(*map(np.asarray, lines))


@pytest.mark.parametrize("policy", ["distinct", "per_token", "all"])
def test_a_model_without_experts_runs_none(policy):
    assert decoded("llama-3.1-8b", tm.Mapping(), stack(expert_read=policy), batch=3, context=100).experts == ""
    assert prefilled("llama-3.1-8b", tm.Mapping(), stack(), input_tokens=64).experts == ""


@pytest.mark.parametrize(
    ("batch", "routing"),
    [(2, 58 * 6 * 2), (1000, 58 * 6 * 4)],  # of 16 gathered experts, and of all 256
)
def test_selecting_experts_takes_longer_the_more_are_gathered(batch, routing):
    """On 16 ranks of 2 cores, log2(64) = 6; 2 tokens gather 16 experts, whose fourth root is 2."""
    e = stack(expert_read="per_token", expert_core_s=1e-6)
    step = decoded(NAME, tm.Mapping(tp=16), e, batch=batch, context=100)
    assert costs(step)["expert routing"] == pytest.approx(routing * 1e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("precision", "elements"),
    [
        ("bf16", 0),
        # experts of 17/32 B and biases of 2 B, of 36 layers: 128 x 2,880 x (5,760 + 2,880), and 128 x (5,760 + 2,880)
        ("mxfp4-moe", 36 * 128 * 8640 * (2880 + 2 * 32 / 17)),
    ],
)
def test_weights_are_taken_to_another_format(precision, elements):
    """Experts of gpt-oss-120b that are stored narrower than products take them; two cores of 128 rows do 3 passes."""
    e = stack(expert_read="all", dequantise_passes=3.0)
    for step in (
        decoded("gpt-oss-120b", tm.Mapping(tp=4), e, batch=5, context=100, precision=precision),
        prefilled(
            "gpt-oss-120b", tm.Mapping(tp=4), replace(e, prefill_experts="all"), input_tokens=50, precision=precision
        ),
    ):
        found = costs(step).get("weights to another format", 0.0)
        assert found == pytest.approx(elements / 4 * 3 / (2 * 128 * CHIP.core.vector.clock_hz), rel=1e-12)


def test_wide_weights_are_cast_for_narrow_products():
    """Llama-3.1-8B: matrices of its 32 layers, of the head, and norms (wide ones too), where products are of FP8."""
    wide = tm.Precision(weights="bf16", compute="fp8")
    step = decoded("llama-3.1-8b", tm.Mapping(), stack(dequantise_passes=1.0), batch=1, context=10, precision=wide)
    params = 8_030_261_248 - 128_256 * 4096  # all but the table, of which rows are looked up
    assert costs(step) == pytest.approx(
        {"weights to another format": params / (2 * 128 * CHIP.core.vector.clock_hz)}, rel=1e-12
    )


def test_costs_of_a_prefill():
    """6 prompts of 4,000 tokens, 3 to a rank, cut in 2; all but the first spill what SBUF does not hold."""
    e = stack(
        prefill_spill_bytes_per_s=1e9,
        layer_s=2e-3,
        prefill_layer_s=3e-3,
        prefill_overhead_s=5e-3,
        server_step_s=7e-3,
        score_passes=2.0,
    )
    step = prefilled(NAME, tm.Mapping(ep=2, cp=2, tp=4), e, batch=6, input_tokens=4000, past=500)
    sbuf, rows = CHIP.core.sbuf_bytes * 2, 3 * 4000 / 2
    scores_s = 2 * 4 * (LAYERS * 128 / 4) * rows * 4500 / (CHIP.hbm_bytes_per_s / 4)  # FP32, written and read
    assert costs(step) == pytest.approx(
        {
            "scores": scores_s,
            "spills": LAYERS * 2 * (rows * HIDDEN * 2 - sbuf) / 1e9,
            "layers": LAYERS * 5e-3,
            "step": 12e-3,
        },
        rel=1e-12,
    )


def test_recurrence_goes_from_token_to_token():
    """28 of Jamba's 32 layers, each of 700 tokens, whatever the batch is."""
    step = prefilled("jamba-v0.1", tm.Mapping(), stack(recurrent_token_s=1e-6), batch=3, input_tokens=700)
    assert costs(step) == pytest.approx({"recurrence": 28 * 700e-6}, rel=1e-12)


@pytest.mark.parametrize(
    ("degrees", "tokens", "block", "way", "blocks"),
    [
        # of T tokens 8 T rows, at worst one for each of 127 experts and the others for one: of 32 rows a block
        # ceil((8 T - 127) / 32) + 127 blocks, no more than rows; all experts on all tokens would be 128 T rows
        ({}, 3, 32, "all", 0),  # 24 rows fill no block, and the 32 blocks of 4 tokens are 1,024 rows, all are 384
        ({}, 4, 32, "blocks, more work than all", 32),
        ({}, 33, 32, "blocks, more work than all", 132),  # 4,224 rows are as many as all
        ({}, 34, 32, "blocks", 132),
        ({}, 300, 32, "blocks", 199),  # ceil(2,273 / 32) = 72
        ({}, 1, 9, "blocks", 9),  # 8 rows fill no block of 9, and 9 blocks of 9 are less than 128
        # of two groups each has 64 experts: half of the tokens with 8 rows each, or all of them
        ({"cp": 2}, 600, 32, "blocks", 199),  # each of two ranks has half of every prompt
        ({"ep": 128}, 512, 32, "blocks", 1),  # one expert and 4 tokens a rank, 32 rows
        ({"ep": 2}, 600, 32, "blocks", 137),  # ceil((2,400 - 63) / 32) + 63
        ({"tp": 4, "moe_ep": 2}, 20, 32, "blocks, more work than all", 67),  # 2,144 rows, not below 20 x 64
    ],
)
def test_blocks_of_experts(degrees, tokens, block, way, blocks):
    """Qwen3-30B-A3B: 48 layers of 2,048 with 128 experts of 2 x 768 columns up, 8 a token; a block has its weights."""
    e = stack(prefill_experts="blocks", expert_block_tokens=float(block), expert_block_s=1e-3)
    step = prefilled("qwen3-30b-a3b", tm.Mapping(**degrees), e, input_tokens=tokens)
    assert step.experts == way
    assert costs(step).get("expert blocks", 0) == pytest.approx(48 * blocks * 1e-3, rel=1e-12)
    rate = CHIP.hbm_bytes_per_s / 4
    gathered_s = 3 * 48 * blocks * block * 2048 * 2 / rate  # inputs; sums, read and written
    assert float(step.operators["expert blocks"].memory_s) == pytest.approx(gathered_s, rel=1e-12)
    line = step.operators["causal attention + experts: expert_up"]
    ran, read = (blocks * block, blocks) if blocks else (128 * tokens, 128)
    columns = 1536 / (degrees.get("tp", 1) / degrees.get("moe_ep", 1))
    assert float(line.compute_s) == pytest.approx(2 * 48 * ran * 2048 * columns / (CHIP.peak("bf16") / 4), rel=1e-12)
    assert float(line.memory_s) == pytest.approx(48 * read * 2048 * columns * 2 / rate, rel=1e-12)


def test_buckets_start_at_128_tokens():
    e = stack(context_bucket="power-of-two", prompt_bucket="power-of-two")
    tokens = [1, 128, 129, 1500, 4097]
    for more, longest in (({}, 8192), ({"max_context": 5000}, 5000)):
        for found in (
            tm.decode_step("llama-3.1-8b", CHIP, batch=1, context=tokens, efficiencies=e, **more),
            tm.prefill("llama-3.1-8b", CHIP, input_tokens=tokens, efficiencies=e, **more),
        ):
            assert found.compiled_tokens.tolist() == [128, 128, 256, 2048, longest]
    longest = tm.prefill("llama-3.1-8b", CHIP, input_tokens=70, efficiencies=stack(prompt_bucket="maximum"))
    assert longest.compiled_tokens == 70


def test_a_rank_alone_at_its_bank_reads_the_cache_more_often():
    """At LNC 1 two cores reach a bank; from two sequences on each reads 1.5 times what it needs, and writes a row."""
    e = stack(lone_core_cache_passes=1.5)
    for lnc, batch, passes in ((1, 1, 1), (1, 2, 1.5), (2, 2, 1)):
        step = decoded("llama-3.1-8b", tm.Mapping(lnc=lnc), e, batch=batch, context=1000)
        line = step.operators["causal attention + dense: causal attention"]
        moved = 32 * 2 * 8 * 128 * 2 * batch * (passes * 1000 + 1)
        assert float(line.memory_s) == pytest.approx(moved / (CHIP.hbm_bytes_per_s / (8 / lnc)), rel=1e-12)


def test_attention_of_a_prefill():
    """7 prompts of 300 tokens after 200: 300 x 301 / 2 pairs of their own and 300 x 200; the cache read and written."""
    step = prefilled("llama-3.1-8b", tm.Mapping(cp=2), IDEAL, batch=7, input_tokens=300, past=200)
    line = step.operators["causal attention + dense: causal attention"]
    flop = 32 * 32 * 2 * 2 * 128 * 7 * (300 * 301 / 2 + 300 * 200) / 2
    assert float(line.compute_s) == pytest.approx(flop / (CHIP.peak("bf16") / 4), rel=1e-12)
    moved = 32 * 2 * 8 * 128 * 2 * 7 * (200 + 300) / 2
    assert float(line.memory_s) == pytest.approx(moved / (CHIP.hbm_bytes_per_s / 4), rel=1e-12)
    assert float(step.operators["head"].compute_s) == pytest.approx(
        7 * 2 * 128_256 * 4096 / (CHIP.peak("bf16") / 4),
        rel=1e-12,  # the last token of each prompt
    )


def test_a_state_is_read_and_written():
    """Jamba's 28 states of 8,192 x 16 in FP32, and tails of 3 tokens in BF16, of 5 sequences."""
    step = decoded("jamba-v0.1", tm.Mapping(), IDEAL, batch=5, context=10)
    scans = [line for name, line in step.operators.items() if name.endswith("scan")]
    one, rate = 28 * 8192 * (16 * 4 + 3 * 2), CHIP.hbm_bytes_per_s / 4
    assert sum(float(line.memory_s) for line in scans) == pytest.approx(2 * 5 * one / rate, rel=1e-12)
    work_s = 5 * 28 * 2 * 2 * 8192 * 16 / (CHIP.peak("bf16") / 4)
    assert sum(float(line.compute_s) for line in scans) == pytest.approx(work_s, rel=1e-12)
    assert float(step.moved_bytes_per_rank) == pytest.approx(float(step.memory_s) * rate, rel=1e-12)


def test_a_cache_is_cut_by_context_parallel_ranks():
    """Mistral's window of 4,096 in 32 layers: of 12,000 tokens each of 2 ranks has 6,000, of which it sees the last."""
    for context, seen in ((12_000, 4096), (3000, 1500)):
        step = decoded("mistral-7b-v0.1", tm.Mapping(cp=2), IDEAL, batch=5, context=context, new_tokens=3)
        (line,) = (line for name, line in step.operators.items() if name.endswith(": sliding attention"))
        flop, moved = 32 * 32 * 4 * 128 * 5 * 3 * seen, 32 * 2 * 8 * 128 * 2 * (5 * seen + 5 * 3)
        assert float(line.compute_s) == pytest.approx(flop / (CHIP.peak("bf16") / 4), rel=1e-12)
        assert float(line.memory_s) == pytest.approx(moved / (CHIP.hbm_bytes_per_s / 4), rel=1e-12)


def test_a_matrix_and_a_table():
    """Queries of Llama-3.1-8B are 4,096 x 4,096 in 32 layers, read once; of the table each of 6 tokens reads a row."""
    step = decoded("llama-3.1-8b", tm.Mapping(), IDEAL, batch=6, context=10)
    line, rate = step.operators["causal attention + dense: q"], CHIP.hbm_bytes_per_s / 4
    assert float(line.compute_s) == pytest.approx(6 * 32 * 2 * 4096**2 / (CHIP.peak("bf16") / 4), rel=1e-12)
    assert float(line.memory_s) == pytest.approx(32 * 2 * 4096**2 / rate, rel=1e-12)
    assert float(step.operators["embedding"].memory_s) == pytest.approx(6 * 4096 * 2 / rate, rel=1e-12)
    assert float(step.compute_s) == pytest.approx(float(step.work_flop_per_rank) / (CHIP.peak("bf16") / 4), rel=1e-12)


@pytest.mark.parametrize("phase_overlap", [1.0, 0.25, 0.0])
def test_phases_that_wait_for_each_other(phase_overlap):
    """Matrices beside weights and attention beside the cache, each by itself, or all at once, or a part of both."""
    e = stack(phase_overlap=phase_overlap, compute_memory_overlap=0.5, network_overlap=0.75)
    step = decoded("llama-3.1-8b", tm.Mapping(tp=4), e, batch=2000, context=600)
    inner = step.operators["causal attention + dense: causal attention"]
    pair_s, cache_s = float(inner.compute_s), float(inner.memory_s)
    linear_s, weights_s = float(step.compute_s) - pair_s, float(step.memory_s) - cache_s

    def half(one, two):
        return max(one, two) + min(one, two) / 2

    joined = half(pair_s + linear_s, cache_s + weights_s)
    apart = half(pair_s, cache_s) + half(linear_s, weights_s)
    assert apart > 1.1 * joined
    device, network = phase_overlap * joined + (1 - phase_overlap) * apart, float(step.network_s)
    assert float(step.time_s) == pytest.approx(max(device, network) + min(device, network) / 4, rel=1e-12)


def test_what_a_rank_stores():
    """Llama-3.1-8B on 2 stages of 4 ranks: 16 layers each; the widest matrix has 28,672 columns."""
    e = stack(
        scratchpad_page_bytes=2.0**20,
        collective_buffer_bytes=3.0,
        ring_bytes_per_layer=5.0,
        code_bytes_per_layer=7.0,
        first_rank_bytes=11.0,
    )
    fit = tm.memory_fit("llama-3.1-8b", CHIP, tm.Mapping(tp=4, pp=2, cp=3), batch=6, context=999, efficiencies=e)
    tokens = 999 / 3
    needed = tokens * 28_672 * 2 / 4 + 2 * tokens * 4096 * 2
    assert float(fit.scratchpad_bytes) == np.ceil(needed / 2**20) * 2**20
    assert float(fit.cache_bytes) == pytest.approx(6 * tokens * 131_072 / 4 / 2, rel=1e-12)
    assert (fit.collective_buffer_bytes, fit.ring_bytes, fit.code_bytes) == (3, 16 * 5, 16 * 7)
    assert fit.first_rank_total_bytes - fit.total_bytes == 11
    alone = tm.memory_fit("llama-3.1-8b", CHIP, batch=6, context=999, input_tokens=10, efficiencies=e)
    assert (alone.collective_buffer_bytes, alone.ring_bytes, alone.code_bytes) == (0, 32 * 5, 32 * 7)
    assert float(alone.scratchpad_bytes) == 2**20  # of 10 tokens


@pytest.mark.parametrize(("model", "layers", "elements"), [("llama-3.1-8b", 32, 32 * 128), (NAME, 61, 128 * 512)])
def test_ranks_that_cut_a_context_sum_up_outputs(model, layers, elements):
    """Of each of 5 sequences a vector of all heads; where the cache is a latent of 512, in its own width."""
    step = decoded(model, tm.Mapping(cp=2), IDEAL, batch=5, context=1000)
    found = [(m.kind, m.group, float(m.message_bytes), m.count) for m in step.messages if "partial" in m.name]
    assert found == [("all_reduce", "cp", 5 * elements * 2, layers)]


@pytest.mark.parametrize(
    ("model", "tp", "ranks", "queries", "outputs"),
    [("llama-3.1-8b", 32, 4, 4 * 128, 4 * 128), (NAME, 4, 4, 128 * 576, 128 * 512)],
)
def test_a_cache_that_is_cut_by_tokens_costs_an_exchange(model, tp, ranks, queries, outputs):
    """32 heads on 32 ranks, 8 KV heads: groups of 4 ranks exchange 4 heads. A latent is of all 128 heads and ranks."""
    e = replace(IDEAL, id="mine", cache_split="tokens", kv_head_policy="replicate")
    step = decoded(model, tm.Mapping(tp=tp), e, batch=5, context=1000)
    found = [
        (m.kind, float(ranks_of(m, tp)), float(m.message_bytes), m.count) for m in step.messages if m.group == "tp"
    ]
    layers = tm.model(model).n_layers
    assert found[1:] == [
        ("all_gather", ranks, 5 * queries * 2, layers),
        ("reduce_scatter", ranks, 5 * outputs * 2, layers),
    ]
    copied = decoded(model, tm.Mapping(tp=tp), replace(e, cache_split="heads"), batch=5, context=1000)
    assert [m.kind for m in copied.messages] == ["all_reduce"]
    assert step.network_s > copied.network_s


def test_heads_that_are_not_cut_exchange_nothing():
    """8 KV heads on 8 ranks: each exchange is of one rank and takes no time."""
    step, copied = (
        decoded("llama-3.1-8b", tm.Mapping(tp=8), replace(IDEAL, id=one, cache_split=one), batch=5, context=1000)
        for one in ("tokens", "heads")
    )
    assert step.network_s == copied.network_s


def test_experts_that_are_not_read_are_not_taken_to_another_format():
    """Of 128 experts, 4 a token, 5 tokens need all but (31/32)^5 of them."""
    e = stack(expert_read="distinct", dequantise_passes=3.0)
    found = costs(decoded("gpt-oss-120b", tm.Mapping(tp=4), e, batch=5, context=100, precision="mxfp4-moe"))
    elements = 36 * 128 * 8640 * (2880 + 2 * 32 / 17) * (1 - (31 / 32) ** 5)
    assert found["weights to another format"] == pytest.approx(
        elements / 4 * 3 / (2 * 128 * CHIP.core.vector.clock_hz), rel=1e-12
    )


@pytest.mark.parametrize(
    ("policy", "way", "ran", "read"),
    [("routed", "needed", 3 * 8, 128 * (1 - (15 / 16) ** 3)), ("all", "all", 3 * 128, 128)],
)
def test_prefills_that_run_no_blocks(policy, way, ran, read):
    """3 tokens of Qwen3-30B-A3B, 8 of 128 experts each: 24 rows of those needed, or all rows of all."""
    e = stack(prefill_experts=policy, expert_block_tokens=32.0, expert_block_s=1e-3)
    step = prefilled("qwen3-30b-a3b", tm.Mapping(), e, input_tokens=3)
    assert step.experts == way
    assert "expert blocks" not in costs(step)
    assert float(step.operators["expert blocks"].memory_s) == 0
    line = step.operators["causal attention + experts: expert_up"]
    assert float(line.compute_s) == pytest.approx(2 * 48 * ran * 2048 * 1536 / (CHIP.peak("bf16") / 4), rel=1e-12)
    assert float(line.memory_s) == pytest.approx(48 * read * 2048 * 1536 * 2 / (CHIP.hbm_bytes_per_s / 4), rel=1e-12)


def test_a_model_without_experts_has_no_blocks():
    e = stack(prefill_experts="blocks", expert_block_tokens=32.0, expert_block_s=1e-3)
    step = prefilled("llama-3.1-8b", tm.Mapping(), e, input_tokens=300)
    assert costs(step) == {}
    assert float(step.operators["expert blocks"].memory_s) == 0


def test_recurrence_is_cut_by_context_parallel_ranks():
    step = prefilled("jamba-v0.1", tm.Mapping(cp=2), stack(recurrent_token_s=1e-6), input_tokens=700)
    assert costs(step) == pytest.approx({"recurrence": 28 * 350e-6}, rel=1e-12)


def test_shards_of_experts_fill_tiles():
    """768 columns on 5 ranks are 153.6: of tiles of 1 column 154, of 512 columns one; 0 is no tile."""
    tile = np.array([0.0, 1.0, 512.0])
    step = decoded("qwen3-30b-a3b", tm.Mapping(tp=5), stack(expert_tile_columns=tile), batch=3, context=100)
    line = step.operators["causal attention + experts: expert_down"].compute_s
    whole = 2 * 48 * 3 * 8 * 768 * 2048 / 5 / (CHIP.peak("bf16") / 4)
    assert line == pytest.approx(whole * np.array([1, 154 / 153.6, 512 / 153.6]), rel=1e-12)
    terms = tm.model("qwen3-30b-a3b").terms("bf16", "decode")
    experts = [term for term in terms if term.kind == "experts" and term.cut.inner]
    assert experts
    assert all(float(hold(term, tm.Mapping(tp=5)).work) == 1 / 5 for term in experts)
    held = shard(tm.model("qwen3-30b-a3b"), tm.Mapping(tp=5), tm.Precision(), "decode", "even")
    assert all(float(one.work) == 1 / 5 for one in held)
    for one in shard(tm.model("gpt-oss-120b"), tm.Mapping(tp=5), tm.Precision(), "decode", "even", 512):
        assert np.isfinite(one.work), one.term.label  # biases too, which have no columns


@pytest.mark.parametrize("degrees", [{"tp": 4, "ep": 8}, {"tp": 4}])
def test_tokens_go_to_experts_of_other_ranks(degrees):
    """40 sequences on 8 ranks are 5 of 7,168 x 2 B each, to 8 experts and back, of four ranks a quarter each."""
    e = stack(dispatch_traffic_ratio=1.5)
    step = decoded(NAME, tm.Mapping(**degrees), e, batch=40, context=100, expert_imbalance=1.25)
    found = [(m.kind, float(m.message_bytes), float(m.count)) for m in step.messages if m.group == "ep"]
    sent = 5 * 7168 * 2 * 8 / 4 * 1.25 * 1.5
    assert found == ([("all_to_all", pytest.approx(sent, rel=1e-12), 2 * 58)] if "ep" in degrees else [])


def test_ranks_of_a_mapping():
    """Strides are products of the degrees further in: by default those of tp, cp, ep, pp, dp."""
    mapping = tm.Mapping(tp=2, pp=3, dp=5, ep=7, cp=11)
    assert (mapping.replica_ranks, mapping.ranks) == (2 * 3 * 7 * 11, 2310)
    assert [tuple(map(float, mapping.extent(name))) for name in ("tp", "cp", "ep", "pp", "dp")] == [
        (1, 2),
        (2, 22),
        (22, 154),
        (154, 462),
        (462, 2310),
    ]
    step = decoded(NAME, mapping, stack(), batch=210, context=100)
    assert float(step.occupied_chips) == 578  # of 4 logical cores, of the last one half
    assert float(step.tokens_per_s_per_chip) == float(step.tokens_per_s) / 578
    assert Deployment(model=NAME, system="trn2.48xlarge", mapping=mapping).chips == 578


def test_degrees_are_not_written_over():
    with pytest.raises(ValueError, match="read-only"):
        tm.Mapping(tp=[1, 2]).tp[0] = 3


@pytest.mark.parametrize("placement", [5, (1, "tp", "cp", "ep", "pp"), {"tp", "cp", "ep", "pp", "dp"}, "tp", ("tp",)])
def test_a_placement_is_an_order_of_all_degrees(placement):
    with pytest.raises(ValueError, match=r"placement=.*: allowed are orders of"):
        tm.Mapping(placement=placement)


@pytest.mark.parametrize(
    ("phase", "exchange", "kind", "elements", "count"),
    [
        # 32 heads and 8 of keys and values, of 128, on 4 ranks
        ("decode", "ring", "all_reduce", 8 * 128, 32),
        ("prefill", "ring", "p2p", 2 * 2 * 128, 32 * 2),
        ("prefill", "ulysses", "all_to_all", (8 + 2) * 2 * 128, 32),
    ],
)
def test_ranks_that_cut_a_context_send_their_share_of_heads(phase, exchange, kind, elements, count):
    """5 sequences of 600 tokens on 3 ranks, 200 of each; a token of each in a decode step."""
    e, mapping = stack(context_exchange=exchange), tm.Mapping(tp=4, cp=3)
    if phase == "decode":
        step, rows = decoded("llama-3.1-8b", mapping, e, batch=5, context=600), 5
    else:
        step, rows = prefilled("llama-3.1-8b", mapping, e, batch=5, input_tokens=600), 5 * 200
    (found,) = (m for m in step.messages if m.group == "cp")
    assert (found.kind, float(found.message_bytes), float(found.count)) == (kind, rows * elements * 2, count)


def test_stages_pass_on_what_they_have():
    """12 sequences on 4 stages are 3 at once, of 4,096 x 2 B, over 3 boundaries."""
    step = decoded("llama-3.1-8b", tm.Mapping(pp=4), stack(), batch=12, context=100)
    (found,) = step.messages
    assert (found.name, found.kind, found.group) == ("stage boundary", "p2p", "pp")
    assert (float(found.message_bytes), float(found.count)) == (3 * 4096 * 2, 3)


def test_no_operators_are_listed_unless_asked_for():
    assert tm.prefill("llama-3.1-8b", CHIP, input_tokens=10, efficiencies=IDEAL).operators == {}
    assert tm.decode_step("llama-3.1-8b", CHIP, batch=1, context=10, efficiencies=IDEAL).operators == {}


def test_activations_of_a_step_are_those_of_its_new_tokens():
    """2 more tokens of each of 6 sequences: the widest matrix of 28,672 on 4 ranks, and twice the hidden state."""
    one, three = (decoded("llama-3.1-8b", tm.Mapping(tp=4), IDEAL, batch=6, context=100, new_tokens=n) for n in (1, 3))
    more = float(three.memory_bytes_per_rank - one.memory_bytes_per_rank)
    assert more == pytest.approx(12 * (28_672 * 2 / 4 + 2 * 4096 * 2), rel=1e-9)


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("share", [1.0, 1 - 1e-12])
def test_a_memory_of_exactly_what_ranks_store_holds_it(lnc, share):
    """Two cores reach a bank: alone at LNC 2, as two ranks at LNC 1. All of 8 ranks store the same."""
    ask = {"mapping": tm.Mapping(tp=8, lnc=lnc), "batch": 3, "context": 100, "efficiencies": IDEAL}
    step = tm.decode_step("llama-3.1-8b", CHIP, **ask)
    chip = replace(CHIP, hbm_bytes=float(step.memory_bytes_per_rank) * (8 / lnc) * share)
    assert bool(tm.decode_step("llama-3.1-8b", chip, **ask).valid) is (share == 1)
    fit = tm.memory_fit("llama-3.1-8b", CHIP, **ask)
    chip = replace(CHIP, hbm_bytes=float(fit.total_bytes) * (8 / lnc) * share)
    told = tm.memory_fit("llama-3.1-8b", chip, **ask)
    assert bool(told.valid) is (share == 1)
    first = replace(IDEAL, id="first", first_rank_bytes=float(fit.total_bytes))
    room = replace(CHIP, hbm_bytes=float(fit.total_bytes) * (8 / lnc) * (2 if lnc == 2 else 1.5) * share)
    told = tm.memory_fit("llama-3.1-8b", room, **ask | {"efficiencies": first})
    assert told.reason == ("" if share == 1 else "the first rank, which holds more, does not fit in memory")


def test_a_memory_fit_says_all_that_is_wrong():
    ask = {"batch": 1, "context": 100, "efficiencies": IDEAL}
    found = tm.memory_fit("llama-3.1-8b", "trn1.2xlarge", tm.Mapping(tp=64), **ask)
    assert found.reason == "more ranks than the system has"
    with pytest.raises(ValueError, match="mxfp4"):
        tm.decode_step("llama-3.1-8b", tm.chip("a100"), precision="mxfp4", **ask)
    assert tm.memory_fit("llama-3.1-8b", tm.chip("a100"), precision="mxfp4", **ask).valid  # which asks for no peak


@pytest.mark.parametrize("fixed", [None, 0.25])
def test_a_band_of_an_open_overlap(fixed):
    """Of a stack of one's own that leaves the network's overlap open: the times at its ends, if it is not given."""
    own = stack(network_overlap=0.5, layer_s=1e-5)
    of = {"network_overlap": (0.0, 1.0), "layer_s": (5e-6, 2e-5)}
    own = replace(own, ranges={name: of[name] for name in (("layer_s",) if fixed else ("network_overlap",))})
    ask = {"mapping": tm.Mapping(tp=8), "batch": 64, "context": 1000, "network_overlap": fixed}

    def timed(e):
        return tm.decode_step("llama-3.1-8b", CHIP, **ask, efficiencies=e)

    step = timed(own)
    assert step.basis == "extrapolated"
    name = "layer_s" if fixed else "network_overlap"
    low, high = sorted(float(timed(replace(own, ranges={}, **{name: end})).time_s) for end in of[name])
    assert high > 1.01 * low
    alone = timed(replace(own, ranges={}))
    width = np.log(float(alone.high / alone.time_s))  # of what nobody has measured
    for end, far in ((float(step.low), low), (float(step.high), high)):
        apart = np.log(far / float(step.time_s))
        assert abs(np.log(end / float(step.time_s))) == pytest.approx(np.hypot(apart, width), rel=1e-6)


def test_ranks_of_a_question_are_all_of_a_replica():
    """A width grows with the ranks beyond those of the rows, whichever degrees they are of, replicas aside."""
    ask = {"batch": 64, "context": 4096, "efficiencies": "vllm-neuron-2026"}

    def width(**degrees):
        return float(tm.decode_step(NAME, CHIP, tm.Mapping(**degrees), **ask).judge().width)

    assert width(tp=1024) > 1.02 * width(tp=64)
    for degrees in ({"tp": 64, "pp": 16}, {"tp": 64, "ep": 16}, {"tp": 64, "cp": 16}, {"tp": 1024, "dp": 4}):
        assert width(**degrees) == width(tp=1024)


class Told:
    """A part of an answer whose figures have widths by their first letters, wider under load."""

    def __init__(self, below, load):
        self.below, self.load = below, load

    def widths(self, name, part=""):
        wide = self.load if part == "load" else self.below
        return wide, 2 * wide


@pytest.mark.parametrize(
    ("name", "under_load", "alone"),
    [
        ("requests_per_s", True, 0),
        ("tokens_per_s", True, 0),
        ("tokens_per_s_per_chip", True, 0),
        ("ttft_p50_s", True, 3),
        ("prefill_s", True, 3),
        ("step_s", True, 2),
        ("tpot_mean_s", True, 5),
        ("tokens_per_s_per_user", True, 5),
        ("request_s", True, 5),
        ("step_s", False, 2),
        ("tokens_per_s_per_user", False, 2),
        ("tokens_per_s_per_chip", False, 3),
        ("ttft_s", False, 3),
        ("prefill_chips_per_decode_chip", False, 3),
        ("requests_per_s_per_decode_replica", False, 3),
    ],
)
def test_what_an_answer_of_two_parts_may_be_off(name, under_load, alone):
    """3 of the prefill, 2 of the step, 5 of steps under load; twice as much above."""
    assert joint_spread(Told(3, 7), Told(2, 5), under_load, name) == (alone, 2 * alone)


def test_widths_under_load_and_of_memory_are_those_of_their_own_rows():
    """Those of a step are told from those of loaded servers, and a memory's from a step's."""
    ask = {"mapping": tm.Mapping(tp=8), "batch": 4, "context": 4096}  # inside of the rows of steps
    step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", **ask)
    sure = replace(tm.efficiencies("trainium2"), ranges={})  # beyond its rows a memory has the stack's ranges too
    fit = tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", **ask, efficiencies=sure)
    assert step.widths("time_s") == step.widths("tokens_per_s") == step.judge().sides
    assert step.widths("time_s", part="load") != step.widths("time_s")
    below, above = fit.widths("total_bytes")
    sides = fit.judge().sides  # of the rows as they are printed, kinds of bytes among them
    assert 0 < below < sides[0]
    assert 0 < above < sides[1]
    assert fit.total_bytes * np.exp(-below) >= (fit.weight_bytes + fit.cache_bytes) * (1 - 1e-12)
    assert sides != step.widths("time_s")


@pytest.mark.parametrize(
    ("model", "degrees", "reason"),
    [
        ("llama-3.1-8b", {"pp": 32}, ""),
        ("llama-3.1-8b", {"pp": 33}, "more pipeline stages than layers"),
        ("llama-3.1-8b", {"ep": 2}, "more expert-parallel ranks than experts"),
        ("qwen3-30b-a3b", {"ep": 64, "tp": 4, "moe_ep": 2}, ""),  # 128 groups of 128 experts
        ("qwen3-30b-a3b", {"ep": 128, "tp": 4, "moe_ep": 2}, "more expert-parallel ranks than experts"),
    ],
)
def test_mappings_that_cannot_be(model, degrees, reason):
    ask = {"batch": 128, "context": 100, "efficiencies": IDEAL}
    assert tm.decode_step(model, CHIP, tm.Mapping(**degrees), **ask).reason == reason
    assert tm.memory_fit(model, CHIP, tm.Mapping(**degrees), **ask).reason == reason


def test_shares_of_the_peak_in_prefill():
    """Half of the peak, 1.25 times slower: 0.4 of it; attention 0.3 / 1.25, or no more than matrices."""
    for attention, reached in ((0.3, 0.24), (0.9, 0.4)):
        e = stack(prefill_matmul_share=0.5, prefill_attention_share=attention, prefill_slowdown=1.25)
        ideal, step = (prefilled("llama-3.1-8b", tm.Mapping(), each, input_tokens=64) for each in (stack(), e))
        for name, share in (("q", 0.4), ("causal attention", reached)):
            line = f"causal attention + dense: {name}"
            assert float(ideal.operators[line].compute_s) == pytest.approx(
                share * float(step.operators[line].compute_s), rel=1e-12
            )


def test_two_ranks_have_buffers_for_what_they_send():
    e = stack(collective_buffer_bytes=3.0)
    fits = [
        tm.memory_fit("llama-3.1-8b", CHIP, tm.Mapping(tp=tp), batch=1, context=10, efficiencies=e) for tp in (1, 2)
    ]
    assert [float(fit.collective_buffer_bytes) for fit in fits] == [0, 3]


def test_a_prompt_s_states_are_sent_beside_its_cache():
    """Of Jamba 4 layers have a cache, of 8 heads of 128, and 28 states of 8,192 x 16 in FP32 and tails of 3 tokens."""
    ask = {"batch": 1, "input_tokens": 700, "output_tokens": 9}
    stacks = {"prefill_efficiencies": "ideal", "decode_efficiencies": "ideal"}
    found = disaggregate("jamba-v0.1", CHIP, tm.Mapping(), CHIP, tm.Mapping(), **ask, **stacks)
    assert float(found.transfer_bytes) == 700 * 4 * 2 * 8 * 128 * 2 + 28 * 8192 * (16 * 4 + 3 * 2)


def test_arrays_of_a_stack_fit_those_of_a_mapping():
    e = stack(layer_s=np.array([1e-3, 2e-3, 3e-3]))
    with pytest.raises(ValueError, match=r"of shape \(3,\) does not fit mapping.tp of shape \(2,\)"):
        tm.decode_step("llama-3.1-8b", CHIP, tm.Mapping(tp=[1, 2]), batch=1, context=10, efficiencies=e)
    with pytest.raises(ValueError, match=r"batch of shape \(3,\) does not fit mapping.tp of shape \(2,\)"):
        tm.decode_step("llama-3.1-8b", CHIP, tm.Mapping(tp=[1, 2]), batch=[1, 2, 3], context=10, efficiencies=IDEAL)
