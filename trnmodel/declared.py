"""What the arguments of a public call allow, declared once beside the call.

    @declare(batch=Numbers(1), context=Numbers(1), system=Named("a system"), breakdown=Flag())
    def decode_step(...):

A declared call checks its arguments where a user passes them, and hands them to the function as what the check returns:
numbers as float arrays. Calls that the library makes inside such a call are not
checked again. Error messages, the terminal's `--help`, the JSON Schema of a question and the hostile tests are made
from the same declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from math import inf
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from trnmodel import arguments
from trnmodel.arguments import HUGE, TINY

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[str, Any], Any]

_INSIDE: ContextVar[bool] = ContextVar("inside a declared call", default=False)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Base of what an argument allows: `check` refuses anything else by name, `convert` trusts what it gets.

    `CHECKS` and `CONVERTS` say whether they do anything.
    """

    CHECKS: ClassVar[bool] = True
    CONVERTS: ClassVar[bool] = False

    def check(self, name: str, value: Any) -> Any:
        """Return the value as the function takes it, or raise ValueError naming the argument and what is allowed."""
        raise NotImplementedError

    def convert(self, name: str, value: Any) -> Any:
        """Return a value that was checked before as the function takes it."""
        return value

    def describe(self) -> str:
        """Return what is allowed, as a phrase of a sentence."""
        raise NotImplementedError

    def brief(self) -> str:
        """Return what is allowed, as a note beside a flag of the terminal, where one value is typed."""
        return self.describe()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the argument."""
        raise NotImplementedError


def _range(low: float, high: float) -> str:
    """Return a range in words, without an end that no question reaches."""
    if low == -inf:
        return "of any sign"
    least = "above 0" if low == TINY else f"from {low:,.15g}"
    return least if high >= 2**53 else f"{least} to {high:,.15g}"


@dataclass(frozen=True, slots=True)
class Numbers(Allowed):
    """A number or an array of numbers; `unknown` lets NaN pass, where a figure may not be published."""

    CONVERTS: ClassVar[bool] = True

    low: float = 0.0
    high: float = HUGE
    whole: bool = False
    unknown: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return the numbers as an array of floats."""
        return arguments.numbers(name, value, self.low, self.high, whole=self.whole, unknown=self.unknown)

    def convert(self, name: str, value: Any) -> Any:
        """Return the numbers as an array of floats."""
        return np.asarray(value, float)

    def describe(self) -> str:
        """Return the range in words."""
        return f"{'whole numbers' if self.whole else 'numbers'} {_range(self.low, self.high)}"

    def brief(self) -> str:
        """Return the range."""
        return f"{'whole, ' if self.whole else ''}{_range(self.low, self.high)}"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a number or of nested lists of numbers."""
        number = _number_schema("integer" if self.whole else "number", self.low, self.high)
        return {"anyOf": [number, {"type": "array", "items": {"anyOf": [number, {"type": "array"}]}, "minItems": 1}]}


@dataclass(frozen=True, slots=True)
class Number(Allowed):
    """One number; `unknown` lets NaN pass."""

    CONVERTS: ClassVar[bool] = True

    low: float = 0.0
    high: float = HUGE
    unknown: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return the number as a float."""
        return arguments.number(name, value, self.low, self.high, unknown=self.unknown)

    def convert(self, name: str, value: Any) -> Any:
        """Return the number as a float."""
        return float(value)

    def describe(self) -> str:
        """Return the range in words."""
        return f"a number {_range(self.low, self.high)}"

    def brief(self) -> str:
        """Return the range."""
        return _range(self.low, self.high)

    def schema(self) -> dict[str, Any]:
        """Return the schema of a number."""
        return _number_schema("number", self.low, self.high)


@dataclass(frozen=True, slots=True)
class Integer(Allowed):
    """One whole number."""

    CONVERTS: ClassVar[bool] = True

    low: int = 1
    high: int = 2**53

    def check(self, name: str, value: Any) -> Any:
        """Return the number as an int."""
        return arguments.integer(name, value, self.low, self.high)

    def convert(self, name: str, value: Any) -> Any:
        """Return the number as an int."""
        return int(value)

    def describe(self) -> str:
        """Return the range in words."""
        return f"a whole number {_range(self.low, self.high)}"

    def brief(self) -> str:
        """Return the range."""
        return f"whole, {_range(self.low, self.high)}"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a whole number."""
        return _number_schema("integer", self.low, self.high)


def _number_schema(kind: str, low: float, high: float) -> dict[str, Any]:
    """Return the schema of one number in a range."""
    least = {} if low == -inf else {"exclusiveMinimum": 0} if low == TINY else {"minimum": low}
    return {"type": kind, **least} | ({} if high >= 2**53 else {"maximum": high})


@dataclass(frozen=True, slots=True)
class Flag(Allowed):
    """True or False."""

    def check(self, name: str, value: Any) -> Any:
        """Return the flag."""
        return arguments.flag(name, value)

    def describe(self) -> str:
        """Return both values."""
        return "True or False"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a flag."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Word(Allowed):
    """One of a closed list of words, or what a function lists when it is asked."""

    choices: Collection[str] | Callable[[], Collection[str]]

    def listed(self) -> list[str]:
        """Return the words in alphabetical order."""
        return sorted(self.choices() if callable(self.choices) else self.choices)

    def check(self, name: str, value: Any) -> Any:
        """Return the word."""
        return arguments.choice(name, value, self.listed())

    def describe(self) -> str:
        """Return the words."""
        return f"one of {', '.join(self.listed())}"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a closed list."""
        return {"enum": self.listed()}


@dataclass(frozen=True, slots=True)
class Text(Allowed):
    """Text of at most `longest` characters."""

    longest: int = 200

    def check(self, name: str, value: Any) -> Any:
        """Return the text."""
        return arguments.text(name, value, self.longest)

    def describe(self) -> str:
        """Return the limit in words."""
        return f"text of up to {self.longest} characters"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a text."""
        return {"type": "string", "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Named(Allowed):
    """The id or name of a thing of the catalogue, or the thing itself. The function reads it, and refuses what is none.

    Where a name is read together with others, what they resolve to is stored under them, so that it is read there.
    """

    CHECKS: ClassVar[bool] = False

    thing: str

    def check(self, name: str, value: Any) -> Any:
        """Return the name as it is."""
        return value

    def describe(self) -> str:
        """Return what may be named."""
        return f"the id or name of {self.thing}"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a name."""
        return {"type": "string", "minLength": 1}


@dataclass(frozen=True, slots=True)
class Object(Allowed):
    """An object of a type, or of one of some; `thing` says in words which."""

    kind: Any
    thing: str
    json: Mapping[str, Any] | None = None

    def check(self, name: str, value: Any) -> Any:
        """Return the object."""
        return arguments.instance(name, value, self.kind, self.thing)

    def describe(self) -> str:
        """Return what the object is."""
        return self.thing

    def schema(self) -> dict[str, Any]:
        """Return the schema that the declaration carries, or one that leaves the object open."""
        return dict(self.json or {})


@dataclass(frozen=True, slots=True)
class Several(Allowed):
    """A list of at least one, each item as a rule allows it."""

    rule: Allowed

    def check(self, name: str, value: Any) -> Any:
        """Return the items as a list."""
        return [self.rule.check(name, item) for item in arguments.listed(name, value)]

    def convert(self, name: str, value: Any) -> Any:
        """Return the items as a list."""
        return list(value)

    def describe(self) -> str:
        """Return what each item may be."""
        return f"a list of at least one, each {self.rule.describe()}"

    def schema(self) -> dict[str, Any]:
        """Return the schema of a list."""
        return {"type": "array", "items": self.rule.schema(), "minItems": 1}


@dataclass(frozen=True, slots=True)
class Checked(Allowed):
    """What the function checks by itself because it depends on other arguments; `thing` says what is allowed."""

    CHECKS: ClassVar[bool] = False

    thing: str
    json: Mapping[str, Any] | None = None

    def check(self, name: str, value: Any) -> Any:
        """Return the value as it is."""
        return value

    def describe(self) -> str:
        """Return what is allowed."""
        return self.thing

    def schema(self) -> dict[str, Any]:
        """Return the schema that the declaration carries."""
        return dict(self.json or {})


MODEL = Named("a model, or the path of its config.json")
SYSTEM = Named("a system")
MACHINE = Named("a system or a chip")
CHIP = Named("a chip")
PRECISION = Named("a precision")
STACK = Named("a software stack, the path of a stack file, or public, hand-tuned or ideal")

SEVERAL: dict[str, Any] = {"anyOf": [SYSTEM.schema(), {"type": "array", "items": SYSTEM.schema(), "minItems": 1}]}


def declare(*, passes_on: bool = False, **allowed: Allowed) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the arguments of a public call by their declarations.

    Every argument has a declaration. None passes where it is the default, or where the annotation has it. `passes_on`
    is for a call that hands a user's values to another declared call, which then has to check them.

    Examples
    --------
    >>> @declare(batch=Numbers(1), kind=Word(("ring", "tree")))
    ... def ask(batch, kind="ring"):
    ...     return batch * 2
    >>> ask([1, 2]).tolist()
    [2.0, 4.0]
    >>> ask(0)
    Traceback (most recent call last):
    ValueError: batch=0: allowed are numbers from 1 to 1e+30
    """

    def decorator(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        odd = sorted((parameters.keys() - {"self"}) ^ allowed.keys())
        if odd:
            raise TypeError(f"{function.__name__}: declarations and arguments differ in {', '.join(odd)}")
        checks = {name: rule.check for name, rule in allowed.items() if rule.CHECKS}
        function.allowed = allowed  # type: ignore[attr-defined]
        return _checking(function, checks, parameters, passes_on) if checks else function

    return decorator


def _defaults(allowed: Mapping[str, Allowed], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the defaults that a function takes in another form than its signature shows, checked once.

    Arrays among them cannot be written to, since all calls share them.
    """
    defaults: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if (
            name in allowed
            and allowed[name].CONVERTS
            and parameter.default is not None
            and parameter.default is not parameter.empty
        ):
            defaults[name] = allowed[name].check(name, parameter.default)
            if isinstance(defaults[name], np.ndarray):
                defaults[name].setflags(write=False)
    return defaults


def takes_none(parameter: inspect.Parameter) -> bool:
    """Return whether None passes: where it is the default, or where the annotation has it."""
    return parameter.default is None or "None" in str(parameter.annotation)


def _checking(
    function: Callable[P, R],
    checks: Mapping[str, Check],
    parameters: Mapping[str, inspect.Parameter],
    passes_on: bool,
) -> Callable[P, R]:
    """Return a function that checks its arguments, unless a call that was checked makes it."""
    allowed: Mapping[str, Allowed] = function.allowed  # type: ignore[attr-defined]
    converts = {name: rule.convert for name, rule in allowed.items() if rule.CONVERTS}
    defaults = _defaults(allowed, parameters)
    names = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = {name for name, one in parameters.items() if one.default is one.empty}
    optional = {name for name, one in parameters.items() if takes_none(one)}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) > len(names) or not kwargs.keys().isdisjoint(names[: len(args)]):
            return function(*args, **kwargs)  # which raises TypeError
        given = dict(zip(names, args, strict=False)) | kwargs if args else kwargs
        if not required <= given.keys() <= parameters.keys():
            return function(*args, **kwargs)  # which raises TypeError
        values, inside = defaults | given, _INSIDE.get()
        rules = converts if inside else checks
        for name in given:
            rule = rules.get(name)
            if rule and (values[name] is not None or name not in optional):
                values[name] = rule(name, values[name])
        if passes_on or inside:
            return function(**values)  # type: ignore[call-arg]
        mark = _INSIDE.set(True)
        try:
            return function(**values)  # type: ignore[call-arg]
        finally:
            _INSIDE.reset(mark)

    return call
