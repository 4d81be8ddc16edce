"""Tables of a decode step: its parts, the constant of a layer, and measurements that no fit has seen.

The chapter calls the model in its open cells; the functions here shape what these calls return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

import trnmodel as tm
from trnbook.chapters import common, guard
from trnmodel.catalog import load
from trnmodel.catalog.stacks import IDEAL, KINDS, VALUES, Efficiencies, efficiencies
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import tables as evidence
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.answers import Step
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.rank import site
from trnmodel.units import MS, format_quantity

PARTS = ("weights", "cache", "compute", "exchanges", "layers")
MEASURED = load.DATA / "evidence" / "residuals_pages.csv"


class Asked(NamedTuple):
    """What the parameters of the chapter ask: the arguments of `tm.decode_step`."""

    mapping: tm.Mapping
    sizes: dict[str, float]
    software: dict[str, str | Efficiencies]


def check(
    model: str,
    system: str,
    *,
    precision: str,
    stack: str,
    tp: int,
    ep: int,
    batch: int,
    input_tokens: int,
    output_tokens: int,
) -> Asked:
    """Check the parameters of the chapter, and return them as the arguments of `tm.decode_step`.

    The step is the middle one of the answer: its cache holds the prompt and half of what is generated.

    Examples
    --------
    >>> ask = {"tp": 8, "ep": 1, "batch": 4, "input_tokens": 1024, "output_tokens": 256}
    >>> check("llama-3.1-8b", "trn2.48xlarge", precision="bf16", stack="public", **ask).sizes
    {'batch': 4, 'context': 1152.0, 'max_context': 1280.0}
    """
    m, spec = read_model(model), read_system(system)
    guard.neuroncore(system=spec)
    guard.computes(spec.chip, precision=precision)
    guard.software(spec.chip, stack=stack)
    guard.generates(model=m)
    guard.within(1, 1e6, tp=tp, ep=ep, batch=batch, input_tokens=input_tokens, output_tokens=output_tokens)
    request = tm.Request(input_tokens, output_tokens)
    guard.spans(request.longest_context, model=m)
    used = efficiencies(spec.chip, KINDS.get(stack, stack))
    at = Deployment(model=m, system=spec, mapping=tm.Mapping(tp=tp, ep=ep), precision=precision, stack=used)
    guard.fits(at, batch, request.longest_context)
    prompt = at.prefill(input_tokens=input_tokens, max_context=request.longest_context)
    guard.valid(f"a prefill with tp = {tp}, ep = {ep}, input_tokens = {input_tokens}", prompt)
    sizes = {"batch": batch, "context": request.mean_context, "max_context": request.longest_context}
    return Asked(at.mapping, sizes, {"precision": precision, "efficiencies": used})


def headline(step: Step, ideal: Step) -> str:
    """Return the card of the chapter: the step, the one that loses nothing, and how sure the first is."""
    low, high = (format_quantity(float(end), "s", 2) for end in step.ends("time_s"))
    said = f"one decode step of `{step.model.id}` on {step.system.name} for {float(step.batch):,.0f} sequences"
    if step.stack.id == IDEAL.id:
        return common.card(
            _time(step), said, mark=str(step.basis), alone="nothing is faster than software that loses nothing",
            proof="Check: what was measured", more="Arithmetic on printed rates has no error bar.",
        )  # fmt: skip
    sure = f"**How sure:** nine in ten measured steps of this kind should lie between {low} and {high}."
    if step.stack.estimates:
        sure += f" The constants of the software, `{step.stack.id}`, are our own estimates (D)."
    return common.card(
        _time(step),
        said,
        mark=str(step.basis),
        rival=f"software that loses nothing would take {_time(ideal)}",
        proof="Check: what was measured",
        more=sure,
    )


def _time(step: Step) -> str:
    return format_quantity(float(step.time_s), "s", 2)


def parts(steps: Mapping[str, Step], *names: str) -> pd.DataFrame:
    """Return the parts of each step that add up to its time; a step that cannot exist has none.

    Parameters
    ----------
    steps : mapping of str to Step
        Steps of one point by what they are called. [-]
    names : str
        Columns of `Step.to_frame` to put beside the parts. [-]

    Returns
    -------
    table : pandas.DataFrame
        case, part and time_s. Part "compute" is what reads of memory do not hide. [-]
    """
    rows = []
    for name, step in steps.items():
        if not step.valid:
            continue
        reads = {"cache": 0.0, "weights": 0.0}
        for line, times in step.breakdown().items():
            reads["cache" if line.endswith((" attention", " scan", "state")) else "weights"] += float(times.memory_s)
        memory_s, layers_s = float(step.memory_s), float(step.overhead_s)
        scale = memory_s / max(sum(reads.values()), 1e-30)
        device_s = float(step.time_s) - layers_s
        alone_s = max(float(step.compute_s), memory_s)  # of work that hides as much as it can
        overlap = float(step.question.network_overlap)
        network_s = max((1 - overlap) * float(step.network_s), min(device_s - alone_s, float(step.network_s)))
        network_s = network_s if overlap else float(step.network_s)
        times_s = {"weights": scale * reads["weights"], "cache": scale * reads["cache"]}
        times_s |= {"compute": device_s - memory_s - network_s, "exchanges": network_s, "layers": layers_s}
        more = [step.to_frame()[column].iloc[0] for column in names]
        rows += [(name, part, max(times_s[part], 0.0), *more) for part in PARTS]
    return pd.DataFrame(rows, columns=["case", "part", "time_s", *names])


def cascade(step: Step) -> pd.DataFrame:
    """Return the parts of one step end to end, each named with its time, and the whole."""
    table = parts({"step": step})
    table = table[table.time_s > 0.001 * float(step.time_s)].assign(end_s=lambda rows: rows.time_s.cumsum())
    table = table.assign(start_s=table.end_s - table.time_s)[["part", "start_s", "end_s", "time_s"]]
    table.loc[len(PARTS)] = ["the step", 0.0, float(step.time_s), float(step.time_s)]
    table["line"] = [f"{part}, {time_s / MS:.3g} ms" for part, time_s in zip(table.part, table.time_s, strict=True)]
    return table.reset_index(drop=True)


def operators(step: Step) -> pd.DataFrame:
    """Return compute and memory time of each operator of a decode step, the longest first."""
    rows = [(name, float(line.compute_s), float(line.memory_s)) for name, line in step.breakdown().items()]
    table = pd.DataFrame(rows, columns=["operator", "compute_s", "memory_s"])
    table["longer_s"] = table[["compute_s", "memory_s"]].max(axis=1)
    table = table[table.longer_s > 0].assign(share_of_step=table.longer_s / float(step.time_s))
    layers = {name.partition(": ")[0] for name in table.operator if ": " in name}
    if len(layers) == 1:  # all layers are alike
        table["operator"] = table.operator.str.removeprefix(f"{layers.pop()}: ")
    return table.sort_values("longer_s", ascending=False, kind="stable", ignore_index=True)


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


def unseen() -> pd.DataFrame:
    """Return measured decode steps of dense models, each with the prediction of a fit that has not seen its page.

    Returns
    -------
    table : pandas.DataFrame
        chip, model, tp, batch, context, measured_s, predicted_s, error, source, case. [-]
    """
    rows = pd.read_csv(MEASURED, keep_default_na=False, na_values=["nan"])
    rows = rows[rows.group.eq("decode") & rows.meaning.eq("decode-step")]
    case = [f"{row.model}, TP {row.tp}, batch {row.batch}, {float(row.context):,.0f} tokens" for row in rows.itertuples()]
    table = rows.assign(measured_s=rows.measured, predicted_s=rows.measured * (1 + rows.error), case=case)
    columns = ["chip", "model", "tp", "batch", "context", "measured_s", "predicted_s", "error", "source", "case"]
    return table[columns].reset_index(drop=True)


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


def symbols(model: str | Transformer, system: str, asked: Asked) -> list[tuple[str, ...]]:
    """Return the chapter's notation per rank: rows of `common.notation` with their origin."""
    chosen, dtypes = read_model(model), load.precision(str(asked.software["precision"]))
    at, e = site(system, asked.mapping.lnc), efficiencies(read_system(system).chip, asked.software["efficiencies"])
    weights, cache = chosen.weight_bytes_read(1, dtypes), chosen.kv_bytes(1, dtypes.kv)
    rows = [
        ("N", "active_params()", "parameters that a token meets", chosen.active_params(), "", "shapes of the model"),
        ("W", "weight_bytes_read()", "weights that a step at batch 1 reads", weights, "B", "shapes of the model"),
        ("c", "kv_bytes(1)", "cache of one token", cache, "B", "shapes of the model"),
        ("b", "hbm_bytes_per_s", "HBM bandwidth of a rank", at.hbm_bytes_per_s, "B/s", "chip / its ranks"),
        ("p", "peak()", f"{dtypes.compute} peak of a rank", at.peak(dtypes.compute), "FLOP/s", "chip / its ranks"),
        ("n", "mapping.ranks", "logical NeuronCores that share the model", asked.mapping.ranks, "", "parameter"),
        ("τ", "dense_layer_s", "constant of a layer without experts", e.dense_layer_s, "s", "fitted"),
    ]
    return [
        *((symbol, name, said, format_quantity(float(value), unit), of) for symbol, name, said, value, unit, of in rows),
        ("B", "batch", "sequences of a replica that decode together", f"{asked.sizes['batch']:g}", "parameter"),
        ("L", "context", "tokens in the cache, the new one included", f"{asked.sizes['context']:g}", "parameter"),
    ]
