"""How a server is started that runs what a plan chose, in the words of the software that the chip's public stack is.

Names of flags as of 2026-11: vLLM Neuron's "Configuration options" (`neuron_config`, buckets, `--kv-cache-dtype`),
"Expert parallelism" (`--enable-expert-parallel` with `--data-parallel-size`) and "Logical NeuronCore configuration"
(`NEURON_LOGICAL_NC_CONFIG`), all of awsdocs-neuron.readthedocs-hosted.com/en/latest; for Trainium1 and Inferentia2 its
"vLLM User Guide for NxD Inference" (`override_neuron_config`, `context_encoding_buckets`, `token_generation_buckets`);
for other chips docs.vllm.ai, "Engine arguments".
"""

from __future__ import annotations

import json
import math
import os
import shlex
from typing import Any

from trnmodel.catalog import load
from trnmodel.catalog.reader import lineage
from trnmodel.catalog.specs import Chip, Precision
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import Transformer
from trnmodel.steps.answers import Step

BUCKET = 128  # tokens that vLLM Neuron's buckets of contexts are multiples of


def command(
    model: Transformer, e: Efficiencies, step: Step, first: Step, dtypes: Precision, lnc: int, longest: float
) -> str:
    """Return the command that serves a decode step and a prefill; empty where no server runs the stack or the mapping.

    vLLM lays experts whole over TP x EP ranks where it also shares out sequences; the model cuts each over the TP ranks
    of a group of EP. Weights in 8 bits need a checkpoint in them.

    Examples
    --------
    >>> import trnmodel as tm
    >>> m, mapping, bf16 = tm.model("llama-3.1-8b"), tm.Mapping(tp=8), tm.Precision()
    >>> step = tm.decode_step(m, "trn2.48xlarge", mapping, batch=4, context=2048, max_context=2304)
    >>> first = tm.prefill(m, "trn2.48xlarge", mapping, input_tokens=1900, max_context=2304)
    >>> command(m, step.stack, step, first, bf16, 2, 2304).split(" --")[:3]
    ['NEURON_LOGICAL_NC_CONFIG=2 vllm serve meta-llama/Llama-3.1-8B', 'tensor-parallel-size 8', 'max-model-len 2304']
    """
    if e.kind != "public" or not (step.valid and first.valid):
        return ""
    ep, prompt, context = int(step.ep), int(first.compiled_tokens), int(step.compiled_tokens)
    sequences, longest = int(step.batch) // ep, int(longest)
    words = ["vllm", "serve", shlex.quote(_served(model)), "--tensor-parallel-size", str(int(step.tp))]
    words += ["--pipeline-parallel-size", str(int(step.pp))] if step.pp > 1 else []
    words += ["--data-parallel-size", str(ep), "--enable-expert-parallel"] if ep > 1 else []
    words += ["--max-model-len", str(longest), "--max-num-seqs", str(sequences)]
    words += ["--kv-cache-dtype", "fp8"] if load.dtypes()[dtypes.kv] == 1 else []
    chain = lineage(e.id)
    if "neuron-stack" not in chain:
        return " ".join(words)
    if "vllm-neuron-2026" in chain:
        prompt = _divided(prompt, int(step.tp))
        words += ["--max-num-batched-tokens", str(prompt)]
        config = {"neuron_config": _neuron(dtypes, sequences, prompt, context, longest)}
    else:
        buckets = {"context_encoding_buckets": [prompt], "token_generation_buckets": [context]}
        config = {"override_neuron_config": {"logical_nc_config": lnc, "enable_bucketing": True, **buckets}}
    return " ".join([f"NEURON_LOGICAL_NC_CONFIG={lnc}", *words, "--additional-config", shlex.quote(json.dumps(config))])


def _divided(tokens: int, ranks: int) -> int:
    """Return the bucket of a prompt: the ranks share its sequence equally, with at least two tokens each."""
    return max(math.ceil(tokens / ranks), 2) * ranks


def _served(model: Transformer) -> str:
    """Return what the server loads: a folder of the user's own, or the name that a shipped model is published under.

    A path that a terminal would not show as it is cannot be copied from there: the model's id stands for it.
    """
    if model.path:
        folder = os.path.dirname(model.path) or "." if model.path.endswith(".json") else model.path  # noqa: PTH120
        return (f"./{folder}" if folder.startswith("-") else folder) if folder.isprintable() else model.id
    row = catalog().get(model.id)
    return next((name for name in row.aliases.split(";") if "/" in name), model.id) if row else model.id


def _neuron(dtypes: Precision, sequences: int, prompt: int, context: int, longest: int) -> dict[str, Any]:
    """Return the options of vLLM Neuron: graphs of this prompt, this batch and, where it is shorter, this context."""
    found: dict[str, Any] = {"num_batched_tokens_buckets": [prompt], "num_seqs_buckets": [sequences]}
    if context < longest and context % BUCKET == 0:
        found["decode_context_length_buckets"] = [context]
    return found | ({"quantization": dtypes.weights} if dtypes.weights.startswith("mx") else {})


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
