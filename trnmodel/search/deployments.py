"""Deployments beside each other: frontiers over degrees and batch, full load, drafts, prefill on other machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.arguments import UnanswerableError, integers, listed, number, numbers, refuse
from trnmodel.catalog import load
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import latency
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import alike, stacked, tidy
from trnmodel.serving.server import disaggregate, tokens_per_step
from trnmodel.steps.answers import Step
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import decode_step
from trnmodel.steps.legal import legal
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from trnmodel.catalog.specs import Precision
    from trnmodel.catalog.stacks import Efficiencies

PER_RANK = np.unique(np.round(np.exp2(np.arange(0.0, 11.25, 0.25))))


def _powers(ranks: float) -> NDArray:
    """Powers of two up to a number of ranks."""
    return np.exp2(np.arange(np.floor(np.log2(ranks)) + 1))


def tensor_degrees(system: str | System) -> NDArray:
    """Degrees of TP that are tried: powers of two, and what else the chip's runtime supports, up to all ranks.

    Examples
    --------
    >>> tensor_degrees("inf2.48xlarge").tolist()
    [1.0, 2.0, 4.0, 8.0, 16.0, 24.0]
    """
    at = site(system)
    ranks = at.chips * at.ranks_per_chip
    more = [degree for degree in at.chip.tensor_degrees if degree <= ranks]
    return np.union1d(_powers(ranks), more)


def expert_degrees(system: str | System, model: str | Transformer) -> NDArray:
    """Powers of two of EP, up to the experts of the model; 1 alone for a dense one."""
    at = site(system)
    return _powers(min(at.chips * at.ranks_per_chip, max(read_model(model).outline().experts, 1)))


def tried(model: str | Transformer, system: str | System, **question: Any) -> Step:
    """Return a decode step at all batches (first axis) and all degrees of TP and EP that the system has ranks for.

    This is THE search of the planner: what picks one of its points asks nothing else. Each expert-parallel rank has at
    least one sequence.
    """
    tp, ep = (x.ravel() for x in np.meshgrid(tensor_degrees(system), expert_degrees(system, model), indexing="ij"))
    mapping = Degrees(tp=tp[tp * ep <= tp.max()], ep=ep[tp * ep <= tp.max()])
    return decode_step(model, system, mapping, batch=PER_RANK[:, None] * mapping.ep, **question)


def unbeaten(step: Step) -> NDArray:
    """Places of the valid points that no other beats in both a user's speed and throughput a chip, the fastest last."""
    user, chip = (np.ravel(x) for x in (step.tokens_per_s_per_user, step.tokens_per_s_per_chip))
    order = np.argsort(-user, kind="stable")[: np.count_nonzero(step.valid)]  # NaN, of what cannot be, comes last
    user, chip = user[order], chip[order]
    again = (np.diff(user, prepend=np.nan) == 0) & (np.diff(chip, prepend=np.nan) == 0)
    return order[(chip == np.maximum.accumulate(chip)) & ~again][::-1]


def frontier(model: str | Transformer, system: str | System, points: int | None = None, **question: Any) -> Step | None:
    """Return the step at the points of `tried` that no other beats, the fastest for a user last; None for no point.

    Of many, so many `points` may be kept, the ends among them, spread evenly over the logarithm of a user's speed.
    """
    every = tried(model, system, **question)
    at = unbeaten(every)
    if not len(at):
        return None
    if points is not None:
        at = at[spread_evenly(np.ravel(every.tokens_per_s_per_user)[at], points)]
    tp, ep, batch = (np.broadcast_to(x, every.time_s.shape).ravel()[at] for x in (every.tp, every.ep, every.batch))
    return decode_step(model, system, Degrees(tp=tp, ep=ep), batch=batch, **question)


def spread_evenly(values: ArrayLike, points: int) -> NDArray:
    """Places of at most so many of increasing values, the ends among them, evenly over the logarithm.

    Examples
    --------
    >>> spread_evenly([1.0, 2.0, 3.0, 4.0, 16.0], 3).tolist()
    [0, 3, 4]
    """
    logs = np.log(np.asarray(values, dtype=float))
    wanted = np.linspace(logs[0], logs[-1], points)
    return np.unique(np.abs(logs[:, None] - wanted).argmin(axis=0))


def computes(system: str | System, precision: str | Precision) -> bool:
    """Whether a system's chip has a peak in the compute dtype of a precision."""
    return load.precision(precision).compute in read_system(system).chip.peak_flop_per_s


def formats(systems: Iterable[str], precisions: Sequence[str]) -> dict[str, str]:
    """Return, by system, the first precision of a list in whose compute dtype its chip has a peak.

    Examples
    --------
    >>> formats(["trn3-nl72x2-pcie160", "hgx-h200", "hgx-a100"], ["mxfp8", "fp8", "bf16"])
    {'trn3-nl72x2-pcie160': 'mxfp8', 'hgx-h200': 'fp8', 'hgx-a100': 'bf16'}
    """
    found = {}
    for name in listed("systems", systems):
        usable = [one for one in listed("precisions", precisions) if computes(name, one)]
        if not usable:
            why = f"{name} computes in none of them, but in {', '.join(read_system(name).chip.peak_flop_per_s)}"
            raise UnanswerableError(f"precisions={list(precisions)}: {why}")
        found[name] = usable[0]
    return found


def frontiers(
    model: str | Transformer,
    systems: Iterable[str | System],
    context: float,
    precisions: Sequence[str] = ("bf16",),
    efficiencies: str | Efficiencies | None = None,
    max_context: float | None = None,
) -> pd.DataFrame:
    """Return the points that no other batch and mapping beats, by system and precision.

    A pair that cannot exist has no rows.

    Parameters
    ----------
    efficiencies : str or Efficiencies, optional
        Software stack of all systems; default each chip's own. [-]
    max_context : float, optional
        Longest context that graphs are compiled for; default no end. [token]

    Returns
    -------
    table : pandas.DataFrame
        system, precision, tp, ep, batch, tokens_per_s_per_user, tokens_per_s_per_chip with `_low` and `_high`, bound,
        network_share, measured_share (of the time, on constants fitted to rows of the chip), stack, stack_kind,
        basis. [-]

    Notes
    -----
    Powers of two of TP and EP; each expert-parallel rank has at least one sequence.
    """
    import pandas as pd

    names = "system precision tp ep batch tokens_per_s_per_user tokens_per_s_per_chip".split()
    names += ["tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high", "bound", "network_share", "measured_share"]
    names += ["stack", "stack_kind", "basis"]
    frames = []
    for system, precision in product(listed("systems", systems), listed("precisions", precisions)):
        if computes(system, precision):
            ask: dict[str, Any] = {"context": context, "precision": precision, "max_context": max_context}
            if (step := frontier(model, system, efficiencies=efficiencies, **ask)) is not None:
                more = {"precision": precision, "network_share": step.network_s / step.time_s}
                frames.append(step.to_frame().assign(**more, **step.banded("tokens_per_s_per_chip")))
    empty = [pd.DataFrame(columns=names)]
    return alike(pd.concat(frames or empty, ignore_index=True)[names])


def in_formats(model: str | Transformer, chosen: Mapping[str, str], context: float, **more: Any) -> pd.DataFrame:
    """`frontiers` of systems that are each in a precision of their own, such as `formats` gives."""
    import pandas as pd

    found = [frontiers(model, [name], context, [precision], **more) for name, precision in chosen.items()]
    return pd.concat([one for one in found if len(one)] or found, ignore_index=True)


def at_interactivity(table: pd.DataFrame, tokens_per_s_per_user: Iterable[float]) -> pd.DataFrame:
    """Return the point with the most throughput of each system and precision that is fast enough for a user."""
    import pandas as pd

    rows = []
    for wanted in np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user)).tolist():
        for (system, precision), line in table.groupby(["system", "precision"], sort=False):
            enough = line[line.tokens_per_s_per_user >= wanted]
            best = enough.loc[enough.tokens_per_s_per_chip.idxmax()].to_dict() if len(enough) else {}
            rows.append(best | {"wanted_tokens_per_s_per_user": wanted, "system": system, "precision": precision})
    names = ["wanted_tokens_per_s_per_user", *table.columns]
    return pd.DataFrame(rows).reindex(columns=names)


MODES: Mapping[str, Mapping[str, Any]] = {
    "compiled batch": {"batching": "continuous", "compiled": True},
    "batch as needed": {"batching": "continuous", "compiled": False},
    "static batch": {"batching": "static"},
}


def saturation(d: Deployment, max_batch: float, input_tokens: float, output_tokens: float) -> pd.DataFrame:
    r"""Return the rates that fill each mode of batching: requests/s, tokens/s, and tokens/s per chip.

    .. math:: \lambda_{cont} = \frac{B}{o\,t(B) + B\,P}, \qquad \lambda_{static} = \frac{B}{P(B) + (o - 1)\,t(B)}

    Each with the least and the most (`_low`, `_high`) of steps and prompts that are all as slow or as fast as the ends
    of their 90 % intervals.
    """
    import pandas as pd

    max_batch, output_tokens = number("max_batch", max_batch, 1), number("output_tokens", output_tokens, 1)
    input_tokens = number("input_tokens", input_tokens, 1)
    middle, longest = input_tokens + output_tokens / 2, input_tokens + output_tokens
    step = d.decode(batch=max_batch, context=middle, max_context=longest).require_valid()
    prompt = d.prefill(input_tokens=input_tokens, batch=np.array([1.0, max_batch]), max_context=longest)
    step_s = np.array([step.time_s, step.high, step.low])
    one_s, all_s = np.array([prompt.time_s, prompt.high, prompt.low]).T
    full = {
        "continuous": latency.full_requests_per_s(max_batch, output_tokens, step_s, 1.0, one_s),
        "static": max_batch / (all_s + (output_tokens - 1) * step_s),
    }
    ends = np.array([d.mapping.dp * full[how["batching"]] for how in MODES.values()]).T
    per_request = {"requests_per_s": 1.0, "generated_tokens_per_s": output_tokens}
    per_request["generated_tokens_per_s_per_chip"] = output_tokens / d.chips
    rates = {
        name + end: many * rate
        for name, many in per_request.items()
        for end, rate in zip(("", "_low", "_high"), ends, strict=True)
    }
    return pd.DataFrame({"mode": list(MODES)} | rates).assign(basis=d.basis(max_batch, input_tokens, middle))


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
        if not computes(system, d.precision):
            continue
        tp = tensor_degrees(system)
        found = disaggregate(d.model, system, Degrees(tp=tp), d.system, d.mapping, **ask)
        table = found.to_frame().assign(prefill_system=system, prefill_tp=tp)
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
    asked = {
        tokens: split_phases(d, prefill_systems, batch, input_tokens, tokens)
        for tokens in np.ravel(numbers("output_tokens", output_tokens, 1))
    }
    return stacked(asked, "output_tokens")
