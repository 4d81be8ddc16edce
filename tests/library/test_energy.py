"""Watts and joules: worked arithmetic, limits, what was measured on GPUs with the model left out, claims."""

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities, load
from trnmodel.formulas import energy as page
from trnmodel.power.energy import BOUNDARIES
from trnmodel.steps.deployment import Deployment

LLAMA = {"model": "llama-3.1-70b", "batch": 64, "context": 2048}


def asked(system="hgx-h100", tp=8, **more):
    return tm.energy(tm.decode_step(system=system, mapping=tm.Mapping(tp=tp), **LLAMA | more))


def test_hbm_of_trainium3_at_full_bandwidth():
    """4.9 TB/s x 8 bit x 3.9 pJ/bit = 152.9 W; of Trainium2, 2.9 x 8 x 3.9 = 90.5 W (the shared table: 153 and 90)."""
    byte_j = facilities.power(tm.chip("trainium3")).byte_j["hbm"]
    for chip, watts in (("trainium3", 152.88), ("trainium2", 90.48)):
        assert page.moved_w(load.value(chip, "hbm_bytes_per_s"), 1.0, byte_j) == pytest.approx(watts, rel=1e-9)


@pytest.mark.parametrize(
    ("chip", "dtype", "pj"),
    [
        ("a100", "bf16", 1.282),
        ("h100", "bf16", 0.708),
        ("h100", "fp8", 0.354),
        ("b200", "bf16", 0.444),
        ("trainium2", "bf16", 0.750),
        ("trainium2", "fp8", 0.385),
    ],
)
def test_energy_of_a_flop_at_tdp_and_peak(chip, dtype, pj):
    """400 W / 312 TFLOPS = 1.282 pJ and so on, as printed in the shared table of power."""
    where = tm.chip(chip)
    assert page.energy_j(where.tdp_w, where.peak(dtype)) * 1e12 == pytest.approx(pj, abs=6e-4)


def test_a_chip_between_idle_and_tdp():
    """tanh(0.5) = 0.46212: 700 x (0.2 + 0.8 x 0.46212) = 398.8 W."""
    assert page.chip_w(700.0, 0.2, 0.5) == pytest.approx(700 * (0.2 + 0.8 * 0.462117), rel=1e-6)
    assert page.chip_w(700.0, 0.2, 0.0) == 140.0
    assert page.chip_w(700.0, 0.2, 1e3) == 700.0
    assert page.chip_w(700.0, 1.0, 0.3) == 700.0


def test_a_site_a_token_a_gram():
    """1 kW of IT at PUE 1.14; 1.2 MW at peak PUE 1.2 and 1.5 is 1 and 0.8 MW of IT: a fifth is lost."""
    assert page.facility_w(1000.0, 1.14) == 1140.0
    assert [page.it_w(1.2e6, pue) for pue in (1.2, 1.5)] == [1e6, 0.8e6]
    assert page.energy_j(25.383 * 159.2, 159.2) == pytest.approx(25.383)  # MI325X: 4041 W at 159.2 tokens/s
    assert page.carbon_kg(3.6e6, 367.8e-3 / 3.6e6, 0.1) == pytest.approx(0.4678)  # 1 kWh in us-east-1 and 100 g
    assert page.water_l(3.6e6, 0.12 / 3.6e6) == pytest.approx(0.12)  # 1 kWh at 0.12 L/kWh
    assert page.tokens_per_s_per_mw(1000.0, 1730.0) == pytest.approx(1000 * 1000 / 1.73)


def test_printed_figures_come_through_the_data():
    """367.8 g/kWh is 1.0217e-7 kg/J; 1.73 kW; 0.12 L/kWh."""
    site = facilities.facility("aws-air")
    assert site.carbon_kg_per_j["us-east-1"] == pytest.approx(367.8e-3 / 3.6e6)
    assert site.water_l_per_j == pytest.approx(0.12 / 3.6e6)
    assert (site.annual_pue, site.peak_pue) == (1.14, 1.2)
    assert facilities.ends(site, "annual_pue") == (1.04, 1.15)
    assert tm.chip("h100").all_in_w == 1730.0
    assert facilities.ends(tm.chip("trainium2"), "tdp_w") == (383.0, 617.0)
    assert 0.574e-12 * tm.chip("trainium2").peak("bf16") == pytest.approx(383, abs=0.5)


def test_parts_sum_to_totals_and_boundaries_hold_each_other():
    found = asked()
    assert found.idle_w + found.compute_w + found.hbm_w == pytest.approx(found.chip_w, rel=1e-12)
    whole = found.static_w + found.operations_w + found.memory_w + found.links_w
    assert found.bottom_up_w == pytest.approx(min(whole, found.tdp_w), rel=1e-12)
    assert found.chip_w < found.server_w < found.facility_w
    assert found.all_in_w < found.site_w
    assert found.server_w == pytest.approx(1.029 * found.chip_w + 226.5, rel=1e-9)
    step = found.step
    for name in BOUNDARIES:
        joules, watts = getattr(found, f"{name}_j_per_token"), getattr(found, f"{name}_w")
        assert joules * step.tokens_per_s == pytest.approx(watts * found.chips, rel=1e-12)
    assert found.chip_step_j == pytest.approx(found.chip_w * 8 * step.time_s, rel=1e-12)
    flop = step.work_flop_per_rank * 8
    assert found.chip_j_per_flop * flop == pytest.approx(found.chip_step_j, rel=1e-12)
    assert found.chips_per_site_mw == pytest.approx(1e6 / 1.2 / 1730)
    assert found.tokens_per_s_per_site_mw == pytest.approx(found.chips_per_site_mw * found.tokens_per_s_per_chip)


def test_work_of_a_chip_is_that_of_its_ranks():
    """Utilisation by hand: the FLOP and bytes of four ranks of a Trainium2 chip over its printed peak and bandwidth."""
    step = tm.decode_step(system="trn2.48xlarge", mapping=tm.Mapping(tp=32), **LLAMA)
    found, here = tm.energy(step), 4 / step.time_s
    assert found.compute_utilisation == pytest.approx(step.work_flop_per_rank * here / 667e12, rel=1e-12)
    assert found.hbm_utilisation == pytest.approx(step.moved_bytes_per_rank * here / 2.9e12, rel=1e-12)
    lone = tm.energy(tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=1), batch=1, context=1024))
    assert lone.chips == 1
    assert lone.hbm_utilisation < 0.25


def test_ranks_of_every_kind_share_a_chip():
    """Four ranks to a chip of Trainium2, or as many as there are, whatever cuts the model."""
    for degrees in ({"tp": 2}, {"pp": 4}, {"cp": 4}, {"ep": 4}, {"dp": 4}, {"tp": 2, "ep": 2}):
        model = "qwen3-30b-a3b" if "ep" in degrees else "llama-3.2-1b"
        step = tm.decode_step(model, "trn2.48xlarge", tm.Mapping(**degrees), batch=8, context=1024)
        here, found = int(np.prod([*degrees.values()])) / step.time_s, tm.energy(step)
        assert found.compute_utilisation == pytest.approx(step.work_flop_per_rank * here / 667e12, rel=1e-12)
        assert found.hbm_utilisation == pytest.approx(step.moved_bytes_per_rank * here / 2.9e12, rel=1e-12)


def test_links_take_the_bytes_that_an_all_reduce_must_send():
    """Two all-reduces a layer of 64 x 8192 x 2 B over 8 chips: 2 (7/8) m each, at 60 pJ/B of the backplane."""
    found = asked()
    sent = 2 * 80 * 2 * (7 / 8) * 64 * 8192 * 2
    assert found.links_w == pytest.approx(sent * 60e-12 / found.time_s, rel=0.02)
    assert asked(model="llama-3.1-8b", tp=1).links_w == 0


def test_bottom_up_by_hand():
    """16-bit: 1.07 to 1.52 pJ a multiply-add, 31.2 + 1.25 pJ a byte of HBM through SRAM, 30 % of the TDP."""
    found = asked()
    step = found.step
    assert found.operations_w == pytest.approx(step.work_flop_per_rank * (1.07 + 1.52) / 4 * 1e-12 / step.time_s)
    assert found.memory_w == pytest.approx(step.moved_bytes_per_rank * 32.45e-12 / step.time_s)
    assert found.static_w == pytest.approx(0.3 * 700)
    low, high = found.ends("operations_w")
    assert (low, high) == pytest.approx(tuple(found.operations_w * e / 1.295 for e in (1.07, 1.52)))


def test_arrays_are_their_scalars():
    batch = np.array([1.0, 16.0, 256.0])
    many = asked(batch=batch)
    for i, each in enumerate(batch):
        one = asked(batch=each)
        for name in ("chip_w", "server_w", "bottom_up_w", "facility_j_per_token", "links_w", "compute_utilisation"):
            np.testing.assert_allclose(getattr(many, name)[i], getattr(one, name), rtol=1e-12)
            np.testing.assert_allclose([end[i] for end in many.ends(name)], one.ends(name), rtol=1e-12)
    assert len(many.to_frame()) == 3


def test_values_are_fields_that_a_caller_replaces():
    base, system = asked(), tm.system("hgx-h100")
    capped = asked(replace(system, chip=replace(system.chip, tdp_w=500.0)))
    assert capped.chip_w == pytest.approx(base.chip_w * 5 / 7, rel=1e-12)
    power = facilities.power(system.chip)
    draws = tm.energy(base.step, power=replace(power, compute_activity=np.array([1.0, 7.0])))
    assert draws.chip_w.shape == (2,)
    assert draws.chip_w[0] < draws.chip_w[1]
    chilled = tm.energy(base.step, facility="aws-chilled")
    assert chilled.site_w / base.site_w == pytest.approx(1.5 / 1.2)
    mine = tm.energy(base.step, facility=replace(facilities.facility("aws-air"), annual_pue=2.0))
    assert mine.facility_w == pytest.approx(2 * base.server_w)
    renamed = asked(replace(system, chip=replace(system.chip, id="mine")))
    assert renamed.chip_w == base.chip_w


def tripled(spec, name, at=slice(None)):
    """A spec with three values of a field, or with one of them."""
    factors, now = np.array([1.0, 0.9, 0.75])[at], getattr(spec, name)
    return replace(
        spec, **{name: {k: v * factors for k, v in now.items()} if isinstance(now, Mapping) else now * factors}
    )


OF_POWER, OF_SITE = (
    [f.name for f in fields(kind) if f.type == "float" or "Mapping[str, float]" in str(f.type)]
    for kind in (facilities.Power, facilities.Facility)
)


@pytest.mark.parametrize("name", [*OF_POWER, *OF_SITE])
def test_three_values_of_a_field_are_three_calls(name):
    step = asked("trn2.48xlarge", tp=32).step
    spec = facilities.power(tm.chip("trainium2")) if name in OF_POWER else facilities.facility("aws-air")
    word = "power" if name in OF_POWER else "facility"
    many, *ones = (tm.energy(step, **{word: tripled(spec, name, at)}) for at in (slice(None), 0, 1, 2))
    for figure in ("chip_w", "server_w", "facility_w", "site_w", "all_in_w", "bottom_up_w", "facility_j_per_token"):
        for i, one in enumerate(ones):
            taken = np.broadcast_to(getattr(many, figure), (3,))[i]
            np.testing.assert_allclose(taken, getattr(one, figure), rtol=1e-12, err_msg=figure)


def test_what_is_given_is_told():
    found = tm.energy(asked().step, power=facilities.power(tm.chip("h100")))
    assert "given with the call" in found.basis_reason


def test_trainium_is_a_range_and_never_a_point():
    found = asked("trn2.48xlarge", tp=32)
    for name in (
        "chip_w",
        "server_w",
        "facility_w",
        "all_in_w",
        "site_w",
        "tdp_w",
        "bottom_up_w",
        "server_j_per_token",
    ):
        low, high = found.ends(name)
        assert low < 0.9 * getattr(found, name) < 1.1 * getattr(found, name) < high, name
    assert found.basis == "extrapolated"
    assert "none is published" in found.basis_reason
    assert "none is published" not in asked().basis_reason
    assert found.ends("tdp_w") == pytest.approx((383, 617))


def test_joules_are_as_uncertain_as_watts_and_time_on_each_side():
    """As independent causes: the root of the sum of the squares of both logarithms, below and above by themselves."""
    found = asked("trn3-nl32x2-pcie160", efficiencies="hand-tuned")
    watts, step = found.ends("server_w"), found.step
    sides = [
        (float(found.server_w) / watts[0], float(step.time_s) / float(step.low)),
        (watts[1] / float(found.server_w), float(step.high) / float(step.time_s)),
    ]
    low, high = (np.exp(np.hypot(*np.log(side))) for side in sides)
    assert abs(np.log(sides[0][1] / sides[1][1])) > 0.001
    ends = found.ends("server_j_per_token") / found.server_j_per_token
    assert ends == pytest.approx([1 / low, high], rel=1e-9)


def test_a_chip_without_any_watts_has_no_answer():
    found = asked("trn1.32xlarge", tp=32, model="llama-3.1-8b")
    assert not found.valid
    assert "no source has watts" in found.reason
    assert np.isnan(found.chip_w)
    assert np.isnan(found.server_j_per_token)


def test_a_request_is_the_time_of_its_prompt_and_of_its_steps():
    """A share u of the time is prompts. At r requests/s, 512 tokens each take u/r of prompts and (1 - u)/r of steps.

    Joules are those of 8 chips, at the watts of either: (u P_prompts + (1 - u) P_steps) x 8 / (512 r) a token.
    """
    many = Deployment(model="llama-3.1-70b", system="hgx-h100", mapping=tm.Mapping(tp=8))
    request = tm.Request(1024, 512, requests_per_s=0.5)
    served = tm.serve(many.model, request, many.system, many.mapping, max_batch=32)
    busy = served.prefill_utilisation
    assert 0.01 < busy < 0.5
    for found in (tm.energy(many, request=request, batch=32), tm.energy(served)):
        for name in BOUNDARIES:
            watts = [getattr(part, f"{name}_w") for part in (found.prefill, found.decode)]
            joules = (busy * watts[0] + (1 - busy) * watts[1]) * 8 / (512 * 0.5)
            assert getattr(found, f"{name}_j_per_token") == pytest.approx(joules, rel=1e-12)
        share = busy * found.prefill.server_w / (busy * found.prefill.server_w + (1 - busy) * found.decode.server_w)
        assert found.prefill_j_share == pytest.approx(share, rel=1e-12)
        assert found.low < found.server_j_per_token < found.high
        assert found.prefill.chip_w > found.decode.chip_w


def test_replicas_take_the_same_joules_a_token():
    """Two replicas at twice the rate do twice of everything."""
    one, two = (
        tm.energy(
            tm.serve(
                "llama-3.1-8b",
                tm.Request(1024, 256, requests_per_s=replicas),
                "trn2.48xlarge",
                tm.Mapping(tp=8, dp=replicas),
                max_batch=16,
            )
        )
        for replicas in (1, 2)
    )
    for name in BOUNDARIES:
        assert getattr(two, f"{name}_j_per_token") == pytest.approx(getattr(one, f"{name}_j_per_token"), rel=1e-12)


def test_the_energy_of_a_choice_is_that_of_a_server_at_its_planned_load():
    """A server of the chosen mapping, whose largest batch is the chosen one, spends the same joules on a request."""
    request = tm.Request(1024, 256, tokens_per_s_per_user=40)
    choice = tm.plan("llama-3.1-8b", request, "hgx-h100").best
    served = tm.serve(
        "llama-3.1-8b",
        request,
        choice.system,
        choice.degrees,
        max_batch=choice.batch,
        precision=choice.precision,
        efficiencies=choice.option.id,
    )
    for name in BOUNDARIES:
        figures = [getattr(one, f"{name}_j_per_token") for one in (choice.energy(), tm.energy(served))]
        assert figures[0] == pytest.approx(float(figures[1]), rel=1e-9)


def test_attention_groups_prefill_a_prompt_each():
    """With 8 attention groups the prompts whose joules are counted come 8 at once."""
    experts = Deployment(model="qwen3-30b-a3b", system="hgx-h100", mapping=tm.Mapping(tp=1, ep=8))
    wide = tm.energy(experts, batch=64, request=tm.Request(1024, 512))
    assert wide.prefill.step.batch == 8


def test_idle_of_h100_is_near_the_reading():
    """145 W with a model loaded and nothing to do (gpu-burn, issue 114): no row of the fit is idle."""
    chip = tm.chip("h100")
    assert chip.idle_share * chip.tdp_w == pytest.approx(145, rel=0.1)


def test_servers_and_racks_that_nothing_was_fitted_to():
    """Training of HGX H100 at 76 % of 10.2 kW = 7.75 kW, 8.4 at most; racks of 72 chips at ~120 and 121.4 kW."""
    power = facilities.power(tm.chip("h100"))
    load_kw = page.server_w(700.0, power.server_ratio, power.host_w_per_chip) * 8 / 1e3
    most_kw = page.server_w(700.0, power.server_max_ratio, power.host_w_per_chip) * 8 / 1e3
    assert load_kw == pytest.approx(load.value("hgx-h100", "load_of_rating") * 10.2, rel=0.05)
    assert load_kw < load.value("hgx-h100", "peak_training_w") / 1e3 < most_kw
    for rack, chip in (("gb200-nvl72", "gb200"), ("gb300-nvl72", "gb300")):
        watts = page.server_w(tm.chip(chip).tdp_w, power.server_ratio, power.host_w_per_chip) * 72
        assert watts == pytest.approx(load.value(rack, "rack_w"), rel=0.15)


def test_every_field_of_an_answer_is_told():
    found = asked()
    assert "server" in found.card()[0]
    assert {f.name for f in fields(found)} >= {"chip_w", "server_w", "all_in_w", "facility_w", "site_w", "bottom_up_w"}
    assert found.footprint().set_index("region").carbon_kg_per_mtoken["us-east-1"] == pytest.approx(
        float(found.facility_j_per_token) * 1e6 * 367.8e-3 / 3.6e6
    )
