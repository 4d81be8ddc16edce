"""Bytes, times and memory of a training step, counted by hand from the papers that say what is sent and kept."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.trainers import IDEAL, trainer
from trnmodel.evidence import training as runs

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
    step = tm.train_step(DENSE, ROOMY, tm.Mapping(cp=4), global_batch=1, seq=8192, recompute=recompute,
                         efficiencies=IDEAL)  # fmt: skip
    assert sent(step, "keys and values") == passes * 32 * 3 * 8 * 2**20


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("full", 3)])
def test_tokens_go_to_their_experts_and_back_in_each_pass(recompute, passes):
    """Qwen3-30B-A3B: 48 layers, each of 4,096 tokens of 2,048 x 2 B to 8 experts and back, of both passes."""
    step = tm.train_step("qwen3-30b-a3b", ROOMY, tm.Mapping(ep=8), global_batch=8, seq=4096, recompute=recompute,
                         efficiencies=IDEAL)  # fmt: skip
    assert sent(step, "expert dispatch") == passes * 48 * 2 * 4096 * 8 * 2048 * 2


def test_what_data_parallel_ranks_send_is_table_of_the_zero_paper():
    """ZeRO (sec. 7): 2 N of gradients without it and in stages 1 and 2, 3 N in stage 3, N the elements, over a ring.

    With 4 micro-batches what is not kept whole is sent in each: stage 2 scatters 4 times, stage 3 all of it.
    """
    params, n = float(DENSE.total_params), 16

    def data_s(zero, batches):
        step = tm.train_step(DENSE, cluster(8 * n), tm.Mapping(tp=8, dp=n), global_batch=n * batches, seq=1024,
                             zero=zero, gradient_bytes=2, efficiencies=HIDDEN_NOTHING)  # fmt: skip
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
    step = tm.train_step(DENSE, cluster(64), tm.Mapping(tp=8, dp=8), global_batch=32, seq=2048, recompute="none",
                         zero=3, efficiencies=IDEAL)  # fmt: skip
    head_s = 3 * 2 * 4 * 2048 * DENSE.vocab_size * DENSE.hidden_size / 8 / ROOMY.peak("bf16")  # nothing hides behind it
    assert float(step.upper_s - step.lower_s) == pytest.approx(
        float(step.forward_s + step.backward_s) - head_s, rel=1e-9
    )


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


def test_micro_batches_that_nobody_prints_are_the_fastest_that_fit():
    """Of all powers of two up to 64."""
    of = [case for case in runs.cases() if not case.row.micro_batch]
    for case in of:
        r, e = case.row, trainer(case.where.chip, runs.stack_of(case.row.group))
        every = tm.train_step(
            case.model, case.where, case.degrees, global_batch=int(r.global_batch), seq=int(r.seq),
            interleave=r.interleave, precision=r.precision, recompute=r.recompute, zero=r.zero,
            sequence_parallel=bool(r.sequence_parallel), micro_batch=2 ** np.arange(7), efficiencies=e,
        )  # fmt: skip
        assert float(case.step(e).time_s) == pytest.approx(np.nanmin(every.time_s), rel=1e-12), r.id
    assert len(of) >= 10


def test_the_rival_is_exact_in_the_median():
    """One MFU for all runs is the median of theirs: half of them are faster, half slower."""
    found, _ = runs.constant_mfu(runs.cases("a100-cluster"))
    assert np.median(np.log1p(found)) == pytest.approx(0, abs=1e-12)
    assert (found > 1e-9).sum() == (found < -1e-9).sum() == 22  # of 45


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


def test_a_rival_s_peak_is_the_printed_one():
    """190 TFLOP/s of a Trainium1 chip of two cores, 312 of an A100 (data sheets), of all chips of a run."""
    for group, peak in (("trn1", 190e12), ("korthikanti", 312e12)):
        for case in runs.cases(group):
            assert runs._peak(case) == pytest.approx(peak * case.where.chips, rel=0.01), case.row.id


def test_only_a_group_that_a_stack_was_fitted_to_has_errors_without_its_models():
    left = runs.accuracy("b200")
    assert (left.left_out_error.abs().mean(), len(left)) > (left.error.abs().mean(), 0)
    assert runs.accuracy("korthikanti").left_out_error.isna().all()
    assert runs.accuracy("b200", learn=False).left_out_error.isna().all()
    np.testing.assert_allclose(left.predicted_s / left.measured_s - 1, left.error, rtol=1e-12)
