"""Two sizes of scale-up domain: what fits, the highest speed, and from which model size the larger pays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnbook.shared.placements import INNER_EXPERTS, named_stack, racks_of
from trnmodel.arguments import TINY, Same, listed, numbers
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.fabric.groups import hierarchy
from trnmodel.models.synthetic import synthetic
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.steps import mapping as parallelism
from trnmodel.steps.inference import decode_step
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd

PAIR = ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160")
ORDERS = (INNER_EXPERTS, ("tp", "cp", "ep", "pp", "dp"))
BATCHES = 64


def capacity(models: Iterable[Transformer], names: Iterable[str | System], precisions: Iterable[str]) -> pd.DataFrame:
    """Compare weights with the HBM of a rack and of the domain.

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
    r"""Return the largest model of a domain: by memory, and by the bytes it reads once per step.

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
    """Return the group sizes that fill the tiers of a domain evenly, with a chip as a rank."""
    sizes, whole = set[int](), 1
    for tier in hierarchy(Same(spec), int(spec.chip.cores)):
        size = int(tier.size)
        sizes |= {whole * part for part in range(1, size + 1) if size % part == 0}
        whole *= size
    return sorted(sizes)


@cache
def _mappings(spec: System) -> tuple[parallelism.Mapping, ...]:
    """Return all degrees of TP, CP and EP that fill tiers evenly, in both orders; copies fill the rest.

    Where both orders are the same mapping, only the first has it.
    """
    sizes, mappings = _extents(spec), []
    nested = [(a, b, c) for a, b, c in product(sizes, repeat=3) if b % a == 0 and c % b == 0]
    chain = np.array(nested, dtype=float)
    degrees = np.stack([chain[:, 0], chain[:, 1] / chain[:, 0], chain[:, 2] / chain[:, 1]])
    for order in ORDERS:
        named = dict(zip(order, degrees, strict=False))
        differs = (named["ep"] > 1) & (named["ep"] < chain[:, 2]) | (order == ORDERS[0])
        columns = {name: degree[differs, None] for name, degree in named.items()}
        copies = spec.domain_chips / chain[differs, 2:]
        mappings.append(parallelism.Mapping(**columns, dp=copies, lnc=int(spec.chip.cores), placement=order))
    return tuple(mappings)


@cache
def placed(spec: System) -> pd.DataFrame:
    """Return the degrees of all mappings with the innermost group, and their labels."""
    degrees = [
        {name: np.ravel(getattr(m, name)) for name in ("ep", "tp", "cp", "dp")} | {"inner": m.placement[0]}
        for m in _mappings(spec)
    ]
    table = tidy(degrees)
    rows = table.drop(columns="inner").to_dict("records")
    labels = [", ".join(f"{name} {degree:g}" for name, degree in row.items() if degree > 1) for row in rows]
    return table.assign(label=labels)


def _batches(model: Transformer, spec: System, m: parallelism.Mapping, ask: dict[str, Any]) -> NDArray:
    """Return batches per mapping, from one sequence per expert rank to as many as its memory holds."""
    sequences = m.ep * [1, 2]
    stored_bytes = decode_step(model, spec, m, batch=sequences, **ask).memory_bytes_per_rank
    one, two, at = stored_bytes[..., :1], stored_bytes[..., 1:], site(spec, m.lnc)
    most = np.fmax(1 + (at.hbm_bytes / at.sharing(m.ranks) - one) / (two - one), 1)  # 1 where two do not fit
    return np.floor(most ** np.linspace(0, 1, BATCHES)) * m.ep


def best(
    model: Transformer, spec: System, wanted: NDArray, contexts: Sequence[float], precision: str, stack: str
) -> tuple[NDArray, NDArray]:
    """Return the highest throughput per chip at each context and speed per user; 0 where it is not reached.

    The search runs over batch, degrees and their order; the second answer is the row of `placed` that gives it.

    Examples
    --------
    >>> import trnmodel as tm
    >>> spec = tm.system("trn3-nl32x2-pcie160")
    >>> place = best(tm.model("deepseek-v3"), spec, np.array([50.0]), [8192], "mxfp8", "exposed")[1]
    >>> placed(spec).label[place[0, 0]]
    'ep 32, dp 2'
    """
    ask: dict[str, Any] = {"precision": precision, "efficiencies": named_stack(stack)}
    ask, rates = ask | {"context": np.reshape(contexts, (-1, 1, 1))}, list[NDArray]()
    for m in _mappings(spec):
        step = decode_step(model, spec, m, batch=_batches(model, spec, m, ask), **ask)
        rates.append(_at(wanted, step.tokens_per_s_per_user, step.tokens_per_s / spec.chips))
    every = np.concatenate(rates, axis=1)
    return every.max(axis=1), every.argmax(axis=1)


def _at(wanted: NDArray, user: NDArray, chip: NDArray) -> NDArray:
    """Interpolate throughput over batches at the speeds per user.

    It is 0 beyond the fastest batch; below the slowest it is that of the largest batch that fits.
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
    """Compare the best throughput per chip of two domains at equal tokens/s per user, over synthetic models.

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
    wanted = np.atleast_1d(numbers("rates", rates))
    numbers("sizes", sizes), numbers("contexts", contexts, 1)
    lists = {"rules": rules, "sizes": sizes, "precisions": precisions, "contexts": contexts, "stacks": stacks}
    rules, sizes, precisions, contexts, stacks = (listed(*pair) for pair in lists.items())
    specs = {name: systems.system(one) for name, one in zip(("small", "large"), pair, strict=True)}
    grid = np.meshgrid(contexts, np.array(stacks, dtype=object), wanted, indexing="ij")
    axes = dict(zip(("context", "software", "tokens_per_s_per_user"), map(np.ravel, grid), strict=True))
    rows = list[dict[str, Any]]()
    for rule, size, precision in product(rules, sizes, precisions):
        model = synthetic(size, rule, base)
        rows.append({"rule": rule, "total_params": size, "precision": precision, **axes})
        for name, spec in specs.items():
            answers = [best(model, spec, wanted, contexts, precision, stack) for stack in stacks]
            rate, place = (np.stack(one, axis=1).ravel() for one in zip(*answers, strict=True))
            labels = np.where(rate > 0, placed(spec).label.to_numpy()[place], "")
            rows[-1] |= {f"{name}_tokens_per_s_per_chip": rate, f"{name}_placement": labels}
    table = tidy(rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        table["ratio"] = table.large_tokens_per_s_per_chip / table.small_tokens_per_s_per_chip
    # a chip as one rank is announced and not yet supported
    table["announced"] = any(site(spec, int(spec.chip.cores)).announced for spec in specs.values())
    return table[COLUMNS.split()]


COLUMNS = (
    "rule total_params precision context software tokens_per_s_per_user small_tokens_per_s_per_chip "
    "large_tokens_per_s_per_chip ratio small_placement large_placement announced"
)
CASE = ["software", "precision", "context", "tokens_per_s_per_user", "rule"]


def verdicts(table: pd.DataFrame, threshold: float, enough_up_to: float, pays_from: float) -> pd.DataFrame:
    """Judge the claim that the small domain is enough up to one size and the large one pays from another.

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
