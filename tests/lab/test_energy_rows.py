"""Published watts of GPUs and servers: work of a row, fits and errors by hand."""

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import energy as evidence
from trnmodel.catalog import facilities
from trnmodel.catalog.systems import ANY_MEMORY


@pytest.fixture
def left_out(monkeypatch):
    """Watts as if fits without each model had given them: e^-0.4 to e^0.5 of those measured, and twice as many."""
    of = evidence.cases()
    watts = np.array([case.row.power_w / case.row.n_gpus for case in of]) * np.exp(np.linspace(-0.4, 0.5, len(of)))
    monkeypatch.setattr(evidence, "left_out_watts", lambda of: np.stack([watts, 2 * watts], axis=1))
    monkeypatch.setattr(evidence, "fit", lambda of, owners: np.array([3.0, 2.0, 0.1, 0.2, 0.3]))
    return watts


def like(**change):
    """A case of the rows with other printed figures."""
    row = next(case.row for case in evidence.cases() if case.row.model == "microsoft/Phi-3-medium-4k-instruct")
    return evidence.case_of(msgspec.structs.replace(row, **change))


@pytest.mark.parametrize(
    ("change", "flop", "moved", "time_s"),
    [
        # 2 FLOP for each of 14e9 parameters and of 60 sequences over 4 GPUs; 2 B of each parameter
        ({}, 2 * 14e9 * 60 / 4, 14e9 * 2 / 4, 60 / 300),
        ({"active_b": "3.0"}, 2 * 3e9 * 60 / 4, 14e9 * 2 / 4, 60 / 300),
        ({"precision": "fp8"}, 2 * 14e9 * 60 / 4, 14e9 / 4, 60 / 300),
        ({"precision": "fp16"}, 2 * 14e9 * 60 / 4, 14e9 * 2 / 4, 60 / 300),
    ],
)
def test_work_of_a_model_that_the_catalog_has_not(change, flop, moved, time_s):
    case = like(**{"batch": 60.0, "n_gpus": 4.0, "tokens_per_s": 300.0, "power_w": 1000.0, "chip": "h100"} | change)
    found = case.amounts
    assert (float(found.flop), float(found.moved_bytes), float(found.time_s)) == pytest.approx((flop, moved, time_s))
    assert [float(x) for x in found[3:]] == [0, 0, 0]
    assert case.dtype == ("fp8" if change.get("precision") == "fp8" else "bf16")
    assert case.measured_w == 250.0
    assert np.isnan(case.own_s)
    peak = {"fp8": 1979e12}.get(case.dtype, 989.5e12)  # an H100 SXM, without sparsity, and its 3.35 TB/s
    assert case.utilisation == pytest.approx((flop / time_s / peak, moved / time_s / 3.35e12), rel=1e-3)


def test_a_limit_that_a_row_prints_is_its_tdp():
    assert (like().chip.tdp_w, like(limit_w="250").chip.tdp_w) == (400.0, 250.0)


@pytest.mark.parametrize(
    ("lengths", "context"), [(("1000", "300"), 1150), (("", "300"), 150), (("1000", ""), 1000), (("", ""), 1)]
)
def test_a_sequence_is_half_way_on_average(lengths, context):
    change = {
        "alias": "qwen3-30b-a3b",
        "chip": "h100",
        "tp": 2,
        "pp": 3,
        "ep": 4,
        "batch": 1.0,
        "precision": "mxfp4",
        "input_tokens": lengths[0],
        "output_tokens": lengths[1],
    }
    case = like(**change)
    roomy = replace(tm.chip("h100"), hbm_bytes=ANY_MEMORY)
    step, own = (
        tm.decode_step(
            "qwen3-30b-a3b",
            roomy,
            tm.Mapping(tp=2, pp=3, ep=4),
            batch=1,
            context=context,
            precision="mxfp4-moe",
            efficiencies=stack,
        )
        for stack in ("ideal", None)
    )
    found = [case.amounts.flop, case.amounts.moved_bytes, case.own_s]
    assert found == [step.work_flop_per_rank, step.moved_bytes_per_rank, float(own.time_s)]
    assert case.model == "qwen3-30b-a3b"


def test_watts_of_cases_by_hand():
    """700 W x (0.2 + 0.8 tanh(activity)) with the idle share of its chip, or that of the H200 where it has none."""
    of = [next(case for case in evidence.cases() if case.chip.id == name) for name in ("h100", "a100")]
    found = evidence._watts(of, ["h100"])(np.array([3.0, 2.0, 0.2]))
    idle = [0.2, facilities.power(tm.chip("h200")).idle_share]
    for case, share, watts in zip(of, idle, found, strict=True):
        compute, hbm = case.load
        by_hand = share + (1 - share) * np.tanh(3 * compute + 2 * hbm)
        assert watts == pytest.approx(float(case.chip.tdp_w) * by_hand, rel=1e-9)
    power = facilities.power(tm.chip("h100"))
    first = [power.compute_activity, power.hbm_activity, tm.chip("b200").idle_share, power.idle_share]
    assert evidence._start(["b200", "mi300x"]).tolist() == first


def test_a_fit_finds_what_made_the_watts():
    """Watts of two activities and one idle share, and their fit with one of five models left out."""
    some = [case for case in evidence.cases() if case.chip.id == "h100" and case.row.alias][:120:4]
    made = evidence._watts(some, ["h100"])(np.array([6.0, 1.25, 0.15]))
    of = [
        case._replace(row=msgspec.structs.replace(case.row, power_w=w * case.row.n_gpus))
        for case, w in zip(some, made, strict=True)
    ]
    assert evidence.fit(of, ["h100"]) == pytest.approx([6.0, 1.25, 0.15], rel=2e-3)
    found = evidence.left_out_watts(of)
    np.testing.assert_allclose(found[:, 0], made, rtol=2e-3)
    slower = [case._replace(amounts=case.amounts._replace(time_s=np.asarray(case.own_s))) for case in of]
    np.testing.assert_allclose(found[:, 1], evidence._watts(slower, ["h100"])(np.array([6.0, 1.25, 0.15])), rtol=4e-3)


def test_columns_of_errors_by_hand(left_out):
    """0.75 of the TDP and all of it over the watts of a GPU; joules of a token at the model's own rate."""
    errors = evidence.accuracy()
    for i in (3, 101, 440):
        case, row = evidence.cases()[i], errors.iloc[i]
        watts = case.row.power_w / case.row.n_gpus
        assert (row.model, row.chip, row.batch, row.remark) == (
            case.model,
            case.chip.id,
            case.row.batch,
            case.row.remark,
        )
        assert row.steady == ("steady state" in case.row.remark)
        assert row.measured_w == pytest.approx(watts)
        assert row.share_error == pytest.approx(0.75 * float(case.chip.tdp_w) / watts - 1)
        assert row.tdp_error == pytest.approx(float(case.chip.tdp_w) / watts - 1)
        assert row.bottom_up_error == pytest.approx(evidence._bottom_up_w(case) / watts - 1)
        assert row.j_per_token == pytest.approx(case.row.power_w / case.row.tokens_per_s)
        assert row.error == pytest.approx(left_out[i] / watts - 1)
        ratio = case.own_s / (case.row.batch / case.row.tokens_per_s)
        assert row.own_error == pytest.approx(2 * left_out[i] * ratio / watts - 1, nan_ok=True)


def test_errors_by_chip_by_hand():
    """Sizes 0.1, 0.2 and 0.4: the median 0.2, 0.36 at nine tenths, and a bias of 0.1."""
    table = pd.DataFrame(
        {
            "chip": ["a", "a", "a", "b"],
            "model": ["x", "x", "y", "z"],
            "error": [0.1, -0.2, 0.4, 0.5],
            "own_error": [0.3, -0.5, 0.1, np.nan],
            "steady": [True, False, True, False],
        }
    )
    found = evidence.by_chip(table).set_index("chip")
    assert found.index.tolist() == ["a", "b", "all", "all in steady state"]
    assert found.configurations.tolist() == [3, 1, 4, 2]
    assert found.models.tolist() == [2, 1, 3, 2]
    np.testing.assert_allclose(found.median_error, [0.2, 0.5, 0.3, 0.25])
    np.testing.assert_allclose(found.p90_error, [0.36, 0.5, 0.47, 0.37])
    np.testing.assert_allclose(found.bias_error, [0.1, 0.5, 0.25, 0.25])
    np.testing.assert_allclose(found.own_speed_median_error, [0.3, np.nan, 0.3, 0.2])


def test_watts_of_servers_by_hand():
    """Eight GPUs of 700 W at 1.1 and one host of 1,600 W: 7.76 kW; rated at 1.5 times: 10 kW. Four of 400: 3.36."""
    h100 = next(one for one in evidence.servers() if one.kind == "load")
    eight, rated = (msgspec.structs.replace(h100, limit_w=700.0, kind=kind) for kind in ("load", "rating"))
    four = msgspec.structs.replace(h100, limit_w=400.0, chips=4)
    of, values = [eight, rated, four], np.array([1600.0, 1.1, 1.5])
    kilowatts = [7.76, 10.0, 3.36]
    assert evidence.server_kw(of, values) == pytest.approx(kilowatts)
    measured = [msgspec.structs.replace(one, power_kw=kw) for one, kw in zip(of, kilowatts, strict=True)]
    assert evidence.fit_servers(measured) == pytest.approx([1600.0, 1.1, 1.5], rel=1e-3)


def test_what_is_written_by_hand(left_out):
    """The width of a server is the largest of eight; of a chip 0.41 holds nine in ten of -0.4 to 0.5 in even steps."""
    table, found = evidence.server_errors(), evidence.calibrated()
    np.testing.assert_allclose(table.error, table.predicted_kw / table.measured_kw - 1)
    assert table.kind.tolist() == ["load"] * 4 + ["rating"] * 4
    host, ratio, most = evidence.fit_servers(evidence.servers())
    width = np.abs(np.log(1 + table.error)).max()
    assert found == pytest.approx(
        {
            ("gpu-power", "compute_activity"): 3.0,
            ("gpu-power", "hbm_activity"): 2.0,
            ("neuron-power", "compute_activity"): 3.0,
            ("neuron-power", "hbm_activity"): 2.0,
            ("a100", "idle_share"): 0.1,
            ("b200", "idle_share"): 0.2,
            ("h100", "idle_share"): 0.3,
            ("gpu-power", "host_w_per_chip"): host / 8,
            ("gpu-power", "server_ratio"): ratio,
            ("gpu-power", "server_max_ratio"): most,
            ("gpu-power", "server_width"): width,
            ("gpu-power", "chip_width"): 0.41,
        },
        rel=1e-3,
    )
