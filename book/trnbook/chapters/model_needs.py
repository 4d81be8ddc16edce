"""What a model needs: where its parameters are, work and traffic of its operators, cache, formats of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters import common
from trnbook.shared.operators import step_operators
from trnmodel.arguments import listed, number, numbers
from trnmodel.catalog import load
from trnmodel.catalog.stacks import ExpertRead
from trnmodel.formulas.moe import distinct_experts
from trnmodel.models import describe
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy

BITS = 8  # per byte
POLICIES: Mapping[ExpertRead, str] = {
    "distinct": "each expert once",
    "per_token": "experts of each token anew",
    "all": "all experts",
}


def symbols(model: str | Transformer, precision: str) -> list[tuple[str, ...]]:
    """Return the chapter's notation with the values of a model: rows of `common.notation`."""
    m, stored = read_model(model), load.precision(precision)
    experts = next((f"{p.copies}, {p.active}" for _, p, _ in describe.parts(m) if p.group == "experts"), "none")
    return [
        ("", "total_params", "", f"{m.total_params:,}"),
        ("N_a", "active_params", "parameters that one token uses", f"{m.active_params():,}"),
        ("l, h", "n_layers, hidden_size", "layers; width of the residual stream", f"{m.n_layers}, {m.hidden_size}"),
        ("E, k", "copies, active", "routed experts of a layer; experts of a token", experts),
        ("s", "storage_bytes", f"bytes of a weight in {stored.name}", f"{stored.storage_bytes('weights'):g} B"),
        ("", "kv_bytes_per_token", "", f"{m.kv_bytes_per_token(stored.kv):,.0f} B"),
        ("", "tokens, context", "tokens of a prompt; tokens in the cache, the new one included", ""),
        ("", "batch", "sequences that a decode step serves", ""),
        ("", "intensity_flop_per_byte", "", ""),
    ]


def sizes(models: Iterable[str | Transformer]) -> pd.DataFrame:
    """Return total and active parameters, the active ones with and without the token table.

    Examples
    --------
    >>> sizes(["deepseek-v3"])[["total", "active"]].iloc[0].tolist()
    [671026404352, 37552282624]
    """
    return pd.DataFrame(
        {
            "model": chosen.id,
            "total": chosen.total_params,
            "active": chosen.active_params(),
            "active_without_table": chosen.active_params(input_embedding=False),
            "active_share": chosen.active_params() / chosen.total_params,
            "layers": chosen.n_layers,
            "hidden": chosen.hidden_size,
            "attention": describe.attention_kind(chosen),
        }
        for chosen in map(read_model, listed("models", models))
    )


def places(models: Iterable[str | Transformer]) -> pd.DataFrame:
    """Return where parameters are: all of them, and those used per token; a tied head stores nothing.

    Examples
    --------
    >>> float(places(["deepseek-v3"]).set_index("place").share["routed experts"].round(3))
    0.974
    """
    by_model = {chosen: describe.by_place(chosen) for chosen in map(read_model, listed("models", models))}
    rows = [
        (chosen.id, place, where[place][0], where[place][0] / chosen.total_params, where[place][1])
        for place in describe.ORDER
        for chosen, where in by_model.items()
        if place in where
    ]
    return pd.DataFrame(rows, columns=["model", "place", "parameters", "share", "active"])


def phases(model: str | Transformer, batch: float, input_tokens: float, context: float, precision: str) -> pd.DataFrame:
    """Return operators of the prefill of one prompt and of a decode step at the end of the answer."""
    input_tokens, context = number("input_tokens", input_tokens, 1), number("context", context, 1)
    prompt = step_operators(model, "prefill", 1, input_tokens, 0, precision)
    return pd.concat([prompt, step_operators(model, "decode", batch, 1, context - 1, precision)], ignore_index=True)


def against_ridges(table: pd.DataFrame, chip_names: Iterable[str], dtype: str) -> pd.DataFrame:
    """Return operators' arithmetic intensity and chips' ridge points in one table for a chart.

    A chip without a peak for the dtype has its BF16 peak. A ridge spans what is open; `estimate` marks our own.
    """
    name = "intensity_flop_per_byte"
    working = table[table[name] > 0].sort_values(["phase", name], ascending=[False, False], kind="stable")
    rows = []
    for chip in map(load.chip, chip_names):
        used = dtype if dtype in chip.peak_flop_per_s else "bf16"
        peak = common.peaks([chip], [used]).iloc[0]
        ends = {f"{name}{end}": peak[f"ridge_flop_per_byte{end}"] for end in ("", "_low", "_high")}
        rows.append({"what": f"{chip.name}, {used.upper()}", "of": "ridge point", **ends, "estimate": peak.estimate})
    ends = {f"{name}{end}": working[name] for end in ("", "_low", "_high")}
    points = pd.DataFrame({"what": working.operator, "of": working.phase, **ends, "estimate": False})
    return pd.concat([pd.DataFrame(rows), points], ignore_index=True)


def caches(models: Iterable[str | Transformer], contexts: Iterable[float], dtype: str = "bf16") -> pd.DataFrame:
    """Return the cache per sequence by kind of attention: per token, and whole; NaN beyond the longest context.

    Examples
    --------
    >>> caches(["gpt-oss-120b"], [32768]).cache_bytes.tolist()
    [1212678144.0]
    """
    at, rows = np.atleast_1d(numbers("contexts", contexts, 1)), []
    for chosen in map(read_model, listed("models", models)):
        one = {
            "model": chosen.id,
            "attention": describe.attention_kind(chosen),
            "token_bytes": chosen.kv_bytes_per_token(dtype),
        }
        state = chosen.state_bytes()
        cache_bytes = np.where(at <= chosen.max_context, chosen.kv_bytes(at, dtype) + state, np.nan)
        rows.append({**one, "state_bytes": state, "context": at, "cache_bytes": cache_bytes})
    return tidy(rows)


def formats(model: str | Transformer, precisions: Iterable[str]) -> pd.DataFrame:
    """Return stored weights by format, the part that no format narrows, and the format of the cache.

    Examples
    --------
    >>> formats("gpt-oss-120b", ["bf16", "mxfp4-moe"]).weight_bytes.tolist()
    [233658313344.0, 65248815744.0]
    """
    chosen, rows = read_model(model), []
    for precision in map(load.precision, listed("precisions", precisions)):
        total, wide = (
            chosen.weight_bytes(precision),
            describe.wide_params(chosen) * precision.storage_bytes("activations"),
        )
        rows.append(
            {
                "precision": precision.name,
                "storage": precision.weights,
                "experts": precision.experts,
                "element_bits": load.dtypes()[precision.weights] * BITS,
                "weight_bytes": total,
                "wide_bytes": wide,
                "wide_share": wide / total,
                "mean_bits": BITS * total / chosen.total_params,
                "computes": precision.compute,
                "cache": precision.kv,
            }
        )
    return pd.DataFrame(rows)


def step_bytes(model: str | Transformer, batches: ArrayLike, context: float, precision: str) -> pd.DataFrame:
    """Return bytes read per decode step: weights by the policy of reading experts, and the cache.

    Examples
    --------
    >>> table = step_bytes("mixtral-8x7b-v0.1", [1.0], 4096, "bf16")
    >>> table[table.what != "cache"].read_bytes.nunique()  # one token: only reading all experts differs
    2
    """
    chosen, batch = read_model(model), np.atleast_1d(numbers("batches", batches, 1))
    routed = any(part.group == "experts" for _, part, _ in describe.parts(chosen))
    reads = {policy: chosen.weight_bytes_read(batch, precision, policy) for policy in POLICIES}
    lines = {f"weights, {POLICIES[policy]}" if routed else "weights": read for policy, read in reads.items()}
    lines["cache"] = batch * (chosen.kv_bytes(context, load.precision(precision).kv) + chosen.state_bytes())
    same = {"batch": batch}
    return tidy(same | {"what": k, "read_bytes": v, "per_token_bytes": v / batch} for k, v in lines.items())


def experts_met(models: Iterable[str | Transformer], batches: ArrayLike) -> pd.DataFrame:
    """Return the expected number of distinct experts per layer that a step reads under uniform routing."""
    batch, rows = np.atleast_1d(numbers("batches", batches, 1)), []
    for chosen in map(read_model, listed("models", models)):
        routed = {(part.copies, part.active) for _, part, _ in describe.parts(chosen) if part.group == "experts"}
        for copies, active in sorted(routed):
            met = distinct_experts(copies, active, batch)
            one = {"model": chosen.id, "experts": copies, "per_token": active, "batch": batch}
            rows.append({**one, "distinct": met, "share": met / copies})
    return tidy(rows)


def masks(model: str | Transformer, tokens: ArrayLike) -> pd.DataFrame:
    """Return the work of a prefill by what is counted: causal or full attention, logits of one row or all."""
    chosen, n = read_model(model), np.atleast_1d(numbers("tokens", tokens, 1))
    counts = [(mask, rows) for mask in ("causal", "full") for rows in ("last", "all")]
    work = {f"{mask} attention, {rows} logits": chosen.prefill_flop(n, 0, mask, rows) for mask, rows in counts}
    least = work["causal attention, last logits"]
    return tidy({"tokens": n, "counted": k, "prefill_flop": v, "times_needed": v / least} for k, v in work.items())
