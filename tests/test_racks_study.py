"""Tables of chapter 4: counted against printed, names, failures and readings."""

import pytest

from trnmodel.studies import racks

SWITCHED = ["trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl32x2-pcie320"]


def test_printed_counts_of_the_deep_dive():
    """L393, L322, L327, L229, L189: cables, switches, ports, CPUs and chips, as printed and as counted on the graph."""
    table = racks.verdicts([*SWITCHED, "trn2-ultraserver"]).set_index(["system", "part"])
    agreed = table.counted[table.verdict == "agrees"]
    assert agreed["trn3-nl72x2-pcie160", "switches"] == 368
    assert agreed["trn3-nl72x2-pcie160", "copper cables"] == 11_520
    assert agreed["trn3-nl32x2-pcie160", "copper cables"] == 5120
    assert agreed["trn2-ultraserver", "copper cables"] == 6144
    assert agreed["trn3-nl72x2-pcie160", "host CPUs"] == 36


def test_disagreements_of_the_text_are_marked():
    """L401 64 chips a rack against 18 x 4; L314 less than 10 % against 16/64; L349 ports of the PEX90144 swapped."""
    table = racks.verdicts(SWITCHED)
    wrong = table[table.verdict == "disagrees"].drop_duplicates("part").set_index("part").counted
    assert wrong["chips per rack"] == 72
    assert wrong["cross-rack share of backplane"] == pytest.approx(0.25)
    assert (wrong["x8 ports of a rack switch"], wrong["x4 ports of a rack switch"]) == (18, 36)


def test_names_of_a_rack():
    names = racks.names().set_index("system")
    assert names.codename["trn3-nl32x2-pcie160"] == "Teton3 PDS"
    assert "Trn3 Gen2 UltraServer" in names.AWS["trn3-nl72x2-pcie160"]
    assert "Trainium3 NL72x2 Switched" in names["by topology"]["trn3-nl72x2-pcie160"]


def test_spares_take_over():
    """L275-279: redundant backplane lanes; none on the board or between racks."""
    left = racks.failures("trn3-nl72x2-pcie160").set_index("failure")
    assert (left.loc[["one backplane lane", "one backplane switch", "one switch tray"]] == 1).all(axis=None)
    assert left.injection["one pcb lane"] == pytest.approx(1 - 4 / 144)  # a x8 port that lost a lane trains to x4
    assert left.all_to_all["one cross-rack link"] == pytest.approx(71 / 72)


def test_torus_reading_halves_the_third_dimension():
    readings = racks.readings("trn3-nl32x2-torus").set_index("assumption")
    assert "all to all per pair x 0.5" in readings.changes["trn3-torus-144"]


def test_hops_are_shares():
    hops = racks.hops(["trn3-nl32x2-pcie160", "trn2.48xlarge"])
    assert hops.groupby("system").share.sum().tolist() == pytest.approx([1, 1])
