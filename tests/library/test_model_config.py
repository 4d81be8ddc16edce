"""Configuration files: exact counts, names, and files that nobody should trust."""

import csv
import json
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest

from trnmodel.catalog.load import DATA
from trnmodel.catalog.untrusted import printed
from trnmodel.models.architectures import ARCHITECTURES
from trnmodel.models.config import MAX_FILE_BYTES, Fields, _parted, defaults
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import model, model_ids

GOLDEN = Path(__file__).parents[1] / "golden" / "model_params.csv"
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
    assert len(model_ids()) == len(set(model_ids())) == len(catalog())


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
    with pytest.raises(ValueError, match=r"model_type='rwkv9': not an architecture that trnmodel knows"):
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
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", "hidden_size=inf.*whole numbers"),
        (b'{"model_type": "llama", "hidden_size": -' + b"9" * 400 + b"}", "hidden_size=-9999.*whole numbers"),
        (b'{"model_type": "llama", "hidden_size": 1e999}', "hidden_size=inf"),
        (b'{"model_type": "llama", "hidden_size": 4096, "n_embd": ' + b"[" * 25 + b"]" * 25 + b"}", "disagree"),
        (b"[" * 33 + b"]" * 33, "nested too deeply.*32 levels"),
        (b'{"a": "' + b"[" * 33 + b'"}', "not an architecture"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"text_config": {"model_type": "llama", "hidden_size": 0}}', "text_config: hidden_size=0"),
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


def test_what_is_no_readable_file_is_refused(tmp_path):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "sub").mkdir()
    os.mkfifo(tmp_path / "sub" / "config.json")
    with (tmp_path / "sparse.json").open("wb") as stream:
        stream.truncate(10**12)
    for name, words in {
        "folder.json": "no such file",
        "loop.json": "symbolic links",
        "nowhere.json": "no such file",
        "sub": "no regular file",
        "sparse.json": "the file is 1000000000000 B",
        f"{'n' * 300}.json": "too long",
        "a\0b.json": "null byte",
        "\ud800.json": "surrogates",
    }.items():
        with pytest.raises(ValueError, match=words) as caught:
            model(tmp_path / name)
        assert len(str(caught.value)) < 500
    for device in ("/dev/zero", "/dev/stdin", "/dev/null"):
        with pytest.raises(ValueError, match=f"{device}: no regular file"):
            model(Path(device))
    for name in ("n" * 5000, "\ud800", "a\0b"):
        with pytest.raises(ValueError, match=r"model=.*is unknown; nearest"):
            model(name)


@pytest.mark.parametrize(
    ("folder", "model_id"),
    [
        ("<img src=x onerror=alert(1)>", "-img-src-x-onerror-alert-1--"),
        ("my.model_1-5B", "my.model_1-5B"),
        ("n" * 200, "n" * 60),
        ("modèle\n\x1b[31m", "mod-le---31m"),
        ("llama-3.1", "llama-3.1"),
    ],
)
def test_the_id_of_a_file_is_a_plain_slug(folder, model_id, tmp_path, monkeypatch):
    home = tmp_path / folder
    home.mkdir()
    (home / "config.json").write_text(json.dumps(LLAMA))
    (home / "own.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(home)
    found = {model(where).id for where in (home, home / "config.json", str(home), "config.json", ".")}
    assert found == {model_id}
    assert model("own.json").id == "own"


@pytest.mark.parametrize(
    "content",
    [
        f'{{"architectures": ["{"a" * (MAX_FILE_BYTES - 100)}"]}}',
        f'{{"architectures": ["{"For" * (MAX_FILE_BYTES // 3 - 100)}"]}}',
        "{" + ",".join(f'"{i}":1' for i in range(85_000)) + ',"7":2}',
        '{"a": [' + "{}," * 300_000 + "{}]}",
        "[" * MAX_FILE_BYTES,
        '"' * MAX_FILE_BYTES,
        '"' + "\\" * (MAX_FILE_BYTES - 1),
        '{"hidden_size": ' + "9" * (MAX_FILE_BYTES - 100) + "}",
        json.dumps({**LLAMA, "layer_types": ["full_attention"] * 50_000}),
        json.dumps({**NEMOTRON, "hybrid_override_pattern": "M" * 1_000_000}),
        json.dumps({**LLAMA, "model_type": "l" * 1_000_000}),
    ],
    ids=["class", "tasks", "keys", "objects", "deep", "quotes", "backslashes", "digits", "layers", "pattern", "type"],
)
def test_time_grows_with_the_size_of_a_file_and_not_with_its_square(content, file):
    """A class name of 96 kB took 14 s, so that one of 1 MiB would take half an hour."""
    assert len(content) <= MAX_FILE_BYTES
    with pytest.raises(ValueError, match=r"config\.json"):
        model(file(content.encode()))


HOSTILE = (
    *(None, True, False, -1, 0, 1, 2, 7, 2**22, 2**22 + 1, 2**63, 10**30, 10**400, 0.5, 1e308, float("inf")),
    *("", "x", "4096", "auto", "<img src=x onerror=alert(1)>", "x" * 10_000, "M" * 5000),
    *([], [0], [1], [-1], [True], [[]], [{}], [None] * 5, ["full_attention"] * 3, ["linear_attention"] * 10_000),
    *({}, {"a": 1}, {"a": [{"b": [1, {"c": 2}]}]}),
)
OPTIONAL = (
    *("architectures", "model_type", "text_config", "head_dim", "layer_types", "sliding_window", "rope_theta"),
    *("num_nextn_predict_layers", "mlp_only_layers", "moe_layers", "no_rope_layers", "q_lora_rank", "id2label"),
)


def sane(m):
    """Whether every kind of figure is finite and not negative, also at lengths that nobody has."""
    lengths = np.array([1.0, 4096.0, 1e30])
    found = [m.total_params, m.active_params(), m.weight_bytes(), m.state_bytes(), m.prefill_flop(lengths)]
    found += [m.weight_bytes_read(lengths), *((m.decode_flop(lengths), m.kv_bytes(lengths)) if m.generates else ())]
    for operator in m.operators("decode" if m.generates else "prefill", batch=7, past=lengths):
        found += [operator.flop, operator.weight_bytes, operator.cache_read_bytes, operator.activation_bytes]
    numbers = np.concatenate([np.ravel(np.asarray(value, dtype=float)) for value in found])
    return bool(np.all(np.isfinite(numbers) & (numbers >= 0)))


@pytest.mark.parametrize("row", catalog().values(), ids=lambda row: row.id)
def test_any_value_gives_a_model_or_an_error_that_names_file_and_key(row, file):
    rng = random.Random(row.id)
    config = json.loads((DATA / "models" / row.file).read_text())
    for _ in range(12):
        key = rng.choice([*config, *config, *OPTIONAL])
        path = file({**config, key: rng.choice(HOSTILE)})
        try:
            found = model(path)
        except ValueError as error:
            words = str(error)
            assert words.startswith(f"{path}: "[-200:]) or f"{path.name}: " in words
            assert key in words or "missing" in words  # a change may call for a key that the file has not
            assert len(words) < 1000
        else:
            assert found.total_params > 0
            assert sane(found)
            assert re.fullmatch(r"[A-Za-z0-9._-]{1,60}", found.id)


def test_the_largest_model_that_a_file_may_describe_has_finite_figures(file):
    most = {"num_hidden_layers": 2**12, "num_attention_heads": 2**14, "num_key_value_heads": 2**14}
    widths = dict.fromkeys(("hidden_size", "intermediate_size", "head_dim"), 2**22)
    found = model(file({**LLAMA, **most, **widths, "vocab_size": 2**24}))
    assert found.total_params > 1e21
    assert sane(found)


def test_layers_without_rotary_positions_attend_to_everything(file):
    """Llama 4 Scout: 48 layers of 8 KV heads of 128; marks of 0 are full, marks of 1 hold chunks of 8192 tokens."""
    for marks in ([0] + [1] * 47, [1] * 40 + [0] * 8):
        full = 48 - sum(marks)
        found = model(file({**SCOUT, "no_rope_layers": marks}))
        assert found.kv_bytes(8193) == 2 * 8 * 128 * 2 * (full * 8193 + sum(marks) * 8192)
    every = model(file({**SCOUT, "no_rope_layers": [], "no_rope_layer_interval": 4}))
    assert every.kv_bytes(8193) == model("llama-4-scout").kv_bytes(8193) == 2 * 8 * 128 * 2 * (12 * 8193 + 36 * 8192)
    for wrong in ("", 0, False, {}):
        with pytest.raises(ValueError, match=r"no_rope_layers=.*48 times 0 or 1"):
            model(file({**SCOUT, "no_rope_layers": wrong}))


def test_tables_of_learned_positions():
    """GPT-2 has 1024 rows of 768, OPT 2048 + 2 of 5120; a token reads a row of each table; Llama has no such table."""
    for name, rows, width, tables in (("gpt2", 1024, 768, 2), ("opt-13b", 2050, 5120, 2), ("llama-3.1-8b", 0, 4096, 1)):
        found = model(name)
        positions = sum(part.params for part in found.outer if part.name == "positions")
        assert positions == rows * width
        assert found.weight_bytes_read(2) - found.weight_bytes_read(1) == tables * width * 2


def test_infinity_where_nobody_reads_it(file):
    """Published Mamba files print time_step_limit as [0.0, Infinity]."""
    content = json.dumps({**NEMOTRON, "time_step_limit": [0.0, float("inf")]}).encode()
    assert b"Infinity" in content
    assert model(file(content)).total_params == model("nemotron-h-8b").total_params


KINDS = {name: json.loads((DATA / "models" / f"{name}.json").read_text()) for name in ("gemma-3-27b", "qwen2-7b")}
NO_TYPES = {"layer_types": None}


@pytest.mark.parametrize(
    ("base", "change", "layers"),
    [
        # attention at 1 4; experts at 0 2 4 6
        (
            JAMBA,
            {"num_hidden_layers": 7, "attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_offset": 0},
            {"mamba + experts": 3, "mamba + dense": 2, "causal attention + experts": 1, "causal attention + dense": 1},
        ),
        # the third and the sixth of eight
        (
            NEXT,
            {"num_hidden_layers": 8, "full_attention_interval": 3, **NO_TYPES},
            {"gated delta rule + experts": 6, "causal attention + experts": 2},
        ),
        # experts in the second, fourth and eighth of eight, not in the sixth, number 5; full attention in 4 and 8
        (
            NEXT,
            {
                "num_hidden_layers": 8,
                "intermediate_size": 77,
                "decoder_sparse_step": 2,
                "mlp_only_layers": [5],
                **NO_TYPES,
            },
            {"gated delta rule + dense": 5, "gated delta rule + experts": 1, "causal attention + experts": 2},
        ),
        # from layer 2 on those that three divides: 3 and 6
        (
            DEEPSEEK,
            {"num_hidden_layers": 8, "first_k_dense_replace": 2, "moe_layer_freq": 3},
            {"latent attention + dense": 6, "latent attention + experts": 2},
        ),
        # no rotary positions in the third and sixth of eight; experts in the even ones
        (
            SCOUT,
            {
                "num_hidden_layers": 8,
                "no_rope_layers": None,
                "no_rope_layer_interval": 3,
                "layer_types": None,
                "interleave_moe_layer_step": 2,
            },
            {
                "chunked 8192 attention + dense": 3,
                "chunked 8192 attention + experts": 3,
                "causal attention + dense": 1,
                "causal attention + experts": 1,
            },
        ),
        # the third and the sixth of eight are full
        (
            KINDS["gemma-3-27b"],
            {"num_hidden_layers": 8, "sliding_window_pattern": 3, **NO_TYPES},
            {"sliding 1024 attention + dense": 6, "causal attention + dense": 2},
        ),
        # windows from layer 2 on
        (
            KINDS["qwen2-7b"],
            {
                "num_hidden_layers": 7,
                "use_sliding_window": True,
                "max_window_layers": 2,
                "sliding_window": 100,
                **NO_TYPES,
            },
            {"causal attention + dense": 2, "sliding 100 attention + dense": 5},
        ),
        (
            NEMOTRON,
            {"hybrid_override_pattern": "MM*-M", "num_hidden_layers": 5},
            {"mamba2": 3, "causal attention": 1, "dense": 1},
        ),
    ],
)
def test_which_layers_a_rule_makes(base, change, layers, file):
    found = model(file({**base, **change})).layers
    assert {layer.name: layer.count for layer in found} == layers


@pytest.mark.parametrize(
    ("change", "params"),
    [
        # a layer: 4 (6 x 6 + 6) = 168 of attention, 2 x 6 x 10 + 10 + 6 = 136, two norms of 12: 328
        # a table of 11 x 4, two projections of 4 x 6, a norm of 12, 13 + 2 positions of 6
        ({}, 3 * 328 + 44 + 48 + 12 + 90),
        ({"word_embed_proj_dim": 6}, 3 * 328 + 66 + 12 + 90),
        ({"enable_bias": False}, 3 * (144 + 120 + 24) + 44 + 48 + 12 + 90),
        ({"layer_norm_elementwise_affine": False}, 3 * (168 + 136) + 44 + 48 + 90),
        ({"do_layer_norm_before": False}, 3 * 328 + 44 + 48 + 90),
        ({"_remove_final_layer_norm": True}, 3 * 328 + 44 + 48 + 90),
        ({"tie_word_embeddings": False}, 3 * 328 + 2 * 44 + 48 + 12 + 90),
    ],
)
def test_a_small_opt_by_hand(change, params, file):
    small = {
        "model_type": "opt",
        "hidden_size": 6,
        "num_attention_heads": 2,
        "ffn_dim": 10,
        "vocab_size": 11,
        "max_position_embeddings": 13,
        "num_hidden_layers": 3,
        "word_embed_proj_dim": 4,
    }
    assert model(file({**small, **change})).total_params == params


@pytest.mark.parametrize(("hidden", "rank"), [(34, 3), (32, 2)])
def test_a_small_jamba_by_hand(hidden, rank, file):
    """Rank "auto" is a sixteenth of the width, rounded up; two layers of Mamba without experts."""
    small = {
        "model_type": "jamba",
        "hidden_size": hidden,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 7,
        "vocab_size": 11,
        "num_hidden_layers": 2,
        "mamba_expand": 3,
        "mamba_d_state": 5,
        "mamba_dt_rank": "auto",
        "mamba_d_conv": 3,
        "attn_layer_period": 3,
        "attn_layer_offset": 2,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "tie_word_embeddings": False,
    }
    inner = 3 * hidden
    mixer = hidden * 2 * inner + (3 + 1) * inner + (inner + 1) * (rank + 10) + (rank + 1) * inner + 6 * inner
    layer = mixer + inner * hidden + 3 * hidden * 7 + 2 * hidden
    assert model(file(small)).total_params == 2 * layer + 2 * 11 * hidden + hidden


def fields(values, **more):
    return Fields(values, "here", "llama", **more)


def test_a_whole_number_from_its_lowest_to_its_highest():
    for value in (3, 4, 7):
        assert fields({"n": value}).optional("n", 7, 3) == fields({"n": value}).integer("n", 7, 3) == value
    for value in (2, 8, True, 3.0):
        with pytest.raises(ValueError, match=rf"here: n={value}: allowed are whole numbers from 3 to 7$"):
            fields({"n": value}).optional("n", 7, 3)
    assert fields({"n": 1}).integer("n") == 1
    assert fields({"n": 4_194_304}).integer("n") == 4_194_304
    with pytest.raises(ValueError, match="n=0: allowed are whole numbers from 1 to 4194304"):
        fields({"n": 0}).optional("n")
    with pytest.raises(ValueError, match="m=None: missing; needed is a whole number from 1 to 4194304"):
        fields({}).integer("m|n")


def test_layer_numbers_end_before_the_number_of_layers():
    assert fields({"l": [0, 4, 4]}).layer_numbers("l", 5) == {0, 4}
    assert fields({}).layer_numbers("l", 5) is None
    for wrong in ([5], [-1], [0, True], ["1"], 3):
        with pytest.raises(ValueError, match=r"allowed are lists of layer numbers from 0 to 4$"):
            fields({"l": wrong}).layer_numbers("l", 5)


@pytest.mark.parametrize(
    ("values", "value", "name"),
    [
        ({}, 9, "a"),  # the architecture's
        ({"a": None}, None, "a"),  # null is a word
        ({"a": None, "b": 2}, 2, "b"),
        ({"b": 2}, 2, "b"),
        ({"a": 2, "b": 2}, 2, "a"),
        ({"b": None}, None, "b"),
    ],
)
def test_a_quantity_by_its_keys(values, value, name):
    found = fields(values, defaults={"b": 9})
    assert (found.raw("a|b"), found.name("a|b")) == (value, name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": 16385}, "num_attention_heads=16385: allowed are whole numbers from 1 to 16384$"),
        ({"num_hidden_layers": 4097}, "num_hidden_layers=4097: allowed are whole numbers from 1 to 4096$"),
        ({"hidden_size": 4194305}, "to 4194304$"),
        ({"vocab_size": 16777217}, "to 16777216$"),
        ({"max_position_embeddings": 2**40 + 1}, "to 1099511627776$"),
        ({"architectures": ["LlamaForCausalLM"] * 17}, "a list of up to 16 class names of up to 100 characters$"),
        ({"architectures": ["L" * 101]}, "a list of up to 16 class names of up to 100 characters$"),
        ({"rms_norm_eps": 0}, "rms_norm_eps=0: allowed are positive numbers$"),
        ({"rope_theta": True}, "rope_theta=True: allowed are positive numbers$"),
        ({"rope_theta": float("inf")}, "rope_theta=inf: allowed are positive numbers$"),
    ],
)
def test_one_beyond_what_a_file_may_say(change, words, file):
    with pytest.raises(ValueError, match=words):
        model(file({**LLAMA, **change}))


def test_what_a_file_may_just_say(file):
    content = json.dumps(LLAMA).encode()
    full = content + b" " * (1_048_576 - len(content))
    assert model(file(full)).total_params == model("llama-3.1-8b").total_params
    with pytest.raises(ValueError, match="the file is 1048577 B; allowed are up to 1048576 B"):
        model(file(full + b" "))
    with pytest.raises(ValueError, match="holds a JSON list"):
        model(file(b"[" * 32 + b"]" * 32))
    for digits, words in ((4000, "hidden_size=9999"), (4001, "hidden_size=inf")):
        with pytest.raises(ValueError, match=words):
            model(file(b'{"model_type": "llama", "hidden_size": ' + b"9" * digits + b"}"))
    assert model(file({**LLAMA, "architectures": ["LlamaForCausalLM"] * 16})).total_params > 0
    longest = "LlamaForCausalLM" + "x" * 84  # a hundred letters: long enough to be read, and no ending that is known
    with pytest.raises(ValueError, match="allowed endings"):
        model(file({**LLAMA, "architectures": [longest]}))
    assert model(file({**NEMOTRON, "hybrid_override_pattern": "M" * 4096, "num_hidden_layers": 4096})).total_params > 0
    with pytest.raises(ValueError, match="has 4097 entries"):
        model(file({**NEMOTRON, "hybrid_override_pattern": "M" * 4097, "num_hidden_layers": None}))


def test_a_long_path_is_shown_by_its_end():
    assert printed(Path("p" * 200)) == "p" * 200
    assert printed(Path("q" + "p" * 200)) == "..." + "p" * 200
    assert printed(Path("a\nb")) == "a?b"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("LlamaForCausalLM", ("Llama", "ForCausalLM")),
        ("GPT2LMHeadModel", ("GPT2", "LMHeadModel")),
        ("T5EncoderModel", ("T5", "EncoderModel")),
        ("Gemma3TextModel", ("Gemma3", "TextModel")),
        ("BertModel", ("Bert", "Model")),
        ("Model", None),
        ("ForCausalLM", None),
        ("Llama", None),
        ("Llama-ForCausalLM", None),
    ],
)
def test_family_and_task_of_a_class_name(name, parts):
    assert _parted(name) == parts


def test_heads_divide_the_width_where_no_width_of_a_head_is_given(file):
    """Five heads of 7 in a width of 33: a layer has 2 x 33 x 35 of queries and outputs, 2 x 33 x 7 of one KV head."""
    odd = {
        **LLAMA,
        "hidden_size": 33,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
        "intermediate_size": 3,
        "vocab_size": 2,
        "max_position_embeddings": 9,
    }
    assert model(file({**odd, "head_dim": 7})).total_params == 2310 + 462 + 3 * 33 * 3 + 2 * 33 + 2 * 2 * 33 + 33
    with pytest.raises(ValueError, match=r"hidden_size=33: must be a multiple of num_attention_heads=5 where head_dim"):
        model(file({**odd, "head_dim": None}))
