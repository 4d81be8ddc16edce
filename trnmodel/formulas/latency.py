"""What requests see of a server: waiting, requests in flight, times to the first and to every further token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.units import Numeric

BISECTIONS = 60  # halvings until a share of 1 is down to the rounding of a float


def tokens_per_step(draft_tokens: Numeric, acceptance: Numeric) -> NDArray:
    r"""Tokens that a verified draft yields in one step, the verifier's own token included.

    .. math:: E = \frac{1 - a^{d+1}}{1 - a}

    Parameters
    ----------
    draft_tokens : numeric
        Tokens of a draft, d. [-]
    acceptance : numeric
        Chance that a token of it is accepted, a. [-]

    Returns
    -------
    yielded : numeric
        Expected tokens of a step, E. [-]

    Notes
    -----
    Assumes: each token is accepted or not whatever the others are. Limits: a = 0 gives 1, a = 1 gives d + 1.

    References
    ----------
    .. [1] Y. Leviathan, M. Kalman, Y. Matias, Fast inference from transformers via speculative decoding, ICML 2023,
       eq. 1.

    Examples
    --------
    >>> float(tokens_per_step(0, 0.7)), round(float(tokens_per_step(3, 0.5)), 3), float(tokens_per_step(4, 1.0))
    (1.0, 1.875, 5.0)
    """
    longest, certain = np.add(draft_tokens, 1), np.equal(acceptance, 1)
    refused = np.where(certain, 1, np.subtract(1, acceptance))
    return np.where(certain, longest, (1 - np.power(acceptance, longest)) / refused)


def acceptance(draft_tokens: Numeric, yielded: Numeric) -> NDArray:
    r"""Return the chance that a drafted token is accepted, from the tokens that a step was measured to yield.

    .. math:: a: \quad \frac{1 - a^{d+1}}{1 - a} = E

    Parameters
    ----------
    draft_tokens : numeric
        Tokens of a draft, d. [-]
    yielded : numeric
        Tokens that a step yields, the verifier's own included, E; from 1 to d + 1. [-]

    Returns
    -------
    chance : numeric
        Chance that each drafted token is accepted, a; 0 for a draft of no tokens. [-]

    Notes
    -----
    The inverse of `tokens_per_step`, by bisection: E grows with a. Assumes, as that does, that each token is accepted
    or not whatever the others are; the chance that is printed for the first token alone is another one.

    Examples
    --------
    >>> round(float(acceptance(3, 1.875)), 9), float(acceptance(4, 5.0)), float(acceptance(0, 1.0))
    (0.5, 1.0, 0.0)
    """
    shape = np.broadcast_shapes(np.shape(draft_tokens), np.shape(yielded))
    low, high = np.zeros(shape), np.ones(shape)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        less = tokens_per_step(draft_tokens, middle) < yielded
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    certain = np.equal(yielded, np.add(draft_tokens, 1)) & np.greater(draft_tokens, 0)
    return np.where(certain, 1.0, np.where(np.greater(yielded, 1), high, 0.0))


def waiting_s(utilisation: Numeric, service_s: Numeric, quantile: Numeric) -> NDArray:
    r"""Quantile of the wait for a server of fixed service time and random arrivals.

    .. math:: W_q = \frac{s}{2 (1 - \rho)} \ln \frac{\rho}{1 - q}, \quad 0 \text{ where } \rho \le 1 - q

    Parameters
    ----------
    utilisation : numeric
        Share of the time in which the server is busy, rho; from 1 on the wait has no end. [-]
    service_s : numeric
        Service time, s. [s]
    quantile : numeric
        Share of the requests that wait no longer, q. [-]

    Returns
    -------
    waiting_s : numeric
        Wait, W_q. [s]

    Notes
    -----
    Assumes: Poisson arrivals (M/D/1); the wait of those that wait is exponential, with the mean that is exact.

    References
    ----------
    .. [1] L. Kleinrock, Queueing Systems, vol. 1, 1975, chap. 5 (Pollaczek-Khinchin mean).

    Examples
    --------
    >>> float(waiting_s(0.4, 1.0, 0.5)), round(float(waiting_s(0.5, 1.0, 0.99)), 3)
    (0.0, 3.912)
    """
    busy = np.clip(utilisation, np.finfo(float).tiny, 1 - np.finfo(float).eps)
    late = np.subtract(1, quantile)
    return np.where(busy > late, service_s / (2 * (1 - busy)) * np.log(busy / late), 0.0)


def mean_waiting_s(utilisation: Numeric, service_s: Numeric) -> NDArray:
    r"""Mean wait for a server of fixed service time and random arrivals.

    .. math:: W = \frac{\rho\,s}{2 (1 - \rho)}

    Parameters
    ----------
    utilisation : numeric
        Share of the time in which the server is busy, rho; from 1 on the wait has no end. [-]
    service_s : numeric
        Service time, s. [s]

    Returns
    -------
    waiting_s : numeric
        Mean wait of all requests, W. [s]

    Notes
    -----
    Assumes: Poisson arrivals (M/D/1).

    References
    ----------
    .. [1] L. Kleinrock, Queueing Systems, vol. 1, 1975, chap. 5 (Pollaczek-Khinchin mean).

    Examples
    --------
    >>> float(mean_waiting_s(0.5, 1.0)), float(mean_waiting_s(0.0, 1.0))
    (0.5, 0.0)
    """
    busy = np.minimum(utilisation, 1 - np.finfo(float).eps)
    return busy * service_s / (2 * (1 - busy))


def free_yield(utilisation: Numeric, yielded: Numeric) -> NDArray:
    r"""Tokens that a decode step is worth while prefills of other requests take their share of the machine.

    .. math:: E' = E\,(1 - \rho)

    Parameters
    ----------
    utilisation : numeric
        Share of the time that prefills take, rho. [-]
    yielded : numeric
        Tokens of a step, E. [-]

    Returns
    -------
    yielded : numeric
        Tokens of a step, its waits counted, E'; NaN where prefills leave nothing. [-]

    Examples
    --------
    >>> float(free_yield(0.5, 2.0))
    1.0
    """
    return np.where(np.less(utilisation, 1), np.subtract(1, utilisation), np.nan) * yielded


def tpot_s(step_s: Numeric, yielded: Numeric) -> NDArray:
    r"""Time of a token of a request.

    .. math:: \tau = t_{step} / E'

    Parameters
    ----------
    step_s : numeric
        Decode step with its drafts, t_step. [s]
    yielded : numeric
        Tokens of a step, its waits counted, E'. [-]

    Returns
    -------
    time_s : numeric
        Time per output token, tau. [s]

    Examples
    --------
    >>> float(tpot_s(0.03, 1.5))
    0.02
    """
    return np.divide(step_s, yielded)


def late_tpot_s(
    tpot_s: Numeric, prefill_s: Numeric, requests_per_s: Numeric, output_tokens: Numeric, deviations: Numeric
) -> NDArray:
    r"""Time of a token of a request that meets more prefills of others than most.

    .. math:: \tau_q = \tau + \frac{z\,P \sqrt{\lambda\,o\,\tau}}{o}

    Parameters
    ----------
    tpot_s : numeric
        Mean time per output token, tau. [s]
    prefill_s : numeric
        A prefill, P. [s]
    requests_per_s : numeric
        Requests that arrive, lambda. [1/s]
    output_tokens : numeric
        Tokens of a request, o. [-]
    deviations : numeric
        Standard deviations above the mean, z. [-]

    Returns
    -------
    time_s : numeric
        Time per output token at that quantile. [s]

    Notes
    -----
    Assumes: the prefills that a request meets are Poisson; their number is taken as normal.

    Examples
    --------
    >>> float(late_tpot_s(0.02, 0.5, 2.0, 100.0, 1.0))
    0.03
    """
    met = np.sqrt(np.maximum(np.multiply(requests_per_s, output_tokens) * tpot_s, 0))
    return np.add(tpot_s, np.multiply(prefill_s, deviations) * met / output_tokens)


def in_flight(requests_per_s: Numeric, output_tokens: Numeric, step_s: Numeric, yielded: Numeric) -> NDArray:
    r"""Return the requests that decode at once, by Little's law.

    .. math:: n = \lambda\,o\,t_{step} / E'

    Parameters
    ----------
    requests_per_s : numeric
        Requests that arrive, lambda. [1/s]
    output_tokens : numeric
        Tokens of a request, o. [-]
    step_s : numeric
        Decode step, t_step. [s]
    yielded : numeric
        Tokens of a step, its waits counted, E'. [-]

    Returns
    -------
    requests : numeric
        Requests in flight, n. [-]

    References
    ----------
    .. [1] J. D. C. Little, A proof for the queuing formula L = lambda W, Operations Research 9(3), 1961.

    Examples
    --------
    >>> float(in_flight(2.0, 100.0, 0.04, 2.0))
    4.0
    """
    return np.divide(np.multiply(requests_per_s, output_tokens) * step_s, yielded)


def first_token_s(prefill_s: Numeric, chunks: Numeric, step_s: Numeric) -> NDArray:
    r"""Time to the first token without a queue, its prompt in chunks between decode steps of others.

    .. math:: t = P + (c - \tfrac{1}{2})\,t_{step}

    Parameters
    ----------
    prefill_s : numeric
        Prefill of all chunks, P. [s]
    chunks : numeric
        Chunks, c. [-]
    step_s : numeric
        Decode step, t_step; half of one is under way when the request comes. [s]

    Returns
    -------
    time_s : numeric
        Time to the first token. [s]

    Examples
    --------
    >>> float(first_token_s(1.0, 2, 0.5))
    1.75
    """
    return np.add(prefill_s, np.subtract(chunks, 0.5) * step_s)


def request_s(first_s: Numeric, tpot_s: Numeric, output_tokens: Numeric) -> NDArray:
    r"""Time of a request: its first token, and one step for each further one.

    .. math:: t = t_1 + (o - 1)\,\tau

    Parameters
    ----------
    first_s : numeric
        Time to the first token, t1. [s]
    tpot_s : numeric
        Time per output token, tau. [s]
    output_tokens : numeric
        Tokens, o. [-]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Examples
    --------
    >>> float(request_s(1.0, 0.02, 101))
    3.0
    """
    return np.add(first_s, np.multiply(tpot_s, np.subtract(output_tokens, 1)))


def utilisation(requests_per_s: Numeric, service_s: Numeric, together: Numeric = 1.0) -> NDArray:
    r"""Share of the time in which a server is busy.

    .. math:: \rho = \lambda\,s / n

    Parameters
    ----------
    requests_per_s : numeric
        Requests that arrive, lambda. [1/s]
    service_s : numeric
        Time of a service, s. [s]
    together : numeric
        Requests that are served together, n. [-]

    Returns
    -------
    share : numeric
        Share, rho; from 1 on the server falls behind. [-]

    Examples
    --------
    >>> float(utilisation(2.0, 0.25)), float(utilisation(2.0, 4.0, 16.0))
    (0.5, 0.5)
    """
    return np.multiply(requests_per_s, service_s) / together


def filling_s(batch: Numeric, requests_per_s: Numeric) -> NDArray:
    r"""Time that the first request of a static batch waits for the last.

    .. math:: t = (B - 1) / \lambda

    Parameters
    ----------
    batch : numeric
        Requests of a batch, B. [-]
    requests_per_s : numeric
        Requests that arrive, lambda. [1/s]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Examples
    --------
    >>> float(filling_s(5, 2.0))
    2.0
    """
    return np.subtract(batch, 1) / requests_per_s


def replicas_ratio(prefill_s: Numeric, batch: Numeric, output_tokens: Numeric, step_s: Numeric) -> NDArray:
    r"""Prefill replicas for each decode replica at which neither side waits for the other.

    .. math:: \frac{n_P}{n_D} = \frac{P\,B}{o\,t_{step}}

    Parameters
    ----------
    prefill_s : numeric
        Prefill of one prompt, P. [s]
    batch : numeric
        Sequences of a decode replica, B. [-]
    output_tokens : numeric
        Tokens of a request, o. [-]
    step_s : numeric
        Decode step, t_step. [s]

    Returns
    -------
    ratio : numeric
        Prefill replicas for one of decode. [-]

    References
    ----------
    .. [1] Y. Zhong et al., DistServe, OSDI 2024 (instances of prefill and decode, matched by their rates).

    Examples
    --------
    >>> float(replicas_ratio(0.5, 64, 256, 0.0625))
    2.0
    """
    return np.multiply(prefill_s, batch) / (np.multiply(output_tokens, step_s))


def full_requests_per_s(
    batch: Numeric, output_tokens: Numeric, step_s: Numeric, yielded: Numeric, prompt_s: Numeric
) -> NDArray:
    r"""Return the requests per second that fill a replica which decodes and runs its prompts on the same ranks.

    .. math:: \lambda = \frac{B}{o\,t_{step} / E + B\,P}

    Parameters
    ----------
    batch : numeric
        Sequences that decode at once, B. [-]
    output_tokens : numeric
        Tokens of a request, o. [-]
    step_s : numeric
        Decode step of all of them with its drafts, t_step. [s]
    yielded : numeric
        Tokens of a step, E. [-]
    prompt_s : numeric
        Time that all ranks of the replica spend on one prompt, P; where its attention groups prefill one prompt each
        at once, the time of that execution over their number. [s]

    Returns
    -------
    requests_per_s : numeric
        Requests of the replica, lambda. [1/s]

    Notes
    -----
    Assumes: a sequence that ends is followed by the next prompt at once, prompts come often enough that no attention
    group waits for one, and decode steps stand still while prompts run. While B requests decode o tokens each, which
    takes o t / E, the prompts of the B requests that follow them take B P. Limits: P = 0 gives decoding alone, B E / (o
    t); t -> 0 gives 1 / P.

    References
    ----------
    .. [1] J. D. C. Little, A proof for the queuing formula L = lambda W, Operations Research 9(3), 1961.

    Examples
    --------
    >>> float(full_requests_per_s(16, 100, 0.04, 1, 0.25)), float(full_requests_per_s(16, 100, 0.04, 2, 0.0))
    (2.0, 8.0)
    """
    decoding_s = np.multiply(output_tokens, step_s) / yielded
    return batch / (decoding_s + np.asarray(batch) * np.asarray(prompt_s))


def full_tpot_s(
    batch: Numeric, output_tokens: Numeric, step_s: Numeric, yielded: Numeric, prompt_s: Numeric
) -> NDArray:
    r"""Mean time of a token of a request at the load that fills a replica, its stalls by prompts of others included.

    .. math:: \tau = \frac{t_{step}}{E} + \frac{B\,P}{o} = \frac{t_{step} / E}{1 - \lambda P}

    Parameters
    ----------
    batch : numeric
        Sequences that decode at once, B. [-]
    output_tokens : numeric
        Tokens of a request, o. [-]
    step_s : numeric
        Decode step of all of them with its drafts, t_step. [s]
    yielded : numeric
        Tokens of a step, E. [-]
    prompt_s : numeric
        Time that all ranks of the replica spend on one prompt, P. [s]

    Returns
    -------
    time_s : numeric
        Time per output token, tau. [s]

    Notes
    -----
    The second form is that of any load below: with lambda = B / (o t / E + B P), `full_requests_per_s`, what prompts
    leave is 1 - lambda P = (o t / E) / (o t / E + B P), and t / E over it is the first form. By Little's law
    lambda o tau = B.

    Examples
    --------
    >>> float(full_tpot_s(16, 100, 0.04, 1, 0.25)), float(tpot_s(0.04, free_yield(2.0 * 0.25, 1)))
    (0.08, 0.08)
    """
    stall_s = np.multiply(batch, prompt_s) / np.asarray(output_tokens)
    return tpot_s(step_s, yielded) + stall_s


def prompt_latency_s(alone_s: Numeric, together_s: Numeric, utilisation: Numeric) -> NDArray:
    r"""Time of the prefill that a prompt meets where attention groups prefill a prompt each.

    .. math:: t = t_1 + \rho\,(t_n - t_1)

    Parameters
    ----------
    alone_s : numeric
        Prefill of one prompt while the other groups have none, t1. [s]
    together_s : numeric
        Prefill of one prompt in each group at once, tn. [s]
    utilisation : numeric
        Share of the time that prompts take, rho. [-]

    Returns
    -------
    time_s : numeric
        Time, t. [s]

    Notes
    -----
    Assumes: another group has a prompt as often as prompts occupy the replica. Limits: at low load a prompt has its own
    latency, at saturation that of all groups' prompts together. One group gives t1 at any load.

    Examples
    --------
    >>> prompt_latency_s(0.25, 0.5, np.array([0.0, 0.5, 1.0])).tolist()
    [0.25, 0.375, 0.5]
    """
    return alone_s + np.multiply(utilisation, np.subtract(together_s, alone_s))
