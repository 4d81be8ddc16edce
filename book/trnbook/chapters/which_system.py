"""Tables of the chapter on the choice of a system: who is best, how many and what bill, what fits, what flips it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trnbook.chapters import common
from trnbook.shared import drafts, market
from trnbook.shared.choices import rate, unmeasured
from trnmodel.catalog.load import chip as read_chip
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.evidence.score import counted
from trnmodel.evidence.tables import SOURCE, accuracy
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.single import same
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import format_digits, format_within

if TYPE_CHECKING:
    from trnmodel.search.compare import Comparison, Flip
    from trnmodel.search.flips import Flips
    from trnmodel.search.plan import Plan
    from trnmodel.search.token_cost import TokenCosts
    from trnmodel.steps.answers import MemoryFit

ENDS = ("_low", "_high")
SHORT = ("owner_usd_per_mtoken", "energy_j_per_token")  # columns of two digits
MARKET = "market rent [$ per million tokens]"
PAID = ("owned_usd_per_month", "usd_per_month")
OTHER = "everything else"
KINDS = {  # of bytes that a rank stores
    "weights": ["weight_bytes"],
    "cache": ["cache_bytes"],
    OTHER: ["scratchpad_bytes", "collective_buffer_bytes", "ring_bytes", "code_bytes", "runtime_bytes"],
}
CHECKED = {  # uses of measured rows that no fit has read
    "serving, throughput": "configurations of servers on Neuron chips",
    "serving, TTFT in a queue": "first tokens in their queues",
    "GPUs in tables of Trainium": "GPUs that such pages measured too",
}


def unreached(plan: Plan) -> str:
    """Return why no Trainium system keeps the promise, and what comes nearest.

    Examples
    --------
    >>> import trnmodel as tm
    >>> print(unreached(tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=1e5))).partition(":")[0])
    no Trainium system gives each user 100,000 tokens/s of llama-3.1-8b
    """
    speed, model = plan.request.tokens_per_s_per_user, plan.model.id
    if plan.best is None:
        return f"{model} fits on no Trainium system: {plan.nearest or '; '.join(plan.refused.values())}"
    most = max(plan.choices, key=lambda c: c.tokens_per_s_per_user)
    fastest = f"at most {format_digits(most.tokens_per_s_per_user, 3)} on {most.place}, on an empty server"
    return f"no Trainium system gives each user {speed:,g} tokens/s of {model}: {fastest}"


def one_per_chip(plan: Plan) -> list[Choice]:
    """Return the best choice of each kind of chip that keeps the promise, GPUs included, the best first.

    Of systems of a chip that tie it is the plan's best, or the best for rent.

    Examples
    --------
    >>> from trnbook.shared import case
    >>> import trnmodel as tm
    >>> plan = tm.plan("llama-3.3-70b", case.request("llama-3.3-70b"))
    >>> chips = [c.system.chip.id for c in one_per_chip(plan)]
    >>> len(chips) == len(set(chips)), {"trainium2", "trainium3", "b200"} <= set(chips)
    (True, True)
    """
    best: dict[str, Choice] = {}
    for c in sorted((c for c in (*plan.choices, *plan.gpus) if c.valid), key=lambda c: -c.tokens_per_s_per_chip):
        best.setdefault(c.system.chip.id, c)
    for first in (plan.for_rent, plan.best):  # of systems that tie
        if first is not None and first.valid and same(first, best[first.system.chip.id]):
            best[first.system.chip.id] = first
    return list(best.values())


def few(chosen: Sequence[Choice], most: int = 3) -> list[str]:
    """Return the systems of a chart: the best of each Trainium chip, and the best GPUs that do not tie.

    Examples
    --------
    >>> from trnbook.shared import case
    >>> import trnmodel as tm
    >>> few(one_per_chip(tm.plan("llama-3.3-70b", case.request("llama-3.3-70b"))), 1)[0]
    'gb200-nvl72'
    """
    gpus = list[Choice]()
    for c in chosen:
        if c.system.chip.core is None and len(gpus) < most and not any(same(c, one) for one in gpus):
            gpus.append(c)
    return [c.system.id for c in chosen if c.system.chip.core is not None or c in gpus]


def _drafts(best: Choice, plain: Sequence[Choice | None]) -> str:
    """Return that a figure rests on drafts, where they were documented, and what is made without; empty if not."""
    if not plain:
        return ""
    where = ", ".join(sorted(read_chip(name).name for name in best.option.measured_on or best.option.documented_on))
    once = " for one sequence at a time" if best.option.measured_batch == 1 else ""
    return f"The figure rests on {drafts.LINKED}, measured on {where}{once}. {drafts.without(best, plain)} "


def headline(
    plan: Plan,
    rented: TokenCosts,
    plain: Mapping[str, Sequence[Choice | None]],
    sold: TokenCosts | None = None,
    soon: Plan | None = None,
) -> str:
    """Return the card that opens the chapter: the best Trainium, the best GPU, the lowest rent, how sure it is.

    Parameters
    ----------
    plan : Plan
        The answer. [-]
    rented : TokenCosts
        Costs to a renter. [-]
    plain : mapping
        Choices without drafts of the best system, and of the best one for rent. [-]
    sold : TokenCosts, optional
        Costs at market rents of GPUs. [-]
    soon : Plan, optional
        The answer under a limit on the first token. [-]
    """
    best, speed = plan.best, plan.request.tokens_per_s_per_user
    assert best is not None
    gpus = [c for c in plan.gpus if c.valid]
    made = format_digits(gpus[0].tokens_per_s_per_chip, 3) if gpus else ""
    rival = f"{gpus[0].system.name}, the best GPU, with {made} tokens/s per chip" if gpus else ""
    rent = _rent(plan, rented, plain, sold)
    holds = "all draws" if best.chance >= 0.9995 else f"{100 * best.chance:.3g}% of the draws"
    sure = (
        f"**How sure?** We draw the times of the software `{best.stack.id}`, our own estimates, a thousand times. "
        f"The promise holds in {holds}, and the range in brackets holds nine in ten of those. "
        f"{unmeasured(best.system.chip)} {_drafts(best, plain.get(best.place, ()))}"
    )
    announced = "" if best.system.status == "for rent" else f" ({best.system.status})"
    return common.card(
        [best.tokens_per_s_per_chip, *(float(end) for end in best.ends(best.FIGURE))],
        f"{best.system.name}{announced}, the best Trainium system for `{plan.model.id}` at {rate(speed)} per user",
        unit="tokens/s per chip",
        mark=str(best.basis),
        rank="Compared with",
        rival=rival,
        alone="" if rival else "no GPU that we know keeps this promise",
        proof="Check against numbers that are not ours",
        more=f"{_first_token(plan, soon)}\n\n{rent}\n\n{sure.strip()}",
    )


def _first_token(plan: Plan, soon: Plan | None) -> str:
    """Return what is promised of the first token, when it comes, and what a limit on it costs."""
    limit, best = plan.request.ttft_s, plan.best
    assert best is not None
    rivals = [f", and within {format_digits(c.ttft_s, 2)} s on {c.system.name}" for c in plan.gpus[:1] if c.valid]
    comes = f"The first token comes within {format_digits(best.ttft_s, 2)} s on {best.system.name}{''.join(rivals)}. "
    start = "**No limit on the first token is promised.** " if limit is None else ""
    if soon is None:
        return f"{start}{comes}".strip()
    sides = {"the best Trainium system": soon.choices, "the best GPU": soon.gpus}
    most = {who: max((c.tokens_per_s_per_chip for c in some if c.valid), default=0.0) for who, some in sides.items()}
    made = [f"{who} {f'makes {format_digits(x, 2)}' if x else 'keeps no promise'}" for who, x in most.items()]
    within = f"If it must come within {soon.request.ttft_s:g} s, {' and '.join(made)} tokens/s per chip."
    return f"{start}{comes}{within}"


def hurried(limited: Mapping[float | None, Plan]) -> pd.DataFrame:
    """Return the best Trainium, the best for rent, and the best GPU under each limit on the first token, per chip."""
    rows = []
    for limit, plan in limited.items():
        row = {"first token within": "no limit" if limit is None else f"{limit:g} s"}
        let = [c for c in plan.choices if c.system.status == "for rent"]
        for kind, choices in {"Trainium": plan.choices, "Trainium to rent": let, "GPU": plan.gpus}.items():
            some = [c for c in choices if c.valid]
            best = max(some, key=lambda c: c.tokens_per_s_per_chip, default=None)
            if best is not None:  # of systems that make the same it is the one that the plan names
                named = (c for c in (plan.best, plan.for_rent) if c in some and same(c, best))
                best = next(named, best)
            row[f"best {kind}"] = best.system.name if best else "none keeps it"
            row[f"{kind} [tokens/s per chip]"] = format_digits(best.tokens_per_s_per_chip, 2) if best else "–"
        rows.append(row)
    return pd.DataFrame(rows)


def thousands(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of bills with both bills in thousands of dollars, so that they can be compared.

    Examples
    --------
    >>> thousands(pd.DataFrame({"usd_per_month": [2e6], "owned_usd_per_month": [4e5]})).iloc[0].tolist()
    ['2,000', '400']
    """
    heads = {"usd_per_month": "rent", "owned_usd_per_month": "cost to the owner"}
    shown = dict[str, list[str]]()
    for name in heads:
        low, high = (table.get(f"{name}{end}", table[name]) for end in ENDS)
        rows = zip(table[name] / 1e3, low / 1e3, high / 1e3, strict=True)
        shown[name] = ["–" if x != x else f"{x:,.0f}" if a == b else format_within(x, a, b) for x, a, b in rows]
    rest = table.drop(columns=[f"{name}{end}" for name in heads for end in ENDS], errors="ignore")
    return rest.assign(**shown).rename(columns={k: f"{v} [thousand $/month]" for k, v in heads.items()})


def _rent(plan: Plan, rented: TokenCosts, plain: Mapping[str, Sequence[Choice | None]], sold: TokenCosts | None) -> str:
    """Return which system has the cheapest tokens to rent, its best rival, and what that costs at market rents."""
    shown = {c.system.id for c in one_per_chip(plan)}
    lines = [one for one in rented.of("public") if one.system.id in shown and not one.rent.why and np.all(one.valid)]
    lines.sort(key=lambda one: float(one.generated_usd_per_mtoken))
    if not lines:
        return "**To rent today**, none of them has a published price."
    first = lines[0]
    others = [one for one in lines if (one.system.chip.core is None) != (first.system.chip.core is None)]
    usd = [one.in_words(one.FIGURE) for one in (first, *others[:1])]
    at = " in an AWS Capacity Block" if first.rent.pricing == "capacity-block" else ""
    text = f"**To rent today**{at}, {first.system.name} costs \\${usd[0]} per million tokens."
    text += drafts.priced(float(first.rent.usd_per_chip_h), plain.get(first.system.id, ()))
    if others:
        kind = "GPU" if others[0].system.chip.core is None else "Trainium system"
        (_, low, high), (_, least, most) = market.ends(first), market.ends(others[0])
        tie = " The ranges overlap: this is a tie." if low <= most and least <= high else ""
        text += f" The cheapest {kind} per token is {others[0].system.name}, at \\${usd[1]}.{tie}"
    rival = others[0].system.id if others else ""
    more = market.turned(first, rival, sold) if sold is not None and first.system.chip.core is not None else ""
    return f"{text} {more}".strip()


def sampled(speed: float, changes: Flips | None) -> list[float]:
    """Return promised speeds from an eighth of one to four times, and those at which two systems change places.

    Examples
    --------
    >>> [round(x, 1) for x in sampled(8.0, None)[:5]]
    [1.0, 1.2, 1.4, 1.7, 2.0]
    """
    every = {float(x) for x in speed * 2.0 ** np.arange(-3, 2.1, 0.25)}
    return sorted(every | {float(one.tokens_per_s_per_user) for one in (changes.speeds if changes else ())})


def frontier(promises: Comparison) -> pd.DataFrame:
    """Return what each system makes per chip over the promised speed, where it keeps the promise."""
    table = promises.to_frame()
    columns = ["promised_tokens_per_s_per_user", "tokens_per_s_per_chip", "system"]
    return table.loc[table.valid.astype(bool), columns]


def ranking(
    shown: Sequence[Choice], rented: TokenCosts, owned: Mapping[str, TokenCosts], sold: TokenCosts | None = None
) -> pd.DataFrame:
    """Return choices from best to worst, those that make the same with an equals sign, and what a million tokens cost.

    Parameters
    ----------
    shown : sequence of Choice
        The choices of the rows. [-]
    rented : TokenCosts
        Costs to a renter. [-]
    owned : mapping
        Costs to an owner, by system. [-]
    sold : TokenCosts, optional
        Costs at market rents. [-]

    Returns
    -------
    table : pandas.DataFrame
        system, order, chips, tokens_per_s_per_chip and rent_usd_per_mtoken with their ends, owner_usd_per_mtoken,
        MARKET (what is rented at market rents, if asked for),
        ttft_s, energy_j_per_token, chance. [-]
    """
    rows = []
    for c in sorted(shown, key=lambda c: -c.tokens_per_s_per_chip):
        better = sum(other.merit() > c.merit() and not same(other, c) for other in shown)
        ties = any(other is not c and same(other, c) for other in shown)
        row: dict[str, Any] = {"system": c.system.id, "order": f"{better + 1}{' =' * ties}", "chips": c.chips}
        row |= c.banded("tokens_per_s_per_chip")
        rent = rented[c.system.id, "public"].banded("generated_usd_per_mtoken")
        row |= {f"rent_usd_per_mtoken{end}": float(rent[f"generated_usd_per_mtoken{end}"]) for end in ("", *ENDS)}
        if sold is not None:
            row[MARKET] = market.cell(sold[c.system.id, "public"])
        row["owner_usd_per_mtoken"] = float(owned[c.system.id][c.system.id, "public"].generated_usd_per_mtoken)
        row |= {"ttft_s": c.ttft_s, "energy_j_per_token": float(c.energy().server_j_per_token), "chance": c.chance}
        rows.append(row)
    return tidy(rows)


def in_seconds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the ranking as it is read: two digits, first tokens in seconds, chances in percent.

    Examples
    --------
    >>> in_seconds(pd.DataFrame({"ttft_s": [3.167], "chance": [0.95]})).iloc[0].tolist()
    ['3.2', '95%']
    """
    short = {name: [float(f"{x:.2g}") for x in table[name]] for name in table if name in SHORT}
    first = [format_digits(x, 2) for x in table.ttft_s]
    shown = table.assign(ttft_s=first, chance=[f"{x:.0%}" for x in table.chance], **short)
    return shown.rename(columns={"ttft_s": "TTFT [s]"})


def bills(sized: Plan) -> pd.DataFrame:
    """Return how many instances serve the users on each kind of chip, the bill of a month, and the power.

    The lowest rent comes first, then the lowest cost to an owner.
    """
    rows = []
    for c in one_per_chip(sized):
        capacity = sized.capacity_of(c)
        row: dict[str, Any] = {"system": c.system.id, "status": c.system.status} | capacity.banded("instances")
        row |= {"chips": capacity.chips, "racks": float(np.ceil(capacity.instances * c.system.racks))}
        row |= capacity.banded("usd_per_month") | {"owned_usd_per_month": capacity.owned_usd_per_month}
        row |= {"mean_site_w": capacity.mean_site_w, "provisioned_site_w": capacity.provisioned_site_w}
        rows.append(row)
    return tidy(rows).sort_values(["usd_per_month", "owned_usd_per_month"], kind="stable", ignore_index=True)


def stretched(model: Transformer, tokens: float) -> Transformer:
    """Return a model with room for a context, which stretched positions (YaRN) give at no cost of memory.

    Examples
    --------
    >>> import trnmodel as tm
    >>> stretched(tm.model("qwen3-235b-a22b"), 65_536).max_context
    65536
    """
    return replace(model, max_context=int(tokens)) if 0 < model.max_context < tokens else model


def candidates(answer: Plan, system: str | System) -> dict[str, Degrees]:
    """Return mappings to compare on one system: the plan's, and tensor parallelism over all ranks, half, a quarter.

    Examples
    --------
    >>> import trnmodel as tm
    >>> answer = tm.plan("llama-3.1-8b", tm.Request(1024, 128), "trn2.48xlarge")
    >>> list(candidates(answer, "trn2.48xlarge"))[1:]
    ['TP 16', 'TP 32', 'TP 64']
    """
    ranks = _ranks(system)
    mappings = {}
    if answer.best is not None:
        d = answer.best.degrees
        parts = [f"{name.upper()} {getattr(d, name):g}" for name in ("tp", "ep", "pp", "cp") if getattr(d, name) > 1]
        mappings[f"{' x '.join(parts) or 'TP 1'}, the plan's"] = d
    whole = 2 ** int(np.log2(ranks))
    taken = {(float(d.tp), float(d.ep)) for d in mappings.values()}
    return mappings | {
        f"TP {tp}": Degrees(tp=tp) for tp in (whole // 4, whole // 2, whole) if tp >= 1 and (tp, 1) not in taken
    }


def stored(answer: Plan) -> str:
    """Return the precision of a plan; of one that fits nothing, FP8."""
    return answer.best.precision if answer.best is not None else "fp8"


def _ranks(system: str | System) -> int:
    """Return the ranks of an instance."""
    spec = read_system(system)
    return int(site(spec).ranks_per_chip * spec.chips)


def sequences(degrees: Degrees, system: str | System, users: float) -> float:
    """Return the sequences of a replica, if as many replicas as fit share the users of one instance.

    Examples
    --------
    >>> sequences(Degrees(tp=16), "trn2.48xlarge", 8), sequences(Degrees(tp=4, ep=8), "trn2.48xlarge", 8)
    (2.0, 8.0)
    """
    replicas = max(_ranks(system) // int(degrees.ranks), 1)
    return float(max(np.ceil(users / replicas), degrees.ep))


def footprint(fits: Mapping[str, MemoryFit]) -> pd.DataFrame:
    """Return what the first rank stores by kind and mapping, with what it has, in long form, and whether it fits."""
    rows = []
    for name, fit in fits.items():
        line = fit.to_frame().iloc[0]
        says = "fits" if bool(fit.valid) else "does not fit"
        for kind, columns in KINDS.items():
            more = line.first_rank_total_bytes - line.total_bytes if kind == OTHER else 0.0
            stored = float(sum(line[column] for column in columns) + more)
            rows.append(
                {"mapping": f"{name}: {says}", "part": kind, "stored_bytes": stored, "limit": line.capacity_bytes}
            )
    return tidy(rows)


def ties(sides: Comparison) -> pd.DataFrame:
    """Return the price of a chip-hour at which the baseline's tokens cost what those of each rented system cost.

    Returns
    -------
    table : pandas.DataFrame
        system, usd_per_chip_h of the baseline, with its ends. [-]
    """
    table, name = sides.break_even(), "against_break_even_usd_per_chip_h"
    columns = {name + end: f"usd_per_chip_h{end}" for end in ("", "_low", "_high")}
    return table.dropna(subset=[name])[["system", *columns]].rename(columns=columns)


def hosted(month: pd.DataFrame) -> str:
    r"""Return what sellers of tokens charge for the tokens of a month, in a sentence.

    Examples
    --------
    >>> hosted(pd.DataFrame({"kind": ["owned", "hosted"], "usd_per_month": [9e3, 1e4]}))
    'For the tokens of this month, one seller that we know charges \\$10,000.'
    """
    usd = month[month.kind == "hosted"].usd_per_month.dropna()
    if usd.empty:
        return "No seller's price for this model is known to us."
    low, high = (f"\\${format_digits(float(end), 3)}" for end in (usd.min(), usd.max()))
    if len(usd) == 1:
        return f"For the tokens of this month, one seller that we know charges {low}."
    return f"For the tokens of this month, the sellers that we know charge from {low} to {high}."


def flips(changes: Flips | None) -> pd.DataFrame:
    """Return what would flip the order of the best system and its rival: what, as it is, and where it flips."""
    if changes is None:
        return pd.DataFrame({"what would flip it": ["nothing: there is no rival"], "now": [""], "flips at": [""]})
    price, best, rival = changes.price, changes.best, changes.rival
    own, other = best.system.name, rival.system.name
    rows = []
    if changes.speeds:
        asked = rate(best.question.request.tokens_per_s_per_user)
        rows.append((f"the promise, against {other}", asked, _leads(changes.speeds)))
    now = f"${price.usd_per_chip_h:.2f}" if price.usd_per_chip_h == price.usd_per_chip_h else "no price published"
    if price.break_even_usd_per_chip_h == price.break_even_usd_per_chip_h:
        rows.append((f"rent per chip-hour of {own}, against {other}", now, f"${price.break_even_usd_per_chip_h:.2f}"))
    if price.part and price.break_even_usd == price.break_even_usd:
        part = price.part.removesuffix("_usd")
        at = f"${price.break_even_usd:,.0f}" if price.break_even_usd > 0 else "not even for nothing"
        rows.append(
            (f"price of one {part} of {own} to an owner, against {other}", f"${price.part_usd:,.0f} (assumed)", at)
        )
    for c in changes.software:
        made = f"{format_digits(c.tokens_per_s_per_chip, 3)} tokens/s per chip"
        leads = "leads" if c.tokens_per_s_per_chip > rival.tokens_per_s_per_chip else "still behind"
        rows.append((f"{c.stack.kind} software on {own}", "public", f"{made}: {leads}"))
    return pd.DataFrame(rows, columns=["what would flip it", "now", "flips at"])


def _leads(speeds: Sequence[Flip]) -> str:
    """Return which system leads at which promises, where their order changes at some speeds."""
    ends = [format_digits(one.tokens_per_s_per_user, 2) for one in speeds]
    names = [read_system(one.above).name for one in speeds]
    parts = [f"{read_system(speeds[0].below).name} leads below {ends[0]} tokens/s"]
    parts += [f"{name} leads from {low} to {high}" for name, low, high in zip(names, ends, ends[1:], strict=False)]
    return "; ".join([*parts, f"{names[-1]} leads above {ends[-1]}"])


def verdict(bills: pd.DataFrame, month: pd.DataFrame) -> str:
    """Return whether owning and renting cost less than the lowest seller asks for the same tokens, system by system.

    Examples
    --------
    >>> month = pd.DataFrame({"kind": ["hosted"], "usd_per_month": [1e5]})
    >>> rows = {"system": ["trn2.48xlarge"], "usd_per_month": [4e5], "owned_usd_per_month": [9e4]}
    >>> verdict(pd.DataFrame(rows), month).split(". ")[1]
    "The owner's cost lies below that price on 1 of 1 systems of the table"
    """
    asked = month[month.kind == "hosted"].usd_per_month.min()
    if asked != asked:
        return ""
    owned, rented = (bills[["system", name]].dropna().set_index("system")[name] for name in PAID)
    above = owned.index[owned > asked]
    text = "A seller must spend less than its price, so an owner's cost should lie below that price. "
    text += (
        f"The owner's cost lies below that price on {len(owned) - len(above)} of {len(owned)} systems of the table. "
    )
    if len(above):
        text += "On the others either no seller uses them, or our estimate is too high. "
    dear = int((rented > asked).sum())
    which = "all" if dear in (0, len(rented)) else f"{dear} of {len(rented)}"
    if len(rented):
        text += f"Renting in a Capacity Block costs {'more' if dear else 'less'} than that price on {which} systems."
    if len(rented) and dear == len(rented):
        text += " So buy tokens, unless you need servers that are yours alone or find a lower rent."
    return text.strip()


def command(plan: Plan, users: float, pricing: str) -> str:
    """Return the command line that asks for the same users, and how the best plan is run.

    Examples
    --------
    >>> import trnmodel as tm
    >>> plan = tm.plan("llama-3.1-8b", tm.Request(1024, 128, tokens_per_s_per_user=20), "trn2.48xlarge")
    >>> print(command(plan, 100, "spot").splitlines()[3])
    trnmodel plan llama-3.1-8b --in 1024 --out 128 --speed 20 --users 100 --pricing spot
    """
    request, best = plan.request, plan.best
    assert best is not None
    model = "config.json" if plan.model.path else plan.model.id  # of one's own
    parts = ["trnmodel plan", model, f"--in {request.input_tokens:g}", f"--out {request.output_tokens:g}"]
    parts += [f"--speed {request.tokens_per_s_per_user:g}", f"--users {users:g}"]
    parts += [] if pricing == "capacity-block" else [f"--pricing {pricing}"]
    documented = plan.command and not plan.model.path
    start = f"It starts with\n\n```console\n{plan.command}\n```" if documented else ""
    runs = f"The best plan runs `{best.mapping}` on {best.place}. {start}"
    return (
        "The command line ranks by whole instances for these users, and adds spot prices:"
        "\n\n```console\n" + " ".join(parts) + f"\n```\n\n{runs}"
    )


def errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the errors of measured servers that no fit has read, each configuration of `tm.validation` once."""
    table, lines = counted(rows), []
    for use, what in CHECKED.items():
        some = table[table.use == use]
        size = some.error.abs()
        line = {"what": what, "configurations": len(some), "pages": some.source.nunique()}
        lines.append(line | {"median_error": size.median(), "nine_in_ten_error": size.quantile(0.9)})
    return tidy(lines)


def half_of(table: pd.DataFrame) -> str:
    """Return what a table of errors says of its first row, in a sentence for the half and one for nine in ten."""
    first = table.iloc[0]
    left_out = accuracy().set_index(["group", "split"]).median_error["serving, throughput", SOURCE]
    return (
        f"Half of {first.configurations:,} {first.what} are predicted within {first.median_error:.0%}. "
        f"Nine in ten are predicted within {first.nine_in_ten_error:.0%}. "
        f"If the fits leave out all that stands on the page of a server, half are within {left_out:.0%}."
    )
