"""The running case: two models on three systems, one line of which each chapter explains.

Every figure is read off the plan of `tm.plan`, so that the strip at the head of a chapter, the chapter and the first
page have one answer. The case is fixed; a chapter's parameters do not change it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from trnbook import charts
from trnbook.charts.tables import Table
from trnmodel.catalog.load import precision
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.cost.tco import tco
from trnmodel.formulas.tco import HOURS_PER_YEAR
from trnmodel.reliability.goodput import replica_availability
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.plan import plan
from trnmodel.search.token_cost import token_cost
from trnmodel.steps.request import Request
from trnmodel.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd

PROMISES = {"llama-3.3-70b": 50.0, "deepseek-v3": 20.0}  # tokens/s per user
SYSTEMS = ("trn2.48xlarge", "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160")
INPUT_TOKENS, OUTPUT_TOKENS = 4096, 512
SERVED = "TP x EP, sequences of a replica"  # heads the whole case: each figure is one of this mapping
EXPLAINING = (  # chapters of the second part, in the order of the book
    *("chip-roofline", "neuroncore", "memory", "rack", "torus-or-switch", "switch-tray", "scale-out", "model-needs"),
    *("memory-fit", "decode-step", "serving", "software", "training", "power", "goodput"),
)
SUMMED = (
    "rack",
    "memory-fit",
    "chip-roofline",
    "model-needs",
    "memory",
    "neuroncore",
    "torus-or-switch",
)  # so that times add up


class Line(NamedTuple):
    """One line of the case: the chapter that explains it, its name and unit, and how it follows from a plan."""

    chapter: str
    name: str
    unit: str
    of: Callable[[Choice], float]


def _peak(c: Choice) -> float:
    """Return the peak of a chip in the format of the plan, which is an 8-bit one [FLOP/s]."""
    return float(c.system.chip.peak(precision(str(c.precision)).compute))


def _memory_bytes(c: Choice) -> float:
    """Return the bytes that the fullest chip of the plan's decode step holds [B]."""
    return float(c.step.memory_bytes_per_rank * c.step.ranks_per_chip)


def _ideal(c: Choice) -> float:
    """Return the throughput per chip of the best plan on software that loses nothing [tokens/s]."""
    best = plan(c.question.model, c.question.request, systems=c.system, efficiencies="ideal").best
    assert best is not None
    return float(best.tokens_per_s_per_chip)


def _lost_h(c: Choice) -> float:
    """Return the hours of a year in which a replica without a spare does not work [h]."""
    return float(1 - replica_availability(c.system, c.chips)) * HOURS_PER_YEAR


def _owner_usd(c: Choice) -> float:
    """Return what a million generated tokens cost the owner of the chips, with their prompts [USD]."""
    costs = token_cost(c.step.model, c.question.request, c.system, pricing=tco(c.system))
    return float(costs[c.system.id, "public"].generated_usd_per_mtoken)


LINES = (
    Line("chip-roofline", "Peak of a chip in 8 bits", "FLOP/s", _peak),
    Line("neuroncore", "Compute of a step, alone", "s", lambda c: float(c.step.compute_s)),
    Line("memory", "Reads of HBM in a step, alone", "s", lambda c: float(c.step.memory_s)),
    Line("rack", "Chips that serve a replica", "", lambda c: float(c.chips)),
    Line("torus-or-switch", "Exchanges of a step, alone", "s", lambda c: float(c.step.network_s)),
    Line("model-needs", "Bytes that a step reads", "B", lambda c: float(c.step.moved_bytes_per_rank * c.degrees.ranks)),
    Line("memory-fit", "Memory used per chip", "B", _memory_bytes),
    Line("decode-step", "Overheads of a step, fitted", "s", lambda c: float(c.step.overhead_s)),
    Line("decode-step", "Less what runs side by side", "s", lambda c: float(c.step.time_s - c.step.upper_s)),
    Line("decode-step", "Decode step", "s", lambda c: float(c.step.time_s)),
    Line("serving", "First token", "s", lambda c: float(c.ttft_s)),
    Line("serving", "Throughput per chip", "tokens/s", lambda c: float(c.tokens_per_s_per_chip)),
    Line("software", "The same on ideal software", "tokens/s", _ideal),
    Line("power", "Energy per token at the server", "J", lambda c: float(c.energy().server_j_per_token)),
    Line("goodput", "Hours lost in a year without a spare", "h", _lost_h),
    Line("cost", "Owner's cost per million tokens", "USD", _owner_usd),
)


def request(model: str) -> Request:
    """Return the request of a model of the case, with its promise to a user.

    Examples
    --------
    >>> request("deepseek-v3").tokens_per_s_per_user
    20.0
    """
    return Request(INPUT_TOKENS, OUTPUT_TOKENS, tokens_per_s_per_user=PROMISES[model])


@cache
def choice(model: str, system: str) -> Choice:
    """Return the plan of a model of the case on a system, on documented public software.

    Examples
    --------
    >>> choice("llama-3.3-70b", "trn2.48xlarge").stack_kind
    'public'
    """
    best = plan(model, request(model), systems=system).best
    assert best is not None
    return best


@cache
def value(line: Line, model: str, system: str) -> float:
    """Return the figure of a line in its unit."""
    return line.of(choice(model, system))


def lines(chapter: str) -> list[Line]:
    """Return the lines of the case that a chapter shows: those of the chapters up to it.

    The first page and the chapters of the first part show the whole case; the times of a step stand below each other.

    Examples
    --------
    >>> [line.name for line in lines("neuroncore")]
    ['Peak of a chip in 8 bits', 'Compute of a step, alone']
    >>> [line.name for line in lines("cost")][:2], len(lines("cost")) == len(LINES)
    (['Chips that serve a replica', 'Memory used per chip'], True)
    """
    if chapter not in EXPLAINING:
        return sorted(LINES, key=lambda line: SUMMED.index(line.chapter) if line.chapter in SUMMED else len(SUMMED))
    before = EXPLAINING[: EXPLAINING.index(chapter) + 1]
    return [line for line in LINES if line.chapter in before]


def so_far(chapter: str) -> pd.DataFrame:
    """Return the lines up to those of a chapter, which come last, with a column for each model and system.

    Examples
    --------
    >>> so_far("chip-roofline").shape
    (1, 7)
    """
    rows = [] if chapter in EXPLAINING else [{"so far": SERVED} | _served()]
    for line in lines(chapter):
        cells = {
            _column(m, read_system(s)): format_quantity(value(line, m, s), line.unit, 3)
            for m in PROMISES
            for s in SYSTEMS
        }
        rows.append({"so far": line.name} | cells)
    return tidy(rows)


def _served() -> dict[str, str]:
    """Return by column how a replica is cut and how many sequences it has, as each of its figures counts them."""
    best = {_column(m, read_system(s)): choice(m, s) for m in PROMISES for s in SYSTEMS}
    return {name: f"{c.degrees.tp:g} x {c.degrees.ep:g}, {c.batch:g}" for name, c in best.items()}


def _column(model: str, system: System) -> str:
    return f"{model}, {system.name}"


def table(chapter: str) -> Table:
    """Return the table at the head of a chapter: the case so far, whose last lines the chapter explains."""
    under = f"{INPUT_TOKENS:,} tokens in and {OUTPUT_TOKENS} out, the best 8-bit format, public software"
    return charts.table(so_far(chapter), caption=f"The running case so far: {under}", download="case")
