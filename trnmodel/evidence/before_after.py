"""Published measurements before and after one change of software: how often a gap closed, and by how much.

A line of `data/evidence/before_after.csv` has two figures of one model on one chip, under the same mapping, batch and
length, that differ by one named change. Lengths may differ by up to 5 %, and TP counts physical cores, so that a change
of logical cores keeps its mapping. Each figure is printed, or follows from a printed one by the arithmetic in the note.

Pairs are chosen by this rule and not by their result, so that some of them got slower:

- Measured rows of one page make a pair where their cells agree and one named option, kernel or number format differs.
- Official benchmark pages print some configurations again: each release with a new figure is paired with the release
  before it.
- Of a run, decode counts by its step and prefill by its first token, and a rate counts where the page prints no time.
- A sweep that changes something else (sizes, tokens, drafts) gives its least, middle and greatest point. A change that
  is repeated counts once, by its first run.
- "Before" is what the page calls the default or the baseline, or the older release.
- Tables of before and after in pages outside of the measured rows enter line by line, as far as each is one change. Of
  long pages and threads the stored beginning was read. GPUs are there for launches, padding and scheduling alone, where
  Trainium has few pairs.

Left out is a change of the computation itself (drafts, cached prefixes, recomputation, dropped tokens), of the engine,
or of how a model is cut over the ranks. So are several changes at once, a figure that its page withdraws, and the
tuning steps of a search for a kernel. A search counts as one change where it starts from a kernel that was given to it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec

from trnmodel.catalog import load, reader
from trnmodel.catalog.tables import DataError, by_id, check_listed, read_csv
from trnmodel.evidence.records import document

if TYPE_CHECKING:
    import pandas as pd

CLOSED = 1.05  # a smaller speedup is within what repeated runs differ by
Cause = Literal["launch", "layer overhead", "padding", "exchange", "kernel", "precision", "scheduling", "release"]


class Pair(msgspec.Struct, frozen=True):
    """Two published figures that differ by one change of software, as `data/evidence/before_after.csv` has them.

    The `cause` says which part of a step the change is about. `launch` is the start of graphs and calls, `layer
    overhead` are copies and other fixed work in each layer, `padding` are rows and tokens that nobody asked for,
    `exchange` are collectives, `kernel` is the code of an operator, and `precision` is a number format. `scheduling`
    is what runs when, and on which cores. A `release` is a new version whose page names no part. `before_id` and
    `after_id` name measured rows.
    """

    id: str
    source: str
    locator: str
    chip: str
    system: str
    model: str
    what: str
    cause: Cause
    quantity: str
    before: float
    after: float
    unit: str
    lower_is_better: bool
    stack: str
    before_id: str
    after_id: str
    note: str

    @property
    def speedup(self) -> float:
        """How many times as fast it is after the change, whatever the direction of the unit [-].

        Examples
        --------
        >>> row = before_after()["neuron-notes-2"]
        >>> row.what, row.before, row.after, round(row.speedup, 2)
        ('12 MoE layers in one graph in place of a graph for each', 8.5, 6.674, 1.27)
        """
        return self.before / self.after if self.lower_is_better else self.after / self.before


@cache
def before_after() -> dict[str, Pair]:
    """Return every pair by the id of its row.

    Raises DataError for a row without a locator, with a figure that is not positive, or with a chip or stack that
    `data/` does not list.

    Examples
    --------
    >>> len(before_after()) > 100
    True
    """
    rows = read_csv(load.DATA / "evidence" / "before_after.csv", Pair)
    lists = {"chip": {"", *load.chips()}, "stack": {"", *reader.ids("stack")}}
    for number, row in enumerate(rows, start=2):
        place = f"before_after.csv row {number} ({row.id})"
        check_listed(row, place, lists)
        if not (row.source and row.locator and row.before > 0 and row.after > 0):
            raise DataError(f"{place}: columns source, locator, before and after: one is empty or not positive")
    return by_id(rows, "id", "before_after.csv")


def pairs() -> pd.DataFrame:
    """Return the pairs as a table, one row each.

    Returns
    -------
    pairs : DataFrame
        The columns of `data/evidence/before_after.csv`, and `speedup`: times as fast as before [-], above 1 where the
        change helped.

    Examples
    --------
    >>> table = pairs()
    >>> slower = table[table.speedup < 1]
    >>> slower.loc[slower.what == "FP8 in place of BF16", ["quantity", "before", "after"]].values.tolist()[0]
    ['decode step on the device', 34.7, 58.7]
    """
    import pandas as pd

    return pd.DataFrame([msgspec.structs.asdict(row) | {"speedup": row.speedup} for row in before_after().values()])


def closed() -> pd.DataFrame:
    """Return how much the pairs of each cause gained.

    Returns
    -------
    causes : DataFrame
        One row for each `cause`: the number of `pairs` and of `sources` (pages, whatever their version), the `median`,
        `least` and `greatest` speedup [-], and `share_closed`, the share of pairs with a speedup above 1.05 [-].

    Examples
    --------
    >>> table = closed().set_index("cause")
    >>> int(table.pairs.sum()) == len(pairs()), bool((table.least <= table["median"]).all())
    (True, True)
    """
    table = pairs().assign(page=lambda one: one.source.map(document))
    grouped = table.assign(gained=table.speedup > CLOSED).groupby("cause", as_index=False)
    return grouped.agg(
        pairs=("id", "size"),
        sources=("page", "nunique"),
        median=("speedup", "median"),
        least=("speedup", "min"),
        greatest=("speedup", "max"),
        share_closed=("gained", "mean"),
    )
