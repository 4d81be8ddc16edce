"""Serving many users: systems at equal speed, experts over chips, and one deployment under load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.shared.software_kinds import POINT, YIELD, in_band
from trnmodel.arguments import HUGE, TINY, integers, listed, numbers
from trnmodel.catalog import load
from trnmodel.catalog.stacks import kinds
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import alike, stacked, tidy
from trnmodel.search.deployments import MODES, drafting, saturation
from trnmodel.search.frontier import formats, frontiers, in_formats
from trnmodel.search.plan import plan
from trnmodel.search.single import best_choice
from trnmodel.search.sizing import shortfall
from trnmodel.serving.server import serve
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.request import Request
from trnmodel.units import format_digits

SYMBOLS = [
    ("C", "chips", "chips of a replica", "", "result"),
    ("", "batch", "sequences of a replica that decode together", "", "parameter"),
    ("", "step_s", "time of a decode step at a batch", "", "result"),
    ("", "prefill_s", "", "", "result"),
    ("", "requests_per_s", "requests that arrive", "", "chosen"),
    ("", "output_tokens", "tokens of an answer", "", "parameter"),
    ("", "ttft_p50_s", "time to first token, queue included", "", "result"),
    ("", "tpot_mean_s", "time per output token, stalls by prefills included", "", "result"),
    ("", "acceptance", "", "", "chosen"),
    ("d", "draft_tokens", "tokens that the small model drafts for a step", "", "chosen"),
]
CURVE = (5.0, 10.0, 20.0, 30.0, 40.0, 60.0, 90.0, 140.0)  # promised to a user, in charts [token/s]
FASTER = HUGE  # token/s that nothing reaches: the search then answers with what comes nearest
DRAFTS = (1, 3, 5, 7)
SURE = 0.995  # chance from which it is not printed
TIED = 1.05  # ratio up to which the rounding of batches may decide


def fronts(d: Deployment, request: Request, systems: Iterable[str], tokens_per_s_per_user: ArrayLike) -> pd.DataFrame:
    """Return frontiers of the systems that have the deployment's kind of software, in its precision or BF16."""
    names = [name for name in systems if d.e.kind in kinds(read_system(name).chip)]
    chosen = formats(names, [load.precision(d.precision).name, "bf16"])
    more: dict[str, Any] = {"tokens_per_s_per_user": tokens_per_s_per_user, "efficiencies": d.e.word}
    return in_formats(d.model, request, chosen, **more)


def in_each(
    model: str | Transformer,
    request: Request,
    systems: Iterable[str],
    tokens_per_s_per_user: ArrayLike,
    precisions: Sequence[str],
    efficiencies: str | None = None,
) -> pd.DataFrame:
    """Return frontiers in each precision by itself, below each other."""
    ask = model, request, list(systems), tokens_per_s_per_user
    return pd.concat([frontiers(*ask, [one], efficiencies) for one in precisions], ignore_index=True)


def fastest(d: Deployment, request: Request, systems: Iterable[str]) -> pd.DataFrame:
    """Return the fastest choice of each system on the deployment's kind of software, the fastest system first."""
    ends = replace(request, tokens_per_s_per_user=FASTER)
    rows = []
    for name in [name for name in systems if d.e.kind in kinds(read_system(name).chip)]:
        dtype = formats([name], [load.precision(d.precision).name, "bf16"])[name]
        c = best_choice(read_model(d.model), ends, read_system(name), d.e.word, dtype)
        if c is not None:
            row = {key: getattr(c, key) for key in ("precision", *POINT, "tokens_per_s_per_user")}
            rows.append({"system": name, **row, "stack": c.stack.id, "basis": str(c.basis)})
    table = pd.DataFrame(rows)
    return table.sort_values("tokens_per_s_per_user", ascending=False, kind="stable") if rows else table


def refused(d: Deployment, request: Request, table: pd.DataFrame, systems: Iterable[str]) -> dict[str, str]:
    """Return why systems have no row in `fronts`: the reason that a sizing call gives for each."""
    why = dict[str, str]()
    for name in [name for name in systems if name not in set(table.system)]:
        if d.e.kind in kinds(read_system(name).chip):
            dtype = formats([name], [load.precision(d.precision).name, "bf16"])[name]
            found = plan(d.model, request, name, precision=dtype, efficiencies=d.e.word).refused
            why |= found or {name: "keeps none of the promised speeds"}
        else:
            why[name] = f"has no {d.e.kind} software"
    return why


def degrees(line: Mapping[str, Any] | pd.Series) -> str:
    """Format the mapping and batch of a row of a frontier.

    Examples
    --------
    >>> degrees({"tp": 16.0, "ep": 1.0, "batch": 38.0}), degrees({"tp": 2.0, "ep": 32.0, "batch": 416.0})
    ('TP 16, batch 38', 'TP 2, EP 32, batch 416')
    """
    more = "".join(f" {name.upper()} {line[name]:g}," for name in ("ep", "pp", "cp") if line.get(name, 1) > 1)
    return f"TP {line['tp']:g},{more} batch {line['batch']:g}"


def by_speed(equal: pd.DataFrame, called: Mapping[str, str], none: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return one row per promised speed: tokens/s per paid chip with band and mapping, a column per system.

    `none` holds the reason of each system without a row.
    """
    rows = []
    for speed, lines in equal.groupby("promised_tokens_per_s_per_user", sort=False):
        row = {"promised_tokens_per_s_per_user": speed}
        for line in lines.to_dict("records"):
            made = "too slow" if pd.isna(line["tp"]) else f"{in_band(*(line[n] for n in YIELD))}: {degrees(line)}"
            row[called[line["system"]]] = made
        rows.append(row | {called[name]: why for name, why in (none or {}).items()})
    return tidy(rows)


def describe_line(line: pd.Series, called: Mapping[str, str], reached: bool) -> str:
    """Describe a row of a frontier: its system, its yield and chance, or its highest speed, its mapping and basis."""
    name = called[line.system]
    if reached:
        value, low, high = (line[n] for n in YIELD)
        chance = f", promise kept in {line.chance:.0%} of the draws" if line.chance < SURE else ""
        return f"{name} with {in_band(value, low, high, line.basis)} tokens/s per paid chip, {degrees(line)}{chance}"
    return f"{name} with at most {format_digits(line.tokens_per_s_per_user, 2)} tokens/s for a user, {degrees(line)}"


def claim(ranked: pd.DataFrame, called: Mapping[str, str]) -> str:
    """Return the comparison of the first two rows of a ranking as a chart title."""
    first, *rest = ranked.system.map(called)
    if not rest:
        return f"{first} alone is so fast"
    second = rest[0]
    ratio = ranked.tokens_per_s_per_chip.iloc[0] / ranked.tokens_per_s_per_chip.iloc[1]
    return f"{first} yields {format_digits(ratio, 2)} times the next" if ratio > TIED else f"{first} and {second} tie"


def gains(small: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return yields over that of BF16 at one speed, by system and precision, where both are reached."""
    wide = small.pivot(index="system", columns="precision", values="tokens_per_s_per_chip")
    if "bf16" not in wide:
        return {}
    over = wide.div(wide.bf16, axis=0).drop(columns="bf16").stack()
    return {(str(system), str(dtype)): float(ratio) for (system, dtype), ratio in over.dropna().items()}


def most(ratios: Mapping[tuple[str, str], float]) -> str:
    """Return the largest of `gains` as a chart title."""
    (_, dtype), ratio = max(ratios.items(), key=lambda one: one[1], default=(("", ""), 1.0))
    more = f"Smaller weights yield more: {dtype} {ratio:.1f} times BF16"
    return more if ratio > TIED else "No precision yields more here"


def by_system(ratios: Mapping[tuple[str, str], float], called: Mapping[str, str]) -> str:
    """Describe all of `gains`, by system."""
    by_name = dict[str, list[str]]()
    for (system, dtype), ratio in ratios.items():
        by_name.setdefault(called[system], []).append(f"{ratio:.1f} in {dtype}")
    return "; ".join(f"{name} {', '.join(parts)}" for name, parts in by_name.items())


def expert_networks(
    model: str | Transformer,
    systems: Iterable[str],
    context: float,
    chips: Sequence[int],
    batch_per_chip: ArrayLike,
    precision: str,
) -> pd.DataFrame:
    """Return the time of a decode step's collectives with experts over chips and TP within each chip."""
    each, over = np.ravel(numbers("batch_per_chip", batch_per_chip, TINY)), np.array(integers("chips", chips))
    ask, frames = {"batch": each[:, None] * over, "context": context, "precision": precision}, {}
    for system in listed("systems", systems):
        steps = decode_step(model, system, Degrees(tp=site(system).ranks_per_chip, ep=over), **ask).to_frame()
        frames[system] = steps[steps.valid].rename(columns={"ep": "chips"})
    table = alike(stacked(frames, "system"))
    table = table.assign(batch_per_chip=table.batch / table.chips, network_share=table.network_s / table.time_s)
    return table["system chips batch_per_chip network_s time_s network_share stack basis".split()]


def slower(wires: pd.DataFrame, system: str, other: str, most: float = 64.0) -> dict[float, float]:
    """Return the ratio of two systems' collective times by chips, at the largest batch that both hold."""
    wide = wires[wires.batch_per_chip <= most].pivot(
        index=["chips", "batch_per_chip"], columns="system", values="network_s"
    )
    if not {system, other} <= set(wide):
        return {}
    ratio = (wide[system] / wide[other]).dropna()
    return {chips: float(line.iloc[-1]) for chips, line in ratio.groupby("chips")}


def load_curves(d: Deployment, max_batch: float, request: Request, shares: ArrayLike) -> pd.DataFrame:
    """Return `tm.serve` at shares of the rate that fills the continuous batch, by `mode` of batching."""
    full = saturation(d, max_batch, request).requests_per_s[0]
    arriving = replace(request, requests_per_s=full * numbers("shares", shares, TINY))
    ask = d.ask | {"request": arriving, "max_batch": max_batch}
    return stacked({mode: serve(**ask, **how).to_frame() for mode, how in MODES.items()}, "mode")


def percentiles(curves: pd.DataFrame, low: str, high: str, names: tuple[str, str]) -> pd.DataFrame:
    """Return two columns of `load_curves` in long form: `time_s`, with its name in `percentile`."""
    renamed = curves[curves.valid].rename(columns=dict(zip((low, high), names, strict=True)))
    return renamed.melt(["mode", "requests_per_s", "basis"], list(names), "percentile", "time_s")


def no_draft(d: Deployment, draft: Transformer, batch: float, context: float) -> str:
    """Return why a small model cannot draft for a deployment; an empty text if it can.

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
