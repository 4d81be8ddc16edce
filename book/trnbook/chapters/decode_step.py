"""Tables of a decode step: its parts, the constant of a layer, and measurements that no fit has seen.

The chapter calls the model in its open cells; the functions here shape what these calls return.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd
from IPython.display import Markdown

import trnmodel as tm
from trnbook.chapters import common, guard
from trnbook.charts.language import named
from trnbook.shared import case
from trnbook.shared.step_parts import parts
from trnmodel.catalog import load
from trnmodel.catalog.stacks import IDEAL, KINDS, VALUES, Efficiencies, efficiencies
from trnmodel.catalog.systems import chip_of
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence import tables as evidence
from trnmodel.models.transformer import model as read_model
from trnmodel.search.choice import Choice
from trnmodel.steps.answers import Step, dominant_constant
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.rank import site
from trnmodel.units import MS, counted, format_quantity

MEASURED = load.DATA / "evidence" / "residuals_pages.csv"


class StepAt(NamedTuple):
    """What the parameters of the chapter ask: the deployment, and the arguments of `tm.decode_step`."""

    deployment: Deployment
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
) -> StepAt:
    """Check each parameter of the chapter, and return them as the arguments of `tm.decode_step`.

    The step is the middle one of the answer: its cache holds the prompt and half of what is generated. `guard.fits`
    asks whether it fits in memory.

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
    at = Deployment(model=m, system=spec.id, mapping=tm.Mapping(tp=tp, ep=ep), precision=precision, stack=used)
    sizes = {"batch": batch, "context": float(request.mean_context), "max_context": float(request.longest_context)}
    return StepAt(at, at.mapping, sizes, {"precision": precision, "efficiencies": used})


def headline(step: Step, ideal: Step) -> Markdown:
    """Return the card of the chapter: the step with its band, the one that loses nothing, and how sure the first is."""
    said = f"one decode step of `{step.model.id}` on {step.system.name} for {counted(int(step.batch), 'sequence')}"
    proof = {"mark": str(step.basis), "proof": "Check: what was measured"}
    if step.stack.id == IDEAL.id:
        more = "Arithmetic on printed rates has no error bar."
        return Markdown(common.card(_time(step), said, alone="no software is faster", more=more, **proof))
    number = tuple(map(float, (step.time_s, *step.ends("time_s"))))
    sure = "**How sure?** Nine in ten measured steps of this kind should lie in the range in brackets."
    if share := float(step.overhead_s) / float(step.time_s):
        sure += f" A fitted constant per layer takes {100 * share:.0f}% of the step, and nobody knows its cause."
    if step.stack.estimates:
        sure += f" The constants of the software, `{step.stack.id}`, are our own estimates."
    rival = f"software that loses nothing would take {_time(ideal)}"
    return Markdown(common.card(number, said, unit="s", rival=rival, more=f"{sure}{_with_drafts(step)}", **proof))


def _with_drafts(step: Step) -> str:
    """Return what the step of the running case takes where it is this one, and checks drafts besides."""
    name = next((name for name in case.PROMISES if step.model is read_model(name)), "")
    if not name or step.system.id not in case.SYSTEMS:
        return ""
    of = case.choice(name, step.system.id)
    same = all(float(getattr(of.step, field)) == float(getattr(step, field)) for field in ("tp", "ep", "batch"))
    if not (same and of.option.draft_tokens and of.step.precision.name == step.precision.name):
        return ""
    return (
        f" This is a step without drafts. The step of the running case also checks {of.option.draft_tokens:g} drafted "
        f"tokens per sequence and takes {format_quantity(float(of.step.time_s), 's', 3)}."
    )


def command(at_point: StepAt, stack: str) -> Markdown:
    """Return the command that prints the step of the chapter, as a block of code."""
    flags = {"tp": at_point.mapping.tp, "ep": at_point.mapping.ep} | at_point.sizes
    shown = [f"--{name.replace('_', '-')} {value:.15g}" for name, value in flags.items() if (name, value) != ("ep", 1)]
    shown += [f"--precision {at_point.software['precision']}"] + [f"--stack {stack}"] * (stack != "public")
    model = read_model(at_point.deployment.model)
    at = f"trnmodel decode {model.path or model.id} {at_point.deployment.system}"
    return Markdown(f"```console\n{' '.join([at, *shown])}\n```")


def fastest(best: Choice) -> Markdown:
    """Return the highest speed of a user in a plan whose promise nobody keeps: mapping, and what limits it."""
    speed = best.in_words("tokens_per_s_per_user", "tokens/s per user", str(best.basis))
    said = f"{best.question.model.id} on {best.system.id} reaches at most **{speed.replace(' (', '** (', 1)}."
    mapping = ", ".join(f"{name.upper()} {getattr(best, name):g}" for name in ("tp", "ep") if getattr(best, name) > 1)
    said += f" It runs on {counted(float(best.chips), 'chip')} at batch {best.batch:g}."
    said += f" The mapping is {mapping or 'one rank'}."
    name, share = dominant_constant(best.step)
    said += f" One fitted constant, `{name}`, takes {100 * float(share):.0f}% of its step." if name else ""
    return Markdown(said)


def _time(step: Step) -> str:
    return format_quantity(float(step.time_s), "s", 2)


def cascade(step: Step) -> pd.DataFrame:
    """Return the parts of one step end to end, each named with its time."""
    table = parts({"step": step})
    said = [f"{part}, {_milliseconds(time_s)}" for part, time_s in zip(table.part, table.time_s, strict=True)]
    end_s = table.time_s.cumsum()
    return pd.DataFrame({"what": said, "part": table.part, "from_s": end_s - table.time_s, "time_s": end_s})


NAMED = {"layers": "an unexplained constant"}  # parts of a step as a title calls them


def claim(step: Step) -> str:
    """Return as a title which two parts of a step are the longest.

    Examples
    --------
    >>> claim(tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=1, context=1000))
    'An unexplained constant and weights take most of the step'
    """
    table = parts({"step": step}).sort_values("time_s", ascending=False, kind="stable").head(2)
    names = [NAMED.get(part.lower(), part.lower()) for part in table.part]
    if table.time_s.iloc[0] > 0.5 * float(step.time_s) and table.time_s.iloc[1] < 0.1 * float(step.time_s):
        names = names[:1]
    said = " and ".join(names) + (" take" if len(names) > 1 or names[0].endswith("s") else " takes")
    return f"{said[0].upper()}{said[1:]} most of the step"


def _milliseconds(time_s: float) -> str:
    return f"{time_s / MS:.3g} ms" if time_s > 1e-9 else "hidden"


def described(step: Step) -> str:
    """Return precision, mapping, batch and compiled context of a step, as a subtitle of a chart."""
    pairs = [(name.upper(), float(getattr(step, name))) for name in ("tp", "ep")]
    degrees = " ".join(f"{name} {degree:g}" for name, degree in pairs if degree > 1) or "one rank"
    tokens = f"compiled for {float(step.batch):g} x {float(step.compiled_tokens):,.0f} tokens"
    return f"{step.precision.name.upper()}, {degrees}, {tokens}; together {_milliseconds(float(step.time_s))}"


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


def wrong() -> pd.DataFrame:
    """Return the errors of decode steps whose page no fit has seen, beside those of a regression on bytes and FLOP.

    The regression is compared where a model is left out, which both can do.
    """
    rows = evidence.accuracy().set_index(["split", "group"])
    table = rows.loc[evidence.SOURCE].loc[["dense decode", "MoE and hybrid decode"]]
    left_out = rows.loc[evidence.LEFT_OUT].loc[table.index]
    return pd.DataFrame(
        {
            "what": ["dense models", "mixtures and hybrids"],
            "configurations": table.cases.to_numpy(),
            "pages": table.pages.to_numpy(),
            "median_error": table.median_error.to_numpy(),
            "p90_error": table.p90_error.to_numpy(),
            "model_left_out_error": left_out.median_error.to_numpy(),
            "regression_error": left_out.naive_median.to_numpy(),
        }
    )


def medians(errors: pd.DataFrame, unseen: pd.DataFrame) -> Markdown:
    """Return the median errors of `wrong` as a sentence, and how many steps of `unseen` took over twice as long."""
    said = " and ".join(f"**{one.median_error:.0%}** for {one.what}" for one in errors.itertuples())
    slow = unseen[unseen.measured_s > 2 * unseen.predicted_s]
    on = " or ".join(sorted(map(named, slow.chip.unique())))
    return Markdown(
        f"With its page left out, the median error of a step is {said}. In the chart, {len(slow)} of {len(unseen)} "
        f"steps took more than twice as long as predicted. They ran dense models on {on}, and we do not know why. "
        "Mixtures of experts on Trainium2 often do: [How wrong are we?](accuracy.ipynb)"
    )


def unseen() -> pd.DataFrame:
    """Return measured decode steps of dense models, each with the prediction of a fit that has not seen its page.

    Returns
    -------
    table : pandas.DataFrame
        chip, model, tp, batch, context, measured_s, predicted_s, error, source, case. [-]
    """
    rows = pd.read_csv(MEASURED, keep_default_na=False, na_values=["nan"])
    rows = rows[rows.group.eq("decode") & rows.meaning.eq("decode-step")]
    case = [
        f"{row.model}, TP {row.tp}, batch {row.batch}, {float(row.context):,.0f} tokens" for row in rows.itertuples()
    ]
    table = rows.assign(measured_s=rows.measured, predicted_s=rows.measured * (1 + rows.error), case=case)
    columns = ["chip", "model", "tp", "batch", "context", "measured_s", "predicted_s", "error", "source", "case"]
    return table[columns].drop_duplicates(ignore_index=True)  # a page may print a step twice


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


def symbols_of(at_point: StepAt, step: Step) -> pd.DataFrame:
    """Return the chapter's symbols per rank, with their values in the step that was asked for."""
    d, sizes = at_point.deployment, at_point.sizes
    at, chosen, dtypes = site(d.system, d.mapping.lnc), read_model(d.model), load.precision(d.precision)
    weights, cache = chosen.weight_bytes_read(1, dtypes), chosen.kv_bytes(1, dtypes.kv)
    rows: list[tuple[str, str, str, Any, str, str]] = [
        ("N", "active_params(False)", "parameters that multiply a token", chosen.active_params(False), "", "shapes"),
        ("W", "weight_bytes_read()", "weights that a step at batch 1 reads", weights, "B", "shapes of the model"),
        ("c", "kv_bytes(1)", "cache of one token", cache, "B", "shapes of the model"),
        ("b", "hbm_bytes_per_s", "HBM bandwidth of a rank", at.hbm_bytes_per_s, "B/s", "chip / its ranks"),
        ("p", "peak()", f"{dtypes.compute} peak of a rank", at.peak(dtypes.compute), "FLOP/s", "chip / its ranks"),
        ("n", "mapping.ranks", "logical NeuronCores that share the model", d.mapping.ranks, "", "parameter"),
        ("τ", "dense_layer_s", "constant of a layer without experts", d.e.dense_layer_s, "s", "fitted"),
    ]
    shown = [(*row[:3], format_quantity(float(row[3]), row[4]), row[5]) for row in rows]
    shown += [
        ("B", "batch", "sequences of a replica that decode together", f"{sizes['batch']:g}", "parameter"),
        ("L", "compiled_tokens", "tokens that the graph reads per sequence", f"{step.compiled_tokens:g}", "graph"),
    ]
    return common.notation(shown, "from")


def sources(step: Step) -> pd.DataFrame:
    """Return the sources of the chip's rates and of the constants of the software."""
    facts, chip = tm.facts(), chip_of(step.system)
    rates = facts[(facts.entity == chip.id) & facts.quantity.str.contains("hbm|peak")]
    values = efficiency_table(step.stack).source
    return common.bibliography({*filter(None, values.str.split("; ").explode()), *rates.source})
