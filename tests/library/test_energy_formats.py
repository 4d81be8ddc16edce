"""The energy of an operation by format: the law by hand, and what a narrower format or a larger constant may do."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities, load
from trnmodel.catalog.systems import system as read_system
from trnmodel.formulas import energy as page
from trnmodel.power.energy import HIGH, LOW, MIDDLE, Amounts, chip_watts, matmul_rate, value_at

EIGHT, FOUR, SIXTEEN = ("fp8", "int8", "mxfp8", "cfp8"), ("mxfp4", "nvfp4", "int4"), ("bf16", "fp16")


def work(flop=0.0, moved=0.0, time_s=1.0):
    return Amounts(*map(np.asarray, (time_s, flop, moved, 0.0, False, False)))


def plain(**more):
    """GPUs' constants with round numbers in the place of the fitted ones, and no ranges."""
    power = facilities.power(tm.chip("h100"))
    return replace(power, compute_activity=6.0, hbm_activity=1.0, ranges={}, **more)


def h100():
    return replace(tm.chip("h100"), idle_share=0.2)


def test_watts_of_a_format_by_hand():
    """100 TFLOP/s of 989.5 (half of the FP8 peak), 1 TB/s of 3.35, 700 W, 20 % idle; FP8 takes two thirds of BF16."""
    for dtype, ratio in (("bf16", 1.0), ("fp8", 0.667)):
        found = chip_watts(work(1e14, 1e12), h100(), dtype, plain(), MIDDLE)
        activity = 6.0 * ratio * 1e14 / 989.5e12 + 1e12 / 3.35e12
        assert found["chip_w"] == pytest.approx(700 * (0.2 + 0.8 * math.tanh(activity)), rel=1e-9)


def test_a_little_work_costs_joules_for_each_operation_and_byte():
    """Far from the TDP: 560 W x 6 / 989.5 TFLOP/s = 3.396 pJ/FLOP in BF16, 560 W / 3.35 TB/s = 167.2 pJ/B."""
    flop_j, byte_j = page.operation_j(700.0, 0.2, 6.0, 989.5e12), page.operation_j(700.0, 0.2, 1.0, 3.35e12)
    assert (flop_j * 1e12, byte_j * 1e12) == pytest.approx((3.3957, 167.16), rel=1e-4)
    found = chip_watts(work(1e12, 1e10), h100(), "bf16", plain(), MIDDLE)
    assert found["chip_w"] - found["idle_w"] == pytest.approx(1e12 * flop_j + 1e10 * byte_j, rel=1e-4)
    narrow = chip_watts(work(1e12), h100(), "fp8", plain(), MIDDLE)
    assert narrow["chip_w"] - narrow["idle_w"] == pytest.approx(0.667 * 1e12 * flop_j, rel=1e-4)


def test_the_peak_of_a_format_saves_nothing():
    """An H100 that printed FP8 at the rate of BF16 would draw the same watts at the same work in either format."""
    chip = h100()
    slow = replace(chip, peak_flop_per_s={**chip.peak_flop_per_s, "fp8": chip.peak("bf16"), "bf16": 989.5e12})
    for dtype in ("bf16", "fp8"):
        watts = [float(chip_watts(work(1e14, 1e12), one, dtype, plain(), MIDDLE)["chip_w"]) for one in (chip, slow)]
        assert watts[0] == pytest.approx(watts[1], rel=1e-12)


@pytest.mark.parametrize(
    ("chip", "tflop_per_s"),
    [
        ("a100", 312.0),
        ("h100", 989.5),
        ("b200", 2250.0),
        ("trainium1", 190.0),
        ("trainium2", 667.0),
        ("trainium3", 2517 / 2),  # MXFP8 runs at 3.75 times the rate of BF16, which a chip for BF16 would not
        ("tpu-v5e", 197.0),
    ],
)
def test_rate_for_which_a_chip_is_built(chip, tflop_per_s):
    assert float(matmul_rate(tm.chip(chip))) / 1e12 == pytest.approx(tflop_per_s, rel=0.006)


@pytest.mark.parametrize("end", [LOW, MIDDLE, HIGH])
def test_a_narrower_format_never_takes_more_energy(end):
    """Each operation takes no more in fewer bits, in the middle of the ranges and at both of their ends."""
    for name in ("h100", "trainium3"):
        power = facilities.power(tm.chip(name))
        wide, sixteen, eight, four = (
            [value_at(end, power, "flop_ratio", dtype) for dtype in group]
            for group in (("fp32", "tf32"), SIXTEEN, EIGHT, FOUR)
        )
        assert min(wide) >= max(sixteen) == 1.0
        assert min(sixteen) >= max(eight)
        assert min(eight) >= max(four) > 0


def test_a_format_that_moves_fewer_bytes_takes_no_more_for_the_same_work():
    """The same operations in the same time with bytes of 2, 1 and 0.53 each, on every chip that has both formats."""
    for name in ("h100", "b200", "mi300x", "trainium2", "trainium3"):
        chip, rng = tm.chip(name), np.random.default_rng(3)
        flop, elements = rng.uniform(0, 1e15, 200), rng.uniform(0, 2e12, 200)
        narrow = "mxfp8" if "mxfp8" in chip.peak_flop_per_s else "fp8"
        power = facilities.power(chip)
        watts = [
            chip_watts(work(flop, elements * size), chip, dtype, power, MIDDLE)["chip_w"]
            for dtype, size in (("bf16", 2.0), (narrow, 1.0))
        ]
        assert np.all(watts[1] <= watts[0]), name


CONSTANTS = ["compute_activity", "hbm_activity", "idle_share", "host_w_per_chip", "server_ratio", "all_in_ratio"]


@pytest.mark.parametrize("name", [*CONSTANTS, "flop_ratio", "tdp_w"])
@pytest.mark.parametrize("system", ["trn3-nl72x2-pcie160", "trn2.48xlarge", "hgx-a100"])
def test_no_answer_improves_when_a_constant_of_power_grows(name, system):
    """Joules, watts and tokens per megawatt with a constant at 1, 1.1 and 1.5 times its value."""
    step = tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=4), batch=np.array([1, 16, 64]), context=2048)
    chip, growth = step.system.chip, np.array([[1.0], [1.1], [1.5]])
    power = replace(facilities.power(chip), ranges={})
    if name == "flop_ratio":
        power = replace(power, flop_ratio={key: value * growth for key, value in power.flop_ratio.items()})
    elif name != "tdp_w":
        power = replace(power, **{name: getattr(power, name) * growth})
    else:
        step = replace(step, system=replace(step.system, chip=replace(chip, tdp_w=chip.tdp_w * growth)))
    found = tm.energy(step, power=power)
    for figure in ("chip_w", "server_w", "site_w", "server_j_per_token", "facility_j_per_token"):
        value = np.broadcast_to(getattr(found, figure), (3, 3))
        assert np.all(np.diff(value, axis=0) >= -1e-9 * value[1:]), figure
    made = np.broadcast_to(found.tokens_per_s_per_site_mw, (3, 3))
    assert np.all(np.diff(made, axis=0) <= 1e-9 * made[1:])


def test_every_dtype_has_an_energy():
    power = facilities.power(tm.chip("trainium3"))
    assert set(power.flop_ratio) == set(load.dtypes())


def test_watts_at_the_same_work_are_finite_on_every_system():
    """Any system whose chip has a TDP answers, in each format of which it has a peak."""
    for name in tm.systems():
        chip = read_system(name).chip
        for dtype in chip.peak_flop_per_s:
            watts = chip_watts(work(1e12, 1e10), chip, dtype, facilities.power(chip), MIDDLE)["chip_w"]
            assert np.isfinite(watts) == np.isfinite(chip.tdp_w), (name, dtype)


ROW = {
    "chip": "h100",
    "hardware": "H100-SXM-80GB",
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "alias": "llama-3.1-70b",
    "n_gpus": 4,
    "tp": 4,
    "precision": "bf16",
    "batch": 64,
    "output_tokens": 500,
    "power_w": 2000.0,
}


def asked(**more):
    return tm.validate(pd.DataFrame([ROW | more])).iloc[0]


def test_a_busy_chip_is_as_active_in_the_rest_of_its_time():
    """A rate of a tenth of the model's own leaves the watts where they are, unless the row says that chips waited."""
    own = asked()
    assert own.skipped == ""
    slow, waits = asked(tokens_per_s=100.0), asked(tokens_per_s=100.0, remark="host overhead")
    assert slow.predicted == pytest.approx(own.predicted, rel=1e-9)
    assert waits.predicted < 0.7 * slow.predicted
    assert asked(tokens_per_s=100.0, idles=1).predicted == pytest.approx(waits.predicted, rel=1e-9)
    fast = [asked(tokens_per_s=rate).predicted for rate in (100.0, 2000.0, 10_000.0, 30_000.0)]
    assert fast == sorted(fast)
