"""Sweeps give tidy tables whatever runs them."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.search import sweep as sweeps
from trnmodel.search.sweep import sweep


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


def test_a_bar_shows_unless_told_not_to(capsys):
    grid = {"kind": ["a", "b"], "x": [1, 2]}
    sweep(model, grid)
    assert "2" in capsys.readouterr().err
    sweep(model, grid, progress=False)
    assert capsys.readouterr().err == ""


def test_a_million_points_is_one_call():
    calls = []

    def counted(x, y):
        calls.append(1)
        return x + y

    assert len(sweep(counted, {"x": np.arange(1000.0), "y": np.arange(1000.0)}, progress=False)) == 1_000_000
    assert len(calls) == 1


def test_values_come_as_lists_ranges_arrays_and_series():
    wanted = sweep(model, {"kind": ["a", "b"], "x": [1, 2, 3]}, progress=False)
    for kinds in (("a", "b"), np.array(["a", "b"]), pd.Series(["a", "b"]), pd.Index(["a", "b"])):
        for numbers in (range(1, 4), (1, 2, 3), np.array([1, 2, 3]), pd.Series([1, 2, 3])):
            assert sweep(model, {"kind": kinds, "x": numbers}, progress=False).equals(wanted)


def test_yes_and_no_are_categories_as_are_lists_in_a_list():
    """A flag reaches the function as one value, a list as the list that it is, and both as one cell of their column."""

    def asked(on, order, x):
        return {"first": x if on else -x, "axes": len(order)}

    orders = [("tp", "pp"), ("tp",), ("pp", "tp", "dp")]
    table = sweep(asked, {"on": [True, False], "order": orders, "x": [1.0, 2.0, 3.0]}, progress=False)
    assert len(table) == 2 * 3 * 3
    assert table.order.tolist() == [order for _ in (True, False) for order in orders for _ in range(3)]
    assert table["first"].tolist() == [1, 2, 3] * 3 + [-1, -2, -3] * 3
    assert table["axes"].tolist() == ([2] * 3 + [1] * 3 + [3] * 3) * 2


def test_none_and_objects_are_values():
    table = sweep(lambda limit, chip: 0.0 if limit is None else limit, {"limit": [None, "8"], "chip": tm.chip("h100")})
    assert table["limit"].tolist() == [None, "8"]
    assert table["chip"].tolist() == ["h100", "h100"]
    assert table["value"].tolist() == [0.0, "8"]


def test_a_result_with_rows_of_its_own():
    """Degrees in one mapping object make rows; beside an axis of the grid they are refused."""
    ask = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "batch": 1, "context": 2048}
    table = sweep(tm.decode_step, ask | {"mapping": tm.Mapping(tp=[1, 2, 4])}, progress=False)
    assert table.tp.tolist() == [1, 2, 4]
    wanted = tm.decode_step(mapping=tm.Mapping(tp=[1, 2, 4]), **ask).time_s
    np.testing.assert_array_equal(table.time_s, wanted)


@pytest.mark.parametrize("grid", [None, 7, "x", [], {}, set(), {7: [1]}, {None: 1}, [("x", 1)], np.ones(2), object()])
def test_grids_that_are_none(grid):
    with pytest.raises(ValueError, match="grid="):
        sweep(model, grid)


@pytest.mark.parametrize(
    "values", [[], (), np.array([]), {1, 2}, frozenset("ab"), iter([1]), (n for n in "ab"), pd.Series()]
)
def test_values_that_are_none(values):
    with pytest.raises(ValueError, match=r"grid\['x'\]="):
        sweep(model, {"kind": "a", "x": values})


def test_names_are_those_of_the_function():
    with pytest.raises(ValueError, match=r"grid: arguments \['x'\] of 'model' are missing"):
        sweep(model, {"kind": "a"})
    with pytest.raises(ValueError, match="grid: 'rest' is no argument"):
        sweep(lambda x, *rest: x, {"x": 1, "rest": [1]})
    with pytest.raises(ValueError, match="grid: 'x' is no argument"):
        sweep(lambda x, /: x, {"x": 1})
    with pytest.raises(ValueError, match="grid: 'z' is no argument of 'partial'"):
        sweep(partial(model, "a"), {"z": 1})
    assert sweep(partial(model, "a"), {"x": [2]}, progress=False)["product"].tolist() == [2]
    assert sweep(lambda **given: given["x"] + given["y"], {"x": 1, "y": [2, 3]}, progress=False).value.tolist() == [
        3,
        4,
    ]


def test_functions_executors_and_progress_that_are_none():
    for wrong in (None, 7, "model", [model]):
        with pytest.raises(ValueError, match="function="):
            sweep(wrong, {"x": 1})
    for builtin in (max, dict, np.exp):  # whether these name their arguments is for Python and NumPy to say
        with pytest.raises(ValueError, match=r"function=|grid"):
            sweep(builtin, {"x": 1})
    for wrong in (7, "pool", ThreadPoolExecutor, True, [], object()):
        with pytest.raises(ValueError, match="executor="):
            sweep(model, {"kind": "a", "x": 1}, executor=wrong)
    for wrong in (None, 1, "no", []):
        with pytest.raises(ValueError, match="progress="):
            sweep(model, {"kind": "a", "x": 1}, progress=wrong)


@pytest.mark.parametrize(
    "answer",
    [None, [1, 2], np.ones((2, 5)), {"y": [1, 2]}, {"y": [[1], [2, 3]]}, pd.DataFrame({"y": [1]}), pd.Series([1, 2])],
)
def test_answers_that_do_not_fit_the_grid(answer):
    with pytest.raises(ValueError, match="function"):
        sweep(lambda x: answer, {"x": [1, 2, 3]}, progress=False)


def test_what_a_function_raises_is_raised():
    """The model's own words name its own argument; another's error is its own."""
    with pytest.raises(ValueError, match="batch"):
        sweep(tm.decode_step, {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "batch": [-1, 1], "context": 2048})
    with pytest.raises(ZeroDivisionError):
        sweep(lambda kind: 1 / 0, {"kind": "a"}, progress=False)


def test_a_grid_beyond_all_memory_is_refused():
    axis = np.arange(10_000)
    with pytest.raises(ValueError, match="grid: 1000000000000 points; allowed are up to 100000000"):
        sweep(lambda x, y, z: x, {"x": axis, "y": axis, "z": axis})


def test_a_grid_of_as_many_points_as_allowed_is_asked(monkeypatch):
    monkeypatch.setattr(sweeps, "MOST_POINTS", 6)
    table = sweep(model, {"kind": ["a", "b"], "x": [1, 2, 3]}, progress=False)
    assert table.index.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="grid: 8 points; allowed are up to 6"):
        sweep(model, {"kind": ["a", "b"], "x": [1, 2, 3, 4]}, progress=False)


@pytest.mark.parametrize(
    ("values", "numeric"),
    [
        (3.5, True),
        ([1], True),
        ([1, 2], True),
        ([], False),
        ([[1, 2], [3, 4]], False),
        ([[1], [2, 3]], False),
        ([True], False),
        ("a", False),
        (["a", 1], False),
    ],
)
def test_numbers_are_one_or_a_flat_list(values, numeric):
    assert sweeps._is_numeric(values) is numeric
