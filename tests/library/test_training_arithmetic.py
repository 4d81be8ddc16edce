"""Bytes, times and memory of a training step, counted by hand from the papers that say what is sent and kept."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.trainers import IDEAL, trainer
from trnmodel.models.backward import saved

DENSE = tm.model("llama-3.1-8b")  # 32 layers of 4,096, 8 heads of keys and values of 128
HIDDEN_NOTHING = replace(IDEAL, id="serial", **{f"{pair}_overlap": 0.0 for pair in ("tp", "ep", "cp", "pp", "dp")})
ROOMY = replace(tm.chip("a100"), hbm_bytes=1e15)
RATE = 1e9  # B/s of a GPU into a network so slow that it is what takes time


def cluster(gpus, rate=RATE):
    return replace(tm.system("hgx-a100", count=gpus // 8), chip=ROOMY, network_bytes_per_s_per_dir=8 * rate)


def sent(step, name):
    return sum(float(m.count * m.message_bytes) for m in step.messages if m.name.startswith(name))


@pytest.mark.parametrize(("recompute", "passes"), [("none", 3), ("selective", 3), ("full", 4)])
def test_a_ring_passes_keys_and_values_once_forward_and_with_their_gradients_back(recompute, passes):
    """Ring attention (Liu et al., 2023, sec. 3): K and V go round forward; backward they do, and dK and dV with them.

    On 4 ranks 2,048 tokens x 8 heads x 2 x 128 x 2 B = 8 MiB go 3 hops in each of 32 layers.
    """
    step = tm.train_step(
        DENSE, ROOMY, tm.Mapping(cp=4), global_batch=1, seq=8192, recompute=recompute, efficiencies=IDEAL
    )
    assert sent(step, "keys and values") == passes * 32 * 3 * 8 * 2**20


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("full", 3)])
def test_tokens_go_to_their_experts_and_back_in_each_pass(recompute, passes):
    """Qwen3-30B-A3B: 48 layers, each of 4,096 tokens of 2,048 x 2 B to 8 experts and back, of both passes."""
    step = tm.train_step(
        "qwen3-30b-a3b", ROOMY, tm.Mapping(ep=8), global_batch=8, seq=4096, recompute=recompute, efficiencies=IDEAL
    )
    assert sent(step, "expert dispatch") == passes * 48 * 2 * 4096 * 8 * 2048 * 2


def test_what_data_parallel_ranks_send_is_table_of_the_zero_paper():
    """ZeRO (sec. 7): 2 N of gradients without it and in stages 1 and 2, 3 N in stage 3, N the elements, over a ring.

    With 4 micro-batches what is not kept whole is sent in each: stage 2 scatters 4 times, stage 3 all of it.
    """
    params, n = float(DENSE.total_params), 16

    def data_s(zero, batches):
        step = tm.train_step(
            DENSE,
            cluster(8 * n),
            tm.Mapping(tp=8, dp=n),
            global_batch=n * batches,
            seq=1024,
            zero=zero,
            gradient_bytes=2,
            efficiencies=HIDDEN_NOTHING,
        )
        return float(step.data_s)

    once = (n - 1) / n * 2 * params / 8 / RATE  # a gather or a scatter of bytes of weights, by a ring
    for zero, (one, four) in enumerate([(2, 2), (2, 2), (2, 5), (3, 12)]):
        assert data_s(zero, 1) == pytest.approx(one * once, rel=0.01)
        assert data_s(zero, 4) == pytest.approx(four * once, rel=0.01)


def test_shares_of_links_and_of_the_network_are_of_their_own_exchanges():
    """Half of the links' rate takes twice as long within a server, a quarter of the network's four times beyond it."""
    ask = {"mapping": tm.Mapping(tp=8, dp=16), "global_batch": 16, "seq": 1024}
    slower = replace(HIDDEN_NOTHING, link_share=0.5, scaleout_share=0.25)
    whole, part = (tm.train_step(DENSE, cluster(128), **ask, efficiencies=e) for e in (HIDDEN_NOTHING, slower))
    assert part.tensor_s == pytest.approx(2 * float(whole.tensor_s), rel=1e-9)
    assert part.data_s == pytest.approx(4 * float(whole.data_s), rel=1e-3)


def test_no_more_hides_than_there_is_work():
    """With all overlap allowed a step on a slow network is shorter by its layers' passes, to the last second."""
    step = tm.train_step(
        DENSE,
        cluster(64),
        tm.Mapping(tp=8, dp=8),
        global_batch=32,
        seq=2048,
        recompute="none",
        zero=3,
        efficiencies=IDEAL,
    )
    head_s = 3 * 2 * 4 * 2048 * DENSE.vocab_size * DENSE.hidden_size / 8 / ROOMY.peak("bf16")  # nothing hides behind it
    assert float(step.upper_s - step.lower_s) == pytest.approx(
        float(step.forward_s + step.backward_s) - head_s, rel=1e-9
    )


@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.parametrize("again", ["none", "full"])
def test_gradients_hide_behind_what_nothing_else_has_hidden_behind(zero, again):
    step = tm.train_step(
        DENSE,
        cluster(64),
        tm.Mapping(tp=8, dp=8),
        global_batch=8,
        seq=2048,
        recompute=again,
        zero=zero,
        efficiencies=IDEAL,
    )
    work_s = float(step.forward_s + step.backward_s + step.recompute_s)
    assert 0 < float(step.upper_s - step.lower_s) <= work_s * (1 + 1e-12)


def test_a_job_that_says_no_more_is_megatron_s():
    """Micro-batches of one, scores computed again, a sharded optimizer, the sequence cut between matrices."""
    ask = {"mapping": tm.Mapping(tp=8, dp=2), "global_batch": 8, "seq": 1024, "efficiencies": "megatron-2021"}
    said = {"micro_batch": 1, "recompute": "selective", "zero": 1, "sequence_parallel": True, "interleave": 1}
    short, long = tm.train_step(DENSE, ROOMY, **ask), tm.train_step(DENSE, ROOMY, **ask, **said)
    assert (short.time_s, short.memory_bytes_per_rank) == (long.time_s, long.memory_bytes_per_rank)
    assert (short.recompute, short.zero, short.sequence_parallel) == ("selective", 1, True)


def test_layers_that_run_again_keep_their_inputs():
    """Korthikanti et al. (sec. 5): 2 s b h a layer, here of GPT-3's 96, cut by 8; while one runs, all that it keeps.

    That is s b h (34 + 5 a s / h) without cuts (eq. 1), of which sequence parallelism cuts all by 8.
    """
    ask = {"global_batch": 4, "seq": 2048, "recompute": "full", "zero": 0}
    step = tm.train_step("gpt3-175b", ROOMY, tm.Mapping(tp=8), **ask, efficiencies=trainer(ROOMY, "megatron-2021"))
    s, h, a, v = 2048, 12288, 96, tm.model("gpt3-175b").vocab_size
    edges = s * h / 8 * (1 + 4 * (1 + v / h))  # mask of the embedding; input of the head, its norm and logits
    assert float(step.activation_bytes) == pytest.approx(96 * 2 * s * h / 8 + edges, rel=1e-12)
    assert float(step.buffer_bytes) == pytest.approx(s * h * (34 + 5 * a * s / h) / 8, rel=1e-12)


def test_a_memory_of_exactly_what_is_stored_holds_it():
    ask = {"mapping": tm.Mapping(tp=8), "global_batch": 8, "seq": 1024, "efficiencies": IDEAL}
    stored = float(tm.train_step(DENSE, ROOMY, **ask).memory_bytes_per_rank)
    for room, fits in ((stored, True), (stored * (1 - 1e-12), False)):
        assert bool(tm.train_step(DENSE, replace(ROOMY, hbm_bytes=room), **ask).valid) is fits


def test_a_band_is_the_rows_or_that_of_what_is_open_outside_of_them():
    """On rows of its chip a stack's 90 % interval; a stack of one's own has the times at the ends of its one range."""
    fitted = trainer(ROOMY, "megatron-2021")
    ask = {"mapping": tm.Mapping(tp=8), "global_batch": 8, "seq": 2048}
    step = tm.train_step("gpt3-175b", ROOMY, **ask, efficiencies=fitted)
    assert step.basis == "interpolated"
    assert np.log([step.time_s / step.low, step.high / step.time_s]) == pytest.approx([fitted.width] * 2, rel=1e-9)
    ends = (0.25, 1.0)
    own = replace(IDEAL, id="mine", matmul_share=0.5, ranges={"matmul_share": ends})
    mine, slow, fast = (
        tm.train_step(DENSE, ROOMY, **ask, efficiencies=replace(own, ranges={} if one else own.ranges, **one))
        for one in ({}, {"matmul_share": ends[0]}, {"matmul_share": ends[1]})
    )
    assert mine.basis == "extrapolated"
    assert mine.high == pytest.approx(float(slow.time_s), rel=1e-9)
    assert mine.low == pytest.approx(float(fast.time_s), rel=1e-9)
    assert slow.time_s > 1.5 * mine.time_s


def test_bytes_and_work_have_no_band():
    """They are counted; a time that rests on no row has one."""
    ask = {"mapping": tm.Mapping(tp=8, dp=2), "global_batch": 8, "seq": 1024}
    step = tm.train_step(DENSE, ROOMY, **ask, efficiencies="megatron-core")
    for name in ("weight_bytes", "memory_bytes_per_rank", "model_flop", "hardware_flop"):
        assert step.ends(name) == (float(getattr(step, name)),) * 2
    assert step.low < step.time_s < step.high


@pytest.mark.parametrize(("recompute", "passes", "head"), [("none", 72, 12), ("full", 96, 16)])
def test_work_of_gpt_is_that_of_both_papers(recompute, passes, head):
    """SC21, eq. 3, and Korthikanti et al., eq. 7: 96 or 72 B L s h^2 (1 + s / 6 h + V / (16 or 12) h L)."""
    model, (b, s) = tm.model("gpt3-175b"), (24, 2048)
    layers, h, v = 96, 12288, model.vocab_size
    step = tm.train_step(model, ROOMY, tm.Mapping(tp=8), global_batch=b, seq=s, recompute=recompute)
    by_hand = passes * b * layers * s * h**2 * (1 + s / 6 / h + v / head / h / layers)
    assert float(step.hardware_flop) == pytest.approx(by_hand, rel=1e-3)  # the paper leaves biases out


@pytest.mark.parametrize(("model", "params"), [("llama-3.1-8b", 8_030_261_248), ("qwen3-30b-a3b", 30_532_122_624)])
def test_states_are_bytes_of_all_parameters(model, params):
    """Weights of 2 B, gradients of 4, Adam's 12 (Hugging Face prints the parameters); stage 3 of ZeRO has 2 layers."""
    ask = {"global_batch": 8, "seq": 1024, "gradient_bytes": 4, "optimizer_bytes": 12, "efficiencies": IDEAL}
    layers = tm.model(model).outline("prefill").layers
    whole, cut = (tm.train_step(model, ROOMY, tm.Mapping(dp=8), zero=zero, **ask) for zero in (0, 3))
    found = [float(getattr(whole, f"{kind}_bytes")) for kind in ("weight", "gradient", "optimizer", "buffer")]
    assert found == pytest.approx(
        [2 * params, 4 * params, 12 * params, 0], rel=2e-4
    )  # of norms the vectors are left out
    assert float(cut.weight_bytes) == pytest.approx(2 * params / 8, rel=2e-4)
    assert float(cut.buffer_bytes) == pytest.approx(2 * 2 * params / layers, rel=2e-4)
    # Adam reads and writes its state, reads gradients, writes weights: 2 x 12 + 4 + 2 bytes at the rate of the memory
    assert float(whole.optimizer_s) == pytest.approx(30 * params / ROOMY.hbm_bytes_per_s, rel=2e-4)
    assert float(cut.optimizer_s) == pytest.approx(float(whole.optimizer_s) / 8, rel=1e-9)


def test_a_stage_holds_its_layers_and_the_larger_table():
    """Of Llama-3.1-8B on 4 stages 8 layers of 218,112,000 parameters and one of two tables of 128,256 x 4,096."""
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(pp=4), global_batch=8, seq=1024, efficiencies=IDEAL)
    assert float(step.weight_bytes) == pytest.approx(2 * (8 * 218_112_000 + 128_256 * 4096), rel=1e-4)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_an_ideal_step_is_work_over_the_peak(recompute):
    """Two products back for one forward; of work that runs again, layers without the head; stragglers are a tenth."""
    seq, batch = 4096, 4
    step = tm.train_step(
        DENSE, ROOMY, global_batch=batch, seq=seq, recompute=recompute, straggler=0.1, efficiencies=IDEAL
    )
    work = batch * float(DENSE.train_flop(seq, "causal")) / 312e12
    assert float(step.forward_s + step.backward_s) == pytest.approx(work, rel=1e-9)
    assert step.backward_s == pytest.approx(2 * float(step.forward_s), rel=1e-9)
    head_s = batch * seq * 2 * DENSE.vocab_size * DENSE.hidden_size / 312e12
    again = float(step.forward_s) - head_s if recompute == "full" else 0.0
    assert float(step.recompute_s) == pytest.approx(again, rel=1e-9)
    assert float(step.straggler_s) == pytest.approx(0.1 * (work + again), rel=1e-9)
    assert float(step.exposed_s) == float(step.bubble_s) == float(step.overhead_s) == 0


@pytest.mark.parametrize(("degrees", "edges"), [({"tp": 8}, 2), ({"tp": 8, "pp": 2}, 1)])
def test_tables_at_the_ends_are_summed_once_each(degrees, edges):
    """Embedding forward and logits back: with sequence parallelism a gather and a scatter, without it a sum of both."""
    ask = {"mapping": tm.Mapping(**degrees), "global_batch": 8, "seq": 1024, "efficiencies": IDEAL}
    for cut, kinds in ((True, 2), (False, 1)):
        step = tm.train_step(DENSE, ROOMY, **ask, sequence_parallel=cut)
        assert sent(step, "embedding and logits") == kinds * edges * 1024 * 4096 * 2


def test_fixed_times_are_paid_once_a_layer_and_pass_and_once_a_step():
    """Of 32 layers on 4 stages 8, in each of forward, backward and again; 2 micro-batches; 3 more in the bubble."""
    ask = {"mapping": tm.Mapping(pp=4), "global_batch": 2, "seq": 512, "recompute": "full"}
    late = replace(IDEAL, id="late", layer_s=1.0, step_s=5.0)
    first, then = (tm.train_step(DENSE, ROOMY, **ask, efficiencies=e) for e in (IDEAL, late))
    for name, more in (("forward", 16), ("backward", 16), ("recompute", 16), ("bubble", 72), ("overhead", 5)):
        assert float(getattr(then, f"{name}_s") - getattr(first, f"{name}_s")) == pytest.approx(more, abs=0.05), name


def test_a_chip_waits_for_a_host_that_is_slower_and_for_no_other():
    """2 micro-batches of 8 layers in each of 3 passes, 1 s each, 1.5 s with adapters; 3 in the bubble."""
    ask = {"mapping": tm.Mapping(pp=4), "global_batch": 2, "seq": 512, "recompute": "full"}
    slow, quick = (replace(IDEAL, id="late", host_layer_s=s, host_adapter_s=s / 2) for s in (1.0, 1e-6))
    whole = tm.train_step(DENSE, ROOMY, **ask, efficiencies=slow)
    assert float(whole.time_s - whole.optimizer_s - whole.data_s) == pytest.approx((2 + 3) * 24, rel=1e-3)
    adapted = tm.train_step(DENSE, ROOMY, **ask, efficiencies=slow, trainable_share=0.01)
    assert float(adapted.time_s) == pytest.approx((2 + 3) * 36, rel=1e-3)
    first = tm.train_step(DENSE, ROOMY, **ask, efficiencies=IDEAL)
    spared = tm.train_step(DENSE, ROOMY, **ask, efficiencies=quick)
    assert (float(spared.host_s), float(spared.time_s)) == (0.0, float(first.time_s))
    none = tm.train_step(DENSE, ROOMY, **ask | {"recompute": "none"}, efficiencies=slow)
    assert float(none.host_s + none.forward_s + none.backward_s) == pytest.approx(2 * 16, rel=1e-3)


def test_gradients_are_summed_while_the_chip_waits_for_its_host():
    """An eighth of 8.03e9 gradients of 2 B goes round 16 replicas at 1 GB/s in 3.76 s; a wait hides as much of it.

    Where the host is slower than the chip, layers that take longer on the chip do not shorten the step.
    """
    ask = {"mapping": tm.Mapping(tp=8, dp=16), "global_batch": 16, "seq": 512, "recompute": "full", "zero": 0}

    def step(host_layer_s, layer_s=0.0):
        stack = replace(IDEAL, id="late", host_layer_s=host_layer_s, layer_s=layer_s)
        return tm.train_step(DENSE, cluster(128), **ask, efficiencies=stack)

    ideal, late = step(0.0), step(0.01)  # 3 passes over 32 layers, 0.96 s
    assert float(ideal.data_s) == pytest.approx(8.03e9 / 8 * 2 * 2 * 15 / 16 / RATE, rel=0.1)
    assert float(late.host_s) == pytest.approx(0.96, rel=0.2)
    assert float(ideal.data_s - late.data_s) == pytest.approx(float(late.host_s))
    assert float(step(0.01, 1e-3).time_s) >= float(late.time_s)
    assert float(step(1.0).data_s) == 0


@pytest.mark.parametrize(
    ("degrees", "more", "reason"),
    [
        ({"dp": 2}, {"global_batch": 12, "micro_batch": 3}, ""),  # 2 micro-batches in each replica
        ({"dp": 2}, {"global_batch": 9, "micro_batch": 3}, "micro-batches of all replicas"),  # 1.5
        ({"dp": 2}, {"global_batch": 3, "micro_batch": 3}, "micro-batches of all replicas"),  # half of one
        ({"pp": 4}, {"global_batch": 8, "interleave": 8}, ""),  # 32 parts of 32 layers
        ({"pp": 4}, {"global_batch": 8, "interleave": 9}, "interleaved"),
        ({"pp": 4}, {"global_batch": 6, "interleave": 2}, "interleaved"),  # 6 micro-batches by 4 stages
        ({"pp": 1}, {"global_batch": 8, "interleave": 2}, "interleaved"),
        ({"pp": 2}, {"global_batch": 8, "interleave": 2}, ""),
    ],
)
def test_jobs_that_cannot_be_cut_say_why(degrees, more, reason):
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(**degrees), seq=512, efficiencies=IDEAL, **more)
    assert reason in step.reason
    assert bool(step.valid) is not bool(reason)


def test_fused_attention_keeps_four_bytes_a_row_and_head():
    """Beside what matrices keep in BF16; of layers that run again only their inputs of 4,096 are kept, in 32 layers."""
    whole, again = (
        float(tm.train_step(DENSE, ROOMY, global_batch=1, seq=512, recompute=way, efficiencies=IDEAL).activation_bytes)
        for way in ("none", "full")
    )
    of_token = saved(DENSE)
    by_hand = 2 * (of_token.whole + of_token.cut) + 32 * 32 * 4 - 2 * 32 * 4096
    assert whole - again == pytest.approx(512 * by_hand, rel=1e-12)


TRN2 = tm.chip("trainium2")  # 8 cores of 4 banks


@pytest.mark.parametrize(("degrees", "banks"), [({"tp": 8, "lnc": 2}, 1), ({"tp": 8, "lnc": 1}, 0.5), ({"lnc": 1}, 1)])
def test_ranks_of_a_bank_share_what_it_holds(degrees, banks):
    step = tm.train_step(DENSE, TRN2, tm.Mapping(**degrees), global_batch=8, seq=512, efficiencies=IDEAL)
    assert float(step.capacity_bytes) == banks * TRN2.hbm_bytes / 4


def test_a_step_says_all_that_is_wrong():
    """64 stages of 32 layers, and 2 sequences in micro-batches of 4."""
    ask = {"seq": 512, "efficiencies": IDEAL}
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(pp=64), global_batch=2, micro_batch=4, **ask)
    assert step.reason == (
        "more pipeline stages than layers; the global batch is no whole number of micro-batches of all replicas"
    )
    unknown = replace(ROOMY, hbm_bytes_per_s=np.nan)
    told = tm.train_step(DENSE, unknown, global_batch=2, **ask)
    assert told.reason == "a figure of the chip that the answer needs is not published"
    small = tm.train_step(DENSE, replace(ROOMY, hbm_bytes=1.0), global_batch=2, **ask)
    assert small.reason == "does not fit in memory"


def test_numbers_of_many_mappings_have_a_place_for_each():
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(tp=[1, 2, 4]), global_batch=8, seq=512, efficiencies=IDEAL)
    for name in ("time_s", "overhead_s", "model_flop", "capacity_bytes", "microbatches", "reason"):
        assert np.shape(getattr(step, name)) == (3,), name


@pytest.mark.parametrize(("chips", "word"), [(512, "interpolated"), (513, "extrapolated")])
def test_rows_reach_as_far_as_their_chips(chips, word):
    """Trn1, of two ranks a chip; the largest measured run had 512 chips."""
    chip = tm.chip("trainium1")
    step = tm.train_step(DENSE, chip, tm.Mapping(dp=2 * chips), global_batch=2 * chips, seq=512)
    assert step.judge().word == word
    further = "chips: rows reach to 512" if word == "extrapolated" else ""
    assert step.judge().reason == further


def test_no_more_is_trained_than_there_is():
    with pytest.raises(ValueError, match=r"trainable_share=1.5: allowed are numbers from 0 to 1"):
        tm.train_step(DENSE, ROOMY, global_batch=1, seq=512, trainable_share=1.5)


def test_chips_and_their_hours():
    """2 x 3 x 5 x 4 x 7 ranks of 4 a chip are 210 chips; 1,680 sequences of 560 tokens a step, 7 steps."""
    mapping = tm.Mapping(tp=2, pp=3, dp=5, ep=4, cp=7)
    step = tm.train_step(
        "qwen3-30b-a3b", replace(TRN2, hbm_bytes=1e16), mapping, global_batch=1680, seq=560, efficiencies=IDEAL
    )
    assert float(step.chips) == 210
    assert float(step.tokens_per_s_per_chip) == float(step.tokens_per_s) / 210
    tokens = 7 * 1680 * 560
    assert float(step.run_s(tokens)) == pytest.approx(7 * float(step.time_s), rel=1e-12)
    assert float(step.chip_hours(tokens)) == pytest.approx(7 * float(step.time_s) * 210 / 3600, rel=1e-12)


@pytest.mark.parametrize(
    ("degrees", "more", "bound"),
    [
        ({}, {}, "work"),
        ({}, {"efficiencies": replace(IDEAL, id="late", step_s=1e3)}, "overhead"),
        ({"pp": 32}, {"global_batch": 1}, "bubble"),
        ({"tp": 8, "dp": 8}, {"global_batch": 8, "efficiencies": HIDDEN_NOTHING}, "data"),
        ({}, {"straggler": 3.0}, "straggler"),
    ],
)
def test_what_takes_longest(degrees, more, bound):
    """Forward and backward are one thing: work; each exchange is one of its own."""
    ask = {"global_batch": 64, "seq": 512, "efficiencies": IDEAL} | more
    step = tm.train_step(DENSE, cluster(64), tm.Mapping(**degrees), **ask)
    assert step.bound == bound
    small = tm.train_step(DENSE, replace(ROOMY, hbm_bytes=1.0), tm.Mapping(**degrees), **ask)
    assert small.bound == ""


def test_groups_inside_a_domain_do_not_feel_the_network():
    """16 chips of 4 ranks: tensor-parallel ranks of all of them stay inside, those of both domains do not."""
    where = replace(tm.system("trn2.48xlarge", count=2), chip=replace(TRN2, hbm_bytes=1e16))
    slow = replace(HIDDEN_NOTHING, scaleout_share=0.25)
    for tp, ratio in ((64, 1), (128, 4)):
        ask = {"mapping": tm.Mapping(tp=tp), "global_batch": 2, "seq": 512}
        fast, late = (
            float(tm.train_step(DENSE, where, **ask, efficiencies=e).tensor_s) for e in (HIDDEN_NOTHING, slow)
        )
        assert 1 <= late / fast <= ratio
        assert (late > 1.5 * fast) is (tp == 128)


def test_what_one_group_has_summed_is_less_for_the_next():
    """8 ranks of a server that cut a sequence sum their gradients first; each then sends an eighth, as a tensor's.

    Inside, 7/8 of 2 + 2 bytes of each parameter go round at the 300 GB/s of an A100's links.
    """
    ask = {"global_batch": 16, "seq": 1024, "zero": 1, "gradient_bytes": 2, "efficiencies": HIDDEN_NOTHING}
    by_tp, by_cp = (
        float(tm.train_step(DENSE, cluster(128), tm.Mapping(dp=16, **{name: 8}), **ask).data_s) for name in ("tp", "cp")
    )
    inside_s = 7 / 8 * 4 * float(DENSE.total_params) / 300e9
    assert by_cp == pytest.approx(by_tp + inside_s, rel=1e-3)


def test_layers_without_sequence_parallelism_keep_ten_bytes_whole():
    """Korthikanti et al., eq. 2: s b h (10 + 24 / t + 5 a s / h t) a layer, here of the one that runs again."""
    ask = {"global_batch": 4, "seq": 2048, "recompute": "full", "zero": 0, "sequence_parallel": False}
    step = tm.train_step("gpt3-175b", ROOMY, tm.Mapping(tp=8), **ask, efficiencies=trainer(ROOMY, "megatron-2021"))
    s, h, a = 2048, 12288, 96
    assert float(step.buffer_bytes) == pytest.approx(s * h * (10 + 24 / 8 + 5 * a * s / h / 8), rel=1e-12)


def test_what_goes_to_the_hottest_experts_is_kept_there():
    """Half as many tokens more keep half of what is routed more, two bytes of each element."""
    model = "qwen3-30b-a3b"
    even, hot = (
        tm.train_step(model, ROOMY, global_batch=1, seq=512, recompute="none", efficiencies=IDEAL, expert_imbalance=x)
        for x in (1.0, 1.5)
    )
    more = float(hot.activation_bytes - even.activation_bytes)
    routed = saved(tm.model(model)).routed
    assert routed > 0
    assert more == pytest.approx(512 * 2 * routed / 2, rel=1e-9)


def test_what_is_kept_is_written_and_read_beside_the_work_or_after_it():
    """After it the forward pass takes twice what is kept, and logits in FP32, over the memory's rate longer."""
    ask = {"global_batch": 1, "seq": 2048, "recompute": "none"}
    beside, after = (
        tm.train_step(DENSE, ROOMY, **ask, efficiencies=replace(IDEAL, id="own", stream_overlap=overlap))
        for overlap in (1.0, 0.0)
    )
    n, h, v = 2048, 4096, 128_256
    edges = n * h * (1 + 4 * (1 + v / h))  # mask of the embedding; input of the head, its norm and logits
    moved = 2 * (float(after.activation_bytes) - edges) + 2 * 4 * n * v
    later = float(after.forward_s - beside.forward_s)
    assert later == pytest.approx(moved / ROOMY.hbm_bytes_per_s, rel=1e-9)
    assert float(after.backward_s - beside.backward_s) == pytest.approx(2 * later, rel=1e-9)


def test_scores_that_are_kept_are_computed_again():
    """2 sequences of 300 tokens, 32 layers, heads of 128: products, and 2 + 2 + 1 bytes of each score moved twice.

    Four ranks have eight heads each.
    """
    e = replace(IDEAL, id="own", stream_overlap=0.0, scores="kept", mask_bytes=1.0)
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(tp=4), global_batch=2, seq=300, efficiencies=e)
    work = 2 * 32 * 8 * 4 * 128 * 300 * 301 / 2
    moved = 2 * 2 * 300 * 32 * 5 * 8 * 300
    assert float(step.recompute_s) == pytest.approx(work / 312e12 + moved / ROOMY.hbm_bytes_per_s, rel=1e-9)
    kept = tm.train_step(DENSE, ROOMY, tm.Mapping(tp=4), global_batch=2, seq=300, recompute="none", efficiencies=e)
    assert float(step.hardware_flop - kept.hardware_flop) == pytest.approx(4 * work, rel=1e-12)


@pytest.mark.parametrize(
    ("recompute", "parallel", "count"), [("none", True, 64), ("full", True, 0), ("none", False, 0), ("full", False, 0)]
)
def test_inputs_kept_cut_are_gathered_for_gradients(recompute, parallel, count):
    """Before both cut matrices of each of 32 layers, where sequences are cut and layers do not run again."""
    step = tm.train_step(
        DENSE,
        ROOMY,
        tm.Mapping(tp=8),
        global_batch=8,
        seq=512,
        recompute=recompute,
        sequence_parallel=parallel,
        efficiencies=IDEAL,
    )
    assert sent(step, "inputs of gradients") == count * 512 * 4096 * 2


def test_what_is_not_cut_is_not_sent():
    for model, degrees in (("qwen3-30b-a3b", {"tp": 4}), (DENSE, {"dp": 2})):
        step = tm.train_step(model, ROOMY, tm.Mapping(**degrees), global_batch=8, seq=512, efficiencies=IDEAL)
        assert {m.group for m in step.messages} == ({"tp"} if "tp" in degrees else {"dense"})


def test_heads_and_stages_of_tensor_parallel_ranks_send_their_parts():
    """Of 8 heads of keys and values half; of a boundary of 4,096 x 2 B a quarter, there and back for both parts."""
    ask = {"global_batch": 8, "seq": 512, "efficiencies": IDEAL}
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(tp=2, cp=4), **ask)
    assert sent(step, "keys and values") == 3 * 32 * 3 * 128 * 4 * 2 * 128 * 2
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(tp=4, pp=[1, 2, 3]), interleave=2, **ask)
    (found,) = (m for m in step.messages if m.name == "stage boundary")
    assert found.count.tolist() == [0, 4, 4]
    assert np.unique(found.message_bytes).tolist() == [512 * 4096 * 2 / 4]


def test_what_is_gathered_for_gradients_hides_behind_the_backward_pass_alone():
    """Links at a thousandth of their rate: behind layers' products of 2 x 2 a parameter, and no other exchange does."""
    e = replace(HIDDEN_NOTHING, link_share=1e-3)
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(tp=8), global_batch=1, seq=512, recompute="none", efficiencies=e)
    nothing = float(step.upper_s)
    head_s = 2 * 512 * 128_256 * 4096 / 8 / 312e12
    assert nothing - float(step.time_s) == pytest.approx(float(step.backward_s) - 2 * head_s, rel=1e-9)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_gradients_hide_behind_all_that_follows_the_forward_pass(recompute):
    """On a network that takes far longer: behind the backward pass of layers, and layers that run again."""
    e = replace(HIDDEN_NOTHING, dp_overlap=1.0)
    step = tm.train_step(
        DENSE,
        cluster(64, 1e7),
        tm.Mapping(dp=64),
        global_batch=64,
        seq=512,
        zero=0,
        recompute=recompute,
        efficiencies=e,
    )
    head_s = 2 * 512 * 128_256 * 4096 / 312e12
    behind = float(step.backward_s + step.recompute_s) - 2 * head_s
    assert float(step.upper_s - step.time_s) == pytest.approx(behind, rel=1e-6)


H100S = replace(tm.system("hgx-h100", count=256), chip=replace(tm.chip("h100"), hbm_bytes=1e15))
SILENT = replace(trainer(tm.chip("h100")), id="own", hop_s=0.0)


def started(mapping, zero, hop_s, where=H100S, **more):
    """A step of which nothing hides, with a start-up and without one."""
    late = replace(SILENT, hop_s=hop_s, **{f"{pair}_overlap": 0.0 for pair in ("tp", "ep", "cp", "pp", "dp")})
    ask = {"global_batch": 2048, "seq": 1024, "zero": zero, "recompute": "none"} | more
    first, then = (
        tm.train_step(DENSE, where, mapping, **ask, efficiencies=e) for e in (replace(late, hop_s=0.0), late)
    )
    return float(then.time_s - first.time_s)


def test_zero_3_over_many_ranks_waits_for_starts_of_each_layer():
    """NCCL's ring over 2,048 GPUs: 255 steps of 10 us between 256 servers and 1,792 of NVLink's own inside of them.

    Each of 32 layers and the tables go round three times, weights twice and gradients once.
    """
    ring_s = 255 * 1e-5 + 1792 * tm.chip("h100").hop_s
    assert started(tm.Mapping(dp=2048), 3, 1e-5) == pytest.approx(3 * 33 * ring_s, rel=1e-6)


def test_gradients_of_all_layers_start_together():
    """Without ZeRO sums up and down a tree, in buckets of 2,048 x 4 MB: 8 billion parameters of 4 bytes fill four."""
    bucket = max(160e6, 2048 * 4e6)
    tree_s = 2 * (7 * tm.chip("h100").hop_s + 8 * 1e-5)
    count = 4 * float(DENSE.total_params) / bucket
    assert started(tm.Mapping(dp=2048), 0, 1e-5) == pytest.approx(count * tree_s, rel=1e-6)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_more_start_up_never_shortens_a_step(zero):
    for degrees in ({"dp": 2048}, {"tp": 8, "dp": 256}, {"tp": 16, "pp": 4, "dp": 32}, {"cp": 2, "tp": 4, "dp": 256}):
        mapping = tm.Mapping(**degrees, placement=("tp", "cp", "ep", "dp", "pp"))
        later = [started(mapping, zero, hop_s) for hop_s in (1e-6, 1e-5, 1e-3)]
        assert 0 < later[0] < later[1] < later[2]


def test_one_rank_and_one_server_have_no_step_between_servers():
    assert started(tm.Mapping(), 1, 1.0, global_batch=1) == 0
    assert started(tm.Mapping(tp=8), 1, 1.0, global_batch=1) == pytest.approx(
        started(tm.Mapping(tp=8), 1, 1e-6, global_batch=1), rel=1e-9
    )


def test_messages_have_the_gradients_and_weights():
    """Of 4 micro-batches: gradients of all parameters scattered once and weights gathered once, a quarter in each.

    In ZeRO-3 each micro-batch gathers all weights twice and scatters all gradients.
    """
    ask = {"mapping": tm.Mapping(dp=8), "global_batch": 32, "seq": 512, "efficiencies": IDEAL, "gradient_bytes": 4}
    params = float(DENSE.total_params)
    once, every = (tm.train_step(DENSE, ROOMY, **ask, zero=zero) for zero in (1, 3))
    assert sent(once, "gradients") == pytest.approx(4 * params / 4)
    assert sent(once, "updated weights") == pytest.approx(2 * params / 4)
    assert sent(every, "gradients") == pytest.approx(4 * params)
    assert sent(every, "weights") == pytest.approx(2 * 2 * params)
    assert {m.group for m in every.messages} == {"dense"}
    hot = tm.train_step("qwen3-30b-a3b", ROOMY, **ask | {"mapping": tm.Mapping(dp=4, ep=2)})
    assert {m.group for m in hot.messages} == {"ep", "dense", "expert"}
