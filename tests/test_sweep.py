"""Sweeps give tidy tables whatever runs them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from trnmodel.studies.sweep import sweep


def model(kind, x, y=1.0):
    return {"product": x * y + (kind == "b")}


def test_categories_loop_and_numbers_broadcast():
    table = sweep(model, {"kind": ["a", "b"], "x": [1, 2, 3], "y": [10.0, 20.0]}, progress=False)
    assert len(table) == 12
    assert table.columns.tolist() == ["kind", "x", "y", "product"]
    expected = table.x * table.y + (table.kind == "b")
    assert table["product"].tolist() == expected.tolist()


def test_an_executor_changes_nothing():
    grid = {"kind": ["a", "b"], "x": np.arange(5)}
    with ThreadPoolExecutor(2) as pool:
        assert sweep(model, grid, executor=pool, progress=False).equals(sweep(model, grid, progress=False))


def test_numbers_alone_and_categories_alone():
    assert len(sweep(model, {"kind": "a", "x": [1, 2]}, progress=False)) == 2
    assert sweep(lambda kind: 3.0, {"kind": ["a", "b"]}, progress=False).value.tolist() == [3.0, 3.0]


def test_unknown_argument_names_the_nearest():
    with pytest.raises(ValueError, match=r"'z'.*nearest"):
        sweep(model, {"kind": "a", "z": [1]})


def test_a_million_points_is_one_call():
    calls = []

    def counted(x, y):
        calls.append(1)
        return x + y

    assert len(sweep(counted, {"x": np.arange(1000.0), "y": np.arange(1000.0)}, progress=False)) == 1_000_000
    assert len(calls) == 1
