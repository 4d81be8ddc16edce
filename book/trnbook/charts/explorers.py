"""Charts that a reader asks: controls over a grid that the page carries, and what is chosen in words and bars.

They are Vega-Lite alone, so that they live in JupyterLab and in a page from a folder. Numbers travel as columns
of four digits each, options as their places in lists.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from trnbook.charts import language
from trnbook.charts.plot import HEIGHT, Plot, highlighted
from trnbook.charts.tables import axis_title, check, rounded
from trnmodel.arguments import TINY, instance, number, refuse
from trnmodel.catalog.systems import system as read_system
from trnmodel.catalog.systems import systems
from trnmodel.result import BASES
from trnmodel.units import HOUR, MILLION, MS, TB, TFLOP

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
else:
    from trnbook.charts.display import alt

CONTROLS = {"model": "Model", "system": "System", "stack_kind": "Software", "precision": "Number format"}
PARTS = {"compute_s": "compute", "memory_s": "memory", "network_s": "network", "overhead_s": "software"}
FIELDS = {"place": "n", "promised_tokens_per_s_per_user": "user", "tokens_per_s_per_chip": "chip"}
FIELDS |= {"tokens_per_s_per_chip_low": "low", "tokens_per_s_per_chip_high": "high"}
FIELDS |= {"chance": "chance", "decode_tokens_per_s_per_chip": "alone", "time_s": "step"}
FIELDS |= {name: name for name in ("tp", "ep", "pp", "cp", "batch", "chips")} | PARTS | {"basis": "basis"}
FIELDS |= {"server_j_per_token": "joule", "server_j_per_token_low": "jlow", "server_j_per_token_high": "jhigh"}
FIELDS |= {"energy_basis": "jbasis"}
HOURLY = ["useful_usd_per_h", "useful_usd_per_h_low", "useful_usd_per_h_high"]
MEASURES = {
    "tokens/s a chip": "Throughput per paid chip [tokens/s]",
    "J a token": axis_title("server_j_per_token", "J"),
}
MEASURES |= {"USD a million tokens": "Cost of a million tokens to an owner [USD]"}
SHOWN = {"y": ("chip", "joule", "usd"), "least": ("low", "jlow", "ulow"), "most": ("high", "jhigh", "uhigh")}
SHOWN |= {"ground": ("basis", "jbasis", "hour[3]")}
UNKNOWN = ("", "No source has watts of this chip", "No source prices this system")
DRAWN = {"system": "System", "wanted_tokens_per_s_per_user": axis_title("tokens_per_s_per_user")}
DRAWN |= {"software": "Software"}
ROOFS = {"chip": "Chip", "dtype": "Number format"}
ROOF = ["peak_flop_per_s", "hbm_bytes_per_s", "ridge_flop_per_byte"]
ROOF += ["ridge_flop_per_byte_low", "ridge_flop_per_byte_high", "estimate"]
STOPS = 60  # of a pointer along a roof
POWERS = 100  # steps of a slider in a power of ten
GREY = "#888888"
BELOW, LINE = 70, 21  # from the axis to the first line of what is chosen, and from line to line. [px]
NAMES, FIGURES = 30, 72  # beside bars: names of parts, and their times. [px]
LEFT = -44  # where text begins: below the labels of the axis. [px]
LETTERS = 38  # of a line that a phone holds
INK = "currentColor"  # of the page, light or dark
DIGITS = "(datum.high / datum.low > 1.1 ? ',.2r' : ',.3r')"  # as `units.format_within` has them, in d3's language


def frontier(frame: pd.DataFrame, chosen: Mapping[str, Any], *, caption: str, under: str = "") -> alt.LayerChart:
    """Throughput per paid chip, joules or dollars over the promised speed; controls choose a line, a pointer its point.

    All three are of whole requests. Below the line stand the point's figures with band, basis and the chance that the
    promise is kept, its mapping, what a chip makes of decoding alone, and the decode step taken apart.
    A combination without points, watts or price says why in place of a line.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns of `planner.explore.frontier_grid`.
    chosen : mapping
        What each control shows first, by name of the column.
    """
    check(frame, caption, under=under, needed=(*CONTROLS, *FIELDS, *HOURLY, "cost_basis", "why"))
    options, chosen = _options(frame, CONTROLS, chosen)
    placed = frame.assign(of=_place(frame, options))
    curve = _curve(placed)
    seen = {"titleOpacity": {"expr": "drawn"}, "domainOpacity": {"expr": "drawn"}}
    x = partial(_log, alt.X, title=axis_title("promised_tokens_per_s_per_user"), axis=seen, padding=12)
    y = partial(_log, alt.Y, title=None, axis=seen, padding=12)
    place = {"x": x("user"), "y": y("y")}
    most = int(placed.place.fillna(2).max())
    colour, dash = _looks(options["system"])
    own = place | {"color": alt.Color(**colour)}
    slider = alt.binding_range(min=1, max=most, step=1, name="Point, from the slowest promise ")
    pick = alt.selection_point(
        name="pick",
        fields=["n"],
        on="path:pointerover",
        nearest=True,
        clear=False,
        value=[{"n": (1 + most) // 2}],
        bind={"n": slider},
    )
    points = curve.mark_point(filled=True, opacity=1, size=70, strokeWidth=1.8)
    hollow = alt.condition(f"datum.ground == {BASES.index(language.LOOSE)}", alt.value(0), alt.value(1))
    layers = [
        curve.mark_area(fillOpacity=language.BAND_OPACITY).encode(**own | {"y": y("least")}, y2=alt.Y2("most")),
        curve.mark_line(strokeDash=dash).encode(**own),
        points.encode(**own, stroke=alt.Stroke(**colour), fillOpacity=hollow).add_params(pick),
        *_chosen_point(curve, own, colour),
        alt.layer(_missing(placed), _unlit()),
        _axis_title(),
    ]
    lit = placed[placed.why == ""]
    none = json.dumps(sorted(set(placed.of[placed.why != ""])))
    dark = [sorted(set(lit.of[lit[name].isna()])) for name in ("server_j_per_token", HOURLY[0])]
    params = [_select(name, options[name], chosen) for name in CONTROLS]
    params.append(_choose("measure", list(MEASURES), "Axis"))
    params.append(alt.param(name="of", expr=_code(options)))
    params.append(alt.param(name="hour", expr=f"{json.dumps(_hours(placed, options['system']))}[system]"))
    params.append(alt.param(name="unlit", expr=f"indexof({json.dumps([[], *dark])}[measure], of) >= 0"))
    params.append(alt.param(name="drawn", expr=f"indexof({none}, of) < 0 && !unlit ? 1 : 0"))
    return _finished(alt.layer(*layers).add_params(*params), caption, under)


def _curve(placed: pd.DataFrame) -> Any:
    """Points of the combination chosen, with what the axis shows of each; none where that is unknown."""
    ends = dict.fromkeys(("low", "high"), "datum.chip")  # what has no band has its ends in its value
    either = {name: f"[{', '.join(_one(each, ends) for each in one)}][measure]" for name, one in SHOWN.items()}
    curve = (
        _curve_rows(placed[placed.why == ""])
        .transform_filter("datum.of == of")
        .transform_calculate(
            usd="hour[0] / datum.chip",  # of no hour no number
            ulow=f"datum.usd / exp(sqrt(hour[1] + pow(log({_one('high', ends)} / datum.chip), 2)))",
            uhigh=f"datum.usd * exp(sqrt(hour[2] + pow(log(datum.chip / {_one('low', ends)}), 2)))",
        )
    )
    return curve.transform_calculate(on="system", **either).transform_filter("isValid(datum.y)")


def _hours(placed: pd.DataFrame, systems: Sequence[str]) -> list[list[float]]:
    """By system: tokens/s at which a million cost a dollar, squares of its half-widths, and what it rests on."""
    hours = {}
    for name, rows in placed[placed[HOURLY[0]] > 0].groupby("system", sort=False):
        low, value, high = (float(rows[column].iloc[0]) for column in (HOURLY[1], HOURLY[0], HOURLY[2]))
        widths = (math.log(value / low) ** 2, math.log(high / value) ** 2)
        ground = BASES.index(rows.cost_basis.iloc[0])
        hours[name] = [*(float(f"{x:.4g}") for x in (value * MILLION / HOUR, *widths)), ground]
    return [hours.get(name, []) for name in systems]  # of an unpriced one no numbers


def _one(name: str, ends: Mapping[str, str]) -> str:
    """Return a field as an expression, with what stands for it where it is empty; an expression as it is."""
    field = name if "[" in name else f"datum.{name}"
    return f"({field} || {ends[name]})" if name in ends else field


def _axis_title() -> Any:
    """Return what the axis shows, above its end: a title that the axis itself cannot change."""
    title = f"{json.dumps(list(MEASURES.values()))}[measure]"
    one = alt.Chart(alt.InlineData(values=[{}])).transform_filter("drawn").transform_calculate(told=title)
    return alt.layer(_lines(one, -12, 12))


def _finished(chart: Any, caption: str, under: str) -> Any:
    """Title and description as every chart has them."""
    import pandas as pd

    return Plot(pd.DataFrame(), {}).finish(chart.properties(height=HEIGHT), caption, under)


def _options(
    frame: pd.DataFrame, controls: Mapping[str, str], chosen: Mapping[str, Any]
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return what each control offers, and what it shows first, both checked."""
    options = {name: list(dict.fromkeys(frame[name])) for name in controls}
    instance("chosen", chosen, Mapping, f"a mapping of {', '.join(controls)}")
    for name, value in chosen.items():
        if name not in options or value not in options[name]:
            shown = ", ".join(map(str, options.get(name, controls)))
            refuse(f"chosen[{name!r}]", value, f"allowed are {shown}")
    return options, {name: values[0] for name, values in options.items()} | dict(chosen)


def _code(options: Mapping[str, Sequence[Any]]) -> str:
    """Return the number of a combination, as an expression over the controls."""
    number = "0"
    for name, values in options.items():
        number = f"({number}) * {len(values)} + {name}"
    return number


def _place(grid: pd.DataFrame, options: Mapping[str, Sequence[Any]]) -> pd.Series:
    """Return the same number of each row."""
    numbers = 0
    for name, values in options.items():
        numbers = numbers * len(values) + grid[name].map(values.index)
    return numbers


def _curve_rows(rows: pd.DataFrame) -> Any:
    """Return a chart of the points of all combinations, times in milliseconds, without ends that equal their value."""
    times = {name: rows[name] / MS for name in FIELDS if name.endswith("_s")}
    named = rows.assign(**times)[["of", *FIELDS]].rename(columns=FIELDS)
    for name in ("basis", "jbasis"):
        named[name] = named[name].map({word: place for place, word in enumerate(BASES)})
    short = named.map(lambda value: float(f"{value:.4g}")).assign(of=named.of)
    for name in ("low", "high"):
        short[name] = short[name].where(short[name] != short["chip"])
    return _unfolded(short)


def _unfolded(rows: pd.DataFrame) -> Any:
    """Return a chart of rows that travel as one list for each column; a missing number is null.

    Comma separated text is as short, but a browser parses it by `new Function`, which the book's policy forbids.
    """
    columns = {name: [None if x != x else x for x in rows[name].tolist()] for name in rows}
    return alt.Chart(alt.InlineData(values=[columns])).transform_flatten(list(columns))


def _log(channel: Any, field: str, title: str | None, axis: Mapping[str, Any] | None = None, **scale: Any) -> Any:
    """Position on an axis of powers."""
    axis = {"format": ",~r", "tickCount": 5, "labelOverlap": True} | dict(axis or {})
    return channel(
        field=field, type="quantitative", title=title, axis=axis, scale={"type": "log", "nice": False} | scale
    )


def _looks(systems: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Colour of the system chosen, by its place, and its dash."""
    scale = {"domain": list(range(len(systems))), "range": language.colours(systems)}
    dashes = language.dashes(systems) or [[1, 0]] * len(systems)
    colour = {"field": "on", "type": "nominal", "scale": scale, "legend": None}
    return colour, {"expr": f"{json.dumps(dashes)}[system]"}


def _select(name: str, values: Sequence[Any], chosen: Mapping[str, Any]) -> Any:
    """Return a control: a list of options by their names."""
    title = (CONTROLS | ROOFS | DRAWN)[name]
    return _choose(name, _named(name, values), title, values.index(chosen[name]))


def _choose(name: str, labels: Sequence[str], title: str, first: int = 0) -> Any:
    """Return a control whose value is the place of a label."""
    bind = alt.binding_select(options=list(range(len(labels))), labels=list(labels), name=f"{title} ")
    return alt.param(name=name, value=first, bind=bind)


def _named(name: str, values: Sequence[Any]) -> list[str]:
    """Options as people call them."""
    if name == "system":
        return [read_system(value).name if value in systems() else value for value in values]
    return [value.upper() if name in ("precision", "dtype") else str(value).removesuffix(".0") for value in values]


def _chosen_point(curve: Any, own: Mapping[str, Any], colour: Mapping[str, Any]) -> list[Any]:
    """Return the chosen point: a ring around it, and below the chart its figures, its mapping and its step by part."""
    at = "datum.n == min(isDefined(pick.n) ? pick.n[0] : 1, datum.last)"
    one = curve.transform_joinaggregate(last="max(n)").transform_filter(at)
    ring = one.mark_point(size=260, strokeWidth=2.5, filled=False).encode(**own)
    digits, spent, paid = (DIGITS.replace("datum.", f"datum.{of}") for of in ("", "j", "u"))  # NaN > 1.1 is false
    basis = f"{json.dumps(BASES)}[datum.ground]"
    more = " + ".join(f"(datum.{name} > 1 ? ' x {name.upper()} ' + datum.{name} : '')" for name in ("ep", "pp", "cp"))
    chips = "' on ' + datum.chips + (datum.chips == 1 ? ' chip' : ' chips')"
    own_digits = "(datum.most / datum.least > 1.1 ? ',.2r' : ',.3r')"
    band = f"format(datum.least, {own_digits}) + ' to ' + format(datum.most, {own_digits}) + ', ' + {basis}"
    made = f"format(datum.chip, {digits}) + ' tokens/s a chip'"
    joules = _known("joule", f"format(datum.joule, {spent}) + ' J a token at the server'", UNKNOWN[1])
    dollars = _known("usd", f"format(datum.usd, {paid}) + ' USD a million tokens (owner)'", UNKNOWN[2])
    lines = [
        f"datum.most > datum.least ? {band} : {basis}",
        "measure > 0 ? datum.made : datum.spent",
        "measure > 1 ? datum.spent : datum.paid",
        "format(datum.user, ',.3~r') + ' tokens/s promised to a user'",
        "'Promise kept in ' + format(100 * datum.chance, '.3~r') + ' % of the draws'",
        f"'TP ' + datum.tp + {more} + ', batch ' + format(datum.batch, ',') + {chips}",
        f"'Decoding alone: ' + format(datum.alone, {digits}) + ' tokens/s a chip'",
        f"'Decode step ' + format(datum.step, {digits}) + ' ms; its parts alone:'",
    ]
    headline = "[datum.made, datum.spent, datum.paid][measure]"
    described = one.transform_calculate(made=made, spent=joules, paid=dollars)
    texts = [
        _text_mark(described, headline, BELOW, 22),
        _text_mark(described, " + '\\n' + ".join(f"({line})" for line in lines), BELOW + 28),
    ]
    return [ring, alt.layer(*texts, *_bars(one, colour, BELOW + 28 + LINE * len(lines)))]


def _known(field: str, text: str, otherwise: str) -> str:
    """Return an expression that tells of a field, or why it is empty."""
    return f"(isValid(datum.{field}) ? {text} : {json.dumps(otherwise)})"


def _text_mark(data: Any, text: str, below: float, size: int = 14, left: int = LEFT) -> Any:
    """Return what an expression says, so far below the axis."""
    return _lines(data.transform_calculate(told=text), alt.expr(f"height + {below}"), size, left)


def _lines(data: Any, y: Any, size: int, left: int = LEFT) -> Any:
    """Lines of text from a field `told`, which a screen reader reads too. In a layer of their own a page cuts none."""
    mark = {"align": "left", "baseline": "middle", "lineBreak": "\n", "lineHeight": LINE, "fontSize": size}
    width = f"width - ({left})" if left else "width"
    mark |= {"fontWeight": "bold" if size > 14 else "normal", "limit": {"expr": width}, "color": INK}
    field = {"field": "told", "type": "nominal"}
    where = {"x": alt.value(left), "y": alt.value(y)}
    return data.mark_text(**mark).encode(**where, text=alt.Text(**field), description=alt.Description(**field))


def _bars(data: Any, colour: Mapping[str, Any], below: float) -> list[Any]:
    """Return the parts of a step below each other, the longest in the colour of its system."""
    names = list(PARTS.values())
    parts = (
        data.transform_calculate(most=f"max({', '.join(f'datum.{name}' for name in names)})")
        .transform_fold(names, as_=["part", "ms"])
        .transform_calculate(
            start=str(NAMES),
            row=f"height + {below} + {LINE} * indexof({json.dumps(names)}, datum.part)",
            end=f"{NAMES} + (width - {NAMES + FIGURES}) * datum.ms / datum.most",
            time=f"format(datum.ms, {DIGITS}) + ' ms'",
        )
    )
    own, raw = {"type": "quantitative", "scale": None}, {"y": alt.Y(field="row", type="quantitative", scale=None)}
    start, end = alt.X(field="start", **own), alt.X(field="end", **own)
    text = {"baseline": "middle", "fontSize": 14, "align": "left", "color": INK}
    shade = alt.condition("datum.ms == datum.most", alt.Color(**colour), alt.value(GREY))
    return [
        parts.mark_text(**text).encode(**raw, x=alt.value(LEFT), text=alt.Text(field="part", type="nominal")),
        parts.mark_rule(strokeWidth=12).encode(**raw, x=start, x2=alt.X2(field="end"), color=shade),
        parts.mark_text(dx=6, **text).encode(**raw, x=end, text=alt.Text(field="time", type="nominal")),
    ]


def _missing(grid: pd.DataFrame) -> Any:
    """Why a combination has no line, in its place."""
    none = grid[grid.why != ""]
    rows = [
        {"of": rows.of.tolist(), "told": "\n".join(textwrap.wrap(why[:1].upper() + why[1:], LETTERS))}
        for why, rows in none.groupby("why", sort=False)
    ]
    data = alt.Chart(alt.InlineData(values=rows or [{"of": []}])).transform_filter("indexof(datum.of, of) >= 0")
    return alt.layer(_lines(data, HEIGHT / 3, 16))


def _unlit() -> Any:
    """Why a combination has no line on the axis chosen."""
    one = alt.Chart(alt.InlineData(values=[{}])).transform_filter("unlit")
    return _lines(one.transform_calculate(told=f"{json.dumps(UNKNOWN)}[measure]"), HEIGHT / 3, 16)


def roofline(
    frame: pd.DataFrame,
    chosen: Mapping[str, Any],
    *,
    marker: float,
    highlight: Sequence[str] = (),
    caption: str,
    under: str = "",
) -> alt.LayerChart:
    """Rooflines of one number format: controls choose a chip and the format, a slider or a pointer the intensity.

    Beside the ridge point of the chip stand the phases that lie there. Below stand the rate that the chip attains at
    the intensity, which side of its ridge point that is, and the ridge point. Chips that are not among those to
    `highlight` are grey.

    Parameters
    ----------
    frame : pandas.DataFrame
        chip, dtype, peak_flop_per_s, hbm_bytes_per_s, ridge_flop_per_byte with `_low` and `_high`, estimate.
    chosen : mapping
        What the controls `chip` and `dtype` show first.
    marker : float
        Where the intensity starts, from 1 on. [FLOP/B]
    """
    check(frame, caption, under=under, needed=(*ROOFS, *ROOF))
    peaks = frame.dropna(subset=ROOF)
    start = max(number("marker", marker, TINY), 1.0)
    most = _ceiling(max(4 * float(peaks.ridge_flop_per_byte.max()), start))
    options, chosen = _options(peaks, ROOFS, chosen)
    last = math.floor(POWERS * math.log10(most))
    name = "Arithmetic intensity, power of ten [FLOP/B] "  # `charts.js` shows the number itself
    slider = alt.binding_range(min=0, max=last / POWERS, step=1 / POWERS, name=name)
    first = round(POWERS * math.log10(start)) / POWERS
    pick = alt.selection_point(
        name="pick",
        fields=["power"],
        on="path:pointerover",
        nearest=True,
        clear=False,
        value=[{"power": first}],
        bind={"power": slider},
    )
    roofs = _roofs(peaks, most)
    place = {"x": _log(alt.X, "x", axis_title("intensity_flop_per_byte"), domain=[1, most])}
    rates = [rounded(float(end)) for end in (roofs.y.min(), roofs.y.max())]
    place["y"] = _log(alt.Y, "y", axis_title("attainable_flop_per_s", "TFLOP/s"), domain=rates)
    legend = alt.Legend(orient="bottom-right", columns=1, title=None)  # where no roof is
    plot = Plot(roofs, {"chip": ""}, highlight=highlighted(highlight))
    params, picked = plot.picked("chip")
    colour = {"color": plot.colour(alt.Color, "chip", legend=legend), "strokeDash": _dashed(plot, legend)}
    lines = alt.Chart(roofs).transform_filter(f"datum.dtype == {json.dumps(options['dtype'])}[dtype]")
    mine = lines.transform_filter(f"datum.chip == {json.dumps(options['chip'])}[chip]")
    near = alt.Chart(alt.sequence(0, STOPS + 1, as_="i")).transform_filter("roof")
    power = f"round(datum.i * {last} / {STOPS}) / {POWERS}"
    near = near.transform_calculate(power=power, x="pow(10, datum.power)", y="min(roof[0], datum.x * roof[1])")
    layers = [
        lines.mark_line(strokeWidth=1.2).encode(**place, **colour, **picked).add_params(*params),
        mine.mark_line(strokeWidth=4).encode(**place, **colour),
        near.mark_point(opacity=0, size=30).encode(**place).add_params(pick),
        *_read(place),
    ]
    controls = [_select(name, options[name], chosen) for name in ROOFS]
    controls.append(alt.param(name="roof", expr=f"{_table(peaks, options)}[chip][dtype]"))
    return _finished(alt.layer(*layers).add_params(*controls), caption, under)


def _dashed(plot: Plot, legend: Any) -> Any:
    """Return dashes by which chips that are grey are told apart; where none is highlighted, colours do it."""
    chips = list(plot.data.chip.unique())
    shown = [str(language.called(name)) for name in plot.highlight] or chips
    dashes = iter(cycle(language.OTHER_DASHES[1:]))
    looks = [language.OTHER_DASHES[0] if chip in shown else next(dashes) for chip in chips]
    return alt.StrokeDash(
        "chip", type="nominal", sort=None, title=None, legend=legend, scale={"domain": chips, "range": looks}
    )


def _ceiling(value: float) -> float:
    """Return the next number of one digit."""
    power = 10 ** math.floor(math.log10(value))
    return math.ceil(value / power) * power


def _roofs(peaks: pd.DataFrame, most: float) -> pd.DataFrame:
    """Return ends and ridge of each roof."""
    import pandas as pd

    roofs = []
    for x in (1.0, peaks.ridge_flop_per_byte, most):
        rate = np.minimum(peaks.peak_flop_per_s, x * peaks.hbm_bytes_per_s) / TFLOP
        roofs.append(peaks[list(ROOFS)].assign(x=x, y=rate))
    return pd.concat(roofs, ignore_index=True)


def _table(peaks: pd.DataFrame, options: Mapping[str, Sequence[Any]]) -> str:
    """Return what is known of each chip in each format, as an expression; null where it has no peak."""
    units = {"peak_flop_per_s": TFLOP, "hbm_bytes_per_s": TB}
    rows = {
        key: [float(f"{row[name] / units.get(name, 1):.6g}") for name in ROOF]
        for key, row in peaks.set_index(list(ROOFS)).iterrows()
    }
    return json.dumps([[rows.get((chip, dtype)) for dtype in options["dtype"]] for chip in options["chip"]])


def _phases(place: Mapping[str, Any]) -> list[Any]:
    """Which phases lie left and right of the ridge point of the chosen chip, beside a line that marks it."""
    at = alt.Chart(alt.InlineData(values=[{}])).transform_filter("roof").transform_calculate(x="roof[2]")
    text = {"fontSize": 12, "color": INK, "baseline": "middle"}
    return [
        at.mark_rule(color=GREY, strokeDash=[2, 3]).encode(x=place["x"]),
        at.mark_text(align="right", dx=-6, text="\N{LEFTWARDS ARROW} decode", **text).encode(
            x=place["x"], y=alt.value(alt.expr("height - 12"))
        ),
        at.mark_text(align="left", dx=6, text="long prompt \N{RIGHTWARDS ARROW}", **text).encode(
            x=place["x"], y=alt.value(alt.expr("0.45 * height"))
        ),
    ]


def _read(place: Mapping[str, Any]) -> list[Any]:
    """Where the intensity meets the roof: a rule and a ring, and below the chart what it means."""
    one = alt.Chart(alt.InlineData(values=[{}])).transform_calculate(
        x="isDefined(pick.power) ? pow(10, pick.power[0]) : 1"
    )
    known = one.transform_filter("roof").transform_calculate(
        y="min(roof[0], datum.x * roof[1])", flop_per_byte="format(datum.x, ',.3~r') + ' FLOP/B'"
    )
    ridge, low, high = (f"format(roof[{i}], roof[4] > roof[3] ? ',.3~r' : ',.4~r')" for i in (2, 3, 4))
    lines = [
        "'at ' + format(datum.x, ',.4~r') + ' FLOP/B'",
        "datum.x < roof[2] ? 'memory-bound, left of the ridge' : 'compute-bound, right of the ridge'",
        f"'Ridge point ' + (roof[4] > roof[3] ? {ridge} + ' (' + {low} + ' to ' + {high} + ')' : {ridge}) + ' FLOP/B'",
        "'Peak ' + format(roof[0], ',.4~r') + ' TFLOP/s' + (roof[5] ? ', our estimate' : '')",
        "'HBM ' + format(roof[1], ',.4~r') + ' TB/s'",
    ]
    texts = [
        _text_mark(known, "format(datum.y, ',.4~r') + ' TFLOP/s'", BELOW, 22),
        _text_mark(known, " + '\\n' + ".join(f"({line})" for line in lines), BELOW + 28),
        _text_mark(one.transform_filter("!roof"), "'The chip has no peak in this format'", BELOW, 16),
    ]
    return [
        *_phases(place),
        known.mark_rule(color=GREY).encode(x=place["x"]),
        known.mark_text(align="left", dx=6, fontSize=12, color=INK).encode(
            x=place["x"], y=alt.value(10), text=alt.Text(field="flop_per_byte", type="nominal")
        ),
        known.mark_point(size=160, strokeWidth=2.5, color=GREY, opacity=1).encode(**place),
        alt.layer(*texts),
    ]
