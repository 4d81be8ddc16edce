"""Torus or switch: exchanges by hand, readings of the lanes, messages of the running case, and measured rows."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import torus_or_switch as tables
from trnbook.shared import case
from trnmodel.arguments import UnanswerableError
from trnmodel.units import GB, MIB, US

SWITCHED, TORUS = "trn3-nl32x2-pcie160", "trn3-nl32x2-torus"
ON_LINKS = {"in_graph": True, "rate_share": 1.0}  # what the chapter compares: fabrics, without a launch


def asked(system=SWITCHED, torus=TORUS, message_bytes=8e6):
    """The first question of the chapter."""
    specs = tm.system(system), tm.system(torus)
    return {
        (reading, kind, it.fabric): tm.collective(kind, message_bytes, **tables.in_rack(it), **ON_LINKS)
        for reading, kind, it in tables.questions(*specs)
    }


@pytest.fixture(scope="module")
def times():
    return asked()


def test_time_is_latency_then_flow():
    """A rack of 32 chips, 1 MB to each: five hops of 1.5 us and 8 GB/s; one hop, one switch and 512/30 GB/s."""
    found = [tm.collective("all_to_all", 8e6, it, chips=32, **ON_LINKS).time_s for it in (TORUS, SWITCHED)]
    assert found == pytest.approx([7.5 * US + 1e6 / (8 * GB), 1.615 * US + 1.5 * US + 1e6 / (512 / 30 * GB)], rel=4e-3)


@pytest.mark.parametrize(("name", "steps", "rate"), [(TORUS, [1.5] * 7, 1152), (SWITCHED, [1.5, 1.615], 1024)])
def test_an_all_reduce_takes_the_steps_of_its_axes(name, steps, rate):
    """Rings of 4, 4 and 2 chips, or tray and rack; a chip sends 2 * 31 / 32 of its 8 MB over all links of the rack."""
    inside = tm.collective("all_reduce", 8e6, name, chips=1, **ON_LINKS).time_s
    by_hand = inside + 2 * sum(steps) * US + 2 * 31 / 32 * 8e6 / (rate * GB)
    assert tm.collective("all_reduce", 8e6, name, chips=32, **ON_LINKS).time_s == pytest.approx(by_hand)


def test_a_ring_takes_its_equation():
    """The four ranks of a chip: 2 (n - 1) start-ups of 1.5 us, and bytes that grow with the message alone."""
    sizes = np.array([0.0, 1e9, 2e9])
    one = tm.collective("all_reduce", sizes, "trn2.48xlarge", 4, algorithm="ring", **ON_LINKS)
    assert one.time_s[0] == pytest.approx(2 * 3 * 1.5 * US)
    assert one.time_s[2] - one.time_s[1] == pytest.approx(one.time_s[1] - one.time_s[0])
    assert (one.busbw_bytes_per_s * one.time_s)[1:].tolist() == pytest.approx([2 * 3 / 4 * 1e9, 2 * 3 / 4 * 2e9])


def test_gains_by_every_account_of_the_lanes_by_hand(times):
    """Per pair in a rack: 512/30, by AWS 320/68 of 72 chips; tori 8 and 4. Large messages leave the links alone."""
    table = tables.by_reading(asked(message_bytes=64e9)).set_index("reading")
    sent = {"switched": 31 / 32 * 32 / 31 * np.array([512 / 30, 320 / 68 * 72 / 32, 512 / 30]), "torus": [8, 8, 4]}
    assert table["all-to-all faster"].tolist() == pytest.approx(sent["switched"] / sent["torus"], rel=5e-3)
    assert list(table.index) == ["as used", "by AWS's own lane map", "with as many lanes on the torus"]
    small = tables.by_reading(times)["all-to-all faster"]
    assert small.between(table["all-to-all faster"].min() * 0.95, table["all-to-all faster"].max() * 1.05).all()


def test_a_system_without_another_account_has_one_reading():
    both = tables.readings("trn3-nl72x2-aws-lanes", "trn2-ultraserver")
    assert list(both) == ["as used"]


def test_the_card_has_the_band_of_all_readings(times):
    spec, torus = tm.system(SWITCHED), tm.system(TORUS)
    said = tables.answer(times, spec, torus, [199e-6, 196e-6])
    gains = tables.by_reading(times)["all-to-all faster"]
    assert f"**{gains[0]:.1f} times** ({gains.min():.1f} to {gains.max():.1f}; ideal)" in said
    assert "36 µs (22 to 58) with switches and 49 µs (30 to 79) on the torus" in said  # 35.7 and 48.8 by hand, above
    assert "gains nothing from switches: it takes 199 µs with switches and 196 µs on the torus" in said
    assert tables.helped_most(times) == "all-to-all"


def test_what_is_counted_by_hand():
    """Links as above; two passes of 8 MB at 90.06 GB/s on any fabric; a launch of 0.89 ms by the host.

    Public software adds up on the chip, 2 (4 - 1) m / 397.5 GB/s, then sends 2 x 2 x 31/32 m around 32 steps of 1.5 us.
    """
    ways = [{"in_graph": True, "rate_share": 1.0}, {"efficiencies": "public"}, {"in_graph": True}, {}]
    asked_of = [
        [tm.collective("all_reduce", 8e6, it, chips=32, **ask).time_s for it in (TORUS, SWITCHED)] for ask in ways
    ]
    table = tables.counted(ways, asked_of).set_index("what is counted")
    assert table.torus.tolist() == ["48.8 µs", "196 µs", "178 µs", "1.07 ms"]
    assert table.switches.tolist() == ["35.7 µs", "199 µs", "178 µs", "1.07 ms"]
    ring = [6 * 8e6 / 397.5e9 + 32 * 1.5 * US + 4 * 31 / 32 * 8e6 / (rate * GB) for rate in (1280, 1152)]
    assert asked_of[1] == pytest.approx(ring, rel=0.02)
    assert asked_of[2] == pytest.approx([2 * 8e6 / 90.06e9] * 2)
    assert np.subtract(asked_of[3], asked_of[2]) == pytest.approx([0.89e-3] * 2)


def test_parts_add_up_to_the_exchange(times):
    both = [tm.system(TORUS), tm.system(SWITCHED)]
    bare = {
        (kind, it.fabric): tm.collective(
            kind,
            8e6,
            **tables.in_rack(it),
            algorithm=str(times["as used", kind, it.fabric].algorithm),
            alpha_s=0.0,
            **ON_LINKS,
        )
        for kind in tables.NAMES
        for it in both
    }
    table = tables.parts(times, bare)
    whole = table.groupby("what").time_s.sum()
    assert whole["all-reduce, torus"] == pytest.approx(float(times["as used", "all_reduce", "torus"].time_s))
    starts = table[table.part == "start-ups"].set_index("what").time_s / US
    assert starts["all-reduce, torus"] == pytest.approx(3 + 2 * 7 * 1.5)  # two steps on the chip
    assert starts["all-reduce, switches"] == pytest.approx(3 + 2 * (1.5 + 1.615))
    assert starts["all-to-all, torus"] == pytest.approx(5 * 1.5)


def test_messages_of_the_case_are_added_up_by_kind():
    best = case.choice("deepseek-v3", SWITCHED)
    network_s = float(best.step.network_s)
    row = tables.exchanges([("deepseek-v3", best, {"all_to_all": 0.75 * network_s, "all_reduce": 0.25 * network_s})])
    assert row.all_to_all_s[0] == 0.75 * network_s
    assert row.network_s[0] == case.value(tables.LINE, "deepseek-v3", SWITCHED)
    with pytest.raises(AssertionError):
        tables.exchanges([("deepseek-v3", best, {"all_to_all": network_s / 2})])


def test_experts_take_twice_as_long_on_the_torus():
    """EP 64 with TP 2 fills a rack: 172,032 bytes from each of four ranks, 116 times a step."""
    plans = {name: tm.plan("deepseek-v3", case.request("deepseek-v3"), name).best for name in (SWITCHED, TORUS)}
    assert [(best.tp, best.ep) for best in plans.values()] == [(2, 64)] * 2
    pair_bytes = 4 * 172_032 / 32
    rates, latencies = np.array([512 / 30, 8]) * GB, np.array([3.115, 7.5]) * US
    sums = {name: next(m for m in best.step.messages if m.kind == "all_reduce") for name, best in plans.items()}
    for (name, best), exchange_s in zip(plans.items(), latencies + pair_bytes / rates, strict=True):
        ask = {"ranks": best.tp, "lnc": best.lnc, "efficiencies": best.step.stack}
        inside_s = sums[name].count * tm.collective("all_reduce", sums[name].message_bytes, name, **ask).time_s
        assert best.step.network_s - inside_s == pytest.approx(116 * exchange_s, rel=2e-3)


def test_measured_rows_are_those_of_trainium2():
    judged = tm.validation()
    table = tables.measured(judged)
    assert len(table) > 900
    assert (table.measured_s > 0).all()
    error = table.predicted_s / table.measured_s - 1
    assert error.tolist() == pytest.approx(table.error.tolist(), rel=1e-6)
    off = table.error.abs().groupby(table.message).median()
    assert off["16 MiB and more"] < off["below 64 KiB"]  # what the chart claims
    assert f"{off['16 MiB and more']:.0%}" in tables.accuracy(table)
    assert not table.run.str.contains("dispatch").where(table.message != tables.EXPERTS, False).any()


def test_classes_of_messages_are_by_size():
    given = {"kind": "collective", "chip": "trainium2", "unit": "us", "meaning": "collective-time", "workload": "run"}
    given |= {"skipped": "", "weight": 1.0, "predicted": 2.0, "value": "1.0", "error": 1.0, "source": "page"}
    rows = [given | {"configuration": str(size), "message_bytes": str(size)} for size in (1024, MIB, 16 * MIB)]
    table = tables.measured(pd.DataFrame(rows))
    assert sorted(table.message) == ["16 MiB and more", "64 KiB to 16 MiB", "below 64 KiB"]
    assert table.measured_s.tolist() == pytest.approx([1e-6] * 3)


@pytest.mark.parametrize(
    ("switched", "torus", "model", "why"),
    [
        ("trn2.48xlarge", TORUS, "deepseek-v3", "no switches"),
        (SWITCHED, "trn3-nl32x2-ualink", "deepseek-v3", "is no torus"),
        (SWITCHED, "trn2.3xlarge", "deepseek-v3", "single chip"),
        (SWITCHED, TORUS, "bert-base-cased", "encoder"),
    ],
)
def test_what_is_not_described_is_refused(switched, torus, model, why):
    with pytest.raises(UnanswerableError, match=why):
        tables.check(tm.system(switched), tm.system(torus), tm.model(model))
