"""A public call as data: its arguments with units and what they allow, and the JSON Schema of a question."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import trnmodel
from trnmodel.arguments import one_of, refuse, shown
from trnmodel.declared import Allowed, Flag, Integer, Named, Number, Numbers, Object, Word, declare, takes_none
from trnmodel.search.plan_data import data_schema

SECTION = re.compile(r"(?m)^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", re.DOTALL)
ENTRY = re.compile(r"(?m)^(\w[\w, ]*?) : .*\n((?:[ \t]+.*\n?|\n)*)|^(\w+(?:, \w+)+)\n((?:[ \t]+.*\n?|\n)*)")
AS_IN = re.compile(r"(?:As|The same as) in `(\w+)`")
UNIT = re.compile(r"\s*\[([^\]]*)\]\s*$")


class Argument(NamedTuple):
    """An argument of a public call: what it is, its unit, whether it may be left out or be None, and what it allows."""

    name: str
    description: str
    unit: str
    required: bool
    default: Any
    allowed: Allowed
    nullable: bool

    @property
    def help(self) -> str:
        """Return the first sentence of the description."""
        first = re.split(r"(?<=[.])\s|;", self.description)[0].rstrip(".")
        return f"{first}."

    @property
    def range(self) -> str:
        """Return unit and range in square brackets; nothing for what is neither a number nor one of a few words.

        Examples
        --------
        >>> arguments_of("decode_step")["context"].range, arguments_of("decode_step")["model"].range
        ('[token, from 1]', '')
        """
        if not isinstance(self.allowed, Numbers | Number | Integer | Word):
            return ""
        unit = [] if self.unit in ("", "-") else [self.unit]
        return f"[{', '.join([*unit, self.allowed.brief()])}]"


@cache
def calls() -> dict[str, Callable[..., Any]]:
    """Return the public calls whose arguments are declared, by name."""
    public = {name: getattr(trnmodel, name) for name in trnmodel.__all__}
    return {name: call for name, call in public.items() if hasattr(call, "allowed")}


def _described(function: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """Return description and unit of each argument, as the docstring gives them."""
    section = SECTION.search(inspect.getdoc(function) or "")
    described: dict[str, tuple[str, str]] = {}
    for entry in ENTRY.finditer(section[1] if section else ""):
        names, body = (entry[1], entry[2]) if entry[1] else (entry[3], entry[4])
        text = " ".join(body.split())
        unit = UNIT.search(text)
        for name in names.split(", "):
            described[name] = (UNIT.sub("", text), unit[1] if unit else "")
    return described


def arguments_of(name: str) -> dict[str, Argument]:
    """Return the arguments of a public call by name.

    Raises ValueError with the nearest names where there is no such call.

    Examples
    --------
    >>> batch = arguments_of("decode_step")["batch"]
    >>> batch.unit, batch.required
    ('-', True)
    """
    return _arguments(one_of("name", name, calls(), "a public call"))


@cache
def _arguments(name: str) -> dict[str, Argument]:
    """Return the arguments of a public call by name."""
    function = calls()[name]
    described = _described(function)
    arguments: dict[str, Argument] = {}
    for one in inspect.signature(function).parameters.values():
        text, unit = described.get(one.name, ("", ""))
        other = AS_IN.match(text)
        if other and other[1] in calls() and other[1] != name:
            same = arguments_of(other[1]).get(one.name)
            text, unit = (same.description, same.unit) if same else (text, unit)
        required = one.default is one.empty
        default = None if required else one.default
        allowed = function.allowed[one.name]  # type: ignore[attr-defined]
        arguments[one.name] = Argument(one.name, text, unit, required, default, allowed, takes_none(one))
    return arguments


@declare(name=Named("a public call"), answer=Flag())
def schema(name: str, *, answer: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a question: the arguments of a public call as an object of named values.

    Parameters
    ----------
    name : str
        A public call, such as "decode_step"; "scenario" gives the schema of a scenario file. [-]
    answer : bool
        Whether the schema is that of the answer as plain data, which `plan` alone has (`Plan.to_data`). [-]

    Returns
    -------
    schema : dict
        Types, ranges, descriptions with units and defaults, as draft 2020-12 has them. [-]

    Raises
    ------
    ValueError
        There is no public call of this name; the message has the nearest ones. The answer of another call than `plan`.

    Examples
    --------
    >>> import trnmodel as tm
    >>> question = tm.schema("decode_step")
    >>> question["required"]
    ['model', 'system', 'batch', 'context']
    """
    if answer:
        if name != "plan":
            refuse("answer", answer, f"allowed is False for {shown(name)}; only plan has a schema of its answer")
        return data_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_question(name)}


def _question(name: str) -> dict[str, Any]:
    """Return the schema of the arguments of a public call; that of an object whose numbers are declared is inside.

    A call that reads a file says by its `json_schema` what the file may hold.
    """
    arguments = arguments_of(name)
    own = getattr(calls()[name], "json_schema", None)
    if own:
        return own()
    return {
        "title": name,
        "description": (inspect.getdoc(calls()[name]) or "").partition("\n")[0],
        "type": "object",
        "properties": {argument.name: property_of(argument) for argument in arguments.values()},
        "required": [argument.name for argument in arguments.values() if argument.required],
        "additionalProperties": False,
    }


def property_of(argument: Argument) -> dict[str, Any]:
    """Return the JSON Schema of an argument, with its description, unit and default."""
    unit = "" if argument.unit in ("", "-") else f" [{argument.unit}]"
    described = f"{argument.description}{unit}"
    rule = _rule(argument.allowed)
    if argument.nullable:
        rule = {"anyOf": [rule, {"type": "null"}]}
    plain = isinstance(argument.default, str | int | float | bool)
    return {
        **rule,
        **({"description": described} if described else {}),
        **({"default": argument.default} if plain else {}),
    }


def _rule(allowed: Allowed | None) -> dict[str, Any]:
    """Return the schema of what an argument allows."""
    if isinstance(allowed, Object) and allowed.kind in calls().values():
        return _question(allowed.kind.__name__)
    return allowed.schema() if allowed else {}
