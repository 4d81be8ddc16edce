"""Time of a layer that no resource explains, of measured decode steps: what the constant of a layer stands for.

A step less everything that the model gives it but the time of its layers, over the layers. Were exchanges its cause, it
would be none at TP 1; were traffic its cause, it would grow with the width of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnmodel.evidence.fit import cases
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import stack_of
from trnmodel.evidence.rows import published
from trnmodel.models.transformer import model

if TYPE_CHECKING:
    import pandas as pd

STEPS = ("decode-step", "decode-throughput")


def layers() -> pd.DataFrame:
    """Time of a layer that nothing else in the model explains, one row for each dense decode step with such a constant.

    Returns
    -------
    table : pandas.DataFrame
        source, model, chip, stack, ranks (TP), layers, hidden_size, batch, step_s (measured), layer_s (the measured
        step less all but the time of its layers, over its layers) and constant_s (that of the stack). [-]

    Examples
    --------
    >>> alone = layers().query("ranks == 1 and chip == 'trn2'")
    >>> bool(alone.layer_s.median() > 50e-6)
    True
    """
    import pandas as pd

    rows = []
    for case in cases(published(), "decode"):
        r, spec = case.reading, model(case.reading.model)
        own_s = float(stack_of(r).dense_layer_s)
        if r.meaning not in STEPS or not own_s:
            continue
        given = predict(r)
        step_s = case.measured if r.meaning == "decode-step" else r.batch / case.measured
        given_s = given if r.meaning == "decode-step" else r.batch / given
        rows.append(
            {
                "source": case.source,
                "model": r.model_id,
                "chip": case.family,
                "stack": stack_of(r).id,
                "ranks": r.mapping[0],
                "layers": spec.n_layers,
                "hidden_size": spec.hidden_size,
                "batch": r.compiled_batch,
                "step_s": step_s,
                "layer_s": (step_s - given_s) / spec.n_layers + own_s,
                "constant_s": own_s,
            }
        )
    return pd.DataFrame(rows)
