"""Stand-in."""

from dataclasses import dataclass
from functools import lru_cache
from trnmodel.arguments import Same
from trnmodel.catalog.stacks import find


@dataclass(frozen=True, eq=False)
class Option:
    id: str
    name: str
    efficiencies: object
    draft_tokens: int = 0
    acceptance: float = 0.0
    lnc: object = None
    borrowed: str = ""


@lru_cache(maxsize=512)
def _plain(e):
    return (Option(e.it.id, "", e.it),)


def options(chip, model, efficiencies=None):
    return _plain(Same(find(chip, efficiencies, "efficiencies")))
