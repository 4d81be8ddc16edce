"""Published runs of collectives: every row has a use or a reason, and what is shipped is what they give."""

import numpy as np
import pytest

import trnmodel as tm
from trnlab import collective_fits
from trnmodel.catalog import load
from trnmodel.evidence.score import excluded, shipped
from trnmodel.units import GB, US


def test_every_row_is_used_or_set_aside_with_a_reason():
    rows = collective_fits.contract()
    assert len(rows) == 185
    assert ((rows.use == "") == (rows.reason != "")).all()
    assert len(excluded(shipped("collective"))) == (rows.use == "").sum()


def test_two_constants_by_hand():
    # nccom-test -r 32 allg: 6.16 us at 1 KiB, 23.16 us at 512 KiB; 31/32 of the buffer moves. Through these two points:
    # rate = 31/32 x (524288 - 1024) B / 17.00 us = 29.8 GB/s, floor 6.13 us
    rate = 31 / 32 * (524288 - 1024) / 17.00e-6
    run = collective_fits.fits().set_index("series").loc["allg-32"]
    assert run.busbw_bytes_per_s == pytest.approx(rate, rel=0.01)
    assert run.floor_s == pytest.approx(6.16 * US - 31 / 32 * 1024 / rate, rel=0.02)


def test_printed_rates_are_bytes_over_time():
    table = collective_fits.recomputed()
    exact = table[table.printed >= 1]
    assert exact.error.abs().max() < 0.01  # two decimals of at least 1.00
    # 1 GiB over 2 ranks in 18,930 us: 56.7 GB/s, printed as 52.83: GiB/s
    large = table[(table.series == "allr-2") & (table.message_bytes == 2**30) & (table.metric == "busbw")].iloc[0]
    assert large.unit == "GiB/s"
    assert large.as_gb == pytest.approx(2**30 / 18930e-6 / GB)
    assert large.as_gib == pytest.approx(52.83, rel=1e-3)


def test_leaving_out_a_size_between_the_ends():
    points = collective_fits.points()
    ends = points.groupby("series").message_bytes.transform("max")
    inside = points[(points.message_bytes < ends) & ~points.series.isin(["allr-16"])]
    assert inside.left_out_error.abs().median() < 0.02
    assert inside.left_out_error.abs().max() < 0.21


def test_no_run_outruns_the_machine_that_it_fits():
    shares = collective_fits.shares()
    assert (shares[shares.system == "trn2.48xlarge"].share < 1).all()
    two = shares.set_index(["series", "system"]).loc[("allr-64-two-nodes", "trn1.32xlarge")]
    assert 0.5 < two.share < 1


def test_by_how_much_the_public_call_misses_by_hand():
    """1 GiB over two cores of a Trainium1 chip took 18,930 us; two passes at (73 + 132) / 2 GB/s are 20.95 ms."""
    table = collective_fits.misses()
    table = table[table.system == "trn1.32xlarge"]
    large = table[(table.series == "allr-2") & (table.message_bytes == 2**30)].ratio.item()
    launch_us = (1.225 + 82.49) / 2
    assert large == pytest.approx(18930 / (2 * 2**30 / 102.5e9 * 1e6 + launch_us + 1.5), rel=1e-3)


def test_the_misses_that_the_chapter_prints():
    """Without a launch the same rows took 5.7 and 11.2 times as long in the median."""
    table = collective_fits.misses()
    times = table.groupby("system").ratio.quantile([0.25, 0.5, 0.75]).round(1).unstack()
    assert times.loc["trn1.32xlarge"].tolist() == [0.9, 1.9, 4.4]
    assert times.loc["trn2.48xlarge"].tolist() == [0.8, 2.1, 4.3]
    assert table.groupby("system").size().tolist() == [36, 36]
    last = table[(table.series == "allr-64-two-nodes") & (table.system == "trn1.32xlarge")].ratio.iloc[-1]
    assert round(last, 1) == 1.3


def test_shipped_constants_are_the_fitted_ones():
    rows = load.facts_rows()
    fitted = collective_fits.fitted_facts()
    assert {name: rows[name].value_printed for name in fitted} == fitted


def test_twelve_collectives_cost_as_much_as_one():
    # 16 ranks of Trn2: 1.982 ms with one, 2.030 ms with twelve: 4.4 us each
    row = collective_fits.barriers().set_index(["runtime", "ranks"]).loc[("trn2", 16)]
    assert row.each_s == pytest.approx((2.030 - 1.982) / 11 * 1e-3)
    assert np.all(collective_fits.barriers().error.abs() < 0.03)


ORDER = ["allr-2", "allg-32-old", "allg-32", "allg-8", "allr-16", "streams-16", "allr-64-two-nodes"]  # as in the rows


def test_rates_by_hand_in_the_unit_of_their_run():
    """512 KiB gathered among 32 in 23.16 us: 22.64 GB/s, of which 31/32 move; in 179 us it was 2.728 GiB/s."""
    table = collective_fits.recomputed()
    assert list(table) == ["series", "metric", "message_bytes", "printed", "as_gb", "as_gib", "unit", "error"]
    assert table.index.tolist() == list(range(len(table)))
    binary = table[table.unit == "GiB/s"].series.unique().tolist()
    assert (binary[:2], len(binary)) == (["allr-2", "allg-32-old"], 3)
    some = table[(table.series == "allg-32") & (table.message_bytes == 2**19)].head(2).set_index("metric")
    assert some.as_gb["algbw"] == pytest.approx(2**19 / 23.16e-6 / 1e9, rel=1e-9)
    assert some.as_gb["busbw"] == pytest.approx(31 / 32 * 2**19 / 23.16e-6 / 1e9, rel=1e-9)
    assert some.printed.to_dict() == {"busbw": 21.93, "algbw": 22.64}
    np.testing.assert_allclose(some.error, [22.63765 / 22.64 - 1, 21.930225 / 21.93 - 1][::-1], atol=1e-6)
    old = table[(table.series == "allg-32-old") & (table.message_bytes == 2**19)].set_index("metric")
    assert old.as_gib["algbw"] == pytest.approx(2**19 / 179e-6 / 2**30, rel=1e-9)
    assert old.error["algbw"] == pytest.approx(2**19 / 179e-6 / 2**30 / 2.73 - 1, rel=1e-9)


@pytest.mark.parametrize("name", ORDER)
def test_a_line_is_that_of_numpy(name):
    """numpy.polyfit weighs what is left by w: 1 / t makes it the share of each time."""
    points = collective_fits.points()
    run = points[points.series == name]
    ranks = run.ranks.iloc[0]
    factor = {"all_reduce": 2, "all_gather": 1}[run.kind.iloc[0]] * (ranks - 1) / ranks
    wire, time = run.message_bytes.to_numpy() * factor, run.time_s.to_numpy()
    slope, floor = np.polyfit(wire, time, 1, w=1 / time)
    np.testing.assert_allclose(run.fitted_s, floor + slope * wire, rtol=1e-9)
    np.testing.assert_allclose(run.error, (floor + slope * wire) / time - 1, atol=1e-9)
    errors = []
    for size, own, took in zip(run.message_bytes, wire, time, strict=True):
        rest = (run.message_bytes != size).to_numpy()
        if len(set(wire[rest])) < 2:
            errors.append(np.nan)
            continue
        slope_, floor_ = np.polyfit(wire[rest], time[rest], 1, w=1 / time[rest])
        errors.append((floor_ + slope_ * own) / took - 1)
    np.testing.assert_allclose(run.left_out_error, errors, atol=1e-9)
    fit = collective_fits.fits().set_index("series").loc[name]
    assert (fit.floor_s, fit.busbw_bytes_per_s) == pytest.approx((floor, 1 / slope), rel=1e-9)
    assert fit.crossover_bytes * factor * slope == pytest.approx(floor, rel=1e-9)
    assert fit.sizes == len(set(wire))
    worst = [np.nan] * 2 if name == "allg-8" else [np.abs(run.error).max(), np.abs(errors).max()]  # two sizes alone
    np.testing.assert_allclose([fit.worst_error, fit.worst_left_out_error], worst, rtol=1e-9)
    curve = collective_fits.curves().query("series == @name").groupby("what", sort=False).busbw_bytes_per_s
    for (what, rates), took in zip(curve, (time, floor + slope * wire), strict=True):
        np.testing.assert_allclose(rates, wire / took, rtol=1e-9, err_msg=what)


def test_runs_stand_in_the_order_of_the_rows():
    for table in (
        collective_fits.points(),
        collective_fits.fits(),
        collective_fits.curves(),
        collective_fits.misses(),
        collective_fits.shares(),
    ):
        assert table.series.drop_duplicates().tolist() == ORDER
        assert table.index.tolist() == list(range(len(table)))


def test_shares_of_the_modelled_fabric_by_hand():
    """Two cores of a Trainium1 chip, 16 DMA engines of 17 GB/s each; the run's two constants over both."""
    row = collective_fits.shares().set_index(["series", "system"]).loc[("allr-2", "trn1.32xlarge")]
    fit = collective_fits.fits().set_index("series").loc["allr-2"]
    assert row.model_bytes_per_s == pytest.approx(16 * 17e9, rel=1e-6)
    assert row.share == pytest.approx(fit.busbw_bytes_per_s / 272e9, rel=1e-6)
    alone = {"in_graph": True, "rate_share": 1.0}
    empty_s = float(tm.collective("all_reduce", 0.0, "trn1.32xlarge", ranks=2, **alone).time_s)
    assert (row.model_floor_s, row.floor_ratio) == pytest.approx((empty_s, fit.floor_s / empty_s), rel=1e-9)


def test_launches_and_passes_of_a_run_by_hand():
    """32 ranks, all-reduce: of 11 messages to 256 KiB the sixth in order takes 400.4 us; then five count."""
    runs = collective_fits.launches()
    run = runs[(runs.ranks == 32) & (runs.kind == "all_reduce")].iloc[0]
    assert run.launch_s == pytest.approx(400.401 * US, rel=1e-6)
    # messages from 32 to 512 MiB in 1,484, 1,838, 2,962, 5,105 and 9,650 us
    times = np.array([1484, 1838, 2962, 5105, 9650]) * US
    sizes = 2.0 ** np.arange(25, 30)
    assert run.sizes == 5
    assert run.pass_bytes_per_s == pytest.approx(np.median(2 * sizes / (times - run.launch_s)), rel=1e-3)
    assert run.pass_low_bytes_per_s == pytest.approx(np.median(2 * sizes / times), rel=1e-3)


def test_a_kernel_of_fixed_slots_and_two_machines_have_no_rate():
    runs = collective_fits.launches()
    assert runs[(runs.machines == 2) | runs.fixed_slots].pass_bytes_per_s.isna().all()
    assert len(runs[runs.machines == 2]) == 3


def test_errors_of_calls_with_their_run_left_out():
    """Target of a collective over chips: 20 % in the median, and nine of ten inside 90 %."""
    table = collective_fits.host_call_table().set_index(["by", "what"])
    every = table.loc[("all", "all")]
    assert (every.calls, every.runs) == (168, 35)
    assert every.median_error < 0.15
    assert 0.85 < every.inside_share < 0.95
    assert table.loc[("ranks", "8 on 2 machines")].median_error < 0.1
    assert table.loc["kind"].calls.sum() == table.loc["ranks"].calls.sum() == 168


def test_what_a_host_waits_by_hand():
    """Line 2 of the exchange: each pair is of one operation, of calls back to back and synchronised."""
    waits = collective_fits.waiting_s()
    assert len(waits) == 128
    assert (waits > 0).all()


GRAPH_MS = {  # docs/neuron-notes.md: a graph with one all-reduce of 32 KiB, by ranks
    "trn1": {8: 2.45, 16: 3.76, 32: 5.10},
    "trn2": {4: 1.040, 8: 1.486, 16: 1.982, 32: 2.541, 64: 2.973},
}


@pytest.mark.parametrize("runtime", GRAPH_MS)
def test_a_barrier_is_a_line_of_doublings(runtime):
    """Of more than two ranks; a pair has no barrier. By numpy.polyfit over the doublings."""
    step, base = np.polyfit(np.log2([*GRAPH_MS[runtime]]), [*GRAPH_MS[runtime].values()], 1)
    assert collective_fits.barrier_line(f"neuron-runtime-{runtime}") == pytest.approx((base / 1e3, step / 1e3))


def test_a_row_of_barriers_by_hand():
    """Trn2, 16 ranks, in ms: 0.145 without, 1.982 with one, 2.030 with twelve; the model's 0.036 + 4 x 0.4921."""
    row = collective_fits.barriers().set_index(["runtime", "ranks"]).loc[("trn2", 16)]
    assert (row.without_s, row.one_s, row.twelve_s) == pytest.approx((0.145e-3, 1.982e-3, 2.030e-3), rel=1e-3)
    assert row.model_s == pytest.approx((0.036 + 4 * 0.4921) / 1e3)
    assert row.error == pytest.approx((0.036 + 4 * 0.4921) / 1.982 - 1)


def test_a_series_that_ran_on_two_servers():
    for series, servers in (("allr-64-two-nodes", 2), ("allr-16", 1)):
        assert [one.count for one in collective_fits._machines(series)] == [servers, servers]
