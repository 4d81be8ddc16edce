"""Frames of results as Parquet: what is written is what is read, words, empty cells, NaN and odd text among it."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm

MODEL, CHIPS = "llama-3.1-8b", tm.Mapping(tp=8)


def step():
    """A decode step with a point that cannot exist, whose numbers are NaN and whose reason is text."""
    return tm.decode_step(MODEL, "trn2.48xlarge", CHIPS, batch=[1, 16, 1e6], context=4096).to_frame()


def plan():
    """A plan of a system that answers and of one that is refused, most of whose cells are empty."""
    request = tm.Request(1024, 256, tokens_per_s_per_user=50)
    return tm.plan("llama-3.1-70b", request, ["trn2.48xlarge", "trn1.2xlarge"]).to_frame(bands=True)


def odd_text():
    """Object columns with text that CSV or a shell would trip over."""
    names = np.array(["π, “quoted”\n", "", "=1+1", "\t'x'"], dtype=object)
    return (
        step().iloc[[0, 0, 1, 2]].assign(stack=names, note=pd.Series([None, "a", None, "b"], dtype=object).to_numpy())
    )


def cells(frame):
    """A frame as plain values; an empty cell is None, whatever kind of nothing stands there."""
    plain = frame.astype(object)
    return plain.where(frame.notna(), None)


FRAMES = {
    "a step": step,
    "a plan": plan,
    "collectives": lambda: tm.collective("all_reduce", [1e3, 1e9], "trn2.48xlarge").to_frame(),
    "an owner's hour": lambda: tm.tco("hgx-h100").to_frame(),
    "a useful share": lambda: tm.goodput("hgx-h100", 4096, model=MODEL).to_frame(),
    "mappings of a training run": lambda: tm.train_run(MODEL, "hgx-h100", tokens=1e12, chips=64).table,
    "facts": tm.facts,
    "no row": lambda: step().iloc[:0],
    "odd text": odd_text,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_survives_parquet(frame, tmp_path):
    written = frame().reset_index(drop=True)
    assert any(pd.api.types.is_string_dtype(kind) or pd.api.types.is_object_dtype(kind) for kind in written.dtypes)
    written.to_parquet(tmp_path / "table.parquet")
    found = pd.read_parquet(tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(cells(found), cells(written))
    numbers = written.select_dtypes("number")
    assert found[numbers.columns].dtypes.equals(numbers.dtypes)
