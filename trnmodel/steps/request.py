"""A request: what a user sends, what is promised, and how many arrive."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, numbers, refuse, together
from trnmodel.declared import Allowed, Numbers
from trnmodel.units import BILLION, Numeric, format_digits

RANGES: dict[str, tuple[float, float]] = {
    "input_tokens": (1, 1e30),
    "output_tokens": (1, 1e30),
    "tokens_per_s_per_user": (TINY, 1e30),
    "ttft_s": (TINY, 1e30),
    "ttft_percentile": (1, 99.99),
    "prefix_share": (0, 1),
    "requests_per_s": (TINY, BILLION),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a user sends and is promised; `plan`, `serve`, `token_cost`, `compare` and `energy` all take it.

    The promised speed is one over the mean TPOT at the planned load, with the prefills of other requests counted. The
    TTFT limit holds for `ttft_percentile` of the requests under Poisson arrivals. The planned load is `requests_per_s`
    of all replicas together; without it, the largest load at which both promises hold. `tm.serve` takes arrays of every
    number, a search takes one request.

    Parameters
    ----------
    input_tokens, output_tokens : numeric
        Prompt and answer. [token]
    tokens_per_s_per_user : numeric, optional
        Speed that each user is promised; default none. [token/s]
    ttft_s : numeric, optional
        Longest time to the first token; default no limit. [s]
    ttft_percentile : numeric
        Share of the requests for which the limit holds. [%]
    prefix_share : numeric
        Share of the prompt whose cache is there already. [-]
    requests_per_s : numeric, optional
        Rate at which requests arrive. [1/s]

    Raises
    ------
    ValueError
        A number is out of its range, or shapes do not fit together.

    Examples
    --------
    >>> Request(4096, 512, tokens_per_s_per_user=50)
    Request(4,096 tokens in, 512 out, 50 tokens/s per user)
    """

    allowed: ClassVar[dict[str, Allowed]] = {name: Numbers(*ends) for name, ends in RANGES.items()}

    input_tokens: Any
    output_tokens: Any
    tokens_per_s_per_user: Any = None
    ttft_s: Any = None
    ttft_percentile: Any = 99.0
    prefix_share: Any = 0.0
    requests_per_s: Any = None

    def __post_init__(self) -> None:
        stated = {one.name: getattr(self, one.name) for one in fields(self)}
        checked = {
            name: numbers(name, value, *RANGES[name])
            for name, value in stated.items()
            if value is not None or name not in ("tokens_per_s_per_user", "ttft_s", "requests_per_s")
        }
        together(**checked)
        for name, value in checked.items():
            object.__setattr__(self, name, value if np.ndim(value) else float(value))

    def __repr__(self) -> str:
        return f"Request({self.describe()})"

    def describe(self) -> str:
        """Return the request in words."""
        unit = "token" if np.all(np.equal(self.input_tokens, 1)) else "tokens"
        parts = [f"{_range(self.input_tokens)} {unit} in, {_range(self.output_tokens)} out"]
        if self.tokens_per_s_per_user is not None:
            parts.append(f"{_range(self.tokens_per_s_per_user)} tokens/s per user")
        if self.ttft_s is not None:
            parts.append(f"first token within {_range(self.ttft_s)} s for {_range(self.ttft_percentile)} %")
        if np.any(self.prefix_share):
            parts.append(f"{_range(np.multiply(self.prefix_share, 100))} % of the prompt cached")
        if self.requests_per_s is not None:
            parts.append(f"{_range(self.requests_per_s)} requests/s")
        return ", ".join(parts)

    @property
    def new_tokens(self) -> NDArray:
        """Tokens of the prompt that are not cached, at least one [token]."""
        return np.maximum(np.multiply(self.input_tokens, np.subtract(1, self.prefix_share)), 1.0)

    @property
    def past_tokens(self) -> NDArray:
        """Tokens of the prompt that are cached already [token]."""
        return self.input_tokens - self.new_tokens

    @property
    def mean_context(self) -> NDArray:
        """Tokens in the cache halfway through the answer [token]."""
        return np.add(self.input_tokens, np.divide(self.output_tokens, 2))

    @property
    def longest_context(self) -> NDArray:
        """Tokens in the cache at the end of the answer [token]."""
        return np.add(self.input_tokens, self.output_tokens)

    @property
    def most_tpot_s(self) -> NDArray:
        """Longest mean TPOT that keeps the promised speed; infinite without a promise [s/token]."""
        return np.asarray(inf) if self.tokens_per_s_per_user is None else np.divide(1, self.tokens_per_s_per_user)

    @property
    def ttft_quantile(self) -> NDArray:
        """Share of the requests for which the TTFT limit holds, as a fraction [-]."""
        return np.divide(self.ttft_percentile, 100)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its numbers together; () for one request."""
        return np.broadcast_shapes(*(np.shape(getattr(self, one.name)) for one in fields(self)))


def one_request(name: str, value: Any) -> Request:
    """Return the value if it is a single request, as a search takes it; refuse anything else by name."""
    if not isinstance(value, Request):
        refuse(name, value, "allowed is a Request, such as tm.Request(4096, 512, tokens_per_s_per_user=50)")
    if value.shape:
        refuse(name, value, f"allowed is one request, not an array of {value.shape}")
    return value


def _range(values: Numeric) -> str:
    """Return a number, or the ends of an array, with the digits that it was asked with."""
    low, high = float(np.min(values)), float(np.max(values))
    ends = [format(x, ",g") if x < 1e6 else format_digits(x, 6) for x in (low, high)]
    return ends[0] if low == high else f"{ends[0]} to {ends[1]}"
