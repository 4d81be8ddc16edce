"""Bands by their short way against the question asked again for each end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.bands import ranged, spread
from trnmodel.catalog import prices as priced
from trnmodel.catalog.stacks import VALUES
from trnmodel.catalog.systems import roomy
from trnmodel.cost import tco as hours
from trnmodel.formulas.bands import joint_width

PRICES = np.random.default_rng(7).uniform(2e3, 2e4, 5)
HOURS = {
    "plain": {},
    "chip": {"chip_usd": PRICES},
    "server": {"server_usd": PRICES},
    "watts": {"tdp_w": PRICES / 10},
    "utilisation": {"utilisation": np.array([0.3, 0.9])},
    "three": {"chip_usd": PRICES[:, None], "tdp_w": PRICES / 10, "switch_usd_per_lane": 20.0},
}


def again(cost: tm.Cost, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Half-widths of a figure, from an hour for each end with a spec made anew."""
    q, below, above = cost.question, [0.0], [0.0]

    def figure(**changes: object) -> np.ndarray:
        return np.asarray(hours._flat(replace(q, **changes))[name])

    changes = [
        [{owner: spec.moved({which: end})} for end in pair]
        for owner in ("prices", "owner", "power")
        for spec in [getattr(q, owner)]
        for which, pair in spec.open_ranges.items()
    ]
    changes += [[{which: end} for end in pair] for which, pair in hours._ends(q).items() if np.any(np.less(*pair))]
    for pair in changes:
        logs = [np.log(figure(**one) / figure()) for one in pair]
        below.append(np.maximum(0.0, -np.minimum(*logs)))
        above.append(np.maximum(0.0, np.maximum(*logs)))
    return joint_width(*below), joint_width(*above)


@pytest.mark.parametrize("asked", HOURS.values(), ids=HOURS)
@pytest.mark.parametrize("system", ["hgx-h100", "trn3-nl72x2-pcie160", "trn2.48xlarge", "gb300-nvl72"])
@pytest.mark.parametrize("owner", ["hyperscaler", "neocloud"])
def test_an_hour_has_the_band_of_hours_that_are_asked_again(system, owner, asked):
    cost = tm.tco(system, owner=owner, **asked)
    for name in ("usd_per_h", "useful_usd_per_h", "capital_usd", "site_usd_per_h"):
        for side, other in zip(cost.widths(name), again(cost, name), strict=True):
            assert np.allclose(side, other, rtol=1e-9, atol=1e-12, equal_nan=True)


def test_hours_with_no_ranges_with_a_range_at_0_and_with_arrays_in_a_spec():
    own = priced.prices()
    bare = tm.tco("hgx-h100", prices=replace(own, ranges={}), owner=replace(priced.owner(), ranges={}))
    assert bare.widths("network_usd_per_h") == (0.0, 0.0)
    specs = [
        {"prices": replace(own, ranges={"switch_rebate": (0.0, 0.3), "aec_rebate": (0.0, 0.0)})},
        {"owner": replace(priced.owner(), electricity_usd_per_j=np.array([1e-8, 2e-8]))},
    ]
    for spec in specs:
        cost = tm.tco("trn3-nl72x2-pcie160", **spec)
        for side, other in zip(cost.widths("usd_per_h"), again(cost, "usd_per_h"), strict=True):
            assert np.allclose(side, other, rtol=1e-9, atol=1e-12)


def test_a_card_of_one_hour_at_several_utilisations():
    cost = tm.tco("hgx-h100", utilisation=np.array([0.5, 0.9]))
    assert np.shape(cost.low) == ()
    assert "utilisation" in repr(cost)


def test_an_energy_of_points_that_cannot_exist_leaves_the_others_a_band():
    step = tm.decode_step("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=8), batch=np.array([8.0, 1e7]), context=4096)
    cost = tm.tco("hgx-h100", energy=tm.energy(step))
    low, value = np.asarray(cost.low), np.asarray(cost.usd_per_h)
    assert low[0] < value[0]
    assert np.isnan(low[1])
    assert np.isnan(value[1])


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
@pytest.mark.parametrize("system", ["trn2.48xlarge", "trn1.32xlarge", "hgx-h100"])
@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_value_that_is_not_moved_moves_nothing(model, system, tp, phase):
    """Every number of a stack that a step leaves out is changed, and its time stays the same to the last digit."""
    where, ask = (model, roomy(tm.system(system)), tm.Mapping(tp=tp)), {"batch": np.array([1.0, 16.0])}
    ask |= {"context": 4096.0} if phase == "decode" else {"input_tokens": 512.0}
    step = (tm.decode_step if phase == "decode" else tm.prefill)(*where, **ask)
    q, e = step.question, step.question.setting.e
    assert q.elsewhere() <= set(VALUES)
    for name in q.elsewhere():
        value = getattr(e, name)
        moved = q.figure(replace(e, **{name: value / 2 if 0 < value < np.inf else 1e-5 if value == 0 else 1e9}))
        if name != "hop_s" or tp > 1:
            assert np.array_equal(moved, q.figure(e), equal_nan=True), name
    every, fewer = ranged(e, q.figure), ranged(e, q.figure, without=q.elsewhere())
    assert np.array_equal(every, fewer, equal_nan=True)


OWN = {
    "layer_s": (1e-5, 2e-4),
    "kv_stream_share": (0.3, 0.9),
    "scratchpad_page_bytes": (0.0, 1e9),
    "phase_overlap": (0.0, 1.0),
    "compute_memory_overlap": (0.5, 1.0),
    "server_step_s": (0.0, 1e-3),
}


def stack_of(kind: str, chip: tm.Chip) -> object:
    """Return a stack of a chip by its kind; an own one has values and ranges of all sorts, some of memory."""
    if kind == "own":
        e = tm.efficiencies(chip)
        return replace(e, layer_s=3e-5, kv_stream_share=0.6, ranges={**e.ranges, **OWN})
    return None if kind == "public" or (kind == "hand-tuned" and not chip.hand_tuned_stack) else kind


@pytest.mark.parametrize("stack", ["public", "hand-tuned", "ideal", "own"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("system", ["trn2.48xlarge", "trn1.32xlarge", "hgx-h100"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_step_has_the_band_of_steps_that_are_asked_again(model, system, phase, stack):
    """One point, few and a grid with points that do not fit, against a step for each end and the words of the basis."""
    for shape in ((), (4,), (2, 1)):
        rng = np.random.default_rng(len(shape))
        length = np.round(np.exp(rng.uniform(4, 12, (4,) if shape else ())))
        ask = {"batch": np.round(np.exp(rng.uniform(0, 9, shape))), "expert_imbalance": 1.1}
        ask["context" if phase == "decode" else "input_tokens"] = length
        mapping = tm.Mapping(tp=8.0 if shape != (2, 1) else np.array([[2.0], [16.0]]))
        ask["efficiencies"] = stack_of(stack, tm.system(system).chip)
        q = (tm.decode_step if phase == "decode" else tm.prefill)(model, system, mapping, **ask).question
        for part in ("", "load"):
            reach, basis = q.reach(part), q.basis(part)
            assert np.array_equal(np.broadcast_to(reach.outside, np.shape(basis.word)), basis.word == "extrapolated")
            moving = {name: ends for name, ends in q.setting.e.ranges.items() if name not in q.elsewhere()}
            again = spread(basis, replace(q.setting.e, ranges=moving), q.figure)
            for side, other in zip(q.widths(part), again, strict=True):
                assert np.shape(side) == np.shape(other)
                assert np.allclose(side, other, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("system", ["trn2.48xlarge", "trn3-nl72x2-pcie160"])
@pytest.mark.parametrize("degrees", [8.0, 2.0 ** (np.arange(50_000) % 5)], ids=["one", "many"])
def test_many_points_have_the_bands_that_each_has_by_itself(system, degrees):
    """Points in pieces, some outside of their rows and some that do not fit, against a few of them asked alone."""
    rng, model = np.random.default_rng(2), "llama-3.1-8b"
    batch, context = np.round(np.exp(rng.uniform(0, 6, 50_000))), np.round(np.exp(rng.uniform(6, 13, 50_000)))
    step = tm.decode_step(model, system, tm.Mapping(tp=degrees), batch=batch, context=context)
    for at in (0, 7, 39_999, 40_000, 49_999, int(np.argmax(batch * context))):
        mapping = tm.Mapping(tp=float(np.broadcast_to(degrees, batch.shape)[at]))
        alone = tm.decode_step(model, system, mapping, batch=batch[at], context=context[at])
        for side, other in zip(step.widths("time_s"), alone.widths("time_s"), strict=True):
            assert np.allclose(side[at], other, rtol=0, atol=1e-12, equal_nan=True)
