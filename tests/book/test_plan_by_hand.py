"""What the grid of frontiers asks by itself, and why a frontier has no points."""

import inspect

import trnmodel as tm
from trnbook.chapters import serving_explorer as explore


def test_what_a_grid_of_frontiers_asks_by_itself():
    asked = inspect.signature(explore.frontier_grid).parameters
    assert asked["tokens_per_s_per_user"].default == explore.SPEEDS == (10.0, 20.0, 40.0, 80.0, 160.0)
    assert asked["stack_kinds"].default == ("public", "hand-tuned", "ideal")
    assert asked["precisions"].default == ("bf16", "fp8")


def test_a_request_as_long_as_a_model_can_be_asked():
    m, spec = tm.model("llama-3.1-8b"), tm.system("trn2.48xlarge")
    assert explore._impossible(m, spec, "ideal", "bf16", 131_072.0) == ""
    assert explore._impossible(m, spec, "ideal", "bf16", 131_073.0) == (
        "llama-3.1-8b has contexts of up to 131,072 tokens"
    )


def test_why_a_frontier_has_no_points():
    """What does not fit says by how much; what fits and is too slow says how fast it is on an empty server."""
    request, large = tm.Request(512, 128), tm.model("llama-3.1-405b")
    why = explore._unreached(large, tm.system("trn1.2xlarge"), request, "ideal", "bf16", 10.0)
    assert why.startswith("does not fit: ")
    small, spec = tm.model("llama-3.1-8b"), tm.system("trn2.48xlarge")
    best = tm.plan(small, tm.Request(512, 128, 1e6), spec, precision="bf16", efficiencies="ideal").best
    why = explore._unreached(small, spec, request, "ideal", "bf16", 1e6)
    assert why == f"at most {best.tokens_per_s_per_user:.3g} tokens/s for a user"
