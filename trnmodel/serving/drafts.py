"""Time of the drafts of a decode step: of a smaller model, of a head, or of the layer of the checkpoint that predicts.

A head (EAGLE) and a layer of the checkpoint (MTP) are priced as one decoder layer of the model with its whole output
head, once for each drafted token. This is what the documents of the engines describe; heads with a smaller vocabulary
cost less. The steps of a draft are in the graph of the step that verifies it, so that what a step and a sequence cost
beside the layers is paid once, by that step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.options import Option
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.formulas import latency
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.answers import Step
from trnmodel.steps.inference import decode_step
from trnmodel.steps.legal import legal
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.questions import DecodeQuestion


def acceptance(option: Option) -> float:
    """Return the chance that a drafted token is accepted at which a step yields the measured tokens [-].

    Examples
    --------
    >>> from trnmodel.catalog.options import options
    >>> round(acceptance(options("b200", "deepseek-r1", "trtllm-mtp1")[0]), 9)
    0.92
    """
    return float(latency.acceptance(option.draft_tokens, option.tokens_per_step))


@lru_cache(maxsize=64)
def head_of(model: Transformer, drafting: str) -> Transformer:
    """Return the model that drafts: one layer, with the tables of the model that verifies.

    An "mtp" draft is the layer that the checkpoint has for prediction, where it states one; otherwise, and of a "head",
    it is a layer such as the last one that decodes.

    Examples
    --------
    >>> head_of(read_model("deepseek-r1"), "mtp").n_layers, head_of(read_model("llama-3.3-70b"), "head").n_layers
    (1, 1)
    """
    decoding = [layer for layer in model.layers if "decode" in layer.phases and layer.attentions]
    layer = (model.prediction if drafting == "mtp" and model.prediction else decoding)[-1]
    one = replace(layer, count=1, stored=0)
    return replace(model, id=f"{model.id}-{drafting}", layers=(one,), prediction=(), path="")


@lru_cache(maxsize=64)
def _inside_a_step(e: Efficiencies) -> Efficiencies:
    """Return a stack whose step and sequences cost nothing beside its layers, for the step that verifies pays that."""
    return replace(e, step_overhead_s=0.0, sequence_s=0.0, server_step_s=0.0)


def smaller_group(draft_model: str | Transformer, q: DecodeQuestion) -> NDArray:
    """Return the degrees of TP at which a draft model runs: the largest that its heads allow, up to that of a mapping.

    Examples
    --------
    >>> step = decode_step("llama-3.1-70b", "trn2.48xlarge", Mapping(tp=[2, 64]), batch=1, context=2048)
    >>> smaller_group("llama-3.2-1b", step.question).tolist()
    [2.0, 32.0]
    """
    tried = np.unique(np.append(np.ravel(q.mapping.tp), np.exp2(np.arange(np.log2(np.max(q.mapping.tp)) + 1))))
    runs = legal(draft_model, q.system, Mapping(tp=tried, lnc=q.mapping.lnc), efficiencies=q.efficiencies).valid
    degrees = tried[runs]  # one rank always does
    return degrees[np.searchsorted(degrees, q.mapping.tp, side="right") - 1]


def draft_step(option: Option, step: Step) -> Step:
    """Return the decode step that drafts one token for each sequence of the step that verifies.

    Parameters
    ----------
    option : Option
        A documented option that drafts with a head, an MTP layer or a smaller model. [-]
    step : Step
        The decode step that verifies. [-]

    Returns
    -------
    draft : Step
        On the same ranks; a smaller model on one tensor-parallel group of them. [-]

    Examples
    --------
    >>> from trnmodel.catalog.options import options
    >>> eagle = options("trainium2", "llama-3.1-8b", "neuron-eagle3-llama-3.1-8b")[0]
    >>> ask = {"batch": 2, "context": 640, "efficiencies": eagle.efficiencies, "new_tokens": 4}
    >>> verify = decode_step("llama-3.1-8b", "trn2.48xlarge", Mapping(tp=8), **ask)
    >>> bool(draft_step(eagle, verify).time_s < verify.time_s / 10)
    True
    """
    q = step.question
    assert isinstance(q, DecodeQuestion)
    ask: dict[str, Any] = {"precision": q.precision, "efficiencies": _inside_a_step(q.efficiencies)}
    if option.drafting == "model":
        small = read_model(option.draft_model)
        mapping = Mapping(tp=smaller_group(small, q), lnc=q.mapping.lnc)
        return decode_step(
            small, q.system, mapping, batch=np.maximum(q.batch / q.mapping.ep, 1), context=q.context, **ask
        )
    head = head_of(q.model, option.drafting)
    return decode_step(head, q.system, replace(q.mapping, pp=1), batch=q.batch, context=q.context, **ask)


def drafting_s(option: Option, step: Step) -> NDArray:
    r"""Time of all drafts of a decode step, which comes to the time of the step that verifies them.

    .. math:: t = \max(p\,t_{draft},\; x - (t_{d+1} - t_1))

    Parameters
    ----------
    option : Option
        A software option. [-]
    step : Step
        The decode step that verifies, of `option.draft_tokens` + 1 new tokens. [-]

    Returns
    -------
    time_s : numpy.ndarray
        Nothing without drafts, and where the printed gain holds them. [s]

    Notes
    -----
    A draft takes :math:`p` passes. :math:`x` is the measured time of a step with its drafts beyond a plain step,
    :math:`t_1`, where one was printed. It is a floor, measured at few sequences: it holds what the host does between
    draft and verification.

    Examples
    --------
    >>> from trnmodel.catalog.options import options
    >>> eagle = options("trainium2", "llama-3.1-8b", "neuron-eagle3-llama-3.1-8b")[0]
    >>> ask = {"batch": 2, "context": 640, "efficiencies": eagle.efficiencies, "new_tokens": 4}
    >>> verify = decode_step("llama-3.1-8b", "trn2.48xlarge", Mapping(tp=8), **ask)
    >>> round(float(drafting_s(eagle, verify)) * 1e3, 2)
    10.02
    """
    if not option.speculates or option.drafting == "included":
        return np.zeros(np.shape(step.time_s))[()]
    drafts_s = option.passes * draft_step(option, step).time_s
    if not option.step_extra_s:
        return drafts_s
    q: Any = step.question
    sizes = q.sizes | {"new_tokens": 1, "expert_read": q.expert_read}
    plain = decode_step(q.model, q.system, q.mapping, precision=q.precision, efficiencies=q.efficiencies, **sizes)
    return np.maximum(drafts_s, option.step_extra_s - (step.time_s - plain.time_s))
