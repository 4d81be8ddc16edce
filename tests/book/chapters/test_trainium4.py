"""The chapter on Trainium4: its tables, its fixed statements by hand arithmetic, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import trainium4 as tables
from trnmodel.arguments import ImpossibleError, UnanswerableError

RACK, UALINK, NVLINK = "trn3-nl72x2-pcie160", "trn4-ualink-roadmap", "trn4-nvlink-roadmap"
REQUEST = tm.Request(4096, 512, tokens_per_s_per_user=50)


@pytest.fixture(scope="module")
def ideal():
    side = tm.compare("llama-3.3-70b", REQUEST, [RACK, UALINK], baseline=RACK, efficiencies="ideal")
    ask = {"efficiencies": "ideal"}
    paid = {name: tm.token_cost("llama-3.3-70b", REQUEST, name, pricing=tm.tco(name), **ask) for name in (RACK, UALINK)}
    return side, paid


def test_ratios_are_those_of_the_announcement_with_both_figures():
    """2,517 TFLOP/s, 4.9 TB/s and 144 GiB, times 3, 6, 4 and 2."""
    table = tables.ratios(tm.chip("trainium4-roadmap")).set_index("figure")
    after = table["Trainium4 (announced)"].to_dict()
    assert sorted(after.values()) == sorted(
        [f"{3 * 2.517:.2f} PFLOP/s", f"{6 * 2.517:.1f} PFLOP/s", "19.6 TB/s", "288 GiB"]
    )
    assert set(table.announced) == {"at least 3", "at least 6", "4", "2"}


def test_every_assumption_stands_in_the_table_with_a_rule_and_a_reason():
    chip, tracks = tm.chip("trainium4-roadmap"), [tm.system(UALINK), tm.system(NVLINK)]
    table = tables.assumed(chip, *tracks)
    assert len(table) == 12
    assert table.rule.str.len().min() > 5
    assert table.reason.str.len().min() > 5
    shown = dict(zip(table.of, table.range, strict=True))
    assert shown["UALink 224G lane"] == "64 to 224 Gbps"
    assert "64 to 448 Gbps" in set(table.range)
    assert not table.rule.str.contains("project|assumed").any()


def test_a_gain_is_the_ratio_of_two_plans(ideal):
    side, paid = ideal
    rows = {row["measure"]: row for row in tables.gains("llama-3.3-70b", tables.IDEAL, side, paid, RACK, "ideal")}
    best = {c.system.id: c for c in side.at()}
    made = float(best[UALINK].tokens_per_s_per_chip / best[RACK].tokens_per_s_per_chip)
    usd = [float(paid[name][name, "ideal"].generated_usd_per_mtoken) for name in (RACK, UALINK)]
    joules = [float(best[name].energy().server_j_per_token) for name in (RACK, UALINK)]
    expected = {
        "tokens per chip": made,
        "tokens per owner's dollar": usd[0] / usd[1],
        "tokens per joule": joules[0] / joules[1],
    }
    for measure, value in expected.items():
        row = rows[measure]
        assert row[tables.TIMES] == pytest.approx(value)
        assert row[f"{tables.TIMES}_low"] <= value * (1 + 1e-9)
        assert value <= row[f"{tables.TIMES}_high"] * (1 + 1e-9)
    assert 3 < made < 4  # between the ratios of arithmetic and of bandwidth, for a server does both


def test_dollars_gain_by_the_gain_of_chips_over_that_of_the_hour(ideal):
    """C is p over y, so that C3 / C4 = (y4 / y3) / (p4 / p3)."""
    side, paid = ideal
    rows = {row["measure"]: row for row in tables.gains("llama-3.3-70b", tables.IDEAL, side, paid, RACK, "ideal")}
    hour = float(tm.tco(UALINK).useful_usd_per_h / tm.tco(RACK).useful_usd_per_h)
    made = rows["tokens per chip"][tables.TIMES]
    assert rows["tokens per owner's dollar"][tables.TIMES] == pytest.approx(made / hour, rel=1e-6)


def test_what_came_of_trainium3_by_hand():
    """2,517 over 1,299 per chip, and 144 chips over 64; 671 over 667 in BF16; 4.9 over 2.9 TB/s; 144 over 96 GiB."""
    table = tables.delivered(tm.system("trn2-ultraserver"), tm.system(RACK))
    found = {(row.figure, row.per): row.times_as_much for row in table.itertuples()}
    per_chip = {"8-bit peak": 2517 / 1299, "BF16 peak": 671 / 667, "HBM bandwidth": 4.9 / 2.9, "HBM capacity": 144 / 96}
    for figure, times in per_chip.items():
        assert found[figure, "per chip"] == pytest.approx(times)
        assert found[figure, "per UltraServer"] == pytest.approx(times * 144 / 64)
    assert round(found["8-bit peak", "per UltraServer"], 1) == 4.4  # as AWS prints it
    printed = tables.claims().set_index("claim").claimed
    assert printed["8-bit peak, rack"] == "4.4"
    assert printed["performance, announced in 2024"] == "4"


def test_the_last_sentence_before_what_is_left_out():
    """Ideal software without the announced gains is faster for a user than today's software with all of them."""
    chip, base, spec = tm.chip("trainium4-roadmap"), tm.chip("trainium3"), tm.system(UALINK)
    labels = ["peak_flop_per_s[mxfp8]", "hbm_bytes_per_s"]
    weak = replace(spec, chip=chip.moved({label: base.at(label) for label in labels}))
    ask = {"batch": 32, "context": 4352, "precision": "mxfp8-attn8"}
    plain = tm.decode_step("llama-3.3-70b", spec, tm.Mapping(tp=8), **ask)
    ideal = tm.decode_step("llama-3.3-70b", weak, tm.Mapping(tp=8), **ask, efficiencies="ideal")
    assert ideal.tokens_per_s_per_user > plain.tokens_per_s_per_user


def test_answers_of_the_problems():
    assert (round(19 / 14.5, 1), round(1.05 * 3.7, 2), round(3 * 64 / 144, 2)) == (
        1.3,
        3.89,
        1.33,
    )  # 1.05 x 3.7 = 3.885


def test_roofs_bend_at_the_ridge():
    chip = tm.chip("trainium4-roadmap")
    ridge = 3 * 2517e12 / (4 * 4.9e12)
    table = tables.roofs(
        {"a": (chip, "mxfp8")}, np.array([ridge / 2, ridge, 2 * ridge]), tm.roofline.attainable_flop_per_s
    )
    assert (table.attainable_flop_per_s / chip.peak("mxfp8")).tolist() == pytest.approx([0.5, 1.0, 1.0])


@pytest.mark.parametrize(
    ("system", "systems", "message"),
    [
        (
            RACK,
            ["hgx-b200"],
            "systems: 'hgx-b200' is on no roadmap; allowed are trn4-ualink-roadmap, trn4-nvlink-roadmap",
        ),
        ("trn2.48xlarge", [UALINK], "system = 'trn2.48xlarge' has no trainium3"),
        (RACK, [], r"systems = \[\] must hold at least one item"),
        (RACK, [UALINK, UALINK], "systems must name each system once"),
    ],
)
def test_what_no_roadmap_has_is_refused(system, systems, message):
    with pytest.raises(UnanswerableError, match=message):
        tables.check(tm.system(system), [tm.system(name) for name in systems])


def test_a_promise_that_nothing_keeps_is_refused_in_a_line():
    with pytest.raises(ImpossibleError, match=r"the promise of llama-3\.3-70b is not kept on both") as refusal:
        tables.answer(tables.table_of([]), "llama-3.3-70b", tm.system(RACK), tm.system(UALINK))
    assert "\n" not in str(refusal.value)
