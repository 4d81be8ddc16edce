"""What every builder shares: channels in the visual language, titles, notes, labels at the ends of lines."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbook.charts import language
from trnbook.charts.display import alt
from trnbook.charts.tables import MARKS, is_number, on_ground, printed
from trnmodel.arguments import listed
from trnmodel.quantities import quantity

if TYPE_CHECKING:
    import pandas as pd

HEIGHT, LETTER, LINE = 280, 7.0, 16.0  # of a chart, of a letter's width and of a label's height. [px]
WIDTH = 520  # where a chart does not fill its column
MOST_LETTERS = 28  # of a label at the end of a line
MOST_LABELLED, MOST_MACHINES = 8, 12  # lines, beyond which a legend names them; greys in a legend are told apart badly
POINTS = 8  # of a line that is drawn hollow
SAME = 1.5  # up to which lines coincide. [px]
ROOM = 12  # beyond the first and the last mark of an axis of powers, which would be cut there. [px]
MOST_APART = 24  # marks of an axis of categories, beyond which they stand closer
MOST_LISTED = 2  # groups of lines that coincide
DIGITS = ",.3~r"  # of a number under the pointer, in d3's language
CROWD = 3  # lines, beyond which a reader may want a closer look


def highlighted(highlight: Collection[str]) -> list[str]:
    """Return the values of a chart that are not grey, each once; raise ValueError where they are no texts."""
    none = isinstance(highlight, tuple | list) and not highlight
    return [] if none else list(dict.fromkeys(listed("highlight", highlight, str)))


@dataclass(frozen=True, slots=True)
class Plot:
    """Data in printed units, and the channels that show its columns."""

    data: pd.DataFrame
    titles: dict[str, str]
    ground: str = ""
    highlight: Sequence[str] = ()

    @classmethod
    def of(cls, frame: pd.DataFrame, *columns: str | None, highlight: Sequence[str] = ()) -> Plot:
        """Return the named columns of a table, what the table says of its basis, and what is not grey."""
        return cls(*printed(frame, *columns), on_ground(frame, ""), highlight)

    @property
    def marks(self) -> list[str]:
        """Columns that mark some of the data."""
        return [name for name in MARKS if name in self.data and self.data[name].any()]

    @property
    def hollow(self) -> list[str]:
        """Conditions under which data is drawn hollow: where everything is announced, the note alone says so."""
        drawn = [name for name in self.marks if name == "estimate" or not self.data[name].all()]
        return [f"datum.{name}" for name in drawn] + [f"datum.basis == '{language.LOOSE}'"] * self.loose

    @property
    def loose(self) -> bool:
        """Whether some of the data leaves what was measured."""
        return "basis" in self.data and bool((self.data.basis == language.LOOSE).any())

    def has_several(self, of: str, column: str | None) -> bool:
        """Whether one category of an axis has several values of a column, which then stand side by side."""
        return column is not None and bool((self.data.groupby(of, sort=False)[column].nunique() > 1).any())

    def has_range(self, column: str) -> bool:
        """Whether the ends of a column's range are drawn."""
        return f"{column}_low" in self.data

    def machines(self, column: str | None) -> bool:
        """Whether a column names chips or systems."""
        return column is not None and any(language.machine(str(name)).chip for name in self.data[column].unique())

    def number(self, channel: Any, column: str, log: bool = False, end: str = "", **scale: Any) -> Any:
        """Position by a column, or by the `end` ("_low") of its range."""
        axis = {"format": language.PERCENT.get(column, ",~r" if log else ",~f"), "tickCount": 6}
        if log:
            scale |= {"type": "log", "nice": channel is not alt.X}
        return channel(field=column + end, type="quantitative", title=self.titles[column], axis=axis, scale=scale)

    def category(self, channel: Any, column: str, **options: Any) -> Any:
        """Position or shape by a category, in the frame's order."""
        title = self.titles[column] if quantity(column).title else None
        options = {"title": title, "sort": list(self.data[column].unique())} | options
        return channel(field=column, type="nominal", **options)

    def colour(self, channel: Any, column: str | None, *, alone: str | None = None, **options: Any) -> Any:
        """Colour by a category in the visual language; by that `alone` of an axis for machines, or to highlight."""
        machines = alone is not None and any(language.machine(str(x))[0] for x in self.data[alone].unique())
        if column is None and not machines and not (alone and self.highlight):
            return alt.value(language.PALETTE[0])
        names = [str(name) for name in self.data[column or alone].unique()]
        shown = [str(language.called(str(name))) for name in self.highlight]
        scale = {"domain": names, "range": language.colours(names, shown)}
        options |= {} if column else {"legend": None}
        return self.category(channel, column or str(alone), sort=None, scale=scale, **options)

    def picked(self, column: str | None, legend: bool = True) -> tuple[list[Any], dict[str, Any]]:
        """Return what lets a click on the legend, or on a mark of the layer that has it, single out one value.

        Parameters of the chart, and the encoding that they drive.
        """
        if column is None:
            return [], {}
        selection = alt.selection_point(name="picked", fields=[column], **({"bind": "legend"} if legend else {}))
        return [selection], {"opacity": alt.condition(selection, alt.value(1), alt.value(0.12))}

    def nearest(self, place: dict[str, Any]) -> Any:
        """Return what pointing anywhere in a chart tells: the datum that is nearest, in a ring."""
        near = alt.selection_point(name="near", on="pointerover", clear="pointerout", nearest=True, empty=False)
        ring = alt.Chart(self.data).mark_point(size=130, color="#888888", strokeWidth=2, opacity=0)
        shown = alt.condition(near, alt.value(1), alt.value(0))
        return self.with_tooltip(ring.add_params(near).encode(**place, opacity=shown))

    def hollowed(self, yes: Any, no: Any) -> Any:
        """Return a mark's property where the data is hollow, and elsewhere."""
        marked = " || ".join(self.hollow)
        return alt.condition(marked, alt.value(yes), alt.value(no)) if marked else alt.value(no)

    def with_tooltip(self, chart: Any) -> Any:
        """Return the chart with a tooltip of its columns, their ranges and the basis; a missing number is "none"."""
        shown = self.titles | {name: name for name in ("basis",) if name in self.data}
        for name, title in self.titles.items():
            ends = (("_low", "from"), ("_high", "to")) if self.has_range(name) else ()
            shown |= {name + end: f"{title}, {word}" for end, word in ends if name + end in self.data}
        texts = {name: f"{name}_text" for name in shown if is_number(self.data[name]) and self.data[name].isna().any()}
        for name, text in texts.items():
            value = f"datum[{json.dumps(name)}]"
            chart = chart.transform_calculate(**{text: f"isValid({value}) ? format({value}, '{DIGITS}') : 'none'"})
        number = {"type": "quantitative", "format": DIGITS}
        nominal = {"type": "nominal"}
        return chart.encode(
            tooltip=[
                alt.Tooltip(
                    field=texts.get(name, name),
                    title=title or name,
                    **(number if is_number(self.data[name]) and name not in texts else nominal),
                )
                for name, title in shown.items()
            ]
        )

    def ranged(self, chart: Any, column: str) -> Any:
        """Return the chart without rows whose range is unknown: of them no band and no whisker is drawn."""
        low = f"{column}_low"
        return chart.transform_filter(f"isValid(datum[{json.dumps(low)}])") if self.data[low].isna().any() else chart

    def finish(self, chart: Any, caption: str, under: str = "", notes: Sequence[str] = ()) -> Any:
        """Return the claim as title, below it the conditions and what is hollow or dashed; both as description."""
        drawn = [name for name in self.marks if f"datum.{name}" in self.hollow]
        meanings = [f"{'hollow' if name in drawn else 'all of it'}: {MARKS[name]}" for name in self.marks]
        caption, under, ground = map(language.named, (caption, under, self.ground))
        said = ground.strip(" ()")  # "extrapolated: stack on chip"
        if self.loose:
            parts = said.split("; ") if said else [language.LOOSE]
            said = "; ".join(sorted(f"hollow: {one}" if one.startswith(language.LOOSE) else one for one in parts))
        grey = [line for line in (under, "; ".join([*meanings, *notes]), said) if line]
        below = {"subtitle": _wrapped(grey)} if grey else {}
        title = alt.TitleParams(text=textwrap.wrap(caption, 76, break_on_hyphens=False), **below)
        whole = (f"{caption}. {under}" if under else caption) + ground
        return chart.properties(title=title, description=whole, usermeta={"under": grey})  # for lines of another length


def zoom() -> Any:
    """Axes that move: with Ctrl, by wheel and by dragging, so that a page still scrolls; a double click sets back."""
    key = "event.ctrlKey || event.metaKey"
    drag = f"[pointerdown[{key}], window:pointerup] > window:pointermove!"
    return alt.selection_interval(name="zoom", bind="scales", zoom=f"wheel![{key}]", translate=drag)


def _wrapped(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, 92, break_on_hyphens=False)]


def series(data: pd.DataFrame, keys: Sequence[str]) -> dict[tuple[str, ...], pd.DataFrame]:
    """Rows of each line, by the values that tell lines apart."""
    if not keys:
        return {(): data}
    return {tuple(map(_word, key)): rows for key, rows in data.groupby(list(keys), sort=False) if len(rows)}


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def marked(data: pd.DataFrame, x: str, y: str, keys: Sequence[str]) -> pd.DataFrame:
    """Rows of each line at which it carries a point: at most `POINTS`, spread evenly."""
    import pandas as pd

    parts = [data.iloc[:0]]
    for rows in series(data, keys).values():
        there = rows.dropna(subset=[x, y]).sort_values(x, kind="stable")
        places = np.unique(np.round(np.linspace(0, len(there) - 1, min(len(there), POINTS))).astype(int))
        parts.append(there.iloc[places])
    return pd.concat(parts)


def end_labels(data: pd.DataFrame, x: str, y: str, keys: Sequence[str], log: tuple[bool, bool]) -> pd.DataFrame:
    r"""Where the name of each line stands: at its end, moved until no two lie over each other.

    Lines that coincide have one label, which says so.

    Examples
    --------
    >>> import pandas as pd
    >>> flat = pd.DataFrame({"x": [1, 2, 1, 2], "y": [3.0, 4.0, 3.0, 4.0], "of": ["a", "a", "b", "b"]})
    >>> end_labels(flat, "x", "y", ["of"], (False, False)).label.tolist()
    ['a =\nb']
    """
    import pandas as pd

    shown = [data[name] for name in (y, f"{y}_low", f"{y}_high") if name in data]
    across, _ = _pixels([data[x]], data[x], WIDTH, log[0])
    up, back = _pixels(shown, data[y], HEIGHT, log[1], nice=True)
    groups: list[tuple[list[str], pd.DataFrame]] = []
    for key, rows in series(data.assign(_across=across, _up=up), keys).items():
        line = rows.dropna(subset=[x, y]).sort_values(x, kind="stable")
        if line.empty:
            continue
        twin = next((names for names, other in groups if _coincide(other, line)), None)
        if twin is None:
            groups.append(([", ".join(key)], line))
        else:
            twin.append(", ".join(key))
    if not groups:
        return pd.DataFrame(columns=[*data.columns, "label"])
    ends = pd.DataFrame([line.iloc[-1] for _, line in groups]).assign(label=[" =\n".join(names) for names, _ in groups])
    sizes = [(LETTER * letters(label), LINE * (label.count("\n") + 1)) for label in ends.label]
    centres = np.asarray(_apart(ends.pop("_across").to_numpy(), ends.pop("_up").to_numpy(), sizes))
    first = centres + [(high - LINE) / 2 for _, high in sizes]  # where the first line of a label stands
    return ends.assign(**{y: back(first)})


def _coincide(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether two lines cannot be told apart where they are drawn."""
    (x, y), (x2, y2) = (line[["_across", "_up"]].to_numpy(float).T for line in (one, other))
    if len(x) != len(x2) or np.abs(x - x2).max() > SAME:
        if max(abs(x[0] - x2[0]), abs(x[-1] - x2[-1])) > SAME:
            return False
        y = np.interp(x2, x, y)
    return bool(np.abs(y - y2).max() <= SAME)


def together(ends: Sequence[pd.DataFrame]) -> list[str]:
    """Return what a note says of lines that coincide where a legend names them."""
    labels = [label.replace(" =\n", " = ") for end in ends for label in end.label if " =\n" in label]
    several = list(dict.fromkeys(labels))
    more = [f"and {len(several) - MOST_LISTED} more"] if len(several) > MOST_LISTED + 1 else several[MOST_LISTED:]
    return [f"drawn over each other: {'; '.join([*several[:MOST_LISTED], *more])}"] if labels else []


def _pixels(
    every: Sequence[pd.Series], values: pd.Series, size: float, log: bool, nice: bool = False
) -> tuple[NDArray, Callable[..., NDArray]]:
    """Pixels of values on an axis that shows all of some columns, and the way back; `nice` ends at powers of ten."""

    def into(known: NDArray) -> NDArray:
        return np.log10(np.maximum(known, 1e-300)) if log else known

    known = np.concatenate([column.to_numpy(float) for column in every])
    known = into(known[np.isfinite(known) & ((known > 0) | (not log))])
    known = known if known.size else np.zeros(1)  # nothing is drawn
    low, high = float(known.min() if log else min(known.min(), 0.0)), float(known.max())
    if log and nice:
        low, high = float(np.floor(low)), float(np.ceil(high))
    per_pixel = (high - low) / size or 1.0

    def value(pixels: ArrayLike) -> NDArray:
        positions = low + np.asarray(pixels) * per_pixel
        return np.exp2(positions * np.log2(10.0)) if log else positions

    return (into(values.to_numpy(float)) - low) / per_pixel, value


def letters(label: str) -> int:
    """Of the longest line of a label."""
    return max(map(len, label.split("\n")))


def _apart(x: NDArray, y: NDArray, sizes: Sequence[tuple[float, float]]) -> list[float]:
    """Heights of labels by their width and height, each lifted as far as those below it ask for."""
    placed: list[tuple[float, float, float, float]] = []
    centres = dict[int, float]()
    for i in np.argsort(y, kind="stable"):
        at, (wide, high) = float(y[i]), sizes[i]
        for left, middle, width, height in sorted(placed, key=lambda one: one[1]):
            apart = x[i] >= left + width or left >= x[i] + wide
            if not apart and abs(at - middle) < (high + height) / 2:
                at = middle + (high + height) / 2
        placed.append((float(x[i]), at, wide, high))
        centres[int(i)] = at
    return [centres[i] for i in range(len(y))]
