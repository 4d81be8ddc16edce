"""The workbook says what the package says: its formulas are read and computed here, and by LibreOffice where it is."""

import re
import shutil
import subprocess
from dataclasses import replace

import openpyxl
import pytest

import trnmodel as tm
from trnmodel.catalog import prices as priced
from trnmodel.cost import workbook

CASES = {
    "sold": lambda: tm.tco("hgx-h100"),
    "rented": lambda: tm.tco("gb200-nvl72", owner="neocloud", utilisation=0.7),
    "torus": lambda: tm.tco("trn2-ultraserver", goodput=0.9),
    "switched": lambda: tm.tco("trn3-nl72x2-pcie160", tdp_w=900.0),
    "given": lambda: tm.tco("trn3-nl32x2-pcie160", chip_usd=5000.0, switch_usd_per_lane=7.0),
    "rebates": lambda: tm.tco(
        "trn3-nl32x2-ualink", prices=replace(priced.prices(), switch_rebate=0.23, aec_rebate=1.0)
    ),
}
ROW = {"hour": 9, "useful": 10, "mtoken": 11}


def pmt(rate, periods, present, future=0.0):
    """As spreadsheets define it, payments at the end of a period."""
    grown = (1 + rate) ** periods
    return -(present * grown + future) * rate / (grown - 1)


class Sheets:
    """Cells of a workbook, computed by their formulas when they are asked for."""

    def __init__(self, path):
        self.book = openpyxl.load_workbook(path)

    def many(self, sheet, first, last):
        cells = self.book[sheet][f"{first}:{last}"]
        return sum(self.cell(sheet, cell.coordinate) for row in cells for cell in row)

    def cell(self, sheet, place):
        found = self.book[sheet][place.replace("$", "")].value
        if not isinstance(found, str) or not found.startswith("="):
            return found
        text = re.sub(r"SUM\((\w+):(\w+)\)", lambda m: repr(self.many(sheet, m[1], m[2])), found[1:])
        place = re.compile(r"(?:(\w+)!)?\$?([A-Z])\$?(\d+)")
        text = place.sub(lambda m: f"({self.cell(m[1] or sheet, m[2] + m[3])!r})", text)
        return eval(text.replace("^", "**"), {"PMT": pmt, "__builtins__": {}})


@pytest.fixture(params=CASES)
def made(request, tmp_path):
    cost = CASES[request.param]()
    return cost, workbook.write(cost, tmp_path / "cost.xlsx", 800.0)


def test_formulas_give_what_the_package_gives(made):
    cost, path = made
    sheets = Sheets(path)
    for line, usd in enumerate(cost.parts_usd.values(), start=2):
        assert sheets.cell("Bill", f"B{line}") == pytest.approx(float(usd), rel=1e-12)
    total = len(cost.parts_usd) + 2
    assert sheets.cell("Bill", f"B{total}") == pytest.approx(float(cost.capital_usd))
    assert sheets.cell("Bill", f"C{total}") == pytest.approx(1)
    beyond = sum(float(usd) for part, usd in cost.parts_usd.items() if part.startswith("scale-out"))
    assert sheets.cell("Bill", f"B{total + 1}") == pytest.approx(float(cost.capital_usd) - beyond, rel=1e-12)
    assert sheets.cell("Bill", f"B{total + 2}") == pytest.approx(beyond, rel=1e-12)
    assert sheets.cell("Cost", f"B{ROW['hour']}") == pytest.approx(float(cost.usd_per_h), rel=1e-12)
    assert sheets.cell("Cost", f"B{ROW['useful']}") == pytest.approx(float(cost.useful_usd_per_h), rel=1e-12)
    assert sheets.cell("Cost", f"B{ROW['mtoken']}") == pytest.approx(float(cost.usd_per_mtoken(800.0)), rel=1e-12)


def test_only_inputs_are_numbers(made):
    _, path = made
    book = openpyxl.load_workbook(path)
    for sheet in (book["Bill"], book["Cost"]):
        for row in sheet.iter_rows(min_row=2, min_col=2):
            assert all(str(cell.value).startswith("=") for cell in row if cell.value)


def test_every_input_moves_the_answer(made):
    """No input is dead, but those that say which part the machine lacks."""
    cost, path = made
    sheets = Sheets(path)
    before = sheets.cell("Cost", f"B{ROW['mtoken']}")
    dead = set()
    for name, value in sheets.book["Inputs"].iter_rows(min_row=2, max_col=2):
        held = value.value
        value.value = held * 1.5 + 0.01
        if sheets.cell("Cost", f"B{ROW['mtoken']}") == before:
            dead.add(name.value)
        value.value = held
    lanes = {"switch_usd_per_lane", "switch_rebate"} if cost.system.fabric == "torus" else set()
    chip = {"hbm_usd_per_byte", "hbm_bytes", "hbm_share", "chip_markup"} if cost.prices.chip_usd else set()
    sold = {"switch_rebate"} if "server as sold" in cost.parts_usd else set()
    free = {"aec_usd", "active_cables", "network_cables"} if cost.prices.aec_rebate == 1 else set()
    assert dead <= lanes | chip | sold | free | {"retimers_per_chip", "nics_per_cpu"}


def test_a_price_keeps_its_source_region_and_date(made):
    _, path = made
    rows = list(openpyxl.load_workbook(path)["Inputs"].iter_rows(min_row=2, values_only=True))
    named = {row[0]: dict(zip(workbook.COLUMNS, row, strict=True)) for row in rows}
    assert named["aec_usd"]["currency"] == "USD"
    assert named["aec_usd"]["low"] < named["aec_usd"]["value"] < named["aec_usd"]["high"]
    assert named["electricity_usd_per_j"]["region"] == "US"
    assert named["electricity_usd_per_j"]["printed"] == "0.0826"


def test_what_has_no_workbook_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot exist"):
        workbook.write(tm.tco("inf2.xlarge"), tmp_path / "cost.xlsx")
    with pytest.raises(ValueError, match="allowed is one point"):
        workbook.write(tm.tco("hgx-h100", utilisation=[0.5, 1.0]), tmp_path / "cost.xlsx")
    with pytest.raises(ValueError, match="xlsx"):
        workbook.write(tm.tco("hgx-h100"), tmp_path / "cost.csv")


@pytest.mark.skipif(not shutil.which("soffice"), reason="LibreOffice is not on this machine")
def test_libreoffice_computes_the_same(made, tmp_path):
    cost, path = made
    out = tmp_path / "recalculated"
    command = ["soffice", "--headless", "--convert-to", "xlsx", "--outdir", str(out), str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    book = openpyxl.load_workbook(out / "cost.xlsx", data_only=True)
    assert book["Cost"][f"B{ROW['hour']}"].value == pytest.approx(float(cost.usd_per_h), rel=1e-9)


def test_a_thousand_tokens_a_second_where_none_are_given(tmp_path):
    cost = tm.tco("hgx-h100")
    for given, asked in ((1000.0, {}), (1e-9, {"tokens_per_s_per_chip": 1e-9})):
        sheets = Sheets(workbook.write(cost, tmp_path / "cost.xlsx", **asked))
        assert sheets.cell("Cost", f"B{ROW['mtoken']}") == pytest.approx(float(cost.usd_per_mtoken(given)))
    with pytest.raises(ValueError, match="tokens_per_s_per_chip="):
        workbook.write(cost, tmp_path / "cost.xlsx", 0.9e-9)
