"""How many modules a reader passes from a public call to its last formula, and that parameters keep their names."""

import sys
from dataclasses import fields, is_dataclass
from inspect import signature
from pathlib import Path

import pytest

import trnmodel as tm
from trnmodel.cost import bill
from trnmodel.cost.tco import CostQuestion
from trnmodel.formulas import step as step_formulas
from trnmodel.formulas import training as training_formulas
from trnmodel.search import train_run, train_search
from trnmodel.steps import assemble
from trnmodel.steps.questions import DecodeQuestion
from trnmodel.training import rank
from trnmodel.training.step import TrainStep
from trnmodel.training.work import TrainQuestion

PACKAGE = Path(tm.__file__).parent
COMMON = {"__init__.py", "arguments.py", "declared.py", "units.py", "result.py"}  # which every call passes
DECODE = {"mapping": tm.Mapping(tp=4, ep=4), "batch": 8, "context": 4096}

WALKS = {
    "decode_step": (lambda: tm.decode_step("qwen3-30b-a3b", "trn2.48xlarge", **DECODE), 10),
    "tco": (lambda: tm.tco("trn3-nl72x2-pcie160"), 10),
    "train_run": (
        lambda: tm.train_run("llama-3.1-8b", "hgx-h100", tokens=15e12, chips=1024),
        14,
    ),  # exchanges at their sizes
}


def entered(call):
    """The modules whose functions a warm call runs."""
    for _ in range(2):
        call()
    modules = set()

    def note(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents:
            modules.add(file.relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return modules


@pytest.mark.parametrize("name", WALKS)
def test_a_warm_call_passes_few_modules(name):
    call, limit = WALKS[name]
    passed = entered(call) - COMMON
    assert len(passed) <= limit, sorted(passed)


def test_a_warm_call_does_not_walk_the_catalog():
    """An id is looked up once: afterwards neither tables nor names are read."""
    for call, _ in WALKS.values():
        assert not entered(call) & {"catalog/load.py", "catalog/names.py", "catalog/tables.py"}


def names_of(item):
    """The parameters of a function, or the fields of a question."""
    return {field.name for field in fields(item)} if is_dataclass(item) else set(signature(item).parameters)


TRAINED = (tm.train_run, train_search.space, train_search.grid, tm.train_step, TrainQuestion)
PARAMETERS = {
    "batch": (tm.decode_step, DecodeQuestion, assemble.decode_work, assemble.stored_kinds, step_formulas.own_sequences),
    "context": (tm.decode_step, DecodeQuestion, assemble.decode_work, step_formulas.visible_tokens),
    "expert_imbalance": (tm.decode_step, DecodeQuestion, assemble.decode_work),
    "global_batch": TRAINED,
    "seq": (tm.train_run, train_search.grid, tm.train_step, TrainQuestion, training_formulas.megatron_flop),
    "micro_batch": (tm.train_step, TrainQuestion),
    "chips": (tm.train_run, train_run.domains),
    "tokens": (tm.train_run, TrainStep.run_s, training_formulas.run_s),
    "batch_slack": TRAINED[:3],
    "max_cp": TRAINED[:3],
    "precision": (tm.train_run, tm.train_step, rank.rank),
    "efficiencies": (tm.train_run, train_search.grid, tm.train_step, rank.rank),
    "prices": (tm.tco, CostQuestion, bill.lines, bill.network_lines, bill.network),
    "system": (tm.tco, CostQuestion, bill.lines, bill.counts),
    "tdp_w": (tm.tco, CostQuestion, bill.lines),
    "owner": (tm.tco, CostQuestion),
    "goodput": (tm.tco, CostQuestion),
    "utilisation": (tm.tco, CostQuestion),
    "energy": (tm.tco, CostQuestion),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_keeps_its_name(name):
    without = [str(item) for item in PARAMETERS[name] if name not in names_of(item)]
    assert not without
