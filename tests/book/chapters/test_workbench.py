"""Tables of the chapter that opens the workbench, and its calls of many mappings at once."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import workbench as tables
from trnbook.workbench import ServingState, answers, best

REQUEST = tm.Request(4096, 512, tokens_per_s_per_user=50)


@pytest.fixture(scope="module")
def state():
    return best(ServingState())


@pytest.fixture(scope="module")
def grid(state):
    tp, batch = tables.around(state)
    mapping = tm.Mapping(tp=tp, lnc=state.lnc)
    ask = {"precision": state.precision}
    served = tm.serve(
        state.model, state.request, state.system, mapping, max_batch=batch, **ask, efficiencies=state.option.id
    )
    more = {"context": state.context, "input_tokens": state.prompt, "efficiencies": state.option.efficiencies}
    return tables.grid(served, tm.memory_fit(state.model, state.system, mapping, batch=batch, **ask, **more))


def test_a_row_of_the_grid_is_what_the_workbench_shows(state, grid):
    for row in grid.itertuples():
        one = answers(replace(state, tp=int(row.tp), batch=int(row.batch)))
        if row.tokens_per_s_per_chip > 0:
            assert one.value("tokens_per_s_per_chip") == pytest.approx(row.tokens_per_s_per_chip, rel=1e-12)
            assert one.value("first_rank_total_bytes") == pytest.approx(row.first_rank_total_bytes, rel=1e-12)
        else:
            assert one.note or row.why in one.reason
            assert row.why


def test_the_best_of_the_grid_is_the_best_of_the_plan(state, grid):
    assert (grid.tp[0], grid.batch[0]) == (state.tp, state.batch)
    assert len(grid) == 36
    made = grid.tokens_per_s_per_chip.dropna()
    assert (np.diff(made) <= 0).all()


def test_the_grid_lies_around_any_state():
    for ask in ({"tp": 64, "batch": 1}, {"tp": 1, "ep": 64, "batch": 256}, {"system": "trn1.2xlarge", "tp": 2}):
        one = ServingState(**ask)
        tp, batch = tables.around(one)
        assert one.tp in tp
        assert one.batch in batch
        assert batch.min() >= 1


def test_the_card_names_the_plan_and_the_next_one():
    plan = tm.plan("llama-3.3-70b", REQUEST, "trn2.48xlarge")
    said = tables.headline(plan)
    assert f"{plan.best.tokens_per_s_per_chip:.0f} tokens/s per chip" in said
    assert f"`TP {plan.second[0].tp:g}" in said


def test_a_plan_without_another_mapping_says_so():
    plan = tm.plan("llama-3.1-8b", tm.Request(512, 128), "inf2.xlarge")
    assert plan.best is not None
    assert "**No rival:**" in tables.headline(plan) or "**Next best:**" in tables.headline(plan)


@pytest.mark.parametrize(("model", "why"), [("llama-3.1-405b", "does not fit"), ("llama-3.1-8b", "at most")])
def test_what_is_not_reached_is_said(model, why):
    assert why in tables.unreached(tm.plan(model, tm.Request(512, 128, tokens_per_s_per_user=1e5), "trn1.2xlarge"))


def test_the_waterfall_is_of_the_step(state):
    chart = tables.waterfall(answers(state)).to_dict()
    assert "together 44.7 ms" in chart["description"]


def test_sources_are_those_of_the_chip_and_of_the_software(state):
    ids = set(tables.sources(state).id)
    assert ids
    assert "project" not in ids
