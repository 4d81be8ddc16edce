"""One account of a server: decode steps and prompts on the same chips, and the load at which the promises hold.

A replica decodes `batch` sequences at once. A prompt that arrives stops the decode steps while it is prefilled, whole
or in chunks. With expert parallelism, attention is data-parallel: at saturation each attention group prefills a prompt
of its own at the same time, so that a prompt takes the time of one in each group over the number of groups. Everything
that speaks of capacity, of TTFT, of stalls, of joules of a request or of dollars reads this account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.draws import cause, deviations, range_of, stretch
from trnmodel.formulas import latency
from trnmodel.steps.request import Request
from trnmodel.units import Numeric

SEARCH_STEPS = 40
ROUNDING = 1e-12
TOO_SLOW, TOO_LATE = "too slow for a user at any load", "the first token comes too late at any load"
PER_RANK = np.unique(np.round(np.exp2(np.arange(0.0, 11.25, 0.25))))  # sequences of a rank of EP that are tried
FIGURES = (  # of a server at its planned load, which the draws move
    *("tokens_per_s_per_chip", "tokens_per_s_per_user", "requests_per_s_per_replica", "ttft_s"),
    *("sequences_in_flight", "prefill_utilisation", "request_chip_s", "prompt_chip_s"),
)


class Times(NamedTuple):
    """Times of a replica: a decode step of `batch` sequences, and prompts of `groups` attention groups.

    `step_s` holds the drafts of a step, which makes `tokens_per_step` of each sequence. `alone_s` is one prompt by
    itself, `together_s` one in each group at once, each in so many `chunks`. `host_s` is what the server adds to a
    first token while the chips go on. `compiled` says whether a step takes as long whatever is active.
    """

    batch: NDArray
    step_s: NDArray
    tokens_per_step: NDArray
    alone_s: NDArray
    together_s: NDArray
    groups: NDArray
    chunks: NDArray
    host_s: NDArray
    compiled: bool

    def stretched(self, steps: Numeric, prompts: Numeric) -> Times:
        """Return the times where steps and prompts take so many times as long."""
        prompted = {name: getattr(self, name) * prompts for name in ("alone_s", "together_s", "host_s")}
        return self._replace(step_s=self.step_s * steps, **prompted)

    def at(self, shape: tuple[int, ...], place: tuple[Any, ...]) -> Times:
        """Return the times at one place of their broadcast shape."""
        parts = {
            name: np.broadcast_to(getattr(self, name), shape)[place] for name in self._fields if name != "compiled"
        }
        return self._replace(**parts)

    @property
    def prompt_s(self) -> NDArray:
        """Time of the replica that a prompt takes at saturation [s]."""
        return self.together_s / self.groups

    @property
    def decode_s(self) -> NDArray:
        """Time between the tokens of a sequence where no prompt stalls it [s/token]."""
        return self.step_s / self.tokens_per_step


class Load(NamedTuple):
    """What a replica does under a load: TPOT with stalls, sequences in flight, and the share of time of prompts."""

    requests_per_s: NDArray
    tpot_s: NDArray
    in_flight: NDArray
    utilisation: NDArray


def full_requests_per_s(times: Times, output_tokens: Numeric) -> NDArray:
    """Return the load that keeps the whole batch busy [1/s]; see `formulas.latency.full_requests_per_s`."""
    return latency.full_requests_per_s(times.batch, output_tokens, times.step_s, times.tokens_per_step, times.prompt_s)


def under(times: Times, requests_per_s: Numeric, output_tokens: Numeric) -> Load:
    """Return what a replica does under a load, where a step takes the time that `times` has."""
    busy = latency.utilisation(requests_per_s, times.prompt_s)
    free = latency.free_yield(busy, times.tokens_per_step)
    tpot = latency.tpot_s(times.step_s, free)
    many = latency.in_flight(requests_per_s, output_tokens, times.step_s, free)
    return Load(np.asarray(requests_per_s), tpot, many, busy)


def ttft_s(times: Times, utilisation: Numeric, quantile: Numeric) -> NDArray:
    """Return a quantile of the time to the first token: server, wait, prompt, and the steps between its chunks [s]."""
    own = latency.prompt_latency_s(times.alone_s, times.together_s, utilisation)
    first = latency.first_token_s(own, times.chunks, times.step_s) + times.host_s
    return first + latency.waiting_s(utilisation, times.together_s, quantile)


def utilisation_within(times: Times, limit_s: Numeric, quantile: Numeric) -> NDArray:
    """Return the largest share of time of prompts at which the TTFT limit holds; negative where none does."""
    shape = np.broadcast_shapes(np.shape(limit_s), np.shape(times.step_s), np.shape(times.together_s))
    low, high = np.zeros(shape), np.ones(shape)
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        holds = ttft_s(times, middle, quantile) <= limit_s
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return np.where(ttft_s(times, 0.0, quantile) <= limit_s, low, -1.0)


def planned_requests_per_s(times: Times, request: Request) -> NDArray:
    """Return the largest load of a replica at which every promise holds [1/s]; NaN where none does.

    A graph of a compiled batch takes its time whatever is active, so that a load below a full batch can keep a promise
    that the full batch breaks. A step that takes what is active is full at its batch, and a smaller batch is another
    point of the search.
    """
    full = full_requests_per_s(times, request.output_tokens)
    most = full
    if times.compiled:
        slack = 1 - times.decode_s / request.most_tpot_s
        most = np.minimum(most, slack / times.prompt_s)
    if request.ttft_s is not None:
        busy = utilisation_within(times, request.ttft_s, request.ttft_quantile)
        most = np.minimum(most, busy / times.prompt_s)
    holds = most > 0
    if not times.compiled:
        output = request.output_tokens
        full_tpot_s = latency.full_tpot_s(times.batch, output, times.step_s, times.tokens_per_step, times.prompt_s)
        holds = holds & (most >= full * (1 - ROUNDING)) & (full_tpot_s <= request.most_tpot_s * (1 + ROUNDING))
    return np.where(holds, most, np.nan)


def edge(times: Times, request: Request) -> tuple[NDArray, NDArray]:
    """Return the TPOT and the time to the first token at the lightest load that a point stands for [s/token, s].

    A graph of a compiled batch may run almost empty; a step that takes what is active stands for its full batch.
    """
    if times.compiled:
        return times.decode_s, ttft_s(times, 0.0, request.ttft_quantile)
    full = under(times, full_requests_per_s(times, request.output_tokens), request.output_tokens)
    return full.tpot_s, ttft_s(times, full.utilisation, request.ttft_quantile)


def loaded(times: Times, requests_per_s: NDArray, request: Request) -> dict[str, Any]:
    """Return the figures of a replica at a load, by name."""
    load = under(times, requests_per_s, request.output_tokens)
    return {
        "requests_per_s_per_replica": requests_per_s,
        "tokens_per_s_per_user": 1 / load.tpot_s,
        "sequences_in_flight": load.in_flight,
        "prefill_utilisation": load.utilisation,
        "ttft_s": ttft_s(times, load.utilisation, request.ttft_quantile),
    }


def paid_chips(system: System | Chip, chips: NDArray) -> NDArray:
    """Chips of whole systems that are paid for a replica: its own, and its part of those that a system leaves idle.

    Examples
    --------
    >>> import trnmodel as tm
    >>> paid_chips(tm.system("trn3-nl72x2-pcie160"), np.array([1.0, 64.0, 128.0])).tolist()
    [1.0, 72.0, 144.0]
    """
    if isinstance(system, Chip):
        return chips
    fitting = np.floor(system.chips / chips)
    return np.where(fitting >= 1, system.chips / np.maximum(fitting, 1), np.ceil(chips / system.chips) * system.chips)


def request_chip_s(request: Request, system: System | Chip, requests_per_s: NDArray, chips: NDArray) -> NDArray:
    """Return the chip-seconds that are paid for a request on replicas that each serve this rate.

    Without a rate of the request replicas fill whole systems; with one, the fewest systems that serve it are paid.
    """
    if request.requests_per_s is None or isinstance(system, Chip):
        return paid_chips(system, chips) / requests_per_s
    fitting = np.floor(system.chips / chips)
    replicas = np.ceil(request.requests_per_s / requests_per_s * (1 - ROUNDING))
    whole = np.where(fitting >= 1, np.ceil(replicas / np.maximum(fitting, 1)), replicas * np.ceil(chips / system.chips))
    return whole * system.chips / request.requests_per_s


def made_per_chip(request: Request, system: System | Chip, requests_per_s: NDArray, chips: NDArray) -> NDArray:
    """Return generated tokens per second for each chip that is paid for: the objective of every search."""
    return request.output_tokens / request_chip_s(request, system, requests_per_s, chips)


class Planned(NamedTuple):
    """The planned load of points [1/s], what it makes per paid chip, and what full systems of it would make [1/s].

    The last two differ where the request has a rate, which whole systems serve that need not be full. NaN where a point
    keeps no promise.
    """

    requests_per_s: NDArray
    made: NDArray
    full: NDArray

    def leading(self, axis: int) -> NDArray:
        """Return what full systems of the points would make that make most along an axis; -1 of the others."""
        made, full = (np.nan_to_num(x, nan=-1.0) for x in (self.made, self.full))
        return np.where(made == made.max(axis=axis, keepdims=True), full, -1.0)


def planned_and_made(request: Request, system: System | Chip, times: Times, fits: NDArray, chips: NDArray) -> Planned:
    """Return the planned load of each point, and what it makes per paid chip."""
    rate = np.where(fits, planned_requests_per_s(times, request), np.nan)
    full = request.output_tokens * rate / paid_chips(system, chips)
    return Planned(rate, made_per_chip(request, system, rate, chips), full)


class Best(NamedTuple):
    """What a replica does with the number of sequences that makes most, in each draw.

    The load is NaN in a draw in which no number keeps the promises.
    """

    times: Times
    requests_per_s: NDArray
    made_per_chip: NDArray
    paid_chips: NDArray


class Column(NamedTuple):
    """All batches of one mapping for a request, with half-widths of the logarithms of its steps and of its prompts.

    Batches are on the first axis; further axes are those of the points of a server.
    """

    request: Request
    system: System | Chip
    times: Times
    fits: NDArray
    chips: NDArray
    step_widths: tuple[Any, Any]
    prompt_widths: tuple[Any, Any]

    def made(self, times: Times) -> Planned:
        """Return the planned load of each batch, and what it makes per paid chip."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return planned_and_made(self.request, self.system, times, self.fits, self.chips)

    def best(self, steps: Numeric, prompts: Numeric) -> Best:
        """Return the best number of sequences, where steps and prompts deviate from what is predicted.

        Parameters
        ----------
        steps, prompts : numeric
            Standard deviations of the logarithm of the times, one for each draw. [-]

        Returns
        -------
        best : Best
            Its times and load in each draw. [-]
        """
        axes = np.ndim(self.times.batch)
        deviations = (np.asarray(z, float)[(..., *(None,) * axes)] for z in (steps, prompts))
        factors = map(stretch, deviations, *zip(self.step_widths, self.prompt_widths, strict=True))
        times = self.times.stretched(*factors)
        planned = self.made(times)
        rate, made, _ = planned
        place = np.expand_dims(np.argmax(planned.leading(-axes), axis=-axes), -axes)

        def at_best(x: NDArray) -> NDArray:
            return np.take_along_axis(np.broadcast_to(x, made.shape), place, -axes).squeeze(-axes)

        parts: dict[str, Any] = {name: at_best(getattr(times, name)) for name in times._fields if name != "compiled"}
        paid = at_best(paid_chips(self.system, self.chips))
        return Best(times._replace(**parts), at_best(rate), at_best(made), paid)

    def replay(self, steps: Numeric, prompts: Numeric) -> dict[str, NDArray]:
        """Return the figures of the best number of sequences, where steps and prompts deviate from what is predicted.

        Parameters
        ----------
        steps, prompts : numeric
            Standard deviations of the logarithm of the times, one for each draw. [-]

        Returns
        -------
        figures : dict
            Those of `FIGURES` by name; NaN in a draw in which no number of sequences keeps the promises. [-]
        """
        times, rate, made, paid = self.best(steps, prompts)
        with np.errstate(invalid="ignore", divide="ignore"):
            figures = loaded(times, rate, self.request)
            figures |= {"tokens_per_s_per_chip": made, "request_chip_s": self.request.output_tokens / made}
        return figures | {"prompt_chip_s": np.where(np.isfinite(made), times.prompt_s * paid, np.nan)}

    def drawn(self, e: Efficiencies) -> dict[str, NDArray]:
        """Return the figures in each of the common draws of what nobody knows of a stack on the chip."""
        return self.replay(*(deviations(cause(e, self.system, phase)) for phase in ("decode", "prefill")))


def draw_widths(name: str, value: float, drawn: Mapping[str, NDArray]) -> tuple[NDArray, NDArray]:
    """Return the half-widths of a figure around its value, from the range of the draws that keep the promises."""
    low, high = range_of(drawn[name])
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.maximum(np.log(value / low), 0.0), np.maximum(np.log(high / value), 0.0)
    return (ends[1], ends[0]) if "per_s" in name else ends
