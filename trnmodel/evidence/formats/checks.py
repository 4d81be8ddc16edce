"""What a run of measurements cannot be: figures that contradict each other, or the counts that they follow from.

Both sides of a contradiction are refused, for nobody knows which of them is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from trnmodel.arguments import TINY
from trnmodel.evidence.cells import number
from trnmodel.evidence.formats.collective_tests import NCCOM
from trnmodel.evidence.formats.runs import ODD, Figure, Refusal, Run, amount, number_of
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.units import GB, GIB, MINUTE, MS, US, format_digits

FAR = 1.25  # times by which tokens may differ from requests times their mean length, which are of one run
NEAR = 0.02  # of a rate, by which its counts over the duration may differ from it
MOST_BUS = 2.0  # bus over algorithm bandwidth of an all-reduce among endless ranks
ROUNDED = 0.05  # of a bandwidth, by which size over time may differ from it
FEW_DIGITS = 0.5  # GB/s or us below which two printed decimals say too little
IN_FLIGHT = 1.05  # times the clients of a closed loop, which no more requests can be in flight than
SECONDS = {"s": 1.0, "ms": MS, "us": US, "min": MINUTE}
BYTES = {"GB/s": GB, "GiB/s": GIB}
MIDDLES = ("mean", "p50")


class Contradiction(NamedTuple):
    """Figures of a run that cannot hold together, by their places, and why."""

    places: tuple[int, ...]
    reason: str


def checked(run: Run) -> tuple[list[Figure], list[Refusal]]:
    """Return the figures of a run that contradict nothing, and a refusal for each that does.

    Examples
    --------
    >>> pairs = ("p50", 9), ("p99", 4)
    >>> figures = tuple(Figure({"metric": f"TTFT {name}", "value": x}, 3, "ttft", name) for name, x in pairs)
    >>> read, refused = checked(Run("vllm-bench", 1, {}, figures))
    >>> len(read), refused[0].reason
    (0, 'the run contradicts itself: TTFT p50 is 9, above its TTFT p99 of 4')
    """
    if odd := run.cells.get(ODD) or _impossible(run):
        return [], [Refusal(one.line, one.name, f"the run is not read: {odd}") for one in run.figures]
    reasons: dict[int, str] = {}
    for one in _contradictions(run):
        for place in one.places:
            reasons.setdefault(place, one.reason)
    read = [figure for place, figure in enumerate(run.figures) if place not in reasons]
    refused = [
        Refusal(run.figures[place].line, run.figures[place].name, f"the run contradicts itself: {reason}")
        for place, reason in sorted(reasons.items())
    ]
    return read, refused


def _contradictions(run: Run) -> Iterator[Contradiction]:
    yield from _order(run.figures)
    yield from _rates(run)
    yield from _in_flight(run)
    yield from _waits(run.figures)
    yield from _bandwidths(run)


def _impossible(run: Run) -> str:
    """Return why no figure of a run can hold: it took no time, or completed more than was sent."""
    requests, sent, duration_s = (run.totals.get(name, math.nan) for name in ("requests", "sent", "duration_s"))
    if requests > 0 and duration_s <= 0:
        return f"{requests:g} requests were completed in {duration_s:g} s"
    return f"{requests:g} requests were completed of {sent:g} that were sent" if requests > sent else ""


def _value(figure: Figure) -> float:
    return number(figure.cells.get("value"))


def _said(figure: Figure) -> str:
    return f"{figure.name} is {format_digits(_value(figure), 4)}"


def _rank(name: str) -> float:
    """Return the place of a statistic in its distribution, from 0 to 100; NaN for a mean, which may lie anywhere."""
    if name in ("min", "max"):
        return 0.0 if name == "min" else 100.0
    return number_of(name.removeprefix("p")) if name.startswith("p") else math.nan


def _order(figures: Sequence[Figure]) -> Iterator[Contradiction]:
    """Return statistics of one thing that are not in order, and means outside of the least and the largest."""
    by_key: dict[str, list[int]] = {}
    for place, one in enumerate(figures):
        if one.key and one.statistic:
            by_key.setdefault(one.key, []).append(place)
    for places in by_key.values():
        ranks = {place: _rank(figures[place].statistic) for place in places}
        ranked = sorted((rank, place) for place, rank in ranks.items() if rank == rank)
        ends = dict(ranked)
        pairs = [(low, high) for (below, low), (above, high) in pairwise(ranked) if below < above]
        for mean in (place for place in places if figures[place].statistic == "mean"):
            pairs += [(ends[0.0], mean)] if 0.0 in ends else []
            pairs += [(mean, ends[100.0])] if 100.0 in ends else []
        for low, high in pairs:
            if _value(figures[low]) > _value(figures[high]):
                yield _above(figures, low, high)


def _above(figures: Sequence[Figure], low: int, high: int) -> Contradiction:
    limit = format_digits(_value(figures[high]), 4)
    return Contradiction((low, high), f"{_said(figures[low])}, above its {figures[high].name} of {limit}")


def _by_measure(run: Run, measure: str, names: Sequence[str] = ("", "mean")) -> int | None:
    """Return the place of a figure by its measure and statistic."""
    for place, one in enumerate(run.figures):
        if one.cells.get("measure") == measure and one.statistic in names and "interval_of" not in one.cells:
            return place
    return None


def _rates(run: Run) -> Iterator[Contradiction]:
    """Return rates that do not follow from the counts and the duration of the run, and totals below their parts."""
    duration_s = run.totals.get("duration_s", math.nan)
    counts = {
        "request_rate": run.totals.get("requests", math.nan),
        "generated_rate": run.totals.get("output_tokens", math.nan),
        "total_rate": run.totals.get("output_tokens", math.nan) + run.totals.get("input_tokens", math.nan),
    }
    for measure, count in counts.items():
        place = _by_measure(run, measure)
        if place is None or not (count >= 1 and duration_s > TINY):
            continue
        expected = count / duration_s * (MINUTE if run.figures[place].cells["unit"].endswith("/min") else 1.0)
        if abs(_value(run.figures[place]) / expected - 1) > NEAR:
            why = f"{_said(run.figures[place])}, and its counts over its duration are {format_digits(expected, 4)}"
            yield Contradiction((place,), why)
    yield from _tokens_of_requests(run)
    part, whole = (_by_measure(run, name) for name in ("generated_rate", "total_rate"))
    if part is not None and whole is not None and _value(run.figures[part]) > _value(run.figures[whole]) * (1 + NEAR):
        yield _above(run.figures, part, whole)


def _tokens_of_requests(run: Run) -> Iterator[Contradiction]:
    """Return rates of requests and of generated tokens that do not differ by the length of an answer."""
    requests, tokens = (_by_measure(run, name) for name in ("request_rate", "generated_rate"))
    length = amount(run.cells.get("output_len"))
    if requests is None or tokens is None or not length >= 1 or run.totals.get("duration_s", 0.0) > 0:
        return  # counts and duration say more
    per_s = _value(run.figures[requests]) / (MINUTE if run.figures[requests].cells["unit"].endswith("/min") else 1.0)
    if not 1 / FAR < per_s * length / _value(run.figures[tokens]) < FAR:
        said = _said(run.figures[requests])
        why = f"{_said(run.figures[tokens])}, and {said} with {format_digits(length, 4)} tokens each"
        yield Contradiction((requests, tokens), why)


def _in_flight(run: Run) -> Iterator[Contradiction]:
    """Return rates of a closed loop that would need more requests in flight than it has clients, by Little's law."""
    clients, rate, latency = (
        amount(run.cells.get("clients")),
        *(_by_measure(run, x) for x in ("request_rate", "request")),
    )
    if rate is None or latency is None or not clients >= 1 or run.cells.get("scheduling") != "closed":
        return
    seconds = SECONDS.get(str(run.figures[latency].cells["unit"]), math.nan)
    in_flight = _value(run.figures[rate]) * _value(run.figures[latency]) * seconds
    in_flight /= MINUTE if str(run.figures[rate].cells["unit"]).endswith("/min") else 1.0
    if in_flight > clients * IN_FLIGHT:
        why = (
            f"{_said(run.figures[rate])} with a {run.figures[latency].name} of "
            f"{format_digits(_value(run.figures[latency]), 4)} would have {format_digits(in_flight, 3)} requests in "
            f"flight, and there are {clients:g} clients"
        )
        yield Contradiction((rate, latency), why)


def _waits(figures: Sequence[Figure]) -> Iterator[Contradiction]:
    """Return first tokens that come later than whole requests."""
    for name in MIDDLES:
        places = {one.cells.get("measure"): place for place, one in enumerate(figures) if one.statistic == name}
        first, whole = places.get("first_token"), places.get("request")
        if first is None or whole is None:
            continue
        scales = [SECONDS.get(str(figures[place].cells["unit"]), math.nan) for place in (first, whole)]
        if _value(figures[first]) * scales[0] > _value(figures[whole]) * scales[1]:
            yield _above(figures, first, whole)


def _bandwidths(run: Run) -> Iterator[Contradiction]:
    """Return bandwidths of a collective that do not follow from its size, its time and its ranks."""
    size, ranks = amount(run.cells.get("message_bytes")), amount(run.cells.get("ranks"))
    at = {name: _by_measure(run, name) for name in ("collective_time", "algbw", "busbw")}
    time, rate, bus = at.values()
    if rate is None or not _value(run.figures[rate]) > FEW_DIGITS:
        return
    if (
        time is not None
        and size > 0
        and _value(run.figures[time]) * SECONDS[run.figures[time].cells["unit"]] > FEW_DIGITS * US
    ):
        time_s = _value(run.figures[time]) * SECONDS[run.figures[time].cells["unit"]]
        expected = size / time_s / BYTES[run.figures[rate].cells["unit"]]
        if abs(expected / _value(run.figures[rate]) - 1) > ROUNDED:
            why = f"{_said(run.figures[rate])}, and its size over its time is {format_digits(expected, 4)}"
            yield Contradiction(tuple(place for place in at.values() if place is not None), why)
            return
    kind = str(run.cells.get("kind_of_call", ""))
    if bus is None:
        return
    if _value(run.figures[bus]) > MOST_BUS * (1 + ROUNDED) * _value(run.figures[rate]):
        yield Contradiction((rate, bus), f"{_said(run.figures[bus])}, more than twice its algbw, as of no collective")
        return
    if run.tool == NCCOM or not ranks >= 2 or kind not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        return
    factor = float(busbw_factor(kind, ranks))
    ratio = _value(run.figures[bus]) / _value(run.figures[rate])
    if abs(ratio / factor - 1) > ROUNDED:
        why = f"busbw over algbw is not {format_digits(factor, 4)}, as that of {kind} among {ranks:g} ranks is"
        yield Contradiction((rate, bus), why)
