"""Forms of a law that were tried for decode, and errors where the form is chosen without the rows that judge it.

Which form a law has was settled by comparing errors, so the error of the one in force flatters. Here each model is left
out of the choice as well as of the fit: `chosen_inside`. A form is what a layer costs, as columns that constants
multiply; everything else of a step, with the constants of the streams and the network, is as shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trnmodel.evidence import search
from trnmodel.evidence.fit import Case
from trnmodel.evidence.questions import _decode, predict
from trnmodel.evidence.readings import machine, stack_of
from trnmodel.models.transformer import model
from trnmodel.steps.rank import site

FIRST_S = 3e-5  # where the search for a constant of a layer starts
MOST = 5.0  # change of a logarithm


class Told(NamedTuple):
    """What forms are made of: a place for each case. `rest_s` is the step without the layers' own time."""

    step_s: NDArray
    rest_s: NDArray
    layers: NDArray
    expert_layers: NDArray
    ranks: NDArray
    cores: NDArray
    tokens: NDArray
    pairs: NDArray
    top_k: NDArray
    selects: NDArray
    hidden_host: NDArray


Form = Callable[[Told], tuple[NDArray, ...]]


def _routed(share: Callable[[Told], NDArray], power: float, by: str) -> Form:
    """Layers, and layers with experts times a group of cores times a power of tokens or of gathered experts."""

    def form(t: Told) -> tuple[NDArray, ...]:
        most, least = (t.pairs, t.top_k) if by == "pairs" else (t.tokens, np.ones_like(t.tokens))
        return t.layers, t.expert_layers * share(t) * np.where(t.selects, most, least) ** power

    return form


def _doublings(t: Told) -> NDArray:
    return np.log2(2 * t.cores)


# the list of what was tried; the first of each is in force
FORMS: Mapping[str, Mapping[str, Form]] = {
    "expert-decode": {
        "cores, experts^1/4": _routed(_doublings, 1 / 4, "pairs"),
        "cores, experts^1/3": _routed(_doublings, 1 / 3, "pairs"),
        "cores, experts^1/2": _routed(_doublings, 1 / 2, "pairs"),
        "cores, tokens^1/3": _routed(_doublings, 1 / 3, "tokens"),
        "cores, tokens^1/2": _routed(_doublings, 1 / 2, "tokens"),
        "ranks, tokens^1/3": _routed(lambda t: np.log2(2 * t.ranks), 1 / 3, "tokens"),
        "ranks, tokens^1/2": _routed(lambda t: np.log2(2 * t.ranks), 1 / 2, "tokens"),
        "root of cores, tokens^1/3": _routed(lambda t: np.sqrt(t.cores), 1 / 3, "tokens"),
        "no group, tokens^1/3": _routed(lambda t: np.ones_like(t.cores), 1 / 3, "tokens"),
    },
    "decode": {
        "layers, by who waits for the host": lambda t: (t.layers * t.hidden_host, t.layers * (1 - t.hidden_host)),
        "layers": lambda t: (t.layers,),
        "layers and a step": lambda t: (t.layers, np.full_like(t.layers, 30.0)),
        "layers and a step that waits": lambda t: (t.layers, 30.0 * (1 - t.hidden_host)),
        "layers, doublings of cores": lambda t: (t.layers * _doublings(t),),
        "doublings, by who waits": lambda t: (
            t.layers * _doublings(t) * t.hidden_host,
            t.layers * _doublings(t) * (1 - t.hidden_host),
        ),
        "doublings and a step that waits": lambda t: (t.layers * _doublings(t), 30.0 * (1 - t.hidden_host)),
    },
}
LINES = {"expert-decode": ("expert routing", "layers"), "decode": ("layers", "layers without experts")}


def _row(case: Case, group: str) -> tuple[float, ...] | None:
    """Return what a case tells of the forms, where the group's law has a say in its step."""
    r = case.reading
    step, stack = _decode(r, None, breakdown=True), stack_of(r)
    own = [float(np.sum(step.operators[name].overhead_s)) for name in LINES[group]]
    if not own[0 if group == "expert-decode" else 1]:
        return None
    over = predict(r) / case.measured
    measured_s = float(step.time_s) * (over if r.meaning.endswith("throughput") else 1 / over)
    m, d = model(r.model).outline("decode"), r.degrees
    ranks = float(d.tp * d.ep)
    most = m.experts / m.top_k if m.experts else 1.0
    tokens = min(r.compiled_batch, most)
    selects = stack.expert_read == "per_token" and float(d.ep * d.moe_ep) == 1
    own_layers = m.layers if stack.dense_layer_s else 0
    return (
        measured_s,
        float(step.time_s) - sum(own),
        float(own_layers),
        float(m.expert_layers),
        ranks,
        ranks * site(machine(r), r.mapping[3]).lnc,
        tokens,
        tokens * m.top_k,
        float(m.top_k),
        selects,
        float("async" in str(r.stack)),
    )


def chosen_inside(of: Sequence[Case], group: str) -> NDArray:
    """Errors of the cases that a law has a say in, its form and constants chosen without their model.

    Returns
    -------
    errors : numeric
        Predicted over measured - 1, of a time or a rate as measured; NaN for cases that no form of the group moves. [-]
    """
    rows = [_row(case, group) for case in of]
    inside = [place for place, row in enumerate(rows) if row is not None]
    told = Told(*np.array([rows[place] for place in inside], dtype=float).T)
    columns = {name: np.array(form(told)) for name, form in FORMS[group].items()}

    def errors(form: str, fit: NDArray, judge: NDArray) -> NDArray:
        x = columns[form]

        def off(constants: NDArray, places: NDArray) -> NDArray:
            return np.log((told.rest_s[places] + constants @ x[:, places]) / told.step_s[places])

        best = search.constants(lambda c: off(c, fit), np.full(len(x), FIRST_S), -MOST, MOST)
        return off(best, judge)

    logs, _ = search.chosen_without([of[place].model for place in inside], list(columns), errors)
    found = np.full(len(of), np.nan)
    sign = [-1.0 if of[place].reading.meaning.endswith("throughput") else 1.0 for place in inside]
    found[inside] = np.expm1(sign * logs)
    return found
