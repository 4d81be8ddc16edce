"""The tables of the chapters show what the plan answers to the same request, in the digits that a download has."""

import base64
import io
import re

import nbformat
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.report import parameters
from trnbook.shared import case
from trnmodel.catalog.stacks import KINDS
from trnmodel.search.frontier import formats

DIGITS = 6e-6  # of a download with six digits
NARROWEST = ("mxfp8", "fp8", "bf16")  # of a table without a column: the first in which the chip computes
LENGTHS = {"input_tokens": 4096, "output_tokens": 512}  # of a chapter without parameters for them
SPEEDS = ("promised_tokens_per_s_per_user", "wanted_tokens_per_s_per_user")
SAME = "tokens_per_s_per_chip tokens_per_s_per_user chance ttft_s prefill_utilisation decode_tokens_per_s_per_chip"
PLACE = ("tp", "ep", "pp", "cp", "batch")
TABLES = {  # chapter and download, with the parameter that names its model where no column does
    "cost/rent-rows": "",
    "cost/own-rows": "",
    "switch-tray/three-experts": "model",
    "beside-gpus/curves": "",
    "power/joules-rows": "",
}


def downloads(root, chapter):
    """The tables behind the pages of a chapter, by the name under which they are downloaded."""
    found = {}
    for cell in nbformat.read(root / "notebooks" / f"{chapter}.ipynb", 4).cells:
        for output in cell.get("outputs", ()):
            html = "".join(output.get("data", {}).get("text/html", ""))
            for name, text in re.findall(r'download="([\w-]+)\.csv" href="data:text/csv;base64,([\w+/=]+)"', html):
                found[name] = pd.read_csv(io.BytesIO(base64.b64decode(text)))
    return found


def planned(row, model, lengths):
    """The answer of the plan to the question of a row."""
    speed = next(row[name] for name in SPEEDS if name in row)
    system = tm.system(row["system"])
    precision = formats([system.id], NARROWEST)[system.id] if "tokens_per_s_per_chip" in row else None
    ask = {"precision": row.get("precision", precision), "efficiencies": KINDS[row.get("software", "public")]}
    return tm.plan(row.get("model", model), tm.Request(*lengths, tokens_per_s_per_user=speed), system, **ask).best


def assert_is_a_plan(row, c):
    """A row of a promise that is kept has the figures, the band and the place of the choice."""
    for name in SAME.split():
        if name in row:
            assert row[name] == pytest.approx(float(getattr(c, name)), rel=DIGITS), name
    for name in PLACE:
        assert row.get(name, getattr(c, name)) == getattr(c, name), name
    assert row.get("option", c.option.name) == c.option.name
    low, high = c.ends("tokens_per_s_per_chip")
    ends = row.get("tokens_per_s_per_chip_low", low), row.get("tokens_per_s_per_chip_high", high)
    assert ends == pytest.approx((low, high), rel=DIGITS)


def assert_is_a_price(row, c):
    """A million tokens cost the price of an hour over what a paid chip makes in it, at either end too."""
    assert row["chip_s"] == pytest.approx(1 / c.tokens_per_s_per_chip, rel=DIGITS)
    by_hand = row["usd_per_chip_h"] / 3600 * 1e6 / c.tokens_per_s_per_chip
    assert row["usd_per_mtoken"] == pytest.approx(by_hand, rel=2 * DIGITS)


def assert_is_energy(row, c):
    """Joules of a row are those of the choice; nine of ten draws lie within all inputs at their ends."""
    e = c.energy()
    low, high = map(float, e.ends("server_j_per_token"))
    value, least, most = (row["server_j_per_token" + end] for end in ("", "_low", "_high"))
    assert value == pytest.approx(float(e.server_j_per_token), rel=DIGITS)
    assert low < least < value < most < high


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_chapter_is_made_of_plans(root, name):
    chapter, _, download = name.partition("/")
    asked = LENGTHS | {one: given.default for one, given in parameters(chapter).items()}
    table = downloads(root, chapter)[download]
    lengths, model = (asked["input_tokens"], asked["output_tokens"]), asked.get(TABLES[name])
    kept = 0
    for row in table.to_dict("records"):
        c = planned(row, model, lengths)
        if not (c and c.valid):
            assert not row.get("tokens_per_s_per_chip", 0) > 0, row
            assert not row.get("usd_per_mtoken", 0) > 0, row
            continue
        kept += 1
        assert_is_a_plan(row, c)
        if row.get("usd_per_mtoken", 0) > 0:
            assert_is_a_price(row, c)
        if row.get("server_j_per_token", 0) > 0:
            assert_is_energy(row, c)
    assert kept >= len(table) / 4


@pytest.mark.parametrize("model", case.PROMISES)
def test_the_first_page_has_the_last_lines(root, model):
    """Where the page's best system is one of the case: the same throughput, energy and cost."""
    frame = downloads(root, "index")["answers"]
    row = frame[(frame.model == model) & frame.system.isin(case.SYSTEMS)].iloc[0]
    lines = {line.name: case.value(line, model, row.system) for line in case.LINES}
    shown = {
        "Throughput per chip": row.tokens_per_s_per_chip,
        "First token": row.ttft_s,
        "Energy per token at the server": row.server_j_per_token,
        "Owner's cost per million tokens": row.generated_usd_per_mtoken,
    }
    assert shown == pytest.approx({name: lines[name] for name in shown}, rel=DIGITS)


def test_every_table_of_requests_is_listed(root):
    """A table with what a paid chip makes at a promised speed is one of those above; test_index.py reads the index."""
    shown = {
        f"{path.stem}/{name}"
        for path in root.glob("notebooks/*.ipynb")
        for name, table in downloads(root, path.stem).items()
        if not set(SPEEDS).isdisjoint(table) and not {"tokens_per_s_per_chip", "chip_s"}.isdisjoint(table)
    }
    assert {name for name in shown if not name.startswith("index/")} == set(TABLES)
