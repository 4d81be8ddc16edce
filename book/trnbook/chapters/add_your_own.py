"""Tables of the chapter on own models, prices, chips and measurements."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from trnbook.chapters import common, guard
from trnbook.shared import drafts
from trnbook.shared.ledger import rests_on
from trnmodel.models.shipped import MODELS, catalog
from trnmodel.models.transformer import Transformer
from trnmodel.search.choice import Choice
from trnmodel.search.plan import Plan
from trnmodel.units import format_digits

COLUMNS = """id source date_or_sdk instance n_chips n_cores_used lnc workload phase batch input_len output_len seq_len
    tp pp dp precision metric value unit note kind""".split()


def answered(plan: Plan) -> None:
    """Refuse a model that fits no system, and a speed that none keeps."""
    guard.possible(plan.best is not None, f"{plan.model.id} does not fit: {'; '.join(plan.why.values())}")
    speed = f"{plan.request.tokens_per_s_per_user:g} tokens/s per user"
    guard.possible(plan.reached, f"no system serves {plan.model.id} at {speed}")


def answer(best: Choice, plain: Iterable[Choice | None] = ()) -> str:
    """Return the card that opens the chapter: the answer from which every section changes one thing.

    `plain` are the choices of the same question on software that drafts nothing, where the best drafts.
    """
    without = [format_digits(c.tokens_per_s_per_chip, 2) for c in drafts.keeping(plain)]
    made = f"Without them this one makes {' or '.join(without)}, by software release. " if without else ""
    undrafted = f"A model of your own gets no drafts. {made}"
    ends = tuple(map(float, best.ends("tokens_per_s_per_chip")))
    return common.card(
        (float(best.tokens_per_s_per_chip), *ends),
        f"throughput of {best.question.model.id} on {best.system.name}, before you change anything",
        unit="tokens/s per chip",
        mark=str(best.basis),
        proof="Check: the published rows, through the same call",
        more="**Your own model:** set `model` to the path of your `config.json` and choose *Run All Cells*. "
        f"{undrafted}**How sure?** The band holds nine of ten draws. Your own measurement narrows it more than any "
        "formula. " + rests_on(best.stack.id),
    )


def config_file(model: Transformer, layers: int) -> str:
    """Write a shipped configuration with another number of layers to a temporary folder; return its path.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.model(config_file(tm.model("llama-3.1-8b"), 16)).n_layers
    16
    """
    shipped = catalog().get(model.id)
    guard.need(shipped is not None, f"model = {model.id!r} is not shipped; this section writes one that is")
    assert shipped is not None
    config = json.loads((MODELS / shipped.file).read_text(encoding="utf-8"))
    config["num_hidden_layers"] = max(layers, 1)
    for name, value in config.items():
        if isinstance(value, list) and len(value) == model.n_layers:  # an entry for each layer
            config[name] = value[: max(layers, 1)]
    folder = Path(tempfile.mkdtemp()) / f"{model.id}-with-{layers}-layers"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def row(case: str, best: Choice | None) -> dict[str, Any]:
    """Return a plan as a row: where it runs, and what it makes per chip."""
    if best is None:
        return {"case": case}
    return {
        "case": case,
        "mapping": best.mapping,
        **best.banded("tokens_per_s_per_chip"),
    }


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """Return rows that were judged: measured and predicted with its band, and whether the row lies inside.

    Examples
    --------
    >>> rows = pd.DataFrame({"value": [2.0, 9.0], "unit": "ms", "predicted": [1.0, 1.0], "low": 0.5, "high": 3.0,
    ...     "basis": "extrapolated", "skipped": ""})
    >>> verdicts(rows).inside.tolist()
    ['yes', 'no']
    """
    table = pd.DataFrame({"measured": judged.value, "unit": judged.unit})
    table = table.assign(predicted=judged.predicted, predicted_low=judged.low, predicted_high=judged.high)
    inside = judged.value.between(judged.low, judged.high).map({True: "yes", False: "no"})
    return table.assign(inside=inside.where(judged.predicted.notna(), ""), basis=judged.basis, reason=judged.skipped)


def share_inside(judged: pd.DataFrame) -> float:
    """Return the share of the rows that can be known whose measured value lies inside the band.

    Examples
    --------
    >>> rows = pd.DataFrame({"value": [2.0, 9.0, 1.0], "predicted": [1.0, 1.0, None], "low": 0.5, "high": 3.0})
    >>> share_inside(rows)
    0.5
    """
    known = judged[judged.predicted.notna()]
    value = pd.to_numeric(known.value, errors="coerce")
    return float(value.between(known.low, known.high).mean())
