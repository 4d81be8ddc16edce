"""The hand-tuned scenario held against every published forward pass: what its parts come from, and who beats it.

One rule makes the parts of every maker. What a layer costs lies between the least that any run leaves for it and what
public software takes. A run that is faster than the band of the scenario contradicts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

import trnmodel as tm
from trnmodel.evidence.cells import UnreadableRowError, texts
from trnmodel.evidence.fit import Case, readable
from trnmodel.evidence.grounds import banded
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import is_rate
from trnmodel.evidence.rows import COMPARATORS, published, read_rows
from trnmodel.models.transformer import model

if TYPE_CHECKING:
    import pandas as pd

PASSES = ("decode-step", "loaded-step", "forward")  # whose time is that of the layers
USES = ("model", "comparator")
CHIPS = {"neuron": "trainium2", "gpu": "h100"}  # whose scenario has the parts of each maker


@cache
def cases() -> tuple[Case, ...]:
    """Return the published runs of models on public software, of AWS chips and of GPUs."""
    every = readable([*texts(published()), *read_rows(COMPARATORS)])
    return tuple(case for case in every if case.reading.use in USES and case.reading.model and case.weight)


def maker(case: Case) -> str:
    """Return whose chip a run is on: "neuron" or "gpu"."""
    return "neuron" if case.reading.where.startswith(("trn", "inf")) else "gpu"


def remainders() -> pd.DataFrame:
    r"""Return what each forward pass leaves for a layer beyond its ideal time at the stream share of the scenario.

    .. math:: u = \frac{t - t_{ideal} / s}{L}

    Returns
    -------
    table : pandas.DataFrame
        id, maker, model, where, measured_s, ideal_s, layers, layer_s. [-]
    """
    import pandas as pd

    shares = {name: tm.efficiencies(chip, "hand-tuned").weight_stream_share for name, chip in CHIPS.items()}
    rows = []
    for case in cases():
        r = case.reading
        if r.meaning not in PASSES or model(r.model).kind == "encoder-decoder":
            continue
        with suppress(UnreadableRowError):
            ideal_s = float(predict(replace(r, stack="ideal")))
            rows.append(_left(case, ideal_s, shares[maker(case)]))
    return pd.DataFrame(rows)


def _left(case: Case, ideal_s: float, share: float) -> dict[str, str | float]:
    """Return a line of `remainders`."""
    r = case.reading
    layers = model(r.model).outline("prefill" if r.meaning == "forward" else "decode").layers
    line: dict[str, str | float] = {"id": case.id, "maker": maker(case), "model": r.model_id, "where": r.where}
    line |= {"measured_s": case.measured, "ideal_s": ideal_s, "layers": layers}
    return line | {"layer_s": (case.measured - ideal_s / share) / layers}


def _asked() -> Iterator[tuple[Case, float, float]]:
    """Each run with the ends of the band that the scenario gives for it, where it gives one."""
    of = [case for case in cases() if not case.reading.meaning.startswith("memory")]
    tuned = [replace(case.reading, stack="hand-tuned") for case in of]
    for case, band in zip(of, banded(tuned), strict=True):
        if not isinstance(band, UnreadableRowError) and np.isfinite(band[0]):
            yield case, band[1], band[2]


def beaten() -> pd.DataFrame:
    """Return every run with how far beyond the better end of the scenario's band it is; above 1 it beats the scenario.

    Returns
    -------
    table : pandas.DataFrame
        id, maker, meaning, model, where, stack, measured, end (of the band), beyond (1.05 is 5 % better). [-]
    """
    import pandas as pd

    rows = []
    for case, low, high in _asked():
        r, rate = case.reading, is_rate(case.reading.meaning)
        line: dict[str, str | float] = {"id": case.id, "maker": maker(case), "meaning": r.meaning}
        line |= {"model": r.model_id, "where": r.where}
        beyond = case.measured / high if rate else low / case.measured
        line |= {"stack": r.stack, "measured": case.measured, "end": high if rate else low}
        rows.append(line | {"beyond": beyond})
    return pd.DataFrame(rows)
