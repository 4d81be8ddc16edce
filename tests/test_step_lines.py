"""Lines of a step worked out by hand: what each cost of a stack is paid for, and what experts read and work on."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL

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
    e = stack(host_logit_bytes_per_s=1e6, layer_s=2e-3, dense_layer_s=3e-3, graph_layers=10, graph_doubling_s=5e-3,
              sequence_s=7e-3, expert_serial_s=11e-3, step_overhead_s=13e-3, server_step_s=17e-3,
              expert_core_s=19e-3)  # fmt: skip
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
    moved = 2 * 256 * elements * read * 1.25 / 4
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
        prefilled("gpt-oss-120b", tm.Mapping(tp=4), replace(e, prefill_experts="all"), input_tokens=50,
                  precision=precision),
    ):  # fmt: skip
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
    e = stack(prefill_spill_bytes_per_s=1e9, layer_s=2e-3, prefill_layer_s=3e-3, prefill_overhead_s=5e-3,
              server_step_s=7e-3, score_passes=2.0)  # fmt: skip
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
        7 * 2 * 128_256 * 4096 / (CHIP.peak("bf16") / 4), rel=1e-12  # the last token of each prompt
    )  # fmt: skip


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
    e = stack(scratchpad_page_bytes=2.0**20, collective_buffer_bytes=3.0, ring_bytes_per_layer=5.0,
              code_bytes_per_layer=7.0, first_rank_bytes=11.0)  # fmt: skip
    fit = tm.memory_fit("llama-3.1-8b", CHIP, tm.Mapping(tp=4, pp=2, cp=3), batch=6, context=999, efficiencies=e)
    tokens = 999 / 3
    needed = tokens * 28_672 * 2 / 4 + 2 * tokens * 4096 * 2
    assert float(fit.scratchpad_bytes) == np.ceil(needed / 2**20) * 2**20
    assert float(fit.cache_bytes) == pytest.approx(6 * tokens * 131_072 / 4 / 2, rel=1e-12)
    assert (fit.collective_buffer_bytes, fit.ring_bytes, fit.code_bytes) == (3, 16 * 5, 16 * 7)
    assert fit.first_rank_total_bytes - fit.total_bytes == 11
    alone = tm.memory_fit("llama-3.1-8b", CHIP, batch=6, context=999, prompt_tokens=10, efficiencies=e)
    assert (alone.collective_buffer_bytes, alone.ring_bytes, alone.code_bytes) == (0, 32 * 5, 32 * 7)
    assert float(alone.scratchpad_bytes) == 2**20  # of 10 tokens


@pytest.mark.parametrize(("model", "layers", "elements"), [("llama-3.1-8b", 32, 32 * 128), (NAME, 61, 128 * 512)])
def test_ranks_that_cut_a_context_sum_up_outputs(model, layers, elements):
    """Of each of 5 sequences a vector of all heads; where the cache is a latent of 512, in its own width."""
    step = decoded(model, tm.Mapping(cp=2), IDEAL, batch=5, context=1000)
    found = [(m.kind, m.group, float(m.message_bytes), m.count) for m in step.messages if "partial" in m.name]
    assert found == [("all_reduce", "cp", 5 * elements * 2, layers)]
