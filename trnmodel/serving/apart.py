"""The account of prefill and decode on separate pools: their ratio, the load, and the time to the first token.

The decode pool runs its steps without stalls. Prompts queue for a replica of the prefill pool, and their cache is sent
over the scale-out network. What speaks of separate pools (`disaggregate`, a plan with `prefill_systems`) reads this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog.specs import Chip, Precision, published
from trnmodel.catalog.systems import System
from trnmodel.draws import deviations, stretch
from trnmodel.fabric.groups import chip_links
from trnmodel.formulas import latency
from trnmodel.models.transformer import Transformer
from trnmodel.serving.account import ROUNDING, Times, request_chip_s, ttft_s, utilisation_within
from trnmodel.steps.request import Request
from trnmodel.units import Numeric


class Apart(NamedTuple):
    """Two pools at the planned load, for each decode replica.

    `prefill_replicas` are those that serve one decode replica; `capacity` is what one of them prefills [1/s].
    `ttft_s` has the queue where the request limits it. Without a limit a pool may be as busy as it can be, so that its
    queue has no bound, and the time is that of an idle one.
    """

    requests_per_s: NDArray
    prefill_replicas: NDArray
    capacity: NDArray
    utilisation: NDArray
    in_flight: NDArray
    ttft_s: NDArray


def replica_bytes_per_s(where: System | Chip, chips: Numeric) -> NDArray:
    """Return the scale-out bandwidth of the chips of a replica, per direction; where none is published, their links."""
    return np.multiply(chips, published(where.scaleout_bytes_per_s_per_dir, chip_links(where)))


def sent_bytes(model: Transformer, input_tokens: Numeric, precision: Precision) -> NDArray:
    """Return what the prefill pool sends for a prompt: its cache and its recurrent states."""
    return model.kv_bytes(input_tokens, precision.kv) + model.state_bytes()


def apart(
    decode: Times, prompts: Times, request: Request, transfer_s: Numeric, prefill_replicas: Numeric | None = None
) -> Apart:
    """Return what two pools do at the largest load at which every promise holds.

    Without `prefill_replicas` their number is the one at which neither pool waits for the other.
    """
    after_s = transfer_s + decode.step_s
    whole = prompts._replace(step_s=np.zeros(()))  # no decode step runs between the chunks of a prompt
    busy = np.ones(())
    if request.ttft_s is not None:
        busy = utilisation_within(whole, request.ttft_s - after_s, request.ttft_quantile)
    with np.errstate(invalid="ignore", divide="ignore"):
        capacity = np.where(busy > 0, busy / prompts.prompt_s, np.nan)
        fast = decode.decode_s <= request.most_tpot_s * (1 + ROUNDING)
        full = np.where(fast, decode.batch / (request.output_tokens * decode.decode_s), np.nan)
        needed = latency.replicas_ratio(1 / capacity, decode.batch, request.output_tokens, decode.decode_s)
        number = needed if prefill_replicas is None else prefill_replicas
        rate = full + 0 * capacity if prefill_replicas is None else np.minimum(full, number * capacity)
        utilisation = rate * prompts.prompt_s / number
        queued = utilisation if request.ttft_s is not None else 0.0
        first_s = ttft_s(whole, queued, request.ttft_quantile) + after_s
    in_flight = rate * request.output_tokens * decode.decode_s
    return Apart(rate, number + 0 * rate, capacity, utilisation, in_flight, first_s)


class Pool(NamedTuple):
    """The replicas of one side: where they are, and the chips of each."""

    system: System | Chip
    chips: NDArray


def chip_s_apart(request: Request, decode: Pool, prompts: Pool, result: Apart) -> tuple[NDArray, NDArray]:
    """Return the paid chip-seconds of a request in the decode pool and in the prefill pool.

    A pool that waits for the other is paid all the same.
    """
    each = request_chip_s(request, decode.system, result.requests_per_s, decode.chips)
    served = result.requests_per_s / result.prefill_replicas
    return each, request_chip_s(request, prompts.system, served, prompts.chips)


class Columns(NamedTuple):
    """All batches of one decode mapping beside one prefill mapping, with what is uncertain of both.

    The ratio of the pools is bought once; in a draw the slower pool sets the load.
    """

    request: Request
    times: Times
    prompts: Times
    fits: NDArray
    decode: Pool
    prefill: Pool
    transfer_s: NDArray
    prefill_replicas: float
    step_widths: tuple[Any, Any]
    prompt_widths: tuple[Any, Any]
    causes: tuple[str, str]

    def replay(self, steps: Numeric, prompts: Numeric) -> dict[str, NDArray]:
        """Return the figures of the best number of sequences, as `account.Column.replay` does for one pool."""
        zs = (np.asarray(z, float)[..., None] for z in (steps, prompts))
        later, first = map(stretch, zs, *zip(self.step_widths, self.prompt_widths, strict=True))
        times, before = self.times.stretched(later, 1.0), self.prompts.stretched(1.0, first)
        with np.errstate(invalid="ignore", divide="ignore"):
            result = apart(times, before, self.request, self.transfer_s, self.prefill_replicas)
            parts = chip_s_apart(self.request, self.decode, self.prefill, result)
            whole = np.where(self.fits, sum(parts), np.nan)
            figures = {
                "tokens_per_s_per_chip": self.request.output_tokens / whole,
                "tokens_per_s_per_user": 1 / times.decode_s,
                "requests_per_s_per_replica": result.requests_per_s,
                "ttft_s": result.ttft_s,
                "sequences_in_flight": result.in_flight,
                "prefill_utilisation": result.utilisation,
                "request_chip_s": whole,
                "prompt_chip_s": parts[1],
            }
        best = np.argmax(np.nan_to_num(figures["tokens_per_s_per_chip"], nan=-1.0), axis=-1)[..., None]
        at_best = {
            name: np.take_along_axis(np.broadcast_to(x, whole.shape), best, -1)[..., 0] for name, x in figures.items()
        }
        holds = np.isfinite(at_best["tokens_per_s_per_chip"])
        return {name: np.where(holds, x, np.nan) for name, x in at_best.items()}

    def drawn(self) -> dict[str, NDArray]:
        """Return the figures in each of the common draws of what nobody knows of both pools' software."""
        return self.replay(*map(deviations, self.causes))
