"""What a model needs: where its parameters sit, what its operators do, read and keep, in which format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.arguments import listed, number, numbers
from trnmodel.catalog import load
from trnmodel.chapters import chips
from trnmodel.formulas.moe import distinct_experts
from trnmodel.models.blocks import Attention, Layer, Part
from trnmodel.models.operator_table import step_operators
from trnmodel.models.operators import EXPERT_READS
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

PHASES = ("prefill", "decode")
PLACES: Mapping[str, str] = {
    "embedding": "embedding",
    "mixer": "attention",
    "ffn": "dense MLP",
    "experts": "routed experts",
    "router": "router",
    "norm": "norms",
    "head": "head",
}
BITS = 8  # of a byte
RECURRENT = "recurrent mixer"
POLICIES: Mapping[str, str] = {
    "distinct": "each expert once",
    "per_token": "experts of each token anew",
    "all": "all experts",
}


def notation(model: str | Transformer, precision: str) -> pd.DataFrame:
    """What the chapter calls things, with the values of a model."""
    import pandas as pd

    m, stored = read_model(model), load.precision(precision)
    experts = next((p for layer in m.layers for p in layer.parts if p.group == "experts"), None)
    rows = [
        ("N", "total_params", "parameters, tied tables once", f"{m.total_params:,}"),
        ("N_a", "active_params", "parameters that one token uses", f"{m.active_params():,}"),
        ("l, h", "n_layers, hidden_size", "layers; width of the residual stream", f"{m.n_layers}, {m.hidden_size}"),
        ("E, k", "copies, active", "routed experts of a layer; experts of a token", _pair(experts)),
        ("s", "storage_bytes", f"bytes of a weight in {stored.name}", f"{stored.storage_bytes('weights'):g} B"),
        ("c", "kv_bytes_per_token", "cache of a token", f"{m.kv_bytes_per_token(stored.kv):,.0f} B"),
        ("T, C", "tokens, context", "tokens of a prompt; tokens in the cache, the new one included", ""),
        ("B", "batch", "sequences that a decode step serves", ""),
        ("I", "intensity_flop_per_byte", "FLOP for each byte read or written", ""),
    ]
    return pd.DataFrame(rows, columns=["symbol", "code name", "meaning", "value"])


def _pair(experts: Part | None) -> str:
    return f"{experts.copies}, {experts.active}" if experts else "none"


def attention_kind(model: str | Transformer) -> str:
    """The kinds of attention and recurrence of the layers that decode, in few words.

    Examples
    --------
    >>> [attention_kind(name) for name in ("llama-3.1-70b", "deepseek-v3", "gpt-oss-120b")]
    ['GQA 64/8', 'MLA 128', 'GQA 64/8, window 128 in 18 of 36']
    """
    chosen = read_model(model)
    layers = [layer for layer in chosen.layers if "decode" in layer.phases]
    kinds = [(a, layer.count) for layer in layers for a in layer.attentions if a.kind != "cross"]
    full = [pair for pair in kinds if not pair[0].window]
    words = [_heads((full or kinds)[0][0])] if kinds else []
    total = sum(layer.count for layer in layers)
    short = {"sliding": "window", "chunked": "chunks of"}
    words += [f"{short[a.kind]} {a.window} in {count} of {total}" for a, count in _alike(kinds) if a.window]
    rest = [(layer.recurrence.kind, layer.count) for layer in layers if layer.recurrence]
    words += [f"{kind} in {sum(n for k, n in rest if k == kind)} of {total}" for kind in dict(rest)]
    return ", ".join(words)


def _alike(kinds: list[tuple[Attention, int]]) -> list[tuple[Attention, int]]:
    """The same with layers of one kind and window counted together."""
    keys = {(a.kind, a.window): a for a, _ in kinds}
    return [(a, sum(n for b, n in kinds if (b.kind, b.window) == key)) for key, a in keys.items()]


def _heads(a: Attention) -> str:
    if a.latent_dim:
        return f"MLA {a.heads}"
    if a.kv_heads == a.heads:
        return f"MHA {a.heads}"
    return f"MQA {a.heads}/1" if a.kv_heads == 1 else f"GQA {a.heads}/{a.kv_heads}"


def sizes(models: Iterable[str | Transformer]) -> pd.DataFrame:
    """Total and active parameters, these with and without the token table.

    Returns
    -------
    table : pandas.DataFrame
        model, total, active, active_without_table, active_share, layers, hidden, attention. [-]

    Examples
    --------
    >>> sizes(["deepseek-v3"])[["total", "active"]].iloc[0].tolist()
    [671026404352, 37552282624]
    """
    import pandas as pd

    return pd.DataFrame(
        {
            "model": chosen.id,
            "total": chosen.total_params,
            "active": chosen.active_params(),
            "active_without_table": chosen.active_params(input_embedding=False),
            "active_share": chosen.active_params() / chosen.total_params,
            "layers": chosen.n_layers,
            "hidden": chosen.hidden_size,
            "attention": attention_kind(chosen),
        }
        for chosen in map(read_model, listed("models", models))
    )


def places(models: Iterable[str | Transformer]) -> pd.DataFrame:
    """Where parameters sit: all, and those that one token uses; a tied head counts nothing that is stored.

    Returns
    -------
    table : pandas.DataFrame
        model, place, parameters, share, active. [-]

    Examples
    --------
    >>> float(places(["deepseek-v3"]).set_index("place").share["routed experts"].round(3))
    0.974
    """
    import pandas as pd

    rows = []
    for chosen in map(read_model, listed("models", models)):
        parts = [(layer, part, layer.stored or layer.count) for layer in chosen.layers for part in layer.parts]
        parts += [(None, part, 1) for part in chosen.outer]
        for layer, part, count in parts:
            rows.append((chosen.id, _place(layer, part.group), count * part.params, count * part.active_params))
    table = pd.DataFrame(rows, columns=["model", "place", "parameters", "active"])
    found = table.groupby(["model", "place"], sort=False).sum().reset_index()
    found["share"] = found.parameters / found.groupby("model").parameters.transform("sum")
    order = [*PLACES.values(), RECURRENT]
    found = found.sort_values("place", key=lambda column: column.map(order.index), kind="stable", ignore_index=True)
    return found[["model", "place", "parameters", "share", "active"]]


def _place(layer: Layer | None, group: str) -> str:
    return RECURRENT if group == "mixer" and layer and layer.recurrence else PLACES[group]


def phases(model: str | Transformer, batch: float, input_tokens: float, context: float, precision: str) -> pd.DataFrame:
    """Operators of the prefill of one prompt and of a decode step at the end of the answer, with one decode batch."""
    import pandas as pd

    input_tokens, context = number("input_tokens", input_tokens, 1), number("context", context, 1)
    prompt = step_operators(model, "prefill", 1, input_tokens, 0, precision)
    answer = step_operators(model, "decode", batch, 1, context - 1, precision)
    return pd.concat([prompt, answer], ignore_index=True)


def against_ridges(table: pd.DataFrame, chip_names: Iterable[str], dtype: str) -> pd.DataFrame:
    """Intensity of the operators that do work, beside the ridge points of chips, in one frame for a chart.

    A chip without a peak for the compute dtype has its BF16 peak. A ridge spans what open disagreements leave.

    Returns
    -------
    table : pandas.DataFrame
        what (operator or ridge), of (phase, or "ridge point"), intensity_flop_per_byte with its low and high.
    """
    import pandas as pd

    name = "intensity_flop_per_byte"
    working = table[table[name] > 0].sort_values(["phase", name], ascending=[False, False], kind="stable")
    points = pd.DataFrame({"what": working.operator, "of": working.phase, name: working[name]})
    rows = []
    for chip in map(load.chip, chip_names):
        used = dtype if dtype in chip.peak_flop_per_s else "bf16"
        peak = chips.peaks([chip], [used]).iloc[0]
        ends = {f"{name}{end}": peak[f"ridge_flop_per_byte{end}"] for end in ("", "_low", "_high")}
        rows.append({"what": f"{chip.name}, {used.upper()}", "of": "ridge point", **ends})
    found = pd.concat([pd.DataFrame(rows), points], ignore_index=True)
    return found.assign(**{f"{name}{end}": found[f"{name}{end}"].fillna(found[name]) for end in ("_low", "_high")})


def caches(models: Iterable[str | Transformer], contexts: Iterable[float], dtype: str = "bf16") -> pd.DataFrame:
    """Cache of one sequence by kind of attention: a token's, and the whole at several contexts, states included.

    Returns
    -------
    table : pandas.DataFrame
        model, attention, token_bytes (no window full yet), state_bytes, context, cache_bytes (NaN beyond the model's
        longest context).

    Examples
    --------
    >>> caches(["gpt-oss-120b"], [32768]).cache_bytes.tolist()
    [1212678144.0]
    """
    import pandas as pd

    at, frames = np.atleast_1d(numbers("contexts", contexts, 1)), []
    for chosen in map(read_model, listed("models", models)):
        one = {"model": chosen.id, "attention": attention_kind(chosen), "token_bytes": chosen.kv_bytes_per_token(dtype)}
        state = chosen.state_bytes()
        kept = np.where(at <= chosen.max_context, chosen.kv_bytes(at, dtype) + state, np.nan)
        frames.append(pd.DataFrame({**one, "state_bytes": state, "context": at, "cache_bytes": kept}))
    return pd.concat(frames, ignore_index=True)


def formats(model: str | Transformer, precisions: Iterable[str]) -> pd.DataFrame:
    """Weights in storage by format, what of them stays wide, and the cache of a token.

    Returns
    -------
    table : pandas.DataFrame
        precision, storage, experts, element_bits (of `storage`), weight_bytes, wide_bytes (head, tables,
        routers, norms and biases), wide_share, mean_bits, computes, cache.

    Examples
    --------
    >>> table = formats("gpt-oss-120b", ["bf16", "mxfp4-moe"])
    >>> table.weight_bytes.tolist()
    [233658313344.0, 65248815744.0]
    """
    import pandas as pd

    chosen, rows = read_model(model), []
    for precision in map(load.precision, listed("precisions", precisions)):
        total, wide = chosen.weight_bytes(precision), wide_params(chosen) * precision.storage_bytes("activations")
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


def wide_params(model: str | Transformer) -> int:
    """Parameters that no format narrows."""
    chosen = read_model(model)
    parts = [(layer.stored or layer.count, part) for layer in chosen.layers for part in layer.parts]
    parts += [(1, part) for part in chosen.outer]
    return sum(n * (p.params if p.store == "wide" else p.copies * p.extra) for n, p in parts)


def step_bytes(
    model: str | Transformer, batches: ArrayLike, context: float, precision: str, policies: Iterable[str] = EXPERT_READS
) -> pd.DataFrame:
    """Bytes that a decode step reads: weights by the policy of reading experts, and the cache.

    Returns
    -------
    table : pandas.DataFrame
        batch, what, read_bytes, per_token_bytes; a dense model has one line of weights.

    Examples
    --------
    >>> table = step_bytes("mixtral-8x7b-v0.1", [1.0], 4096, "bf16")
    >>> table[table.what != "cache"].read_bytes.nunique()  # one token: only reading all experts differs
    2
    """
    import pandas as pd

    chosen, batch = read_model(model), np.atleast_1d(numbers("batches", batches, 1))
    routed = any(part.group == "experts" for layer in chosen.layers for part in layer.parts)
    lines = {
        f"weights, {POLICIES[policy]}" if routed else "weights": chosen.weight_bytes_read(batch, precision, policy)
        for policy in policies
    }
    kv = load.precision(precision).kv
    lines["cache"] = batch * (chosen.kv_bytes(context, kv) + chosen.state_bytes())
    frames = [
        pd.DataFrame({"batch": batch, "what": what, "read_bytes": read, "per_token_bytes": read / batch})
        for what, read in lines.items()
    ]
    return pd.concat(frames, ignore_index=True)


def experts_met(models: Iterable[str | Transformer], batches: ArrayLike) -> pd.DataFrame:
    """Experts of a layer that a step reads once each, expected under uniform routing; dense models are left out.

    Returns
    -------
    table : pandas.DataFrame
        model, experts, per_token, batch, distinct, share. [-]
    """
    import pandas as pd

    batch, frames = np.atleast_1d(numbers("batches", batches, 1)), []
    for chosen in map(read_model, listed("models", models)):
        routed = [part for layer in chosen.layers for part in layer.parts if part.group == "experts"]
        for copies, active in sorted({(part.copies, part.active) for part in routed}):
            met = distinct_experts(copies, active, batch)
            one = {"model": chosen.id, "experts": copies, "per_token": active, "batch": batch}
            frames.append(pd.DataFrame({**one, "distinct": met, "share": met / copies}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def masks(model: str | Transformer, tokens: ArrayLike) -> pd.DataFrame:
    """Work of a prefill by what is counted: the causal triangle or the whole square, one row of logits or all.

    Returns
    -------
    table : pandas.DataFrame
        tokens, counted, prefill_flop, times_needed (ratio to causal with the last row of logits). [-]
    """
    import pandas as pd

    chosen, n = read_model(model), np.atleast_1d(numbers("tokens", tokens, 1))
    cases = {
        f"{mask} attention, {'last' if rows == 'last' else 'all'} logits": chosen.prefill_flop(n, 0, mask, rows)
        for mask in ("causal", "full")
        for rows in ("last", "all")
    }
    least = next(iter(cases.values()))
    frames = [
        pd.DataFrame({"tokens": n, "counted": name, "prefill_flop": work, "times_needed": work / least})
        for name, work in cases.items()
    ]
    return pd.concat(frames, ignore_index=True)
