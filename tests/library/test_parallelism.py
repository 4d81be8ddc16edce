"""Shards, KV heads, messages and validity of mappings."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.stacks import IDEAL
from trnmodel.fabric.groups import place
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.steps.mapping import kv_heads_per_rank, shard

GOLDEN = list(csv.DictReader((Path(__file__).parents[1] / "golden" / "communication.csv").read_text().splitlines()))
INFERENCE = [
    row for row in GOLDEN if row["model"] and not row["phase"].startswith("train no") and "full rec" not in row["phase"]
]
DENSE = ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mixtral-8x7b-v0.1", "gpt-oss-20b", "deepseek-v3"]


BF16 = load.precision("bf16")
DEGREES = {
    "TP=8": {"tp": 8},
    "PP=4": {"pp": 4},
    "PP=4 TP=8 SP": {"pp": 4, "tp": 8},
    "CP=8": {"cp": 8},
    "Ulysses=8": {"cp": 8},
}


def messages(row):
    """Messages of the step that a row of the golden file describes, on a stack that gathers its logits."""
    exchange = "ulysses" if row["parallelism"].startswith("Ulysses") else "ring"
    mapping = tm.Mapping(**DEGREES[row["parallelism"]])
    ask = {"mapping": mapping, "efficiencies": replace(IDEAL, logit_gathers=1.0, context_exchange=exchange)}
    if row["phase"].startswith("decode"):
        step = tm.decode_step(
            row["model"], tm.chip("b300"), batch=int(row["phase"].split("B=")[1]), context=8192, **ask
        )
    else:  # S = 131,072: 528,482,304 = 7/8 x S/8 x 144 x 128 x 2
        step = tm.prefill(
            row["model"], tm.chip("b300"), input_tokens=131072 if "cp" in DEGREES[row["parallelism"]] else 8192, **ask
        )
    return step.messages, mapping


def sent(message, mapping):
    """Bytes that a rank sends for all collectives of a message by a ring, or to a neighbour."""
    ranks = getattr(mapping, message.group)
    return float(busbw_factor(message.kind, ranks) * message.message_bytes * message.count)


def predicted(row):
    found, mapping = messages(row)
    named = {message.name: message for message in found}
    layers = tm.model(row["model"]).n_layers
    outputs, boundary, logits = (named.get(name) for name in ("row-parallel outputs", "stage boundary", "logits"))
    return {
        "all-reduce message (one)": lambda: outputs.message_bytes,
        "all-reduces per layer (fwd)": lambda: outputs.count / layers,
        "wire bytes sent per rank per layer, ring AR": lambda: sent(outputs, mapping) / layers,
        "wire bytes sent per rank, 80 layers": lambda: sent(outputs, mapping),
        "logits all-gather received per rank (bf16, last token only in prefill)": lambda: sent(logits, mapping),
        "p2p bytes per micro-batch per stage boundary": lambda: boundary.message_bytes,
        "p2p bytes per rank per micro-batch per boundary": lambda: boundary.message_bytes / 8,
        "bytes sent per rank per layer": lambda: sum(sent(m, mapping) for m in found if m.group == "cp") / layers,
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


def read_bytes(found, *kinds):
    """Bytes that a rank reads in a pass, of all terms or of some kinds."""
    return sum(float(held.term.read_bytes * held.stored) for held in found if not kinds or held.term.kind in kinds)


def test_padded_heads_cost():
    """40 heads on 24 ranks are two heads a rank: 48/40 of the query weights."""
    model = tm.model("llama-2-13b")
    padded, even = (shard(model, tm.Mapping(tp=24), BF16, "decode", policy) for policy in ("multi-head", "even"))
    attention = 40 * 4 * 5120 * 5120 * 2  # 40 layers of q, k, v, o in BF16
    extra = 24 * (read_bytes(padded) - read_bytes(even))
    norms = 23 * (2 * 40 + 1) * 5120 * 2  # norms are whole on every rank
    assert extra == pytest.approx(attention * (48 / 40 - 1) + norms, rel=1e-9)


def test_latent_is_whole_on_every_rank():
    """576 elements a token and layer, 61 layers, whatever TP is."""
    found = shard(tm.model("deepseek-v3"), tm.Mapping(tp=[1, 8, 64]), BF16, "decode", "replicate")
    per_token = sum(held.term.cached_bytes * held.stored for held in found if held.term.attention)
    assert np.broadcast_to(per_token, 3).tolist() == [61 * 576 * 2] * 3


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("policy", ["even", "multi-head", "replicate"])
def test_one_rank_holds_the_model(name, policy):
    found = shard(tm.model(name), tm.Mapping(), BF16, "decode", policy)
    assert sum(float(held.term.stored_bytes * held.stored) for held in found) == pytest.approx(
        tm.model(name).weight_bytes("bf16"), rel=1e-12
    )


@given(st.sampled_from(DENSE), st.integers(0, 6), st.sampled_from(["even", "multi-head"]), st.sampled_from([1, 2, 4]))
@settings(max_examples=40)
def test_more_ranks_never_hold_more_weights(name, power, policy, ep):
    model = tm.model(name)
    few, many = (shard(model, tm.Mapping(tp=2**p, ep=ep), BF16, "decode", policy) for p in (power, power + 1))
    stored = [sum(float(held.term.stored_bytes * held.stored) for held in found) for found in (few, many)]
    if policy == "even":
        assert stored[1] <= stored[0] * (1 + 1e-12)
    assert read_bytes(many, "experts") <= read_bytes(few, "experts") * (1 + 1e-12)
    assert stored[1] * 2 >= stored[0] * (1 - 1e-12)


def test_mapping_refuses():
    for wrong in (
        {"tp": 0},
        {"tp": 1.5},
        {"pp": 2.5},
        {"pp": "two"},
        {"lnc": 0},
        {"placement": ("tp", "pp")},
        {"dp": float("nan")},
        {"ep": -1},
    ):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}="):
            tm.Mapping(**wrong)
    with pytest.raises(ValueError, match="kv_head_policy"):
        kv_heads_per_rank(8, 8, 1, "magic")


def test_placement_decides_the_link():
    """Four logical cores a Trn2 chip: TP 4 inside stays on the chip; outside of PP 16 it does not."""
    orders = ("tp", "cp", "ep", "pp", "dp"), ("pp", "tp", "cp", "ep", "dp")
    strides = [tm.Mapping(tp=4, pp=16, placement=order).extent("tp")[0] for order in orders]
    inner, outer = (place(tm.system("trn2.48xlarge"), np.asarray(4.0), stride) for stride in strides)
    assert (float(inner.local), float(inner.chips)) == (4, 1)
    assert (float(outer.local), float(outer.chips)) == (1, 4)
