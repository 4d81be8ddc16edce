"""Tables of the first page: the answer for each model on Trainium and on GPUs, and the chips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from trnbook.chapters import guard
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import system
from trnmodel.fabric.graph import Topology
from trnmodel.result import tidy
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.choice import Choice
from trnmodel.search.plan import Plan
from trnmodel.units import counted, format_digits

LARGEST = {"trainium1": "trn1.32xlarge", "trainium2": "trn2-ultraserver", "trainium3": "trn3-nl72x2-pcie160"}
_USD = "generated_usd_per_mtoken"


def paired(models: list[str], tokens_per_s_per_user: list[float]) -> dict[str, float]:
    """Return the promised speed of each model; one speed serves all of them.

    Examples
    --------
    >>> paired(["llama-3.1-8b", "deepseek-v3"], [20.0])
    {'llama-3.1-8b': 20.0, 'deepseek-v3': 20.0}
    """
    guard.some(models=models)
    speeds = tokens_per_s_per_user * len(models) if len(tokens_per_s_per_user) == 1 else tokens_per_s_per_user
    held = f"tokens_per_s_per_user holds {counted(len(speeds), 'speed')} for {counted(len(models), 'model')}"
    guard.need(len(speeds) == len(models), f"{held}; give one speed, or one for each model")
    return dict(zip(models, speeds, strict=True))


def headline(plan: Plan) -> str:
    """Return the answer for one model in a sentence, in bold."""
    c, speed = plan.best, plan.request.tokens_per_s_per_user
    promise = f"{plan.model.id} at {speed:g} tokens/s per user"
    if c is None:
        return f"**{promise}: the model fits no Trainium system.**"
    if not plan.reached:
        return f"**{promise}: no Trainium system is so fast with public software.** {c.system.name} comes nearest."
    made = c.in_words("tokens_per_s_per_chip", "tokens/s per chip", str(c.basis))
    frame = plan.to_frame()
    rented = frame[frame.role.isin(["best", "system"]) & (frame.status == "for rent")].head(1)
    today = "".join(f" For rent today is {system(row.system).name}." for row in rented.itertuples())
    gpus = frame[frame.role == "gpu"].head(1)
    rival = "".join(
        f" {system(row.system).name}, the best GPU system, makes {format_digits(row.tokens_per_s_per_chip, 2)}."
        for row in gpus.itertuples()
    )
    ties = f", tied with {counted(len(plan.same), 'other system')}," if plan.same else ""
    first = (
        f"**{promise}: {c.system.name}{ties} serves most per chip of all Trainium systems.** It makes {made}.{rival}"
    )
    announced = "" if c.system.status == "for rent" else f" {c.system.name} is announced.{today}"
    return first + announced


def trainium_and_gpu(plan: Plan) -> dict[str, str]:
    """Return the best Trainium system and the best GPU system of a plan, where there are such, and what is for rent."""
    frame = plan.to_frame()
    firsts = [frame[frame.role == role].head(1) for role in ("best", "gpu")]
    return {row.system: row.status for first in firsts for row in first.itertuples()}


def answer(best: Choice, status: str, cost: TokenCost) -> dict[str, Any]:
    """Return the answer for a model on a system as a row: promise, yield, first token, energy and cost with ranges."""
    row = {
        "model": best.question.model.id,
        "promised_tokens_per_s_per_user": best.question.request.tokens_per_s_per_user,
        "system": best.system.id,
        "status": status,
        "chips": float(best.chips),
        **best.banded("tokens_per_s_per_chip"),
        **best.banded("ttft_s"),
    }
    if best.valid:
        row |= best.energy().banded("server_j_per_token") | cost.banded(_USD)
    return row


def owner_usd(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the owner's cost of rows of `answer`, by model and by kind of machine."""
    table = tidy(list(rows)).dropna(subset=[_USD])
    kinds = table.system.str.startswith("tr").map({True: "best Trainium", False: "best GPU"})
    return table[["model", "system", _USD, f"{_USD}_low", f"{_USD}_high"]].assign(kind=kinds)


def chip(spec: Chip, net: Topology) -> dict[str, Any]:
    """Return what AWS prints of a chip, and the domain of its largest system.

    Examples
    --------
    >>> import trnmodel as tm
    >>> chip(tm.chip("trainium2"), tm.topology("trn2-ultraserver"))["domain_chips"]
    64
    """
    eight = max(rate for dtype, rate in spec.peak_flop_per_s.items() if "fp8" in dtype)
    return {
        "chip": spec.name,
        "year": int(spec.year),
        "bf16_flop_per_s": spec.peak_flop_per_s["bf16"],
        "fp8_flop_per_s": eight,
        "hbm_bytes": spec.hbm_bytes,
        "hbm_bytes_per_s": spec.hbm_bytes_per_s,
        "domain": net.system.name,
        "domain_chips": net.system.domain_chips,
        "links_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
    }
