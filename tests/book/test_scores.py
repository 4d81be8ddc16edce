"""Which runs the chapter on memory compares with what fits, by hand."""

import math
from types import SimpleNamespace

import numpy as np

from trnbook.chapters import memory_fit_printed as footprints

NAN = math.nan


def test_runs_whose_room_is_asked_for(monkeypatch):
    """On Trainium and Inferentia, of a known model and length, on software, each once; none of training."""
    plain = {
        "model": "m",
        "where": "trn2",
        "stack": "e",
        "batch": 3.0,
        "compiled_batch": 4.0,
        "context": 5.0,
        "max_context": NAN,
        "prompt": NAN,
        "meaning": "decode-step",
        "mapping": (1, 1, 1, None),
        "precision": "bf16",
    }
    changes = {
        "own": {},
        "again": {"stack": "f"},
        "inf": {"where": "inf2"},
        "gpu": {"where": "hgx"},
        "ideal": {"stack": "ideal"},
        "none": {"model": ""},
        "train": {"meaning": "train-step"},
        "no length": {"context": NAN},
        "memory": {},
        "longer": {"max_context": 7.0},
        "prompt": {"prompt": 11.0},
        "larger": {"batch": 13.0},
    }
    rows = [{"id": name, "kind": footprints.FOOTPRINT if name == "memory" else "x"} for name in changes]
    cases = {name: SimpleNamespace(reading=SimpleNamespace(**plain | more)) for name, more in changes.items()}
    monkeypatch.setattr(footprints, "read_rows", lambda path: rows)
    monkeypatch.setattr(footprints, "readable", lambda kept: [cases[row["id"]] for row in kept])
    kept = [cases[name].reading for name in ("own", "inf", "longer", "prompt", "larger")]
    assert [one is other for one, other in zip(footprints._runs(), kept, strict=True)] == [True] * 5
    assert [footprints._size(one) for one in kept] == [(4.0, 5.0), (4.0, 5.0), (4.0, 7.0), (4.0, 11.0), (13.0, 5.0)]


def test_whether_what_ran_should_have_fitted(monkeypatch):
    """The first rank holds 9 of what is left, the others 7; to the last byte is enough."""
    room = {"fits": (7.0, 9.0, 8.0, 9.0), "first": (7.0, 9.0, 7.0, 8.9), "none": (7.0, 9.0, 6.9, 8.9)}
    names = ("total_bytes", "first_rank_total_bytes", "capacity_bytes", "first_rank_capacity_bytes")

    def stored(r, batch, context):
        if r.where == "odd":
            raise ValueError
        return SimpleNamespace(**dict(zip(names, room[r.where], strict=True)))

    asked = {"model_id": "m", "batch": 3.0, "compiled_batch": 2.0, "context": 5.0, "max_context": 4.0, "prompt": 3.0}
    sizes = {"fits": 2, "first": None, "odd": 1, "none": 1}
    runs = [SimpleNamespace(where=name, mapping=(8, 1, 1, lnc), **asked) for name, lnc in sizes.items()]
    monkeypatch.setattr(footprints, "_runs", lambda: runs)
    monkeypatch.setattr(footprints, "stored_bytes", stored)
    table = footprints.what_ran()
    assert table.verdict.tolist() == ["fits", "first rank too large", "too large"]
    np.testing.assert_equal(table.lnc.to_numpy(float), [2.0, NAN, 1.0])
    assert table.iloc[0].tolist() == ["m", "fits", 8, 2.0, 3.0, 5.0, *room["fits"], "fits"]
