"""Tables that take one deployment apart: its decode step, what bounds it where, and its prefill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from trnbook.chapters import common
from trnmodel.arguments import number, numbers
from trnmodel.catalog import load
from trnmodel.catalog.stacks import IDEAL, VALUES, Efficiencies, find, kinds
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import tables as evidence
from trnmodel.models.transformer import model as read_model
from trnmodel.result import stacked, tidy
from trnmodel.search.grid import computes
from trnmodel.search.sizing import shortfall
from trnmodel.steps.answers import RESOURCES
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.rank import site
from trnmodel.units import format_quantity

BATCHES = np.exp2(np.arange(10.0))
CONTEXTS = np.exp2(np.arange(9.0, 18.0))
DOES_NOT_FIT = "does not fit"


def symbols(d: Deployment) -> list[tuple[str, ...]]:
    """Return the chapter's notation per rank of the deployment: rows of `common.notation` with their origin."""
    at, chosen, dtypes = site(d.system, d.mapping.lnc), read_model(d.model), load.precision(d.precision)
    weights, cache = chosen.weight_bytes_read(1, dtypes), chosen.kv_bytes(1, dtypes.kv)
    rows: list[tuple[str, str, str, NDArray | float, str, str]] = [
        ("N", "active_params()", "parameters that a token meets", chosen.active_params(), "", "shapes of the model"),
        ("W", "weight_bytes_read()", "weights that a step at batch 1 reads", weights, "B", "shapes of the model"),
        ("c", "kv_bytes(1)", "what a token adds to the cache", cache, "B", "shapes of the model"),
        ("", "hbm_bytes_per_s", "HBM bandwidth of a rank", at.hbm_bytes_per_s, "B/s", "chip / its ranks"),
        ("p", "peak()", f"{dtypes.compute} peak of a rank", at.peak(dtypes.compute), "FLOP/s", "chip / its ranks"),
        ("n", "mapping.ranks", "logical NeuronCores that share the model", d.mapping.ranks, "", "parameter"),
    ]
    return [
        *(
            (symbol, name, meaning, format_quantity(float(value), unit), origin)
            for symbol, name, meaning, value, unit, origin in rows
        ),
        ("", "batch", "sequences of a replica that decode together", "", "parameter"),
        ("L", "context", "tokens in the cache, the new one included", "", "parameter"),
    ]


def unexplained() -> pd.DataFrame:
    """Return the time of a layer that no resource explains, in measured decode steps on Trainium2, by stack and ranks.

    The low and high ends hold 80 % of the steps.
    """
    rows = evidence.table("layers", chip="trn2")
    of = rows.groupby(["stack", "ranks"], sort=False).layer_s
    ends = {name: of.quantile(q) for name, q in (("layer_s", 0.5), ("layer_s_low", 0.1), ("layer_s_high", 0.9))}
    return (
        pd.DataFrame(ends | {"steps": of.size()})
        .reset_index()
        .sort_values(["ranks", "stack"], kind="stable", ignore_index=True)
    )


def with_layer_constants(e: Efficiencies, times: float) -> Efficiencies:
    """Return a stack whose layers, with and without experts, take their unexplained time so many times."""
    return replace(e, dense_layer_s=times * e.dense_layer_s, expert_core_s=times * e.expert_core_s, ranges={})


def anatomy(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Return the time per resource of a decode step, and the step, on the ideal and on the named software.

    The low end of a step overlaps everything, the high end nothing.
    """
    rows = []
    for one in {one.e.id: one for one in (d.ideal, d)}.values():
        step = one.decode(batch=batch, context=context, max_context=context).require_valid()
        times = {name: (getattr(step, f"{name}_s"),) * 3 for name in RESOURCES}
        times["step"] = step.time_s, step.lower_s, step.upper_s
        rows += [(one.e.id, part, *map(float, ends), step.basis) for part, ends in times.items()]
    return pd.DataFrame(rows, columns=["software", "part", "time_s", "time_s_low", "time_s_high", "basis"])


def operators(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Return compute and memory time of each operator of a decode step, the longest first."""
    step = d.decode(batch=batch, context=context, max_context=context, breakdown=True).require_valid()
    rows = [(name, float(line.compute_s), float(line.memory_s)) for name, line in step.operators.items()]
    table = pd.DataFrame(rows, columns=["operator", "compute_s", "memory_s"])
    table["longer_s"] = table[["compute_s", "memory_s"]].max(axis=1)
    table = table[table.longer_s > 0].assign(share_of_step=table.longer_s / float(step.time_s))
    layers = {name.partition(": ")[0] for name in table.operator if ": " in name}
    if len(layers) == 1:  # all layers are alike
        table["operator"] = table.operator.str.removeprefix(f"{layers.pop()}: ")
    return table.sort_values("longer_s", ascending=False, kind="stable", ignore_index=True)


def efficiency_table(e: Efficiencies) -> pd.DataFrame:
    """Return every value in which a stack differs from the ideal one, with range and source."""
    rows, columns = [], ["name", "value", "range", "source", "confidence", "what it is", "how it is known"]
    for name in (name for name in VALUES if name in load.quantities()):
        value, quantity = getattr(e, name), load.quantities()[name]
        if value == getattr(IDEAL, name):
            continue
        used = [load.facts_rows()[fact_id] for fact_id in e.sources.get(name, ())]
        unit = quantity.unit_si.replace("1", "")
        shown = format_quantity(value, unit) if isinstance(value, float) else value
        ends = " to ".join(format_quantity(end, unit) for end in e.ranges.get(name, ()))
        source, known = "; ".join(f.source for f in used), "; ".join(dict.fromkeys(f.note for f in used if f.note))
        confidence = "".join(sorted({fact.confidence for fact in used}))
        rows.append((name, shown, ends, source, confidence, quantity.description, known))
    return pd.DataFrame(rows, columns=columns)


def regimes(d: Deployment, batches: ArrayLike = BATCHES, contexts: ArrayLike = CONTEXTS) -> pd.DataFrame:
    """Return what bounds a decode step over batch and context, with the time of each resource."""
    batch, context = np.atleast_1d(numbers("batches", batches, 1)), np.atleast_1d(numbers("contexts", contexts, 1))
    longest = read_model(d.model).max_context
    context = context[context <= max(longest, context.min())] if longest else context
    steps = {one.e.id: one.decode(batch=batch[:, None], context=context).to_frame() for one in (d, d.ideal)}
    table = stacked(steps, "software").rename(columns={"tokens": "context"})
    table["bound"] = np.where(table.valid, table.bound, DOES_NOT_FIT)
    return table[["software", "batch", "context", "bound", "time_s", *(f"{name}_s" for name in RESOURCES), "basis"]]


def turning_points(table: pd.DataFrame) -> pd.DataFrame:
    """Return the first batch per context of `regimes` at which another resource becomes the bound."""
    lines = table.groupby(["software", "context"], sort=False)
    turns = table.assign(**{"from": lines.bound.shift(), "to": table.bound})
    turned = turns["from"].notna() & (turns["from"] != turns.to) & (turns.to != DOES_NOT_FIT)
    ordered = turns[turned].assign(line=lines.ngroup()[turned])
    ordered = ordered.sort_values(["line", "batch"], kind="stable", ignore_index=True)
    return ordered[["software", "context", "batch", "from", "to"]]


def takes_over(grid: pd.DataFrame, software: str, context: float) -> str:
    """Return, as a chart title, which resource takes longest over the batch on one line of `regimes`."""
    bounds = grid[(grid.software == software) & (grid.context == context)].set_index("batch").bound
    bounds = bounds[bounds != DOES_NOT_FIT]
    if bounds.empty:
        return "Not even one sequence fits"
    later = bounds[bounds != bounds.iloc[0]]
    if later.empty:
        return f"{bounds.iloc[0].capitalize()} takes longest at every batch"
    return f"{later.iloc[0].capitalize()} takes longest from batch {later.index[0]:g} on"


def prompts(d: Deployment, input_tokens: ArrayLike) -> pd.DataFrame:
    """Return prefill time over the prompt's length, padded to its bucket and exact, and the share of padding."""
    tokens = np.atleast_1d(numbers("input_tokens", input_tokens, 1))
    policies = {"compiled bucket": d, "exact length": replace(d, stack=replace(d.e, prompt_bucket="exact"))}
    steps = {name: one.prefill(input_tokens=tokens).to_frame() for name, one in policies.items()}
    table = stacked(steps, "policy").rename(columns={"tokens": "input_tokens"})
    table["padding_share"] = 1 - table.input_tokens / table.compiled_tokens
    names = "policy input_tokens compiled_tokens padding_share time_s compute_s memory_s network_s bound basis".split()
    return table[names]


def chunks(d: Deployment, input_tokens: float, chunk_tokens: Iterable[float], batch: float) -> pd.DataFrame:
    """Return prefill in chunks between decode steps: time to first token, and the longest pause of the others.

    Returns
    -------
    table : pandas.DataFrame
        chunk_tokens, pieces, prefill_s (all pieces), ttft_s (with a decode step after each piece), stall_s (longest
        pause of a decoding sequence). [-]
    """
    input_tokens, rows = number("input_tokens", input_tokens, 1), []
    step_s = float(d.decode(batch=batch, context=input_tokens).require_valid().time_s)
    for chunk in np.ravel(numbers("chunk_tokens", chunk_tokens, 1)).tolist():
        past = np.arange(0.0, input_tokens, chunk)
        pieces = d.prefill(input_tokens=np.minimum(chunk, input_tokens - past), past=past).require_valid().time_s
        whole_s, longest_s = float(pieces.sum()), float(pieces.max())
        rows.append((chunk, len(past), whole_s, whole_s + (len(past) - 1) * step_s, longest_s + step_s))
    table = pd.DataFrame(rows, columns=["chunk_tokens", "pieces", "prefill_s", "ttft_s", "stall_s"])
    return table.assign(basis=d.basis(batch, input_tokens, input_tokens))


def waits(pieces: pd.DataFrame) -> pd.DataFrame:
    """Return `chunks` in long form for a chart: the time to first token and the longest pause."""
    names = {"ttft_s": "first token of the prompt", "stall_s": "longest pause of the others"}
    return pieces.rename(columns=names).melt(["chunk_tokens", "basis"], list(names.values()), "what", "time_s")


def prefixes(d: Deployment, input_tokens: float, shares: ArrayLike) -> pd.DataFrame:
    """Return the prefill of a prompt of which a share is cached; the rest pads to its bucket."""
    share, input_tokens = np.atleast_1d(numbers("shares", shares, 0.0, 1.0)), number("input_tokens", input_tokens, 1)
    new = np.maximum(np.round(input_tokens * (1 - share)), 1)
    step = d.prefill(input_tokens=new, past=input_tokens - new).require_valid()
    columns = {"prefix_share": share, "new_tokens": new, "compiled_tokens": step.compiled_tokens, "time_s": step.time_s}
    speedup = float(d.prefill(input_tokens=input_tokens).time_s) / step.time_s
    return pd.DataFrame(columns | {"speedup": speedup, "basis": step.basis})


def changes(d: Deployment, batch: float, context: float, input_tokens: float) -> pd.DataFrame:
    """Return the step, tokens/s per chip of decoding alone, and first token with one thing changed, or why not."""
    m, at = read_model(d.model), d.mapping
    cases: dict[str, tuple[Deployment, float, float]] = {"nothing": (d, batch, context)}
    others = {f"TP {n:g}": replace(d, mapping=replace(at, tp=n)) for n in (at.tp // 2, at.tp * 2) if n}
    cases |= {f"batch {n:g}": (d, n, context) for n in (batch // 2, batch * 2) if n >= at.ep}
    if not m.max_context or 2 * context <= m.max_context:
        cases[f"context {2 * context:,.0f}"] = d, batch, 2 * context
    chip = read_system(d.system).chip
    formats = [name for name in common.FORMATS if name != d.precision and computes(d.system, name)]
    others |= {f"precision {name}": replace(d, precision=name) for name in formats}
    stacks = {kind: find(chip, word, "stack") for kind, word in kinds(chip).items()}
    others |= {f"{kind} software": replace(d, stack=e) for kind, e in stacks.items() if e.id != d.e.id}
    cases |= {name: (one, batch, context) for name, one in others.items()}
    rows = []
    for name, (one, users, length) in cases.items():
        step = one.decode(batch=users, context=length, max_context=length)
        first = one.prefill(input_tokens=input_tokens, max_context=length)
        row = {"changed": name, "step_s": step.time_s, "step_s_low": step.low, "step_s_high": step.high}
        row |= {"first_token_s": first.time_s, "first_token_s_low": first.low, "first_token_s_high": first.high}
        row |= step.banded("tokens_per_s_per_user")
        alone = step.banded("tokens_per_s_per_chip")  # of this step, without prompts
        row |= {f"decode_{name}": value for name, value in alone.items()}
        why = shortfall(one, users, length)
        rows.append({**row, "basis": "" if why else str(step.basis), "why not": why})
    return tidy(rows)
