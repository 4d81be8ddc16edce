"""What the words for speed count: a few requests on one clock, and every metric from their timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from trnmodel.catalog import load
from trnmodel.catalog.tables import check_listed
from trnmodel.units import format_quantity


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Requests of one server on one clock: when each is sent, its prompt begun, and each of its tokens there."""

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
        """What each request is called."""
        return [f"request {chr(ord('A') + i)}" for i in range(len(self.sent_s))]


def stream(
    sent_s: ArrayLike, prefill_s: float, step_s: Sequence[float], input_tokens: float, output_tokens: int
) -> Stream:
    """Requests on one replica: a prompt that waits is read before the next step, which serves all who decode.

    Parameters
    ----------
    sent_s : array
        When each request is sent. [s]
    prefill_s, step_s
        Time of a prompt, which ends with the first token; of a decode step of 1, 2, ... requests. [s]

    Examples
    --------
    >>> stream([0.0, 1.0], 2.0, [1.0, 1.0], 100, 3).token_s.tolist()
    [[2.0, 5.0, 6.0], [4.0, 5.0, 6.0]]
    """
    sent = np.asarray(sent_s, float)
    begun, tokens, now = np.full(len(sent), np.nan), [[] for _ in sent], 0.0
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
    """Time from sending each request to its first token."""
    return s.token_s[:, 0] - s.sent_s


def itl_s(s: Stream) -> NDArray:
    """Times between a token and the next of the same request: requests x (tokens - 1)."""
    return np.diff(s.token_s, axis=1)


def tpot_s(s: Stream) -> NDArray:
    """Mean time of a request between two tokens."""
    return (s.token_s[:, -1] - s.token_s[:, 0]) / (s.output_tokens - 1)


def e2e_s(s: Stream) -> NDArray:
    """Time from sending each request to its last token."""
    return s.token_s[:, -1] - s.sent_s


def duration_s(s: Stream) -> float:
    """From the first request that is sent to the last token."""
    return float(s.token_s.max() - s.sent_s.min())


def tokens_per_s(s: Stream, prompts: bool = False) -> float:
    """Tokens of all answers, with or without those of the prompts, over the whole duration."""
    each = s.output_tokens + (s.input_tokens if prompts else 0)
    return float(len(s.sent_s) * each / duration_s(s))


def in_time(s: Stream, most_ttft_s: float, most_tpot_s: float) -> NDArray:
    """Whether each request keeps both limits."""
    return (ttft_s(s) <= most_ttft_s) & (tpot_s(s) <= most_tpot_s)


# What tools count, in the words of data/lists/metrics.csv: unit, and the mean over the requests as the tools print it.
COUNTS: Mapping[str, tuple[str, Callable[[Stream], float]]] = {
    "gaps": ("s", lambda s: float(itl_s(s).mean())),
    "rest / (n - 1)": ("s", lambda s: float(tpot_s(s).mean())),
    "rest / n": ("s", lambda s: float(np.mean((e2e_s(s) - ttft_s(s)) / s.output_tokens))),
    "whole / n": ("s", lambda s: float(np.mean(e2e_s(s) / s.output_tokens))),
    "1 / TPOT": ("tokens/s", lambda s: float(np.mean(1 / tpot_s(s)))),
    "n / whole": ("tokens/s", lambda s: float(np.mean(s.output_tokens / e2e_s(s)))),
    "output / duration": ("tokens/s", tokens_per_s),
    "both / duration": ("tokens/s", lambda s: tokens_per_s(s, prompts=True)),
}


class Counted(msgspec.Struct, frozen=True):
    """A word of a tool: what it counts, and where that was read."""

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
    """The rows of `data/lists/metrics.csv`."""
    rows = load.read_csv(load.DATA / "lists" / "metrics.csv", Counted)
    for row in rows:
        check_listed(row, f"metrics.csv ({row.tool}, {row.word})", {"source": load.sources(), "counts": COUNTS})
    return rows


def tools(s: Stream) -> pd.DataFrame:
    """What each tool prints for one stream: tool, what it calls it, what it counts, here, source."""
    rows = [
        (row.tool, row.word, row.counts, format_quantity(value(s), unit, 3), f"{row.source}, {row.locator}")
        for row in counted()
        for unit, value in [COUNTS[row.counts]]
    ]
    return pd.DataFrame(rows, columns=["tool", "calls it", "counts", "here", "source"])


def timestamps(s: Stream) -> pd.DataFrame:
    """One row a request: when it is sent, begun, has its first and its last token; and its metrics."""
    ends = {"sent_s": s.sent_s, "begun_s": s.begun_s, "first_token_s": s.token_s[:, 0]}
    ends |= {"last_token_s": s.token_s[:, -1]}
    own = {"ttft_s": ttft_s(s), "tpot_s": tpot_s(s), "longest_itl_s": itl_s(s).max(axis=1), "e2e_s": e2e_s(s)}
    return pd.DataFrame({"request": s.names} | ends | own | {"tokens_per_s_per_user": 1 / tpot_s(s)})


def spans(s: Stream) -> pd.DataFrame:
    """What each request does when, on the clock of the stream: request, part, start_s, end_s."""
    rows = []
    for name, sent, begun, made in zip(s.names, s.sent_s, s.begun_s, s.token_s, strict=True):
        rows += [(name, "waits", sent, begun), (name, "its prompt is read", begun, made[0])]
        for last, this in pairwise(made):
            begins = last + s.prefill_s * np.sum((s.begun_s >= last) & (s.begun_s < this))
            rows += [(name, "another prompt is read", last, begins), (name, "a decode step: a token", begins, this)]
    table = pd.DataFrame(rows, columns=["request", "part", "start_s", "end_s"])
    return table[table.end_s > table.start_s].reset_index(drop=True)


def by_length(ttft: float, tpot: float, output_tokens: ArrayLike) -> pd.DataFrame:
    """How much more a token takes where the wait for the first is counted in, over the length of an answer."""
    table = pd.DataFrame({"output_tokens": np.asarray(output_tokens, float)})
    return table.assign(ratio=lambda at: 1 + (ttft / tpot - 1) / at.output_tokens)


def check() -> pd.DataFrame:
    """Published runs: the latency between tokens that they print, and what two ways of counting make of their means."""
    rows = []
    for row in load.read_csv(load.DATA / "evidence" / "printed_metrics.csv", Printed):
        own, whole = (row.e2e_s - row.ttft_s) / (row.output_tokens - 1), row.e2e_s / row.output_tokens
        errors = {"tpot_error": own / row.itl_s - 1, "with_first_error": whole / row.itl_s - 1}
        named = {"model": row.model, "run": row.run, "printed_itl_s": row.itl_s, "tpot_s": own}
        rows.append(named | errors | {"source": f"{row.source}, {row.locator}"})
    return pd.DataFrame(rows)
