"""Several scenarios asked one question, in one table; any executor runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnmodel.arguments import ImpossibleError, listed, refuse
from trnmodel.catalog import untrusted
from trnmodel.declared import Checked, Flag, Word, declare
from trnmodel.files.layout import LOAD, SYSTEMS
from trnmodel.files.scenarios import Scenario, needed, scenario
from trnmodel.result import tidy
from trnmodel.search.sweep import checked_executor, with_bar

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

OF_ALL = ("plan", "capacity", "token_cost", "compare", "train_run")  # asked about all systems of a scenario together
OF_EACH = ("tco", "goodput", "energy")  # asked about each of its systems
MOST = 10_000


@declare(
    sources=Checked("a list of paths of scenario files, of mappings of the same keys, or of scenarios"),
    call=Word((*OF_ALL, *OF_EACH)),
    executor=Checked("an executor with .map, such as those of concurrent.futures", {}),
    progress=Flag(),
)
def scenario_table(
    sources: Iterable[Any], call: str = "plan", executor: Executor | None = None, progress: bool = True
) -> pd.DataFrame:
    """Return what one call answers of several scenarios, in one table.

    Parameters
    ----------
    sources : list of str, Path, Mapping or Scenario
        Scenarios, each as `tm.scenario` takes it; all are read before the first one is asked. [-]
    call : str
        What is asked: "plan", "capacity" (instances and bill of the best choice of a plan with a size), "token_cost",
        "compare" or "train_run" of all systems of a scenario; "tco", "goodput" or "energy" of each of them. [-]
    executor : concurrent.futures.Executor, optional
        Runs the scenarios: threads, processes, or a cluster, as in `tm.sweep`. Default: this thread. [-]
    progress : bool
        Show a bar over the scenarios. [-]

    Returns
    -------
    table : pandas.DataFrame
        The rows of `.to_frame(bands=True)` of each answer, in the order of the scenarios. `scenario` is the file, or
        the place in the list, from 1, of what is none. A scenario that nothing can satisfy has a row that is not
        `valid`, with the reason.

    Raises
    ------
    ValueError
        A scenario cannot be read, or does not state what the call needs; the message names it.

    Examples
    --------
    >>> asked = {"model": "llama-3.1-8b", "systems": ["trn2.3xlarge"], "step": {"tp": 4, "batch": 8, "context": 2048}}
    >>> table = scenario_table([asked, asked | {"precision": "fp8"}], "energy", progress=False)
    >>> table[["scenario", "system", "precision"]].values.tolist()
    [['1', 'trn2.3xlarge', 'bf16'], ['2', 'trn2.3xlarge', 'fp8']]
    """
    checked_executor(executor)
    named = [(_label(source, place), source) for place, source in enumerate(_listed(sources), 1)]
    read = [(label, _naming(label, partial(scenario, source))) for label, source in named]
    ask = partial(_rows, call=call)
    answers = map(ask, read) if executor is None else executor.map(ask, read)
    return _below(with_bar(answers, len(read), progress))


def _listed(sources: Any) -> list[Any]:
    """Return the scenarios as a list; one of them alone is refused."""
    if isinstance(sources, Mapping | Scenario):
        refuse("sources", type(sources).__name__, "allowed is a list of scenarios")
    every = listed("sources", sources)
    return every if len(every) <= MOST else refuse("sources", f"{len(every)} scenarios", f"allowed are up to {MOST}")


def _label(source: Any, place: int) -> str:
    """Return what a table calls a scenario: its file, or its place in the list."""
    if isinstance(source, str | Path):
        return untrusted.printed(Path(source)) if "\0" not in str(source) else str(place)
    return (source.origin if isinstance(source, Scenario) else "") or str(place)


def _naming(label: str, ask: Callable[[], Any]) -> Any:
    """Return what is asked; name the scenario in what is refused."""
    try:
        return ask()
    except ValueError as error:
        text = str(error)
        known = text if text.startswith(f"{label}:") else f"scenario {label}: {text.removeprefix('scenario: ')}"
        raise type(error)(known) from None


def _rows(read: tuple[str, Scenario], call: str) -> pd.DataFrame:
    """Return the rows of one scenario, with what the table calls it in front."""
    label, one = read
    try:
        rows = _naming(label, partial(_answer, one, call))
    except ImpossibleError as error:
        rows = tidy([{"model": one.model.id, "valid": False, "reason": str(error)}])
    rows.insert(0, "scenario", label)
    return rows


def _answer(one: Scenario, call: str) -> pd.DataFrame:
    """Return the table of what a call answers of a scenario."""
    if call == "capacity":
        return _counted(one)
    ask = getattr(one, call)
    if call in OF_EACH:
        return _below(ask(system).to_frame(bands=True) for system in needed(one, SYSTEMS))
    return ask().to_frame(bands=True)


def _counted(one: Scenario) -> pd.DataFrame:
    """Return the instances and the bill of the best choice of a plan."""
    if not one.load and not (one.request and one.request.requests_per_s):
        needed(one, LOAD)
    answer = one.plan()
    if answer.capacity is None:
        pair = "no instances are counted of a pair of systems"
        raise ImpossibleError(pair if answer.best else answer.nearest or "no system keeps the promises")
    return answer.capacity.to_frame(bands=True)


def _below(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return tables below each other."""
    import pandas as pd

    return pd.concat(list(frames), ignore_index=True)
