"""The table of what graphs answer is that of the graphs, and a layout that it does not have is built."""

import json
from dataclasses import replace

import pytest

import trnmodel as tm
from trnlab import wirings
from trnmodel.catalog.load import read_csv
from trnmodel.fabric import build, wiring
from trnmodel.fabric.wiring import Answer, Wiring, answers, injection, pair, table_path


@pytest.fixture(scope="module")
def rows():
    return read_csv(table_path(), Answer)


def test_the_table_is_that_of_the_graphs(rows):
    anew = wirings.table()
    keys = ["layout", "systems", "question", "scope", "of", "ratios"]
    assert anew[keys].values.tolist() == [[getattr(row, key) for key in keys] for row in rows]
    for row, value in zip(rows, anew.value, strict=True):
        found, stored = json.loads(value), json.loads(row.value)
        assert stored == (pytest.approx(found, rel=1e-9) if row.question == "pair" else found), row


@pytest.mark.parametrize(
    ("name", "question", "value"),
    [
        # a ring of k has 2 links a chip and a mean distance of k/4: 2 / (16 x 1) on 4 x 4, 1 / 8 of a link
        ("trn2.48xlarge", ("pair", "world", "free", (1.0, 1.0)), 0.125),
        # one link to a switch, to 71 others
        ("gb200-nvl72", ("pair", "world", "free", (1.0,)), 1 / 71),
        ("hgx-h100", ("injection", "world", "", (1.0,)), 1.0),
        ("mi300x-8", ("injection", "world", "", (1.0,)), 7.0),  # a link to each of the others
        ("trn2-ultraserver", ("farthest_routes", "world", "", ()), (((2 + 2 + 2, 0),),)),  # of 4 x 4 x 4
    ],
)
def test_values_that_arithmetic_gives(name, question, value):
    found = answers()[wiring.wiring(tm.system(name)).digest][question]
    assert found == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)


def test_nothing_is_built_for_a_layout_of_the_table(monkeypatch):
    where = tm.system("trn3-nl72x2-pcie160")
    wiring._wired.cache_clear()
    monkeypatch.setattr(build, "build", lambda system: pytest.fail(f"{system.id} was built"))
    net = tm.topology(where)
    assert net.injection_by_medium().keys() == {"pcb", "backplane", "cross-rack"}
    assert net.all_to_all_bytes_per_s_per_pair("rack") > 0
    wiring._wired.cache_clear()


def test_another_layout_is_built_and_answers_for_itself():
    where = tm.system("trn3-nl72x2-pcie160")
    fewer = wiring.wiring(where.with_switch_trays(9))
    assert not fewer.known
    assert fewer.digest != wiring.wiring(where).digest
    assert fewer.media == wiring.wiring(where).media


def test_rates_of_its_own_change_no_layout_and_scale_its_answers():
    where = tm.system("trn3-nl32x2-pcie160")
    faster = replace(where, id="mine", lane_bytes_per_s_per_dir=3 * where.lane_bytes_per_s_per_dir)
    assert wiring.wiring(faster) is wiring.wiring(where)
    ours, theirs = tm.topology(faster), tm.topology(where)
    assert ours.all_to_all_bytes_per_s_per_pair() == pytest.approx(3 * theirs.all_to_all_bytes_per_s_per_pair())


def test_other_ratios_of_rates_are_solved():
    where = tm.system("trn2-ultraserver")
    known, built = wiring.wiring(where), Wiring(build.build(where))
    for ratios in ((1.0, 1.0, 0.5), (1.0, 1.0, 1.0)):
        assert pair(known, ratios, "rack", "free") == pytest.approx(pair(built, ratios, "rack", "free"), rel=1e-9)
        assert injection(known, ratios, "world", "") == injection(built, ratios, "world", "")


def test_a_table_that_lacks_a_layout_costs_time_alone(monkeypatch):
    where = tm.system("hgx-h100")
    before = tm.collective("all_to_all", 2**20, where).time_s
    wiring._wired.cache_clear()
    monkeypatch.setattr(wiring, "answers", dict)
    own = replace(where, id="without a row")
    assert tm.collective("all_to_all", 2**20, own).time_s == pytest.approx(before, rel=1e-9)
    wiring._wired.cache_clear()
