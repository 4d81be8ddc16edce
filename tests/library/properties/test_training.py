"""A training step on random jobs: parts add up, bounds hold, more is not faster, arrays are single calls."""

from dataclasses import fields, replace
from itertools import pairwise, product

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.trainers import IDEAL, SHARES, Trainer, trainer
from trnmodel.search.train_search import described, grid, space
from trnmodel.training.work import KINDS, PARTS

DENSE, EXPERTS = "llama-3.1-8b", "qwen3-30b-a3b"
JOBS = [
    (DENSE, "trn2-ultraserver", None),
    (EXPERTS, "hgx-a100", None),
    (DENSE, "hgx-h100", None),
    (EXPERTS, "trn3-nl72x2-pcie160", "ideal"),
    ("bert-large-uncased", "trn1.32xlarge", None),
]
WAYS = [("none", 0, True), ("selective", 1, True), ("full", 3, True), ("full", 1, False), ("none", 3, False)]
PLACES = ("tp", "cp", "ep", "dp", "pp")


def drawn(model, rng, n):
    """Random degrees, lengths and batches of which most are legal."""
    longest = int(np.log2(min(tm.model(model).max_context, 4096)))
    experts = tm.model(model).kind == "expert"
    powers = {"tp": 4, "pp": 4, "dp": 5, "cp": 2, "ep": 4 if experts else 1}
    degrees = {name: 2.0 ** rng.integers(0, top, n) for name, top in powers.items()}
    micro = 2.0 ** rng.integers(0, 3, n)
    batch = micro * degrees["dp"] * degrees["ep"] * 2.0 ** rng.integers(0, 5, n)
    asked = {
        "global_batch": batch,
        "micro_batch": micro,
        "seq": 2.0 ** rng.integers(longest - 3, longest + 1, n),
        "interleave": np.where(degrees["pp"] > 1, 2.0 ** rng.integers(0, 2, n), 1.0),
    }
    return degrees, asked


def step(job, degrees, asked, way=("selective", 1, True), **more):
    model, system, stack = job
    names = dict(zip(("recompute", "zero", "sequence_parallel"), way, strict=True))
    known = {"count": 512, "efficiencies": stack} | names | more
    return tm.train_step(model, system, tm.Mapping(**degrees, placement=PLACES), **asked, **known)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job[0]} on {job[1]}")
def test_1e5_random_jobs(job):
    """Of all jobs and ways 1e5: finite where they can exist, parts and kinds add up, HFU <= 1, both bounds.

    MFU counts masked pairs, of which software may skip half: it is at most HFU where all are computed, else its double.
    """
    rng = np.random.default_rng(7)
    for way in WAYS:
        found = step(job, *drawn(job[0], rng, 4000), way)
        good = found.valid
        assert good.mean() > 0.2
        assert np.isfinite(found.time_s[good]).all()
        assert (found.time_s[good] > 0).all()
        assert np.isnan(found.time_s[~good]).all()
        parts = sum(getattr(found, name) for name in PARTS)
        np.testing.assert_allclose(parts[good], found.time_s[good], rtol=1e-12)
        assert all((np.broadcast_to(getattr(found, name), good.shape)[good] >= 0).all() for name in PARTS)
        kinds = sum(getattr(found, name) for name in KINDS)
        np.testing.assert_allclose(kinds, found.memory_bytes_per_rank, rtol=1e-12)
        times = 1 if found.stack.masked == "computed" else 2
        assert (found.mfu[good] <= times * found.hfu[good] * (1 + 1e-12)).all()
        assert (found.hfu[good] <= 1 + 1e-12).all()
        assert (found.lower_s[good] <= found.time_s[good] * (1 + 1e-12)).all()
        assert (found.upper_s[good] >= found.time_s[good] * (1 - 1e-12)).all()
        assert set(found.bound[good]) <= {"work", "", *(name.removesuffix("_s") for name in PARTS)}


@pytest.mark.parametrize("job", JOBS[:3], ids=lambda job: job[1])
def test_arrays_are_single_calls(job):
    rng = np.random.default_rng(3)
    degrees, asked = drawn(job[0], rng, 50_000)  # more than a piece
    many = step(job, degrees, asked)
    for i in rng.integers(0, 50_000, 12):
        one = step(
            job, {name: int(x[i]) for name, x in degrees.items()}, {name: int(x[i]) for name, x in asked.items()}
        )
        for name in ("time_s", "mfu", "memory_bytes_per_rank", "reason_mask", *PARTS):
            of_many = np.broadcast_to(getattr(many, name), many.time_s.shape)[i]
            np.testing.assert_allclose(of_many, getattr(one, name), rtol=1e-12)


@pytest.mark.parametrize("job", JOBS[:3], ids=lambda job: job[1])
def test_better_machines_and_software_take_no_longer(job):
    """Rates, shares and overlaps upwards, fixed times downwards: each by itself, on all jobs at once."""
    rng = np.random.default_rng(5)
    degrees, asked = drawn(job[0], rng, 500)
    where = tm.system(job[1], count=512)
    e = trainer(where.chip)

    def with_(system, stack):
        return tm.train_step(job[0], system, tm.Mapping(**degrees, placement=PLACES), **asked, efficiencies=stack)

    first = with_(where, e)

    faster = [replace(where, network_bytes_per_s_per_dir=where.scaleout_bytes_per_s_per_dir * where.domain_chips * 1.7)]
    links = {name: 1.7 * rate for name, rate in where.scaleup_bytes_per_s_per_dir.items()}
    faster.append(replace(where, scaleup_bytes_per_s_per_dir=links))
    chip = where.chip
    faster.append(replace(where, chip=replace(chip, hbm_bytes_per_s=1.5 * chip.hbm_bytes_per_s)))
    peaks = {name: 1.5 * x for name, x in chip.peak_flop_per_s.items()}
    faster.append(replace(where, chip=replace(chip, peak_flop_per_s=peaks)))
    better = [replace(e, **{name: min(1.0, 1.3 * getattr(e, name) + 0.01)}) for name in (*SHARES, *OVERLAPS)]
    better += [
        replace(e, **{name: getattr(e, name) / 2}) for name in ("layer_s", "step_s", "host_layer_s", "straggler")
    ]
    for found in [*(with_(system, e) for system in faster), *(with_(where, stack) for stack in better)]:
        assert (found.time_s[first.valid] <= first.time_s[first.valid] * (1 + 1e-12)).all()


OVERLAPS = tuple(one.name for one in fields(Trainer) if one.name.endswith("_overlap"))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job[0]} on {job[1]}")
def test_more_work_takes_no_less(job):
    rng = np.random.default_rng(11)
    degrees, asked = drawn(job[0], rng, 1000)
    first = step(job, degrees, asked)
    for more in (
        {"global_batch": 2 * asked["global_batch"]},
        {"seq": 2 * asked["seq"]},
        {"straggler": 0.1},
        {"gradient_bytes": 8.0},
        {"optimizer_bytes": 24.0},
        {"expert_imbalance": 1.5},
    ):
        found = step(
            job,
            degrees,
            asked | {name: x for name, x in more.items() if name in asked},
            **{name: x for name, x in more.items() if name not in asked},
        )
        both = first.valid & found.valid
        assert both.any()
        assert (found.time_s[both] >= first.time_s[both] * (1 - 1e-12)).all(), more
    # all of the weights have no adapters, whose launch the host is spared (8,812 and 5,616 tokens/s on Trainium2)
    shares = [step(job, degrees, asked, trainable_share=share) for share in (0.0, 0.3, 0.99)]
    for less, trained in pairwise(shares):
        both = less.valid & trained.valid
        assert (less.time_s[both] <= trained.time_s[both] * (1 + 1e-12)).all()
        assert (less.memory_bytes_per_rank <= trained.memory_bytes_per_rank * (1 + 1e-12)).all()


def test_limits_of_the_bubble():
    """One stage never waits; with nothing else lost the share of a pipeline's step is (p-1)/(m v + p-1)."""
    ask = {"seq": 2048, "efficiencies": IDEAL, "recompute": "none", "sequence_parallel": True, "zero": 0}
    assert tm.train_step("gpt3-175b", "hgx-a100", tm.Mapping(tp=8), global_batch=8, **ask).reason.startswith("does not")
    where = replace(tm.system("hgx-a100", count=8), chip=replace(tm.chip("a100"), hbm_bytes=1e15))
    assert tm.train_step("gpt3-175b", where, tm.Mapping(tp=8), global_batch=64, **ask).bubble_s == 0
    for pp, batch, v in ((8, 64, 1), (8, 8, 1), (4, 16, 2)):
        step = tm.train_step("gpt3-175b", where, tm.Mapping(tp=8, pp=pp), global_batch=batch, interleave=v, **ask)
        head = logits_s(where, batch)
        turns = float(step.forward_s + step.backward_s + step.pipeline_s + step.tensor_s) - head
        assert float(step.bubble_s) / (turns + float(step.bubble_s)) == pytest.approx((pp - 1) / (batch * v + pp - 1))


def logits_s(where, batch):
    """Of the last stage alone: three products of the ideal stack's TP group, or what they read and write."""
    rows, vocabulary, hidden = 2048 * batch, tm.model("gpt3-175b").vocab_size, 12288
    products = 2 * rows * vocabulary * hidden / 8 / where.chip.peak("bf16")
    return 3 * max(products, 2 * 4 * rows * vocabulary / 8 / where.chip.hbm_bytes_per_s)


def test_limits_of_recomputation_and_of_zero():
    ask = {"global_batch": 64, "seq": 2048, "count": 64}
    ways = [
        tm.train_step(DENSE, "hgx-a100", tm.Mapping(tp=2, dp=32), recompute=way, **ask)
        for way in ("none", "selective", "full")
    ]
    for less, more in pairwise(ways):
        assert less.activation_bytes > more.activation_bytes
        assert less.recompute_s < more.recompute_s
    assert ways[0].recompute_s == 0
    assert ways[0].mfu != ways[2].mfu
    assert ways[0].hfu == ways[0].mfu
    zeros = [tm.train_step(DENSE, "hgx-a100", tm.Mapping(tp=2, dp=32), zero=zero, **ask) for zero in range(4)]
    for kind, least in (("optimizer_bytes", 1), ("gradient_bytes", 2), ("weight_bytes", 3)):
        bytes_ = [float(getattr(one, kind)) for one in zeros]
        assert bytes_[least - 1] == bytes_[0]
        assert bytes_[least] == pytest.approx(bytes_[0] / 32)
    alone = [tm.train_step(DENSE, "hgx-a100", tm.Mapping(tp=8), zero=zero, **ask) for zero in (0, 3)]
    assert alone[0].time_s == alone[1].time_s
    assert alone[0].optimizer_bytes == alone[1].optimizer_bytes


def test_the_search_is_brute_force():
    """On a small job: the best of all single calls, in order, and every row of the table computes again."""
    ask = {"global_batch": 8, "seq": 1024}
    ways = {"recompute": ("none", "full"), "zero": (0, 1), "sequence_parallel": (True,)}
    found = space(tm.model(DENSE), tm.system("hgx-a100"), **ask, **ways)
    table = described(found, found.order()[:7])
    where = tm.system("hgx-a100")
    cuts = grid(tm.model(DENSE), where, trainer(where.chip), ask["seq"], ask["global_batch"])
    times = []
    for i, recompute, zero in product(range(len(cuts["tp"])), ways["recompute"], ways["zero"]):
        one = {name: int(x[i]) for name, x in cuts.items()}
        batch = {name: one.pop(name) for name in ("global_batch", "micro_batch", "interleave")}
        if zero == 0 or one["dp"] * one["ep"] * one["cp"] > 1:
            mapping = tm.Mapping(**one, placement=PLACES)
            step = tm.train_step(DENSE, "hgx-a100", mapping, **(ask | batch), zero=zero, recompute=recompute)
            times.append(float(step.time_s))
    assert found.asked == len(times)
    assert found.valid == np.isfinite(times).sum()
    np.testing.assert_allclose(table.time_s, np.sort(times)[:7], rtol=1e-12)
    assert table.loses_by[0] == ""
    for row in table.to_dict("records"):
        mapping = tm.Mapping(**{name: int(row[name]) for name in ("tp", "pp", "dp", "ep", "cp")}, placement=PLACES)
        again = tm.train_step(
            DENSE,
            "hgx-a100",
            mapping,
            **ask,
            zero=row["zero"],
            recompute=row["recompute"],
            micro_batch=row["micro_batch"],
            interleave=row["interleave"],
        )
        assert float(again.time_s) == pytest.approx(row["time_s"], rel=1e-12)
