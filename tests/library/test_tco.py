"""Equations of cost against the worked figures of others, and at their limits."""

import csv
import json
from pathlib import Path

import pytest

import trnmodel as tm
from trnmodel.formulas import energy, reliability, tco

ROWS = csv.DictReader((Path(__file__).parents[1] / "golden" / "tco.csv").read_text().splitlines())
GOLDEN = {row["id"]: row for row in ROWS}
KWH, MONTH_H = 3.6e6, 720.0  # the month of ASIC Clouds' code
ASIC = {"rate": 0.08 / 12, "building": 144, "usd_per_w": 10.0, "usd_per_j": 0.067 / KWH, "pue": 1.5, "opex": 0.05}


def watt_month(power_w, price, life_y):
    """Dollars of a watt and a month, by the constants that the golden's row names."""
    months = life_y * 12
    server = price / power_w
    power = tco.energy_usd_per_h(1.0, 1.0, ASIC["usd_per_j"]) * MONTH_H
    whole = tco.facility_usd_per_h(1.0, ASIC["usd_per_w"], ASIC["rate"], ASIC["building"], 1.0)
    line = tco.capital_recovery_usd(server, 0.0, months)
    found = {"DCAmortization": tco.facility_usd_per_h(1.0, ASIC["usd_per_w"], 0.0, ASIC["building"], 1.0)}
    found |= {"DCOpex": 0.04, "SrvPower": power, "SrvOpex": line * ASIC["opex"]}
    overhead = tco.energy_usd_per_h(1.0, ASIC["pue"], ASIC["usd_per_j"]) * MONTH_H
    total = whole + 0.04 + overhead + found["SrvOpex"] + tco.capital_recovery_usd(server, ASIC["rate"], months)
    return found | {"total": total, "life_time_tco": total * power_w * months}


def epoch(price_at_start, chip_hours, server_kW_per_chip, pue, tdp_fraction, kwh, server_cost_overhead, **rest):
    """The terms of Epoch AI's cost of a training run."""
    overhead = (
        server_cost_overhead if isinstance(server_cost_overhead, float) else float(server_cost_overhead.split()[1])
    )
    amortised = tco.replacement_usd_per_h(price_at_start, 0.14) * chip_hours
    network = tco.grossed_up_usd(amortised, 0.19)
    watts = server_kW_per_chip * 1e3 * tdp_fraction
    electricity = tco.energy_usd_per_h(watts, pue, kwh / KWH) * chip_hours
    return {
        "chip": amortised / overhead,
        "interconnect": network,
        "energy": electricity,
        "total": amortised + network + electricity,
    }


def per_pflop_year(n, price, tdp, util, pue, years, kwh, pflops):
    """Thousands of dollars for a useful PFLOP/s over a year; the number of chips cancels."""
    hour = tco.owned_usd_per_h(price, 0.0, years, 8760.0) + tco.energy_usd_per_h(tdp * util, pue, kwh / KWH)
    useful = tco.useful_usd_per_h(hour, (util,))
    return 8760.0 / tco.flop_per_s_per_usd_per_h(pflops, useful) / 1e3


def node_cluster(nodes, node=300_000, switch=0, cable=0, facility=0):
    """Two 8-GPU nodes at their printed price; the printed row of 512 has the nodes alone."""
    return nodes * node + switch + cable + facility


HOUR = 3600.0
ANSWERS = {
    "B3": lambda initial, days, OOM_per_year: tco.aged_usd(initial, OOM_per_year, days / 365.25),
    "C4": lambda **given: energy.carbon_kg(*given.values()),
    "C5": lambda app, db: app + db,
    "D2": lambda tok_s, kW: energy.tokens_per_s_per_mw(tok_s, kW * 1e3),
    "D3": lambda tok_s, kW: energy.energy_j(kW * 1e3, tok_s),
    "D4": lambda usd_h, tok_s: tco.usd_per_mtoken(usd_h, tok_s),
    "D7": lambda capex, years, opex_uplift: tco.owned_usd_per_h(capex, 0.0, years, 8766.0) * (1 + opex_uplift),
    "D8": lambda flops, usd_h: tco.flop_per_s_per_usd_per_h(flops, usd_h),
    "E1": per_pflop_year,
    "E2.it": lambda MW, pue, **rest: energy.it_w(MW, pue),
    "E2.rt": lambda MW, pue, **rest: energy.it_w(MW * 1e3, pue) / 3.517,  # kW of a ton of refrigeration
    "F1": lambda nodes, **prices: node_cluster(nodes, **prices) / (8 * nodes),
    "F3": node_cluster,
    "G5": lambda pue_a, pue_b: (1 - energy.it_w(1.0, pue_b) / energy.it_w(1.0, pue_a)) * 100,
    "G6": lambda compute, nvlink, overhead: compute + nvlink + overhead,
    "G7": lambda N, K, P, S: tco.rebate_share(N, P, K, S) * 100,
    "H1": lambda days, n: reliability.mtbf_s((n,), (1 / (days * 24.0),)),
    "H3": lambda gpus: gpus * reliability.mtbf_s((419,), (1 / (54 * 24.0),)),
    "H5": lambda n, N: tm.fleet("llama-3-h100").interruptions["chip: faulty GPU"] / N * 100,
    "H6": lambda rate, gpus, per_node: reliability.mtbf_s((gpus / per_node,), (rate / 24,)),
    "H8": lambda gpu, n, nic, nn, psu, np: reliability.mtbf_s((n, nn, np), (1 / gpu, 1 / nic, 1 / psu)),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    row = GOLDEN[name]
    given, tolerance = json.loads(row["inputs_json"]), float(row["abs_or_rel_tol"])
    if name.startswith("A1"):
        found = watt_month(given["power_W"], given["price"], given["life_y"])[row["output"]]
    elif name[:2] in ("B1", "B2"):
        found = epoch(**given)[row["output"]]
    else:
        answer = ANSWERS.get(name) or ANSWERS[name.split(".")[0]]
        found = answer(**given)
    absolute = name[:2] in ("D4", "E1", "E2", "H6") or name == "F1"
    kind = {"abs": tolerance} if absolute else {"rel": tolerance}
    assert float(found) == pytest.approx(float(row["expected"]), **kind)


def test_the_two_cases_that_the_text_tells_of_a_rebate():
    """A strike under the market gives a discount; warrants worth more than the spend give more than all of it."""
    assert tco.rebate_share(100, 150.0, 20.34, 50_000.0) == pytest.approx(100 * 129.66 / 50_000)
    assert tco.rebate_share(100, 10.0, 20.34, 50_000.0) == 0
    assert tco.rebate_share(1000, 120.0, 10.0, 100_000.0) > 1
