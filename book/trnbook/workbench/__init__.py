"""The workbench: controls over the public calls, in JupyterLab; what they show is worked out by pure functions.

`state` holds what the controls are set to, `answers` what follows from it, `shown` prints that as HTML, and `panel`
binds controls to it. Without JupyterLab `show` displays a table of the first state, the same bytes on every run.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trnbook.charts.display import VIEW
from trnbook.workbench import shown
from trnbook.workbench.answers import Answers, answers, best, side_by_side
from trnbook.workbench.state import ServingState, TrainingState

if TYPE_CHECKING:
    from trnbook.workbench.panel import Panel

__all__ = ["Answers", "ServingState", "TrainingState", "Workbench", "answers", "best", "show", "side_by_side"]

SESSION = "JPY_SESSION_NAME"  # which a Jupyter server sets for the kernel of an open notebook
MISSING = "The controls need ipywidgets: run `pip install 'trnmodel[lab]'` and restart the kernel."


class Workbench:
    """What `show` returns: in JupyterLab controls, elsewhere the figures of the first state.

    `state` and `answers` are those of the server that the controls are set to, so that cells below can go on with them.
    """

    def __init__(self, serving: ServingState, training: TrainingState, live: bool) -> None:
        self._first = serving
        self.missing = live and find_spec("ipywidgets") is None
        self.panel: Panel | None = None
        if live and not self.missing:
            from trnbook.workbench.panel import Panel

            self.panel = Panel(serving, training)

    @property
    def state(self) -> ServingState:
        """The server that the controls are set to."""
        return self.panel.serving.state if self.panel else self._first

    @property
    def answers(self) -> Answers:
        """What is shown of it."""
        return answers(self.state)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        table = shown.figures(answers(self._first))
        bundle: dict[str, Any] = {"text/html": table._repr_html_(), "text/plain": repr(table)}
        if self.missing:
            bundle = {"text/markdown": MISSING, "text/plain": MISSING}
        if self.panel:
            view = self.panel.box._repr_mimebundle_()
            bundle[VIEW] = view[VIEW]
        return bundle


def show(
    serving: ServingState | None = None, training: TrainingState | None = None, *, live: bool | None = None
) -> Workbench:
    """Return the workbench, set to a server and to a training step; the last line of a cell displays it.

    Parameters
    ----------
    serving : ServingState, optional
        Server that it begins with. [-]
    training : TrainingState, optional
        Training step that it begins with. [-]
    live : bool, optional
        Whether to make controls; default whether a Jupyter server started this kernel for an open notebook. [-]

    Returns
    -------
    workbench : Workbench
        With `state` and `answers`. [-]

    Examples
    --------
    >>> show(ServingState(tp=8)).state.tp
    8
    """
    here = SESSION in os.environ if live is None else live
    return Workbench(serving or ServingState(), training or TrainingState(), here)
