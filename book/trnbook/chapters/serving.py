"""Tables of the chapter on serving: the card, times over the load, chip time, what moves the answer, measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from trnbook.chapters import common
from trnbook.charts.language import named
from trnbook.shared import case, drafts
from trnmodel.evidence.score import counted
from trnmodel.evidence.tables import OUTSIDE, SOURCE, accuracy
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.units import format_digits, format_quantity

if TYPE_CHECKING:
    from trnmodel.search.plan import Plan
    from trnmodel.serving.server import Serving

TIMES = {
    "ttft_p99_s": "first token, p99",
    "ttft_p50_s": "first token, p50",
    "tpot_mean_s": "later tokens, mean",
}
THROUGHPUT, QUEUE = "serving, throughput", "serving, TTFT in a queue"
COLUMNS = [(model, system) for model in case.PROMISES for system in case.SYSTEMS]
FIGURES = {  # of a server, those that are lines of the case first
    "ttft_s": "ttft_s",
    "tokens_per_s_per_chip": "tokens_per_s_per_chip",
    "prefill_utilisation": "share_of_prompts",
    "batch": "slots_in_use",
}
CHECKED = {  # groups of measured servers, how the fits were kept from it, and what it measures
    (THROUGHPUT, OUTSIDE): "throughput of a server",
    (QUEUE, OUTSIDE): "first token, in a queue",
    ("TPOT under load", SOURCE): "time per further token, under load",
}


def unreached(plan: Plan) -> str:
    """Return why a system does not serve a request: what does not fit, or the highest speed that it reaches.

    Examples
    --------
    >>> import trnmodel as tm
    >>> unreached(tm.plan("llama-3.1-8b", tm.Request(512, 128, tokens_per_s_per_user=1e5), "trn1.2xlarge"))[:52]
    'llama-3.1-8b gives no user 100,000 tokens/s on trn1.'
    """
    model = plan.model.id
    if plan.best is None:
        return "; ".join(f"{model} on {system}: {why}" for system, why in plan.refused.items())
    c, speed = plan.best, plan.request.tokens_per_s_per_user
    most = format_digits(c.tokens_per_s_per_user, 3)
    return f"{model} gives no user {speed:,g} tokens/s on {c.system.id}: at most {most}, on an empty server"


def headline(best: Choice, undrafted: Sequence[Plan] = ()) -> str:
    """Return the card that opens the chapter: throughput, first token, and how sure both are.

    `undrafted` are plans of the same request on software that drafts nothing, where the best drafts.
    """
    low, high = (format_digits(float(end), 2) for end in best.ends(best.FIGURE))
    speed, stack = best.question.request.tokens_per_s_per_user, best.stack
    holds = "all draws" if best.chance >= 0.9995 else f"{best.chance:.0%} of the draws"
    sure, ends = "**How sure?** Software that loses nothing has no uncertain times. ", str(best.basis)
    if low != high:
        ends = f"{low} to {high}; {best.basis}"
        sure = (
            "**How sure?** The times of the software are uncertain, so we draw them a thousand times. "
            f"The promise holds in {holds}, and nine in ten of these lie in the band in brackets. "
        )
    estimates = f"The constants of the software, `{stack.id}`, are our own estimates." if stack.estimates else ""
    return common.card(
        f"{format_digits(best.tokens_per_s_per_chip, 3)} tokens/s per chip ({ends})",
        f"`{best.question.model.id}` on {best.system.id}, while each user gets {speed:,g} tokens/s on average. The "
        f"first token takes {format_quantity(best.ttft_s, 's', 2)} at the 99th percentile, if a slot is free",
        mark="",
        rival=_undrafted(undrafted),
        proof="Check against numbers that are not ours",
        more=f"{sure}{_rests_on_drafts(best, undrafted)}{estimates}",
    )


def _undrafted(undrafted: Sequence[Plan]) -> str:
    """Return the most that plans without drafts make, with the software; empty where none is passed or keeps."""
    fastest = next(iter(drafts.keeping(one.best for one in undrafted)), None)
    if fastest is None:
        return ""
    made = format_digits(fastest.tokens_per_s_per_chip, 2)
    return f"{made} tokens/s per chip without drafts, on `{fastest.stack.id}`"


def _own_software(best: Choice, undrafted: Sequence[Plan]) -> str:
    """Return what the software of a plan makes without drafts, where other software makes more; else what is made."""
    plain = [one.best for one in undrafted]
    fastest, same = drafts.keeping(plain), drafts.own(best, plain)
    if not fastest or same is fastest[0] or same is None:
        return f"{drafts.without(best, plain)} "
    made, lies = format_digits(same.tokens_per_s_per_chip, 2), drafts.place(same.tokens_per_s_per_chip, best)
    return f"Without them the plan's own software, `{best.stack.id}`, makes {made}, which is {lies}. "


def _rests_on_drafts(best: Choice, undrafted: Sequence[Plan]) -> str:
    """Return what a figure assumes of drafts and what is made without them; empty where it has none."""
    if not undrafted:
        return ""
    once = " for one sequence at a time" if best.option.measured_batch == 1 else ""
    return (
        f"The figure rests on *drafts* by a small model. Their gain was measured{once}, and is assumed here. The draws "
        f"do not vary it. {_own_software(best, undrafted)}"
    )


def without_drafts(undrafted: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return the best of some plans without drafts as a row of a table; nothing where there is none."""
    rows = [row(f"without drafts, on {one.best.stack.id}" if one.best else "without drafts", one) for one in undrafted]
    return sorted(rows, key=lambda one: -one.get("tokens_per_s_per_chip", 0.0))[:1]


def symbols_of(best: Choice) -> pd.DataFrame:
    """Return the chapter's symbols, with their values in the plan that opens it."""
    request, times, rate = best.question.request, best.times, float(best.requests_per_s_per_replica)
    output, tpot_s = float(request.output_tokens), 1 / float(best.tokens_per_s_per_user)
    rows: list[tuple[str, str, str, float, str]] = [
        ("t", "step_s", "time of a decode step", float(times.step_s), "s"),
        ("B", "batch", "slots of a replica", best.batch, ""),
        ("E", "tokens_per_step", "speed-up of an answer by drafts", float(times.tokens_per_step), ""),
        ("P", "prompt_s", "time of a prompt", float(times.prompt_s), "s"),
        ("o", "output_tokens", "tokens of an answer", output, ""),
        ("v", "tokens_per_s_per_user", "speed that a user is promised", request.tokens_per_s_per_user, "tokens/s"),
        ("λ", "requests_per_s_per_replica", "requests that a replica takes per second", rate, ""),
        ("ρ", "prefill_utilisation", "share of the time for prompts", best.prefill_utilisation, ""),
        ("τ", "tpot_mean_s", "time per output token", tpot_s, "s"),
        ("n", "batch", "slots in use on average", rate * output * tpot_s, ""),
        ("T", "tokens_per_s_per_chip", "throughput per chip", best.tokens_per_s_per_chip, "tokens/s"),
        ("h", "server_first_token_s", "the server's own time", best.stack.server_first_token_s, "s"),
    ]
    return common.notation((*one[:3], format_quantity(float(one[3]), one[4], 3)) for one in rows)


def over_load(served: Serving, promised_s: float) -> pd.DataFrame:
    """Return the times of a server at several rates in long form, with the time per token that users are promised.

    Parameters
    ----------
    served : Serving
        Several rates of requests. [-]
    promised_s : float
        Time per token that each user is promised. [s]

    Returns
    -------
    times : pandas.DataFrame
        requests_per_s, what, time_s. [-]
    """
    table = served.to_frame()
    table = table[table.valid].assign(promised_s=promised_s)
    names = TIMES | {"promised_s": "later tokens, promised"}
    return table.rename(columns=names).melt(["requests_per_s"], list(names.values()), "what", "time_s")


def with_and_without_prompts(promises: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput of whole requests and of decode alone over the promised speed, in long form.

    Parameters
    ----------
    promises : pandas.DataFrame
        `to_frame(bands=True)` of a comparison of one system. [-]

    Returns
    -------
    table : pandas.DataFrame
        promised_tokens_per_s_per_user, what, tokens_per_s_per_chip, of whole requests with its ends. [-]
    """
    reached, axis, name = promises[promises.valid], ["promised_tokens_per_s_per_user"], "tokens_per_s_per_chip"
    ends = {"low": f"{name}_low", "high": f"{name}_high"}
    whole = reached[[*axis, name, *ends]].rename(columns=ends).assign(what="whole requests")
    alone = reached[[*axis, f"decode_{name}"]].rename(columns={f"decode_{name}": name}).assign(what="decode alone")
    return pd.concat([whole, alone], ignore_index=True)


def lines(servers: Mapping[tuple[str, str], Serving]) -> pd.DataFrame:
    """Return the chapter's lines of the running case as servers at their planned loads have them, and what is behind.

    Raises AssertionError where a server has another value than the strip at the head of the chapter.
    """
    rows = []
    for (model, where), one in servers.items():
        figures = {name: float(getattr(one, name)) for name in FIGURES}
        stated = [case.value(line, model, where) for line in case.LINES if line.chapter == "serving"]
        assert np.allclose(stated, list(figures.values())[: len(stated)])
        rows.append({"model": model, "system": where} | figures | {"slots": float(one.question.max_batch)})
    return tidy(rows).rename(columns=FIGURES)


def row(what: str, plan: Plan) -> dict[str, Any]:
    """Return the best choice of a plan as a row of a table; a promise that nothing keeps has no figures."""
    c = plan.best
    if c is None or not c.valid:
        return {"what": f"{what}: {'does not fit' if c is None else c.reason}"}
    figures = {name: getattr(c, name) for name in ("ttft_s", "batch")} | {"chance": f"{c.chance:.0%}"}
    return {"what": what} | c.banded("tokens_per_s_per_chip") | figures


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured and the predicted throughput of servers, each configuration of `tm.validation` once.

    Returns
    -------
    table : pandas.DataFrame
        The rows that count, with measured_tokens_per_s, predicted_tokens_per_s, and `case`: who measured what. [-]
    """
    table = counted(rows)
    table = table[(table.use == THROUGHPUT) & (table.unit == "tokens/s")]
    case = table.model + " on " + table.chip.map(named) + ", " + table.source
    figures = {"measured_tokens_per_s": table.value.astype(float), "predicted_tokens_per_s": table.predicted}
    return table.assign(**figures, case=case).drop(columns="basis")


def errors() -> pd.DataFrame:
    """Return the errors of servers that no fit has read: the median, and what nine in ten stay below.

    Examples
    --------
    >>> errors().what.iloc[0]
    'throughput of a server'
    """
    table = accuracy().set_index(["group", "split"])
    rows = [table.loc[key] for key in CHECKED]
    return pd.DataFrame(
        {
            "what": list(CHECKED.values()),
            "configurations": [int(one.cases) for one in rows],
            "pages": [int(one.pages) for one in rows],
            "median_error": [float(one.median_error) for one in rows],
            "nine_in_ten_error": [float(one.p90_error) for one in rows],
        }
    )


def half_of(table: pd.DataFrame) -> str:
    """Return what `errors` says of throughput, and the errors of throughput and of queues with whole pages left out."""
    first, queue = table.iloc[0], table.iloc[1]
    left_out = accuracy().set_index(["group", "split"]).median_error
    server, waits = left_out[THROUGHPUT, SOURCE], left_out[QUEUE, SOURCE]
    return (
        f"Half of {first.configurations:,} configurations are predicted within {first.median_error:.0%}. "
        f"Nine in ten are predicted within {first.nine_in_ten_error:.0%}. "
        f"If the fits leave out everything on the page of a server, half are within {server:.0%}. "
        f"With their page left out, half of {queue.configurations:,} first tokens in a queue are within {waits:.0%}."
    )
