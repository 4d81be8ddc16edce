"""Draws that a reader asks: quantiles of a token's joules by system, speed and software, as lines to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trnbook.charts.explorers import (
    BELOW,
    DIGITS,
    DRAWN,
    GREY,
    _code,
    _finished,
    _log,
    _looks,
    _missing,
    _options,
    _place,
    _select,
    _text_mark,
    _unfolded,
)
from trnbook.charts.tables import axis_title, check

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt


def draws(frame: pd.DataFrame, chosen: Mapping[str, Any], *, caption: str, under: str = "") -> alt.LayerChart:
    """Share of draws that spend at most so many joules a token: controls choose the line, the others stand in grey.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns of `planner.joules.quantiles`.
    chosen : mapping
        What each control shows first, by name of the column.
    """
    figures = {"share_of_draws": "share", "server_j_per_token": "joule"}
    check(frame, caption, under=under, needed=(*DRAWN, *figures, "why"))
    options, chosen = _options(frame, DRAWN, chosen)
    placed = frame.assign(of=_place(frame, options), beside=_place(frame, dict(list(options.items())[1:])))
    rows = placed[placed.why == ""].rename(columns=figures)
    short = rows[["of", "beside", *figures.values()]].map(lambda value: float(f"{value:.4g}"))
    curve = _unfolded(short.assign(of=rows.of, beside=rows.beside))
    place = {"x": _log(alt.X, "joule", axis_title("server_j_per_token", "J")), "detail": alt.Detail("of:N")}
    axis = alt.Axis(format="%")
    place["y"] = alt.Y("share", type="quantitative", title="Share of draws at or below", axis=axis)
    colour, dash = _looks(options["system"])
    mine = curve.transform_filter("datum.of == of").transform_calculate(on="system")
    cuts = {name: f"datum.share == {share}" for name, share in (("low", 0.05), ("middle", 0.5), ("high", 0.95))}
    ends = {name: f"{where} ? datum.joule : 0" for name, where in cuts.items()}
    one = mine.transform_calculate(**ends)
    one = one.transform_aggregate(**{name: f"max({name})" for name in cuts})
    headline = f"format(datum.middle, {DIGITS}) + ' J a token, the median'"
    rest = "'nine of ten draws: ' + format(datum.low, ',.2r') + ' to ' + format(datum.high, ',.2r') + ' J'"
    layers = [
        curve.transform_filter("datum.beside == beside").mark_line(color=GREY, strokeWidth=1).encode(**place),
        mine.mark_line(strokeWidth=3, strokeDash=dash).encode(**place, color=alt.Color(**colour)),
        mine.transform_filter(" || ".join(cuts.values()))
        .mark_point(filled=True, opacity=1, size=70)
        .encode(**place, color=alt.Color(**colour)),
        alt.layer(_text_mark(one, headline, BELOW, 18), _text_mark(one, rest, BELOW + 26)),
        _missing(placed),
    ]
    params = [_select(name, options[name], chosen) for name in DRAWN] + [alt.param(name="of", expr=_code(options))]
    params += [alt.param(name="beside", expr=_code(dict(list(options.items())[1:])))]
    return _finished(alt.layer(*layers).add_params(*params), caption, under)
