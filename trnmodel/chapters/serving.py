"""Many users of one deployment: experts over chips and their collectives, and the deployment under load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnmodel.arguments import TINY, integers, listed, numbers
from trnmodel.planner.deployments import MODES, capacity_requests_per_s
from trnmodel.result import alike, stacked
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.inference import decode_step
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.serving import serve

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
]


def expert_networks(
    model: str, systems: Iterable[str], context: float, chips: Sequence[int], batch_per_chip: ArrayLike, precision: str
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


def load_curves(
    d: Deployment, max_batch: float, input_tokens: float, output_tokens: float, shares: ArrayLike
) -> pd.DataFrame:
    """`tm.serve` at shares of the rate that fills the continuous batch, by `mode` of batching."""
    shape, share = {"input_tokens": input_tokens, "output_tokens": output_tokens}, numbers("shares", shares, TINY)
    full = next(iter(capacity_requests_per_s(d, max_batch, **shape).values()))
    ask = d.ask | shape | {"requests_per_s": full * share, "max_batch": max_batch}
    return stacked({mode: serve(**ask, **how).to_frame() for mode, how in MODES.items()}, "mode")


def percentiles(curves: pd.DataFrame, low: str, high: str, names: tuple[str, str]) -> pd.DataFrame:
    """Two columns of `load_curves` below each other as `time_s`, `percentile` naming which."""
    renamed = curves[curves.valid].rename(columns=dict(zip((low, high), names, strict=True)))
    return renamed.melt(["mode", "requests_per_s", "basis"], list(names), "percentile", "time_s")
