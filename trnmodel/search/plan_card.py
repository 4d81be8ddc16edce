"""The lines of a plan: what to run, what it makes, how sure that is, and why the other systems lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trnmodel.catalog import load
from trnmodel.catalog.systems import AVAILABILITY
from trnmodel.search.choice import Choice
from trnmodel.search.pairs import Pair
from trnmodel.serving.account import TOO_LATE
from trnmodel.steps.answers import dominant_constant
from trnmodel.units import counted, format_digits, format_quantity

if TYPE_CHECKING:
    from trnmodel.search.plan import Plan

NAMED = 3  # reasons why systems lose that a card names, and systems that it names with each
UNIT = "tokens/s per paid chip"
SPEED, SPEEDS = "tokens_per_s_per_user", "tokens/s"


def lines(p: Plan) -> list[str]:
    """Return at most ten lines: request, best, ties, configuration, what a user gets, and what else there is."""
    c, after = p.best, p.runner_up
    request = f"{p.model.id}, {p.request.describe()}"
    if not c:
        none = "no system is within the demand" if p.beyond else "the model fits on no system that was asked"
        return [f"{request}: {none}.", *_nearest(p), *others(p, after)]
    card = [f"{request}.", _best(c), *ties(p), configuration(c), *documented(c), *_user(c), *one_constant(c)]
    card += _nearest(p)
    if p.other_software:
        made = [f"{b.stack.kind} {_made(b) if b.valid else b.reason}" for b in p.other_software]
        card.append(f"Other software on it: {', '.join(made)}.")
    return [*card, *_runner_up(p, after), *others(p, after), *_gpus(p), *start(p)]


def _runner_up(p: Plan, after: Choice | None) -> list[str]:
    """Return the runner-up and why it loses, with what sets it apart: its mapping on the same system, or its option."""
    if not after or after.place in p.same:
        return []
    best = p.choices[0]
    apart = f" with {after.option.id}" if after.option.id != best.option.id else ""
    apart = f" at {after.mapping}" if named(after) == named(best) else apart
    made = [_made(after)] if after.valid else []
    return [f"Runner-up: {named(after)}{apart}: {', '.join([*made, p.reason(after)])}."]


def named(c: Choice) -> str:
    """Return where a choice runs, and what a buyer can get of it: the least that holds of all its systems."""
    status = max((one.status for one in c.systems), key=AVAILABILITY.index)
    return f"{c.place} ({status})"


def _made(c: Choice, basis: str = "") -> str:
    """Return the objective of a choice with its band."""
    return c.in_words(c.FIGURE, UNIT, basis)


def _share(part: float) -> str:
    """Return a share as a percentage of two digits."""
    return f"{format_digits(100 * part, 2)} %"


def _best(c: Choice) -> str:
    """Return the best system with what it makes and the chance of that, or how near it comes to the promise."""
    if not c.valid:
        near = f"{named(c)} is {c.reason}, at most"
        name, unit = SPEED, f"{SPEEDS} per user"
        if c.reason == TOO_LATE:
            near, name, unit = f"on {named(c)} {c.reason}, after", "ttft_s", "s"
        return f"No system keeps the promise: {near} {c.in_words(name, unit, str(c.basis))}."
    return f"Best: {named(c)} with {c.stack.kind} software makes {_made(c, str(c.basis))}{chance(c)}."


def chance(c: Choice) -> str:
    """Return in how many of the draws the promise holds; nothing where none was made."""
    request = c.question.request
    promised = request.tokens_per_s_per_user is not None or request.ttft_s is not None
    return f"; the promise holds in {_share(c.chance)} of the draws" if promised else ""


def ties(p: Plan) -> list[str]:
    """Return the systems that tie with the best, by name."""
    tied = [named(c) for c in p.choices if c.place in p.same]
    return [f"Ties with it within 1 %: {', '.join(tied)}."] if tied else []


def configuration(c: Choice) -> str:
    """Return the mapping with its option, and from which chip the option is borrowed."""
    borrowed = f" ({c.option.borrowed})" if c.option.borrowed else ""
    return f"Configuration: {c.mapping}{borrowed}, on {c.chips:g} of {counted(c.system.chips, 'chip')}."


def documented(c: Choice) -> list[str]:
    """Return what documents say of the model on the software, and of its formats; nothing where all is well known."""
    said = []
    if c.stack.kind == "public" and not c.support.supported:
        missing = c.support.missing or f"no document of {c.stack.id} lists it"
        said.append(f"Not documented: {missing}.")
    if c.quality.basis != "ideal":
        said.append(f"Quality: {c.question.model.id} in {c.precision} {c.quality.described()}.")
    return said


def _user(c: Choice) -> list[str]:
    """Return what a user gets, and how the chips share their time; nothing where the promise is broken."""
    if not c.valid:
        return []
    first = c.in_words("ttft_s", "s")
    alone = c.in_words("decode_tokens_per_s_per_chip", "tokens/s per chip")
    request, busy = c.question.request, f"prompts take {_share(c.prefill_utilisation)} of the time"
    percentile = f"{request.ttft_percentile:g} % of first tokens within {first}"
    if isinstance(c, Pair):
        busy = f"the prefill pool is busy {_share(c.prefill_utilisation)} of the time"
        percentile = percentile if request.ttft_s is not None else f"the first token after {first}, without a queue"
    return [f"A user gets {c.in_words(SPEED, SPEEDS)}, and {percentile}; {busy}, decoding alone makes {alone}."]


def one_constant(c: Choice) -> list[str]:
    """Return that most of a step is one fitted constant, in the words of the list of quantities; else nothing."""
    name, share = dominant_constant(c.step)
    if not name:
        return []
    what = load.quantities()[str(name)].description
    what = f"{what[0].lower()}{what[1:]}"
    article = "" if what.startswith("what") else "the "
    return [f"{_share(float(share))} of a decode step is one fitted constant: {article}{what}."]


def _nearest(p: Plan) -> list[str]:
    """Return the nearest that works as a line; nothing where the promises hold."""
    return [f"Nearest that works: {p.nearest}."] if p.nearest else []


def others(p: Plan, after: Choice | None) -> list[str]:
    """Return why the other systems lose, with those of the same reason together."""
    groups: dict[str, list[str]] = {}
    for name, why in _short_reasons(p).items():
        if not after or name != after.place:
            groups.setdefault(why, []).append(name)
    reasons = [f"{_listed(names)} ({why})" for why, names in groups.items()]
    more = sum(map(len, list(groups.values())[NAMED:]))
    rest = [f"{more} more system{'s' if more > 1 else ''}"] if more else []
    return ["Others: " + "; ".join([*reasons[:NAMED], *rest]) + "."] if reasons else []


def _gpus(p: Plan) -> list[str]:
    """Return the best GPU systems that can be rented; nothing where the systems were named."""
    fast = [c for c in p.gpus if c.valid]
    if not fast:
        return ["GPUs for rent: none keeps the promise."] if p.gpus else []
    texts = [f"{fast[0].system.id} makes {_made(fast[0], str(fast[0].basis))} at {fast[0].mapping}"]
    texts += [f"{c.system.id} {_made(c)}" for c in fast[1:2]]
    return [f"GPUs for rent: {'; '.join(texts)}."]


def _listed(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _short_reasons(p: Plan) -> dict[str, str]:
    """Return how far behind the best each system is, without those that tie with it."""
    behind = {c.place: _behind(p, c) for c in p.choices[1:] if c.place not in p.same}
    return behind | dict(p.refused)


def _behind(p: Plan, c: Choice) -> str:
    """Return how far a choice is behind the best, or from the promise."""
    if c.valid:
        return f"{1 - p.merit(c) / p.merit(p.choices[0]):.0%} less".replace("%", " %")
    if c.reason == TOO_LATE:
        return f"first token after {format_quantity(c.ttft_s, 's', 2)} at the least"
    return f"too slow, {format_digits(c.tokens_per_s_per_user, 2)} {SPEEDS} per user at most"


def start(p: Plan) -> list[str]:
    """Return the command that starts the best choice, or why no page gives one."""
    if p.command:
        return [p.command]
    return [f"No start command: {p.no_command}."] if p.no_command else []
