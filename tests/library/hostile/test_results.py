"""The methods of everything that public calls return meet hostile arguments too; a method in no row fails."""

import zlib

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.result import Result

from . import results
from .corpus import corpus
from .judge import little_memory

SHOWN = 12


@pytest.fixture(autouse=True, scope="module")
def _bounded():
    with little_memory():
        yield


@pytest.mark.one_cpu
def test_every_argument_of_every_method_of_a_result_meets_hostile_values():
    assert results.uncovered() == []


@pytest.mark.one_cpu
def test_a_new_method_of_a_result_cannot_be_added_unchecked(monkeypatch):
    def months(self, rate):
        return self.days / rate

    months.__module__ = "trnmodel.search.train_run"
    monkeypatch.setattr(type(tm.goodput("hgx-h100", model="llama-3.2-1b")), "months", months, raising=False)
    assert results.uncovered() == ["Goodput.months(rate)"]


def test_the_walk_reaches_every_kind_of_result():
    def kinds(base):
        return {kind for one in base.__subclasses__() for kind in (one, *kinds(one))}

    names = {kind.__name__ for kind in results.reached()}
    public = {kind.__name__ for kind in kinds(Result) if kind.__module__.startswith("trnmodel")}
    assert public - names <= {"Grounded", "Judged", "KernelTime"}  # two bases, and what tm.kernel calls give
    others = (
        "System Chip Core Mapping Topology Transformer Plan TokenCosts Rent Owner Prices Fleet Precision Efficiencies"
    )
    assert set(others.split()) <= names


def hostile(share):
    """Wrong answers of one in so many hostile cases of every method, and how many were asked."""
    found, asked = [], 0
    for call in results.result_calls():
        start = zlib.crc32(call.code.encode()) % share
        for case in list(corpus(call))[start::share]:
            asked += 1
            found += [ascii(f"{case.line()}  ->  {fault}") for fault in [case.fault()] if fault]
    return found, asked


@pytest.mark.one_cpu
def test_methods_of_results_refuse_hostile_values_by_name():
    found, asked = hostile(40)
    assert asked > 800
    assert not found, "\n".join([f"{len(found)} wrong answers", *found[:SHOWN]])


@pytest.mark.slow
@pytest.mark.one_cpu
def test_methods_of_results_refuse_all_hostile_values_by_name():
    found, asked = hostile(1)
    assert asked > 30_000
    assert not found, "\n".join([f"{len(found)} wrong answers", *found[:SHOWN]])


STEP = tm.decode_step("llama-3.2-1b", "trn2.48xlarge", tm.Mapping(tp=4), batch=4, context=2048)


@pytest.mark.parametrize("method", ["figure", "ends", "widths", "banded", "in_words"])
@pytest.mark.parametrize(("name", "near"), [("tyme_s", "time_s"), ("tokens_per_s_per_usr", "tokens_per_s_per_user")])
def test_a_misspelt_figure_is_answered_with_the_nearest(method, name, near):
    with pytest.raises(ValueError, match=f"name='{name}'.*nearest: (.*, )?{near}"):
        getattr(STEP, method)(name)


@pytest.mark.parametrize("name", ["tp", "batch", "model", "valid", "reason_mask", "low", "__class__", ""])
def test_what_is_no_figure_of_the_answer_has_no_band(name):
    with pytest.raises(ValueError, match="name="):
        STEP.ends(name)


def test_every_figure_of_every_result_that_a_message_can_name_has_ends():
    faults = []
    for kind, code in results.reached().items():
        one = results.made(code, results.HELPERS)
        if not hasattr(kind, "FIGURE"):
            continue
        for name in one.figures():
            low, high = one.ends(name)
            value = one.figure(name)
            there = ~np.isnan(np.asarray(value, dtype=float)) & ~np.isnan(low) & ~np.isnan(high)
            if not np.all((low <= value * (1 + 1e-12))[there] & (value <= high * (1 + 1e-12))[there]):
                faults.append((kind.__name__, name, low, value, high))
    assert faults == []
