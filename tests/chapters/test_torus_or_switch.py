"""Torus or switch: messages by hand, buffers, and where one shot ends."""

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.chapters import torus_or_switch
from trnmodel.units import GB, MIB

TORUS = "trn3-nl32x2-torus"


def test_time_is_latency_then_flow():
    """64 chips at 252 GB/s: 63/64 of 1 GiB takes 4.194 ms; crossing where that equals 9 us: 2.304 MB."""
    table = torus_or_switch.all_to_all([TORUS], [0, 2**30])
    assert table.time_s.tolist() == pytest.approx([9e-6, 9e-6 + 2**30 * 63 / 64 / (252 * GB)])
    crossing = torus_or_switch.crossovers([TORUS]).set_index("scope").loc["world"]
    assert crossing.crossover_bytes == pytest.approx(2.304e6)
    assert crossing.per_pair_bytes == pytest.approx(36e3)


def test_a_rack_of_switches_has_a_shorter_worst_way():
    """Torus of 4 x 4 x 2 in a rack: five hops of 1.5 us; UALink: one chip and one switch of 0.115 us."""
    table = torus_or_switch.all_to_all([TORUS, "trn3-nl32x2-ualink"], [0], scope="rack").set_index("system")
    assert table.latency_s.to_dict() == pytest.approx({TORUS: 7.5e-6, "trn3-nl32x2-ualink": 1.615e-6})


def test_times_are_those_of_the_public_call():
    table = torus_or_switch.collective_times(["trn2.48xlarge"], "all_reduce", [MIB, 64 * MIB])
    found = tm.collective("all_reduce", np.array([MIB, 64 * MIB]), "trn2.48xlarge")
    assert table.time_s.tolist() == found.time_s.tolist()


def test_one_shot_ends_where_the_next_algorithm_is_faster():
    (row,) = torus_or_switch.library_switch(["trn2.48xlarge"]).itertuples()
    sizes = np.array([row.one_shot_up_to_bytes, row.one_shot_up_to_bytes * 2**0.25])
    chosen = tm.collective("all_reduce", sizes, "trn2.48xlarge").algorithm
    assert (chosen == "one_shot").tolist() == [True, False]
    assert row.ratio == row.one_shot_up_to_bytes / row.library_up_to_bytes


def test_links_bound_a_domain_and_hbm_a_chip():
    table = torus_or_switch.buffer_places(["trn2.48xlarge"], GB)
    assert (table.hbm_s >= table.sbuf_s).all()
    assert table.bound.tolist() == ["HBM", "links"]
