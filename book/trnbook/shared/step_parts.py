"""The parts of a decode step that add up to its time."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from trnmodel.steps.answers import Step

PARTS = ("weights", "cache", "compute", "exchanges", "layers")


def parts(steps: Mapping[str, Step]) -> pd.DataFrame:
    """Return the parts of each step that add up to its time; a step that cannot exist has none.

    Parameters
    ----------
    steps : mapping of str to Step
        Steps of one point by what they are called. [-]

    Returns
    -------
    table : pandas.DataFrame
        what (the name of the step), part and time_s. Part "compute" is what reads of memory do not hide. [-]
    """
    rows = []
    for name, step in steps.items():
        if not step.valid:
            continue
        reads = {"cache": 0.0, "weights": 0.0}
        for line, times in step.breakdown().items():
            reads["cache" if line.endswith((" attention", " scan", "state")) else "weights"] += float(times.memory_s)
        memory_s, layers_s = float(step.memory_s), float(step.overhead_s)
        scale = memory_s / max(sum(reads.values()), 1e-30)
        device_s = float(step.time_s) - layers_s
        alone_s = max(float(step.compute_s), memory_s)  # of work that hides as much as it can
        overlap = float(step.question.network_overlap)
        network_s = max((1 - overlap) * float(step.network_s), min(device_s - alone_s, float(step.network_s)))
        network_s = network_s if overlap else float(step.network_s)
        times_s = {"weights": scale * reads["weights"], "cache": scale * reads["cache"]}
        times_s |= {"compute": device_s - memory_s - network_s, "exchanges": network_s, "layers": layers_s}
        rows += [(name, part, max(times_s[part], 0.0)) for part in PARTS]
    return pd.DataFrame(rows, columns=["what", "part", "time_s"])
