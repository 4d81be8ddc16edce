"""How a server is started that runs what a plan chose, in the words of the software that the plan priced.

Names of flags as of 2026-11. vLLM Neuron, from awsdocs-neuron.readthedocs-hosted.com/en/latest: "Configuration options"
(`neuron_config`, buckets, `on_device_sampling_config`, `--kv-cache-dtype`, `--no-async-scheduling`), "Expert
parallelism" (`--enable-expert-parallel` with `--data-parallel-size`), "Logical NeuronCore configuration"
(`NEURON_LOGICAL_NC_CONFIG`) and the tutorials of EAGLE3 (`--speculative-config`, which turns asynchronous steps off).
NxD Inference: "vLLM User Guide for NxD Inference" (`override_neuron_config`, `context_encoding_buckets`,
`token_generation_buckets`) and the tutorial of speculative decoding with a draft model (`VLLM_NEURON_FRAMEWORK`,
`--override-neuron-config` with `enable_fused_speculation`). vLLM on other chips: docs.vllm.ai, "Engine arguments" and
"Speculative decoding". TensorRT-LLM: "trtllm-serve", the serving part of its DeepSeek guide (`--extra_llm_api_options`
with `enable_attention_dp`) and "How to get best performance on DeepSeek-R1" (`speculative_config` with `decoding_type`
MTP). SGLang: "Server arguments", "Speculative decoding" and "DeepSeek usage" (`--enable-dp-attention`,
`--speculative-algorithm` and its numbers).
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trnmodel.catalog import load
from trnmodel.catalog.options import Option
from trnmodel.catalog.reader import lineage
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import Transformer
from trnmodel.steps.answers import Step

BUCKET = 128  # tokens that vLLM Neuron's buckets of contexts are multiples of
SERVERS = {  # of stacks of `data/` without an option; other stacks were fitted to software that has no server's page
    "vllm-neuron-2026": "vllm-neuron",
    "vllm-neuron-2026-async": "vllm-neuron",
    "nxd-inference": "nxd-inference",
    "nxd-inference-2.28": "nxd-inference",
    "gpu-serving": "vllm",
    "gpu-serving-elsewhere": "vllm",
}
ASYNC = "vllm-neuron-2026-async"
SETTINGS = "extra-llm-api-config.yml"  # file of TensorRT-LLM's settings, named as its guides name it


class _Wanted(NamedTuple):
    """What a server is to run: degrees, sequences of a group, tokens of a prompt, and both lengths of a sequence."""

    model: str
    option: Option
    dtypes: Precision
    lnc: int
    tp: int
    ep: int
    pp: int
    sequences: int
    prompt: int
    context: int
    longest: int

    @property
    def fp8_cache(self) -> bool:
        """Whether the cache is stored in 8 bits."""
        return load.dtypes()[self.dtypes.kv] == 1


def command(
    model: Transformer, option: Option, step: Step, first: Step, dtypes: Precision, lnc: int, longest: float
) -> str:
    """Return the command that serves a decode step and a prefill with a software option.

    Empty where the mapping is not legal, where the stack is a scenario, and where no document gives the flags, which
    `undocumented` explains. vLLM lays experts whole over TP x EP ranks where it also shares out sequences; the model
    cuts each over the TP ranks of a group of EP. Weights in 8 bits need a checkpoint in them.

    Examples
    --------
    >>> import trnmodel as tm
    >>> from trnmodel.catalog.options import options
    >>> m, mapping, bf16 = tm.model("llama-3.1-8b"), tm.Mapping(tp=8), tm.Precision()
    >>> eagle = options("trainium2", "llama-3.1-8b", "neuron-eagle3-llama-3.1-8b")[0]
    >>> step = tm.decode_step(m, "trn2.48xlarge", mapping, batch=4, context=2048, max_context=2304)
    >>> first = tm.prefill(m, "trn2.48xlarge", mapping, input_tokens=1900, max_context=2304)
    >>> words = command(m, eagle, step, first, bf16, 2, 2304).split(" --")
    >>> words[0]
    'NEURON_LOGICAL_NC_CONFIG=2 vllm serve meta-llama/Llama-3.1-8B-Instruct'
    >>> [word.partition(" ")[0] for word in words[-2:]]
    ['speculative-config', 'additional-config']
    """
    if option.efficiencies.kind != "public" or not (step.valid and first.valid):
        return ""
    if undocumented(option, step, dtypes):
        return ""
    wanted = _Wanted(
        model=shlex.quote(served_name(model, option)),
        option=option,
        dtypes=dtypes,
        lnc=lnc,
        tp=int(step.tp),
        ep=int(step.ep),
        pp=int(step.pp),
        sequences=int(step.batch) // int(step.ep),
        prompt=int(first.compiled_tokens),
        context=int(step.compiled_tokens),
        longest=int(longest),
    )
    return " ".join(_PRINTED[server_of(option)](wanted))


def undocumented(option: Option, step: Step, dtypes: Precision) -> str:
    """Return why no document gives the flags that start an option, with the page that documents it; else nothing.

    Examples
    --------
    >>> import trnmodel as tm
    >>> from trnmodel.catalog.options import options
    >>> fused = options("trainium3", "llama-3.3-70b")[-1]
    >>> step = tm.decode_step("llama-3.3-70b", "trn3-nl16-torus", tm.Mapping(tp=8), batch=1, context=2048)
    >>> print(undocumented(fused, step, tm.Precision()))
    documented on trainium2 alone, by AWS: "Tutorial: Llama-3.3-70B on Trn2"
    """
    server = server_of(option)
    if not option.documented_on:
        return "" if server else f"no page gives flags of a server for {option.name}"
    page, chip = _page(option), getattr(step.system, "chip", step.system)
    if chip.id not in option.documented_on:
        return f"documented on {' and '.join(sorted(option.documented_on))} alone, by {page}"
    if not server:
        return f"documented without the flags of a server, by {page}"
    missing = {
        "with pipeline parallelism": option.speculates and step.pp > 1,
        "with weights in 8 bits": server == "nxd-inference" and dtypes.weights != "bf16",
        "with attention cut over the ranks of a group": server == "tensorrt-llm" and step.ep > 1 and step.tp > 1,
    }
    return next((f"not documented {how}, by {page}" for how, has in missing.items() if has), "")


def server_of(option: Option) -> str:
    """Return the server whose documents give the flags of an option, or of the plain stack of `data/`; else nothing."""
    return option.server if option.documented_on else SERVERS.get(option.efficiencies.id, "")


def _page(option: Option) -> str:
    """Return who documents an option, and the title of the page."""
    fact = load.facts_rows()[option.sources["documented_on"][0]]
    source = load.sources()[fact.source]
    if source.id == "project":
        return f"measured rows, {fact.locator}"
    return f'{source.publisher}: "{source.title}"'


def served_name(model: Transformer, option: Option) -> str:
    """Return what the server loads: a folder of the user's own, or the name that a shipped model is published under.

    A draft is trained beside one checkpoint of a model, which the option's page names. A path that a terminal would not
    show as it is cannot be copied from there: the model's id stands for it.
    """
    if model.path:
        folder = os.path.dirname(model.path) or "." if model.path.endswith(".json") else model.path  # noqa: PTH120
        return (f"./{folder}" if folder.startswith("-") else folder) if folder.isprintable() else model.id
    if option.target_checkpoint:
        return option.target_checkpoint
    row = catalog().get(model.id)
    return next((name for name in row.aliases.split(";") if "/" in name), model.id) if row else model.id


def _json(value: Any) -> str:
    """Return a value as JSON that a shell passes on as one word."""
    return shlex.quote(json.dumps(value))


def _of_vllm(w: _Wanted) -> list[str]:
    """Return the words that every vLLM reads: the model, degrees, sequences, and the dtype of the cache."""
    line = ["vllm", "serve", w.model, "--tensor-parallel-size", str(w.tp)]
    line += ["--pipeline-parallel-size", str(w.pp)] if w.pp > 1 else []
    line += ["--data-parallel-size", str(w.ep), "--enable-expert-parallel"] if w.ep > 1 else []
    line += ["--max-model-len", str(w.longest), "--max-num-seqs", str(w.sequences)]
    return line + (["--kv-cache-dtype", "fp8"] if w.fp8_cache else [])


def _drafts(w: _Wanted) -> list[str]:
    """Return vLLM's words for the drafts of an option: an EAGLE head, or the layers of the checkpoint."""
    if not w.option.speculates:
        return []
    config: dict[str, Any] = {"method": "mtp"}
    if w.option.drafting == "head":
        config = {"method": "eagle3", "model": w.option.draft_checkpoint}
    return ["--speculative-config", _json(config | {"num_speculative_tokens": w.option.draft_tokens})]


def _vllm(w: _Wanted) -> list[str]:
    """Return the command of vLLM."""
    return [*_of_vllm(w), *_drafts(w)]


def _vllm_neuron(w: _Wanted) -> list[str]:
    """Return the command of vLLM Neuron, whose asynchronous steps are on unless they are turned off or drafts do it."""
    prompt = _divided(w.prompt, w.tp)
    line = [f"NEURON_LOGICAL_NC_CONFIG={w.lnc}", *_of_vllm(w), "--max-num-batched-tokens", str(prompt)]
    together = w.option.speculates or ASYNC in lineage(w.option.efficiencies.id)
    line += [] if together else ["--no-async-scheduling"]
    config = {"neuron_config": _neuron(w.dtypes, w.sequences, prompt, w.context, w.longest)}
    return [*line, *_drafts(w), "--additional-config", _json(config)]


def _nxd_inference(w: _Wanted) -> list[str]:
    """Return the command of NxD Inference under vLLM, with a draft model fused into its graph where there is one."""
    buckets = {"context_encoding_buckets": [w.prompt], "token_generation_buckets": [w.context]}
    config: dict[str, Any] = {"logical_nc_config": w.lnc, "enable_bucketing": True, **buckets}
    line = [f"NEURON_LOGICAL_NC_CONFIG={w.lnc}"]
    if not w.option.speculates:
        return [*line, *_of_vllm(w), "--additional-config", _json({"override_neuron_config": config})]
    draft = {"model": w.option.draft_checkpoint, "num_speculative_tokens": w.option.draft_tokens}
    draft |= {"max_model_len": w.longest, "method": "eagle"}
    line += ["VLLM_NEURON_FRAMEWORK=neuronx-distributed-inference", "VLLM_USE_V1=0", *_of_vllm(w)]
    line += ["--override-neuron-config", _json(config | {"enable_fused_speculation": True})]
    return [*line, "--speculative-config", _json(draft)]


def _tensorrt_llm(w: _Wanted) -> list[str]:
    """Return the command of TensorRT-LLM: a file of settings, and the server, which counts all ranks as TP."""
    config: dict[str, Any] = {"enable_attention_dp": True} if w.ep > 1 else {}
    config |= {"kv_cache_config": {"dtype": "fp8"}} if w.fp8_cache else {}
    drafts = {"decoding_type": "MTP", "num_nextn_predict_layers": w.option.draft_tokens}
    config |= {"speculative_config": drafts} if w.option.speculates else {}
    line = ["echo", _json(config), ">", SETTINGS, "&&", "trtllm-serve", w.model]
    line += ["--tp_size", str(w.tp * w.ep), "--ep_size", str(w.ep)]
    line += ["--max_batch_size", str(w.sequences), "--max_num_tokens", str(max(w.prompt, w.sequences))]
    return [*line, "--max_seq_len", str(w.longest), "--extra_llm_api_options", SETTINGS]


def _sglang(w: _Wanted) -> list[str]:
    """Return the command of SGLang, which counts all ranks as TP and the sequences of all groups together."""
    line = ["python3", "-m", "sglang.launch_server", "--model-path", w.model, "--tp", str(w.tp * w.ep)]
    line += ["--dp", str(w.ep), "--enable-dp-attention", "--ep-size", str(w.ep)] if w.ep > 1 else []
    line += ["--context-length", str(w.longest), "--max-running-requests", str(w.sequences * w.ep)]
    line += ["--kv-cache-dtype", "fp8_e4m3"] if w.fp8_cache else []
    if not w.option.speculates:
        return line
    head = ["EAGLE3", "--speculative-draft-model-path", w.option.draft_checkpoint]
    line += ["--speculative-algorithm", *(head if w.option.drafting == "head" else ["EAGLE"])]
    wide = math.ceil(w.option.draft_tokens / w.option.passes)  # drafts of a pass; one more token is verified
    line += ["--speculative-num-steps", str(w.option.passes), "--speculative-eagle-topk", str(wide)]
    return [*line, "--speculative-num-draft-tokens", str(w.option.draft_tokens + 1)]


_PRINTED: Mapping[str, Callable[[_Wanted], list[str]]] = {
    "vllm": _vllm,
    "vllm-neuron": _vllm_neuron,
    "nxd-inference": _nxd_inference,
    "tensorrt-llm": _tensorrt_llm,
    "sglang": _sglang,
}


def _divided(tokens: int, ranks: int) -> int:
    """Return the bucket of a prompt: the ranks share its sequence equally, with at least two tokens each."""
    return max(math.ceil(tokens / ranks), 2) * ranks


def _neuron(dtypes: Precision, sequences: int, prompt: int, context: int, longest: int) -> dict[str, Any]:
    """Return the options of vLLM Neuron: graphs of this prompt, this batch and, where it is shorter, this context.

    The device samples, as on every measured server; asynchronous steps and drafts need it.
    """
    config: dict[str, Any] = {"num_batched_tokens_buckets": [prompt], "num_seqs_buckets": [sequences]}
    if context < longest and context % BUCKET == 0:
        config["decode_context_length_buckets"] = [context]
    config["on_device_sampling_config"] = {"all_greedy": True}
    return config | ({"quantization": dtypes.weights} if dtypes.weights.startswith("mx") else {})


def runs(e: Efficiencies, chip: Chip) -> bool:
    """Whether a stack of `data/` stands on the software that the chip's own stacks stand on; others run anywhere.

    A single call answers for any pair and says "extrapolated"; a plan is to be started, and refuses it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> [runs(tm.efficiencies("trainium1"), tm.chip(name)) for name in ("trainium3", "h200")]
    [True, False]
    """
    homes = {lineage(stack)[-1] for stack in (chip.default_stack, chip.hand_tuned_stack) if stack}
    return e.kind != "public" or not homes or set(lineage(e.id)[-1:]) <= homes
