"""Watts of GPUs that were measured, with the model left out, and the shares that are fitted to them."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import trnmodel as tm
from trnlab import energy as evidence
from trnmodel.catalog import facilities, load
from trnmodel.evidence import joules


@pytest.fixture(scope="module")
def errors():
    return evidence.accuracy()


def test_joules_of_gpus_with_the_model_left_out(errors):
    """Targets: 12 % median and 17 % mean in steady state, 16 % of all; 0.75 TDP gives 14 %, TDP 33 %.

    Measured: 12.7 and 16.7 %, 13.2 %; bottom-up, from energies of operations and bits alone, is 39 % off.
    """
    steady = errors[errors.steady]
    assert (len(steady), len(errors)) == (565, 751)
    assert steady.error.abs().median() < 0.13
    assert steady.error.abs().mean() < 0.17
    assert errors.error.abs().median() < 0.14
    assert steady.share_error.abs().median() == pytest.approx(0.142, abs=0.005)
    assert steady.tdp_error.abs().median() == pytest.approx(0.334, abs=0.01)
    assert 0.3 < steady.bottom_up_error.abs().median() < 0.5


@pytest.fixture(scope="module")
def width():
    return load.value("gpu-power", "chip_width")


def test_joules_by_format_with_the_model_left_out(errors, width):
    """Targets: FP8 within 10 % in the median and 85 % inside the band; BF16 and FP16 within 12 %.

    Measured: FP8 11 % too low, so that one target is missed, and 91 % inside; BF16 and FP16 11.3 %. The law before,
    whose activity was FLOP over the peak of the format, gave the 61 configurations of Qwen3 in FP8 34 % too few watts,
    and 38 % of them inside.
    """
    found = evidence.by_format(errors, width).set_index("precision")
    assert found.configurations.to_dict() == {"bf16": 547, "fp16": 24, "fp8": 108, "mxfp4": 72}
    assert abs(found.bias_error["fp8"]) < 0.115
    assert found.inside_share["fp8"] > 0.85
    sixteen = errors[errors.precision.isin(["bf16", "fp16"])].error
    assert sixteen.abs().median() < 0.12
    assert abs(sixteen.median()) < 0.03


def test_one_model_on_one_gpu_in_two_formats(errors, width):
    """Llama-3.1-405B on B200, left out of the fit: BF16 within 5 % in the median, FP8 too, and all inside the band."""
    pair = errors[(errors.model == "llama-3.1-405b") & (errors.chip == "b200")]
    sizes = pair.groupby("precision").error
    assert sizes.size().to_dict() == {"bf16": 12, "fp8": 7}
    assert sizes.median().abs().max() < 0.05
    assert np.abs(np.log1p(pair.error)).max() < width


def test_rows_that_no_fit_knew(errors, width):
    """61 configurations of Qwen3 in FP8 on H100 and B200 joined later: 21 % too low with their models left out."""
    later = errors[(errors.precision == "fp8") & errors.model.str.startswith("qwen3")]
    assert len(later) == 61
    assert abs(later.error.median()) < 0.23
    assert (np.abs(np.log1p(later.error)) < width).mean() > 0.80


def test_the_range_for_a_chip_that_nobody_measured_is_that_of_the_fits_to_one_chip():
    found, power = evidence.transfer(), facilities.power(tm.chip("trainium2"))
    for name in evidence.SHARES:
        ends = found[name].min(), found[name].max()
        assert facilities.ends(power, name) == pytest.approx(ends, rel=1e-3)
        assert ends[0] < getattr(power, name) < ends[1]


def test_joules_of_gpus_at_the_rate_of_the_model(errors):
    """Target: 30 %. Measured: 12 % in steady state, 17 % of all that the catalog has the model of."""
    known = errors[errors.own_error.notna()]
    assert len(known) == 660
    assert known.own_error.abs().median() < 0.30
    assert known[known.steady].own_error.abs().median() < 0.21


def test_rows_are_those_that_the_source_prints(errors):
    """0.485890 J/token of gpt-oss-120b on one B200 with 7.992 sequences, which the source gets from W and tokens/s."""
    row = errors[(errors.chip == "b200") & (errors.model == "gpt-oss-120b") & (errors.batch == 7.992)]
    assert row.j_per_token.tolist() == [pytest.approx(0.48589007854707056, rel=1e-9)]


def test_a_case_is_the_step_that_a_caller_gets():
    """The activity of a row is what `tm.energy` finds for the same step at the same rate."""
    case = next(c for c in evidence.cases() if c.row.alias == "llama-3.1-70b" and c.steady)
    step = joules.decoding(case.reading, "ideal")
    found = tm.energy(replace(step, time_s=case.amounts.time_s))
    assert (float(found.compute_utilisation), float(found.hbm_utilisation)) == pytest.approx(case.utilisation)


def test_printed_watts_of_a_model_do_not_move_what_is_said_of_it():
    few = [case for case in evidence.cases() if case.model in ("llama-3.1-8b", "qwen3-14b", "llama-3.1-70b")]
    double = [
        case._replace(row=msgspec.structs.replace(case.row, power_w=2 * case.row.power_w))
        if case.model == "qwen3-14b"
        else case
        for case in few
    ]
    before, after = evidence.left_out_watts(few)[:, 0], evidence.left_out_watts(double)[:, 0]
    mine = np.array([case.model == "qwen3-14b" for case in few])
    assert np.array_equal(before[mine], after[mine])
    assert not np.allclose(before[~mine], after[~mine], rtol=0.01)


def test_shares_in_force_are_those_that_the_rows_give():
    found = evidence.calibrated()
    assert {key: load.value(*key) for key in found} == pytest.approx(found, rel=1e-3)
    idle = [value for (_, quantity), value in found.items() if quantity == "idle_share"]
    assert facilities.ends(facilities.power(tm.chip("trainium2")), "idle_share") == (min(idle), max(idle))
    host = found["gpu-power", "host_w_per_chip"]
    assert facilities.ends(facilities.power(tm.chip("trainium2")), "host_w_per_chip")[1] == host


def test_a_chip_of_twenty_configurations_has_an_idle_share_of_its_own():
    """With one fewer it has that of other chips; among the rows H100, B200 and A100 have as many."""
    one, other = (next(case for case in evidence.cases() if case.chip.id == name) for name in ("h100", "a100"))
    assert evidence._owners([one] * 20 + [other] * 19) == ["h100"]
    assert evidence._owners(evidence.cases()) == ["a100", "b200", "h100"]


def test_rows_that_are_read_once_cannot_be_changed():
    with pytest.raises(AttributeError, match="immutable"):
        evidence.cases()[0].row.power_w = 1.0


def test_servers_left_out_of_one_set_of_shares():
    """7.13, 6.15, 10.4, 9.89 kW under load, 14.3 and 14.5 at most; with the ratings of DGX H100 and A100."""
    found = evidence.server_errors()
    assert found.measured_kw.tolist() == [7.13, 6.15, 10.4, 9.89, 14.3, 14.5, 10.2, 6.5]
    assert found.error.abs().max() < 0.10


def test_errors_by_chip_are_those_of_all_rows():
    import pandas as pd

    names = {"model": list("aab"), "chip": ["x", "x", "y"], "steady": [True, False, False]}
    errors = pd.DataFrame(names | {"error": [0.1, -0.3, 0.2], "own_error": [0.5, 0.5, 0.5]})
    found = evidence.by_chip(errors).set_index("chip")
    assert found.configurations.tolist() == [2, 1, 3, 1]
    assert found.median_error.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.1])
    assert found.bias_error["x"] == pytest.approx(-0.1)
    assert found.models["all"] == 2
