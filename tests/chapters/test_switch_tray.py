"""Switch trays: planes and paths as printed; line numbers are those of `trainium3-deep-dive`."""

import pytest

from trnmodel.catalog import load
from trnmodel.chapters import switch_tray
from trnmodel.evidence import ledger

RACK = "trn3-nl32x2-pcie160"
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


def test_every_printed_path_agrees():
    table = switch_tray.paths([*NL72, RACK, "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"])
    assert "disagrees" not in set(table.verdict)
    assert (table.verdict == "agrees").sum() == 20
    inferred = table[table.verdict == "inferred"]  # L373 and L379 say all-to-all and print no number
    assert inferred.system.tolist() == ["trn3-nl72x2-ualink", "trn3-nl32x2-ualink"]
    assert inferred.counted.tolist() == [1, 1]


def test_hops_are_shares():
    hops = switch_tray.hops(["trn3-nl32x2-pcie160", "trn2.48xlarge"])
    assert hops.groupby("system").share.sum().tolist() == pytest.approx([1, 1])


def test_contradictions_carry_their_arithmetic():
    table = ledger.contradictions()
    gives = dict(zip(table.about, table.gives, strict=True))
    assert gives["chips of an NL72x2 rack"] == "72 chips"
    assert gives["cross-rack share of the backplane"] == "25 %"
    assert gives["the same over all lanes of the chip"] == "10 %"
    assert gives["copper cables of NL32x2"] == "5120 lanes"
    assert gives["scale-up rate of a chip"] == "1.152 TB/s"
    assert gives["memory bandwidth of the Trn3 over the Trn2 UltraServer"] == "3.802 x"
    assert len(table) == 25
    assert set(table.says.str.extract(r"\(([a-z0-9-]+), L")[0]) <= set(load.sources())
    assert (table.gives[table.arithmetic == ""] == "").all()
    assert table.about.is_unique or table[table.about.duplicated(keep=False)].arithmetic.is_unique
