"""Torus or switch: messages by hand, buffers, and where one shot ends."""

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import torus_or_switch
from trnmodel.units import GB, MIB

TORUS = "trn3-nl32x2-torus"


def test_time_is_latency_then_flow():
    """64 chips at 252 GB/s: 63/64 of 1 GiB takes 4.194 ms; crossing where that equals 9 us: 2.304 MB."""
    table = torus_or_switch.all_to_all([TORUS], [0, 2**30])
    assert table.time_s.tolist() == pytest.approx([9e-6, 9e-6 + 2**30 * 63 / 64 / (252 * GB)])
    crossing = torus_or_switch.crossovers([TORUS]).set_index("scope").loc["world"]
    assert crossing.crossover_bytes == pytest.approx(2.304e6)
    assert crossing.per_pair_bytes == pytest.approx(36e3)


ON_LINKS = {"in_graph": True, "rate_share": 1.0}  # what the chapter compares: fabrics, without a launch


def test_a_rack_of_switches_has_a_shorter_worst_way():
    """Torus of 4 x 4 x 2 in a rack: five hops of 1.5 us; UALink: one chip and one switch of 0.115 us."""
    table = torus_or_switch.all_to_all([TORUS, "trn3-nl32x2-ualink"], [0], scope="rack").set_index("system")
    assert table.latency_s.to_dict() == pytest.approx({TORUS: 7.5e-6, "trn3-nl32x2-ualink": 1.615e-6})


def test_times_are_those_of_the_public_call():
    table = torus_or_switch.collective_times(["trn2.48xlarge"], "all_reduce", [MIB, 64 * MIB])
    found = tm.collective("all_reduce", np.array([MIB, 64 * MIB]), "trn2.48xlarge", **ON_LINKS)
    assert table.time_s.tolist() == found.time_s.tolist()


def test_one_shot_ends_where_the_next_algorithm_is_faster():
    (row,) = torus_or_switch.library_switch(["trn2.48xlarge"]).itertuples()
    sizes = np.array([row.one_shot_up_to_bytes, row.one_shot_up_to_bytes * 2**0.25])
    chosen = tm.collective("all_reduce", sizes, "trn2.48xlarge").algorithm
    assert (chosen == "one_shot").tolist() == [True, False]
    assert row.ratio == row.one_shot_up_to_bytes / row.library_up_to_bytes


def test_gains_by_every_account_of_the_lanes_by_hand():
    """A rack: 31 x 512/30, AWS 71 x 320/68, tori 248 and 124; the domain: 252, AWS 143 x 128/72, tori 252 and 126."""
    table = torus_or_switch.gains("trn3-nl32x2-pcie160", TORUS).set_index("reading")
    assert table.rack.tolist() == pytest.approx([31 * 512 / 30 / 248, 71 * 320 / 68 / 248, 31 * 512 / 30 / 124])
    assert table.world.tolist() == pytest.approx([1, 143 * 128 / 72 / 252, 2])
    assert torus_or_switch.describe_gains(table.reset_index(), "rack").startswith(
        "2.13 times (1.35 by AWS's own lane map; 4.27 "
    )


def test_a_system_without_another_account_has_one_gain():
    table = torus_or_switch.gains("trn2.48xlarge", "trn1.32xlarge")
    assert table.reading.tolist() == ["as used"]
    assert table.rack.tolist() == pytest.approx([240 / 90])  # 4x4 tori: 15 x 2 x 128/16 and 15 x 2 x 48/16


def test_what_bounds_buffers_in_hbm():
    table = torus_or_switch.buffer_places(["trn2.48xlarge"], GB)
    assert (table.hbm_s >= table.sbuf_s).all()
    assert table.bound.tolist() == ["HBM", "links"]


def test_times_of_collectives_carry_band_and_basis():
    """Ends of the bus bandwidth are those of `tm.collective`, slow where its time is long."""
    table = torus_or_switch.collective_times(["trn2-ultraserver"], "all_reduce", [1e4, 1e9])
    answer = tm.collective("all_reduce", np.array([1e4, 1e9]), "trn2-ultraserver", **ON_LINKS)
    assert table.basis.tolist() == answer.basis.tolist()
    moved = table.busbw_bytes_per_s * answer.time_s
    assert (table.busbw_bytes_per_s_low * answer.high).to_numpy() == pytest.approx(moved.to_numpy())
