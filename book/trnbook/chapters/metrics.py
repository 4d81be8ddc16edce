"""Metrics of serving speed: a few requests on one clock, and every metric from their timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from trnbook.chapters import common, guard
from trnbook.shared.ledger import rests_on
from trnmodel.catalog import load
from trnmodel.catalog.stacks import stacks
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.tables import check_listed
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.search.choice import Choice
from trnmodel.steps.answers import Step
from trnmodel.units import counted as counted_things
from trnmodel.units import format_quantity

SERVED = "requests_per_s batch ttft_p50_s ttft_p99_s tpot_mean_s tpot_p99_s".split()


def check(
    model: str, system: str, precision: str, stack: str, tp: int, input_tokens: int, output_tokens: int
) -> tuple[Transformer, System]:
    """Refuse parameters of the chapter without an answer; return the model and the system."""
    m, spec = read_model(model), read_system(system)
    guard.neuroncore(system=spec)
    guard.computes(spec.chip, precision=precision)
    guard.one_of(stacks(), stack=stack)
    guard.generates(model=m)
    guard.within(1, 1e6, tp=tp, input_tokens=input_tokens)
    guard.within(2, 1000, output_tokens=output_tokens)
    guard.spans(input_tokens + output_tokens, model=m)
    return m, spec


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Requests of one server on one clock: times of sending, of the start of the prompt, and of each token."""

    sent_s: NDArray  # requests
    begun_s: NDArray  # requests
    token_s: NDArray  # requests x tokens of an answer
    prefill_s: float
    input_tokens: float

    @property
    def output_tokens(self) -> int:
        """Tokens of each answer."""
        return self.token_s.shape[1]

    @property
    def names(self) -> list[str]:
        """Name of each request."""
        return [f"request {chr(ord('A') + i)}" for i in range(len(self.sent_s))]


def stream(
    sent_s: ArrayLike, prefill_s: float, step_s: Sequence[float], input_tokens: float, output_tokens: int
) -> Stream:
    """Simulate one replica that reads a waiting prompt before the next step, which serves all decoding requests.

    Parameters
    ----------
    sent_s : array
        When each request is sent. [s]
    prefill_s, step_s
        Time of a prompt until its first token, and times of decode steps with 1, 2, ... requests. [s]

    Examples
    --------
    >>> stream([0.0, 1.0], 2.0, [1.0, 1.0], 100, 3).token_s.tolist()
    [[2.0, 5.0, 6.0], [4.0, 5.0, 6.0]]
    """
    sent = np.asarray(sent_s, float)
    begun, now = np.full(len(sent), np.nan), 0.0
    tokens: list[list[float]] = [[] for _ in sent]
    while any(len(made) < output_tokens for made in tokens):
        unread = [i for i, made in enumerate(tokens) if not made]
        waiting = [i for i in unread if sent[i] <= now]
        decoding = [made for made in tokens if 0 < len(made) < output_tokens]
        if waiting:
            first = min(waiting, key=lambda i: sent[i])
            begun[first], now = now, now + prefill_s
            tokens[first].append(now)
        elif decoding:
            now += step_s[len(decoding) - 1]
            for made in decoding:
                made.append(now)
        else:
            now = min(sent[i] for i in unread)
    return Stream(sent, begun, np.array(tokens), prefill_s, input_tokens)


def ttft_s(s: Stream) -> NDArray:
    """Time from sending each request to its first token, in s."""
    return s.token_s[:, 0] - s.sent_s


def itl_s(s: Stream) -> NDArray:
    """Return times between successive tokens of each request, in s: requests x (tokens - 1)."""
    return np.diff(s.token_s, axis=1)


def tpot_s(s: Stream) -> NDArray:
    """Mean time between two tokens of each request, in s."""
    return (s.token_s[:, -1] - s.token_s[:, 0]) / (s.output_tokens - 1)


def e2e_s(s: Stream) -> NDArray:
    """Time from sending each request to its last token, in s."""
    return s.token_s[:, -1] - s.sent_s


def duration_s(s: Stream) -> float:
    """Time from sending the first request to the last token, in s."""
    return float(s.token_s.max() - s.sent_s.min())


def tokens_per_s(s: Stream, prompts: bool = False) -> float:
    """Tokens of all answers, and of prompts if asked for, per second of the whole duration."""
    each = s.output_tokens + (s.input_tokens if prompts else 0)
    return float(len(s.sent_s) * each / duration_s(s))


def in_time(s: Stream, most_ttft_s: float, most_tpot_s: float) -> NDArray:
    """Return whether each request meets both limits."""
    return (ttft_s(s) <= most_ttft_s) & (tpot_s(s) <= most_tpot_s)


def _mean_gap_s(s: Stream) -> float:
    return float(itl_s(s).mean())


def _mean_tpot_s(s: Stream) -> float:
    return float(tpot_s(s).mean())


def _rest_over_all_tokens_s(s: Stream) -> float:
    return float(np.mean((e2e_s(s) - ttft_s(s)) / s.output_tokens))


def _whole_over_all_tokens_s(s: Stream) -> float:
    return float(np.mean(e2e_s(s) / s.output_tokens))


def _mean_speed_after_first_token(s: Stream) -> float:
    return float(np.mean(1 / tpot_s(s)))


def _mean_speed(s: Stream) -> float:
    return float(np.mean(s.output_tokens / e2e_s(s)))


def _all_tokens_per_s(s: Stream) -> float:
    return tokens_per_s(s, prompts=True)


# Quantities of data/lists/metrics.csv: the unit, and the mean over the requests as the tools print it.
COUNTS: Mapping[str, tuple[str, Callable[[Stream], float]]] = {
    "gaps": ("s", _mean_gap_s),
    "rest / (n - 1)": ("s", _mean_tpot_s),
    "rest / n": ("s", _rest_over_all_tokens_s),
    "whole / n": ("s", _whole_over_all_tokens_s),
    "1 / TPOT": ("tokens/s", _mean_speed_after_first_token),
    "n / whole": ("tokens/s", _mean_speed),
    "output / duration": ("tokens/s", tokens_per_s),
    "both / duration": ("tokens/s", _all_tokens_per_s),
}


class Counted(msgspec.Struct, frozen=True):
    """A metric's name in a tool: what it counts, and the source."""

    tool: str
    word: str
    counts: str
    source: str
    locator: str


class Printed(msgspec.Struct, frozen=True):
    """Means over the requests of a published run."""

    model: str
    run: str
    output_tokens: float
    ttft_s: float
    e2e_s: float
    itl_s: float
    source: str
    locator: str


def counted() -> list[Counted]:
    """Return the rows of `data/lists/metrics.csv`."""
    rows = load.read_csv(load.DATA / "lists" / "metrics.csv", Counted)
    for row in rows:
        check_listed(row, f"metrics.csv ({row.tool}, {row.word})", {"source": load.sources(), "counts": COUNTS})
    return rows


def tools(s: Stream) -> pd.DataFrame:
    """Return what each tool prints for one stream: tool, its name for it, what it counts, value, source."""
    rows = [
        (row.tool, row.word, row.counts, format_quantity(value(s), unit, 3), f"{row.source}, {row.locator}")
        for row in counted()
        for unit, value in [COUNTS[row.counts]]
    ]
    return pd.DataFrame(rows, columns=["tool", "calls it", "counts", "here", "source"])


def timestamps(s: Stream) -> pd.DataFrame:
    """Return one row per request: sent, begun, first and last token, and its metrics."""
    ends = {"sent_s": s.sent_s, "begun_s": s.begun_s, "first_token_s": s.token_s[:, 0]}
    ends |= {"last_token_s": s.token_s[:, -1]}
    own = {"ttft_s": ttft_s(s), "tpot_s": tpot_s(s), "longest_itl_s": itl_s(s).max(axis=1), "e2e_s": e2e_s(s)}
    return pd.DataFrame({"request": s.names} | ends | own | {"tokens_per_s_per_user": 1 / tpot_s(s)})


def answer(s: Stream, step: Step, stack: str, where: str) -> str:
    """Return the card that opens the chapter: the time per token of a stream, as two kinds of tools count it."""
    named = {name: format_quantity(COUNTS[name][1](s), "s", 3) for name in ("rest / (n - 1)", "whole / n")}
    return common.card(
        named["rest / (n - 1)"],
        f"TPOT, the mean time per token after the first, of {counted_things(len(s.sent_s), 'request')} to {where}",
        mark=str(np.ravel(step.basis)[-1]),
        rival=f"LLMPerf prints {named['whole / n']} for the same {s.output_tokens} tokens, wait for the first included",
        proof="Check: what AWS printed",
        more="vLLM, AIPerf and MLPerf count TPOT as this book does, and some call it otherwise. **How sure?** "
        "The words are definitions, and the "
        f"requests are an example. The times come from the model. {rests_on(stack)}",
    )


def by_hand(s: Stream, step_s: float, chips: float, most_ttft_s: float, most_tpot_s: float) -> pd.DataFrame:
    """Return each word for the first request, or for all: how it is worked out, and its value.

    Examples
    --------
    >>> table = by_hand(stream([0.0, 1.0], 4.0, [1.0, 1.0], 100, 5), 1.0, 1.0, 7.0, 1.0)
    >>> table.value[table.word == "TPOT"].item()
    '2 s'
    """
    first, last, n = s.token_s[0, 0], s.token_s[0, -1], s.output_tokens
    in_limits = in_time(s, most_ttft_s, most_tpot_s).sum()

    def time(value: float) -> str:
        return format_quantity(float(value), "s", 3)

    rows = [
        ("decode step", f"one run for {counted_things(len(s.sent_s), 'sequence')}", time(step_s)),
        ("TTFT", f"{time(first)} - {time(s.sent_s[0])}", time(ttft_s(s)[0])),
        ("ITL", f"shortest and longest of {n - 1} gaps", f"{time(itl_s(s)[0].min())}, {time(itl_s(s)[0].max())}"),
        ("TPOT", f"({time(last)} - {time(first)}) / {n - 1}", time(tpot_s(s)[0])),
        (
            f"TPOT, mean of {len(s.sent_s)}",
            f"({' + '.join(map(time, tpot_s(s)))}) / {len(s.sent_s)}",
            time(tpot_s(s).mean()),
        ),
        ("E2E latency", f"{time(last)} - {time(s.sent_s[0])}", time(e2e_s(s)[0])),
        ("interactivity", "1 / TPOT", f"{1 / tpot_s(s)[0]:.3g} tokens/s"),
        ("throughput", f"{len(s.sent_s)} x {n} tokens / {time(duration_s(s))}", f"{tokens_per_s(s):.3g} tokens/s"),
        (
            "throughput per chip",
            f"the same over {counted_things(chips, 'chip')}",
            f"{tokens_per_s(s) / chips:.3g} tokens/s",
        ),
        ("goodput", f"{in_limits} in time / {time(duration_s(s))}", f"{in_limits / duration_s(s):.3g} requests/s"),
    ]
    return pd.DataFrame(rows, columns=["word", "worked out", "value"])


def of_case(best: Choice) -> dict[str, object]:
    """Return the words of a plan as a row: its step, what a user sees, and the first token."""
    return {
        "model": best.question.model.id,
        "system": best.system.id,
        "step_s": float(best.step.time_s),
        "drafted_tokens": int(best.option.draft_tokens),
        "tokens_per_s_per_user": float(best.tokens_per_s_per_user),
        "ttft_s": float(best.ttft_s),
        "tokens_per_s_per_chip": float(best.tokens_per_s_per_chip),
    }


def spans(s: Stream) -> pd.DataFrame:
    """Return what each request does when: request, part, start_s, end_s."""
    rows = []
    for name, sent, begun, made in zip(s.names, s.sent_s, s.begun_s, s.token_s, strict=True):
        rows += [(name, "waits", sent, begun), (name, "its prompt is read", begun, made[0])]
        for last, this in pairwise(made):
            begins = last + s.prefill_s * np.sum((s.begun_s >= last) & (s.begun_s < this))
            rows += [(name, "another prompt is read", last, begins), (name, "a decode step: a token", begins, this)]
    table = pd.DataFrame(rows, columns=["request", "part", "start_s", "end_s"])
    return table[table.end_s > table.start_s].reset_index(drop=True)


def printed() -> pd.DataFrame:
    """Compare the printed latency between tokens of published runs with two ways of counting it."""
    rows = []
    for row in load.read_csv(load.DATA / "evidence" / "printed_metrics.csv", Printed):
        own, whole = (row.e2e_s - row.ttft_s) / (row.output_tokens - 1), row.e2e_s / row.output_tokens
        errors = {"tpot_error": own / row.itl_s - 1, "with_first_error": whole / row.itl_s - 1}
        named = {"model": row.model, "run": row.run, "printed_itl_s": row.itl_s, "tpot_s": own}
        rows.append(named | errors | {"source": f"{row.source}, {row.locator}"})
    return pd.DataFrame(rows)
