"""Rack composition: what the sources print about racks, trays, hosts and networks."""

import math
from dataclasses import replace

import pytest

from trnmodel.catalog import load
from trnmodel.catalog.systems import system, systems
from trnmodel.units import GB, GBIT, GIB

ARCHITECTURE = """trn1.2xlarge trn1.32xlarge trn1n.32xlarge trn2.3xlarge trn2.48xlarge trn2-ultraserver trn3-nl16-torus
trn3-nl32x2-torus trn3-nl32x2-pcie160 trn3-nl32x2-pcie320 trn3-nl32x2-ualink trn3-nl72x2-pcie160 trn3-nl72x2-pex90144
trn3-nl72x2-pcie320 trn3-nl72x2-ualink inf2.xlarge inf2.8xlarge inf2.24xlarge inf2.48xlarge trn3pds98.48xlarge
trn3pd98.3xlarge hgx-a100 hgx-h100 hgx-h200 hgx-b200 gb200-nvl72 gb300-nvl72 mi300x-8 mi355x-8 tpu-v5p-pod""".split()


@pytest.mark.parametrize("name", ARCHITECTURE)
def test_every_system_of_the_plan_is_assembled_with_sources(name):
    found = system(name)
    assert found.chips >= 1
    assert all(fact_id in load.facts_rows() for ids in found.sources.values() for fact_id in ids)


@pytest.mark.parametrize(
    ("name", "chips", "vcpus", "host_gib", "efa_gbit"),
    [
        # trn1-arch L21-39, trn2-arch L71-105, trn3-arch L36-73; EFA per chip: 800/16, 3200/16, 12800/64, 28800/144
        ("trn1.32xlarge", 16, 128, 512, 50),
        ("trn2.48xlarge", 16, 192, 2048, 200),
        ("trn2-ultraserver", 64, 768, 8192, 200),
        ("trn3-nl32x2-pcie160", 64, 768, 8192, 200),
        ("trn3-nl72x2-pcie160", 144, 2304, 27648, 200),
        ("trn3-nl72x2-ualink", 144, 2304, 27648, 200),
    ],
)
def test_hosts_and_network_are_as_printed(name, chips, vcpus, host_gib, efa_gbit):
    found = system(name)
    assert (found.chips, found.vcpus, found.host_bytes) == (chips, vcpus, host_gib * GIB)
    assert found.scaleout_bytes_per_s_per_dir == efa_gbit * GBIT


def test_nl72x2_rack_as_printed():
    """deep dive L229-253: 18 trays of 4 chips and one CPU, liquid, 6 retimers; one 400G NIC for two chips."""
    rack = system("trn3-nl72x2-pcie160")
    assert (rack.compute_trays, rack.host_cpus, rack.cooling, rack.retimers_per_tray) == (36, 36, "liquid", 6)
    assert rack.nics / rack.compute_trays == 2
    # L253 one more in each of 36 compute trays, the CPU's own; NL32x2: L213 one in each of four CPU trays (L189)
    assert (rack.nics, rack.cpu_nics, rack.nics + rack.cpu_nics) == (72, 36, 108)
    narrow = system("trn3-nl32x2-pcie160")
    assert (narrow.nics, narrow.cpu_nics) == (32, 4)
    assert math.isnan(system("trn2-ultraserver").cpu_nics)  # nobody says


def test_nl32x2_rack_as_printed():
    """deep dive L183-213: 16 JBOGs of two chips and two CPU trays a rack, air, 4 retimers, x16 DAC of 128 GB/s."""
    rack = system("trn3-nl32x2-pcie160")
    assert (rack.compute_trays_per_rack, rack.chips_per_tray, rack.cpu_trays_per_rack) == (16, 2, 2)
    assert (rack.cooling, rack.retimers_per_tray, rack.host_link_bytes_per_s_per_dir) == ("air", 4, 128 * GB)
    assert rack.nics / rack.compute_trays == 1
    assert rack.with_switch_trays(5).switches_per_plane == 10


def test_count_multiplies_domains():
    assert system("trn2.48xlarge", count=4).chips == system("trn2-ultraserver").chips
    assert system(system("trn2.48xlarge", count=4)).count == 4
    with pytest.raises(ValueError, match="count=0"):
        system("trn2.48xlarge", count=0)


def test_shared_facts_are_inherited_with_their_provenance():
    base, upgraded = system("trn3-nl72x2-pcie160"), system("trn3-nl72x2-pcie320")
    assert upgraded.sources["retimers_per_tray"] == base.sources["retimers_per_tray"]
    assert upgraded.sources["switch"] != base.sources["switch"]
    assert "plane_positions" in upgraded.estimates
    assert "plane_positions" not in base.estimates


def test_wrong_names_and_shapes_are_refused():
    with pytest.raises(ValueError, match=r"nearest: .*trn3-nl72x2"):
        system("trn3-nl72x2-pcie")
    with pytest.raises(ValueError, match="no scale-up domain"):
        system("trn1-ultracluster")
    with pytest.raises(ValueError, match="domain_chips=16: 20 chips by torus_shape"):
        replace(system("trn2.48xlarge"), torus_shape=(4, 5))


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("trn2-ultraserver", {"torus_shape": (2, 2, 2, 8)}, "torus_shape=.*up to three sizes from 2"),
        ("trn2-ultraserver", {"torus_shape": (64, 1)}, "torus_shape="),
        ("trn2-ultraserver", {"torus_shape": ()}, r"torus_shape=\(\): needed for fabric='torus'"),
        ("trn2-ultraserver", {"scaleup_bytes_per_s_per_dir": {"rack": 1e9}}, "scaleup_bytes_per_s_per_dir="),
        ("hgx-h100", {"fabric": "planes"}, "racks=nan: needed for fabric='planes'"),
        ("trn3-nl72x2-pcie160", {"switch": None}, "switch=None: needed"),
        ("trn3-nl72x2-pcie160", {"pcb_switch": None}, "pcb_switch=None: needed"),
        ("trn3-nl72x2-pcie160", {"racks": 4.0, "domain_chips": 288}, "racks=4.0: allowed are 1 and 2"),
        ("trn3-nl72x2-pcie160", {"scaleup_lanes": {"pcb": 8.0}}, "scaleup_lanes=.*lanes of pcb, backplane, cross-rack"),
        ("trn3-nl72x2-pcie160", {"compute_trays_per_rack": 17.0}, "domain_chips=144: 136 chips by racks x compute"),
    ],
)
def test_a_composition_that_no_fabric_has_is_refused(name, change, words):
    with pytest.raises(ValueError, match=f"{name}: {words}"):
        replace(system(name), **change)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: system(5), "system=5"),
        (lambda: system([]), r"system=\[\]"),
        (lambda: system("trn2-ultraserver", True), "count=True"),
        (lambda: system("trn2-ultraserver", [1, 2]), "count="),
        (lambda: system("trn2-ultraserver", 10**400), "count=1000"),
        (lambda: system("trn3-nl32x2-pcie160").with_switch_trays(0), "trays=0"),
        (lambda: system("trn3-nl32x2-pcie160").with_switch_trays("5"), "trays='5'"),
        (lambda: system("trn2-ultraserver").with_switch_trays(1), "trays=1: trn2-ultraserver has no switch trays"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_every_system_is_listed_once_and_is_an_entity():
    assert len(systems()) == len(set(systems()))
    assert set(ARCHITECTURE) <= set(systems())
