"""Answers as HTML: figures, bars of memory against the limit, the waterfall of a step, exchanges, and the command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import pandas as pd

from trnbook import charts
from trnbook.charts.language import colours
from trnbook.charts.tables import Table
from trnbook.workbench.answers import Answers, time_said
from trnbook.workbench.state import ServingState
from trnmodel.result import in_sentence
from trnmodel.units import format_quantity

STYLE = """<style>
.trn-wb { font-family: var(--jp-ui-font-family, sans-serif); font-size: 13px; line-height: 1.45; margin: 2px 6px 8px;
  color: var(--jp-ui-font-color1, inherit); }
.trn-wb h4 { margin: 0 0 6px; font-size: 13px; font-weight: 600; }
.trn-wb table { border-collapse: collapse; width: 100%; font-size: 13px; }
.trn-wb td, .trn-wb th { text-align: left; padding: 2px 12px 2px 0; vertical-align: top; background: none; }
.trn-wb td:first-child { min-width: 150px; }
.trn-wb tr { border-bottom: 1px solid var(--jp-border-color2, #ddd); background: none; }
.trn-wb th { font-weight: 600; color: var(--jp-ui-font-color2, #666); }
.trn-wb .cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 8px; }
.trn-wb .card { border: 1px solid var(--jp-border-color2, #ddd); border-radius: 4px; padding: 6px 10px; }
.trn-wb .card b { display: block; font-size: 16px; white-space: nowrap; }
.trn-wb .soft { color: var(--jp-ui-font-color2, #666); }
.trn-wb .halves { display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 14px 28px;
  margin-top: 14px; }
.trn-wb .bar { display: grid; grid-template-columns: 184px 1fr 72px; gap: 8px; align-items: center; margin: 3px 0; }
.trn-wb .bar > :last-child { text-align: right; white-space: nowrap; }
.trn-wb .track { position: relative; height: 18px; background: var(--jp-layout-color2, #eee); overflow: hidden; }
.trn-wb .track i { position: absolute; top: 0; bottom: 0; }
.trn-wb .track u { position: absolute; top: 0; bottom: 0; width: 3px; background: var(--jp-ui-font-color1, #333); }
.trn-wb .key i { display: inline-block; width: 10px; height: 10px; margin: 0 5px 0 0; }
.trn-wb .key span { margin-right: 14px; white-space: nowrap; }
.trn-wb .why { border-left: 4px solid #D02080; padding: 6px 12px; background: var(--jp-layout-color2, #f4f4f4); }
.trn-wb .note { border-left: 4px solid #C09000; padding: 4px 12px; margin: 8px 0 0; }
.trn-wb pre { white-space: pre-wrap; overflow-wrap: break-word; word-break: normal; margin: 0;
  padding: 8px 10px; font-size: 12px; background: var(--jp-layout-color2, #f4f4f4); color: inherit; }
</style>"""
MARGIN = 1.04  # of an axis, beyond the limit or the longest bar


def page(one: Answers) -> str:
    """Return all that the workbench shows of a state.

    Examples
    --------
    >>> from trnbook.workbench.answers import answers
    >>> from trnbook.workbench.state import ServingState
    >>> "does not fit in memory" in page(answers(ServingState(tp=1)))
    True
    """
    head = _cards(one) if one.runs else f'<div class="why"><b>This cannot run:</b> {escape(one.reason)}.</div>'
    note = f'<div class="note">{escape(one.note)}</div>' if one.note else ""
    left, right = _memory(one), _waterfall(one.spans)
    halves = f'<div class="halves">{left}{right}</div>' if left or right else ""
    rest = [_exchanges(one.exchanges), _command(one)] if one.runs else []
    below = "".join(f'<div style="margin-top: 14px">{part}</div>' for part in rest if part)
    return f'{STYLE}<div class="trn-wb">{head}{note}{halves}{below}</div>'


def _cards(one: Answers) -> str:
    rows = one.figures[~one.figures.unit.isin(["B"])].itertuples(index=False)
    return f'<div class="cards">{"".join(_card(row.title, row.said, row.basis) for row in rows)}</div>'


def _card(title: str, said: str, basis: str) -> str:
    number, _, band = said.partition(" (")
    number = number.removesuffix(" per chip").removesuffix(" per user")  # as the title says
    under = ", ".join(filter(None, (band.removesuffix(")"), basis))) or "\N{NO-BREAK SPACE}"
    return (
        f'<div class="card"><span class="soft">{escape(title)}</span>'
        f'<b>{escape(number)}</b><span class="soft">{escape(under)}</span></div>'
    )


def _bar(name: str, boxes: Iterable[tuple[float, float, str, str]], most: float, said: str, limit: float = 0.0) -> str:
    """Return a bar with a name before it and a number behind; boxes have a start, a length, a colour and a title."""
    drawn = "".join(
        f'<i style="left:{100 * start / most:.3f}%;width:{100 * long / most:.3f}%;background:{colour}" '
        f'title="{escape(title)}"></i>'
        for start, long, colour, title in boxes
    )
    mark = f'<u style="left:{100 * limit / most:.3f}%" title="limit"></u>' if limit else ""
    return (
        f'<div class="bar"><span>{escape(name)}</span><div class="track">{drawn}{mark}</div><span>{said}</span></div>'
    )


def _key(names: Sequence[str], shades: Sequence[str]) -> str:
    pairs = zip(names, shades, strict=True)
    spans = "".join(f'<span><i style="background:{shade}"></i>{escape(name)}</span>' for name, shade in pairs)
    return f'<div class="key soft">{spans}</div>'


def _memory(one: Answers) -> str:
    """Return a bar for each rank, piled up by kind, with a stroke at what the rank may store, and the bands."""
    table = one.memory[one.memory.stored_bytes > 0]
    if table.empty:
        return ""
    kinds = list(dict.fromkeys(table.kind))
    shade = dict(zip(kinds, colours(kinds), strict=True))
    limit = float(table.capacity_bytes.max())
    most = MARGIN * max(float(table.groupby("rank").stored_bytes.sum().max()), limit)
    bars = []
    for rank, rows in table.groupby("rank", sort=False):
        at, boxes = 0.0, []
        for row in rows.itertuples(index=False):
            said = f"{row.kind}: {format_quantity(row.stored_bytes, 'B', 3)}"
            boxes.append((at, row.stored_bytes, shade[row.kind], said))
            at += row.stored_bytes
        own = float(rows.capacity_bytes.iloc[0])
        bars.append(_bar(str(rank), boxes, most, format_quantity(at, "B", 3), own))
    title = f"<h4>Memory per rank, against the limit of {format_quantity(limit, 'B', 3)}</h4>"
    stored = one.figures[one.figures.unit == "B"]
    bands = [f"{in_sentence(row.title)} {row.said}" for row in stored.itertuples(index=False)]
    line = f"{', '.join(bands)}: {stored.basis.iloc[0]}" if bands else ""
    said = f'<div class="soft" style="margin-top: 6px">{escape(line)}</div>' if line else ""
    return f"<div>{title}{''.join(bars)}{_key(kinds, list(shade.values()))}{said}</div>"


def _waterfall(table: pd.DataFrame) -> str:
    """Return a bar for each part of a step, each from where the one before ends."""
    if table.empty:
        return ""
    whole = float(table.until_s.iloc[-1])
    shades = colours(list(table.part))
    bars = [
        _bar(row.part, [(row.from_s, row.time_s, shade, row.part)], MARGIN * whole, _share(row.time_s, whole))
        for row, shade in zip(table.itertuples(index=False), shades, strict=True)
    ]
    return f"<div><h4>One step, {format_quantity(whole, 's', 3)}</h4>{''.join(bars)}</div>"


def _share(time_s: float, whole_s: float) -> str:
    """Return a time; one that is nothing beside the step is hidden behind other parts."""
    return time_said(time_s if time_s > 1e-9 * whole_s else 0.0)


def rows_of(table: pd.DataFrame) -> list[list[str]]:
    """Return the exchanges as cells of text, the heading first."""
    head = ["Exchange", "Collective", "Ranks", "Tiers", "Message", "Times", "In all"]
    cells = [
        [
            row.exchange,
            row.collective,
            f"{row.ranks:,.0f}",
            row.tiers,
            format_quantity(row.message_bytes, "B", 3),
            f"{row.messages:,.0f}" if row.messages % 1 == 0 else f"{row.messages:,.1f}",
            format_quantity(row.time_s, "s", 3),
        ]
        for row in table.itertuples(index=False)
    ]
    return [head, *cells]


def grid(rows: list[list[str]]) -> str:
    """Return rows of text as an HTML table, the first one as its heading."""
    head, *body = ["".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in _tagged(rows)]
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>"


def _tagged(rows: list[list[str]]) -> Iterable[tuple[str, list[str]]]:
    return (("td" if i else "th", row) for i, row in enumerate(rows))


def _exchanges(table: pd.DataFrame) -> str:
    return f"<h4>Exchanges</h4>{grid(rows_of(table))}" if len(table) else ""


def _command(one: Answers) -> str:
    parts = [f"<pre>{escape(one.command)}</pre>"] if one.command else []
    parts += [f'<div class="soft">{escape(one.no_command)}.</div>'] if one.no_command else []
    title = "How to start it" if isinstance(one.state, ServingState) else "How to search all mappings of the run"
    return f"<h4>{title}</h4>{''.join(parts)}" if parts else ""


def compared_html(table: pd.DataFrame) -> str:
    """Return configurations side by side as HTML; nothing where none is saved."""
    if table.empty:
        return ""
    rows = [["", *map(str, table.columns[1:])], *(list(map(str, row)) for row in table.itertuples(index=False))]
    return f'{STYLE}<div class="trn-wb"><h4>Side by side</h4>{grid(rows)}</div>'


def figures(one: Answers) -> Table:
    """Return the figures of a state as a table of the book, for pages on which nothing can be moved."""
    shown = one.figures[["title", "said", "basis"]].rename(columns={"title": "figure", "said": "answer"})
    if not one.runs:
        shown = pd.DataFrame([{"figure": "cannot run", "answer": one.reason}])
    return charts.table(shown, caption="What the workbench shows at first", download="workbench")
