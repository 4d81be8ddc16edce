"""Switch trays: planes and paths as printed; line numbers are those of `trainium3-deep-dive`."""

import re
import xml.etree.ElementTree as ET
from itertools import product
from math import comb

import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import switch_tray
from trnbook.shared import case, domain_sizes, ledger, placements
from trnbook.shared import fabrics as compare
from trnmodel.catalog import load
from trnmodel.fabric import what_if
from trnmodel.models import synthetic
from trnmodel.units import GB, US

RACK = "trn3-nl32x2-pcie160"
AWS = "trn3-nl72x2-aws-lanes"
NL72 = ["trn3-nl72x2-pcie160", "trn3-nl72x2-pex90144", "trn3-nl72x2-pcie320", "trn3-nl72x2-ualink"]


def test_planes_as_printed():
    """L322 four planes of ten, 144 board switches; L355 eight switches; L363 two planes; L379 one."""
    table = switch_tray.plane_table([*NL72, "trn3-nl32x2-pcie320"])
    assert table.planes.tolist() == [4, 4, 2, 1, 1]
    assert table.rack_switches.tolist() == [40, 40, 20, 10, 8]
    assert table.ports[0] - table.ports_used[0] == 2  # L327
    assert table.board_switches.tolist() == [144] * 4 + [0]


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


def test_pairs_without_forwarding_by_hand():
    """Pairs of a rack of NL32x2: all C(32, 2), or with two planes 2 x C(16, 2) and the pairs of 16 trays."""
    share = switch_tray.plane_table([RACK, "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"]).direct_share
    assert share.tolist() == pytest.approx([(2 * comb(16, 2) + 16) / comb(32, 2), 1, 1])


@pytest.mark.parametrize(("lanes", "place"), [(160, 0), (144, 1), (320, 2)])
def test_planes_by_hand(lanes, place):
    """A rack of 72 chips needs as many planes as its chips over the x8 ports of a switch, rounded up."""
    assert switch_tray.plane_table([NL72[place]]).planes[0] == -(-72 // (lanes // 8))


@pytest.mark.parametrize(
    ("system", "hop_s", "latency_s"),
    [
        (NL72[0], 1.5, 2 * 1.5 + 2 * 0.115),
        (NL72[3], 1.5, 1.5 + 0.115),
        (RACK, 1.5, 2 * 1.5 + 0.115),
        (NL72[0], 0.0, 2 * 0.115),
        (NL72[3], 0.0, 0.115),
    ],
)
def test_an_empty_exchange_takes_the_latency_of_the_farthest_pair(system, hop_s, latency_s):
    where = switch_tray.with_hop(system, hop_s * US)
    empty = tm.collective("all_to_all", 0, where, chips=where.domain_chips // 2, efficiencies="public")
    assert float(empty.time_s) == pytest.approx(latency_s * US)


def test_the_running_case_on_each_tray_by_hand():
    """58 layers, dispatch and combine, one hop of 1.5 us fewer on NL32x2; phases that stay in a plane on NL72x2."""
    names = [*switch_tray.trays(RACK), *NL72]
    steps = {key: tm.plan(key[0], case.request(key[0]), key[1]).best.step for key in product(case.PROMISES, names)}
    for model, rack in product(case.PROMISES, (RACK, NL72[0])):
        assert steps[model, rack].network_s == case.choice(model, rack).step.network_s
    saved = steps["deepseek-v3", RACK].network_s - steps["deepseek-v3", "trn3-nl32x2-ualink"].network_s
    assert saved == pytest.approx(2 * 58 * 1.5 * US)
    assert saved / steps["deepseek-v3", RACK].time_s < 0.005
    assert len({round(float(steps["deepseek-v3", name].network_s), 12) for name in NL72}) == 1
    assert len({round(float(steps["llama-3.3-70b", name].network_s), 12) for name in names}) == 1


def test_what_trays_are_worth_where_forwarding_is_free():
    """58 layers, dispatch and combine, one switch of 115 ns fewer on NL72x2; none on NL32x2, which has no boards."""
    for small, large, switches in ((NL72[0], NL72[3], 1), (RACK, "trn3-nl32x2-ualink", 0)):
        free = [switch_tray.with_hop(name, 0.0) for name in (small, large)]
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
    verdicts = ["agrees"] * 2 + ["earlier"] * 3 + ["later"] * 4 + ["no rate"] * 5
    judged = pd.DataFrame({"software": ["ideal"] * 6 + ["default"] * 8, "verdict": verdicts})
    table = switch_tray.counts(judged).set_index("software")
    assert table.loc["all"].tolist() == [2, 3, 4, 5, 14]
    assert table.cases.tolist() == [6, 8, 14]
    assert list(table.index) == ["ideal, exchanges hidden", "public", "all"]


def test_every_printed_path_agrees():
    table = switch_tray.paths([*NL72, RACK, "trn3-nl32x2-pcie320", "trn3-nl32x2-ualink"])
    assert "disagrees" not in set(table.verdict)
    assert (table.verdict == "agrees").sum() == 20
    inferred = table[table.verdict == "inferred"]  # L373 and L379 say all-to-all and print no number
    assert inferred.system.tolist() == ["trn3-nl72x2-ualink", "trn3-nl32x2-ualink"]
    assert inferred.counted.tolist() == [1, 1]


def test_a_rank_that_is_a_chip_is_announced():
    """deep dive L62: LNC 8 by mid-2026; sdk-lnc L14: only 1 and 2 are supported."""
    chip = tm.chip("trainium3")
    assert chip.cores in chip.lnc_announced
    assert chip.cores not in chip.lnc_choices


def test_growth_by_experts_meets_kimi():
    """Kimi-K2 is DeepSeek-V3 with more experts, 384, two more expert layers and half the heads."""
    kimi = tm.model("kimi-k2-instruct")
    grown = synthetic.synthetic(kimi.total_params, "experts")
    assert kimi.outline().experts == 384
    assert grown.outline().experts == pytest.approx(384, rel=0.03)
    assert grown.outline().top_k == kimi.outline().top_k


def test_memory_of_both_domains_as_printed():
    printed = tm.facts().query(
        "entity in @domain_sizes.PAIR and quantity == 'hbm_bytes' and unit_printed == 'GiB' and source == 'trn3-arch'"
    )
    assert len(printed) == 2
    assert set(printed.value_si) == {tm.system(name).hbm_bytes for name in domain_sizes.PAIR}


def test_paths_stand_side_by_side():
    table = switch_tray.side_by_side(switch_tray.paths([RACK, NL72[0]]))
    assert list(table) == ["part", "NL32x2_counted", "NL32x2_printed", "NL72x2_counted", "NL72x2_printed"]
    assert table.NL72x2_counted.tolist() == [1, 3, 4, 3]
    assert table.NL32x2_printed.tolist() == ["1", "2", "3", "2"]


def parts(drawing):
    """Return the frames of a drawing, each a list of tags with their text; the SVG is well-formed."""
    tree = ET.fromstring(re.search(r"<svg.*</svg>", drawing._repr_html_(), re.DOTALL)[0])
    return [[(mark.tag, mark.text, mark.get("class", "")) for mark in group] for group in tree if group.tag == "g"]


def test_the_drawing_of_lanes_has_a_line_for_each_port():
    """64 + 64 + 16 lanes in ports of eight, 16 more redundant; AWS prints 32 + 40 + 16 and none (trn3-arch L94-124)."""
    for frame, ports in zip(parts(switch_tray.lanes([NL72[0], AWS])), (8 + 8 + 2 + 2, 4 + 5 + 2), strict=True):
        assert sum(tag == "line" for tag, *_ in frame) == ports
        assert any(text == "16 lanes, 128 GB/s" for _, text, _ in frame)


@pytest.mark.parametrize(("trays", "planes"), [(NL72, [4, 2, 1]), (switch_tray.trays(RACK), [2, 1])])
def test_the_drawing_of_planes_has_every_chip_and_the_path(trays, planes):
    chips = tm.system(trays[0]).domain_chips // 2
    for frame, count in zip(parts(switch_tray.planes(trays)), planes, strict=True):
        assert sum(tag == "rect" for tag, *_ in frame) == chips + count
        said = [text for _, text, _ in frame if text and "on the way" in text]
        board = "1 board switch and " if count > 1 and chips == 72 else ""
        assert said[0].startswith(f"{board}1 rack switch on")
        assert said[0].endswith("1 chip forwards" if count > 1 else "no chip forwards")


def test_sets_of_statements_carry_their_arithmetic():
    """The arithmetic is that of the source's own numbers, done here by hand."""
    table = ledger.contradictions().set_index("id")
    assert table.gives["NC601"] == f"{18 * 4} chips"
    assert table.gives["NC602"] == f"{100 * 16 // 64} %"
    assert table.gives["NC604"] == f"{100 * 16 // 160} %"
    assert table.gives["NC607"] == "5,120 cables"
    assert table.gives["NC610"] == "1.152 TB/s"
    assert table.gives["NC619"] == "3.802 x"
    assert table.together[["NC601", "NC602", "NC604", "NC610"]].tolist() == ["no", "no", "yes", "yes"]
    assert set(table.says.str.extract(r"\(([a-z0-9-]+), [^()]*\)$")[0]) <= set(load.sources())
    assert table.index.is_unique
    assert (table.reading[table.together == "no"] != "").all()
