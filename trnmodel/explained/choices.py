"""Terms of the choice of a plan, and of the cost of a token."""

from __future__ import annotations

from trnmodel.explained.steps import step_tree
from trnmodel.explained.trees import DIGITS, Branch, Part, Written, made, single, summed
from trnmodel.search.chip_seconds import TokenCost
from trnmodel.search.choice import Choice
from trnmodel.serving import account
from trnmodel.serving.account import Times
from trnmodel.units import HOUR, MILLION, format_quantity

STEP_SIZE = 1e-5  # of a time, by which the load of a replica is differentiated
FULL = 1e-9  # share up to which a load is that of a full batch


def choice_tree(c: Choice) -> Branch:
    """Return the generated tokens/s of a paid chip as a tree, down to the decode step and the prompts.

    With a rate of requests whole systems are paid, so that the answer moves in jumps; the load of one replica, which
    does not, is explained then.

    Examples
    --------
    >>> import trnmodel as tm
    >>> best = tm.plan("llama-3.1-8b", tm.Request(1024, 256, tokens_per_s_per_user=50), "trn2.48xlarge").best
    >>> [part.branch.name for part in choice_tree(best).parts]
    ['load of a replica']
    """
    load = _load(c)
    if c.question.request.requests_per_s is not None:
        return load
    tokens, chips = float(c.question.request.output_tokens), c.paid_chips
    each = tokens / chips

    def write(of: Written) -> str:
        numbers = "tokens of an answer / paid chips" if of(load) == load.name else f"{tokens:,g} / {chips:g}"
        return f"{of(load)} x {numbers}"

    return made("tokens/s of a paid chip", "token/s", load.value * each, [Part(load, each)], write)


def _load(c: Choice) -> Branch:
    """Return the requests/s of a replica at its planned load."""
    times, request = c.times, c.question.request
    steps: dict[tuple[str, ...], Branch] = {("step_s",): _decode(c)}
    if c.together is c.first:
        steps["together_s", "alone_s"] = step_tree(c.first)._replace(name="time of a prompt")
    else:
        steps["together_s",] = step_tree(c.together)._replace(name="time of the prompts of all groups at once")
        steps["alone_s",] = step_tree(c.first)._replace(name="time of a prompt by itself")
    slopes = ((term, _slope(c, names)) for names, term in steps.items())
    parts = [Part(term, slope) for term, slope in slopes if slope]
    formula, values = _regime(c)
    value = float(account.planned_requests_per_s(times, request))
    return Branch("load of a replica", formula, values, value, "requests/s", tuple(parts))


def _decode(c: Choice) -> Branch:
    """Return the decode step, with its drafts where it has any."""
    step = step_tree(c.step)._replace(name="time of a decode step")
    drafts = single(c.steps.drafts_s)
    if not drafts:
        return step
    return summed("time of a decode step with drafts", "s", [step, Branch("time of the drafts", "", "", drafts, "s")])


def _slope(c: Choice, names: tuple[str, ...]) -> float:
    """Return the derivative of the planned load with respect to some times, which are one."""
    own = single(getattr(c.times, names[0]))

    def load_at(factor: float) -> float:
        there: Times = c.times._replace(**{name: getattr(c.times, name) * factor for name in names})
        return float(account.planned_requests_per_s(there, c.question.request))

    ends = [load_at(1 + side * STEP_SIZE) for side in (-1, 0, 1)]
    below, above = ends[1] - ends[0], ends[2] - ends[1]
    sides = [side for side in (below, above) if side == side]
    return sum(sides) / len(sides) / (STEP_SIZE * own) if sides else 0.0


def _regime(c: Choice) -> tuple[str, str]:
    """Return what sets the planned load, in words and with values: a full batch, the promised speed, or the TTFT."""
    times, request = c.times, c.question.request
    planned = float(account.planned_requests_per_s(times, request))
    step, prompt = (format_quantity(single(x), "s", DIGITS) for x in (times.step_s, times.prompt_s))
    batch, made = (f"{single(x):g}" for x in (times.batch, times.tokens_per_step))
    if abs(planned / float(account.full_requests_per_s(times, request.output_tokens)) - 1) < FULL:
        formula = "batch / (tokens of an answer x decode step / tokens of a step + batch x prompt)"
        return formula, f"{batch} / ({request.output_tokens:g} x {step} / {made} + {batch} x {prompt})"
    if abs(planned * float(times.prompt_s) / float(1 - times.decode_s / request.most_tpot_s) - 1) < FULL:
        formula = "(1 - promised tokens/s x decode step / tokens of a step) / prompt"
        return formula, f"(1 - {1 / request.most_tpot_s:g} x {step} / {made}) / {prompt}"
    return "largest load at which the first token keeps its limit", f"decode step {step}, prompt {prompt}"


def cost_tree(one: TokenCost) -> Branch:
    """Return the cost of a million generated tokens as a tree: the price of a chip-hour, and the chip-seconds.

    Examples
    --------
    >>> import trnmodel as tm
    >>> line = tm.token_cost("llama-3.1-8b", tm.Request(1024, 256), "trn2.48xlarge").lines[0]
    >>> [part.branch.name for part in cost_tree(line).parts]
    ['price of a chip-hour', 'chip-seconds of a token']
    """
    assert one.choice is not None
    price = Branch(
        "price of a chip-hour", f"median of the prices in force ({one.pricing})", "", float(one.usd_per_chip_h), "USD/h"
    )
    seconds = _chip_seconds(one, one.choice)
    value = float(one.generated_usd_per_mtoken)
    parts = Part(price, value / price.value), Part(seconds, value / seconds.value)

    def write(of: Written) -> str:
        return f"{of(price)} / {HOUR:,g} s x {of(seconds)} x {MILLION:,.0f}"

    return made("cost of a million tokens", "USD/Mtoken", value, parts, write)


def _chip_seconds(one: TokenCost, c: Choice) -> Branch:
    """Return the paid chip-seconds of a generated token."""
    name, value = "chip-seconds of a token", one.chip_s()
    if one.request.requests_per_s is not None:
        return Branch(name, "chips of whole systems / tokens/s of all requests", "", value, "s")
    rate = choice_tree(c)
    return made(name, "s", value, [Part(rate, -value / rate.value)], lambda of: f"1 / {of(rate)}")
