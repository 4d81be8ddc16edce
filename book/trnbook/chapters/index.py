"""Tables of the first page: the answer for each model on Trainium and on GPUs, and the chips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trnbook.chapters import guard
from trnbook.charts.tables import percent
from trnbook.shared.choices import per_rack, rate, tied, unmeasured
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import system
from trnmodel.fabric.graph import Topology
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.plan import Plan
from trnmodel.units import TFLOP, counted, format_digits, format_within

if TYPE_CHECKING:
    from trnmodel.reliability.goodput import Goodput
    from trnmodel.search.capacity import Capacity
    from trnmodel.search.chip_seconds import TokenCost
    from trnmodel.search.sensitivity import Sensitivity
    from trnmodel.search.train_run import TrainRun

LARGEST = {"trainium1": "trn1.32xlarge", "trainium2": "trn2-ultraserver", "trainium3": "trn3-nl72x2-pcie160"}
_USD = "generated_usd_per_mtoken"
CHIP = "Trainium2"  # whose errors the first page shows
GPU = "GPU"
KINDS = {
    "for rent": "Trainium to rent today",
    GPU: "GPUs with the lowest bill",
    f"{GPU}, most per chip": "Best GPU per chip",
}
SIDES = {"for rent": "chosen Trainium", GPU: "beside it"}  # of the first chart
_NONE = "\N{EN DASH}"


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


def lengths(input_tokens: list[int], output_tokens: list[int]) -> list[tuple[int, int]]:
    """Return the prompts and answers that the desk offers, one of each.

    Examples
    --------
    >>> lengths([1024, 4096], [1024, 512])
    [(1024, 1024), (4096, 512)]
    """
    guard.some(desk_input_tokens=input_tokens)
    for tokens in (*input_tokens, *output_tokens):
        guard.within(1, 1e6, desk_tokens=tokens)
    held = (
        f"desk_output_tokens holds {counted(len(output_tokens), 'length')} for {counted(len(input_tokens), 'prompt')}"
    )
    guard.need(len(input_tokens) == len(output_tokens), f"{held}; give one for each")
    return list(zip(input_tokens, output_tokens, strict=True))


def roles_of(plan: Plan, sized: Plan) -> dict[str, str]:
    """Return the Trainium to rent for the users and the best one, the GPUs with the lowest bill and the best.

    A system that has two roles is named once, and a role that nobody has is left out.
    """
    best = plan.best if plan.reached else None
    gpus = [c for c in plan.gpus if c.valid]
    rents = [(float(sized.capacity_of(c).usd_per_month), c) for c in sized.gpus if c.valid]
    priced = [pair for pair in rents if not np.isnan(pair[0])]
    most = gpus[0] if gpus else None
    cheapest = min(priced, key=lambda pair: pair[0])[1] if priced else most
    named = {"for rent": sized.for_rent, "announced": best, GPU: cheapest, f"{GPU}, most per chip": most}
    roles = dict[str, str]()
    for role, c in named.items():
        if c is not None:
            roles.setdefault(c.system.id, c.system.status if role == "announced" else role)
    return roles or ({plan.best.system.id: "too slow"} if plan.best is not None else {})


def sized_on(sized: Plan, system: str) -> Capacity | None:
    """Return instances and bill of the users on a system; None where it does not keep the promise."""
    some = [c for c in (*sized.choices, *sized.gpus) if c.valid and c.system.id == system]
    return sized.capacity_of(some[0]) if some else None


def headline(plan: Plan, sized: Plan, roles: Mapping[str, str], undrafted: Mapping[str, Choice | None]) -> str:
    """Return what serves the users of one model: rented today, announced, and on GPUs, a line for each.

    Parameters
    ----------
    plan : Plan
        The answer without a size. [-]
    sized : Plan
        The answer for the users. [-]
    roles : mapping
        Role of each system, as `roles_of` returns it. [-]
    undrafted : mapping
        The best choice without drafts by system. [-]
    """
    speed, users = plan.request.tokens_per_s_per_user, (sized.demand.users if sized.demand else None) or 1.0
    promise = f"`{plan.model.id}` at {rate(speed)} per user"
    if plan.best is None:
        return f"**{promise}: the model fits no Trainium system.**"
    if not plan.reached:
        return (
            f"**{promise}: no Trainium system is so fast with public software.** {plan.best.system.name} comes nearest."
        )
    lines = [f"**For {counted(users, 'user')} of `{plan.model.id}`, each at {rate(speed)}:**\n"]
    choices = {c.system.id: c for c in (*plan.choices, *plan.gpus)}
    bills = {name: one for name in roles if (one := sized_on(sized, name)) is not None}
    for name, role in roles.items():
        c, gpu = choices[name], role.startswith(GPU)
        rented = gpu or c.system.status == "for rent"
        kind = KINDS[role if gpu else "for rent"] if rented else "Best Trainium, announced"
        bill = _bill(bills.get(name)) if rented else ""
        made = c.in_words("tokens_per_s_per_chip", "tokens/s per chip", str(c.basis))
        made = f"{'They make' if bill else 'It makes'} {made}{_without(undrafted.get(name))}."
        holds = f"The promise holds in {percent(c.chance, '')} of the draws."
        end = [holds, "" if gpu else unmeasured(c).strip(), tied(c, plan.choices)]
        end.append("" if rented else "Nobody publishes its rent.")
        lines.append(f"- **{kind}: {c.system.name}.** {bill}{made} {' '.join(filter(None, end))}")
    return "\n".join([*lines, f"\n{_lengths(plan)} {_verdict(roles, bills)}"])


def _lengths(plan: Plan) -> str:
    """Return how long prompts and answers are, in a sentence."""
    return f"Prompts have {counted(plan.request.input_tokens, 'token')}, and answers {plan.request.output_tokens:,g}."


def _bill(held: Capacity | None) -> str:
    """Return instances and rent per month, in sentences that end with a space."""
    if held is None:
        return ""
    noun = "instance" if held.instances == 1 else "instances"
    count = f"{held.in_words('instances', noun)} with {counted(held.chips, 'chip')}"
    if np.isnan(held.usd_per_month):
        return f"You need {count}, whose rent nobody publishes. "
    return f"You rent {count}. They cost \\${held.in_words('usd_per_month')} per month. "


def _without(plain: Choice | None) -> str:
    """Return what is made without drafts; empty where the answer drafts none."""
    return "" if plain is None else f", and {format_digits(plain.tokens_per_s_per_chip, 2)} without drafts"


def _verdict(roles: Mapping[str, str], bills: Mapping[str, Capacity]) -> str:
    """Return which of the two bills is lower, and whether that is sure."""
    rents = {
        role: bills[name] for name, role in roles.items() if name in bills and not np.isnan(bills[name].usd_per_month)
    }
    if not {"for rent", GPU} <= set(rents):
        return "The two rents cannot be compared, since one of them is not published."
    ours, gpu = rents["for rent"], rents[GPU]
    first = min(ours, gpu, key=lambda one: one.usd_per_month)
    (low, high), (other_low, other_high) = (tuple(map(float, one.ends("usd_per_month"))) for one in (ours, gpu))
    second = gpu if first is ours else ours
    lower = f"At AWS's rents {first.system.name} costs less than {second.system.name} by the prediction"
    return (
        f"{lower}, but their ranges overlap: this is a tie." if low <= other_high and other_low <= high else f"{lower}."
    )


def row(role: str, c: Choice, plain: Choice | None, held: Capacity | None) -> dict[str, Any]:
    """Return a row of the first table: promise, system, what a chip makes, chance, first token, instances and rent."""
    made = c.valid
    instances = held.in_words("instances") if held else _NONE
    rent = held.in_words("usd_per_month", scale=1e3) if held and not np.isnan(held.usd_per_month) else _NONE
    return {
        "model, tokens/s per user": f"{c.question.model.id}, {c.question.request.tokens_per_s_per_user:,g}",
        "system": c.system.id,
        "kind": role,
        "tokens/s per chip": c.in_words(c.FIGURE) if made else _NONE,
        "without drafts": format_digits(plain.tokens_per_s_per_chip, 2) if plain else "the same" if made else _NONE,
        "chance": percent(c.chance, "") if made else _NONE,
        "TTFT [s]": format_digits(c.ttft_s, 2) if made else _NONE,
        "instances": instances,
        "rent [thousand $/month]": rent,
    }


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


def per_mtoken(answers: Iterable[Mapping[str, Any]], rents: Mapping[tuple[str, str], TokenCost]) -> pd.DataFrame:
    """Return what a million tokens cost on each system: to the owner, from rows of `answer`, and at the rent."""
    rows = []
    for one in answers:
        place = {"system": f"{one['model']}, {system(one['system']).name.removesuffix(' Switched')}"}
        ends = [_USD, f"{_USD}_low", f"{_USD}_high"]
        if one.get(_USD) == one.get(_USD, np.nan):
            rows.append(place | {"paid": "owner's cost"} | {name: one[name] for name in ends})
        rent = rents.get((one["model"], one["system"]))
        if rent is not None and not rent.rent.why and np.all(rent.valid):
            rows.append(place | {"paid": "rent"} | rent.banded(_USD))
    return tidy(rows).rename(columns={"system": "served"})


def provisioned(c: Choice) -> tuple[float, float, float]:
    """Return the watts to provision for a rack of a system, with their low and high [W]."""
    at = c.energy().decode
    return tuple(per_rack(c.system) * float(w) for w in (at.all_in_w, *at.ends("all_in_w")))  # type: ignore[return-value]


def beyond(
    racked: tuple[float, float, float], run: TrainRun, job: Goodput, draws: Sensitivity, errors: pd.DataFrame
) -> pd.DataFrame:
    """Return headlines of power, training, failures and errors, each with its range and the case that it is of.

    Parameters
    ----------
    racked : tuple of float
        Provisioned watts of a rack with low and high. [W]
    run : TrainRun
        A training run. [-]
    job : Goodput
        The useful time of a job. [-]
    draws : Sensitivity
        Draws of the useful time. [-]
    errors : DataFrame
        Errors of predictions by question and chip. [-]
    """
    error = errors[(errors.question == "time per output token") & (errors.chip == CHIP)].iloc[0]
    cuts = draws.percentiles().iloc[0]
    days = run.calendar_days()
    rows = [
        (
            "Power to provision for a rack",
            format_within(racked[0], racked[1], racked[2], "W"),
            "Trainium3 NL72x2 Switched, 72 chips",
        ),
        (
            "Days to train a model",
            format_within(days.value, days.low, days.high, "days"),
            f"{run.model.id} on 2T tokens, {run.chips:,.0f} chips of {run.system.name}",
        ),
        (
            "Share of the time that is useful",
            format_within(100 * float(job.goodput), 100 * float(cuts.p5), 100 * float(cuts.p95), "%").replace(
                " %", "%"
            ),
            f"{job.model.id if job.model else ''} on {float(job.chips):,.0f} chips of {job.system.name}, trays swapped",
        ),
        (
            "Median error of a prediction",
            f"{percent(error.median_error, '')} (nine in ten: {percent(error.p90_error, '')})",
            f"time per output token on {CHIP}, on pages that no fit has read",
        ),
    ]
    return pd.DataFrame(rows, columns=["what", "answer", "of"])


def chip(spec: Chip, net: Topology) -> dict[str, Any]:
    """Return what AWS prints of a chip, and the domain of its largest system.

    Examples
    --------
    >>> import trnmodel as tm
    >>> chip(tm.chip("trainium2"), tm.topology("trn2-ultraserver"))["domain_chips"]
    64
    """
    eight = max((name for name in spec.peak_flop_per_s if "fp8" in name), key=spec.peak_flop_per_s.__getitem__)
    peaks = {"BF16 peak": "bf16", "8-bit peak": eight}
    row = {"chip": spec.name, "year": int(spec.year)}
    row |= {f"{head} [TFLOP/s]": format_digits(spec.peak_flop_per_s[name] / TFLOP, 4) for head, name in peaks.items()}
    return row | {
        "8-bit format": eight.upper().replace("CFP8", "cFP8"),
        "hbm_bytes": spec.hbm_bytes,
        "hbm_bytes_per_s": spec.hbm_bytes_per_s,
        "domain": net.system.name,
        "domain_chips": net.system.domain_chips,
        "links_bytes_per_s_per_dir": net.injection_bytes_per_s_per_dir,
    }
