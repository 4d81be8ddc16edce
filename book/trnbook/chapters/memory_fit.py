"""Tables of the chapter on what fits: mappings of a system, bytes per rank by kind, and the card that opens it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import Markdown
from numpy.typing import NDArray

from trnbook import charts
from trnbook.chapters import common, guard
from trnbook.shared.stored import kinds, value_at
from trnmodel.catalog.systems import System
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.search.choice import Choice
from trnmodel.steps.answers import MemoryFit, Step
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.rank import site
from trnmodel.units import GIB, format_digits, format_within

STRETCH = 4  # times its longest context to which the position encoding of a model is stretched
TOO_LARGE = ("does not fit in memory", "the first rank, which holds more, does not fit in memory")
OPEN = 3  # mappings that a chart shows where none fits


def subject(model: str | Transformer, context: float) -> Transformer:
    """Return a model whose longest context is at least `context`, up to four times what its configuration names.

    Publishers stretch the position encoding that far, which changes no weight and no byte of the cache per token.

    Examples
    --------
    >>> subject("qwen3-235b-a22b", 65536).max_context
    65536
    """
    spec = read_model(model)
    guard.generates(model=spec)
    guard.reaches(128, model=spec)
    guard.within(128, STRETCH * spec.max_context, context=context)
    return spec if context <= spec.max_context else replace(spec, max_context=int(np.ceil(context)))


def mappings(system: System, lnc: int | None = None, tp: int = 0, ep: int = 0) -> Mapping:
    """Return all mappings of TP and EP in powers of two that a system has ranks for, or those of one degree.

    Examples
    --------
    >>> from trnmodel.catalog.systems import system
    >>> mappings(system("trn2.48xlarge"), tp=16)
    Mapping(tp=[16, 16, 16], ep=[1, 2, 4], lnc=2)
    """
    where = site(system, lnc)
    ranks = system.domain_chips * where.ranks_per_chip
    powers = np.exp2(np.arange(np.floor(np.log2(ranks)) + 1))
    pairs = np.array([(t, e) for t in ([tp] if tp else powers) for e in ([ep] if ep else powers) if t * e <= ranks])
    guard.need(len(pairs) > 0, f"tp = {tp} with ep = {ep} is more than the {ranks:g} ranks of {system.id}")
    return Mapping(tp=pairs[:, 0], ep=pairs[:, 1], lnc=where.lnc if system.chip.core else None)


def called(tp: float, ep: float) -> str:
    """Return a mapping in words.

    Examples
    --------
    >>> called(4, 1), called(4, 16)
    ('TP 4', 'TP 4 x EP 16')
    """
    return f"TP {tp:.0f}" + (f" x EP {ep:.0f}" if ep > 1 else "")


def chosen(mapping: Mapping, fit: MemoryFit) -> int:
    """Return the place of the mapping that holds a model on the fewest ranks; of equals that with the most room.

    Where none fits it is the one that lacks least; ImpossibleError is raised where none is legal.
    """
    why = "; ".join(dict.fromkeys(map(str, np.ravel(fit.reason))))
    guard.possible(bool(_legal(fit).any()), f"no mapping of tp and ep on {fit.system.id} is legal: {why}")
    ranks, room = mapping.ranks, np.asarray(fit.room_bytes)
    order = np.lexsort((-room, ranks, ~np.asarray(fit.valid)))
    return int(order[0]) if np.any(fit.valid) else int(np.argmax(np.where(_legal(fit), room, -np.inf)))


def _legal(fit: MemoryFit) -> Any:
    """Return which points fail by their size alone, if they fail."""
    reasons = np.atleast_1d(np.asarray(fit.reason))
    return np.array([set(filter(None, str(one).split("; "))) <= set(TOO_LARGE) for one in reasons])


def at(mapping: Mapping, place: int) -> Mapping:
    """Return one mapping of several.

    Examples
    --------
    >>> at(Mapping(tp=[4, 8], ep=[1, 2]), 1)
    Mapping(tp=8, ep=2)
    """
    return replace(mapping, tp=mapping.tp[place], ep=mapping.ep[place])


def by_ranks(mapping: Mapping, fit: MemoryFit) -> pd.DataFrame:
    """Return what the first rank stores by kind, for the mapping with the most room of each number of ranks.

    Mappings on fewer ranks than half of what holds the model are left out.

    Returns
    -------
    table : pandas.DataFrame
        mapping, kind, stored_bytes, capacity_bytes. [-]
    """
    ranks = np.asarray(mapping.ranks)
    best = [i for n in np.unique(ranks) if (i := _best(mapping, fit, n)) is not None]
    fitting = [i for i in best if fit.valid[i]]
    least = ranks[fitting[0]] / 2 if fitting else ranks[best[-OPEN:][0]]
    shown = [i for i in best if ranks[i] >= least]
    return pd.concat([kinds(fit, i, called(mapping.tp[i], mapping.ep[i])) for i in shown], ignore_index=True)


def on_a_chip(plan: Choice, fit: MemoryFit) -> dict[str, Any]:
    """Return what the ordinary ranks of a chip store for a plan of the case, and for how many more users there is room.

    Returns
    -------
    row : dict
        column of the case, weight_bytes, cache_bytes, stored_bytes (the sum with all else), hbm_bytes, more_users.
    """
    ranks, groups = plan.step.ranks_per_chip, float(plan.degrees.ep)
    user_bytes = float(fit.cache_bytes) / np.ceil(plan.batch / groups)
    sizes = {"weight_bytes": fit.weight_bytes, "cache_bytes": fit.cache_bytes, "stored_bytes": fit.total_bytes}
    row: dict[str, Any] = {"case": f"{plan.question.model.id}, {plan.system.name}"}
    row |= {name: float(size * ranks) for name, size in sizes.items()}
    more = groups * np.floor(float(fit.room_bytes) / user_bytes)
    return row | {"hbm_bytes": float(fit.capacity_bytes * ranks), "users": plan.batch, "more_users": more}


def that_hold(mapping: Mapping, fit: MemoryFit, step: Step) -> pd.DataFrame:
    """Return the mappings that fit: the fewest chips first, and on as many chips the fastest for a user first.

    Returns
    -------
    table : pandas.DataFrame
        mapping, chips, weights, KV cache and all of the first rank in GiB, its share of the capacity, speed of a user.
    """
    good = np.asarray(fit.valid) & np.asarray(step.valid)
    table = pd.DataFrame(
        {
            "mapping": [called(*pair) for pair in zip(mapping.tp, mapping.ep, strict=True)],
            "chips": step.occupied_chips,
            "weights [GiB]": fit.weight_bytes / GIB,
            "KV cache [GiB]": fit.cache_bytes / GIB,
            "first rank [GiB]": fit.first_rank_total_bytes / GIB,
            "share": fit.first_rank_total_bytes / fit.first_rank_capacity_bytes,
            "tokens_per_s_per_user": step.tokens_per_s_per_user,
        }
    )[good]
    short = {name: table[name].map("{:.1f}".format) for name in table if name.endswith("[GiB]")}
    return table.assign(**short).sort_values(
        ["chips", "tokens_per_s_per_user"], ascending=[True, False], kind="stable", ignore_index=True
    )


def answer(mapping: Mapping, fit: MemoryFit, place: int, question: str) -> str:
    """Return the card that opens the chapter: what the first rank stores, beside half as many ranks, how sure it is.

    Parameters
    ----------
    mapping : Mapping
        The mappings that were tried. [-]
    fit : MemoryFit
        Their answers. [-]
    place : int
        The mapping that is chosen. [-]
    question : str
        Model and format. [-]
    """
    good = bool(np.ravel(fit.valid)[place])
    ends = (fit.first_rank_total_bytes, *fit.ends("first_rank_total_bytes"))
    sizes = [float(np.broadcast_to(end, np.shape(fit.total_bytes))[place]) for end in ends]
    name, room = called(mapping.tp[place], mapping.ep[place]), value_at(fit, "first_rank_capacity_bytes", place)
    counted = value_at(fit, "weight_bytes", place) + value_at(fit, "cache_bytes", place)
    size, _, band = format_within(sizes[0], sizes[1], sizes[2], "B", str(np.ravel(fit.basis)[0])).partition(" (")
    of = f"{size.removesuffix(' GiB')} of {room / GIB:.3g} GiB"
    crosses = bool(sizes[1] <= room < sizes[-1])  # the range holds both answers
    yes = ("Probably" if crosses else "Yes") if good else ("Probably not" if crosses else "No")
    verdict = (
        f"so it {'should fit' if crosses else 'fits'} with {name}"
        if good
        else f"so it does not fit; {name} comes nearest"
    )
    estimated = sizes[0] - counted
    if counted >= room:
        rest = "These bytes alone are more than the rank has."
    elif good and estimated:
        times = format_digits((room - counted) / estimated, 2)
        rest = f"The model no longer fits if they are {times} times as large as we estimate, and the range "
        rest += "goes beyond that." if sizes[-1] > room else "ends before that."
    else:
        rest = ""
    less = _best(mapping, fit, float(mapping.ranks[place]) / 2)
    half = "" if less is None else called(mapping.tp[less], mapping.ep[less])
    needed = "" if less is None else format_digits(value_at(fit, "first_rank_total_bytes", less) / GIB, 2)
    return common.card(
        f"{yes}: {of}" + (f" ({band}" if band else ""),
        f"what the fullest rank of {fit.system.name} needs {question}, {verdict}",
        mark="",
        rank="Compared with",
        rival=f"half as many ranks, on which {half} would store {needed} GiB" if half else "",
        alone="" if half else "no smaller mapping was tried",
        proof="Check: a measured footprint, and what ran",
        more=f"**How sure?** Weights and cache, {counted / sizes[0]:.0%} of these bytes, are counted from the model's "
        f"shapes, so the range does not end below them. The other bytes are constants of `{fit.stack.id}`, our own "
        f"estimates. {rest} A draft model would need memory too, which is not counted.".replace("  ", " "),
    )


def _best(mapping: Mapping, fit: MemoryFit, ranks: float) -> int | None:
    """Return the place of the mapping with the most room on a number of ranks; None where none is legal."""
    places = np.flatnonzero(_legal(fit) & (np.asarray(mapping.ranks) == ranks))
    return int(max(places, key=lambda i: fit.room_bytes[i])) if places.size else None


def more_ranks(mapping: Mapping, system: System) -> Mapping:
    """Return a mapping, and those with two and four times its TP as far as there are ranks, one below the other.

    Examples
    --------
    >>> from trnmodel.catalog.systems import system
    >>> more_ranks(Mapping(tp=32), system("trn2.48xlarge")).tp.ravel().tolist()
    [32.0, 64.0]
    """
    most = system.domain_chips * site(system, mapping.lnc).ranks_per_chip
    tp = np.array([float(mapping.tp) * n for n in (1, 2, 4) if float(mapping.ranks) * n <= most])[:, None]
    return replace(mapping, tp=tp, ep=np.full_like(tp, float(mapping.ep)))


def largest_batches(mapping: Mapping, one: MemoryFit, two: MemoryFit, contexts: NDArray, subject_name: str) -> Any:
    """Return the chart of the largest batch that fits, from fits with one and two sequences on each group of ranks.

    Memory grows by the same bytes with every sequence. Where no sequence fits, a sentence says so.
    """
    most = sequences(mapping, one, two, contexts)
    if most.empty:
        return Markdown(f"**No user of {subject_name} fits** with these mappings.")
    caption, under = "Twice the context leaves room for half the users", f"largest batch of {subject_name}"
    chart = charts.lines(
        most, x="context", y="batch", color="mapping", log_x=True, log_y=True, caption=caption, under=under
    )
    return chart.properties(height=210)


def sequences(mapping: Mapping, one: MemoryFit, two: MemoryFit, contexts: NDArray) -> pd.DataFrame:
    """Return mapping, context and the largest batch; rows that hold no sequence are left out."""
    taken = one.room_bytes - two.room_bytes
    more = np.floor(one.room_bytes / np.where(taken > 0, taken, np.inf))
    batch = np.where(one.valid, np.asarray(mapping.ep) * (1 + more), 0)
    names = [called(*pair) for pair in zip(np.ravel(mapping.tp), np.ravel(mapping.ep), strict=True)]
    frame = pd.DataFrame({"mapping": np.repeat(names, len(contexts)), "context": np.tile(contexts, len(names))})
    return frame.assign(batch=np.broadcast_to(batch, (len(names), len(contexts))).ravel()).query("batch > 0")
