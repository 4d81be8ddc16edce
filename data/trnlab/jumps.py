"""Where a step or a prefill jumps by more than 1.5 times between neighbours, and what in the answer says why.

`python -m trnlab.jumps` writes `data/evidence/jumps.csv`: of each system, model, phase, axis and cause the
largest ratio, and where it lies. Neighbours are one sequence or token more, or twice the ranks of a degree; of more
ranks a jump is a step that gets slower. The software is the public stack of the chip, on its own buckets and, for
prompts, with a graph for each length ("exact"), over the fewest tensor-parallel ranks that hold the model and over 64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import listed
from trnmodel.catalog.load import DATA
from trnmodel.catalog.stacks import Efficiencies, efficiencies
from trnmodel.catalog.systems import System, system, systems
from trnmodel.evidence.rows import save
from trnmodel.models.transformer import Transformer, model, model_ids
from trnmodel.steps import inference
from trnmodel.steps.answers import Step
from trnmodel.steps.mapping import Mapping as Degrees

if TYPE_CHECKING:
    import pandas as pd

JUMPS = DATA / "evidence" / "jumps.csv"
KEYS = ["system", "model", "phase", "buckets", "axis", "cause"]
RATIO = 1.5
CONTEXT, PROMPT, FEW, BATCH = 4096.0, 2048.0, 16.0, 8.0
WHERE = ("tp", "ep", "pp", "cp", "moe_ep")
AMOUNTS = {"batch": "batch", "context": "length", "prompt": "length"}
WIDEST = 64
MOST = {"batch": 2**10, "context": 2**17, "prompt": 2**15}


def _next(most: int) -> NDArray:
    """Whole numbers that have a neighbour of interest: all small ones, and those around powers of two."""
    powers = 2 ** np.arange(8, np.log2(most) + 1)
    found = np.concatenate([np.arange(1, 131), powers - 1, powers])
    return np.unique(found[found <= most])


def _pairs(base: Mapping[str, float], axis: str, before: NDArray, after: NDArray) -> pd.DataFrame:
    """Neighbours along an axis, each below the one before it; what else they are is as in the base."""
    import pandas as pd

    ends = np.column_stack([before, after]).ravel().astype(float)
    return pd.DataFrame({**base, AMOUNTS.get(axis, axis): ends, "axis": axis})


def _amounts(phase: str, base: Mapping[str, float]) -> Iterator[pd.DataFrame]:
    """One sequence or one token more."""
    amount, few = ("context", {}) if phase == "decode" else ("prompt", {"length": FEW})
    batches, lengths = (_next(MOST[name]) for name in ("batch", amount))
    yield _pairs({**base, **few}, "batch", batches, batches + 1)
    yield _pairs(base, amount, lengths, lengths + 1)


def _degrees(phase: str, base: Mapping[str, float], ranks: float, experts: int, layers: int) -> Iterator[pd.DataFrame]:
    """Twice the ranks of a degree, as far as there are ranks, experts and layers."""
    many, tp = {**base, **({"batch": BATCH} if phase == "decode" else {})}, base["tp"]
    room = ranks / tp
    tops = {"tp": ranks, "ep": min(room, experts), "pp": min(room, layers), "cp": room, "moe_ep": min(tp, experts)}
    for name, top in tops.items():
        start = tp if name == "tp" else 1.0
        degrees = start * 2 ** np.arange(0, np.floor(np.log2(max(top, start) / start)))
        yield _pairs(many, name, degrees, 2 * degrees)


def _fewest(asked: Transformer, where: System, ranks: float) -> float:
    """Return the fewest tensor-parallel ranks, a power of two, that hold the model and one context; 0 for none."""
    tp = 2 ** np.arange(0, np.floor(np.log2(ranks)) + 1)
    step = inference.decode_step(asked, where, Degrees(tp=tp), batch=BATCH, context=2 * CONTEXT)
    return float(tp[step.valid].min(initial=np.inf)) if step.valid.any() else 0.0


def _ask(phase: str, asked: Transformer, where: System, e: Efficiencies, points: pd.DataFrame, **how: Any) -> Step:
    given = {name: points[name].to_numpy() for name in (*WHERE, "batch", "length")}
    degrees: dict[str, Any] = {name: given[name] for name in WHERE}
    mapping, more = Degrees(**degrees), {"batch": given["batch"], "efficiencies": e, **how}
    if phase == "decode":
        return inference.decode_step(asked, where, mapping, context=given["length"], **more)
    return inference.prefill(asked, where, mapping, input_tokens=given["length"], **more)


def _grown(step: Step, place: int) -> str:
    """Return the line of the breakdown that grew most between a point and the next."""
    lines = {
        name: np.broadcast_to(sum(map(np.asarray, line)), step.time_s.shape) for name, line in step.operators.items()
    }
    return max(lines, key=lambda name: lines[name][place + 1] - lines[name][place])


def _cause(step: Step, place: int, point: Mapping[str, Any]) -> str:
    """Why a point takes longer than the one before it: what the answer says differs between them."""
    axis = point["axis"]
    run = [word.split(",")[0] for word in np.broadcast_to(step.experts, step.valid.shape)[[place, place + 1]]]
    compiled = np.broadcast_to(step.compiled_tokens, step.valid.shape)
    if compiled[place + 1] > compiled[place] + 1:
        return f"bucket of {axis}"
    if run[0] != run[1]:
        return f"experts: {run[0]} to {run[1]}"
    if axis in AMOUNTS and point[AMOUNTS[axis]] == 1:
        return "from one to two"
    line = _grown(step, place)
    if "expert" in line and run[1] == "blocks":
        return "blocks of the worst distribution"
    if line in {message.name for message in step.messages}:
        return "exchange among more ranks"
    raise ValueError(f"no cause is known of a jump along {axis} from {point} by {line!r}")


def _jumps(
    phase: str, asked: Transformer, where: System, e: Efficiencies, walk: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    """Return the jumps of a model on a system, one for each pair of neighbours."""
    times = np.broadcast_to(_ask(phase, asked, where, e, walk).time_s, len(walk))
    far = np.repeat(times[1::2] / times[::2] > RATIO, 2)
    if not far.any():
        return
    points = walk[far].to_dict("records")
    step = _ask(phase, asked, where, e, walk[far], breakdown=True)
    for place, (one, two) in enumerate(zip(points[::2], points[1::2], strict=True)):
        moved = AMOUNTS.get(one["axis"], one["axis"])
        ratio = times[far][2 * place + 1] / times[far][2 * place]
        here = {"from": int(one[moved]), "to": int(two[moved]), "tp": int(one["tp"]), "ratio": float(ratio)}
        yield {"axis": one["axis"], "cause": _cause(step, 2 * place, one), **here}


def jumps(system_ids: Iterable[str] | None = None, models: Iterable[str] | None = None) -> pd.DataFrame:
    """Return the largest jump of each system, model, phase, axis and cause.

    Examples
    --------
    >>> found = jumps(["trn2.3xlarge"], ["qwen3-30b-a3b"])
    >>> found[(found.buckets == "exact") & (found["from"] == 63)].cause.tolist()
    ['experts: all to blocks']
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name in systems() if system_ids is None else listed("system_ids", system_ids):
        where = system(name)
        e = efficiencies(where.chip)
        links = np.isnan(where.chip.scaleup_bytes_per_s_per_dir) and where.domain_chips > 1 and where.chip.core is None
        ranks = 1.0 if links else where.chips * where.chip.cores / where.chip.lnc_default
        for model_id in model_ids() if models is None else listed("models", models):
            rows += _of_model(model(model_id), where, e, min(ranks, 2.0**10))
    table = pd.DataFrame(rows, columns=[*KEYS, "from", "to", "tp", "ratio"])
    table["ratio"] = table.ratio.map(lambda x: float(f"{x:.2g}"))  # before it is compared: a tie is one everywhere
    table = table.sort_values("ratio", ascending=False, kind="stable").drop_duplicates(KEYS)
    return table.sort_values(KEYS, kind="stable", ignore_index=True)


def _of_model(asked: Transformer, where: System, e: Efficiencies, ranks: float) -> Iterator[dict[str, Any]]:
    """Return the jumps of a model on the public stack of a system, and of its prompts with a graph for each length."""
    import pandas as pd

    if not asked.generates or "bf16" not in where.chip.peak_flop_per_s:
        return
    tp = _fewest(asked, where, ranks)
    if not tp:
        return
    most = max(tp, 2.0 ** np.floor(np.log2(min(ranks, WIDEST))))
    exact = replace(e, prompt_bucket="exact")
    for phase, buckets, stack in (("decode", "own", e), ("prefill", "own", e), ("prefill", "exact", exact)):
        if stack is exact and e.prompt_bucket == "exact":
            continue
        outline = asked.outline("decode")
        base = dict.fromkeys((*WHERE, "batch"), 1.0) | {"length": CONTEXT if phase == "decode" else PROMPT}
        bases = [base | {"tp": n} for n in {tp: 0, most: 0}]
        axes = [pairs for one in bases for pairs in _amounts(phase, one)]
        if buckets == "own":
            room = ranks, outline.experts, outline.layers
            axes += [pairs for one in bases for pairs in _degrees(phase, one, *room)]
        here = {"system": where.id, "model": asked.id, "phase": phase, "buckets": buckets}
        yield from (here | found for found in _jumps(phase, asked, where, stack, pd.concat(axes)))


def merged(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same with all systems of which the rest of a row is true in one row."""
    rest = [name for name in table if name != "system"]
    return table.groupby(rest, sort=False).system.agg(" ".join).reset_index()[["system", *rest]]


def write() -> None:
    """Write the table of all systems and models."""
    save(merged(jumps()), JUMPS)


if __name__ == "__main__":
    write()
