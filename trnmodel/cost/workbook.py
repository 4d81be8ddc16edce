"""Workbook of an owner's cost with live formulas: where a price is changed, the cost of the hour follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trnmodel.arguments import instance, number, refuse
from trnmodel.catalog import load
from trnmodel.catalog import prices as priced
from trnmodel.catalog.specs import Spec
from trnmodel.cost import bill
from trnmodel.cost.tco import MONTHS, PERIOD_H, Cost
from trnmodel.formulas import tco as page

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

OWNED = (
    "rate_per_year",
    "life_years",
    "lost_share",
    "build_usd_per_w",
    "build_years",
    "colocation_usd_per_w_h",
    "electricity_usd_per_j",
    "operations_share",
)
COLUMNS = (
    "input",
    "value",
    "low",
    "high",
    "unit",
    "printed",
    "printed unit",
    "currency",
    "region",
    "date",
    "source",
    "locator",
    "confidence",
    "note",
)
PARTS: Mapping[str, str] = {
    "server as sold": "{server_usd_per_chip}*10^(-{decades_per_year}*({money_year}-{server_year}))*{market_ratio}",
    "HBM": "{hbm_bytes}*{hbm_usd_per_byte}",
    "logic, package and margin": "{hbm_bytes}*{hbm_usd_per_byte}*({chip_markup}/{hbm_share}-1)",
    "rack switches": "{rack_switch_lanes}*{switch_usd_per_lane}*(1-{switch_rebate})",
    "board switches": "{board_switch_lanes}*{switch_usd_per_lane}*(1-{switch_rebate})",
    "retimers": "{retimers}*{retimer_usd}*(1-{switch_rebate})",
    "backplane cables": "{copper_cables}*{copper_cable_usd}",
    "active cables": "{active_cables}*{aec_usd}*(1-{aec_rebate})",
    "NICs": "({nics}+{cpu_nics})*{nic_bytes_per_s}*{nic_usd_per_bytes_per_s}",
    "host CPUs": "{host_cpus}*{cpu_usd}",
    "boards and power supplies": "{tdp_w}*{board_usd_per_w}",
    "cooling, rack and drives": "{tdp_w}*{rack_usd_per_w}",
    "assembly and test": "SUM({above})*{integration_share}/(1-{integration_share})",
    "scale-out switches": "{network_bytes_per_s}*{network_usd_per_bytes_per_s}",
    "scale-out optics": "{optics_bytes_per_s}*{optics_usd_per_bytes_per_s}",
    "scale-out cables": "{network_cables}*{aec_usd}*(1-{aec_rebate})",
}
CHIP_PRICE = {
    "HBM": "{chip_usd}*{hbm_share}/{chip_markup}",
    "logic, package and margin": "{chip_usd}*(1-{hbm_share}/{chip_markup})",
}
NOT_PRINTED = {"retimers": "{retimers_per_chip}", "cpu_nics": "{host_cpus}*{nics_per_cpu}"}
PAYMENT = "PMT({rate_per_year}/{months},{life_years}*{months},-{of},(1-{lost_share})*{of})/{period_h}"
BUILT = "PMT({rate_per_year}/{months},{build_years}*{months},-{all_in}*{build_usd_per_w})/{period_h}"
HOUR: Mapping[str, tuple[str, str]] = {
    "all_in": ("Provisioned IT power of a chip [W]", "{tdp_w}*{all_in_ratio}"),
    "mean": ("Mean IT power of a chip [W]", "{all_in}*{mean_ratio}"),
    "server": ("Server [USD/h]", PAYMENT.replace("{of}", "{server_usd}")),
    "network": ("Scale-out network [USD/h]", PAYMENT.replace("{of}", "{network_usd}")),
    "site": ("Building [USD/h]", ""),
    "energy": ("Electricity [USD/h]", "{mean}*{annual_pue}*{electricity_usd_per_j}*3600"),
    "operations": ("Operations [USD/h]", "({server_usd}+{network_usd})*{operations_share}/{hours_per_year}"),
    "hour": ("An hour of a chip [USD/h]", "{server}+{network}+{site}+{energy}+{operations}"),
    "useful": ("A useful hour of a chip [USD/h]", "{hour}/{utilisation}/{goodput}"),
    "mtoken": ("A million tokens [USD]", "{useful}/3600/{tokens_per_s_per_chip}*1000000"),
}


class Row(NamedTuple):
    """An input with its range, and the spec whose field it is, if it is a field."""

    name: str
    value: float
    unit: str
    spec: Spec | None = None
    which: str = ""


def _machine(cost: Cost, tokens_per_s: float) -> Iterator[Row]:
    """Yield the numbers of the machine and of its use, which no row of prices has."""
    spec, cluster = cost.system, cost.owner.cluster_chips
    values = {
        "tdp_w": (cost.tdp_w, "W"),
        "all_in_ratio": (cost.all_in_w / cost.tdp_w, "1"),
        "mean_ratio": (cost.mean_w / cost.all_in_w, "1"),
        "annual_pue": (cost.facility.annual_pue, "1"),
        "utilisation": (cost.utilisation, "1"),
        "goodput": (cost.goodput, "1"),
        "tokens_per_s_per_chip": (tokens_per_s, "token/s"),
        "months": (MONTHS, "1"),
        "period_h": (PERIOD_H, "h"),
        "hours_per_year": (page.HOURS_PER_YEAR, "h"),
    }
    net = bill.network(spec, cost.prices, cluster)
    values |= {
        "network_bytes_per_s": (net["switch_bytes_per_s"], "B/s"),
        "network_cables": (net["cables"], "1"),
        "optics_bytes_per_s": (net["optics_bytes_per_s"], "B/s"),
    }
    if "HBM" in cost.parts_usd:
        n = bill.counts(spec)
        values |= {f"{kind}_switch_lanes": (n[f"{kind} switches"], "1") for kind in ("rack", "board")}
        values |= {
            "copper_cables": (n["copper cables"], "1"),
            "active_cables": (n["active cables"], "1"),
            "host_cpus": (n["host CPUs"], "1"),
            "hbm_bytes": (spec.chip.hbm_bytes, "B"),
            "retimers": (n["retimers"], "1"),
            "nics": (n["NICs"], "1"),
            "cpu_nics": (n["NICs of CPUs"], "1"),
            "nic_bytes_per_s": (spec.nic_bytes_per_s_per_dir, "B/s"),
        }
    for name, (value, unit) in values.items():
        if np.all(np.isfinite(value)):
            yield Row(name, float(value), unit)


def _fields(cost: Cost) -> Iterator[Row]:
    """Yield the prices that the parts of the bill take, and the owner's terms."""
    p, who, spec = cost.prices, cost.owner, cost.system
    used = dict.fromkeys(name for part in cost.parts_usd for name in bill.PRICED[part])
    if "server as sold" in cost.parts_usd:
        used |= dict.fromkeys(("decades_per_year", "money_year", "market_ratio"))
    for name in (*used, "switch_rebate", "aec_rebate"):
        which = f"{name}[{spec.id}]" if name in bill.BY_SYSTEM else name
        yield Row(
            name, float(p.at(which)), load.quantities()[name].unit_si if name in load.quantities() else "1", p, which
        )
    if spec.chip.id in p.chip_usd:
        yield Row("chip_usd", float(p.chip_usd[spec.chip.id]), "USD")
    for name in OWNED:
        if np.all(np.isfinite(getattr(who, name))):
            yield Row(name, float(getattr(who, name)), load.quantities()[name].unit_si, who, name)


def _cells(row: Row) -> list[Any]:
    """Return a line of the sheet of inputs: number, ends and unit, then the printed value, its source and date."""
    low, high = row.spec.open_ranges.get(row.which, (row.value,) * 2) if row.spec else (row.value,) * 2
    first = [row.name, row.value, low, high, row.unit]
    ids = row.spec.sources.get(row.which, ()) if row.spec else ()
    if not ids:
        return [*first, *[""] * (len(COLUMNS) - len(first))]
    fact = load.facts_rows()[ids[0]]
    if not np.isclose(load.value_si(fact)[0], row.value, rtol=1e-9):  # of the call
        return [*first, *[""] * (len(COLUMNS) - len(first))]
    dated = priced.dated(fact)
    return [
        *first,
        fact.value_printed,
        fact.unit_printed,
        dated.currency,
        dated.region,
        dated.date,
        fact.source,
        fact.locator,
        fact.confidence,
        dated.note,
    ]


def _put(sheet: Worksheet, rows: list[list[Any]]) -> None:
    """Write rows to a sheet and set the widths of its columns."""
    for row in rows:
        sheet.append(row)
    for column, width in zip("ABCDEFG", (34, 16, 14, 14, 12, 16, 16), strict=True):
        sheet.column_dimensions[column].width = width
    sheet.freeze_panes = "B2"


def write(cost: Cost, path: str | Path, tokens_per_s_per_chip: float = 1000.0) -> Path:
    """Write a cost as a workbook of inputs with ranges and sources, the bill and the hour; all but inputs are formulas.

    Parameters
    ----------
    cost : Cost
        Cost of one point. [-]
    path : str or Path
        File to write, ending in ".xlsx". [-]
    tokens_per_s_per_chip : float
        Throughput per chip, an input like the others. [token/s]

    Returns
    -------
    path : Path
        The file.

    Raises
    ------
    ValueError
        The cost is of several points or cannot exist, or the name of the file does not end in ".xlsx".
    """
    import openpyxl

    instance("cost", cost, Cost, "a Cost")
    file = Path(instance("path", path, str | Path, "the path of a file"))
    if file.suffix != ".xlsx":
        refuse("path", str(path), 'allowed is a file that ends in ".xlsx"')
    if not file.parent.is_dir():
        refuse("path", str(path), "there is no such folder")
    if np.size(cost.require_valid().useful_usd_per_h) > 1:
        refuse("cost", f"{np.size(cost.useful_usd_per_h)} points", "allowed is one point")
    rows = [*_fields(cost), *_machine(cost, number("tokens_per_s_per_chip", tokens_per_s_per_chip, 1e-9))]
    inputs = {row.name: row for row in rows}  # a name once
    at = {name: f"Inputs!$B${line}" for line, name in enumerate(inputs, start=2)}
    book = openpyxl.Workbook()
    first = book.active
    first.title = "Inputs"
    _put(first, [[*COLUMNS], *map(_cells, inputs.values())])
    at |= _bill(book.create_sheet("Bill"), cost, at)
    _hour(book.create_sheet("Cost"), cost, at)
    draft = file.with_name(f".{file.name}.draft")
    try:
        book.save(draft)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


def _bill(sheet: Worksheet, cost: Cost, at: Mapping[str, str]) -> dict[str, str]:
    """Write the sheet of parts and return the cells of their sums."""
    at = {name: text.format(**at) for name, text in NOT_PRINTED.items() if "host_cpus" in at} | dict(at)
    own = CHIP_PRICE if cost.system.chip.id in cost.prices.chip_usd else {}
    rows: list[list[Any]] = [["part", "USD a chip", "share"]]
    network, total = len(cost.parts_usd) - len(bill.NETWORK) + 2, len(cost.parts_usd) + 2
    for line, part in enumerate(cost.parts_usd, start=2):
        text = (own.get(part) or PARTS[part]).format(**at, above=f"B2:B{line - 1}")
        rows.append([part, f"={text}", f"=B{line}/B${total}"])
    rows.append(["capital", f"=SUM(B2:B{total - 1})", f"=SUM(C2:C{total - 1})"])
    rows.append(["of it server or rack", f"=SUM(B2:B{network - 1})", ""])
    rows.append(["of it scale-out network", f"=SUM(B{network}:B{total - 1})", ""])
    _put(sheet, rows)
    return {"server_usd": f"Bill!$B${total + 1}", "network_usd": f"Bill!$B${total + 2}"}


def _hour(sheet: Worksheet, cost: Cost, at: Mapping[str, str]) -> None:
    """Write the sheet of the hour."""
    site = BUILT if "build_usd_per_w" in at else "{all_in}*{colocation_usd_per_w_h}"
    places = dict(at) | {name: f"$B${line}" for line, name in enumerate(HOUR, start=2)}
    rows: list[list[Any]] = [[f"{cost.system.id}, {cost.owner.id}", "value"]]
    rows += [[title, f"={(text or site).format(**places)}"] for title, text in HOUR.values()]
    _put(sheet, rows)
