"""Deployments beside each other: full load, drafts, prefill on other machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import integers, listed, number, numbers, refuse
from trnmodel.catalog import load
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import latency
from trnmodel.models.transformer import Transformer
from trnmodel.result import stacked, tidy
from trnmodel.search.grid import computes, in_own_format, tensor_degrees
from trnmodel.serving.account import paid_chips
from trnmodel.serving.server import disaggregate, tokens_per_step
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.ground import joint_basis
from trnmodel.steps.legal import legal
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.request import Request, one_request

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike


MODES: Mapping[str, Mapping[str, Any]] = {
    "compiled batch": {"batching": "continuous", "compiled": True},
    "batch as needed": {"batching": "continuous", "compiled": False},
    "static batch": {"batching": "static"},
}


def saturation(d: Deployment, max_batch: float, request: Request) -> pd.DataFrame:
    """Return the load that fills each mode of batching: requests/s, tokens/s, and tokens/s per chip.

    Each with the least and the most (`_low`, `_high`) of steps and prompts that are all as slow or as fast as the ends
    of their 90 % intervals.
    """
    import pandas as pd

    max_batch, request = number("max_batch", max_batch, 1), one_request("request", request)
    step = d.decode(batch=max_batch, context=request.mean_context, max_context=request.longest_context).require_valid()
    ask: dict[str, Any] = {"input_tokens": request.new_tokens, "past": request.past_tokens}
    prompts = (d.mapping.ep * d.mapping.pp, np.asarray(max_batch))
    together, every = (d.prefill(batch=n, max_context=request.longest_context, **ask) for n in prompts)
    ends = [(one.time_s, one.high, one.low) for one in (step, together, every)]
    step_s, together_s, all_s = (np.array([float(x) for x in times]) for times in ends)
    full = {
        "continuous": latency.full_requests_per_s(
            max_batch, request.output_tokens, step_s, 1.0, together_s / prompts[0]
        ),
        "static": max_batch / (all_s + (request.output_tokens - 1) * step_s),
    }
    rates = np.array([d.mapping.dp * full[how["batching"]] for how in MODES.values()]).T
    paid = paid_chips(read_system(d.system), np.asarray(d.chips))
    per_request = {"requests_per_s": 1.0, "generated_tokens_per_s": request.output_tokens}
    per_request["generated_tokens_per_s_per_chip"] = request.output_tokens / paid
    columns = {
        name + end: many * rate
        for name, many in per_request.items()
        for end, rate in zip(("", "_low", "_high"), rates, strict=True)
    }
    basis = joint_basis(together, step).word
    return pd.DataFrame({"mode": list(MODES)} | columns).assign(basis=basis)


def drafting(d: Deployment, draft_model: str | Transformer) -> Deployment:
    """Deployment of a draft model on the ranks of one tensor-parallel group, or on fewer where its heads ask for it.

    Examples
    --------
    >>> d = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Degrees(tp=64))
    >>> float(drafting(d, "llama-3.2-1b").mapping.tp)  # it has 32 heads
    32.0
    """
    degrees = tensor_degrees(d.system)
    mappings = Degrees(tp=degrees[degrees <= d.mapping.tp], lnc=d.mapping.lnc)
    runs = legal(draft_model, d.system, mappings, efficiencies=d.e).valid  # one rank always does
    return replace(d, model=draft_model, mapping=Degrees(tp=mappings.tp[runs].max(), lnc=d.mapping.lnc))


def drafts(
    d: Deployment, draft_model: str, batch: float, context: float, draft_tokens: Sequence[int], acceptance: ArrayLike
) -> pd.DataFrame:
    r"""Speed of speculative decoding over plain decoding, by length of the draft and acceptance rate.

    .. math:: S = \frac{E(d, a)\; t(1)}{t(d + 1) + d\; t_{draft}}

    Returns
    -------
    table : pandas.DataFrame
        draft_tokens, acceptance, tokens_per_step, step_s (verify and draft), speedup, basis. [-]

    Notes
    -----
    The draft model runs on the ranks of one tensor-parallel group, one step for each token.
    """
    plain_s = d.decode(batch=batch, context=context).require_valid().time_s
    small = drafting(d, draft_model)
    draft_s = small.decode(batch=np.maximum(batch / d.mapping.ep, 1), context=context).require_valid().time_s
    share = np.atleast_1d(numbers("acceptance", acceptance, 0.0, 1.0))
    rows = []
    for n in integers("draft_tokens", draft_tokens):
        verify = d.decode(batch=batch, context=context, new_tokens=n + 1)
        step_s = float(verify.time_s + n * draft_s)
        made = tokens_per_step(n, share)
        columns = {"acceptance": share, "tokens_per_step": made, "step_s": step_s, "speedup": made * plain_s / step_s}
        rows.append({"draft_tokens": n, **columns, "basis": verify.basis})
    return tidy(rows)


def _differs(system: str | System, precision: str | Precision) -> bool:
    """Whether a system's chip has a 4-bit format of its own, in which it would prefill for another format's decode."""
    return in_own_format(precision, read_system(system).chip).compute != load.precision(precision).compute


def split_phases(
    d: Deployment,
    prefill_systems: Iterable[str],
    batch: float,
    input_tokens: float,
    output_tokens: float,
) -> pd.DataFrame:
    """Prefill on machines of their own, each at the tensor-parallel degree that yields the most tokens a chip.

    Prefill is on the stack of each chip, on the ideal one where decode is.

    Returns
    -------
    table : pandas.DataFrame
        prefill_system, tp, times, transfer_bytes, the ratios at which neither side waits, tokens_per_s_per_chip,
        prefill_stack, basis. [-]
    """
    import pandas as pd

    ask: dict[str, Any] = {
        "batch": batch,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "precision": d.precision,
        "prefill_efficiencies": d.e.word,
        "decode_efficiencies": d.e,
    }
    rows = []
    for system in listed("prefill_systems", prefill_systems):
        if not computes(system, d.precision) or _differs(system, d.precision):
            continue
        tp = tensor_degrees(system)
        apart = disaggregate(d.model, system, Degrees(tp=tp), d.system, d.mapping, **ask)
        table = apart.to_frame().assign(prefill_system=system, prefill_tp=tp)
        rows.append(table[table.valid].nlargest(1, "tokens_per_s_per_chip"))
    if not rows:
        refuse("prefill_systems", prefill_systems, f"none of their chips computes in {d.precision}")
    table = pd.concat(rows, ignore_index=True)
    times = table[["prefill_s", "transfer_s", "transfer_bytes", "step_s", "ttft_s"]]
    rates = table[["prefill_chips_per_decode_chip", "tokens_per_s_per_chip", "prefill_stack", "basis"]]
    return pd.concat([table[["prefill_system", "prefill_tp"]], times, rates], axis="columns")


def ratios(
    d: Deployment,
    prefill_systems: Iterable[str],
    batch: float,
    input_tokens: float,
    output_tokens: Iterable[float],
) -> pd.DataFrame:
    """`split_phases` over the length of the answers, below each other with `output_tokens`."""
    tables = {
        tokens: split_phases(d, prefill_systems, batch, input_tokens, tokens)
        for tokens in np.ravel(numbers("output_tokens", output_tokens, 1))
    }
    return stacked(tables, "output_tokens")
