"""One deployment taken apart: its decode step, where another resource takes over, and its prefill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.arguments import number, numbers
from trnmodel.catalog import load
from trnmodel.catalog.stacks import IDEAL, Efficiencies
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import RESOURCES
from trnmodel.steps.rank import site
from trnmodel.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

BATCHES = np.exp2(np.arange(10.0))
CONTEXTS = np.exp2(np.arange(9.0, 18.0))
DOES_NOT_FIT = "does not fit"


def stacked(rows: Mapping[str, pd.DataFrame], name: str) -> pd.DataFrame:
    """Tables below each other, with their keys as a column."""
    import pandas as pd

    return pd.concat([frame.assign(**{name: label}) for label, frame in rows.items()], ignore_index=True)


def notation(d: Deployment) -> pd.DataFrame:
    """What the chapter's symbols mean and what they are for one rank of the deployment.

    Examples
    --------
    >>> import trnmodel as tm
    >>> d = Deployment(model="llama-3.1-8b", system="trn2.48xlarge", mapping=tm.Mapping(tp=4))
    >>> notation(d).set_index("symbol").value["b"]
    '725 GB/s'
    """
    import pandas as pd

    at, chosen, dtypes = site(d.system, d.mapping.lnc), read_model(d.model), load.precision(d.precision)
    weights, cache = chosen.weight_bytes_read(1, dtypes), chosen.kv_bytes(1, dtypes.kv)
    rows = [
        ("N", "active_params()", "parameters that a token meets", chosen.active_params(), "", "shapes of the model"),
        ("W", "weight_bytes_read()", "weights that a step at batch 1 reads", weights, "B", "shapes of the model"),
        ("c", "kv_bytes(1)", "what a token adds to the cache", cache, "B", "shapes of the model"),
        ("b", "hbm_bytes_per_s", "HBM bandwidth of a rank", at.hbm_bytes_per_s, "B/s", "chip / its ranks"),
        ("p", "peak()", f"{dtypes.compute} peak of a rank", at.peak(dtypes.compute), "FLOP/s", "chip / its ranks"),
        ("n", "mapping.ranks", "logical NeuronCores that share the model", d.mapping.ranks, "", "parameter"),
        ("B", "batch", "sequences of a replica that decode together", np.nan, "", "parameter"),
        ("L", "context", "tokens in the cache, the new one included", np.nan, "token", "parameter"),
        ("TTFT", "ttft_p50_s", "time to first token, queue included", np.nan, "s", "result"),
        ("TPOT", "tpot_mean_s", "time per output token, stalls by prefills included", np.nan, "s", "result"),
    ]
    table = pd.DataFrame(rows, columns=["symbol", "code name", "meaning", "value", "unit", "from"])
    known = [(float(value), unit) for value, unit in zip(table.value, table.unit, strict=True)]
    table["value"] = ["" if np.isnan(value) else format_quantity(value, unit) for value, unit in known]
    return table.drop(columns="unit")


def anatomy(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Time that each resource of a decode step takes by itself, and the step, on the ideal and on the named stack.

    Returns
    -------
    table : pandas.DataFrame
        software, part (a resource, or "step"), time_s, and time_s_low and time_s_high: all overlaps, nothing does. [-]
    """
    import pandas as pd

    rows = []
    for one in (d.ideal, d):
        step = one.decode(batch=batch, context=context).require_valid()
        times = {name: (getattr(step, f"{name}_s"),) * 3 for name in RESOURCES}
        times["step"] = step.time_s, step.lower_s, step.upper_s
        for part, (time, low, high) in times.items():
            ends = {"time_s": float(time), "time_s_low": float(low), "time_s_high": float(high)}
            rows.append({"software": one.e.id, "part": part, **ends})
    return pd.DataFrame(rows)


def operators(d: Deployment, batch: float, context: float) -> pd.DataFrame:
    """Compute and memory time of each operator of a decode step, the longest first."""
    import pandas as pd

    step = d.decode(batch=batch, context=context, breakdown=True).require_valid()
    rows = [
        {"operator": name, "compute_s": float(line.compute_s), "memory_s": float(line.memory_s)}
        for name, line in step.operators.items()
    ]
    table = pd.DataFrame(rows)
    table["longer_s"] = table[["compute_s", "memory_s"]].max(axis=1)
    return table.sort_values("longer_s", ascending=False, kind="stable", ignore_index=True)


def efficiency_table(e: Efficiencies) -> pd.DataFrame:
    """Every value in which a stack differs from the ideal one: what it is, its range, and who says so."""
    import pandas as pd

    facts, rows = load.facts_rows(), []
    for name in (field.name for field in fields(Efficiencies)):
        value = getattr(e, name)
        if name in ("id", "name", "sources", "ranges", "estimates") or value == getattr(IDEAL, name):
            continue
        used = [facts[fact_id] for fact_id in e.sources.get(name, ())]
        unit = load.quantities()[name].unit_si.replace("1", "")
        ends = [format_quantity(end, unit) for end in e.ranges.get(name, ())]
        rows.append(
            {
                "name": name,
                "value": format_quantity(value, unit) if isinstance(value, float) else value,
                "range": " to ".join(ends),
                "source": "; ".join(fact.source for fact in used),
                "confidence": "".join(sorted({fact.confidence for fact in used})),
                "what it is": load.quantities()[name].description,
                "how it is known": "; ".join(dict.fromkeys(fact.note for fact in used if fact.note)),
            }
        )
    names = ["name", "value", "range", "source", "confidence", "what it is", "how it is known"]
    return pd.DataFrame(rows, columns=names)


def regimes(d: Deployment, batches: ArrayLike = BATCHES, contexts: ArrayLike = CONTEXTS) -> pd.DataFrame:
    """What bounds a decode step over batch and context, from one call.

    Returns
    -------
    table : pandas.DataFrame
        software, batch, context, bound (a resource, or that it does not fit), time_s and each resource's time. [-]
    """
    batch, context = np.atleast_1d(numbers("batches", batches, 1)), np.atleast_1d(numbers("contexts", contexts, 1))
    found = {one.e.id: one.decode(batch=batch[:, None], context=context).to_frame() for one in (d, d.ideal)}
    table = stacked(found, "software").rename(columns={"tokens": "context"})
    table["bound"] = np.where(table.valid, table.bound, DOES_NOT_FIT)
    return table[["software", "batch", "context", "bound", "time_s", *(f"{name}_s" for name in RESOURCES)]]


def turning_points(table: pd.DataFrame) -> pd.DataFrame:
    """First batch at each context of `regimes` at which another resource bounds: software, context, batch, from, to."""
    import pandas as pd

    rows = []
    for (software, context), line in table.groupby(["software", "context"], sort=False):
        bounds, batches = line.bound.tolist(), line.batch.tolist()
        for before, after, batch in zip(bounds, bounds[1:], batches[1:], strict=False):
            if before != after and after != DOES_NOT_FIT:
                rows.append({"software": software, "context": context, "batch": batch, "from": before, "to": after})
    return pd.DataFrame(rows, columns=["software", "context", "batch", "from", "to"])


def prompts(d: Deployment, input_tokens: ArrayLike) -> pd.DataFrame:
    """Prefill time over the prompt's length: padded to the bucket, and exact; and how much is padding."""
    tokens = np.atleast_1d(numbers("input_tokens", input_tokens, 1))
    policies = {"compiled bucket": d, "exact length": replace(d, stack=replace(d.e, prompt_bucket="exact"))}
    found = {name: one.prefill(input_tokens=tokens).to_frame() for name, one in policies.items()}
    table = stacked(found, "policy").rename(columns={"tokens": "input_tokens"})
    table["padding_share"] = 1 - table.input_tokens / table.compiled_tokens
    names = "policy input_tokens compiled_tokens padding_share time_s compute_s memory_s network_s bound".split()
    return table[names]


def chunks(d: Deployment, input_tokens: float, chunk_tokens: Iterable[float], batch: float) -> pd.DataFrame:
    """Prefill in chunks, one between two decode steps: time to first token, and how long others wait for a token.

    Returns
    -------
    table : pandas.DataFrame
        chunk_tokens, pieces, prefill_s (all pieces), ttft_s (with a decode step after each), stall_s (longest pause of
        a sequence that decodes). [-]
    """
    import pandas as pd

    input_tokens, rows = number("input_tokens", input_tokens, 1), []
    step_s = float(d.decode(batch=batch, context=input_tokens).require_valid().time_s)
    for chunk in np.ravel(numbers("chunk_tokens", chunk_tokens, 1)).tolist():
        past = np.arange(0.0, input_tokens, chunk)
        pieces = d.prefill(input_tokens=np.minimum(chunk, input_tokens - past), past=past).require_valid().time_s
        rows.append(
            {
                "chunk_tokens": chunk,
                "pieces": len(past),
                "prefill_s": float(pieces.sum()),
                "ttft_s": float(pieces.sum()) + (len(past) - 1) * step_s,
                "stall_s": float(pieces.max()) + step_s,
            }
        )
    return pd.DataFrame(rows)


def prefixes(d: Deployment, input_tokens: float, shares: ArrayLike) -> pd.DataFrame:
    """Prefill of a prompt of which a share is cached already; each part pads to its own bucket."""
    import pandas as pd

    share, input_tokens = np.atleast_1d(numbers("shares", shares, 0.0, 1.0)), number("input_tokens", input_tokens, 1)
    new = np.maximum(np.round(input_tokens * (1 - share)), 1)
    step = d.prefill(input_tokens=new, past=input_tokens - new).require_valid()
    columns = {"prefix_share": share, "new_tokens": new, "compiled_tokens": step.compiled_tokens, "time_s": step.time_s}
    return pd.DataFrame(columns | {"speedup": float(d.prefill(input_tokens=input_tokens).time_s) / step.time_s})
