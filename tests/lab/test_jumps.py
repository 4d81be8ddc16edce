"""Every jump between neighbours stands in `data/evidence/jumps.csv` with its cause, and two of them by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import jumps

SAMPLE = ["inf2.xlarge", "trn2.48xlarge", "trn3-nl32x2-torus", "hgx-h100", "tpu-v6e-pod"]
MODELS = ["llama-3.1-8b", "qwen3-30b-a3b", "gpt-oss-20b", "jamba-v0.1", "deepseek-v3", "gemma-2-2b"]
ROWS = [name for name in jumps.KEYS if name != "system"] + ["from", "to", "tp"]


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(jumps.JUMPS)


def test_every_jump_has_one_of_at_most_ten_causes(committed):
    assert committed.cause.notna().all()
    assert committed.cause.nunique() <= 10
    assert not committed.cause.str.contains("other|line").any()
    assert (committed.ratio >= jumps.RATIO).all()
    assert jumps.JUMPS.stat().st_size < 300_000
    named = {name for row in committed.system for name in row.split()}
    assert named <= set(tm.systems())
    assert len(named) > 30


@pytest.mark.parametrize("name", SAMPLE)
def test_the_committed_table_is_what_the_command_writes(name, committed):
    there = np.array([name in row.split() for row in committed.system])
    here = committed[there & committed.model.isin(MODELS)]
    every = jumps.jumps([name], MODELS)
    assert every.index.tolist() == list(range(len(every)))
    found = every.sort_values(ROWS, ignore_index=True)
    kept = here.sort_values(ROWS, ignore_index=True)
    assert found[ROWS].values.tolist() == kept[ROWS].values.tolist()
    np.testing.assert_allclose(found.ratio.astype(float), kept.ratio, rtol=0.06)  # the last digit may round either way


def test_a_jump_without_a_known_cause_is_refused(monkeypatch):
    """From 2 to 3 prompts there is 1.5 times the work, which is none of the causes."""
    monkeypatch.setattr(jumps, "RATIO", 1.3)
    with pytest.raises(ValueError, match="no cause is known of a jump along batch"):
        jumps.jumps(["inf2.xlarge"], ["llama-3.2-1b"])


def test_from_63_to_64_tokens_by_hand():
    """Top 8 of 128: 63 x 8 = 504 rows fill no block of 512, so 63 tokens go through 128 experts: 8,064 rows.

    64 x 8 = 512 rows do: ceil((512 - 127) / 512) + 127 = 128 blocks of 512 rows, 65,536 of them: 8.13 times the work.
    """
    e = replace(tm.efficiencies("trainium2"), prompt_bucket="exact")
    ask = {"efficiencies": e, "breakdown": True, "input_tokens": [63, 64]}
    step = tm.prefill("qwen3-30b-a3b", "trn2.48xlarge", tm.Mapping(tp=8), **ask)
    assert step.experts.tolist() == ["all", "blocks, more work than all"]
    experts = next(line for name, line in step.operators.items() if name.endswith("expert_up"))
    assert experts.compute_s[1] / experts.compute_s[0] == pytest.approx(65_536 / 8_064)
    layers = tm.model("qwen3-30b-a3b").n_layers
    assert step.operators["expert blocks"].overhead_s[1] == pytest.approx(128 * layers * e.expert_block_s)


def test_from_128_to_129_tokens_by_hand():
    """A prompt of 129 tokens runs in the bucket of 256: twice the matrix work."""
    step = tm.prefill("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), input_tokens=[128, 129], breakdown=True)
    assert step.compiled_tokens.tolist() == [128, 256]
    up = next(line for name, line in step.operators.items() if name.endswith("mlp_up") or "up" in name)
    assert up.compute_s[1] / up.compute_s[0] == pytest.approx(2)
    assert step.experts == ""


def test_the_way_of_experts_is_that_of_the_time():
    """Mixtral, top 2 of 8: 3 tokens select 6 experts, 4 tokens all 8; the ideal stack reads those that are needed."""
    ask = {"model": "mixtral-8x7b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=16), "context": 512}
    assert tm.decode_step(batch=[3, 4], **ask).experts.tolist() == ["selected", "all"]
    assert tm.decode_step(batch=4, efficiencies="ideal", **ask).experts == "needed"
    assert tm.decode_step(batch=1, **ask | {"mapping": tm.Mapping(tp=16, moe_ep=2)}).experts == "all"
    ideal = tm.prefill("mixtral-8x7b", "trn2.48xlarge", tm.Mapping(tp=16), input_tokens=[1, 4096], efficiencies="ideal")
    assert np.all(ideal.experts == "needed")
    many = tm.prefill("mixtral-8x7b", "trn2.48xlarge", tm.Mapping(tp=16), input_tokens=8192)
    assert many.experts == "blocks"


PLAIN = {
    "experts": ["a", "b", "all", "all"],
    "compiled": [1, 9, 5, 6],
    "lines": {"work": [0, 9, 1, 3], "x": [9, 0, 1, 2]},
}


@pytest.mark.parametrize(
    ("axis", "amount", "change", "cause"),
    [
        # of four points the third and fourth; a graph of more than one token more is another bucket
        ("prompt", 7, {"compiled": [1, 9, 128, 256]}, "bucket of prompt"),
        ("prompt", 7, {"compiled": [1, 9, 128, 130]}, "bucket of prompt"),
        ("batch", 7, {"experts": ["a", "b", "all, padded", "blocks, more"]}, "experts: all to blocks"),
        ("batch", 1, {}, "from one to two"),
        ("context", 1, {}, "from one to two"),
        ("tp", 1, {"messages": ["work"]}, "exchange among more ranks"),
        ("tp", 8, {"messages": ["x", "work"]}, "exchange among more ranks"),
        ("tp", 8, {"messages": ["x"]}, ""),
        (
            "batch",
            7,
            {"experts": ["a"] * 2 + ["blocks"] * 2, "lines": {"expert up": [0, 0, 1, 3], "x": [9, 9, 9, 9]}},
            "blocks of the worst distribution",
        ),
        ("batch", 7, {"experts": ["a"] * 2 + ["all"] * 2, "lines": {"expert up": [0, 0, 1, 3]}}, ""),
        ("batch", 7, {"experts": ["a"] * 2 + ["blocks"] * 2}, ""),
        ("batch", 7, {}, ""),
    ],
)
def test_causes_by_hand(axis, amount, change, cause):
    told = PLAIN | {"messages": []} | change
    step = SimpleNamespace(
        experts=np.array(told["experts"]),
        compiled_tokens=np.array(told["compiled"]),
        valid=np.ones(4, dtype=bool),
        time_s=np.ones(4),
        messages=[SimpleNamespace(name=name) for name in told["messages"]],
        operators={name: (np.array(values), 0.0) for name, values in told["lines"].items()},
    )
    point = {"axis": axis, jumps.AMOUNTS.get(axis, axis): amount}
    if cause:
        assert jumps._cause(step, 2, point) == cause
        return
    with pytest.raises(ValueError, match="no cause is known"):
        jumps._cause(step, 2, point)
