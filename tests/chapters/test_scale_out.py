"""Scale-out tables: printed sizes, networks by hand, distances, and a KV cache against its prefill."""

import numpy as np
import pytest

from trnmodel.catalog import load
from trnmodel.chapters import common, scale_out
from trnmodel.evidence import networks_printed
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


def test_fibre_agrees_with_a_printed_delay():
    """4.897 us/km at 1550 nm, printed apart from the index."""
    computed, printed = networks_printed.fibre_check()
    assert computed == pytest.approx(printed, rel=1e-3)


def test_nic_latency_brackets_the_printed_message():
    """AWS prints 15 us HBM to HBM across servers: it lies between the nearest and the farthest way."""
    ways = scaleout.distances("trn2.48xlarge")
    printed = load.value("efa-v3", "hop_s")
    assert ways.latency_s_low[0] < printed < ways.latency_s_high[2]


def test_kv_transfer_by_hand():
    """Llama-3.1-70B in BF16: 80 layers x 2 x 8 heads x 128 x 2 B = 327,680 B a token; 16 chips send 400 GB/s."""
    table = scale_out.kv_transfer("llama-3.1-70b", "trn3-nl72x2-pcie160", [8192, 32768], 16)
    np.testing.assert_allclose(table.kv_bytes, [327_680 * 8192, 327_680 * 32768])
    np.testing.assert_allclose(table.send_s, table.kv_bytes / 400e9)
    # sent faster than made: all but the last of 80 layers hides
    np.testing.assert_allclose(table.hidden, 1 - 1 / 80)
    assert (table.late_s < table.late_whole_s).all()


def test_a_model_that_does_not_fit_is_marked():
    table = scale_out.kv_transfer("llama-3.1-70b", "trn1.2xlarge", [2048], 16)
    assert table.chips[0] == 1
    assert table[["prefill_s", "late_s", "hidden"]].isna().all(axis=None)


def test_measured_transfers_stay_below_the_printed_rate():
    """19.3 of 25 GB/s for one device, about 270 and 279 of 400 GB/s for the instance."""
    assert networks_printed.measured_share().share.round(4).tolist() == [0.772, 0.675, 0.6975]


def test_scale_up_is_that_of_the_system_not_of_its_chip():
    """88 lanes of 8 GB/s by AWS's map, 144 by the deep dive; four links of Trainium2's instance, six of its pair."""
    names = ["trn3-nl72x2-aws-lanes", "trn3-nl72x2-pcie160", "trn2.48xlarge", "trn2-ultraserver", "hgx-h100"]
    ratio = scale_out.rates(names).set_index("system").scaleup_over_scaleout
    assert ratio.tolist() == pytest.approx([704 / 25, 1152 / 25, 512 / 25, 640 / 25, 450 / 50])


def test_notation_has_symbols_and_sources():
    table = common.notation(scale_out.symbols("trn3-nl72x2-pcie160")).set_index("symbol")
    assert list(table.index) == ["p", "k", "S", "t_switch", "t_nic", "n", "b", "b_nic"]
    assert table.source["t_nic"].endswith("(D)")
