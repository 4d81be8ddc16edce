"""Scale-out tables: printed sizes, networks by hand, distances, work per byte, and a cache against its prefill."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import scale_out
from trnbook.chapters import scale_out_printed as networks_printed
from trnbook.shared import case
from trnmodel.catalog import load
from trnmodel.fabric import scaleout
from trnmodel.units import GB, TBIT


def test_every_printed_size_agrees():
    """deep dive L461-L493: 2,048, 131,072, 512, 8,192, 524,288, and the ratios 16, 64, 4, 2, 2, 4."""
    table = networks_printed.printed_sizes()
    assert table.computed.tolist() == [2048, 131_072, 512, 8192, 524_288, 16, 64, 4, 2, 2, 4]
    assert (table.verdict == "agrees").all()


@pytest.mark.parametrize(
    ("system", "chips_per_nic", "chips_per_rack"),
    # deep dive L447-449: a 400G NIC for two Trainium3, two 200G links; a 12.8T top of rack has 64 ports down.
    # Trainium2: kiln prints one 200G NIC a chip. Trainium1: 50 Gb/s a chip, four chips on the 200G that are assumed.
    [("trn3-nl72x2-pcie160", 2, 64), ("trn2-ultraserver", 1, 64), ("trn1.32xlarge", 4, 256)],
)
def test_network_of_a_system(system, chips_per_nic, chips_per_rack):
    first = scaleout.networks(system).iloc[0]
    assert scaleout.nic(system)["chips_per_nic"] == chips_per_nic
    assert (first.leaf_and_spine, first.chips_per_rack, first.racks_per_pod, first.pods) == (
        "12.8T",
        chips_per_rack,
        64,
        128,
    )
    assert first.chips == chips_per_rack * 64 * 128


@pytest.mark.parametrize(
    ("system", "under", "down", "up", "chips"),
    # 128 ports of 100G, one down for each chip on each switch of the pair; 64 racks a pod, 128 pods (L489-493).
    [
        ("trn3-nl72x2-pcie160", "half of the ports", 64, 64, 524_288),
        ("trn3-nl72x2-pcie160", "a rack", 72, 56, 589_824),
        ("trn3-nl72x2-aws-lanes", "half a rack", 36, 92, 294_912),
        ("trn3-nl32x2-pcie160", "a rack", 32, 96, 262_144),
        ("trn3-nl32x2-torus", "two racks", 64, 64, 524_288),
    ],
)
def test_reach_by_what_shares_a_pair(system, under, down, up, chips):
    row = scaleout.by_rack(system).set_index("under").loc[under]
    assert (row.chips_per_pair, row.down_ports, row.up_ports, row.chips) == (down, down, up, chips)
    assert row.oversubscription == down / up


def test_cpus_of_a_rack_on_the_same_switches():
    """L253, L445: 18 NICs of CPUs beside 36 of chips, two ports each on both switches: 36 ports; NL32x2 two, so 4."""
    ports = [
        scaleout.by_rack(f"trn3-{rack}-pcie160").set_index("under").cpu_ports["a rack"] for rack in ("nl72x2", "nl32x2")
    ]
    assert ports == [36, 4]


@pytest.mark.parametrize("system", ["trn1.32xlarge", "hgx-h100", "tpu-v7-pod"])
def test_systems_without_racks_have_none(system):
    assert scaleout.by_rack(system).under.tolist() == ["half of the ports"]


def test_optics_by_hand():
    """8,192 chips at 200 Gb/s, two layers: each up-link of 100G takes a quarter of a 400G module at both of its ends.

    Up-links equal endpoints: two a chip. 2 x 2 / 4 = 1 module a chip; a third layer repeats it. Switches: per plane
    8,192 / 64 = 128 ToR and 128 x 64 / 128 = 64 spines; two planes are 384, 384 / 8,192 = 0.046875 a chip.
    """
    choice = scaleout.port_choice("trn3-nl72x2-pcie160", 8192, [100e9, 400e9]).set_index(["switch", "port"])
    assert tuple(choice.loc[("12.8T", "100G")]) == (2, 0.046875, 1, 8192)
    assert choice.layers[("12.8T", "400G")] == 3
    assert choice.optics_per_chip[("12.8T", "400G")] == 2


def test_ports_that_a_nic_cannot_be_split_into_are_marked():
    choice = scaleout.port_choice("trn2-ultraserver", 1024, [400e9])
    assert choice.layers.isna().all()


def test_no_network_without_a_published_rate():
    with pytest.raises(ValueError, match="gb300-nvl72"):
        scaleout.networks("gb300-nvl72")


def test_networks_by_hand():
    """128 ports of 100G: 64 NICs of two ports below, two planes; 524,288 / 2 NICs on 5 switches of 64 for 64 x 2."""
    table = scaleout.networks("trn3-nl72x2-pcie160")
    assert table.columns[0] == "leaf_and_spine"
    first = table.iloc[0]
    assert (first.chips, first.switches, first.cables, first.optics) == (2**19, 5 * 2**13, 3 * 2**18, 2**20)
    assert (first.switches_per_chip, first.cables_per_chip, first.optics_per_chip) == (5 / 64, 1.5, 2)


def test_a_network_joins_at_least_a_chip():
    assert scaleout.port_choice("trn3-nl72x2-pcie160", 1, [100e9]).layers.tolist() == [2, 2, 2, 2]
    assert scaleout.parts_per_chip("hgx-h100", 1)["layers"] == 2
    for call in (lambda: scaleout.port_choice("hgx-h100", 0.5, [1e11]), lambda: scaleout.parts_per_chip("hgx-h100", 0)):
        with pytest.raises(ValueError, match="chips="):
            call()


def test_switches_on_offer():
    assert scaleout.switch_bits_per_s() / 8 / TBIT == pytest.approx([12.8, 25.6, 51.2, 102.4])


def test_distances_by_hand():
    """120 km x 1.4682 / 299,792.458 km/s = 587.7 us; the NIC's middle is 5.9 us, the switch's 0.825 us."""
    ways = scaleout.distances("trn3-nl72x2-pcie160").set_index("way")
    far = ways.loc["building, 400G ZR"]
    assert far.fibre_s == pytest.approx(587.7e-6, rel=1e-4)
    assert far.latency_s == pytest.approx(587.7e-6 + 2 * 5.9e-6 + 6 * 0.825e-6, rel=1e-4)
    assert far.in_flight_bytes == pytest.approx(2 * far.latency_s * 25 * GB)
    assert ((ways.latency_s_low <= ways.latency_s) & (ways.latency_s <= ways.latency_s_high)).all()
    near = ways.iloc[:3]
    assert near.latency_s.tolist() == pytest.approx([2 * 5.9e-6 + n * 0.825e-6 for n in (1, 3, 5)])
    assert near.distance_m.tolist() == [0, 0, 0]
    assert ways.distance_m[3:].tolist() == [2e3, 1e4, 1.2e5, 7.25e5]  # FR4, LR4, ZR, OpenZR+
    assert ways.estimate.all()


def test_fibre_agrees_with_a_printed_delay():
    """4.897 us/km at 1550 nm, printed apart from the index."""
    computed, printed = networks_printed.fibre_check()
    assert computed == pytest.approx(printed, rel=1e-3)


def test_nic_latency_brackets_the_printed_message():
    """AWS prints 15 us HBM to HBM across servers: it lies between the nearest and the farthest way."""
    ways = scaleout.distances("trn2.48xlarge")
    printed = load.value("efa-v3", "hop_s")
    assert ways.latency_s_low[0] < printed < ways.latency_s_high[2]


@pytest.fixture(scope="module")
def llama():
    """Llama-3.3-70B of the running case on Trainium2, whose prompt leaves 80 x 2 x 8 x 128 x 2 B a token."""
    return scale_out.sent(case.choice("llama-3.3-70b", "trn2.48xlarge"), 327_680 * 4096)


def test_a_cache_leaves_at_the_rate_of_its_chips(llama):
    assert llama["chips"] == 1
    assert llama["send_s"] == pytest.approx(327_680 * 4096 / 25e9)
    assert llama["prefill_over_sending"] == pytest.approx(llama["prefill_s"] / llama["send_s"])


def test_a_plan_of_separate_pools_sends_the_cache_as_fast(llama):
    ask = {"systems": "trn2.48xlarge", "prefill_systems": "trn2.48xlarge"}
    apart = tm.plan("llama-3.3-70b", case.request("llama-3.3-70b"), **ask).best
    assert apart.chips == 1
    assert np.ravel(apart.column.transfer_s)[0] == pytest.approx(llama["send_s"])


def test_all_but_the_last_layer_of_a_cache_hides(llama):
    """Sent faster than made, a layer is late by its own sending and the latency; one piece by all of it."""
    row = scale_out.late(pd.DataFrame([llama])).iloc[0]
    latency_s = scaleout.distances("trn2.48xlarge").latency_s[2]
    assert row.late_s == pytest.approx(llama["send_s"] / 80 + latency_s)
    assert row.late_whole_s == pytest.approx(llama["send_s"] + latency_s)


def test_work_per_byte_of_tensor_parallelism_by_hand():
    """Two all-reduces a layer of 4,096 x 8,192 x 2 B over four ranks, each of which sends 2 x 3/4 of it."""
    first = case.choice("llama-3.3-70b", "trn3-nl72x2-pcie160").first
    sent = 2 * 80 * 1.5 * 4096 * 8192 * 2
    assert scale_out.per_byte(first, "tp") == pytest.approx(float(first.work_flop_per_rank) / sent)


def test_work_per_byte_of_experts_by_hand():
    """Dispatch and combine of 58 layers: eight copies of 4,096 x 7,168 x 2 B over two ranks, 63 of 64 go elsewhere."""
    best = case.choice("deepseek-v3", "trn3-nl72x2-pcie160")
    assert (float(best.first.tp), float(best.first.ep)) == (2, 64)
    sent = 2 * 58 * 8 * 4096 * 7168 * 2 / 2 * 63 / 64
    assert scale_out.per_byte(best.first, "ep") == pytest.approx(float(best.first.work_flop_per_rank) / sent)


def test_an_all_reduce_over_more_domains_adds_what_crosses():
    """16 chips hold 62.5 MB each: 2 (1 - 1/c) of it cross at 25 GB/s."""
    ask = {"kind": "all_reduce", "message_bytes": 1e9, "efficiencies": "ideal"}
    two, many = (float(tm.collective(system=tm.system("trn2.48xlarge", count=c), **ask).time_s) for c in (2, 64))
    assert many - two == pytest.approx(2 * (1 / 2 - 1 / 64) * 62.5e6 / 25e9)


def test_calls_between_instances_are_predicted_within_a_third():
    calls = scale_out.timed(tm.validate(scale_out.between_instances()))
    assert len(calls) == 72
    assert calls.error.abs().max() < 1 / 3
    assert calls[calls.message_bytes >= 2**24].error.abs().median() < 0.1


def test_a_network_that_is_too_small_has_no_parts():
    ask = {"switch_bits_per_s": 12.8e12, "layers": 2, **scale_out.attached("trn3-nl72x2-pcie160", 400e9)}
    row = scale_out.sized(tm.clos(**ask), tm.clos(**ask, chips=8192))
    assert row["max_chips"] == 1024
    assert np.isnan(row["optics_per_chip"])


def test_measured_transfers_stay_below_the_printed_rate():
    """19.3 of 25 GB/s for one device, about 270 and 279 of 400 GB/s for the instance."""
    assert networks_printed.measured_share().share.round(4).tolist() == [0.772, 0.675, 0.6975]


def test_scale_up_is_that_of_the_system_not_of_its_chip():
    """88 lanes of 8 GB/s by AWS's map, 144 by the deep dive; four links of Trainium2's instance, six of its pair."""
    names = ["trn3-nl72x2-aws-lanes", "trn3-nl72x2-pcie160", "trn2.48xlarge", "trn2-ultraserver", "hgx-h100"]
    ratio = scale_out.rates(names).set_index("system").scaleup_over_scaleout
    assert ratio.tolist() == pytest.approx([704 / 25, 1152 / 25, 512 / 25, 640 / 25, 450 / 50])
