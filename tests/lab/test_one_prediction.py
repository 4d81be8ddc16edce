"""A row has one prediction: by `tm.validate`, by the lab's errors and by the tables that the book shows."""

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnlab import comparators, energy, kernels, residuals, training
from trnmodel.evidence.fit import cases, log_errors
from trnmodel.evidence.readings import is_rate
from trnmodel.evidence.rows import COLLECTIVES, COMPARATORS, MEASURED, POWERS, PRODUCTS, RUNS, published, read_table
from trnmodel.evidence.tables import judged, table

EXACT, PRINTED = 1e-9, 5e-5  # of a number in memory, and of one in a file of five or six digits


@pytest.fixture(scope="module")
def runs():
    """Runs of training through `tm.validate`, by id."""
    return tm.validate(RUNS).set_index("id")


@pytest.fixture(scope="module")
def watts():
    return tm.validate(POWERS)


def as_time(row):
    """The error of the time where a row prints a rate."""
    return 1 / (1 + row.error) - 1 if is_rate(row.meaning) else row.error


def test_every_run_of_training_that_is_judged_is_predicted(runs):
    asked = [row.id for row in training.rows() if row.use != "aside"]
    assert len(asked) == 212
    assert (runs.skipped[asked] == "").all()


def test_a_run_of_training_by_validate_by_the_lab_and_by_the_book(runs):
    """Its time by the lab, the mean error of its group in the chapter's table, and the lab's table of errors."""
    by_validate = {case.row.id: as_time(runs.loc[case.row.id]) for case in training.cases()}
    by_lab = {case.row.id: float(case.step().time_s) / case.measured_s - 1 for case in training.cases()}
    assert by_lab == pytest.approx(by_validate, rel=EXACT, abs=EXACT)
    written = residuals.shipped()
    written = written[written.split.isin(["as fitted", "outside the fits"])].set_index("id").error
    assert {name: written[name] for name in by_validate} == pytest.approx(by_validate, rel=PRINTED, abs=PRINTED)
    for line in table("training_errors").itertuples():
        own = [abs(by_validate[case.row.id]) for case in training.cases(line.group)]
        assert (np.mean(own), np.median(own)) == pytest.approx((line.mean, line.median), rel=EXACT)


def test_a_run_that_stands_in_two_tables_has_one_prediction(runs):
    """The 80 runs of `training.csv` that are lines of the collections of measured rows, by the place in their ids."""
    found = tm.validate(published().query("kind == 'training'")).set_index("id")
    ids = {}
    for name, kind in (("measured", "trn1"), ("measured_2", "finetune"), ("measured_3", "finetune3")):
        with (MEASURED.parent / f"{name}.csv").open(newline="") as file:
            ids |= {f"{kind}-{place}": row["id"] for place, row in enumerate(csv.DictReader(file))}
    both = [row.id for row in training.rows() if row.use != "aside" and row.id in ids]
    assert len(both) == 80
    again = found.loc[[ids[name] for name in both]]
    columns = ["predicted", "low", "high", "error"]
    np.testing.assert_allclose(again[columns].to_numpy(float), runs.loc[both, columns].to_numpy(float), rtol=EXACT)
    assert again.basis.tolist() == runs.basis[both].tolist()


def test_the_run_of_70b_on_16_machines(runs):
    """Step 5 took 243.872 s; one figure by each route, where there were two: 250.6 and 252.4."""
    (case,) = [case for case in training.cases("trn1") if case.row.id == "trn1-168"]
    step = tm.train_step(
        "llama-3-70b",
        tm.system("trn1.32xlarge", count=16),
        tm.Mapping(tp=32, pp=8, dp=2, placement=("tp", "cp", "ep", "dp", "pp")),
        global_batch=1024,
        seq=8192,
        micro_batch=1,
    )
    assert runs.predicted["trn1-168"] == pytest.approx(float(step.time_s), rel=EXACT)
    assert float(case.step().time_s) == pytest.approx(float(step.time_s), rel=EXACT)


def test_watts_by_validate_by_the_lab_by_the_book_and_by_the_public_call(watts):
    """Watts of one GPU by `tm.energy` at the printed rate too, for models of the catalogue."""
    per_gpu = watts.predicted.to_numpy() / watts.n_gpus.astype(float).to_numpy()
    of, owners = energy.cases(), energy._owners(energy.cases())
    np.testing.assert_allclose(energy._watts(of, owners)(energy._start(owners)), per_gpu, rtol=EXACT)
    np.testing.assert_allclose(table("energy_errors").predicted_w, per_gpu, rtol=EXACT)
    written = residuals.shipped().query("group == 'watts of GPUs' and split == 'as fitted'")
    np.testing.assert_allclose(written.error, watts.error, rtol=PRINTED, atol=PRINTED)
    for place in (0, 100, 200, 454):
        case = of[place]
        if case.row.alias:
            rate = tm.decode_step(
                case.row.alias,
                case.chip,
                case.reading.degrees,
                batch=case.row.batch,
                context=max(float(case.row.input_tokens or 0) + float(case.row.output_tokens) / 2, 1.0),
                precision=case.reading.precision,
                efficiencies="ideal",
            )
            found = tm.energy(replace(rate, time_s=case.amounts.time_s))
            assert per_gpu[place] == pytest.approx(float(found.chip_w), rel=EXACT)
            ends = (float(end) for end in found.ends("chip_w"))
            row = watts.iloc[place]
            assert [row.low, row.high] == pytest.approx([end * case.row.n_gpus for end in ends], rel=EXACT)


def test_joules_are_watts_over_tokens(watts):
    """A question about joules per token is that about watts over the tokens/s that the row prints."""
    rows = read_table(POWERS).iloc[:40]
    joules = rows.assign(metric="energy per token", unit="J/token", value="1")
    found = tm.validate(joules)
    assert found.meaning.unique().tolist() == ["energy-per-token"]
    by_hand = watts.predicted.iloc[:40] / rows.tokens_per_s.astype(float)
    np.testing.assert_allclose(found.predicted, by_hand, rtol=EXACT)


@pytest.mark.parametrize(("path", "group"), [(COMPARATORS, "comparator"), (COLLECTIVES, "gpu-all-reduce")])
def test_steps_and_collectives_of_gpus(path, group):
    """By `validate`, by the lab's table of errors, and (steps) by the book's table of other chips."""
    found = tm.validate(path).set_index("id")
    of = cases(path, group)
    scaled = np.array([case.reading.scale for case in of])
    by_validate = found.predicted[[case.id for case in of]].to_numpy() * scaled
    measured = np.array([case.measured for case in of])
    np.testing.assert_allclose(measured * np.exp(log_errors(of)), by_validate, rtol=EXACT)
    written = comparators.shipped(group)
    np.testing.assert_allclose(written.measured * (1 + written.error), by_validate, rtol=PRINTED)
    if path == COMPARATORS:
        shown = table("other_chips", software="public").set_index("id").predicted
        np.testing.assert_allclose(shown, found.predicted, rtol=EXACT)


def test_products_and_kernels():
    """By `validate`, by the lab's comparison, and by the book's tables of products and of kernels."""
    products = tm.validate(PRODUCTS)
    np.testing.assert_allclose(table("products").predicted_us, products.predicted, rtol=EXACT)
    rows = published()
    every = tm.validate(rows[rows.kind == "kernel"]).set_index("id")
    shown, by_lab = table("kernels"), kernels.comparison()
    assert shown.id.tolist() == by_lab.id.tolist()
    errors = every.loc[shown.id].apply(as_time, axis=1)
    np.testing.assert_allclose(shown.error, errors, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(by_lab.error, errors, rtol=EXACT, atol=EXACT)


def test_footprints():
    """By `validate`, by the lab's table of errors outside the fits, and as the book's table of judged rows has them."""
    shown = judged()
    shown = shown[shown.meaning.str.startswith("memory:")].set_index("id")
    rows = published().set_index("id", drop=False)
    found = tm.validate(rows.loc[shown.index]).set_index("id")
    assert len(found) > 10
    np.testing.assert_allclose(found.predicted.to_numpy(float), shown.predicted.to_numpy(float), rtol=PRINTED)
    written = pd.read_csv(MEASURED.parent / "residuals_outside.csv").query("use == 'memory footprint'")
    errors = found.error.to_numpy(float)
    assert all(np.isclose(errors, error, rtol=PRINTED, atol=PRINTED).any() for error in written.error)


@pytest.mark.slow
def test_errors_of_runs_are_current():
    """Else run `python -m trnlab.residuals`."""
    written, made = residuals.shipped(), residuals.residuals()
    assert written.id.tolist() == made.id.tolist()
    np.testing.assert_allclose(written.error, made.error, rtol=1e-3, atol=2e-3)


def test_left_out_errors_of_runs_are_those_of_the_fits():
    """By model: of `training_left_out.csv` and of the chapter's table of watts; by page where there are several."""
    written = residuals.shipped()
    by_model = written[written.split == "model left out"]
    runs_, watts_ = (by_model[by_model.group.str.startswith(name)] for name in ("training", "watts"))
    assert runs_.set_index("id").error.to_dict() == pytest.approx(training.left_out_errors(), abs=1e-4)
    np.testing.assert_allclose(watts_.error, table("energy_errors").error, rtol=1e-4, atol=1e-5)
    pages = written[written.split == "page left out"].groupby("group").source.nunique()
    assert pages.to_dict() == {
        "training, trn1": 5,
        "training, finetune-trn2": 9,
        "training, h100": 4,
        "training, torchtitan": 3,
        "watts of GPUs": 4,
    }
