"""Shards, KV heads, messages and validity of mappings."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.workloads.parallelism import kv_heads_per_rank, shard
from trnmodel.workloads.traffic import traffic

GOLDEN = list(csv.DictReader((Path(__file__).parent / "golden" / "communication.csv").read_text().splitlines()))
INFERENCE = [
    row for row in GOLDEN if row["model"] and not row["phase"].startswith("train no") and "full rec" not in row["phase"]
]
DENSE = ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mixtral-8x7b-v0.1", "gpt-oss-20b", "deepseek-v3"]


def messages(row):
    """Messages of the step that a row of the golden file describes."""
    degrees = {
        "TP=8": {"tp": 8},
        "PP=4": {"pp": 4},
        "PP=4 TP=8 SP": {"pp": 4, "tp": 8},
        "CP=8": {"cp": 8},
        "Ulysses=8": {"cp": 8},
    }
    phase = "decode" if row["phase"].startswith("decode") else "prefill"
    long = row["parallelism"] in ("CP=8", "Ulysses=8")  # S = 131,072: 528,482,304 = 7/8 x S/8 x 144 x 128 x 2
    tokens = int(row["phase"].split("B=")[1]) if phase == "decode" else 131072 if long else 8192
    ask = {"tokens": tokens, "logits": 1 if phase == "prefill" else tokens, "phase": phase}
    algorithm = "ulysses" if row["parallelism"].startswith("Ulysses") else "ring"
    found = traffic(tm.model(row["model"]), tm.Mapping(**degrees[row["parallelism"]]), cp_algorithm=algorithm, **ask)
    return {
        name: [message for message in found if message.name == name] for name in {message.name for message in found}
    }


def predicted(row):
    m = messages(row)
    (outputs,), (boundary,), (logits,) = m["row-parallel outputs"], m["stage boundary"], m["logits"]
    layers = tm.model(row["model"]).n_layers
    context = [message for name in m if name.startswith("context") for message in m[name]]
    return {
        "all-reduce message (one)": lambda: outputs.message_bytes,
        "all-reduces per layer (fwd)": lambda: outputs.count / layers,
        "wire bytes sent per rank per layer, ring AR": lambda: outputs.wire_bytes_per_rank / layers,
        "wire bytes sent per rank, 80 layers": lambda: outputs.wire_bytes_per_rank,
        "logits all-gather received per rank (bf16, last token only in prefill)": lambda: logits.wire_bytes_per_rank,
        "p2p bytes per micro-batch per stage boundary": lambda: boundary.message_bytes,
        "p2p bytes per rank per micro-batch per boundary": lambda: boundary.message_bytes / 8,
        "bytes sent per rank per layer": lambda: sum(message.wire_bytes_per_rank for message in context) / layers,
    }.get(row["name"])


@pytest.mark.parametrize("row", INFERENCE, ids=lambda row: f"{row['parallelism']}-{row['phase']}-{row['name'][:30]}")
def test_communication_golden(row):
    value = predicted(row)
    assert value is not None, row["name"]
    assert float(value()) == pytest.approx(float(row["value"]), rel=1e-12)


@pytest.mark.parametrize(
    ("tp", "policy", "held"),
    # Llama-3-70B: 64 query and 8 KV heads; 24 ranks pad the query heads to 72, three a rank
    [
        (1, "replicate", 8),
        (8, "replicate", 1),
        (24, "replicate", 1),
        (32, "replicate", 1),
        (12, "replicate", 6),
        (8, "multi-head", 1),
        (24, "multi-head", 3),
        (32, "multi-head", 2),
        (32, "even", 0.25),
    ],
)
def test_kv_heads_of_a_rank(tp, policy, held):
    assert float(kv_heads_per_rank(64, 8, tp, policy)) == held


def test_padded_heads_cost():
    """40 heads on 24 ranks are two heads a rank: 48/40 of the query weights."""
    model = tm.model("llama-2-13b")
    padded, even = (shard(model, tm.Mapping(tp=24), "bf16", "decode", policy) for policy in ("multi-head", "even"))
    attention = 40 * 4 * 5120 * 5120 * 2  # 40 layers of q, k, v, o in BF16
    extra = 24 * (float(padded.read_bytes) - float(even.read_bytes))
    norms = 23 * (2 * 40 + 1) * 5120 * 2  # norms are whole on every rank
    assert extra == pytest.approx(attention * (48 / 40 - 1) + norms, rel=1e-9)


def test_latent_is_whole_on_every_rank():
    """576 elements a token and layer, 61 layers, whatever TP is."""
    found = shard(tm.model("deepseek-v3"), tm.Mapping(tp=[1, 8, 64]), "bf16", "decode", "replicate")
    per_token = sum(core.cache_bytes_per_token * share for core, share, _ in found.cores)
    assert np.broadcast_to(per_token, 3).tolist() == [61 * 576 * 2] * 3


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("policy", ["even", "multi-head", "replicate"])
def test_one_rank_holds_the_model(name, policy):
    found = shard(tm.model(name), tm.Mapping(), "bf16", "decode", policy)
    assert float(found.weight_bytes) == pytest.approx(tm.model(name).weight_bytes("bf16"), rel=1e-12)


@given(st.sampled_from(DENSE), st.integers(0, 6), st.sampled_from(["even", "multi-head"]), st.sampled_from([1, 2, 4]))
@settings(max_examples=40)
def test_more_ranks_never_hold_more_weights(name, power, policy, ep):
    model = tm.model(name)
    few, many = (shard(model, tm.Mapping(tp=2**p, ep=ep), "bf16", "decode", policy) for p in (power, power + 1))
    if policy == "even":
        assert float(many.weight_bytes) <= float(few.weight_bytes) * (1 + 1e-12)
    assert float(many.expert_read_bytes) <= float(few.expert_read_bytes) * (1 + 1e-12)
    assert float(many.weight_bytes) * 2 >= float(few.weight_bytes) * (1 - 1e-12)


def test_mapping_refuses():
    for wrong in (
        {"tp": 0},
        {"tp": 1.5},
        {"pp": "two"},
        {"lnc": 0},
        {"placement": ("tp", "pp")},
        {"dp": float("nan")},
        {"ep": -1},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tm.Mapping(**wrong)
    with pytest.raises(ValueError, match="kv_head_policy"):
        kv_heads_per_rank(8, 8, 1, "magic")


def test_placement_decides_the_link():
    """Four logical cores a Trn2 chip: TP 4 inside stays on the chip; outside of PP 16 it does not."""
    from trnmodel.workloads.site import site

    at = site("trn2.48xlarge")
    inner = at.group(tm.Mapping(tp=4, pp=16), "tp")
    outer = at.group(tm.Mapping(tp=4, pp=16, placement=("pp", "tp", "cp", "ep", "dp")), "tp")
    assert [float(x) for x in inner[:2]] == [4, 1]
    assert [float(x) for x in outer[:2]] == [1, 4]
