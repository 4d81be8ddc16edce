"""One question on ideal, hand-tuned and public software: yields with bands, and bars between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, listed, numbers
from trnmodel.bands import variants
from trnmodel.catalog.stacks import KINDS, Efficiencies, basis, find
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.search import deployments
from trnmodel.search.deployments import formats
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

# the question that the chapters switch-tray and software share
EXPERTS = ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus")
SPEEDS, CONTEXT = (20.0, 50.0), 4096.0
# what software adds to a step or a prompt, in the order of the bars, with the fields of a stack that hold it
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "kernels": (
        *("weight_stream_share", "kv_stream_share", "kv_stream_bytes_per_s", "decode_matmul_share"),
        *("compute_memory_overlap", "phase_overlap", "prefill_matmul_share", "prefill_attention_share"),
        *("prefill_slowdown", "prefill_spill_bytes_per_s"),
    ),
    "attention": (
        *("lone_core_cache_passes", "score_passes", "state_stream_bytes_per_s", "recurrent_token_s"),
        *("kv_head_policy", "context_bucket", "context_exchange"),
    ),
    "layers": ("layer_s", "dense_layer_s", "graph_layers", "graph_doubling_s", "prefill_layer_s"),
    "routing of experts": (
        *("expert_serial_s", "expert_core_s", "expert_read", "expert_gather_reads", "expert_tile_columns"),
        *("dequantise_passes", "prefill_experts", "expert_block_tokens", "expert_block_s"),
    ),
    "collectives": (
        *("hop_s", "in_graph", "network_overlap", "dispatch_traffic_ratio", "mesh_traffic_ratio", "rdh_traffic_ratio"),
        *("ring_traffic_ratio", "one_shot_s", "one_shot_rate_share", "two_shot_s", "two_shot_rate_share"),
        *("shot_rank_s", "shot_copies", "logit_gathers"),
    ),
    "the step": (
        *("step_overhead_s", "server_step_s", "sequence_s", "host_logit_bytes_per_s", "batch_bucket"),
        *("prefill_overhead_s", "prompt_bucket"),
    ),
}
ORDER = ("public", "hand-tuned", "ideal")
POINT = ("tp", "ep", "batch")
YIELD = ["tokens_per_s_per_chip", "tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high"]
COLUMNS = (
    "wanted_tokens_per_s_per_user system software precision tp ep batch tokens_per_s_per_chip "
    "tokens_per_s_per_chip_low tokens_per_s_per_chip_high stack basis basis_reason reason"
)


def _ends(e: Efficiencies) -> dict[str, list[tuple[tuple[str, float], ...]]]:
    """Return the values of each mechanism of a stack at the low and high ends of its ranges."""
    ranges = e.open_ranges
    mine = {mechanism: [name for name in names if name in ranges] for mechanism, names in MECHANISMS.items()}
    return {
        mechanism: [tuple((name, ranges[name][end]) for name in names) for end in (0, 1)]
        for mechanism, names in mine.items()
        if names
    }


def spread(e: Efficiencies) -> Efficiencies:
    """Return a stack as it is, then with one mechanism at a time at the ends of its ranges, on a first axis.

    Examples
    --------
    >>> import trnmodel as tm
    >>> e = spread(tm.efficiencies("trainium3", "hand-tuned"))
    >>> e.shape, (e.layer_s.ravel() * 1e6).round(1).tolist()
    ((9, 1, 1), [79.5, 79.5, 79.5, 43.0, 116.0, 79.5, 79.5, 79.5, 79.5])
    """
    return variants(e, ((), *(move for two in _ends(e).values() for move in two)), 2)


def waterfall(
    model: str | Transformer,
    system: str | System,
    mapping: Degrees,
    kinds: Sequence[str] = tuple(KINDS),
    **question: Any,
) -> pd.DataFrame:
    """Split the difference between kinds of software in a decode step into a bar per mechanism.

    Stored bytes have no bar, so that a step can be split even where the last stack would not fit.

    Parameters
    ----------
    kinds : sequence of str
        Of `KINDS`, or ids of stacks, in order; the first has one bar, its whole step. [-]
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

    stacks = {kind: find(spec.chip, KINDS.get(kind, kind), "efficiencies") for kind in listed("kinds", kinds)}
    here = stacks[kinds[0]]
    at = step(here)
    rows: list[dict[str, Any]] = [{"software": kinds[0], "mechanism": "the step itself", "start_s": 0.0, "end_s": at}]
    rows[0] |= {"bar_s": at, "bar_s_low": at, "bar_s_high": at, "basis": basis(here, spec.chip, 1, "decode").word}
    for _, kind in pairwise(kinds):
        target = stacks[kind]
        ends = _ends(target)
        ground = str(basis(target, spec.chip, site(spec, mapping.lnc).lnc, "decode").word)
        for mechanism, names in MECHANISMS.items():
            there = replace(here, **{name: getattr(target, name) for name in names}, ranges={})
            after = step(there)
            spread = [step(there.moved(dict(end))) for end in ends.get(mechanism, ())]
            low, high = min([after, *spread]) - at, max([after, *spread]) - at
            line = {"software": kind, "mechanism": mechanism, "start_s": at, "end_s": after, "bar_s": after - at}
            rows.append(line | {"bar_s_low": low, "bar_s_high": high, "basis": ground})
            here, at = there, after
    bars = tidy(rows)
    return bars[(bars.bar_s != 0) | (bars.bar_s_high != 0)].reset_index(drop=True)


class Tried(NamedTuple):
    """Decode steps of all powers of two of TP and EP and all batches, a row per variant of a stack.

    `each` is tokens/s per working chip and `user` tokens/s per user, both 0 where the step does not exist; `tp`, `ep`
    and `batch` have a value per column.
    """

    each: NDArray
    user: NDArray
    tp: NDArray
    ep: NDArray
    batch: NDArray

    def yields(self, speeds: NDArray, slower: float = 1.0) -> NDArray:
        """Return the most tokens/s per chip at each speed, with all steps slower by a factor; 0 if unreached."""
        fast = np.where(self.user >= speeds[:, None, None] * slower, self.each, 0.0)
        return fast.max(axis=2).T / slower

    def place(self, speed: float) -> int:
        """Return the column with the most tokens/s per chip at a speed, or the fastest if none reaches it."""
        fast = np.where(self.user[0] >= speed, self.each[0], 0.0)
        return int((fast if fast.any() else self.user[0]).argmax())


def tried(model: Any, system: str | System, e: Efficiencies, context: float, precision: str) -> Tried:
    """Return `deployments.tried` as yields: the search behind frontiers and plans.

    Examples
    --------
    >>> import trnmodel as tm
    >>> found = tried("llama-3.1-8b", "hgx-h200", tm.efficiencies("h200", "ideal"), 4096, "fp8")
    >>> found.yields(np.array([1.0, 1e9])).round().tolist()
    [[8874.0, 0.0]]
    """
    step = deployments.tried(model, system, context=context, precision=precision, efficiencies=e)
    shape = np.shape(step.batch)
    each, user = (np.where(step.valid, x, 0.0) for x in (step.tokens_per_s_per_chip, step.tokens_per_s_per_user))
    columns = (np.broadcast_to(x, shape).ravel() for x in (step.tp, step.ep, step.batch))
    return Tried(each.reshape(-1, np.prod(shape)), user.reshape(-1, np.prod(shape)), *columns)


def band(yields: NDArray) -> tuple[NDArray, NDArray]:
    """Return low and high of the first row of yields or their logarithms; the other rows are variants.

    One mechanism at a time moves to both ends of its ranges; the band is the root of the sum of squares on each side.
    """
    centre, moved = yields[0], (yields[1:] - yields[0]).reshape(-1, 2, *yields.shape[1:])
    down, up = np.minimum(0, moved.min(axis=1, initial=0.0)), np.maximum(0, moved.max(axis=1, initial=0.0))
    return centre - np.sqrt((down**2).sum(axis=0)), centre + np.sqrt((up**2).sum(axis=0))


def in_band(value: float, low: float, high: float, basis: str = "") -> str:
    """Format a yield with its band and basis, in the digits that the band justifies.

    Examples
    --------
    >>> in_band(4085.6, 3398.3, 4833.9), in_band(7529.2, 7529.2, 7529.2)
    ('4,100 (3,400 to 4,800)', '7,529')
    >>> in_band(0.0, 0.0, 824.6, "extrapolated"), in_band(0.0, 0.0, 0.0)
    ('none (to 820; extrapolated)', 'none')
    """
    if value:
        return format_within(value, low, high, basis=basis)
    said = [f"to {format_within(high, high / 2, high).partition(' (')[0]}"] * int(high > 0) + [basis] * bool(basis)
    return f"none ({'; '.join(said)})" if said else "none"


def describe(table: pd.DataFrame, tokens_per_s_per_user: float, system: str) -> str:
    """Describe a row of `answers`: yield and band on each kind of software.

    Examples
    --------
    >>> table = answers("llama-3.1-8b", ["hgx-h200"], [50.0])
    >>> describe(table, 50.0, "hgx-h200").count("tokens/s a chip"), "hand-tuned" in describe(table, 50.0, "hgx-h200")
    (1, True)
    """
    at = table[(table.wanted_tokens_per_s_per_user == tokens_per_s_per_user) & (table.system == system)]
    texts = [f"{in_band(*line[:3])} {line.software}" for line in at[[*YIELD, "software"]].itertuples(index=False)]
    return f"{read_system(system).name}: {', '.join(texts)} tokens/s a chip"


def names(systems: Iterable[str]) -> dict[str, str]:
    """Return the readable names of systems by id."""
    return {name: read_system(name).name for name in systems}


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Return `answers` with a row per speed and system: yields with bands, basis, what limits each."""
    rows = list[dict[str, Any]]()
    for (speed, system), lines in table.groupby(["wanted_tokens_per_s_per_user", "system"], sort=False):
        at = lines.set_index("software")
        there = [kind for kind in ORDER if kind in at.index]
        row: dict[str, Any] = {"wanted_tokens_per_s_per_user": speed, "of": read_system(system).name}
        row |= {kind: in_band(*at.loc[kind, YIELD]) for kind in there}
        row |= {"rests on": ", ".join(dict.fromkeys(at.basis[kind] for kind in there if kind != "ideal"))}
        row |= {f"{kind} loses to": at.reason[kind] for kind in there if kind != "ideal"}
        rows.append(row)
    return tidy(rows).rename(columns={"of": "system"})


def line(table: pd.DataFrame, speed: float, system: str, kind: str) -> pd.Series:
    """Return one row of `answers`."""
    at = table[(table.wanted_tokens_per_s_per_user == speed) & (table.system == system) & (table.software == kind)]
    return at.iloc[0]


def describe_line(one: pd.Series) -> str:
    """Describe a row of `answers`: yield, band, basis and kind of software."""
    basis = "" if one.basis == one.software else one.basis
    made, low, high = one[YIELD]
    return f"{in_band(made, low, high, basis)} tokens/s a chip on {one.software} software"


def decides(table: pd.DataFrame) -> str:
    """Return as a chart title how far software, and how far racks, change the yield."""
    wide = table[table.tokens_per_s_per_chip > 0].pivot(
        index="system", columns="software", values="tokens_per_s_per_chip"
    )
    kinds, racks = (wide.max(axis=1) / wide.min(axis=1)).max(), wide["hand-tuned"].max() / wide["hand-tuned"].min()
    return f"Software moves the yield {format_digits(kinds, 2)} times, racks {format_digits(racks, 2)} times"


def reason(model: Any, system: str | System, mapping: Degrees, kind: str, **question: Any) -> str:
    """Return what slows a decode step most: the largest bar between it and the ideal one.

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
    """Return each system's tokens/s per chip on each kind of software at equal speed, with band and reason.

    Parameters
    ----------
    tokens_per_s_per_user : iterable of float
        Lowest speed per user. [token/s]
    context : float
        Tokens in the cache. [token]
    precisions : sequence of str
        Candidates; a system uses the first in which its chip computes. [-]

    Returns
    -------
    table : pandas.DataFrame
        wanted_tokens_per_s_per_user, system, software, precision, tp, ep, batch, tokens_per_s_per_chip with `_low` and
        `_high`, stack, basis, basis_reason, reason. A speed that no mapping reaches has yield 0 and a reason; a
        kind of software without a row for the chip is left out. [-]

    Notes
    -----
    TP, EP and batch are those of the search in `deployments.frontiers`. For the band of hand-tuned software, each
    mechanism of the stack moves to the ends of its ranges, the best point is searched again, and the squares are added
    up. For public software the search is repeated with all steps at the ends of the step's 90 % interval. Ideal
    software has no band.
    """
    speeds, rows = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY)), list[dict[str, Any]]()
    for name, precision in formats(systems, precisions).items():
        spec = read_system(name)
        for kind, word in stacks_of(spec.chip).items():
            e, ask = find(spec.chip, word, "efficiencies"), {"context": context, "precision": precision}
            steps = tried(model, spec, spread(e) if kind == "hand-tuned" else e, context, precision)
            yields = steps.yields(speeds)
            ends = np.maximum(band(yields), 0.0).T.tolist()
            for speed, made, parts in zip(speeds.tolist(), yields[0].tolist(), ends, strict=True):
                line = {"wanted_tokens_per_s_per_user": speed, "system": spec.id, "software": kind}
                line |= {"precision": precision, "stack": e.id, YIELD[0]: made}
                columns, left_out = _line(model, spec, steps, speed, kind, ask | {"efficiencies": e})
                low, high = left_out if kind == "public" else parts
                rows.append(line | columns | dict(zip(YIELD[1:], (low, high), strict=True)))
    table = tidy(rows)[COLUMNS.split()]
    return table.sort_values("wanted_tokens_per_s_per_user", kind="stable", ignore_index=True)


def _line(
    model: Any, spec: System, steps: Tried, speed: float, kind: str, ask: dict[str, Any]
) -> tuple[dict[str, Any], tuple[float, ...]]:
    """Return the best point at a speed with basis and reason, and yields at the ends of the step's interval."""
    at = steps.place(speed)
    mapping, batch = Degrees(tp=steps.tp[at], ep=steps.ep[at]), float(steps.batch[at])
    step = decode_step(model, spec, mapping, batch=batch, **ask)
    reached, fastest = steps.user[0, at] >= speed, steps.user[0].max()
    line: dict[str, Any] = {"basis": step.basis, "basis_reason": step.basis_reason}
    line |= {"tp": steps.tp[at], "ep": steps.ep[at], "batch": batch} if reached else dict.fromkeys(POINT, np.nan)
    if not reached:
        line["reason"] = f"at most {fastest:.0f} tokens/s" if fastest else "it does not fit"
    else:
        ask = {name: ask[name] for name in ("context", "precision")}
        line["reason"] = reason(model, spec, mapping, kind, batch=batch, **ask)
    if kind != "public" or not fastest:
        return line, (0.0, 0.0)
    slower = (float(end / step.time_s) for end in reversed(step.ends("time_s")))
    return line, tuple(float(steps.yields(np.array([speed]), times)[0, 0]) for times in slower)


def shared_point(
    model: str | Transformer, system: str, table: pd.DataFrame, **question: Any
) -> tuple[Degrees, float] | None:
    """Return mapping and batch of the highest hand-tuned yield at the slowest speed of `answers`.

    The batch is halved until it fits the public stack. The answer is None if it never fits, or if nothing is fast
    enough.
    """
    rows = table[(table.system == system) & (table.software == "hand-tuned") & (table.tokens_per_s_per_chip > 0)]
    for line in rows.head(1).itertuples():
        mapping = Degrees(tp=line.tp, ep=line.ep)
        batch = line.ep * np.exp2(np.arange(np.log2(line.batch / line.ep) + 1))
        fits = batch[decode_step(model, system, mapping, batch=batch, **question).valid]
        if len(fits):
            return mapping, float(fits.max())
    return None
