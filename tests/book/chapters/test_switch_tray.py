"""Switch trays: planes and paths as printed; line numbers are those of `trainium3-deep-dive`."""

from math import comb

import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import switch_tray
from trnbook.shared import fabrics as compare
from trnbook.shared import ledger, placements
from trnmodel.catalog import load
from trnmodel.fabric import what_if
from trnmodel.units import GB, US

RACK = "trn3-nl32x2-pcie160"
AWS = "trn3-nl72x2-aws-lanes"
NL72 = ["trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl72x2-pcie320", "trn3-nl72x2-ualink"]


def test_planes_as_printed():
    """L322 four planes of ten, 144 board switches; L355 eight switches; L363 two planes; L379 one."""
    table = switch_tray.plane_table([*NL72, "trn3-nl32x2-pcie320"]).set_index("system")
    assert table.planes.tolist() == [4, 4, 2, 1, 1]
    assert table.rack_switches.tolist() == [40, 40, 20, 10, 8]
    assert table.ports_free["trn3-nl72x2-pcie160"] == 2  # L327
    assert table.board_switches[NL72].tolist() == [144] * 4


def test_trays_of_any_system():
    assert switch_tray.trays("trn3-nl72x2-pcie320") == NL72
    assert switch_tray.trays("trn2-ultraserver") == switch_tray.trays(RACK)


@pytest.mark.parametrize(
    "name", ["trn2-ultraserver", "trn3-nl32x2-torus", "hgx-h100", "trn3pds98.48xlarge", "trn1.2xlarge"]
)
def test_systems_without_a_choice_of_trays_show_the_small_racks(name):
    assert switch_tray.trays(name) == switch_tray.trays(RACK)
    assert compare.lane_maps(switch_tray.trays(name)[0]) == []


def test_lane_map_of_aws_stands_beside_the_trays():
    """32 + 40 + 16 lanes (trn3-arch L94-124) are no tray of 64 + 64 + 16 and have no other tray of their own."""
    for name in (*NL72, AWS):
        assert switch_tray.trays(name) == NL72
        assert compare.lane_maps(switch_tray.trays(name)[0]) == [AWS]


def test_all_to_all_by_both_lane_maps_by_hand():
    """68 of a chip's 71 peers lie beyond its tray: 64 lanes of 8 GB/s carry 512, AWS's 40 carry 320."""
    rates = compare.capacities([NL72[0], AWS]).set_index(["system", "scope"]).all_to_all_bytes_per_s
    assert rates[NL72[0], "rack"] == pytest.approx(512 / 68 * 71 * GB)  # 534.6
    assert rates[AWS, "rack"] == pytest.approx(320 / 68 * 71 * GB)  # 334.1
    assert rates[AWS, "world"] == pytest.approx(rates[NL72[0], "world"])


def test_pairs_with_one_switch_or_none_by_hand():
    """NL32x2, of C(64, 2) pairs: in each rack all C(32, 2), or with two planes 2 x C(16, 2) and the pairs of 16 trays.

    Across, 32 are joined by a cable and 32 more lie behind one of them: the neighbour on the twin's tray.
    """
    share = switch_tray.within_one(switch_tray.hops([RACK, "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"]))
    two, one = (2 * (2 * comb(16, 2) + 16) + 64) / comb(64, 2), (2 * comb(32, 2) + 64) / comb(64, 2)
    assert share.tolist() == pytest.approx([two, one, one])


def test_what_trays_are_worth_where_forwarding_is_free():
    """58 layers, dispatch and combine, one switch of 115 ns fewer on NL72x2; none on NL32x2, which has no boards."""
    for small, large, switches in ((NL72[0], NL72[3], 1), (RACK, "trn3-nl32x2-ualink", 0)):
        free = [switch_tray.free_to_forward(name) for name in (small, large)]
        table = placements.exchanges("deepseek-v3", free, [8])
        step_s = table[table.experts_over == "rack"].step_s.to_numpy()
        assert step_s[0] - step_s[1] == pytest.approx(58 * 2 * switches * 0.115 * US, abs=1e-12)


def test_one_tray_lost():
    """A quarter of four trays; NL72x2 and a fifth tray have spares (L193, L275); AWS's map has one of ten and none."""
    narrow = tm.system(RACK)
    lost = [
        what_if.shares_left(name).set_index("failure") for name in (narrow, narrow.with_switch_trays(5), NL72[0], AWS)
    ]
    assert [table.rack_all_to_all["one switch tray"] for table in lost] == pytest.approx([0.75, 1, 1, 0.9])


def test_every_case_is_counted_once():
    judged = pd.DataFrame({"verdict": ["agrees"] * 2 + ["earlier"] * 3 + ["later"] * 4 + ["no rate"] * 5})
    words = switch_tray.tally(judged)
    assert words.startswith("14 cases: 9 decided (agrees 2, earlier 3, later 4), 5 undecidable")
    assert "undecidable" not in switch_tray.tally(judged[judged.verdict != "no rate"])


def test_every_printed_path_agrees():
    table = switch_tray.paths([*NL72, RACK, "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"])
    assert "disagrees" not in set(table.verdict)
    assert (table.verdict == "agrees").sum() == 20
    inferred = table[table.verdict == "inferred"]  # L373 and L379 say all-to-all and print no number
    assert inferred.system.tolist() == ["trn3-nl72x2-ualink", "trn3-nl32x2-ualink"]
    assert inferred.counted.tolist() == [1, 1]


def test_a_rank_that_is_a_chip_is_announced():
    """deep dive L62: LNC 8 by mid-2026; sdk-lnc L14: only 1 and 2 are supported."""
    words = switch_tray.describe_rank(RACK)
    assert "LNC 8" in words
    assert "announced" in words


def test_hops_are_shares():
    hops = switch_tray.hops(["trn3-nl32x2-pcie160", "trn2.48xlarge"])
    assert hops.groupby("system").share.sum().tolist() == pytest.approx([1, 1])


def test_contradictions_carry_their_arithmetic():
    table = ledger.contradictions()
    gives = dict(zip(table.about, table.gives, strict=True))
    assert gives["chips of an NL72x2 rack"] == "72 chips"
    assert gives["cross-rack share of the backplane"] == "25 %"
    assert gives["the same over all lanes of the chip"] == "10 %"
    assert gives["copper cables of NL32x2"] == "5,120 lanes"
    assert gives["scale-up rate of a chip"] == "1.152 TB/s"
    assert gives["memory bandwidth of the Trn3 over the Trn2 UltraServer"] == "3.802 x"
    assert len(table) == 25
    assert set(table.says.str.extract(r"\(([a-z0-9-]+), L")[0]) <= set(load.sources())
    assert (table.gives[table.arithmetic == ""] == "").all()
    assert table.about.is_unique or table[table.about.duplicated(keep=False)].arithmetic.is_unique
