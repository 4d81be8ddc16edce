"""Names as people type them: without case and separators, looked up in a table in which each means one thing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from trnmodel.arguments import SHOWN, instance, nearest, shown
from trnmodel.catalog.tables import DataError

NEAREST = 2
_SEPARATORS = re.compile(r"[\s_()-]+")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d) | (?!\d)")


def folded(name: str) -> str:
    """Return a name without case and without separators, other than those between two digits.

    Examples
    --------
    >>> folded("Trn3 NL32x2"), folded("DeepSeek V3"), folded("All-Reduce")
    ('trn3nl32x2', 'deepseekv3', 'allreduce')
    >>> folded("Llama 3.3 70B") == folded("llama-3.3-70b"), folded("gemma-2-2b") == folded("gemma-22b")
    (True, False)
    """
    return _NOT_BETWEEN_DIGITS.sub("", _SEPARATORS.sub(" ", name.casefold()).strip())


def index(ids_by_name: Iterable[tuple[str, str]], place: str) -> dict[str, str]:
    """Return the id that each folded name means; DataError, naming the `place`, where one name means two things.

    Examples
    --------
    >>> index([("Trn 2", "trainium2"), ("trn2", "trainium2")], "names.csv")
    {'trn2': 'trainium2'}
    """
    ids: dict[str, str] = {}
    for name, meant in ids_by_name:
        if ids.setdefault(folded(name), meant) != meant:
            raise DataError(f"{place}: {name!r} means {ids[folded(name)]} and {meant}")
    return ids


def nearest_ids(name: str, ids: Mapping[str, str]) -> list[str]:
    """Return the two ids with a name most like this one, as `arguments.nearest` finds names.

    Examples
    --------
    >>> ids = {"trainium2": "trainium2", "trn2": "trainium2", "h100": "h100", "trainium3": "trainium3"}
    >>> nearest_ids("trainium", ids)
    ['trainium2', 'trainium3']
    """
    like = nearest(folded(name[: 3 * SHOWN]), ids, least=0.0, count=len(ids))
    return list(dict.fromkeys(ids[one] for one in like))[:NEAREST]


def resolve(argument: str, name: str, ids: Mapping[str, str]) -> str:
    """Return the id that a name means; ValueError naming the argument and the two nearest ids where there is none.

    Examples
    --------
    >>> resolve("chip", "Trn-2", {"trn2": "trainium2"})
    'trainium2'
    """
    known = ids.get(folded(instance(argument, name, str, "an id or a name")))
    if known is None:
        raise ValueError(f"{argument}={shown(name)} is unknown; nearest: {', '.join(nearest_ids(name, ids))}")
    return known
