"""Untrusted `config.json` files -> checked fields.

A file is hostile until shown otherwise: that it is a file, its size, its nesting, doubled keys, NaN and every value
that is read are checked, and what is wrong becomes one ValueError that names the file, the key, the value and what is
allowed.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec

from trnmodel.arguments import nearest, refuse, shown
from trnmodel.catalog import untrusted
from trnmodel.catalog.load import DATA, read_csv
from trnmodel.catalog.untrusted import printed
from trnmodel.units import MIB

MAX_FILE_BYTES, MAX_DEPTH, MAX_DIGITS = MIB, 32, 4000
MAX_CLASSES, MAX_CLASS_NAME = 16, 100
MAX_LAYERS, MAX_HEADS, MAX_EXPERTS = 2**12, 2**14, 2**16
MAX_WIDTH, MAX_TABLE, MAX_TOKENS = 2**22, 2**24, 2**40

LAYERS = "num_hidden_layers|n_layer|num_layers|n_layers"
HIDDEN = "hidden_size|n_embd|d_model|dim"
HEADS = "num_attention_heads|n_head|num_heads|attention_heads|n_heads"
INNER = "intermediate_size|n_inner|ffn_dim|d_ff|hidden_dim"
POSITIONS = "max_position_embeddings|n_positions"
EXPERTS = "num_experts|num_local_experts|n_routed_experts"
SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
TOP_K = "num_experts_per_tok|experts_per_token"

_TASK = re.compile("For[A-Z]")
_ENDINGS = ("WithLMHeadModel", "LMHeadModel", "EncoderModel", "TextModel", "Model")
_POSITIVE = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "rope_theta")
_MISSING = object()


class DefaultRow(msgspec.Struct, frozen=True):
    """What an architecture's public implementation assumes where a file is silent; `key` "class" names the class."""

    model_type: str
    key: str
    value: str
    source: str
    locator: str


@cache
def defaults() -> Mapping[str, Mapping[str, Any]]:
    """Return the defaults of every known architecture by model_type."""
    table: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in read_csv(DATA / "models" / "defaults.csv", DefaultRow):
        table[row.model_type][row.key] = row.value if row.key == "class" else json.loads(row.value)
    return MappingProxyType(table)


def _refuse(origin: str, key: str, value: Any, allowed: str) -> NoReturn:
    refuse(f"{origin}: {key[:MAX_CLASS_NAME]}", value, allowed)


def _constant(origin: str, token: str) -> float:
    if token != "Infinity":  # time_step_limit of published Mamba files is [0.0, Infinity]
        raise ValueError(f"{origin}: {token} is not a number of JSON")
    return math.inf


def _whole(digits: str) -> int | float:
    """Return a whole number; one that no key takes and that Python would not print is infinite."""
    return int(digits) if len(digits) <= MAX_DIGITS else math.inf


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or in the `config.json` of a folder; raise one ValueError that says why not."""
    with suppress(OSError, ValueError):  # what is wrong with a path is told when it is read
        path = path / "config.json" if path.is_dir() else path
    content = untrusted.content("model", path, MAX_FILE_BYTES)
    hooks: dict[str, Any] = {"parse_constant": partial(_constant, printed(path)), "parse_int": _whole}
    return untrusted.json_object(content, f"model={printed(path)}", "a model configuration", MAX_DEPTH, **hooks)


@dataclass(frozen=True)
class Fields:
    """Typed access to a configuration; "a|b" names one quantity by several keys, which must agree."""

    values: Mapping[str, Any]
    origin: str
    model_type: str
    task: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def refuse(self, key: str, allowed: str, value: Any = _MISSING) -> NoReturn:
        """Raise the one error of a wrong value."""
        _refuse(self.origin, key, self.raw(key) if value is _MISSING else value, allowed)

    def raw(self, keys: str) -> Any:
        """Return the value of a key or the architecture's default; None where it is null or unknown."""
        names = keys.split("|")
        values = {name: self.values[name] for name in names if self.values.get(name) is not None}
        if len(values) > 1 and len({json.dumps(value) for value in values.values()}) > 1:
            _refuse(self.origin, "|".join(values), list(values.values()), "the keys name one quantity and disagree")
        if values or any(name in self.values for name in names):
            return next(iter(values.values()), None)
        return next((self.defaults[name] for name in names if name in self.defaults), None)

    def name(self, keys: str) -> str:
        """Return the key of a quantity that the file uses."""
        names = keys.split("|")
        present = [name for name in names if name in self.values]
        return next((name for name in present if self.values[name] is not None), (present or names)[0])

    def optional(self, keys: str, high: int = MAX_WIDTH, low: int = 1) -> int | None:
        """Return a whole number from low to high, or None where neither file nor architecture has one."""
        value = self.raw(keys)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.refuse(self.name(keys), f"allowed are whole numbers from {low} to {high}", value)
        return value

    def integer(self, keys: str, high: int = MAX_WIDTH, low: int = 1) -> int:
        """Return a whole number that the file must have, or that the architecture fixes."""
        value = self.optional(keys, high, low)
        if value is None:
            self.refuse(self.name(keys), f"missing; needed is a whole number from {low} to {high}", None)
        return value

    def flag(self, keys: str) -> bool:
        """Return true or false; false where neither file nor architecture says."""
        value = self.raw(keys)
        if value is not None and not isinstance(value, bool):
            self.refuse(self.name(keys), "allowed are true and false", value)
        return bool(value)

    def text(self, key: str, choices: Iterable[str]) -> str:
        """Return one of a closed list of words."""
        value, allowed = self.raw(key), sorted(choices)
        if not isinstance(value, str) or value not in allowed:
            self.refuse(key, f"allowed are {allowed}", value)
        return value

    def texts(self, keys: str, choices: Iterable[str], length: int | None = None) -> tuple[str, ...] | None:
        """Return a list of words, one for each layer, or None where it is absent."""
        value, allowed = self.raw(keys), sorted(choices)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(word, str) and word in allowed for word in value):
            self.refuse(self.name(keys), f"allowed are lists of {allowed}", value)
        if length is not None and len(value) != length:
            self.refuse(self.name(keys), f"has {len(value)} entries for {length} layers", value)
        return tuple(value)

    def layer_numbers(self, key: str, n_layers: int) -> frozenset[int] | None:
        """Return a list of layer indices, or None where it is absent."""
        value = self.raw(key)
        if value is None:
            return None
        whole = isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
        if not whole or not all(0 <= i < n_layers for i in value):
            self.refuse(key, f"allowed are lists of layer numbers from 0 to {n_layers - 1}", value)
        return frozenset(value)


def _class_names(values: Mapping[str, Any], origin: str) -> list[str]:
    names = values.get("architectures")
    if names is None:
        return []
    few = isinstance(names, list) and len(names) <= MAX_CLASSES
    if not few or not all(isinstance(name, str) and len(name) <= MAX_CLASS_NAME for name in names):
        allowed = f"up to {MAX_CLASSES} class names of up to {MAX_CLASS_NAME} characters"
        _refuse(origin, "architectures", names, f"allowed is a list of {allowed}")
    return names


def _parted(name: str) -> tuple[str, str] | None:
    """Return family and task of a class name: "LlamaForCausalLM" is ("Llama", "ForCausalLM")."""
    task = _TASK.search(name, 1)
    starts = [task.start()] if task else []
    starts += [len(name) - len(ending) for ending in _ENDINGS if name.endswith(ending) and name != ending]
    return (name[: min(starts)], name[min(starts) :]) if starts and name.isidentifier() else None


def _architecture(values: Mapping[str, Any], origin: str, outer: Mapping[str, Any]) -> tuple[str, str]:
    """Return model_type and task ("ForCausalLM", "Model") of a configuration; both must be known and agree."""
    named = _class_names(values, origin) or _class_names(outer, origin)
    classes = [parted for name in named if (parted := _parted(name))]
    model_type = values.get("model_type")
    if model_type is not None and not isinstance(model_type, str):
        _refuse(origin, "model_type", model_type, "allowed is the name of an architecture")
    if model_type is None and classes:
        family = classes[0][0].lower()
        model_type = next((kind for kind, row in defaults().items() if row["class"].lower() == family), None)
    if not model_type or model_type not in defaults():
        known = nearest(str(model_type), defaults())
        task = classes[0][1] if classes else "ForCausalLM"
        near = json.dumps({"model_type": known[0], "architectures": [defaults()[known[0]]["class"] + task]})
        by_class = model_type is None and named
        unknown = f"architectures={shown(named)}" if by_class else f"model_type={shown(model_type)}"
        raise ValueError(
            f"{origin}: {unknown}: not an architecture that trnmodel knows; nearest are {', '.join(known)}. "
            f"If its layers are built as those of {known[0]}, write this into a copy of the file: {near[1:-1]}"
        )
    own = defaults()[model_type]["class"]
    if values is outer and named and own.lower() not in [family.lower() for family, _ in classes]:
        _refuse(
            origin, "architectures", named, f"contradicts model_type={model_type!r}, whose classes begin with {own}"
        )
    return model_type, classes[0][1] if classes else ""


def read_fields(values: Mapping[str, Any], origin: str) -> Fields:
    """Return checked access to a parsed configuration; of a multimodal file, to its language model."""
    inner = values.get("text_config")
    if inner is not None and not isinstance(inner, dict):
        _refuse(origin, "text_config", inner, "allowed is an object")
    chosen = values if inner is None else inner
    if inner is not None and "tie_word_embeddings" in values:
        chosen = {"tie_word_embeddings": values["tie_word_embeddings"], **inner}
    origin = origin if inner is None else f"{origin}: text_config"
    model_type, task = _architecture(chosen, origin, values)
    for key in _POSITIVE:
        number = chosen.get(key)
        if number is not None and (type(number) not in (int, float) or not 0 < number < math.inf):
            _refuse(origin, key, number, "allowed are positive numbers")
    assumed = defaults()[model_type]
    if inner is None:  # only language models inside of multimodal files leave their shape to the architecture
        assumed = {key: value for key, value in assumed.items() if key not in SHAPE}
    return Fields(chosen, origin, model_type, task, assumed)
