"""A sweep gives one table, whoever runs its calls, and a file of the same rows where asked."""

import itertools
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.search import sweep as sweeps
from trnmodel.search import tables

STEPS = {"model": ["llama-3.1-8b", "llama-3.3-70b"], "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8)}
STEPS |= {"batch": np.arange(1.0, 301.0), "context": np.linspace(64, 4096, 250)}  # 75,000 points, in two pieces


@pytest.fixture(scope="module")
def serial():
    """The table of this thread."""
    return tm.sweep(tm.decode_step, STEPS, progress=False)


def same(table, wanted):
    """Whether two tables are one, bit by bit."""
    pd.testing.assert_frame_equal(table, wanted, check_exact=True)
    return True


def test_the_table_holds_what_one_call_answers(serial):
    part = serial[serial.model == "llama-3.3-70b"]
    ask = {"system": STEPS["system"], "mapping": STEPS["mapping"]}
    step = tm.decode_step("llama-3.3-70b", batch=STEPS["batch"][:, None], context=STEPS["context"], **ask)
    wanted = step.to_frame()
    for name in wanted:
        assert part[name].tolist() == wanted[name].tolist() or np.array_equal(part[name], wanted[name], equal_nan=True)


def test_threads_and_processes_give_the_same_table(serial):
    with ThreadPoolExecutor(2) as pool:
        assert same(tm.sweep(tm.decode_step, STEPS, executor=pool, progress=False), serial)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert same(tm.sweep(tm.decode_step, STEPS, executor=pool, progress=False), serial)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_dask_cluster_gives_the_same_table(serial, processes, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    asked = {"n_workers": 2, "threads_per_worker": 1, "processes": processes, "dashboard_address": None}
    with distributed.LocalCluster(**asked) as cluster, distributed.Client(cluster) as client:
        pool = client.get_executor()
        assert same(tm.sweep(tm.decode_step, STEPS, executor=pool, progress=False), serial)
        path = tm.sweep(tm.decode_step, STEPS, executor=pool, progress=False, to=tmp_path / "rows.parquet")
        best = tm.sweep(tm.decode_step, STEPS, executor=pool, progress=False, least="time_s", rows=7)
    assert len(pd.read_parquet(path)) == len(serial)
    assert same(best, tm.sweep(tm.decode_step, STEPS, progress=False, least="time_s", rows=7))


def numbered(x, y, z):
    """The row of the grid, counted by hand from its values."""
    return {"row": (x * 4 + y) * 5 + z, "word": np.where((x + y + z) % 2, "odd", "even")}


GRID = {"x": range(3), "y": range(4), "z": range(5)}


@pytest.mark.parametrize("size", [1, 2, 4, 5, 7, 19, 20, 21, 59, 60, 1000])
def test_pieces_cover_the_grid_once_and_in_order(size, monkeypatch, tmp_path):
    monkeypatch.setattr(sweeps, "HELD", size)
    monkeypatch.setattr(sweeps, "ROWS", size)
    monkeypatch.setattr(tables, "ROWS", size)
    wanted = [numbered(*at) for at in itertools.product(*GRID.values())]
    with ThreadPoolExecutor(3) as pool:
        for executor in (None, pool):
            table = tm.sweep(numbered, GRID, executor=executor, progress=False)
            assert table["row"].tolist() == list(range(60))
            assert table.word.tolist() == [str(one["word"]) for one in wanted]
    file = pd.read_parquet(tm.sweep(numbered, GRID, progress=False, to=tmp_path / "a.parquet"))
    assert file["row"].tolist() == list(range(60))
    assert file.word.tolist() == table.word.tolist()
    best = tm.sweep(numbered, GRID, progress=False, most="row", rows=5)
    assert best["row"].tolist() == [59, 58, 57, 56, 55]
    assert (best.x.tolist(), best.z.tolist()) == ([2] * 5, [4, 3, 2, 1, 0])


def test_the_best_rows_are_those_of_the_sorted_table(monkeypatch):
    """Equal values keep the order of the grid, points without a value are left out."""
    monkeypatch.setattr(sweeps, "ROWS", 11)

    def cost(kind, x, y):
        return {"usd": np.where((x + y) % 3 == 0, np.nan, np.abs(x - 4) + np.abs(y - 6) + (kind == "b"))}

    grid = {"kind": ["a", "b"], "x": np.arange(9.0), "y": np.arange(12.0)}
    whole = tm.sweep(cost, grid, progress=False)
    for by, ascending in (("least", True), ("most", False)):
        sorted_ = whole.dropna().sort_values("usd", ascending=ascending, kind="stable")
        for rows in (1, 10, 33, 1000):
            best = tm.sweep(cost, grid, progress=False, rows=rows, **{by: "usd"})
            assert best.to_numpy().tolist() == sorted_.head(rows).to_numpy().tolist()
    none = tm.sweep(lambda x: x * np.nan, {"x": [1, 2]}, progress=False, least="value")
    assert (len(none), none.columns.tolist()) == (0, ["x", "value"])


def test_bands_are_those_of_the_rows_that_are_left():
    best = tm.sweep(tm.decode_step, STEPS, progress=False, most="tokens_per_s_per_chip", rows=9, bands=True)
    at = {"batch": best.batch.to_numpy(), "context": best.context.to_numpy() if "context" in best else None}
    step = tm.decode_step("llama-3.1-8b", STEPS["system"], STEPS["mapping"], **at)
    assert set(best.model) == {"llama-3.1-8b"}
    np.testing.assert_array_equal(best.low, step.low)
    np.testing.assert_array_equal(best.high, step.high)
    assert "low" not in tm.sweep(tm.decode_step, STEPS | {"batch": 1, "context": 64}, progress=False)


def test_a_file_holds_text_of_any_kind_and_number(monkeypatch, tmp_path):
    """More texts than a byte counts, which come group by group, with an object and a flag beside them."""
    monkeypatch.setattr(sweeps, "ROWS", 50)
    monkeypatch.setattr(tables, "ROWS", 50)

    def named(chip, order, x):
        return {"name": np.char.add("π“x”\n=", x.astype(int).astype(str)), "even": x % 2 == 0}

    grid = {"chip": [tm.chip("h100"), None], "order": [("tp", "pp")], "x": np.arange(400)}
    table = tm.sweep(named, grid, progress=False)
    file = pd.read_parquet(tm.sweep(named, grid, progress=False, to=str(tmp_path / "a.parquet")))
    assert file.name.tolist() == table.name.tolist() == [f"π“x”\n={i}" for i in range(400)] * 2
    assert file.chip.tolist() == ["h100"] * 400 + ["None"] * 400
    assert table.chip.tolist() == ["h100"] * 400 + [None] * 400
    assert set(file.order) == {"('tp', 'pp')"}
    assert file.even.tolist() == table.even.tolist()
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_a_failed_sweep_leaves_the_file_of_before(monkeypatch, tmp_path):
    monkeypatch.setattr(sweeps, "ROWS", 10)
    monkeypatch.setattr(tables, "ROWS", 10)
    path = tmp_path / "a.parquet"

    def breaks(x):
        if x.max() > 30:
            raise ZeroDivisionError
        return x

    tm.sweep(lambda x: x, {"x": [1.0, 2.0]}, progress=False, to=path)
    with pytest.raises(ZeroDivisionError):
        tm.sweep(breaks, {"x": np.arange(100)}, progress=False, to=path)
    assert pd.read_parquet(path).x.tolist() == [1, 2]
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"]


def test_answers_of_two_kinds_are_one_table_and_no_file(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "ROWS", 1)

    def odd(kind, x):
        return {"a": x, "only": x} if kind == "a" else {"a": "text"}

    grid = {"kind": ["a", "b"], "x": [1, 2]}
    table = tm.sweep(odd, grid, progress=False)
    assert table.a.tolist() == [1, 2, "text", "text"]
    assert table.only.tolist()[:2] == [1, 2]
    assert table.only.isna().tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match=r"to=.*same columns.*'a' is int64 and text"):
        tm.sweep(odd, grid, progress=False, to=tmp_path / "a.parquet")
    assert not list(tmp_path.iterdir())


def test_a_table_shares_nothing_with_what_a_function_holds():
    held = {}

    def step(batch):
        held["step"] = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=batch, context=2048)
        return held["step"]

    def product(x, y):
        held["product"] = x * y
        return {"product": held["product"]}

    batch = np.arange(1.0, 5.0)
    table = tm.sweep(step, {"batch": batch}, progress=False)
    before = held["step"].time_s.copy()
    table.loc[:, "time_s"], table.loc[:, "batch"] = 1.0, 77.0
    assert held["step"].time_s.tolist() == before.tolist()
    assert batch.tolist() == [1, 2, 3, 4]
    table = tm.sweep(product, {"x": [1.0, 2.0], "y": [3.0, 4.0]}, progress=False)
    table.loc[:, "product"] = 0.0
    assert held["product"].tolist() == [[3, 4], [6, 8]]


PATHS = ["rows.csv", "", 7, b"a.parquet", "nowhere/rows.parquet", "x" * 300 + ".parquet", "\0.parquet"]


@pytest.mark.parametrize("to", PATHS)
def test_paths_that_are_none(to, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="to="):
        tm.sweep(numbered, GRID, progress=False, to=to)
    assert not list(tmp_path.iterdir())


def test_columns_that_cannot_be_sorted_by():
    for by in ("tow", "word", "", "x"):
        with pytest.raises(ValueError, match=r"least: .* is no number of the answer; nearest"):
            tm.sweep(numbered, GRID, progress=False, least=by)
    with pytest.raises(ValueError, match="most='row': allowed is one of least and most"):
        tm.sweep(numbered, GRID, progress=False, least="row", most="row")
    with pytest.raises(ValueError, match="bands=True"):
        tm.sweep(numbered, GRID, progress=False, bands=True)
    with pytest.raises(ValueError, match="rows=0"):
        tm.sweep(numbered, GRID, progress=False, least="row", rows=0)
