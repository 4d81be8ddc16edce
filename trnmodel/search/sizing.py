"""What memory holds: the largest batch, the longest context, and the fewest chips of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from trnmodel.arguments import integers, listed, number, numbers, refuse
from trnmodel.catalog import load
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.steps.assemble import FIRST_BUCKET
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.legal import most_tokens
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.rank import site
from trnmodel.units import GIB, format_digits

if TYPE_CHECKING:
    import pandas as pd

MOST_CONTEXTS = 1000  # points of the search for the longest context


def largest_batch(d: Deployment, contexts: ArrayLike, tps: Iterable[int]) -> pd.DataFrame:
    """Sequences of each context that a replica holds, by TP; 0 where not even one fits.

    Memory grows by the same bytes with each sequence of an expert-parallel rank, all of which hold as many.

    Returns
    -------
    table : pandas.DataFrame
        tp, context, batch, batch_per_chip, stack, basis. [-]
    """
    at = np.atleast_1d(numbers("contexts", contexts, 1))
    at = at[at <= most_tokens(read_model(d.model))]
    if not at.size:
        refuse("contexts", contexts, f"all are beyond the longest context of {read_model(d.model).id}")
    rows, per_chip, ep = [], site(d.system, d.mapping.lnc).ranks_per_chip, float(d.mapping.ep)
    for tp in integers("tps", tps):
        one, two = d.fit(ep, at, tp=tp), d.fit(2 * ep, at, tp=tp)
        taken = one.room_bytes - two.room_bytes
        more = one.room_bytes / np.where(taken > 0, taken, np.inf)
        batch = np.where(one.valid, ep * (1 + np.floor(more)), 0)
        chips = np.ceil(tp * float(d.mapping.replica_ranks / d.mapping.tp) / per_chip)
        held = {"tp": tp, "context": at, "batch": batch, "batch_per_chip": batch / chips}
        rows.append(held | {"stack": one.stack.id, "basis": one.basis})
    return tidy(rows)


def longest_context(
    d: Deployment, batches: ArrayLike, tps: Iterable[int], input_tokens: float | None = None
) -> pd.DataFrame:
    """Return the longest context that fits, by TP and batch, in steps of the smallest bucket; 0 where none fits.

    Returns
    -------
    table : pandas.DataFrame
        tp, batch, context, most (the model's longest context), basis. [-]
    """
    m = read_model(d.model)
    if not m.max_context:
        refuse("model", m.id, "its configuration names no longest context")
    step = FIRST_BUCKET * np.ceil(m.max_context / FIRST_BUCKET / MOST_CONTEXTS)
    contexts = np.append(np.arange(step, m.max_context, step), m.max_context)
    prompt = None if input_tokens is None else np.minimum(number("input_tokens", input_tokens, 1), contexts)
    batch, rows = np.atleast_1d(numbers("batches", batches, 1)), []
    for tp in integers("tps", tps):
        one = d.fit(batch[:, None], contexts, prompt, tp=tp)
        longest = np.where(one.valid, contexts, 0).max(axis=1)
        rows.append({"tp": tp, "batch": batch, "context": longest, "most": m.max_context, "basis": one.basis})
    return tidy(rows)


def across(d: Deployment, systems: Iterable[str], precisions: Iterable[str], contexts: ArrayLike) -> pd.DataFrame:
    """Return the largest batch by system and precision, on as many chips as the deployment, at each chip's own LNC.

    Each is on its chip's own stack, or all are on the ideal one where the deployment is.

    Returns
    -------
    table : pandas.DataFrame
        system, precision, tp, context, batch, stack, basis. [-]
    """
    import pandas as pd

    chips, frames = np.ceil(float(d.mapping.tp) / site(d.system, d.mapping.lnc).ranks_per_chip), []
    wanted, stack = listed("precisions", precisions), d.e.word
    for name in listed("systems", systems):
        tp = int(chips * site(name, None).ranks_per_chip)
        for precision in wanted:
            one = replace(d, system=name, precision=precision, mapping=Mapping(tp=tp), stack=stack)
            frames.append(largest_batch(one, contexts, [tp]).assign(system=name, precision=precision))
    return pd.concat(frames, ignore_index=True)["system precision tp context batch stack basis".split()]


def smallest(
    models: Iterable[str], systems: Iterable[str], precisions: Iterable[str], batch: float, context: float
) -> pd.DataFrame:
    """Return the fewest chips that hold a model and a batch, over TP and, for experts, EP in powers of two.

    Returns
    -------
    table : pandas.DataFrame
        model, system, precision, chips (NaN where the system is too small), tp, ep, floor_chips (bytes of weights and
        cache over the HBM of a chip), system_chips, fill (of the fullest rank), stack, basis.

    Examples
    --------
    >>> table = smallest(["llama-3.1-8b"], ["trn2.48xlarge"], ["bf16"], 1, 2048)
    >>> table[["chips", "tp"]].iloc[0].tolist()
    [1.0, 1.0]
    """
    batch, context = number("batch", batch, 1), number("context", context, 1)
    lists = {"models": models, "systems": systems, "precisions": precisions}
    return tidy(
        _smallest(Deployment(model=name, system=where, mapping=Mapping(), precision=precision), batch, context)
        for name, where, precision in product(*(listed(name, values) for name, values in lists.items()))
    )


def _smallest(d: Deployment, batch: float, context: float) -> dict[str, Any]:
    where, m, domain_chips = site(d.system, None), read_model(d.model), read_system(d.system).domain_chips
    ranks = domain_chips * where.ranks_per_chip
    powers = np.exp2(np.arange(np.floor(np.log2(ranks)) + 1))
    tp, ep = powers[:, None], powers[powers <= (batch if m.outline().experts else 1)]
    fit = d.fit(batch, context, tp=tp, ep=ep)
    used = np.where(fit.valid & (tp * ep <= ranks), tp * ep, np.inf)
    best = np.unravel_index(used.argmin(), used.shape)
    fits = np.isfinite(used[best])
    stored = sum(needed_bytes(d, batch, context).values())
    return {
        "model": m.id,
        "system": d.system,
        "precision": d.precision,
        "chips": float(np.ceil(used[best] / where.ranks_per_chip)) if fits else np.nan,
        "tp": powers[best[0]] if fits else np.nan,
        "ep": ep[best[1]] if fits else np.nan,
        "floor_chips": float(np.ceil(stored / where.chip.hbm_bytes)),
        "system_chips": domain_chips,
        "fill": float((fit.first_rank_total_bytes / fit.first_rank_capacity_bytes)[best]) if fits else np.nan,
        "stack": fit.stack.id,
        "basis": fit.basis,
    }


def shortfall(d: Deployment, batch: float, context: float) -> str:
    """Why a decode step cannot exist, and by how much it does not fit; empty where it can.

    Examples
    --------
    >>> big = Deployment(model="llama-3.1-405b", system="trn2.48xlarge", mapping=Mapping(tp=1))
    >>> shortfall(big, 16, 4096), shortfall(replace(big, model="llama-3.1-8b"), 1, 4096)
    ('does not fit: 791 of 24 GiB per rank', '')
    """
    fit = d.fit(batch, context)
    need, have = (format_digits(float(x) / GIB, 3) for x in (fit.total_bytes, fit.capacity_bytes))
    why = str(d.decode(batch=batch, context=context, max_context=context).reason)
    return why.replace("does not fit in memory", f"does not fit: {need} of {have} GiB per rank")


def remedy(d: Deployment, batch: float, context: float) -> str:
    """Return the degrees that hold a deployment on the fewest chips of its system, in words.

    Examples
    --------
    >>> remedy(Deployment(model="llama-3.1-405b", system="trn2.48xlarge", mapping=Mapping(tp=1)), 16, 4096)
    'tp = 64 holds it'
    """
    smallest = _smallest(d, batch, context)
    if np.isnan(smallest["chips"]):
        return "no tp and ep hold it there"
    experts = f" with ep = {smallest['ep']:g}" if smallest["ep"] > 1 else ""
    return f"tp = {smallest['tp']:g}{experts} holds it"


def needed_bytes(d: Deployment, batch: float, context: float) -> dict[str, float]:
    """Return the bytes of the weights, held once, and of the cache of all sequences."""
    m = read_model(d.model)
    cache = batch * (m.kv_bytes(context, load.precision(d.precision).kv) + m.state_bytes())
    return {"weights": float(m.weight_bytes(d.precision)), "cache": float(cache)}
