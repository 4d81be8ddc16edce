"""Predicted against measured for every question and chip: two lists choose, and words below say how far off it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trnbook.charts import language
from trnbook.charts.explorers import BELOW, GREY, _choose, _finished, _lines, _log, _text_mark, _unfolded
from trnbook.charts.tables import check
from trnbook.shared.errors import CHIPS, QUESTIONS, chip_name

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

_POINTS = ["question", "chip", "model", "where", "source", "measured", "predicted"]
_LEVEL = 0.01  # signed error below which the middle prediction leans to no side
_UNKNOWN = "This collection has no measurement of this question on this chip"


def measured_and_predicted(
    points: pd.DataFrame, errors: pd.DataFrame, question: str, chip: str, *, caption: str, under: str = ""
) -> alt.LayerChart:
    """Return predictions against measurements on axes of powers; two lists choose a question and a chip.

    Below the chart stand the errors of what is chosen, and the number of configurations and pages that they rest on.

    Parameters
    ----------
    points : DataFrame
        What `accuracy.points` returns. [-]
    errors : DataFrame
        What `accuracy.by_chip` returns. [-]
    question, chip : str
        What the lists show first: a key of `accuracy.QUESTIONS`, and one of `accuracy.CHIPS`. [-]
    """
    check(points, caption, under=under, needed=_POINTS)
    kinds = [name for name in QUESTIONS if name in set(points.question)]
    params = [
        _choose("question", kinds, "Question", kinds.index(question)),
        _choose("chip", CHIPS, "Chip", CHIPS.index(chip)),
    ]
    drawn = _drawn(points, kinds)
    place = {
        "x": _log(alt.X, "m", None, padding=12),
        "y": _log(alt.Y, "p", None, padding=12),
    }
    names = list(CHIPS[1:])
    looks = {"domain": names, "range": [*language.colours(names[:-1]), GREY]}
    colour = alt.Color(
        field="name", type="nominal", title=None, scale=looks, legend=alt.Legend(orient="top-left", title=None)
    )
    ends = drawn.transform_aggregate(a="min(m)", b="max(m)").transform_fold(["a", "b"], as_=["end", "m"])
    axis = json.dumps([f"Predicted [{QUESTIONS[kind]}]" for kind in kinds])
    titled = alt.Chart(alt.InlineData(values=[{}])).transform_calculate(told=f"{axis}[question]")
    unit = json.dumps([f"Measured [{QUESTIONS[kind]}]" for kind in kinds])
    layers = [
        ends.mark_line(color=GREY, strokeWidth=1.5).encode(x=place["x"], y=_log(alt.Y, "m", None, padding=12)),
        drawn.mark_point(filled=True, size=42, opacity=0.75).encode(**place, color=colour, tooltip=_tips()),
        alt.layer(_lines(titled, -12, 12)),
        alt.layer(_text_mark(alt.Chart(alt.InlineData(values=[{}])), f"{unit}[question]", 36, 12, 0)),
        alt.layer(*_said(errors, kinds)),
    ]
    return _finished(alt.layer(*layers).add_params(*params), caption, under)


def _drawn(points: pd.DataFrame, kinds: list[str]) -> Any:
    """Return a chart of the points of the chosen question and chip; names travel once, points hold their places."""
    points = points.assign(where=points["where"].map(language.called))
    lists = {name: list(dict.fromkeys(points[name])) for name in ("model", "where", "source")}
    chips = points.chip.map(chip_name).map(CHIPS.index)
    rows = points.assign(
        k=points.question.map(kinds.index), c=chips, **{n: points[n].map(all_.index) for n, all_ in lists.items()}
    )
    short = {
        name: rows[column].map(lambda x: float(f"{x:.4g}")) for name, column in (("m", "measured"), ("p", "predicted"))
    }
    chart = _unfolded(rows[["k", "c", *lists]].assign(**short))
    chart = chart.transform_filter("datum.k == question && (chip == 0 || datum.c == chip)")
    texts = {
        name: f"{json.dumps(each)}[datum.{column}]"
        for name, column, each in (
            ("of", "model", lists["model"]),
            ("machine", "where", lists["where"]),
            ("page", "source", lists["source"]),
        )
    }
    off = "format(datum.p / datum.m - 1, '+.0%')"
    return chart.transform_calculate(name=f"{json.dumps(CHIPS)}[datum.c]", off=off, **texts)


def _tips() -> list[Any]:
    """Return what the pointer shows of a point."""
    names = {"of": "Model", "machine": "Machine", "name": "Chip", "off": "Error", "page": "Page"}
    numbers = {"m": "Measured", "p": "Predicted"}
    tips = [
        alt.Tooltip(field=name, type="quantitative", format=",.3~r", title=title) for name, title in numbers.items()
    ]
    return tips + [alt.Tooltip(field=name, type="nominal", title=title) for name, title in names.items()]


def _said(errors: pd.DataFrame, kinds: list[str]) -> list[Any]:
    """Return the words below the chart: the median error, what it rests on, nine in ten, and the middle's sign."""
    rows = errors.set_index(["question", "chip"])
    figures = ["configurations", "pages", "median_error", "p90_error", "bias_error"]
    table = [
        [
            [float(f"{x:.3g}") for x in rows.loc[(kind, chip), figures]] if (kind, chip) in rows.index else None
            for chip in CHIPS
        ]
        for kind in kinds
    ]
    one = alt.Chart(alt.InlineData(values=[{}])).transform_calculate(f=f"{json.dumps(table)}[question][chip]")
    known = one.transform_filter("isValid(datum.f)")
    many = [f"(datum.f[{i}] == 1 ? ' {name}' : ' {name}s')" for i, name in enumerate(("configuration", "page"))]
    rests = f"'median error, of ' + format(datum.f[0], ',') + {many[0]}"
    side = "'the middle one is too ' + (datum.f[4] > 0 ? 'high' : 'low') + ' by ' + format(abs(datum.f[4]), '.2~p')"
    lines = [
        rests,
        f"'on ' + datum.f[1] + {many[1]} + ' of measurements'",
        "'nine in ten are within ' + format(datum.f[3], '.2~p')",
        f"abs(datum.f[4]) < {_LEVEL} ? 'as many are too high as too low' : {side}",
    ]
    return [
        _text_mark(known, "format(datum.f[2], '.2~p')", BELOW, 22, 0),
        _text_mark(known, " + '\\n' + ".join(f"({line})" for line in lines), BELOW + 28, 14, 0),
        _text_mark(one.transform_filter("!isValid(datum.f)"), json.dumps(_UNKNOWN), BELOW, 16, 0),
    ]
