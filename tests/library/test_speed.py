"""Many points give the numbers of few, however they are cut, and a warm step passes few modules."""

import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.stacks import IDEAL
from trnmodel.steps import mapping as mappings
from trnmodel.steps import pieces
from trnmodel.steps.mapping import numbered

PACKAGE = Path(tm.__file__).parent
WHERE = {"model": "qwen3-30b-a3b", "system": "trn2.48xlarge"}
RNG = np.random.default_rng(5)


def dense(shape):
    return {name: RNG.choice([1.0, 2.0, 4.0, 16.0], shape) for name in ("tp", "ep", "pp", "cp")}


GRIDS = {
    "grid": ({"tp": [1, 4, 16]}, np.arange(1, 301)[:, None, None], np.linspace(100, 40_000, 70)[:, None]),
    "row": (dense(50_000), RNG.integers(1, 300, 50_000), RNG.integers(64, 9000, 50_000)),
    "dense": (dense((40, 60, 20)), np.arange(1, 41)[:, None, None], RNG.integers(64, 9000, (60, 20))),
    "degrees": ({"tp": np.tile([1.0, 4.0], 3000)[:, None], "pp": [1, 2]}, 8, np.full((6000, 1), 500)),
    "long": ({"tp": 4, "dp": np.ones((3, 1))}, 3, np.linspace(2, 30_000, 20_000)),
}


def calls(degrees, batch, context, stack):
    ask = {**WHERE, "mapping": tm.Mapping(**degrees), "batch": batch, "efficiencies": stack}
    return (
        tm.decode_step(context=context, max_context=50_000, **ask),
        tm.prefill(input_tokens=context, **ask),
        tm.memory_fit(context=context, **ask),
    )


def numbers_of(result):
    named = {field.name: getattr(result, field.name) for field in fields(result)}
    return {name: value for name, value in named.items() if isinstance(value, np.ndarray | np.generic)}


@pytest.mark.parametrize("stack", [None, "ideal"])
@pytest.mark.parametrize("grid", GRIDS)
def test_pieces_give_the_same_bits(grid, stack, monkeypatch):
    monkeypatch.setattr(pieces, "POINTS", 10**9)
    whole = calls(*GRIDS[grid], stack)
    for points in (700, 9001):
        monkeypatch.setattr(pieces, "POINTS", points)
        for one, cut in zip(whole, calls(*GRIDS[grid], stack), strict=True):
            for name, value in numbers_of(one).items():
                np.testing.assert_array_equal(getattr(cut, name), value, err_msg=name)
                assert np.shape(getattr(cut, name)) == np.shape(value), name


@pytest.mark.parametrize("grid", ["row", "dense"])
def test_dense_degrees_give_the_numbers_of_each(grid):
    degrees, batch, context = GRIDS[grid]
    step, fit = calls(degrees, batch, context, None)[::2]
    shape = step.valid.shape
    every = {name: np.broadcast_to(value, shape).ravel() for name, value in degrees.items()}
    sizes = [np.broadcast_to(x, shape).ravel() for x in (batch, context)]
    for place in range(0, step.valid.size, step.valid.size // 30):
        one = calls({name: value[place] for name, value in every.items()}, *(x[place] for x in sizes), None)
        for many, single in zip((step, fit), one[::2], strict=True):
            for name, value in numbers_of(single).items():
                found = np.broadcast_to(getattr(many, name), shape).ravel()[place]
                np.testing.assert_allclose(found, value, rtol=1e-13, err_msg=name)


def test_messages_and_lines_of_dense_degrees():
    degrees, batch, context = GRIDS["row"]
    ask = {**WHERE, "mapping": tm.Mapping(**degrees), "batch": batch, "context": context}
    step = tm.decode_step(**ask, breakdown=True)
    lines = sum(np.asarray(line.network_s) for line in step.operators.values())
    np.testing.assert_allclose(np.where(step.valid, lines, np.nan), step.network_s, rtol=1e-12)
    assert {message.group for message in step.messages} == {"tp", "pp", "ep", "cp"}


def test_specs_with_arrays_are_not_cut(monkeypatch):
    monkeypatch.setattr(pieces, "POINTS", 100)
    draws = tm.efficiencies("trainium2", "ideal").__class__(id="draws", decode_matmul_share=np.linspace(0.1, 1, 1000))
    step = tm.decode_step(**WHERE, batch=64, context=1000, efficiencies=draws)
    assert step.compute_s.shape == (1000,)


def test_numbers_are_told_apart():
    for arrays in (
        [RNG.integers(1, 9, 5000).astype(float), np.ones(5000)],
        [np.array([1e9, 2.0, 1e9]), np.array([1.0, 2.0, 1.0])],
        [RNG.integers(1, 2000, 5000).astype(float) for _ in range(3)],
        [np.ones(4), np.ones(4)],
    ):
        number, first = numbered(arrays)
        assert all(np.array_equal(x[first][number], x) for x in arrays)
        assert len(first) == len(set(zip(*(x.tolist() for x in arrays), strict=True)))


@pytest.mark.parametrize("block", [7, 2**16])
def test_numbers_are_those_of_numpy_s_unique_rows(block, monkeypatch):
    monkeypatch.setattr(mappings, "BLOCK", block)
    arrays = [RNG.integers(1, most, (4, 5)).astype(float) for most in (9, 3, 4)]
    number, first = numbered([*arrays, np.ones(())])
    rows, places = np.unique(np.stack([x.ravel() for x in arrays]), axis=1, return_inverse=True)
    assert np.array_equal(number, places.reshape(4, 5))
    assert np.array_equal(np.stack([x.ravel()[first] for x in arrays]), rows)


@pytest.mark.parametrize(("degrees", "points"), [(3, 41), (41, 3), (1, 41), (41, 41)])
def test_pieces_give_the_numbers_of_the_whole(degrees, points, monkeypatch):
    """Degrees along one axis and batches along the other, some of which fit no memory: cut in pieces of ten points."""
    mapping = tm.Mapping(tp=2.0 ** np.resize(np.arange(7), degrees)[:, None])
    where = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "mapping": mapping}
    batch = np.linspace(1, 4000, points).round()
    calls = (
        lambda: tm.decode_step(**where, batch=batch, context=4000),
        lambda: tm.memory_fit(**where, batch=batch, context=4000),
        lambda: tm.train_step(**where, global_batch=batch, seq=100, efficiencies="ideal"),
    )
    whole = [numbers_of(call()) for call in calls]
    monkeypatch.setattr(pieces, "POINTS", 10)
    for call, expected in zip(calls, whole, strict=True):
        for name, value in numbers_of(call()).items():
            shown = (np.broadcast_to(x, (degrees, points)) for x in (value, expected[name]))
            np.testing.assert_array_equal(*shown, err_msg=name)


@pytest.mark.parametrize(("system", "stack"), [("trn2.48xlarge", None), ("trn3-nl72x2-pcie160", IDEAL)])
def test_a_warm_step_of_experts_enters_few_modules(system, stack):
    """At most twelve: what is known of a question's setting is known once."""
    decode, mapping = tm.decode_step, tm.Mapping(tp=4, ep=4)
    ask = {"batch": 8, "context": 4096, "efficiencies": stack}
    decode("qwen3-30b-a3b", system, mapping, **ask)
    entered = set()

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents:
            entered.add(file.relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        decode("qwen3-30b-a3b", system, mapping, **ask)
    finally:
        sys.setprofile(None)
    assert len(entered) <= 12, sorted(entered)
