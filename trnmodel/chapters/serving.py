"""Many users: systems beside each other at equal speed, experts over chips, and one deployment under load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnmodel.arguments import TINY, integers, listed, numbers
from trnmodel.catalog.stacks import kinds
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.planner.deployments import MODES, drafting, formats, in_formats, saturation
from trnmodel.planner.plan import plan
from trnmodel.planner.sizing import shortfall
from trnmodel.planner.software import YIELD, in_band
from trnmodel.result import alike, stacked, tidy
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.serving import serve
from trnmodel.units import format_digits

SYMBOLS = [
    ("C", "chips", "chips of a replica", "", "result"),
    ("B", "batch", "sequences of a replica that decode together", "", "parameter"),
    ("t(B)", "step_s", "time of a decode step at a batch", "", "result"),
    ("P", "prefill_s", "time of the prefill of one prompt", "", "result"),
    ("lambda", "requests_per_s", "requests that arrive", "", "chosen"),
    ("o", "output_tokens", "tokens of an answer", "", "parameter"),
    ("TTFT", "ttft_p50_s", "time to first token, queue included", "", "result"),
    ("TPOT", "tpot_mean_s", "time per output token, stalls by prefills included", "", "result"),
    ("a", "acceptance", "share of drafted tokens that the large model keeps", "", "chosen"),
    ("d", "draft_tokens", "tokens that the small model drafts for a step", "", "chosen"),
]
DRAFTS = (1, 3, 5, 7)
TIED = 1.05  # times as much, up to which batches that are whole may decide


def fronts(d: Deployment, systems: Iterable[str], context: float) -> pd.DataFrame:
    """The frontier of each system that has a deployment's kind of software, in its precision or, without it, BF16."""
    names = [name for name in systems if d.e.kind in kinds(read_system(name).chip)]
    chosen = formats(names, [d.precision, "bf16"])
    return in_formats(d.model, chosen, context, efficiencies=d.e.word, max_context=context)


def refused(d: Deployment, table: pd.DataFrame, systems: Iterable[str], **lengths: float) -> dict[str, str]:
    """Why systems that `fronts` was asked for have no line there: what a sizing call says of each."""
    ask, why = {"tokens_per_s_per_user": TINY, **lengths}, dict[str, str]()
    for name in [name for name in systems if name not in set(table.system)]:
        if d.e.kind in kinds(read_system(name).chip):
            dtype = formats([name], [d.precision, "bf16"])[name]
            why |= plan(d.model, name, precision=dtype, efficiencies=d.e.word, **ask).refused
        else:
            why[name] = f"has no {d.e.kind} software"
    return why


def degrees(line: Mapping[str, Any] | pd.Series) -> str:
    """The mapping of a line of a frontier, as people write it.

    Examples
    --------
    >>> degrees({"tp": 16.0, "ep": 1.0, "batch": 38.0}), degrees({"tp": 2.0, "ep": 32.0, "batch": 416.0})
    ('TP 16, batch 38', 'TP 2, EP 32, batch 416')
    """
    experts = f" EP {line['ep']:g}," if line["ep"] > 1 else ""
    return f"TP {line['tp']:g},{experts} batch {line['batch']:g}"


def by_speed(equal: pd.DataFrame, called: Mapping[str, str], none: Mapping[str, str] | None = None) -> pd.DataFrame:
    """`deployments.at_interactivity` with a row a speed: tokens/s a chip with band and mapping, a column a system.

    `none` says why a system has no line.
    """
    rows = []
    for speed, lines in equal.groupby("wanted_tokens_per_s_per_user", sort=False):
        row = {"wanted_tokens_per_s_per_user": speed}
        for line in lines.to_dict("records"):
            made = "too slow" if pd.isna(line["tp"]) else f"{in_band(*(line[n] for n in YIELD))}: {degrees(line)}"
            row[called[line["system"]]] = made
        rows.append(row | {called[name]: why for name, why in (none or {}).items()})
    return tidy(rows)


def in_words(line: pd.Series, called: Mapping[str, str], reached: bool) -> str:
    """A line of a frontier in words: its system, what it yields or at most reaches, its mapping and basis."""
    name = called[line.system]
    if reached:
        return f"{name} with {in_band(*(line[n] for n in YIELD), line.basis)} tokens/s a chip, {degrees(line)}"
    return f"{name} with at most {format_digits(line.tokens_per_s_per_user, 2)} tokens/s for a user, {degrees(line)}"


def claim(ranked: pd.DataFrame, called: Mapping[str, str]) -> str:
    """What the first two lines of a ranking come to, as a title."""
    first, *rest = ranked.system.map(called)
    if not rest:
        return f"{first} alone is so fast"
    second = rest[0]
    ratio = ranked.tokens_per_s_per_chip.iloc[0] / ranked.tokens_per_s_per_chip.iloc[1]
    return f"{first} yields {format_digits(ratio, 2)} times the next" if ratio > TIED else f"{first} and {second} tie"


def gains(small: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Yields at one speed over that of BF16, by system and precision, where both are reached."""
    wide = small.pivot(index="system", columns="precision", values="tokens_per_s_per_chip")
    if "bf16" not in wide:
        return {}
    over = wide.div(wide.bf16, axis=0).drop(columns="bf16").stack()
    return {(str(system), str(dtype)): float(ratio) for (system, dtype), ratio in over.dropna().items()}


def most(found: Mapping[tuple[str, str], float]) -> str:
    """The largest of `gains` as a title says it."""
    (_, dtype), ratio = max(found.items(), key=lambda one: one[1], default=(("", ""), 1.0))
    more = f"Smaller weights yield more: {dtype} {ratio:.1f} times BF16"
    return more if ratio > TIED else "No precision yields more here"


def by_system(found: Mapping[tuple[str, str], float], called: Mapping[str, str]) -> str:
    """All of `gains` in words."""
    told = dict[str, list[str]]()
    for (system, dtype), ratio in found.items():
        told.setdefault(called[system], []).append(f"{ratio:.1f} in {dtype}")
    return "; ".join(f"{name} {', '.join(parts)}" for name, parts in told.items())


def expert_networks(
    model: str | Transformer,
    systems: Iterable[str],
    context: float,
    chips: Sequence[int],
    batch_per_chip: ArrayLike,
    precision: str,
) -> pd.DataFrame:
    """Time of all collectives of a decode step with experts over so many chips, TP within each chip."""
    each, over = np.ravel(numbers("batch_per_chip", batch_per_chip, TINY)), np.array(integers("chips", chips))
    ask, frames = {"batch": each[:, None] * over, "context": context, "precision": precision}, {}
    for system in listed("systems", systems):
        found = decode_step(model, system, Degrees(tp=site(system).ranks_per_chip, ep=over), **ask).to_frame()
        frames[system] = found[found.valid].rename(columns={"ep": "chips"})
    table = alike(stacked(frames, "system"))
    table = table.assign(batch_per_chip=table.batch / table.chips, network_share=table.network_s / table.time_s)
    return table["system chips batch_per_chip network_s time_s network_share stack basis".split()]


def slower(wires: pd.DataFrame, system: str, other: str, most: float = 64.0) -> dict[float, float]:
    """How many times as long the collectives of one system take as another's, by chips, at the most users both hold."""
    wide = wires[wires.batch_per_chip <= most].pivot(
        index=["chips", "batch_per_chip"], columns="system", values="network_s"
    )
    if not {system, other} <= set(wide):
        return {}
    ratio = (wide[system] / wide[other]).dropna()
    return {chips: float(line.iloc[-1]) for chips, line in ratio.groupby("chips")}


def load_curves(
    d: Deployment, max_batch: float, input_tokens: float, output_tokens: float, shares: ArrayLike
) -> pd.DataFrame:
    """`tm.serve` at shares of the rate that fills the continuous batch, by `mode` of batching."""
    shape, share = {"input_tokens": input_tokens, "output_tokens": output_tokens}, numbers("shares", shares, TINY)
    full = saturation(d, max_batch, **shape).requests_per_s[0]
    ask = d.ask | shape | {"requests_per_s": full * share, "max_batch": max_batch}
    return stacked({mode: serve(**ask, **how).to_frame() for mode, how in MODES.items()}, "mode")


def percentiles(curves: pd.DataFrame, low: str, high: str, names: tuple[str, str]) -> pd.DataFrame:
    """Two columns of `load_curves` below each other as `time_s`, `percentile` naming which."""
    renamed = curves[curves.valid].rename(columns=dict(zip((low, high), names, strict=True)))
    return renamed.melt(["mode", "requests_per_s", "basis"], list(names), "percentile", "time_s")


def no_draft(d: Deployment, draft: Transformer, batch: float, context: float) -> str:
    """Why a small model cannot draft for a deployment; empty where it can.

    Examples
    --------
    >>> d = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Degrees(tp=64))
    >>> no_draft(d, read_model("llama-3.2-1b"), 16, 4096), no_draft(d, read_model("gpt2"), 16, 512)
    ('', 'gpt2 has a vocabulary of 50,257 tokens, llama-3.1-70b one of 128,256')
    """
    m = read_model(d.model)
    if draft.vocab_size != m.vocab_size:
        return f"{draft.id} has a vocabulary of {draft.vocab_size:,} tokens, {m.id} one of {m.vocab_size:,}"
    if draft.max_context and draft.max_context < context:
        return f"{draft.id} ends at {draft.max_context:,} tokens, {context:,.0f} are asked for"
    small = drafting(d, draft)
    why = shortfall(small, max(batch / d.mapping.ep, 1), context)
    return f"{draft.id}, TP {small.mapping.tp:g}: {why}" if why else ""
