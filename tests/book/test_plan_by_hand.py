"""What the grid of frontiers asks, and why a frontier has no points, by hand."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import serving_explorer as explore

LIKE = dict.fromkeys(("compute", "memory", "network", "overhead"), 1.0)


def step(**more):
    at = {f"{name}_s": 0.03 for name in LIKE}
    return SimpleNamespace(
        **at
        | {
            "time_s": 0.05,
            "occupied_chips": 24.0,
            "tokens_per_s_per_user": 20.0,
            "tokens_per_s_per_chip": 6.0,
            "compiled_tokens": 1280.0,
        }
        | more
    )


def test_what_a_grid_of_frontiers_asks_by_itself():
    asked = inspect.signature(explore.frontier_grid).parameters
    assert asked["points"].default == 12
    assert asked["contexts"].default == (4096, 32_768)
    assert asked["stack_kinds"].default == ("public", "hand-tuned", "ideal")
    (row,) = explore.frontier_grid(["llama-3.1-8b"], ["trn1.32xlarge"], ["ideal"], ["fp8"], [1.0]).itertuples()
    assert row.context == 1.0
    with pytest.raises(ValueError, match="contexts="):
        explore.frontier_grid(["llama-3.1-8b"], ["trn1.32xlarge"], ["ideal"], ["fp8"], [0.9])


def test_a_context_as_long_as_a_model_s_can_be_asked():
    m, spec = tm.model("llama-3.1-8b"), tm.system("trn2.48xlarge")
    assert explore._impossible(m, spec, "ideal", "bf16", 131_072.0) == ""
    assert explore._impossible(m, spec, "ideal", "bf16", 131_073.0) == (
        "llama-3.1-8b has contexts of up to 131,072 tokens"
    )


def test_why_a_frontier_has_no_points(monkeypatch):
    """The mapping that lacks least: 3 x 33 of 3 x 32 GiB; where memory suffices to the byte, reasons of its steps."""
    step = SimpleNamespace(tp=np.array([1.0, 3.0]), ep=np.ones(2), reason=np.array([["", "slow"], ["late", "slow"]]))
    monkeypatch.setattr(explore, "tried", lambda *asked, **ask: step)
    for need, told in ((33.0, "does not fit: 99 of 96 GiB"), (32.0, "late; slow"), (31.0, "late; slow")):
        fit = SimpleNamespace(total_bytes=np.array([40.0, need]) * 2**30, capacity_bytes=np.full(2, 32.0) * 2**30)
        monkeypatch.setattr(explore, "memory_fit", lambda *asked, fit=fit, **ask: fit)
        assert explore._unfit(None, None, {}) == told
