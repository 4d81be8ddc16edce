"""What a runtime adds to exchanges: the barrier of a graph that holds one, and the launch of a call by the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, flag, numbers
from trnmodel.catalog import load
from trnmodel.units import Numeric

LAUNCHERS = ("torch-distributed", "torch-compile", "torch-xla", "nki", "nccom-test")
NONE = "none"  # of a collective inside a graph
RUNTIMES = {"trn1": "neuron-runtime-trn1", "trn2": "neuron-runtime-trn2"}


def graph_barrier_s(ranks: Numeric, runtime: str = "neuron-runtime-trn2") -> NDArray:
    r"""Return the fixed cost of a graph that holds collectives, however many: the runtime's barrier.

    .. math:: t = t_0 + t_1\log_2 n \quad (n > 2)

    Parameters
    ----------
    ranks : numeric
        Ranks of the group, n. [-]
    runtime : str
        "neuron-runtime-trn2" or "neuron-runtime-trn1". [-]

    Returns
    -------
    barrier_s : numeric
        Time of a graph with one small collective. Groups of two pay none: what was measured for them, or nothing. [s]

    Raises
    ------
    ValueError
        Unknown runtime; ranks below one.

    Notes
    -----
    Base and step are fitted to 4-64 ranks of Trn2 (within 2 %) and 8-32 of Trn1; beyond them the line goes on.

    Examples
    --------
    >>> round(float(graph_barrier_s(64)) * 1e3, 2)
    2.99
    """
    ranks = numbers("ranks", ranks, 1)
    choice("runtime", runtime, tuple(RUNTIMES.values()))
    base, step, pair = (load.value(runtime, f"graph_barrier_{part}_s") for part in ("base", "step", "pair"))
    return np.where(np.greater(ranks, 2), base + step * np.log2(ranks), np.where(np.equal(ranks, 2), pair, 0.0))


def launch_s(launcher: str = "torch-distributed", waits: bool = False) -> float:
    """Return the time that the call of a collective by the host adds, by what launches it.

    Parameters
    ----------
    launcher : {"torch-distributed", "torch-compile", "torch-xla", "nki", "nccom-test"}
        An eager call of the framework, a compiled graph with one collective, a lazy graph of PyTorch/XLA, a kernel of
        NKI, or AWS's own test. [-]
    waits : bool
        Whether the host waits for each call before the next, as a program that needs the result does. [-]

    Returns
    -------
    launch_s : float
        Time beside the steps of the collective. [s]

    Raises
    ------
    ValueError
        Unknown launcher.

    Notes
    -----
    Fitted to calls of Trainium2 (of AWS's test: machines that are not stated). Launches of one program differ by up to
    14 times from one call and count of ranks to the next, in no order that the ranks explain, and the barrier of
    `graph_barrier_s` explains them no better. So each launcher has one time with a range.

    Examples
    --------
    >>> launch_s("nki") < launch_s() < launch_s(waits=True)
    True
    """
    choice("launcher", launcher, LAUNCHERS)
    each = load.value("neuron-runtime", "collective_launch_s", launcher)
    return each + (load.value("neuron-runtime", "collective_wait_s") if flag("waits", waits) else 0.0)
