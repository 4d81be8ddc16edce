"""Columns of a row of training or of energy, checked: arguments of a question, and a model by its shape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

from trnmodel.arguments import HUGE, shown
from trnmodel.catalog.trainers import trainers
from trnmodel.evidence.cells import MOST, UnreadableRowError, number, tokens, too_long
from trnmodel.evidence.columns import NAMES, RECOMPUTES, SHAPE
from trnmodel.evidence.records import Record
from trnmodel.models.config import read_json
from trnmodel.models.shipped import MODELS, catalog
from trnmodel.models.synthetic import from_values
from trnmodel.models.transformer import Transformer

COUNTED = ("machines", "expert_ranks", "context_ranks", "micro_batch", "interleave", "global_batch", "seq", *SHAPE)
FLAGS = {"1": 1.0, "true": 1.0, "yes": 1.0, "0": 0.0, "false": 0.0, "no": 0.0}
WORDED = (
    *("micro_batch", "zero", "interleave", "context_ranks", "expert_ranks", "network_gbit_per_s", "tokens"),
    *("recompute", "sequence_parallel"),
)  # columns of a run that its words may state
GPT_POSITIONS = 2048  # of the GPTs of Megatron-LM's papers


def run_columns(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return what a row states of these columns: in a column of the name, else in its words or by its page.

    Examples
    --------
    >>> run_columns({"recompute": "none"}, Record(micro_batch=16.0, recompute="full", tokens=3e11))
    {'micro_batch': '16', 'recompute': 'none', 'tokens': '300000000000'}
    """
    known = {name: value for name, value in record.known().items() if name in WORDED}
    texts = {name: value if isinstance(value, str) else f"{value:.15g}" for name, value in known.items()}
    return texts | {name: row[name] for name in NAMES if row.get(name)}


def stated(columns: Mapping[str, str], names: Iterable[str]) -> dict[str, float | str]:
    """Return what a row says of some columns, checked; raises UnreadableRowError naming the column and what is allowed.

    Examples
    --------
    >>> stated({"zero": "1", "recompute": "full", "seq": "4k"}, ["zero", "recompute", "seq", "interleave"])
    {'zero': 1.0, 'recompute': 'full', 'seq': 4096.0}
    """
    return {name: _checked(name, columns[name]) for name in names if name in columns}


def _checked(name: str, cell: str) -> float | str:
    if reason := too_long(name, cell):
        raise UnreadableRowError(reason)
    if name == "recompute":
        return _one_of(name, cell, {word: word for word in RECOMPUTES})
    if name == "sequence_parallel":
        return _one_of(name, cell, FLAGS)
    if name == "training_stack":
        return _one_of(name, cell, {word: word for word in trainers()})
    value = tokens(cell) if name == "seq" else number(cell)
    if name == "zero":
        return _one_of(name, f"{value:g}", {str(n): float(n) for n in range(4)})
    least, most, kind = (1.0, MOST, "whole numbers") if name in COUNTED else (0.0, HUGE, "numbers")
    most = 1.0 if name == "trainable_share" else most
    if math.isnan(value) or not least <= value <= most or (name in COUNTED and value % 1) or value == 0:
        above = "from 1" if name in COUNTED else "above 0"
        raise UnreadableRowError(f"{name} {shown(cell)}: allowed are {kind} {above} to {most:g}, or a blank cell")
    return value


def _one_of(name: str, cell: str, allowed: Mapping[str, float] | Mapping[str, str]) -> float | str:
    if cell.lower() not in allowed:
        raise UnreadableRowError(f"{name} {shown(cell)}: allowed are {', '.join(allowed)}, or a blank cell")
    return allowed[cell.lower()]


def described(name: str, columns: Mapping[str, str]) -> Transformer | None:
    """Return the model that a row describes: a GPT of printed widths, or one of the catalog as deep as it ran.

    None where the row states neither widths nor layers. Of the layers before the experts a cut model keeps one: with
    all three of DeepSeek-V3 a run on B200 would have taken 57 GiB, with one it takes 100, and 104 were measured.

    Examples
    --------
    >>> gpt = {"layers": "4", "hidden": "512", "heads": "8", "vocabulary": "1000"}
    >>> described("gpt tiny", gpt).n_layers, described("llama-3.1-8b", {"layers": "2"}).n_layers
    (4, 2)
    """
    shape = stated(columns, SHAPE)
    if not {"hidden", "layers"} & shape.keys():
        return None
    if "hidden" in shape and len(shape) < len(SHAPE):
        missing = ", ".join(one for one in SHAPE if one not in shape)
        raise UnreadableRowError(f"hidden {shown(columns['hidden'])}: a model of printed widths needs {missing} too")
    return _described(name, tuple(int(shape.get(one, 0)) for one in SHAPE))


@lru_cache(maxsize=512)
def _described(name: str, shape: tuple[int, ...]) -> Transformer:
    layers, hidden, heads, vocabulary = shape
    if not hidden:
        if name not in catalog():
            raise UnreadableRowError(f"layers {layers}: {shown(name)} is no id of the catalog, to cut so deep")
        values = dict(read_json(MODELS / catalog()[name].file)) | {"num_hidden_layers": layers}
        if values.get("first_k_dense_replace"):
            values["first_k_dense_replace"] = 1
        called = f"{name}-{layers}-layers"
    else:
        values = {"model_type": "gpt2", "n_embd": hidden, "n_head": heads, "n_layer": layers}
        values |= {"n_positions": GPT_POSITIONS, "vocab_size": vocabulary}
        called = name.replace(" ", "-").lower()
    try:
        return from_values(values, called)
    except ValueError as error:
        raise UnreadableRowError(str(error)) from None
