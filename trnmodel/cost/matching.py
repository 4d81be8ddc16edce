"""Checks that results which are combined are of the same system and of the same model."""

from __future__ import annotations

from typing import Any

from trnmodel.arguments import refuse
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import System, chip_of
from trnmodel.models.transformer import Transformer


def same_owner(name: str, result: Any, system: System, model: Transformer | None = None) -> None:
    """Raise ValueError for a result of another system or model; the system of a result may be the system's chip.

    Parameters
    ----------
    name : str
        Argument that holds the result. [-]
    result : object
        A result with a `system`, and with a `model` or None where it is of no model in particular. [-]
    system, model : System, Transformer
        System and model of the question; without a model, results of any model are accepted. [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> cost = tm.tco("hgx-h100")
    >>> same_owner("pricing", cost, tm.system("trn2.48xlarge"))
    Traceback (most recent call last):
    ValueError: pricing='Cost of hgx-h100': allowed is a Cost of trn2.48xlarge, as the rest of the question is
    """
    theirs, kind = result.system, type(result).__name__
    ours = chip_of(system) if isinstance(theirs, Chip) else system
    if theirs.id != ours.id:
        refuse(name, f"{kind} of {theirs.id}", f"allowed is a {kind} of {ours.id}, as the rest of the question is")
    same_model(name, result, model)


def same_model(name: str, result: Any, model: Transformer | None) -> None:
    """Raise ValueError for a result of another model, where both are of one."""
    if model is not None and result.model is not None and result.model.id != model.id:
        kind = type(result).__name__
        allowed = f"allowed is a {kind} of {model.id}, as the rest of the question is"
        refuse(name, f"{kind} of {result.model.id}", allowed)
