"""Two sizes of scale-up domain compared: what fits, how fast at best, and from which model size the larger one pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, listed, number, numbers
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.fabric.groups import Same, hierarchy
from trnmodel.models.synthetic import synthetic
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.planner.placements import INNER_EXPERTS, columns, named_stack, racks_of
from trnmodel.steps import mapping as parallelism
from trnmodel.steps.inference import decode_step, memory_fit
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd

PAIR = ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160")
ORDERS = (INNER_EXPERTS, ("tp", "cp", "ep", "pp", "dp"))
BATCHES = 64


def capacity(models: Iterable[Transformer], names: Iterable[str | System], precisions: Iterable[str]) -> pd.DataFrame:
    """Weights beside the HBM of a rack and of the domain.

    Returns
    -------
    table : pandas.DataFrame
        model, total_params, precision, system, weight_bytes, hbm_bytes (of the domain), rack_share and domain_share
        (weights, once, over HBM).

    Examples
    --------
    >>> import trnmodel as tm
    >>> capacity([tm.model("deepseek-v3")], ["trn3-nl32x2-pcie160"], ["bf16"]).domain_share.round(3).tolist()
    [0.136]
    """
    import pandas as pd

    rows = []
    chosen, specs = map(read_model, listed("models", models)), map(systems.system, listed("names", names))
    for model, spec, precision in product(chosen, specs, listed("precisions", precisions)):
        weights, hbm = model.weight_bytes(precision), spec.hbm_bytes
        shares = (weights / hbm * racks_of(spec)[0], weights / hbm)
        rows.append((model.id, model.total_params, precision, spec.id, weights, hbm, *shares))
    names = "model total_params precision system weight_bytes hbm_bytes rack_share domain_share"
    return pd.DataFrame(rows, columns=names.split())


def walls(names: Iterable[str | System], precisions: Iterable[str], rates: Iterable[float]) -> pd.DataFrame:
    r"""Sizes of model that a domain cannot pass: by memory, and by what it streams in one step when it reads all once.

    .. math:: P_{fits} = M n / s, \quad P_{streams} = B n / (v s)

    Returns
    -------
    table : pandas.DataFrame
        system, precision, tokens_per_s_per_user (v), streams_params, fits_params; every weight in the experts' width.

    Examples
    --------
    >>> walls(["trn3-nl32x2-pcie160"], ["bf16"], [50]).streams_params.tolist()
    [3136000000000.0]
    """
    import pandas as pd

    specs, wanted = map(systems.system, listed("names", names)), np.ravel(numbers("rates", rates, TINY)).tolist()
    rows = []
    for spec, name, rate in product(specs, listed("precisions", precisions), wanted):
        width = load.precision(name).storage_bytes("experts")
        rows.append((spec.id, name, rate, spec.hbm_bytes_per_s / rate / width, spec.hbm_bytes / width))
    return pd.DataFrame(rows, columns="system precision tokens_per_s_per_user streams_params fits_params".split())


def _extents(spec: System) -> list[int]:
    """Group sizes that fill the tiers of a domain evenly, a chip being a rank."""
    found, whole = {1}, 1
    for tier in hierarchy(Same(spec), int(spec.chip.cores)):
        size = int(tier.size)
        found |= {whole * part for part in range(1, size + 1) if size % part == 0}
        whole *= size
    return sorted(found)


@cache
def _mappings(spec: System) -> tuple[parallelism.Mapping, ...]:
    """All degrees of TP, CP and EP of which each fills tiers evenly, in both orders; copies of the model fill up.

    Where experts or the rest alone are cut the orders are one, and the first has it.
    """
    sizes, found = _extents(spec), []
    nested = [(a, b, c) for a, b, c in product(sizes, repeat=3) if b % a == 0 and c % b == 0]
    chain = np.array(nested, dtype=float)
    degrees = np.stack([chain[:, 0], chain[:, 1] / chain[:, 0], chain[:, 2] / chain[:, 1]])
    for order in ORDERS:
        named = dict(zip(order, degrees, strict=False))
        differs = (named["ep"] > 1) & (named["ep"] < chain[:, 2]) | (order == ORDERS[0])
        columns = {name: degree[differs, None] for name, degree in named.items()}
        copies = spec.domain_chips / chain[differs, 2:]
        found.append(parallelism.Mapping(**columns, dp=copies, lnc=int(spec.chip.cores), placement=order))
    return tuple(found)


def _announced(spec: System) -> bool:
    """Whether a chip as one rank is announced and not yet supported."""
    return site(spec, int(spec.chip.cores)).announced


@cache
def _placements(spec: System) -> tuple[pd.DataFrame, NDArray]:
    """Degrees of all mappings with the group that fills the inner tiers, and the same in words, last none."""
    import pandas as pd

    tables = [
        pd.DataFrame({name: np.ravel(getattr(m, name)) for name in ("tp", "cp", "ep", "dp")}).assign(
            inner=m.placement[0]
        )
        for m in _mappings(spec)
    ]
    table = pd.concat(tables, ignore_index=True)
    rows = table[["ep", "tp", "cp", "dp"]].to_dict("records")
    words = [", ".join(f"{name} {degree:g}" for name, degree in row.items() if degree > 1) for row in rows]
    return table, np.array([*words, ""], dtype=object)


def _batches(model: Transformer, spec: System, m: parallelism.Mapping, ask: dict[str, Any]) -> NDArray:
    """Batches of each mapping, from one sequence of an expert rank to as many as its memory holds."""
    sequences = m.ep * [1, 2]
    fit = memory_fit(model, spec, m, batch=sequences, prompt_tokens=sequences, **ask)
    one, two = fit.total_bytes[..., :1], fit.total_bytes[..., 1:]
    most = np.maximum(1 + (fit.capacity_bytes - one) / (two - one), 1)
    return np.floor(most ** np.linspace(0, 1, BATCHES)) * m.ep


def best(
    model: str | Transformer,
    system: str | System,
    tokens_per_s_per_user: Sequence[float],
    *,
    context: float,
    precision: str = "mxfp8",
    stack: str = "exposed",
) -> pd.DataFrame:
    """Highest throughput of a domain at each rate that a user must have, over batch, degrees and their order.

    Returns
    -------
    table : pandas.DataFrame
        tokens_per_s_per_user, tokens_per_s_per_chip (0 where the rate is out of reach), with tp, cp, ep, dp and inner,
        the group that fills the inner tiers, and announced, where no software of today makes a rank of a chip.

    Examples
    --------
    >>> table = best("deepseek-v3", "trn3-nl32x2-pcie160", [50], context=8192)
    >>> table[["tp", "cp", "ep", "dp"]].iloc[0].tolist()
    [1.0, 1.0, 32.0, 2.0]
    """
    wanted = np.atleast_1d(numbers("tokens_per_s_per_user", tokens_per_s_per_user))
    ask = {"precision": precision, "efficiencies": named_stack(stack)}
    spec = systems.system(system)
    rate, place = _best(read_model(model), spec, wanted, [number("context", context, 1)], ask)
    table = _placements(spec)[0].iloc[place[0]].reset_index(drop=True)
    found = {"tokens_per_s_per_user": wanted, "tokens_per_s_per_chip": rate[0]}
    return table.assign(**found, announced=_announced(spec))


def _best(
    model: Transformer, spec: System, wanted: NDArray, contexts: Sequence[float], ask: dict[str, Any]
) -> tuple[NDArray, NDArray]:
    """Highest throughput a chip of each context at each rate, and the number of the placement that gives it."""
    ask = ask | {"context": np.reshape(contexts, (-1, 1, 1))}
    rates = []
    for m in _mappings(spec):
        step = decode_step(model, spec, m, batch=_batches(model, spec, m, ask), **ask)
        found = columns(step, spec.chips)
        rates.append(_at(wanted, found["tokens_per_s_per_user"], found["tokens_per_s_per_chip"]))
    every = np.concatenate(rates, axis=1)
    return every.max(axis=1), every.argmax(axis=1)


def _at(wanted: NDArray, user: NDArray, chip: NDArray) -> NDArray:
    """Throughput at a user's rates, on a last axis in the place of that of batches, in between of which it is linear.

    It is 0 beyond the fastest batch, and beyond the slowest that of the largest one that fits.
    """
    fits = np.isfinite(user).sum(axis=-1, keepdims=True)
    faster = (user[..., None, :] >= wanted[:, None]).sum(axis=-1)  # batches that are fast enough: the first ones
    slow = np.clip(faster, 0, np.maximum(fits - 1, 0))
    fast = np.maximum(slow - 1, 0)
    x, y = ([np.take_along_axis(values, place, -1) for place in (slow, fast)] for values in (user, chip))
    slope = np.divide(y[1] - y[0], x[1] - x[0], out=np.zeros_like(x[0]), where=x[1] > x[0])
    between = np.where(faster < fits, slope * (wanted - x[0]) + y[0], y[0])
    return np.where(faster > 0, between, 0.0)


def ratios(
    rules: Iterable[str],
    sizes: Iterable[float],
    *,
    rates: Sequence[float],
    precisions: Iterable[str],
    contexts: Iterable[float],
    stacks: Iterable[str] = ("exposed",),
    base: str = "deepseek-v3",
    pair: tuple[str, str] = PAIR,
) -> pd.DataFrame:
    """Best throughput a chip of two domains at the same tokens/s a user, over synthetic models.

    Returns
    -------
    table : pandas.DataFrame
        rule, total_params, precision, context, software, tokens_per_s_per_user, small_ and large_tokens_per_s_per_chip,
        ratio (infinite where only the larger domain reaches the rate, NaN where neither does), small_placement,
        large_placement, announced (where a chip is no rank of today on either).

    Examples
    --------
    >>> ask = {"rates": [20], "precisions": ["bf16"], "contexts": [8192]}
    >>> ratios(["experts"], [1e12, 6e12], **ask).ratio.round(1).tolist()
    [1.0, inf]
    """
    import pandas as pd

    numbers("rates", rates), numbers("sizes", sizes), numbers("contexts", contexts, 1)
    lists = {"rules": rules, "sizes": sizes, "precisions": precisions, "contexts": contexts, "stacks": stacks}
    given = [listed(*pair) for pair in lists.items()]
    rules, sizes, precisions, contexts, stacks = given
    found: dict[tuple, list[tuple[NDArray, NDArray]]] = {}
    specs = [systems.system(name) for name in pair]
    for rule, size, precision, stack in product(rules, sizes, precisions, stacks):
        model, ask = synthetic(size, rule, base), {"precision": precision, "efficiencies": named_stack(stack)}
        both = [zip(*_best(model, spec, np.asarray(rates), contexts, ask), strict=True) for spec in specs]
        found |= {(rule, size, precision, context, stack): two for context, *two in zip(contexts, *both, strict=True)}
    cases = list(product(*given))
    table = pd.DataFrame([(*case, rate) for case in cases for rate in rates], columns=GIVEN)
    placements = {}
    for at, (name, spec) in enumerate(zip(("small", "large"), specs, strict=True)):
        rate, place = map(np.concatenate, zip(*(found[case][at] for case in cases), strict=True))
        table[f"{name}_tokens_per_s_per_chip"] = rate
        placements[f"{name}_placement"] = _placements(spec)[1][np.where(rate > 0, place, -1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = table.large_tokens_per_s_per_chip / table.small_tokens_per_s_per_chip
    return table.assign(ratio=ratio, **placements, announced=any(map(_announced, specs)))


GIVEN = ["rule", "total_params", "precision", "context", "software", "tokens_per_s_per_user"]
CASE = ["software", "precision", "context", "tokens_per_s_per_user", "rule"]


def verdicts(table: pd.DataFrame, threshold: float, enough_up_to: float, pays_from: float) -> pd.DataFrame:
    """A table of ratios beside the claim that the small domain is enough up to one size and the large pays from one.

    Returns
    -------
    table : pandas.DataFrame
        software, precision, context, tokens_per_s_per_user, rule; pays_from_params (smallest size with at least the
        threshold, NaN where none has), verdict: "agrees"; "earlier" where it pays below already; "later" where not
        at every size above; "no rate" where neither domain reaches the rate at sizes on either side.
    """
    import pandas as pd

    cases, sizes = table[CASE].drop_duplicates(ignore_index=True), np.sort(table.total_params.unique())
    ratio = np.full((len(cases), len(sizes)), np.nan)
    place = table.groupby(CASE, sort=False).ngroup()
    ratio[place, np.searchsorted(sizes, table.total_params)] = table.ratio
    pays, known = ratio >= threshold, ~np.isnan(ratio)
    below, above = sizes <= enough_up_to, sizes >= pays_from
    unknown = ~known[:, below].all(axis=1) | ~known[:, above].any(axis=1)
    holds = (pays | ~known)[:, above].all(axis=1)
    verdict = np.select([pays[:, below].any(axis=1), unknown, holds], ["earlier", "no rate", "agrees"], "later")
    first = np.where(pays.any(axis=1), sizes[pays.argmax(axis=1)], np.nan)
    return pd.concat([cases, pd.DataFrame({"pays_from_params": first, "verdict": verdict})], axis="columns")
