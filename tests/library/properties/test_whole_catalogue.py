"""What holds on every system of the catalogue, at 10^4 random points of its chip that can exist.

Models, formats, logical cores, degrees, batches, lengths and pasts are drawn at random and asked as arrays, of every
kind of stack that the chip has: public, hand-tuned, ideal. Chunked attention begins anew with each chunk, so that more
tokens may be less work. Hand-tuned is a scenario of parts, no bound: where public rows reach more, it may be slower.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.load import precision
from trnmodel.catalog.stacks import kinds
from trnmodel.result import BASES

POINTS, EACH = 10_000, 1000  # of a chip, shared by the systems that are built of it; of a question
LEAST = 2_000  # of a system
PRESETS = "bf16 fp16 fp32 int8 fp8 fp8-kvfp8 mxfp8 mxfp8-kvfp8 mxfp4 mxfp4-moe w4a8 w4fp8 w4a8-kvfp8".split()
GENERATE = [name for name in tm.model_ids() if tm.model(name).generates]
RESOURCES = ("compute_s", "memory_s", "network_s", "overhead_s")
BATCHES, LENGTHS = (
    np.array([[1, 0], [1, 1], [1, 0], [2, 0], [1, 0]]),
    np.array([[1, 0], [1, 0], [1, 1], [1, 0], [2, 0]]),
)
MORE = {1: "batch + 1", 2: "length + 1", 3: "batch x 2", 4: "length x 2"}  # columns, after the point itself


@cache
def smallest_bytes(name):
    return tm.model(name).weight_bytes(precision("mxfp4"))


def drawn(rng, size, high, low=1):
    """Whole numbers, evenly in logarithms, a column."""
    return np.round(np.exp(rng.uniform(np.log(low), np.log(high), size)))[:, None]


def powers(rng, most, size):
    """Powers of two up to some numbers."""
    return np.exp2(np.floor(rng.uniform(size=(size, 1)) * (np.floor(np.log2(most)) + 1)))


def share(system):
    """How many points a system is asked for: what differs among those of one chip are counts and links."""
    alike = sum(tm.system(name).chip.id == system.chip.id for name in tm.systems())
    return max(POINTS / alike, LEAST)


def linked(system):
    rates = (system.chip.scaleup_bytes_per_s_per_dir, system.lane_bytes_per_s_per_dir)
    return bool(system.scaleup_bytes_per_s_per_dir) or not np.isnan(rates).all()


def degrees(rng, model, ranks):
    outline = model.outline("decode")
    experts, left, found = max(outline.experts, 1), float(ranks), {}
    for name, most in (("tp", 128), ("pp", min(8, outline.layers)), ("cp", 8), ("ep", experts)):
        found[name] = powers(rng, np.minimum(left, most), EACH)
        left = np.floor(left / found[name])
    whole = powers(rng, np.minimum(found["tp"], np.maximum(experts // found["ep"], 1)), EACH)
    return found | {"moe_ep": np.where(rng.random((EACH, 1)) < 0.5, whole, 1.0)}


def faster(system):
    """The system with parts of twice the rate."""
    chip, twice = system.chip, lambda rates: {name: 2 * rate for name, rate in rates.items()}
    links = {"scaleup_bytes_per_s_per_dir": twice(system.scaleup_bytes_per_s_per_dir)}
    links["lane_bytes_per_s_per_dir"] = 2 * system.lane_bytes_per_s_per_dir
    wider = replace(chip, scaleup_bytes_per_s_per_dir=2 * chip.scaleup_bytes_per_s_per_dir)
    return {
        "HBM": replace(system, chip=replace(chip, hbm_bytes_per_s=2 * chip.hbm_bytes_per_s)),
        "peak": replace(system, chip=replace(chip, peak_flop_per_s=twice(chip.peak_flop_per_s))),
        "links": replace(system, chip=wider, **links),
    }


class Question:
    """Points of one model in one format on one system: columns of degrees, batches, lengths and pasts."""

    def __init__(self, rng, system, formats):
        fits = [name for name in GENERATE if smallest_bytes(name) < 0.5 * system.hbm_bytes]
        self.model, self.system = tm.model(str(rng.choice(fits))), system
        self.precision, lnc = str(rng.choice(formats)), int(rng.choice(system.chip.lnc_choices))
        ranks = system.chips * system.chip.cores / lnc if linked(system) else 1
        self.mapping = tm.Mapping(**degrees(rng, self.model, ranks), lnc=lnc)
        self.batch, self.length = drawn(rng, EACH, 512), drawn(rng, EACH, 1e5)
        self.past = drawn(rng, EACH, 3e4) * (rng.random((EACH, 1)) < 0.4)
        self.chunked = any(a.kind == "chunked" for a in self.model.attentions())

    def __repr__(self):
        return f"{self.model.id} in {self.precision} on {self.system.id}"

    def ask(self, phase, stack, system=None, more=True, **also):
        batch, length = self.batch, self.length
        if more:
            batch, length = (x * by[:, 0] + by[:, 1] for x, by in ((batch, BATCHES), (length, LENGTHS)))
        asked = {"batch": batch, "precision": self.precision, "efficiencies": stack, **also}
        where = (self.model, system or self.system, self.mapping)
        if phase == "decode":
            return tm.decode_step(*where, context=length, **asked)
        return tm.prefill(*where, input_tokens=length, past=self.past, **asked)


def known_where_valid(step, what):
    times, valid = step.time_s, step.valid
    assert np.array_equal(np.isfinite(times) & (np.nan_to_num(times) > 0), valid), what
    assert np.all(np.equal(step.reason, "") == valid), what
    for name in RESOURCES:
        assert np.all(np.broadcast_to(getattr(step, name), valid.shape)[valid] >= 0), (what, name)
    inside = (step.lower_s <= times * (1 + 1e-9)) & (times <= step.upper_s * (1 + 1e-9))
    assert np.all(inside[valid]), what


def never_faster_with_more(question, step, what):
    valid, first = step.valid, step.valid[:, :1]
    for name in ("time_s", *RESOURCES):
        times = np.broadcast_to(getattr(step, name), valid.shape)
        bad = valid & first & (times < times[:, :1] * (1 - 1e-9))
        for column, more in MORE.items():
            if not (question.chunked and more.startswith("length")):
                assert not bad[:, column].any(), (what, name, more, np.flatnonzero(bad[:, column])[0])


def lines_add_up(question, phase, stack, step, what):
    listed = question.ask(phase, stack, more=False, breakdown=True)
    for place, name in enumerate(RESOURCES):
        total = sum(np.asarray(line[place]) for line in listed.operators.values())
        shown = np.broadcast_to(getattr(step, name), step.valid.shape)[:, :1]
        found = np.where(step.valid[:, :1], np.broadcast_to(total, shown.shape), np.nan)
        np.testing.assert_allclose(found, np.where(step.valid[:, :1], shown, np.nan), rtol=1e-9, err_msg=str(what))


def rests_on_a_known_word(question, phase, stack, what):
    """Low <= time <= high, and the basis, at some of the points, one of which is asked again by itself."""
    some = slice(0, EACH, 40)
    cut = lambda x: x[some]  # noqa: E731
    names = ("tp", "pp", "cp", "ep", "moe_ep")
    columns = {name: cut(getattr(question.mapping, name)) for name in names}
    few = object.__new__(Question)
    few.__dict__ = question.__dict__ | {"mapping": tm.Mapping(**columns, lnc=question.mapping.lnc)}
    few.batch, few.length, few.past = map(cut, (question.batch, question.length, question.past))
    step = few.ask(phase, stack, more=False)
    valid, low, high = step.valid, *step.ends("time_s")
    assert set(np.unique(np.broadcast_to(step.basis, valid.shape).astype(str))) <= set(BASES), what
    assert np.all((low <= step.time_s) & (step.time_s <= high) | ~valid), what
    one = object.__new__(Question)
    one.__dict__ = few.__dict__ | {name: float(getattr(few, name)[0, 0]) for name in ("batch", "length", "past")}
    one.mapping = tm.Mapping(**{name: x[0, 0] for name, x in columns.items()}, lnc=few.mapping.lnc)
    alone = one.ask(phase, stack, more=False)
    np.testing.assert_allclose(alone.time_s, step.time_s[0, 0], rtol=1e-12, err_msg=str(what))


def quick(name):
    """Whether a system is one of the first two of its chip; the slow tests ask the others of the same chip."""
    return name in [other for other in tm.systems() if tm.system(other).chip.id == tm.system(name).chip.id][:2]


@pytest.mark.parametrize(
    "name", [name if quick(name) else pytest.param(name, marks=pytest.mark.slow) for name in tm.systems()]
)
def test_every_property_holds_at_thousands_of_points(name):
    system, rng = tm.system(name), np.random.default_rng(list(map(ord, name)))
    peaks, better = system.chip.peak_flop_per_s, faster(system)
    formats = [p for p in PRESETS if {precision(p).compute, precision(p).attention} <= set(peaks)]
    points, turn = 0, 0
    while points < share(system):
        question, part = Question(rng, system, formats), list(better)[turn % 3]
        for phase in ("decode", "prefill"):
            steps = {}
            for kind, word in kinds(system.chip).items():
                what = (question, phase, kind)
                step = steps[kind] = question.ask(phase, word)
                known_where_valid(step, what)
                never_faster_with_more(question, step, what)
                quick = question.ask(phase, word, better[part], more=False).time_s
                assert not np.any(quick > step.time_s[:, :1] * (1 + 1e-9)), (what, part)
                if turn % 4 == 0:
                    lines_add_up(question, phase, word, step, what)
                if turn % 10 == 0:  # ranges are asked one by one
                    rests_on_a_known_word(question, phase, word, what)
            for kind, step in steps.items():  # the ideal stack bounds the others
                assert not np.any(steps["ideal"].time_s > step.time_s * (1 + 1e-9)), (question, phase, kind)
            points += np.count_nonzero(steps["public"].valid[:, 0]) if phase == "decode" else 0
        turn += 1
    assert turn < 60
