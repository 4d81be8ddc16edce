"""Models: goldens of two independent origins, identities between figures, arrays and scalars alike."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnmodel as tm
from trnmodel.catalog.load import precision
from trnmodel.models.backward import _elements
from trnmodel.models.blocks import Attention, Part, gated_delta, grouped_attention, mamba, mamba2
from trnmodel.models.config import Fields
from trnmodel.models.describe import by_place
from trnmodel.models.families import qk_norm_params
from trnmodel.models.sparse import _indexers
from trnmodel.models.transformer import model, model_ids

GOLDEN = Path(__file__).parents[1] / "golden"
SAMPLE = (
    "llama-3.1-8b",
    "gpt-oss-120b",
    "deepseek-v3",
    "llama-4-maverick",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "jamba-v0.1",
    "nemotron-h-56b",
    "opt-13b",
    "gpt3-175b",
)
FORMATS = {"bf16": "bf16", "fp8_linear": "fp8", "mxfp8_linear": "mxfp8", "mxfp4_linear": "mxfp4"}
KV = {"bf16": "", "fp8": "-kvfp8"}
# chip: peaks by compute dtype and HBM rate, as printed in roofline.csv and in the inputs of workload.csv
PEAKS = {
    "trn1": ({"bf16": 210e12}, 820e9),
    "trn2": ({"bf16": 667e12, "fp8": 1299e12}, 2900e9),
    "trn3": ({"bf16": 671e12, "mxfp8": 2517e12}, 4900e9),
}
CASE = re.compile(
    r"(?P<model>\S+) (?P<chip>trn\d)x(?P<n>\d+) (?P<phase>\w+) B=(?P<batch>\d+) S/C=(?P<length>\d+) "
    r"W=(?P<weights>\w+) KV=(?P<kv>\w+) compute=(?P<compute>\w+)"
)


IDEAL_TIME = ("RL_", "RB_", "RI_")


def rows(name):
    with (GOLDEN / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def step(name, phase, batch, length, chosen):
    if phase == "prefill":
        return model(name).operators("prefill", batch=batch, tokens=length, precision=chosen, logits="last")
    return model(name).operators("decode", batch=batch, past=length - 1, precision=chosen)


def total(operators, field):
    return sum(getattr(operator, field) for operator in operators)


def moved(operators):
    return sum(total(operators, field) for field in ("weight_bytes", "cache_read_bytes", "cache_write_bytes"))


FIGURES = {
    "P": lambda m: m.total_params,
    "PB": lambda m: m.active_params(input_embedding=False),
    "PA": lambda m: m.active_params(),
    "F_full": lambda m: m.prefill_flop(2048, attention="full", logits="all"),
    "F_caus": lambda m: m.prefill_flop(2048),
    "F_c32k": lambda m: m.prefill_flop(32768),
    "F_dec": lambda m: m.decode_flop(8192),
    "F_train": lambda m: m.train_flop(2048),
    "KV1": lambda m: m.kv_bytes_per_token("bf16"),
    "KVC": lambda m: m.kv_bytes(32768, "bf16"),
    "W64": lambda m: m.weight_bytes_read(64, "bf16"),
    "WB": lambda m: m.weight_bytes("fp8", prediction=True),
    "CH1": lambda m: m.prefill_flop(2048, past=6144, logits="none") - linear_flop(m, 2048),
}


def linear_flop(m, tokens):
    """Work of single tokens less what each spends on attending to itself, 4 FLOP per head dimension and layer."""
    itself = sum(layer.count * a.flop_per_pair(False) for layer in m.layers for a in layer.attentions)
    return tokens * (m.prefill_flop(1, logits="none") - itself)


def figure(row):
    prefix = re.match(r"(F_[a-z0-9]+|KV1|KVC|W64|WB|CH1|PA|PB|P)", row["id"])[1]
    name = re.match(r"\S+", row["inputs"])[0] if prefix != "WB" else "deepseek-v3"
    return FIGURES[prefix](model(name))


@pytest.mark.parametrize(
    "row", [r for r in rows("workload.csv") if r["id"][:3] not in ("RL_", "RB_", "RI_")], ids=lambda r: r["id"]
)
def test_golden_workload(row):
    expected, tolerance = float(row["expected"]), float(row["rel_tol"])
    # an expectation over random routing is printed to the byte, so half a byte is its rounding
    assert figure(row) == pytest.approx(expected, rel=tolerance, abs=0.5 if row["id"].startswith("W64") else 0)


@pytest.mark.parametrize(
    "row", [r for r in rows("workload.csv") if r["id"][:3] in ("RL_", "RB_", "RI_")], ids=lambda r: r["id"]
)
def test_golden_ideal_times(row):
    case = CASE.match(row["inputs"]).groupdict()
    chosen = FORMATS[case["weights"]] + KV[case["kv"]]
    operators = step(case["model"], case["phase"], int(case["batch"]), int(case["length"]), chosen)
    flop, moved_bytes = total(operators, "flop"), moved(operators)
    peaks, bandwidth = PEAKS[case["chip"]]
    compute_s, memory_s = (w / int(case["n"]) for w in (flop / peaks[case["compute"]], moved_bytes / bandwidth))
    if row["id"].startswith("RB"):
        assert ("compute" if compute_s > memory_s else "memory") == row["expected"]
    else:
        value = flop / moved_bytes if row["id"].startswith("RI") else 1e3 * max(compute_s, memory_s)
        assert value == pytest.approx(float(row["expected"]), rel=float(row["rel_tol"]))


@pytest.mark.parametrize("row", rows("roofline.csv"), ids=lambda r: r["case"])
def test_golden_roofline_columns(row):
    chosen = FORMATS[row["weight_format"]] + KV[row["kv_dtype"]]
    batch, length = int(row["batch"]), int(row["seq_or_context"])
    operators = step(row["model"], row["phase"], batch, length, chosen)
    attention = sum(operator.flop for operator in operators if operator.attention)
    found = {
        "attention_flops": attention,
        "linear_flops": total(operators, "flop") - attention,
        "total_flops": total(operators, "flop"),
        "weight_bytes": total(operators, "weight_bytes"),
        "kv_read_bytes": total(operators, "cache_read_bytes"),
        "kv_write_bytes": total(operators, "cache_write_bytes"),
        "total_bytes": moved(operators),
    }
    for column, value in found.items():
        assert value == pytest.approx(float(row[column]), rel=1e-12, abs=0), column
    m = model(row["model"])
    resident = m.weight_bytes(chosen) + batch * m.kv_bytes(length, precision(chosen).kv)
    assert resident == pytest.approx(float(row["hbm_resident_bytes_weights_plus_kv"]), rel=1e-12)


def test_deepseek_checkpoint_to_the_byte():
    """Golden WB: 688,574,839,360 B with the prediction layer; FP32 scales of 128 x 128 blocks and router biases aside.

    Blocks of a layer's attention: 56x12 + 12x192 + 56x5 + 4x256 + 128x56 = 11,448, in 62 layers; of a dense block
    3 x 56x144, in 3 layers; of an expert 3 x 56x16, 257 of them in 59 layers. Biases: 59 x 256.
    """
    scales = 62 * 11_448 + 3 * 3 * 56 * 144 + 59 * 257 * 3 * 56 * 16
    stored = model("deepseek-v3").weight_bytes("fp8", prediction=True)
    assert stored + 4 * (scales + 59 * 256) == 688_574_839_360


def test_experts_alone_in_four_bits():
    """gpt-oss-120b: 36 x 128 experts of 2880 x (5760 + 2880) weights at 4.25 bits, all other numbers at 16."""
    experts = 36 * 128 * 2880 * (5760 + 2880)
    assert model("gpt-oss-120b").weight_bytes("mxfp4-moe") == experts * 4.25 / 8 + (116_829_156_672 - experts) * 2


@pytest.mark.parametrize("name", model_ids())
def test_operators_add_up(name):
    m = model(name)
    parts = m.operators("prefill", batch=3, tokens=100, past=20, precision="fp8", logits="last")
    assert total(parts, "flop") == pytest.approx(3 * m.prefill_flop(100, past=20), rel=1e-12)
    if m.generates:
        parts = m.operators("decode", batch=5, past=999, source=64, precision="fp8-kvfp8", expert_read="all")
        assert total(parts, "flop") == pytest.approx(5 * m.decode_flop(1000, source=64), rel=1e-12)
        assert total(parts, "weight_bytes") == pytest.approx(m.weight_bytes_read(5, "fp8", "all"), rel=1e-12)
        cache = sum(o.cache_read_bytes for o in parts if o.attention)
        assert cache == pytest.approx(5 * m.kv_bytes(1000, "fp8", source=64), rel=1e-12)
    assert sum(layer.params for layer in m.layers) + sum(part.params for part in m.outer) == m.total_params
    assert m.active_params(input_embedding=False) <= m.active_params() <= m.total_params
    assert all(operator.flop >= 0 and operator.weight_bytes >= 0 for operator in parts)


@pytest.mark.parametrize("name", SAMPLE)
def test_arrays_equal_scalars(name):
    m = model(name)
    lengths = np.array([1, 7, 128, 129, 4096, 8192, 8193, 100_000])
    for call in (
        lambda n: m.prefill_flop(n, past=3),
        m.decode_flop,
        m.train_flop,
        m.kv_bytes,
        lambda n: m.weight_bytes_read(n, "mxfp4"),
    ):
        assert np.array_equal(call(lengths), [call(int(n)) for n in lengths])
    grid = m.prefill_flop(lengths[:, None], past=lengths[None, :])
    assert grid.shape == (8, 8)
    assert grid[2, 3] == m.prefill_flop(lengths[2], past=lengths[3])


@pytest.mark.parametrize("name", SAMPLE)
@settings(max_examples=25)
@given(first=st.integers(1, 20_000), second=st.integers(1, 20_000))
def test_chunks_add_up_to_the_whole(name, first, second):
    m = model(name)
    whole = m.prefill_flop(first + second, logits="none")
    chunks = m.prefill_flop(first, logits="none") + m.prefill_flop(second, past=first, logits="none")
    assert chunks == pytest.approx(whole, rel=1e-12)
    assert m.prefill_flop(first) <= m.prefill_flop(first + second)
    assert m.prefill_flop(first) <= m.prefill_flop(first, attention="full")


@pytest.mark.parametrize("name", [name for name in SAMPLE if name != "deepseek-v3"])
@settings(max_examples=25)
@given(context=st.integers(1, 200_000), draft=st.integers(1, 8))
def test_a_decode_step_is_the_last_token_of_a_prefill(name, context, draft):
    """Latent attention differs by design: absorbed in decode, expanded in prefill."""
    m = model(name)
    assert m.decode_flop(context) == pytest.approx(m.prefill_flop(1, past=context - 1), rel=1e-12)
    verified = m.decode_flop(context + draft, tokens=draft)
    assert verified == pytest.approx(m.prefill_flop(draft, past=context, logits="all"), rel=1e-12)
    assert m.decode_flop(context) <= m.decode_flop(context + 1) or "chunked" in m.layers[0].name
    assert m.kv_bytes(context) <= m.kv_bytes(context + 1) or "chunked" in m.layers[0].name


def test_absorbed_latent_attention_by_hand():
    """Heads x 2 x (576 + 512) a cached token and layer absorbed, heads x 2 x (192 + 128) expanded."""
    m = model("deepseek-v3")
    assert m.decode_flop(2001) - m.decode_flop(2000) == 61 * 128 * 2 * (576 + 512)
    prefill = [m.prefill_flop(1, past=past) for past in (2000, 1999)]
    assert prefill[0] - prefill[1] == 61 * 128 * 2 * (192 + 128)
    assert m.kv_bytes_per_token("fp8") == 61 * 576


def test_windows_by_hand():
    """Mistral 7B v0.1: window 4096, 8 KV heads of 128, 32 layers; beyond the window nothing grows."""
    m = model("mistral-7b-v0.1")
    assert m.kv_bytes(4096) == m.kv_bytes(1_000_000) == 4096 * 32 * 2 * 8 * 128 * 2
    assert m.decode_flop(4096) == m.decode_flop(9999)
    assert model("mistral-7b-v0.2").decode_flop(9999) > m.decode_flop(9999)
    # 1 + 2 + ... + 4096, then 4096 for each of 1000 more; 4 FLOP per pair and head dimension
    pairs = 4096 * 4097 // 2 + 1000 * 4096
    core = m.prefill_flop(5096, logits="none") - 5096 * (m.prefill_flop(1, logits="none") - 32 * 32 * 4 * 128)
    assert core == pairs * 32 * 32 * 4 * 128


def test_chunks_of_llama4_by_hand():
    """Chunks of 8192: token 8193 sees itself alone in 36 layers, all in 12; 8 KV heads of 128."""
    m = model("llama-4-scout")
    assert m.kv_bytes(8193) == 2 * 8 * 128 * 2 * (36 * 8192 + 12 * 8193)  # the full chunk was needed before
    assert m.kv_bytes(8192) == 2 * 8 * 128 * 2 * 48 * 8192


def test_recurrent_state_by_hand():
    """Qwen3-Next: 36 layers, 32 value heads of 128 x 128; tail of 3 over 2 x 16 x 128 + 32 x 128 channels."""
    m = model("qwen3-next-80b-a3b")
    assert m.state_bytes("fp32", "bf16") == 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert m.kv_bytes(1000) == 12 * 2 * 2 * 256 * 2 * 1000
    assert model("llama-3.1-8b").state_bytes() == 0


def test_states_of_mamba_2_by_hand():
    """Nemotron-H: 24 layers of 128 heads of 64 x 128; tail of 3 over 128 x 64 + 2 x 8 x 128 channels."""
    assert model("nemotron-h-8b").state_bytes("fp32", "bf16") == 24 * (128 * 64 * 128 * 4 + 3 * (8192 + 2048) * 2)


def test_parameters_stand_where_they_work():
    """Jamba: 4 layers of attention, whose parts are no part of the 28 that recur; two norms a layer and one more."""
    m = model("jamba-v0.1")
    held = by_place(m)
    assert held["attention"] == (4 * (2 * 4096 * 4096 + 2 * 4096 * 1024),) * 2
    assert held["norms"] == (65 * 4096,) * 2
    assert held["routed experts"] == (16 * 16 * 3 * 4096 * 14336, 16 * 2 * 3 * 4096 * 14336)
    assert sum(stored for stored, _ in held.values()) == m.total_params


def test_recurrent_states_count_their_layers_by_hand():
    """Jamba: 28 of 32 layers are Mamba of 2 x 4096 channels with 16 states each; the tail holds 3 of 4 tokens."""
    m = model("jamba-v0.1")
    one = 8192 * 16 * 4 + 8192 * 3 * 2
    assert m.state_bytes("fp32", "bf16") == 28 * one
    scans = [operator for operator in m.operators("decode", batch=5, past=99) if "scan" in operator.name]
    assert total(scans, "cache_read_bytes") == total(scans, "cache_write_bytes") == 5 * 28 * one
    # h = a h + b x and y = c h: two multiply-accumulates for each of the 8192 x 16 elements
    assert total(scans, "flop") == 5 * 28 * 2 * 2 * 8192 * 16
    loose = sum(layer.count * part.extra for layer in m.layers for part in layer.parts if part.name == "state")
    assert loose == 28 * (8192 * 16 + 8192)  # A and D
    held = tm.memory_fit(m, "trn2-ultraserver", tm.Mapping(tp=1), batch=3, context=1000, efficiencies="ideal")
    cache = held.cache_bytes - 3 * m.kv_bytes(1000)
    assert cache == pytest.approx(3 * m.state_bytes("fp32", "bf16"), rel=1e-9)


def test_logits_of_a_prefill_are_those_of_the_last_token_unless_asked():
    """Llama 3.1 8B: the head is 4096 x 128,256; `prefill_flop` has one row by default, operators have all."""
    m = model("llama-3.1-8b")
    row = 2 * 4096 * 128_256
    none, default, every = m.prefill_flop(10, logits="none"), m.prefill_flop(10), m.prefill_flop(10, logits="all")
    assert (default - none, every - none) == (row, 10 * row)
    assert total(m.operators("prefill", tokens=10), "flop") == every
    assert total(m.operators("prefill", tokens=10, logits="last"), "flop") == default


def test_pairs_of_long_sequences_are_not_lost_to_rounding():
    """One token after 10^12: it sees all of them, its window of 4096, or what its chunk of 8192 holds."""
    past = 10**12
    one = {name: model(name).prefill_flop(1, past=[past, 0], logits="none") for name in SAMPLE[:5]}
    assert one["llama-3.1-8b"][0] - one["llama-3.1-8b"][1] == 4 * 32 * 32 * 128 * past
    mistral = model("mistral-7b-v0.1").prefill_flop(1, past=[past, 0], logits="none")
    assert mistral[0] - mistral[1] == 4 * 32 * 32 * 128 * (4096 - 1)
    assert one["llama-4-maverick"][0] - one["llama-4-maverick"][1] == 4 * 40 * 128 * (12 * past + 36 * (past % 8192))


def test_expert_reads():
    """DeepSeek-V3: 58 layers of 256 experts, 8 a token, each 3 x 7168 x 2048 weights."""
    m = model("deepseek-v3")
    expert = 58 * 3 * 7168 * 2048
    reads = {
        policy: m.weight_bytes_read(np.array([1, 1e6]), "fp8", policy) for policy in ("distinct", "all", "per_token")
    }
    assert reads["distinct"][0] == pytest.approx(reads["per_token"][0], rel=1e-12)
    assert reads["all"][0] - reads["distinct"][0] == pytest.approx(expert * (256 - 8), rel=1e-12)
    assert reads["all"][1] == pytest.approx(reads["distinct"][1], rel=1e-12)
    batches = m.weight_bytes_read(np.arange(1, 500), "fp8")
    assert np.all(np.diff(batches) > 0)


def test_an_encoder_decoder():
    """T5-3B: 24 + 24 layers, 32 heads of 128, d_model 1024; cross keys and values are made once, of the source."""
    m = model("t5-3b")
    assert m.reads_source
    assert m.kv_bytes_per_token() == 24 * 2 * 32 * 128 * 2
    assert m.kv_bytes(10, source=100) == 24 * 2 * 32 * 128 * 2 * 110
    cross = m.decode_flop(10, source=101) - m.decode_flop(10, source=100)
    assert cross == 24 * 32 * 2 * (128 + 128)
    with pytest.raises(ValueError, match="one sequence length"):
        m.train_flop(512)


def test_an_encoder_has_no_decode_step():
    m = model("bert-large-uncased")
    assert not m.generates
    assert m.prefill_flop(128, attention="causal") == m.prefill_flop(128, attention="full")
    with pytest.raises(ValueError, match="no decode step"):
        m.decode_flop(128)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.prefill_flop(-1), "tokens=-1"),
        (lambda m: m.prefill_flop(float("nan")), "tokens=nan"),
        (lambda m: m.prefill_flop("12"), "tokens='12'"),
        (lambda m: m.prefill_flop(8, past=np.inf), "past=inf"),
        (lambda m: m.prefill_flop(8, attention="sparse"), "attention='sparse'.*causal"),
        (lambda m: m.prefill_flop(8, logits="first"), "logits='first'.*last"),
        (lambda m: m.decode_flop(0), "context=0"),
        (lambda m: m.decode_flop([5, True]), None),
        (lambda m: m.decode_flop(3, tokens=4), "context=3"),
        (lambda m: m.kv_bytes(8, "bf17"), "dtype='bf17'.*bf16"),
        (lambda m: m.weight_bytes("fp7"), "precision='fp7'.*fp8"),
        (lambda m: m.weight_bytes_read(8, expert_read="some"), "expert_read='some'.*distinct"),
        (lambda m: m.weight_bytes_read(8, phase="train"), "phase='train'.*decode"),
        (lambda m: m.operators("train"), "phase='train'.*prefill"),
        (lambda m: m.prefill_flop([1, 2], past=[1, 2, 3]), r"past of shape \(3,\) does not fit tokens of shape \(2,\)"),
        (lambda m: m.decode_flop([8, 9], source=[1, 2, 3]), "source of shape.*does not fit context"),
        (lambda m: m.kv_bytes([8, 9], source=[1, 2, 3]), r"source of shape \(3,\)"),
        (lambda m: m.operators("decode", batch=[1, 2], past=[1, 2, 3]), "past of shape.*does not fit batch"),
        (lambda m: m.prefill_flop(10**400), "tokens=1000.*allowed are numbers"),
        (lambda m: m.train_flop(-1), "seq=-1"),
        (lambda m: m.train_flop(8, "half"), "attention='half'"),
        (lambda m: m.active_params("yes"), "input_embedding='yes'.*True and False"),
        (lambda m: m.weight_bytes("bf16", 1), "prediction=1.*True and False"),
        (lambda m: m.weight_bytes([]), r"precision=\[\]"),
        (lambda m: m.kv_bytes(8, ["bf16"]), r"dtype=\['bf16'\]"),
        (lambda m: m.kv_bytes_per_token(None), "dtype=None"),
        (lambda m: m.state_bytes("fp32", "fp31"), "conv_dtype='fp31'"),
        (lambda m: m.weight_bytes_read(8, phase=""), "phase=''"),
        (lambda m: m.operators(["decode"]), r"phase=\['decode'\]"),
        (lambda m: m.operators("decode", logits={}), r"logits=\{\}"),
        (lambda m: replace(m, id=7), "id=7"),
        (lambda m: replace(m, hidden_size=0), "hidden_size=0"),
        (lambda m: replace(m, layers=None), "layers=None"),
        (lambda m: replace(m, outer=m.layers), "outer=.*tuple of Part"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    if words is None:
        call(model("llama-3.1-8b"))
        return
    with pytest.raises(ValueError, match=words):
        call(model("llama-3.1-8b"))


def test_a_million_contexts_in_one_call():
    contexts = np.arange(1, 1_000_001)
    flop = model("gpt-oss-120b").decode_flop(contexts)
    assert flop.shape == contexts.shape
    assert flop[8191] == 12_715_868_160  # golden F_dec_gpt-oss-120b


def test_attention_of_many_heads_by_hand():
    """5 query heads and 2 of keys, 3 wide, values 7 wide, in a width of 11; keys alone where they are the values."""
    attention = Attention(kind="causal", heads=5, kv_heads=2, qk_dim=3, v_dim=7)
    parts = {"q": 11 * 15, "kv": 11 * 2 * 10, "o": 35 * 11}
    found = grouped_attention(11, attention)
    assert {part.name: part.params for part in found.parts} == parts
    alike = grouped_attention(11, attention, qkv_bias=True, out_bias=True, loose=13, gated=True, value_is_key=True)
    assert {part.name: part.params for part in alike.parts} == {
        "q": 11 * 15 + 15 + 13, "kv": 11 * 6 + 6, "o": 35 * 11 + 11, "gate": 11 * 35 + 35,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("part", "added"),
    [
        (Part(name="up", group="ffn", rows=3, cols=5, shard="columns"), 5),
        (Part(name="down", group="ffn", rows=3, cols=5, shard="rows"), 3),
        (Part(name="down", group="ffn", rows=3, cols=5, shard="columns"), 5),
        (Part(name="down", group="experts", rows=3, cols=5, active=7), 21),
        (Part(name="up", group="experts", rows=3, cols=5, active=7), 35),
        (Part(name="norm", group="norm", extra=9), 0),
    ],
)
def test_what_a_part_leaves_for_the_way_back(part, added):
    assert _elements(part) == added


@pytest.mark.parametrize(
    ("mixer", "heads", "state", "tail"),
    [
        # inner 7, state 5, a convolution of 4 taps keeps 3 inputs
        (mamba(11, 7, 5, 2, 4, True, False), 7, 35, 21),
        # 3 heads of 7; 2 groups of 5 twice beside: 21 + 20 channels
        (mamba2(11, 3, 7, 2, 5, 4, True, False), 3, 105, 123),
        # 2 heads of keys of 5, 6 of values of 7: 20 + 42 channels
        (gated_delta(11, 2, 5, 6, 7, 4), 6, 210, 186),
    ],
    ids=["mamba", "mamba2", "gated delta"],
)
def test_states_that_a_recurrence_keeps(mixer, heads, state, tail):
    kept = mixer.recurrence
    assert (kept.heads, kept.state_elements, kept.conv_elements) == (heads, state, tail)


def test_sinks_and_norms_of_queries_and_keys_by_hand():
    """5 heads, 2 of keys, 3 wide; GPT-OSS has a sink for each of its 64 heads in its 24 or 36 layers."""
    found = {kind: qk_norm_params(kind, 5, 2, 3) for kind in ("", "head", "layer", "heads", "width")}
    assert found == {"": 0, "head": 6, "layer": 12, "heads": 21, "width": 21}
    for name, layers in (("gpt-oss-20b", 24), ("gpt-oss-120b", 36)):
        parts = [(part, layer.count) for layer in model(name).layers for part in layer.parts if part.name == "q"]
        assert sum(count for _, count in parts) == layers
        assert {part.extra for part, _ in parts} == {64 * 64 + 64}  # a bias of 64 heads of 64, and the sinks


@pytest.mark.parametrize(
    ("values", "full"),
    [
        ({}, range(10)),
        ({"index_topk_freq": 3}, (0, 1, 4, 7)),  # the first two, then every third
        ({"index_topk_freq": 3, "index_skip_topk_offset": 4}, (0, 1, 2, 3, 6, 9)),
        ({"index_topk_freq": 2, "index_skip_topk_offset": 0}, (1, 3, 5, 7, 9)),
        ({"indexer_types": ["shared"] * 9 + ["full"]}, (9,)),
    ],
)
def test_layers_with_an_indexer_of_their_own(values, full):
    found = _indexers(Fields(values, "here", "deepseek_v32"), 10)
    assert [place for place, kind in enumerate(found) if kind == "full"] == list(full)


def test_a_decoder_that_reads_nothing_keeps_its_own_tokens_alone():
    """A token that is written and one that is read leave keys and values of the same heads."""
    t5 = model("flan-t5-small")
    own = t5.kv_bytes(5)
    assert own == t5.kv_bytes(5, "bf16", 0) > 0
    assert t5.kv_bytes(0, "bf16", 5) == own
