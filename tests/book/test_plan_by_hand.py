"""What the grid of frontiers asks by itself, and why a frontier has no points."""

import inspect

import trnmodel as tm
from trnbook.chapters import serving_explorer as explorer


def test_what_a_grid_of_frontiers_asks_by_itself():
    asked = inspect.signature(explorer.frontier_grid).parameters
    assert explorer.SPEEDS == (10.0, 20.0, 50.0, 100.0, 200.0)
    assert asked["software"].default == ("public", "hand-tuned", "ideal")
    assert asked["precisions"].default == ("bf16", "fp8", "mxfp8")


def test_a_request_as_long_as_a_model_can_be_asked():
    m, spec = tm.model("llama-3.1-8b"), tm.system("trn2.48xlarge")
    assert explorer.impossible(m, spec, "ideal", "bf16", 131_072.0) == ""
    assert explorer.impossible(m, spec, "ideal", "bf16", 131_073.0) == (
        "llama-3.1-8b has contexts of up to 131,072 tokens"
    )


def test_why_a_frontier_has_no_points():
    """What does not fit says by how much; what fits and is too slow says how fast it is on an empty server."""

    def why(model, system, speed):
        def ask(one, where, software, precision):
            more = {"speeds": [speed], "efficiencies": software, "precision": precision}
            return tm.compare(one, tm.Request(512, 128), where, **more)

        more = {"tokens": 640.0, "software": ["ideal"], "precisions": ["bf16"]}
        return explorer.frontier_grid(ask, tm.tco, [model], [system], **more).why.iloc[0]

    assert why("llama-3.1-405b", "trn1.2xlarge", 10.0).startswith("does not fit: ")
    ask = {"precision": "bf16", "efficiencies": "ideal"}
    best = tm.plan("llama-3.1-8b", tm.Request(512, 128, 1e6), "trn2.48xlarge", **ask).best
    assert why("llama-3.1-8b", "trn2.48xlarge", 1e6) == f"at most {best.tokens_per_s_per_user:.3g} tokens/s for a user"
