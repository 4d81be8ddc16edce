"""The controls of the workbench, bound to answers: a change is answered once the hand rests for a moment.

`ipywidgets` is imported here alone. What is shown is one HTML text per tab, so that a change redraws nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from html import escape
from pathlib import Path
from typing import Any, Generic, TypeVar

import ipywidgets as widgets
import yaml

import trnmodel as tm
from trnbook.charts.language import called
from trnbook.workbench import shown
from trnbook.workbench.answers import Answers, answers, best, side_by_side
from trnbook.workbench.state import ServingState, State, TrainingState, drafts, software, training_software
from trnmodel.catalog.load import precisions
from trnmodel.formulas.training import RECOMPUTES
from trnmodel.models.transformer import model_ids
from trnmodel.units import MS

REST_S = 0.04  # for which no control moves before the answer is worked out
SUFFIXES = (".yaml", ".yml")
MOST_SAVED = 3  # configurations side by side
DEGREES = sorted({odd * 2**power for odd in (1, 3, 9) for power in range(12) if odd * 2**power <= 2**11})
LARGEST = 10**9
SERVING = {  # controls of a server, in the order of the grid of four columns
    "model": "Model or path",
    "system": "System",
    "precision": "Precision",
    "lnc": "LNC",
    "tp": "TP",
    "ep": "EP",
    "pp": "PP",
    "cp": "CP",
    "batch": "Batch",
    "prompt": "Prompt",
    "context": "Context",
    "speed": "Promise",
    "software": "Software",
    "drafts": "Drafts",
}
TRAINING = {
    "model": "Model or path",
    "system": "System",
    "precision": "Precision",
    "lnc": "LNC",
    "tp": "TP",
    "pp": "PP",
    "dp": "DP",
    "ep": "EP",
    "cp": "CP",
    "interleave": "Interleave",
    "micro_batch": "Micro-batch",
    "global_batch": "Global batch",
    "seq": "Sequence",
    "recompute": "Recompute",
    "zero": "ZeRO",
    "tokens": "Run tokens",
    "software": "Software",
}
WIDE = ("software", "drafts")  # which have long names
HINTS = {
    "model": "A shipped model, or the path of your own config.json",
    "context": "Longest context in tokens: the prompt and its answer",
    "prompt": "Tokens of a prompt",
    "speed": "Speed in tokens/s that each user is promised; 0 is no promise",
    "lnc": "Physical cores of a rank",
    "batch": "Sequences of a replica",
    "seq": "Tokens of a sequence",
    "tokens": "Tokens of the whole run",
    "interleave": "Parts of the model that each stage has",
    "zero": "What replicas share out: 0 nothing, 1 the optimizer, 2 gradients too, 3 weights too",
    "recompute": "What the backward pass computes again",
}
S = TypeVar("S", ServingState, TrainingState)
Choices = list[tuple[str, Any]]


def _layout(**more: str) -> Any:
    return widgets.Layout(**{"width": "auto", "margin": "2px 4px"} | more)


def _control(name: str, title: str, value: Any) -> Any:
    """Return the control of a field: a list of names, a degree, a number, or a text with suggestions."""
    common: dict[str, Any] = {"description": title, "tooltip": HINTS.get(name, title)}
    common["layout"] = _layout()
    common["style"] = {"description_width": "96px"}
    if name == "model":
        ids = tuple(model_ids())
        return widgets.Combobox(value=value, options=ids, ensure_option=False, continuous_update=False, **common)
    if name in ("tp", "ep", "pp", "dp", "cp", "interleave"):
        return widgets.Dropdown(options=DEGREES, value=value, **common)
    if isinstance(value, float):
        return widgets.FloatText(value=value, continuous_update=False, **common)
    if isinstance(value, int) and name not in ("lnc", "zero"):
        return widgets.BoundedIntText(value=value, min=1, max=LARGEST, continuous_update=False, **common)
    fixed: Mapping[str, list[Any]] = {
        "precision": [*precisions()],
        "recompute": [*RECOMPUTES],
        "zero": [0, 1, 2, 3],
        "system": [(str(called(one)), one) for one in tm.systems()],
    }
    return widgets.Dropdown(options=fixed.get(name, [("as the chip", value)]), value=value, **common)


def _lnc_choices(system: str) -> Choices:
    """Return the sizes of a rank that a chip has; 0 is its default."""
    chip = tm.system(system).chip
    return [("default", 0), *((str(n), n) for n in (*chip.lnc_choices, *chip.lnc_announced))]


def _public(ids: Mapping[str, str]) -> Choices:
    """Return software by name, the chip's public stack first."""
    return [(name, one) for one, name in ids.items()]


class Tab(Generic[S]):
    """The controls of one question, what they are set to, and what is shown of it."""

    def __init__(self, state: S, titles: Mapping[str, str]) -> None:
        self.state: S = state
        self.answers: Answers = answers(state)
        self.took_s = self.worked_s = 0.0  # for the last answer, by the clock and of this processor
        self.saved: list[Answers] = []
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = False
        self.controls = {name: _control(name, title, getattr(state, name)) for name, title in titles.items()}
        self.said, self.page, self.beside = (widgets.HTML(layout=_layout()) for _ in range(3))
        self.keep = self._button("Keep", "Put this configuration beside up to two others", self._keep)
        self.clear = self._button("Clear", "Empty the table of configurations", self._clear)
        self.path = widgets.Text(value=self._default_path(), layout=_layout(width="220px"), tooltip="File to write")
        self.save = self._button("Save", "Write a scenario file that the command trnmodel reads", self._save)
        self._choices()
        for control in self.controls.values():
            control.observe(self._changed, names="value")
        self.refresh()

    def _button(self, title: str, hint: str, press: Callable[[], None]) -> Any:
        button = widgets.Button(description=title, tooltip=hint, layout=_layout(width="130px"))
        button.on_click(lambda _: press())
        return button

    def _default_path(self) -> str:
        return "serving.yaml"

    def _buttons(self) -> list[Any]:
        return [self.keep, self.clear, self.save, self.path]

    @property
    def box(self) -> Any:
        """The whole of the tab."""
        grids: list[Any] = [
            widgets.GridBox(
                [one for name, one in self.controls.items() if (name in WIDE) is wide],
                layout=_layout(grid_template_columns=f"repeat(auto-fit, minmax({least}px, 1fr))", width="100%"),
            )
            for wide, least in ((False, 228), (True, 456))
        ]
        row = widgets.HBox(self._buttons(), layout=_layout(flex_flow="row wrap"))
        return widgets.VBox([*grids, row, self.said, self.page, self.beside], layout=_layout(overflow="hidden"))

    def read(self) -> S:
        """Return the state that the controls are set to."""
        return replace(self.state, **{name: control.value for name, control in self.controls.items()})

    def set(self, state: S) -> None:
        """Set the controls to a state, and show its answers."""
        self._quiet = True
        try:
            for name in ("model", "system", *(one.name for one in fields(state))):
                self._set(name, getattr(state, name))
                if name in ("system", "software"):
                    self._choices()
        finally:
            self._quiet = False
        self.refresh()

    def _set(self, name: str, value: Any) -> None:
        """Set a control, in whose list a value that is not there yet is put."""
        control = self.controls[name]
        if isinstance(control, widgets.Dropdown):
            pairs: list[tuple[str, Any]] = [
                one if isinstance(one, tuple) else (str(one), one) for one in control.options
            ]
            if value not in [one for _, one in pairs]:
                control.options = [*pairs, (str(value), value)]
        control.value = value

    def _choices(self) -> None:
        """Fill the lists that follow from the model and the system; they stay where one of the two cannot be read."""
        try:
            for name, choices in self._lists().items():
                self._offer(name, choices)
        except ValueError:
            return

    def _lists(self) -> dict[str, Choices]:
        """Return the lists that follow from other controls."""
        return {"lnc": _lnc_choices(self.controls["system"].value)}

    def _offer(self, name: str, choices: Choices) -> None:
        """Put choices into a list, which keeps its value where it is still one of them."""
        control, values = self.controls[name], [value for _, value in choices]
        before, quiet = control.value, self._quiet
        self._quiet = True
        control.options = choices
        control.value = before if before in values else values[0]
        self._quiet = quiet

    def _changed(self, change: Any) -> None:
        """Answer once no control has moved for a moment; at once where nothing runs that could wake us."""
        if self._quiet:
            return
        if change["owner"] in (self.controls[name] for name in ("model", "system", "software")):
            self._choices()
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._timer = asyncio.get_running_loop().call_later(REST_S, self.refresh)
        except RuntimeError:
            self.refresh()

    def refresh(self) -> None:
        """Work out the answers of what the controls are set to, and show them."""
        start, worked = time.perf_counter(), time.thread_time()
        self._timer = None
        self.state = self.read()
        self.answers = answers(self.state)
        self.page.value = shown.page(self.answers)
        self.took_s, self.worked_s = time.perf_counter() - start, time.thread_time() - worked
        self._say(f"Answered in {self.took_s / MS:,.0f} ms.")

    def _say(self, text: str) -> None:
        self.said.value = f'<span class="trn-wb-said">{escape(text)}</span>'

    def _keep(self) -> None:
        self.saved = [*self.saved, self.answers][-MOST_SAVED:]
        self.beside.value = shown.compared_html(side_by_side(self.saved))

    def _clear(self) -> None:
        self.saved, self.beside.value = [], ""

    def _save(self) -> None:
        try:
            path = write(self.state, self.path.value)
        except (ValueError, OSError) as error:
            self._say(f"Nothing was written: {' '.join(str(error).split())}.")
            return
        self._say(f"Written to {path}. Ask again at the terminal: {self._again(path)}")

    def _again(self, path: Path) -> str:
        return f"trnmodel plan --scenario {path}"


class ServingTab(Tab[ServingState]):
    """The tab of a server, with the mapping that a plan finds."""

    def __init__(self, state: ServingState) -> None:
        self.find = self._button("Best mapping", "Let tm.plan choose mapping, batch and software", self._find)
        super().__init__(state, SERVING)

    def _buttons(self) -> list[Any]:
        return [self.find, *super()._buttons()]

    def _lists(self) -> dict[str, Choices]:
        model, system = (self.controls[name].value for name in ("model", "system"))
        there = software(model, system)
        chosen = self.controls["software"].value
        chosen = chosen if chosen in there else next(iter(there))
        drafting = [("none", ""), *_public(drafts(model, system, chosen))]
        return super()._lists() | {"software": _public(there), "drafts": drafting}

    def _find(self) -> None:
        try:
            state = best(self.read())
        except ValueError as error:
            self._say(f"No mapping was found: {' '.join(str(error).split())}.")
            return
        self.set(state)


class TrainingTab(Tab[TrainingState]):
    """The tab of a training step."""

    def __init__(self, state: TrainingState) -> None:
        super().__init__(state, TRAINING)

    def _default_path(self) -> str:
        return "training.yaml"

    def _lists(self) -> dict[str, Choices]:
        kinds = training_software(self.controls["system"].value)
        return super()._lists() | {"software": [(kind, kind) for kind in kinds]}

    def _again(self, path: Path) -> str:
        return f"trnmodel train --scenario {path}"


def write(state: State, path: str) -> Path:
    """Write a state as a scenario file, once it is known that it can be read.

    Raises ValueError where it is no scenario, OSError where the file cannot be written.
    """
    to, stated = Path(path).expanduser(), state.scenario
    tm.scenario(stated)
    if to.suffix not in SUFFIXES:
        raise ValueError(f"{path}: the name of a scenario ends in {' or '.join(SUFFIXES)}")
    to.write_text(yaml.safe_dump(stated, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return to


class Panel:
    """Both tabs of the workbench."""

    def __init__(self, serving: ServingState, training: TrainingState) -> None:
        self.serving, self.training = ServingTab(serving), TrainingTab(training)
        self.box = widgets.Tab([self.serving.box, self.training.box], titles=("Serving", "Training step"))
