"""Start commands of documented options, against the lines that the documents print; and where they print none."""

import json
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest

import trnmodel as tm
from trnmodel.catalog import load, options, stacks
from trnmodel.search import launch

EVERY = {one.id: one for one in options.documented()}
NEURON = {
    "num_batched_tokens_buckets": [2000],
    "num_seqs_buckets": [4],
    "on_device_sampling_config": {"all_greedy": True},
}


def started(option, chip, model, *, tp=8, ep=1, pp=1, batch=4, dtypes=None, longest=2304):
    """The command of a mapping, and why there is none."""
    system = SimpleNamespace(chip=tm.chip(chip))
    step = SimpleNamespace(
        tp=float(tp), ep=float(ep), pp=float(pp), batch=float(batch), compiled_tokens=2304.0, valid=True, system=system
    )
    first = SimpleNamespace(compiled_tokens=2000.0, valid=True)
    dtypes = dtypes or tm.Precision()
    found = launch.command(tm.model(model), option, step, first, dtypes, 2, longest)
    return found, launch.undocumented(option, step, dtypes)


def on(name, chip, model):
    """An option on a chip, as a search takes it."""
    return next(one for one in options.public(tm.chip(chip), model) if one.id == name)


def flags_of(command):
    """The options of a command by name; JSON is read."""
    found, name = {}, ""
    for word in shlex.split(command):
        if word.startswith("--"):
            name = word[2:]
            found[name] = ""
        elif name:
            found[name] = json.loads(word) if word.startswith("{") else word
    return found


def test_steps_are_asynchronous_where_the_plan_priced_them_so():
    """Features guide L488-495: on by default, with a flag that turns it off; reference L371: the device samples."""
    plain, fast = options.public(tm.chip("trainium2"), "llama-3.1-8b")[:2]
    commands = [started(one, "trainium2", "llama-3.1-8b")[0] for one in (plain, fast)]
    assert ["--no-async-scheduling" in command for command in commands] == [True, False]
    assert all(flags_of(command)["additional-config"] == {"neuron_config": NEURON} for command in commands)
    named = options.plain(stacks.find(tm.chip("trainium2"), "vllm-neuron-2026-async", "efficiencies"))
    assert started(named, "trainium2", "llama-3.1-8b")[0] == commands[1]


# What the option's own page prints for its flags: model, speculative configuration.
EAGLE = {
    # tutorial-eagle3-speculative-decoding-llama-3-1.md L176-188
    ("neuron-eagle3-llama-3.1-8b", "trainium2", "llama-3.1-8b"): (
        "meta-llama/Llama-3.1-8B-Instruct",
        {"method": "eagle3", "model": "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "num_speculative_tokens": 3},
    ),
    # tutorial-eagle3-speculative-decoding-gpt-oss.md L195-216
    ("neuron-eagle3-gpt-oss-120b", "trainium3", "gpt-oss-120b"): (
        "openai/gpt-oss-120b",
        {"method": "eagle3", "model": "RedHatAI/gpt-oss-120b-speculator.eagle3", "num_speculative_tokens": 1},
    ),
    # examples/offline_inference/spec_decode.py, main
    ("vllm-eagle3-llama-3.1-8b", "h100", "llama-3.1-8b"): (
        "meta-llama/Llama-3.1-8B-Instruct",
        {"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3},
    ),
    # model card, "Use with vLLM"; the draft by the card's address
    ("vllm-eagle3-llama-4-maverick", "b200", "llama-4-maverick"): (
        "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
        {
            "method": "eagle3",
            "model": "RedHatAI/Llama4-Maverick-17B-128E-Instruct-speculator.eagle3",
            "num_speculative_tokens": 3,
        },
    ),
}


@pytest.mark.parametrize(("where", "printed"), EAGLE.items(), ids=lambda one: one[0])
def test_eagle_heads_are_those_of_the_page(where, printed):
    command, why = started(on(*where), *where[1:])
    assert (f"vllm serve {printed[0]} " in command, why) == (True, "")
    flags = flags_of(command)
    assert flags["speculative-config"] == printed[1]
    assert "no-async-scheduling" not in flags  # features guide L523: drafts turn it off by themselves
    assert ("additional-config" in flags) is where[0].startswith("neuron")


def test_a_draft_model_fused_by_nxd_inference():
    """sd-inference-tutorial.rst L156-161, with the draft and the seven tokens of trn2-llama3.3-70b-tutorial.rst."""
    where = ("neuron-fused-draft-llama-3.3-70b", "trainium2", "llama-3.3-70b")
    command, why = started(on(*where), *where[1:], tp=64, batch=1, longest=6400)
    assert why == ""
    words = command.split()
    assert words[:6] == [
        "NEURON_LOGICAL_NC_CONFIG=2",
        "VLLM_NEURON_FRAMEWORK=neuronx-distributed-inference",
        "VLLM_USE_V1=0",
        "vllm",
        "serve",
        "meta-llama/Llama-3.3-70B-Instruct",
    ]
    flags = flags_of(command)
    assert flags["override-neuron-config"]["enable_fused_speculation"] is True
    assert flags["speculative-config"] == {
        "model": "meta-llama/Llama-3.2-1B-Instruct",
        "num_speculative_tokens": 7,
        "max_model_len": 6400,
        "method": "eagle",
    }
    assert "additional-config" not in flags


def test_mtp_of_tensorrt_llm():
    """DeepSeek guide, trtllm-serve with enable_attention_dp; blog of B200 and H200, speculative_config."""
    where = ("trtllm-mtp3", "b200", "deepseek-r1")
    command, why = started(on(*where), *where[1:], tp=1, ep=8, batch=64, dtypes=tm.Precision(kv="fp8"))
    assert why == ""
    config, _, server = command.partition(" > extra-llm-api-config.yml && ")
    assert json.loads(shlex.split(config)[1]) == {
        "enable_attention_dp": True,
        "kv_cache_config": {"dtype": "fp8"},
        "speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 3},
    }
    assert server == (
        "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --max_batch_size 8 --max_num_tokens 2000 "
        "--max_seq_len 2304 --extra_llm_api_options extra-llm-api-config.yml"
    )
    alone = started(on(*where), *where[1:], tp=8, batch=64)[0]
    assert ("enable_attention_dp" in alone, "--tp_size 8 --ep_size 1 --max_batch_size 64" in alone) == (False, True)


def test_mtp_and_a_tree_of_sglang():
    """DeepSeek usage: --enable-dp-attention --tp 8 --dp 8, EAGLE with 3, 1 and 4; pull request 4716: 8, 8 and 64."""
    where = ("sglang-mtp3", "h200", "deepseek-v3")
    command, why = started(on(*where), *where[1:], tp=1, ep=8, batch=48)
    assert why == ""
    assert command == (
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 --enable-dp-attention "
        "--ep-size 8 --context-length 2304 --max-running-requests 48 --speculative-algorithm EAGLE "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    )
    where = ("sglang-eagle3-llama-3.3-70b", "h100", "llama-3.3-70b")
    command, why = started(on(*where), *where[1:], batch=1, dtypes=tm.Precision(kv="fp8"))
    assert why == ""
    assert command == (
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.3-70B-Instruct --tp 8 --context-length 2304 "
        "--max-running-requests 1 --kv-cache-dtype fp8_e4m3 --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path yuhuili/EAGLE3-LLaMA3.3-Instruct-70B --speculative-num-steps 8 "
        "--speculative-eagle-topk 8 --speculative-num-draft-tokens 64"
    )


@pytest.mark.parametrize(
    ("where", "how", "why"),
    [
        (
            ("neuron-fused-draft-llama-3.3-70b", "trainium3", "llama-3.3-70b"),
            {},
            'documented on trainium2 alone, by AWS: "Tutorial: Llama-3.3-70B on Trn2"',
        ),
        (
            ("neuron-fused-draft-llama-3.3-70b", "trainium2", "llama-3.3-70b"),
            {"dtypes": tm.Precision(weights="fp8")},
            'not documented with weights in 8 bits, by AWS: "Tutorial: Llama-3.3-70B on Trn2"',
        ),
        (
            ("neuron-kernels-gpt-oss-20b", "trainium3", "gpt-oss-20b"),
            {},
            "documented without the flags of a server, by measured rows, data/evidence/measured_2.csv",
        ),
        (
            ("neuron-mtp-qwen3.6-35b-a3b", "trainium3", "qwen3.6-35b-a3b"),
            {},
            "documented without the flags of a server, by KevGomes1403/trainium-model-translation",
        ),
        (
            ("trtllm-mtp1", "h200", "deepseek-r1"),
            {"tp": 2, "ep": 4},
            "not documented with attention cut over the ranks of a group, by NVIDIA",
        ),
        (
            ("vllm-eagle3-llama-3.1-8b", "h100", "llama-3.1-8b"),
            {"pp": 2},
            "not documented with pipeline parallelism, by vLLM",
        ),
        (("trtllm-mtp1", "gb200", "deepseek-r1"), {}, "documented on b200 and h200 alone, by NVIDIA"),
    ],
)
def test_what_no_document_starts_has_no_command_and_names_the_page(where, how, why):
    command, because = started(on(*where), *where[1:], **how)
    assert (command, because[: len(why)]) == ("", why)


def test_a_stack_without_a_server_starts_nothing():
    """A command of vLLM Neuron would start other software than such a stack was fitted to."""
    for name in ("nki-megakernel", "kiln", "fp8-dequantised", "torch-neuronx", "transformers-neuronx-2.18.1"):
        one = options.plain(stacks.find(tm.chip("trainium2"), name, "efficiencies"))
        command, why = started(one, "trainium2", "llama-3.1-8b")
        assert (command, why) == ("", f"no page gives flags of a server for {one.name}")
    assert set(launch.SERVERS) <= set(stacks.stacks())
    built = (load.chip(name) for name in load.chips())
    defaults = {chip.default_stack for chip in built if not chip.ratios_to} - {""}  # nobody documents one to come
    assert defaults <= set(launch.SERVERS)


def test_a_scenario_starts_nothing_and_an_own_folder_stays():
    for one in options.options("trainium2", "llama-3.1-8b", "ideal"):
        assert started(one, "trainium2", "llama-3.1-8b")[0] == ""
    eagle = on("neuron-eagle3-llama-3.1-8b", "trainium2", "llama-3.1-8b")
    own = replace(tm.model("llama-3.1-8b"), path="/models/my llama")
    assert launch.served_name(own, eagle) == "/models/my llama"


def test_every_server_of_the_data_has_words_and_every_head_a_checkpoint():
    for option in EVERY.values():
        assert option.server in ("", *launch._PRINTED)
        needs = option.server and option.drafting not in ("none", "mtp")
        assert bool(option.draft_checkpoint) is bool(needs), option.id
