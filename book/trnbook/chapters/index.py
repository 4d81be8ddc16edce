"""Tables of the first page: the answer for each model on Trainium and on GPUs, and the chips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from trnbook.chapters import guard
from trnbook.charts.tables import percent
from trnbook.shared.choices import unmeasured
from trnmodel.catalog.specs import Chip
from trnmodel.fabric.graph import Topology
from trnmodel.search.choice import Choice
from trnmodel.search.plan import Plan
from trnmodel.search.single import TIED
from trnmodel.units import TFLOP, counted, format_digits

if TYPE_CHECKING:
    from trnmodel.search.capacity import Capacity
    from trnmodel.search.chip_seconds import TokenCost

LARGEST = {"trainium1": "trn1.32xlarge", "trainium2": "trn2-ultraserver", "trainium3": "trn3-nl72x2-pcie160"}
_USD = "generated_usd_per_mtoken"
GPU = "GPU"
MOST = f"{GPU}, most per chip"
SIDES = ("for rent", GPU)  # roles of the pair that the desk shows first
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
    """Return the Trainium to rent and the GPUs with the lowest bill for the users, and the best of both per chip.

    Of bills within 1 % the one with the fewest instances counts. A system that has two roles is named once, and a role
    that nobody has is left out.
    """
    best = plan.best if plan.reached else None
    gpus = [c for c in plan.gpus if c.valid]
    most = gpus[0] if gpus else None
    rented = _lowest_bill(sized, [c for c in sized.choices if c.valid and c.system.status == "for rent"])
    cheapest = _lowest_bill(sized, [c for c in sized.gpus if c.valid])
    named = {"for rent": rented or sized.for_rent, "announced": best, GPU: cheapest or most, MOST: most}
    roles = dict[str, str]()
    for role, c in named.items():
        if c is not None:
            roles.setdefault(c.system.id, c.system.status if role == "announced" else role)
    return roles or ({plan.best.system.id: "too slow"} if plan.best is not None else {})


def _lowest_bill(sized: Plan, some: Iterable[Choice]) -> Choice | None:
    """Return the choice with the lowest rent, of those within 1 % the one with the fewest instances; None without."""
    held = [(c, sized.capacity_of(c)) for c in some]
    priced = [(c, one) for c, one in held if not np.isnan(one.usd_per_month)]
    if not priced:
        return None
    least = min(float(one.usd_per_month) for _, one in priced)
    tied = [(c, one) for c, one in priced if float(one.usd_per_month) <= least * (1 + TIED)]
    return min(tied, key=lambda pair: float(pair[1].instances))[0]


def sized_on(sized: Plan, system: str) -> Capacity | None:
    """Return instances and bill of the users on a system; None where it does not keep the promise."""
    some = [c for c in (*sized.choices, *sized.gpus) if c.valid and c.system.id == system]
    return sized.capacity_of(some[0]) if some else None


def pair(roles: Mapping[str, str]) -> list[str]:
    """Return the systems that the desk shows first: the Trainium to rent, and the GPUs with the lowest bill.

    Examples
    --------
    >>> pair({"trn2.48xlarge": "for rent", "hgx-h200": "GPU", "gb200-nvl72": "GPU, most per chip"})
    ['trn2.48xlarge', 'hgx-h200']
    """
    return [name for role in SIDES for name, one in roles.items() if one == role]


def bills(sized: Plan, names: Iterable[str]) -> str:
    """Return the instances and the rent of systems for the users, a line for each."""
    lines = []
    for name in names:
        held = sized_on(sized, name)
        if held is None:
            continue
        rent = format_digits(float(held.usd_per_month), 3)
        paid = "at a rent that nobody publishes" if np.isnan(held.usd_per_month) else f"for \\${rent} per month"
        noun = "instance" if held.instances == 1 else "instances"
        lines.append(f"- **{held.system.name}:** {held.instances:,.0f} {noun} {paid}.")
    return "\n".join(lines)


def row(role: str, c: Choice, plain: Choice | None, held: Capacity | None) -> dict[str, Any]:
    """Return a row of the first table: promise, system, what a chip makes, chance, first token, instances and rent."""
    made = c.valid
    instances = f"{held.instances:,.0f}" if held else _NONE
    rent = format_digits(held.usd_per_month / 1e3, 3) if held and not np.isnan(held.usd_per_month) else _NONE
    return {
        "model, tokens/s per user": f"{c.question.model.id}, {c.question.request.tokens_per_s_per_user:,g}",
        "system": c.system.id,
        "kind": role,
        "tokens/s per chip": _per_chip(c) if made else _NONE,
        "without drafts": format_digits(plain.tokens_per_s_per_chip, 2) if plain else "the same" if made else _NONE,
        "chance": percent(c.chance, "") if made else _NONE,
        "TTFT [s]": format_digits(c.ttft_s, 2) if made else _NONE,
        "instances": instances,
        "rent [thousand $/month]": rent,
    }


def _per_chip(c: Choice) -> str:
    """Return what a chip makes with its range, which may be too narrow where no server of the chip was measured."""
    text = c.in_words(c.FIGURE)
    return f"{text[:-1]} or wider)" if unmeasured(c.system.chip) and text.endswith(")") else text


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
