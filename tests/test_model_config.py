"""Configuration files: exact counts, names, and files that nobody should trust."""

import csv
import json
import os
from pathlib import Path

import pytest

from trnmodel.catalog.load import DATA
from trnmodel.workloads.architectures import ARCHITECTURES
from trnmodel.workloads.config import MAX_FILE_BYTES, defaults
from trnmodel.workloads.shipped import catalog
from trnmodel.workloads.transformer import model, models

GOLDEN = Path(__file__).parent / "golden" / "model_params.csv"
LLAMA = json.loads((DATA / "models" / "llama-3.1-8b.json").read_text())
DEEPSEEK = json.loads((DATA / "models" / "deepseek-v3.json").read_text())
GPT_OSS = json.loads((DATA / "models" / "gpt-oss-20b.json").read_text())
JAMBA = json.loads((DATA / "models" / "jamba-v0.1.json").read_text())
NEMOTRON = json.loads((DATA / "models" / "nemotron-h-8b.json").read_text())
NEXT = json.loads((DATA / "models" / "qwen3-next-80b-a3b.json").read_text())
SCOUT = json.loads((DATA / "models" / "llama-4-scout.json").read_text())


def golden():
    with GOLDEN.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def file(tmp_path):
    def write(content, name="config.json"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


@pytest.mark.parametrize("row", golden(), ids=lambda row: row["case"])
def test_parameters_to_the_last_digit(row, file):
    found = model(file(json.loads(row["config"]))) if row["config"] else model(row["case"])
    assert found.total_params == int(row["total_params"])


@pytest.mark.parametrize("name", [row.id for row in catalog().values() if row.published_params])
def test_counts_that_publishers_state(name):
    assert model(name).total_params == int(catalog()[name].published_params)


def test_every_architecture_is_counted_independently():
    families = {json.loads(row["config"])["model_type"] for row in golden() if row["config"]}
    assert set(ARCHITECTURES) - families == {"glm4v_moe_text"}  # its count is glm4_moe's
    assert set(ARCHITECTURES) == set(defaults())


def test_shipped_files_and_rows_belong_together():
    files = {path.name for path in (DATA / "models").glob("*.json")}
    assert files == {row.file for row in catalog().values()}
    for row in catalog().values():
        assert row.publisher, row.id
        assert row.source, row.id
        assert row.locator, row.id
    assert len(models()) == len(set(models())) == len(catalog())


def test_names():
    assert model("LLAMA-3.1-70B") is model("meta-llama/Llama-3.1-70B-Instruct") is model("llama-3.1-70b")
    assert model(model("llama-3.1-70b")) is model("llama-3.1-70b")
    with pytest.raises(ValueError, match=r"model='lama-3.1-70b' is unknown; nearest: .*llama-3.1-70b"):
        model("lama-3.1-70b")
    for wrong in (3, None, "", " ", b"llama", "a\0b"):
        with pytest.raises(ValueError, match="model="):
            model(wrong)


def test_paths(file, tmp_path):
    path = file(LLAMA)
    assert model(path).total_params == model(str(path)).total_params == model(tmp_path).total_params == 8_030_261_248
    with pytest.raises(ValueError, match=r"nothing.json: no such file"):
        model(tmp_path / "nothing.json")


def test_absent_and_null_keys(file):
    """Absent takes the architecture's default, null says there is none (an MHA model, a query without a low rank)."""
    without = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert model(file(without)).layers[0].attentions[0].kv_heads == 32
    assert model(file({**DEEPSEEK, "q_lora_rank": None})).layers[0].parts[0].name == "q"
    assert model(file({**LLAMA, "tie_word_embeddings": True})).total_params == 8_030_261_248 - 128_256 * 4096


def test_multimodal_files_give_their_language_model(file):
    text = {key: value for key, value in SCOUT.items() if key != "architectures"}
    nested = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": text}
    assert model(file(nested)).total_params == model("llama-4-scout").total_params
    # Gemma 3 4B leaves its heads and its vocabulary to the architecture; 3,880,263,168 by meta-device instantiation
    gemma = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    nested = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": gemma}
    assert model(file(nested)).total_params == 3_880_263_168


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": -4096}, "hidden_size=-4096.*whole numbers from 1"),
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"hidden_size": "4096"}, "hidden_size='4096'.*whole numbers"),
        ({"hidden_size": 4096.0}, "hidden_size=4096.0.*whole numbers"),
        ({"hidden_size": True}, "hidden_size=True.*whole numbers"),
        ({"hidden_size": [4096]}, "hidden_size="),
        ({"hidden_size": None}, "hidden_size=None: missing"),
        ({"hidden_size": 10**12}, "hidden_size=1000000000000.*to 4194304"),
        ({"vocab_size": 10**300}, "vocab_size=.*to 16777216"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers=1000000.*to 4096"),
        ({"num_attention_heads": 24}, "num_key_value_heads=8|hidden_size=4096.*multiple"),
        (
            {"num_attention_heads": 30, "num_key_value_heads": 30},
            "hidden_size=4096.*multiple of num_attention_heads=30",
        ),
        ({"num_key_value_heads": 5}, "num_key_value_heads=5.*divide num_attention_heads=32"),
        ({"num_key_value_heads": 64}, "num_key_value_heads=64.*divide"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings='false'.*true and false"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings=1"),
        ({"attention_bias": []}, "attention_bias="),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps=-1e-05.*positive"),
        ({"rope_theta": "big"}, "rope_theta='big'"),
        ({"max_position_embeddings": -1}, "max_position_embeddings=-1"),
        ({"n_embd": 2048}, r"hidden_size\|n_embd=.*disagree"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types=.*3 entries for 32 layers"),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types=.*full_attention"),
        ({"layer_types": "full_attention"}, "layer_types='full_attention'"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window=None: missing"),
        ({"model_type": "mixtral"}, r"architectures=\['LlamaForCausalLM'\].*contradicts model_type='mixtral'"),
        ({"architectures": ["LlamaForTokenMagic"]}, "architectures=.*allowed endings"),
        ({"architectures": "LlamaForCausalLM"}, "architectures='LlamaForCausalLM'.*list of up to 16 class names"),
        ({"architectures": [3]}, "architectures="),
        ({"model_type": 7}, "model_type=7"),
        ({"text_config": 5}, "text_config=5.*object"),
    ],
)
def test_wrong_values_are_named(change, words, file):
    with pytest.raises(ValueError, match=words):
        model(file({**LLAMA, **change}))


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        (DEEPSEEK, {"num_experts_per_tok": 300}, "num_experts_per_tok=300.*256 experts"),
        (DEEPSEEK, {"first_k_dense_replace": 62}, "first_k_dense_replace=62.*61 layers"),
        (DEEPSEEK, {"kv_lora_rank": None}, "kv_lora_rank=None: missing"),
        (DEEPSEEK, {"num_experts": 8}, "disagree"),
        (GPT_OSS, {"sliding_window": None}, "sliding_window=None: missing"),
        (GPT_OSS, {"layer_types": ["sliding"] * 24}, "layer_types="),
        (JAMBA, {"attn_layer_offset": 8}, "attn_layer_offset=8.*smaller than attn_layer_period=8"),
        (JAMBA, {"mamba_dt_rank": "automatic"}, "mamba_dt_rank='automatic'"),
        (NEMOTRON, {"hybrid_override_pattern": "MX*-"}, "hybrid_override_pattern='MX"),
        (NEMOTRON, {"hybrid_override_pattern": "M" * 7}, "7 entries for num_hidden_layers=52"),
        (NEMOTRON, {"hybrid_override_pattern": 5}, "hybrid_override_pattern=5"),
        (NEXT, {"linear_num_value_heads": 24}, "linear_num_value_heads=24.*multiple"),
        (NEXT, {"mlp_only_layers": [99]}, "mlp_only_layers=.*0 to 47"),
        (NEXT, {"mlp_only_layers": [True]}, "mlp_only_layers="),
        (SCOUT, {"no_rope_layers": [1, 2]}, "no_rope_layers=.*48 times 0 or 1"),
        (SCOUT, {"moe_layers": [-1]}, "moe_layers="),
    ],
)
def test_contradictions_are_named(base, change, words, file):
    with pytest.raises(ValueError, match=words):
        model(file({**base, **change}))


@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]
)
def test_a_shape_is_never_guessed(key, file):
    with pytest.raises(ValueError, match=f"{key}=None: missing"):
        model(file({name: value for name, value in LLAMA.items() if name != key}))


def test_an_unknown_architecture_is_refused_by_name(file):
    unknown = {"model_type": "rwkv9", "architectures": ["Rwkv9ForCausalLM"]}
    with pytest.raises(ValueError, match=r"rwkv9.*Rwkv9ForCausalLM.*not an architecture that trnmodel knows"):
        model(file({**LLAMA, **unknown}))
    with pytest.raises(ValueError, match=r"model_type=None.*not an architecture"):
        model(file({"hidden_size": 8}))
    nameless = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert model(file(nameless)).architecture == "llama"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a JSON text"),
        (b'{"hidden_size": 4096', "not a JSON text"),
        (b"\xff\xfe\x00", "not a JSON text"),
        (b"[1, 2]", "holds a JSON list"),
        (b"3", "holds a JSON int"),
        (b"null", "holds a JSON NoneType"),
        (b'{"hidden_size": NaN}', "NaN is not a number"),
        (b'{"hidden_size": -Infinity}', "-Infinity is not a number"),
        (b'{"model_type": "llama", "hidden_size": Infinity}', "hidden_size="),
        (b'{"model_type": "llama", "model_type": "llama"}', "model_type=.*more than once"),
        (b'{"model_type": "llama", "text_config": {"a": 1, "a": 2}}', "a=.*more than once"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "config.json"),
        (b'{"x": "' + b"y" * MAX_FILE_BYTES + b'"}', "allowed are up to 1048576 B"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_damaged_and_hostile_files_give_one_clear_error(content, words, file):
    with pytest.raises(ValueError, match=words) as caught:
        model(file(content))
    assert "config.json" in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match=r"no regular file"):
        model(tmp_path / "pipe.json")


def test_infinity_where_nobody_reads_it(file):
    """Published Mamba files print time_step_limit as [0.0, Infinity]."""
    content = json.dumps({**NEMOTRON, "time_step_limit": [0.0, float("inf")]}).encode()
    assert b"Infinity" in content
    assert model(file(content)).total_params == model("nemotron-h-8b").total_params
