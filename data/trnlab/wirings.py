"""What steps and collectives ask of the graphs of the catalog's systems, so that no process builds them anew.

`python -m trnlab.wirings` writes `data/systems/wirings.csv`: of each layout its media, its routes, what its weakest
chip can send, and the flow between all pairs of chips, each at unit rates. Systems of one layout share its rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trnmodel.catalog.systems import System, system, systems
from trnmodel.evidence.rows import save
from trnmodel.fabric import build
from trnmodel.fabric.wiring import SCOPES, Wiring, injection, pair, table_path, wiring

if TYPE_CHECKING:
    import pandas as pd


def layouts() -> dict[str, list[System]]:
    """Return the systems of the catalog that have links of published rates, by the digest of their layout."""
    found: dict[str, list[System]] = {}
    for where in map(system, systems()):
        try:
            rated = where.fabric != "single" and bool(build.unit_rates(where))
        except ValueError:  # no rate of its links is published
            continue
        if rated:
            found.setdefault(wiring(where).digest, []).append(where)
    return found


def answers(where: System) -> Iterator[tuple[str, str, str, tuple[float, ...], Any]]:
    """Yield what is asked of the graph of a system, its scope, a medium or routing, ratios of rates, and the answer."""
    wired, rates = Wiring(build.build(where), wiring(where).large), build.unit_rates(where)
    ratios = tuple(float(rate / rates[0]) for rate in rates)
    yield "media", "world", "", (), wired.media
    if where.fabric == "planes":
        yield "place_routes", "world", "", (), wired.place_routes
    for scope in SCOPES:
        yield "farthest_routes", scope, "", (), wired.farthest_routes(scope)
    for medium in ("", *wired.media):
        yield "injection", "world", medium, ratios, injection(wired, ratios, "world", medium)
    for scope in () if wired.large else SCOPES:
        yield "pair", scope, "free", ratios, pair(wired, ratios, scope, "free")


def table() -> pd.DataFrame:
    """Return a row for each answer of each layout."""
    import pandas as pd

    rows = []
    for digest, alike in layouts().items():
        of = {"layout": digest, "systems": " ".join(where.id for where in alike)}
        every = {answer[:4]: answer for where in alike for answer in answers(where)}
        for question, scope, name, ratios, value in every.values():
            printed = {"question": question, "scope": scope, "of": name, "ratios": " ".join(map(repr, ratios))}
            rows.append(of | printed | {"value": json.dumps(value)})
    return pd.DataFrame(rows)


def write() -> None:
    """Write the table."""
    save(table(), table_path())


if __name__ == "__main__":
    write()
