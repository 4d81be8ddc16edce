"""One question on three kinds of software, ideal, hand-tuned and public: yields with bands, and bars between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, listed, numbers
from trnmodel.catalog.stacks import KINDS, VALUES, Efficiencies, basis, find
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.planner.deployments import PER_RANK, expert_degrees, formats, tensor_degrees
from trnmodel.result import tidy
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd

# the question that chapters 6, 7 and 10 ask alike
EXPERTS = ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus")
DENSE = ("trn3-nl32x2-pcie160", "hgx-h200", "gb200-nvl72", "mi355x-8")
SPEEDS, CONTEXT = (20.0, 50.0), 4096.0
# what software adds to a step, in the order in which bars stand, by the fields of a stack that say it
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "kernels and streams": (
        *("weight_stream_share", "kv_stream_share", "kv_stream_bytes_per_s", "decode_matmul_share"),
        *("compute_memory_overlap", "phase_overlap"),
    ),
    "attention": (
        *("softmax_cycle_per_element", "lone_core_cache_passes", "state_stream_bytes_per_s", "kv_head_policy"),
        "context_bucket",
    ),
    "layers": ("layer_s", "dense_layer_s", "graph_layers", "graph_doubling_s"),
    "routing of experts": (
        *("expert_serial_s", "expert_layer_s", "expert_core_s", "expert_read", "expert_gather_reads"),
        *("expert_tile_columns", "dequantise_passes"),
    ),
    "collectives": (
        *("hop_s", "in_graph", "network_overlap", "dispatch_traffic_ratio", "mesh_traffic_ratio", "rdh_traffic_ratio"),
        *("ring_traffic_ratio", "one_shot_s", "one_shot_rate_share", "two_shot_s", "two_shot_rate_share"),
        *("shot_rank_s", "shot_copies", "logit_gathers"),
    ),
    "the step": ("step_overhead_s", "server_step_s", "sequence_s", "host_logit_bytes_per_s", "batch_bucket"),
}
MECHANISMS = {word: tuple(name for name in names if name in VALUES) for word, names in _FIELDS.items()}
_NAMED = {name for names in MECHANISMS.values() for name in names}
OTHER = "other"  # of a step's time nothing: what is stored, and what a prefill does
COLUMNS = (
    "wanted_tokens_per_s_per_user system software precision tp ep batch tokens_per_s_per_chip "
    "tokens_per_s_per_chip_low tokens_per_s_per_chip_high stack basis basis_reason reason"
)
PARTS = {**MECHANISMS, OTHER: tuple(name for name in VALUES if name not in _NAMED)}


def _ends(e: Efficiencies) -> Iterator[tuple[str, Efficiencies, Efficiencies]]:
    """A stack with the values of one mechanism at the low and at the high ends of their ranges, one after another."""
    for mechanism, names in MECHANISMS.items():
        open_: dict[str, Any] = {name: e.ranges[name] for name in names if name in e.ranges}
        if open_:
            low, high = (replace(e, **{name: ends[end] for name, ends in open_.items()}) for end in (0, 1))
            yield mechanism, low, high


def waterfall(
    model: str | Transformer,
    system: str | System,
    mapping: Degrees,
    kinds: Sequence[str] = tuple(KINDS),
    **question: Any,
) -> pd.DataFrame:
    """The same decode step from one kind of software to the next, a bar for each mechanism.

    What a stack stores is no bar, so that a step is told apart even where the last stack would not fit.

    Parameters
    ----------
    kinds : sequence of str
        Of `KINDS`, in order; the first has one bar, its whole step. [-]
    question
        batch, context and precision of `decode_step`. [-]

    Returns
    -------
    table : pandas.DataFrame
        software, mechanism, start_s, end_s, bar_s (their difference: one step with the values of a mechanism replaced),
        bar_s_low and bar_s_high (at the ends of their ranges), basis. [-]

    Examples
    --------
    >>> bars = waterfall("llama-3.1-8b", "trn2.48xlarge", Degrees(tp=8), batch=8, context=2048)
    >>> bars.software.unique().tolist(), bool(abs(bars.bar_s.sum() - bars.end_s.iloc[-1]) < 1e-12)
    (['ideal', 'hand-tuned', 'public'], True)
    """
    spec = read_system(system)

    def step(e: Efficiencies) -> float:
        return float(decode_step(model, spec, mapping, efficiencies=e, **question).require_valid().time_s)

    stacks = {kind: find(spec.chip, KINDS[kind], "efficiencies") for kind in listed("kinds", kinds)}
    here = stacks[kinds[0]]
    at = step(here)
    rows: list[dict[str, Any]] = [{"software": kinds[0], "mechanism": "the step itself", "start_s": 0.0, "end_s": at}]
    rows[0] |= {"bar_s": at, "bar_s_low": at, "bar_s_high": at, "basis": basis(here, spec.chip, 1, "decode").word}
    for _, kind in pairwise(kinds):
        target = stacks[kind]
        ends = {name: pair for name, *pair in _ends(target)}
        ground = str(basis(target, spec.chip, site(spec, mapping.lnc).lnc, "decode").word)
        for mechanism, names in MECHANISMS.items():
            there = replace(here, **{name: getattr(target, name) for name in names}, ranges={})
            after = step(there)
            spread = [step(replace(here, **{n: getattr(end, n) for n in names})) for end in ends.get(mechanism, ())]
            low, high = min([after, *spread]) - at, max([after, *spread]) - at
            line = {"software": kind, "mechanism": mechanism, "start_s": at, "end_s": after, "bar_s": after - at}
            rows.append(line | {"bar_s_low": low, "bar_s_high": high, "basis": ground})
            here, at = there, after
    found = tidy(rows)
    return found[(found.bar_s != 0) | (found.bar_s_high != 0)].reset_index(drop=True)


class _Best(NamedTuple):
    """The best point at each speed of a user: tokens/s a chip, 0 where none is as fast; its TP, EP and batch."""

    yields: NDArray
    tp: NDArray
    ep: NDArray
    batch: NDArray
    fastest: float


def _best(model: Any, spec: System, speeds: NDArray, ask: Mapping[str, Any]) -> _Best:
    """The best of all powers of two of TP and EP and all batches, a sequence at least for each expert-parallel rank."""
    at, degrees = site(spec), np.meshgrid(tensor_degrees(spec), expert_degrees(spec, model), indexing="ij")
    tried = Degrees(tp=degrees[0].ravel(), ep=degrees[1].ravel())
    batch = PER_RANK[:, None] * tried.ep
    step = decode_step(model, spec, tried, batch=batch, **ask)
    each = np.where(step.valid, step.tokens_per_s / np.ceil(tried.ranks / at.ranks_per_chip), 0.0)
    user = np.where(step.valid, step.tokens_per_s_per_user, 0.0)
    fast = np.where(user >= speeds[:, None, None], each, 0.0).reshape(len(speeds), -1)
    place = fast.argmax(axis=1)
    tp, ep, batch = (np.broadcast_to(x, each.shape).ravel()[place] for x in (tried.tp, tried.ep, batch))
    return _Best(fast.max(axis=1), tp, ep, batch, float(user.max()))


def _band(centre: NDArray, ends: Iterable[list[NDArray]]) -> tuple[NDArray, NDArray]:
    """Low and high of yields: a mechanism at a time at both ends of its range, root of the sum of squares each way."""
    down, up = np.zeros_like(centre), np.zeros_like(centre)
    for pair in ends:
        moved = np.stack(pair) - centre
        down, up = down + np.minimum(0, moved.min(axis=0)) ** 2, up + np.maximum(0, moved.max(axis=0)) ** 2
    return np.maximum(centre - np.sqrt(down), 0.0), centre + np.sqrt(up)


def told(table: pd.DataFrame, tokens_per_s_per_user: float, system: str) -> str:
    """A line of `answers` as a sentence tells it: yield and band on each kind of software.

    Examples
    --------
    >>> table = answers("llama-3.1-8b", ["hgx-h200"], [50.0])
    >>> told(table, 50.0, "hgx-h200").count("tokens/s a chip"), "hand-tuned" in told(table, 50.0, "hgx-h200")
    (1, True)
    """
    at = table[(table.wanted_tokens_per_s_per_user == tokens_per_s_per_user) & (table.system == system)]
    words = []
    for line in at.itertuples():
        low, high = line.tokens_per_s_per_chip_low, line.tokens_per_s_per_chip_high
        band = f" [{low:,.0f} to {high:,.0f}]" if low < high else ""
        made = f"{line.tokens_per_s_per_chip:,.0f}" if line.tokens_per_s_per_chip else "none"
        words.append(f"{made}{band} {line.software}")
    return f"{system}: {', '.join(words)} tokens/s a chip"


def reason(model: Any, system: str | System, mapping: Degrees, kind: str, **question: Any) -> str:
    """What holds a decode step back, in a sentence: the largest bar between it and the ideal one.

    Examples
    --------
    >>> reason("llama-3.1-8b", "trn2.48xlarge", Degrees(tp=8), "hand-tuned", batch=8, context=2048)
    'layers take 2.5 of 6.6 ms'
    """
    if kind == "ideal":
        step = decode_step(model, system, mapping, efficiencies="ideal", **question)
        return f"{step.bound} takes longest of {float(step.time_s) * 1e3:.1f} ms"
    bars = waterfall(model, system, mapping, ["ideal", kind], **question)
    most = bars.iloc[1:].loc[lambda b: b.bar_s.idxmax()]
    verb = "takes" if most.mechanism in ("attention", "routing of experts", "the step") else "take"
    return f"{most.mechanism} {verb} {most.bar_s * 1e3:.1f} of {bars.end_s.iloc[-1] * 1e3:.1f} ms"


def answers(
    model: str | Transformer,
    systems: Iterable[str] = EXPERTS,
    tokens_per_s_per_user: Iterable[float] = SPEEDS,
    context: float = CONTEXT,
    precisions: Sequence[str] = ("mxfp8", "fp8", "bf16"),
) -> pd.DataFrame:
    """What each system yields a chip on each kind of software at equal speed for a user, with its band and why.

    Parameters
    ----------
    tokens_per_s_per_user : iterable of float
        What every user gets at least. [token/s]
    context : float
        Tokens in the cache. [token]
    precisions : sequence of str
        A system takes the first in which its chip computes. [-]

    Returns
    -------
    table : pandas.DataFrame
        wanted_tokens_per_s_per_user, system, software, precision, tp, ep, batch, tokens_per_s_per_chip with `_low` and
        `_high`, stack, basis, basis_reason, reason. A speed that no mapping reaches has yield 0 and says so; a
        kind of software that a chip has no row for is left out. [-]

    Notes
    -----
    TP, EP and batch are those that `deployments.frontiers` tries. The band moves a mechanism of the stack at a time to
    the ends of its ranges, finds the best point anew, and adds up the squares; the ideal stack has none.
    """
    speeds, rows = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY)), list[dict[str, Any]]()
    for name, precision in formats(systems, precisions).items():
        spec = read_system(name)
        for kind, word in stacks_of(spec.chip).items():
            e, ask = find(spec.chip, word, "efficiencies"), {"context": context, "precision": precision}
            best = _best(model, spec, speeds, ask | {"efficiencies": e})
            ends = ([_best(model, spec, speeds, ask | {"efficiencies": x}).yields for x in two] for _, *two in _ends(e))
            low, high = _band(best.yields, ends)
            on = basis(e, spec.chip, site(spec).lnc, "decode")
            known: dict[str, Any] = {"system": spec.id, "software": kind, "precision": precision, "stack": e.id}
            known |= {"basis": on.word, "basis_reason": on.reason}
            for i, speed in enumerate(speeds.tolist()):
                line = {"wanted_tokens_per_s_per_user": speed} | _line(model, spec, best, i, ask, kind)
                line |= {"tokens_per_s_per_chip_low": low[i], "tokens_per_s_per_chip_high": high[i]}
                rows.append(known | line)
    found = tidy(rows)[COLUMNS.split()]
    return found.sort_values("wanted_tokens_per_s_per_user", kind="stable", ignore_index=True)


def _line(model: Any, spec: System, best: _Best, i: int, ask: dict[str, Any], kind: str) -> dict[str, Any]:
    """The best point at a speed, and what holds it back."""
    tp, ep, batch = (float(x[i]) for x in (best.tp, best.ep, best.batch))
    found = {"tp": tp, "ep": ep, "batch": batch, "tokens_per_s_per_chip": float(best.yields[i])}
    if not best.yields[i]:
        return found | dict.fromkeys(("tp", "ep", "batch"), np.nan) | {"reason": f"at most {best.fastest:.0f} tokens/s"}
    return found | {"reason": reason(model, spec, Degrees(tp=tp, ep=ep), kind, batch=batch, **ask)}


def shared_point(
    model: str | Transformer, system: str, table: pd.DataFrame, **question: Any
) -> tuple[Degrees, float] | None:
    """Where hand-tuned software yields most in `answers` at the slowest speed: mapping and batch.

    The batch is halved until the public stack has room for it; None where it never has, or where nothing is as fast.
    """
    rows = table[(table.system == system) & (table.software == "hand-tuned") & (table.tokens_per_s_per_chip > 0)]
    for line in rows.head(1).itertuples():
        mapping = Degrees(tp=line.tp, ep=line.ep)
        batch = line.ep * np.exp2(np.arange(np.log2(line.batch / line.ep) + 1))
        fits = batch[decode_step(model, system, mapping, batch=batch, **question).valid]
        if len(fits):
            return mapping, float(fits.max())
    return None
