"""Whether documented software runs a model: the statements of documents, and what is not stated."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

import trnmodel as tm
from trnmodel.catalog import engines, load, options
from trnmodel.catalog.tables import DataError
from trnmodel.cli import terminal
from trnmodel.cli.app import app
from trnmodel.models.config import defaults
from trnmodel.models.kinds import layer_kinds
from trnmodel.models.shipped import MODELS, catalog
from trnmodel.models.transformer import model_ids
from trnmodel.steps.support import support_table

TRN1, TRN2, TRN3, H200 = "trn1.32xlarge", "trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h200"
ELSEWHERE = {"dbrx", "qwen2_vl_text", "qwen3_vl_text", "helium", engines.ANY}  # listed, and no model of the catalogue


def write(folder, shipped, name="w"):
    """Copy the configuration of a shipped model into a folder, as one of the user's own."""
    path = folder / name / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((MODELS / catalog()[shipped].file).read_text())
    return str(path)


# What documents print, read again by hand: model, where, status, release, and a feature with its word.
STATED = [
    # vLLM Neuron's recipe of Llama 3, table "Features": speculation, cache in FP8 and no pipeline parallelism
    ("llama-3.3-70b", TRN2, "supported", "vllm-neuron-2.32", {"speculation": "supported", "kv-fp8": "supported"}),
    ("llama-3.3-70b", TRN3, "supported", "vllm-neuron-2.32", {"pipeline-parallelism": "not supported"}),
    # its recipe of gpt-oss: "MXFP4 is Trn3 only"
    ("gpt-oss-120b", TRN3, "supported", "vllm-neuron-2.32", {"mxfp4": "supported"}),
    ("gpt-oss-120b", TRN2, "supported", "vllm-neuron-2.32", {"mxfp4": "not supported"}),
    # NxD Inference lists Qwen3; its user guide has Multi-LORA; context parallelism is beta; structured output is unsaid
    ("qwen3-32b", TRN2, "supported", "nxd-inference-2.31", {"lora": "supported", "long-context": "beta"}),
    ("qwen3-32b", TRN2, "supported", "nxd-inference-2.31", {"structured-output": "not stated"}),
    # "Customers who require NxD Inference kernel support on Trn1 or Inf2 instances should pin to release 2.28"
    ("qwen3-32b", TRN1, "supported", "nxd-inference-2.28", {}),
    # "Llama-3.1-405B-Instruct (requires Trn2)"
    ("llama-3.1-405b", TRN1, "not supported", "nxd-inference-2.28", {}),
    ("llama-3.1-405b", TRN2, "supported", "vllm-neuron-2.32", {}),
    # no list of AWS names DeepSeek
    ("deepseek-v3", TRN2, "not listed", "nxd-inference-2.31", {}),
    # GPUs
    ("deepseek-v3", H200, "supported", "vllm-0.25", {"lora": "supported", "pipeline-parallelism": "supported"}),
    ("jamba-v0.1", H200, "supported", "vllm-0.25", {}),
    ("gpt2", H200, "supported", "vllm-0.25", {"images": "not stated"}),
]


@pytest.mark.parametrize(("model", "system", "status", "release", "features"), STATED)
def test_what_documents_print(model, system, status, release, features):
    answer = tm.support(model, system)
    assert (answer.status, answer.release, answer.engine) == (status, release, engines.releases()[release].engine)
    assert {name: answer.features[name] for name in features} == features
    assert set(answer.sources) <= load.sources().keys()
    assert bool(answer.missing) is (status != "supported")
    assert set(answer.features) == set(engines.FEATURES)


# TPU: the page of vLLM marks models that do not pass (a cross), and one that is not optimized (a yellow square)
@pytest.mark.parametrize(
    ("model", "status", "maturity"),
    [
        ("deepseek-v3", "not supported", "not supported"),
        ("gpt-oss-20b", "not supported", "not supported"),
        ("mixtral-8x7b-v0.1", "supported", "supported"),
        ("mixtral-8x22b-v0.1", "not supported", "not supported"),
        ("phi-3.5-mini", "supported", "beta"),
        ("opt-13b", "not listed", ""),
    ],
)
def test_a_page_that_refuses_models(model, status, maturity):
    answer = tm.support(model, tm.chip("tpu-v6e"))
    assert (answer.status, answer.maturity, answer.release) == (status, maturity, "vllm-tpu-2025")


def test_tensorrt_llm_s_matrix_is_read_by_row():
    """Its row of Qwen3-Next: no speculation by MTP or EAGLE-3, no KV cache reuse, guided decoding untested."""
    row = engines.said("tensorrt-llm-2026", "qwen3_next", "qwen3-next-80b-a3b", "b200")
    words = {name: row[name].status for name in ("speculation", "prefix-caching", "structured-output")}
    assert words == {"speculation": "not supported", "prefix-caching": "not supported", "structured-output": "untested"}
    option = tm.support("deepseek-r1", "hgx-b200", "trtllm-mtp1")
    assert (option.release, option.features["speculation"]) == ("tensorrt-llm-2026", "supported")


def test_what_has_to_be_ported_is_what_no_supported_architecture_has():
    deepseek = tm.support("deepseek-v3", TRN2)
    assert deepseek.missing_kinds == ("latent attention (MLA)",)
    assert "latent attention (MLA)" in deepseek.missing
    assert "contrib/models/DeepSeek-V3" in deepseek.port
    jamba = tm.support("jamba-v0.1", TRN2)
    assert jamba.missing_kinds == ("Mamba layers",)
    assert jamba.port == ""
    assert set(tm.support("qwen3-next-80b-a3b", TRN3).missing_kinds) >= {"linear attention (gated delta rule)"}


@pytest.mark.parametrize("model", model_ids())
def test_missing_kinds_are_kinds_of_the_model_and_a_supported_model_misses_nothing(model):
    for system in (TRN2, H200):
        answer = tm.support(model, system)
        assert set(answer.missing_kinds) <= layer_kinds(tm.model(model))
        assert answer.supported is (answer.missing == "")
        assert answer.nearest != answer.architecture


def test_kinds_of_layers_by_hand():
    assert layer_kinds(tm.model("gpt-oss-20b")) == {
        "causal attention",
        "sliding-window attention",
        "mixture of experts with a router",
    }
    assert layer_kinds(tm.model("llama-3.1-8b")) == {"causal attention"}
    assert layer_kinds(tm.model("nemotron-h-8b")) == {"causal attention", "Mamba-2 layers"}


def test_an_unknown_architecture_is_not_listed_and_has_a_nearest_one():
    own = replace(tm.model("gpt-oss-20b"), id="mine", architecture="our_moe")
    answer = tm.support(own, TRN3)
    assert (answer.status, answer.nearest, answer.missing_kinds) == ("not listed", "gpt_oss", ())
    assert "gpt_oss" in answer.missing
    dense = replace(tm.model("llama-3.1-8b"), id="mine", architecture="our_dense")
    assert tm.support(dense, TRN2).nearest == "llama"


def test_a_config_of_one_s_own_counts_by_its_model_type(tmp_path):
    path = write(tmp_path, "llama-3.1-8b")
    assert tm.support(path, TRN2).status == "supported"
    assert tm.support(path, TRN2).release == "vllm-neuron-2.32"
    assert tm.support(write(tmp_path, "deepseek-v3"), TRN2).status == "not listed"


def test_a_limit_of_one_model_is_not_that_of_a_file_of_the_same_architecture(tmp_path):
    """Only the checkpoint that the page names needs Trn2; it does not speak of the same layers under another name."""
    assert tm.support("llama-3.1-405b", TRN1).status == "not supported"
    own = tm.model(write(tmp_path, "llama-3.1-405b"), name="llama-3.1-405b")
    assert tm.support(own, TRN1).status == "supported"


def test_software_that_nobody_releases_is_not_listed():
    for word in ("ideal", "hand-tuned"):
        answer = tm.support("llama-3.1-8b", H200, word)
        assert (answer.status, answer.engine, answer.release) == ("not listed", "", "")
        assert "no software" in answer.missing
        assert set(answer.features.values()) == {"not stated"}


@pytest.mark.parametrize("option", options.documented(), ids=lambda one: one.id)
def test_every_option_of_the_catalogue_is_supported_where_it_is_documented(option):
    for chip in sorted(option.documented_on):
        model = next(iter(sorted(option.covers - {"any"})), "llama-3.1-8b")
        answer = tm.support(model, tm.chip(chip), option.id)
        assert answer.supported, answer
        assert tm.support(model, tm.chip(chip), option).engine == answer.engine
        assert option.server in ("", answer.engine)


def test_options_of_other_models_and_hostile_names_are_refused():
    with pytest.raises(ValueError, match="efficiencies='neuron-eagle3-gpt-oss-120b'"):
        tm.support("llama-3.1-8b", TRN2, "neuron-eagle3-gpt-oss-120b")
    for hostile in ("", "<b>", "x" * 10_000, "\x1b[2J", "any"):
        with pytest.raises(ValueError, match="efficiencies="):
            tm.support("llama-3.1-8b", TRN2, hostile)
        with pytest.raises(ValueError, match="model="):
            tm.support(hostile, TRN2)
    for wrong in (1, ["public"], {}):
        with pytest.raises(ValueError, match="efficiencies="):
            tm.support("llama-3.1-8b", TRN2, wrong)


def test_every_row_names_an_architecture_that_is_known_and_models_that_exist():
    rows = [row for several in engines.support_rows().values() for row in several]
    assert len(rows) > 400
    assert {row.architecture for row in rows} - defaults().keys() <= ELSEWHERE
    named = {model for row in rows for model in row.models.split()}
    assert named - set(model_ids()) <= {"gemma-3-4b"}
    assert len({(row.release, row.architecture, row.feature, row.chips, row.models) for row in rows}) == len(rows)


def test_each_default_stack_of_a_chip_with_an_engine_has_releases():
    for name in ("trainium1", "inferentia2", "trainium2", "trainium3", "h100", "b200", "mi300x", "tpu-v6e"):
        chip = load.chip(name)
        assert any(chip.id in one.chips.split() for one in engines.of_stack(chip.default_stack)), name


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("status", "perhaps", "Invalid enum value"),
        ("release", "vllm-99", "vllm-99"),
        ("feature", "teleport", "teleport"),
        ("source", "nobody", "nobody"),
        ("chips", "h100 h999", "h999"),
        ("locator", "", "locator"),
    ],
)
def test_a_wrong_row_is_an_error_on_load(column, value, what, changed_row):
    changed_row("evidence/support.csv", column, value)
    with pytest.raises(DataError, match=what):
        engines.support_rows()


def test_the_table_has_a_row_for_each_release_that_a_chip_s_software_stands_for():
    table = support_table("llama-3.1-8b", [TRN2, H200])
    assert table.groupby("chip").release.apply(list).to_dict() == {
        "trainium2": ["vllm-neuron-2.32", "nxd-inference-2.31", "nxd-inference-2.28"],
        "h200": ["vllm-0.25", "tensorrt-llm-2026", "sglang-2026"],
    }
    every = support_table("gpt-oss-120b")
    assert {"trainium1", "tpu-v6e", "mi355x"} <= set(every.chip)
    assert set(every.status) <= {"supported", "not listed", "not supported"}


def run_cli(*words):
    """Status and output of a command."""
    result = CliRunner().invoke(app, words)
    return result.exit_code, result.stdout


def test_the_command_prints_what_the_call_answers():
    code, out = run_cli("support", "deepseek-v3", TRN2, H200)
    assert code == terminal.Status.ANSWERED
    assert "not listed" in out
    assert "latent attention" in out
    assert "supported by vLLM" in out
    assert run_cli("support", "llama-3.1-8b", "--stack", "ideal")[0] == terminal.Status.REFUSED
    assert run_cli("support", "nonsense-1b")[0] == terminal.Status.REFUSED
    assert "tpu-v6e: not supported by vllm-tpu-2025" in run_cli("support", "deepseek-v3")[1]
