"""The one reader of YAML: plain values, each key once, no number that YAML 1.1 reads in base 60 or 8."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import yaml

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
_SHOWN = 40  # characters of a key or number in an error
# What the safe loaders raise on hostile text beside their own errors: impossible dates and digits (ValueError,
# OverflowError), `!!timestamp x` (AttributeError), `!!bool x` and `!!int ""` (LookupError), nesting without end.
_ERRORS = (yaml.YAMLError, ValueError, OverflowError, AttributeError, LookupError, RecursionError)


class YamlError(ValueError):
    """A text is not plain YAML; the message is one line, with the number of the line where that is known."""


class _Plain:
    """What is refused, for either of PyYAML's safe loaders."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave merge keys (`<<`) alone, whose aliases can ask for any amount of memory: they are an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping in which each key stands once."""
        mapping = super().construct_mapping(node, deep=deep)  # type: ignore[misc]
        if len(mapping) < len(node.value):
            keys = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)  # type: ignore[attr-defined]
                if key in keys:
                    _refuse(key_node, f"the key {str(key)[:_SHOWN]!r} stands twice")
                keys.add(key)
        return mapping

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        """Return the text of a value, which is no number that another reader would take for a different one."""
        text = super().construct_scalar(node)  # type: ignore[misc]
        if node.tag in _NUMBERS and (":" in text or _OCTAL.fullmatch(text)):
            base = 60 if ":" in text else 8
            _refuse(node, f"{text[:_SHOWN]!r} would be read in base {base}: write a decimal number, or quote the text")
        return text


class _Loader(_Plain, yaml.SafeLoader):
    """For text of others: PyYAML's compiled loader ends the process on text that is nested too deeply."""


class _CompiledLoader(_Plain, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """For the files of `data/`: ten times as fast, where it is installed."""


def _refuse(node: yaml.Node, problem: str) -> None:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def read(text: str | bytes, *, trusted: bool = False) -> Any:
    r"""Return the value that a YAML text stands for; a `trusted` text is one of this project.

    Raises YamlError.

    Examples
    --------
    >>> read("batch: 8\nphases: [decode]")
    {'batch': 8, 'phases': ['decode']}
    >>> read("batch: 8\nbatch: 9")
    Traceback (most recent call last):
    trnmodel.catalog.plain_yaml.YamlError: not plain YAML at line 2: the key 'batch' stands twice
    """
    try:
        return yaml.load(text, _CompiledLoader if trusted else _Loader)
    except _ERRORS as error:
        raise _error(error) from None


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    r"""Return the line of each key of the nested mappings of a YAML text, by the keys that lead to it.

    Raises YamlError, also for an alias: what stands twice for the price of one can be of any size.

    Examples
    --------
    >>> lines_of("request:\n  input_tokens: 8\nsystems: [trn2]")
    {('request',): 1, ('systems',): 3, ('request', 'input_tokens'): 2}
    >>> lines_of("a: &it [1]\nb: [*it, *it]")
    Traceback (most recent call last):
    trnmodel.catalog.plain_yaml.YamlError: not plain YAML at line 1: it is used again by an alias: write it out
    """
    try:
        return _lines(yaml.compose(text, _Loader))
    except _ERRORS as error:
        raise _error(error) from None


def lines_of_items(text: str) -> list[int]:
    r"""Return the line of each item of a list, or of the longest list of a mapping's values.

    Raises YamlError, also for an alias.

    Examples
    --------
    >>> lines_of_items("- a: 1\n  b: 2\n- a: 3"), lines_of_items("tp: 8\nrows:\n- a: 1")
    ([1, 3], [3])
    """
    try:
        top = yaml.compose(text, _Loader)
        _lines(top)  # refuses an alias
    except _ERRORS as error:
        raise _error(error) from None
    values = [value for _, value in top.value] if isinstance(top, yaml.MappingNode) else [top]
    lists = [value.value for value in values if isinstance(value, yaml.SequenceNode)]
    return [item.start_mark.line + 1 for item in max(lists, key=len, default=[])]


def _lines(top: yaml.Node | None) -> dict[tuple[str, ...], int]:
    lines: dict[tuple[str, ...], int] = {}
    seen, todo = set[int](), deque[tuple[tuple[str, ...], yaml.Node]]([((), top)] if top else [])
    while todo:
        path, node = todo.popleft()
        if id(node) in seen:
            _refuse(node, "it is used again by an alias: write it out")
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo.extend((path, item) for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*path, key.value if isinstance(key, yaml.ScalarNode) else "?")
                lines.setdefault(here, key.start_mark.line + 1)
                todo += [((), key), (here, value)]
    return lines


def _error(error: Exception) -> YamlError:
    """Return what is wrong with a text on one line."""
    mark = getattr(error, "problem_mark", None)
    place = f" at line {mark.line + 1}" if mark else ""
    reason = " ".join(str(getattr(error, "problem", None) or type(error).__name__).split())
    return YamlError(f"not plain YAML{place}: {reason[:160]}")
