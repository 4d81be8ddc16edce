"""A collective and a server hold the question that made them, and answer their basis and bands from it by name."""

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.serving.server import disaggregate

STEP = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8)}
LENGTHS = {"input_tokens": 1000, "output_tokens": 100}
SIDE = "trn2.48xlarge", tm.Mapping(tp=8)


def collective(**more):
    asked = {"kind": "all_reduce", "message_bytes": [1e4, 1e8], "system": "trn2.48xlarge", "ranks": 32}
    return tm.collective(**asked | {"efficiencies": "public"} | more)


def serving(**more):
    return tm.serve(**STEP, request=tm.Request(**LENGTHS, requests_per_s=[0.1, 2.0]), **{"max_batch": 8} | more)


def apart():
    return disaggregate("llama-3.1-8b", *SIDE, *SIDE, batch=[1, 8], **LENGTHS)


MADE = [collective, serving, apart]


def figures(result):
    return {name: [result.figure(name), *result.ends(name)] for name in result.figures()}


@pytest.mark.parametrize("made", MADE)
def test_no_field_of_a_result_or_of_its_question_is_a_function(made):
    result = made()
    for holder in (result, result.question):
        assert not [one.name for one in fields(holder) if callable(getattr(holder, one.name))]


@pytest.mark.parametrize("made", MADE)
def test_a_question_cannot_be_changed(made):
    question = made().question
    with pytest.raises(FrozenInstanceError):
        setattr(question, fields(question)[0].name, None)


@pytest.mark.parametrize("made", MADE)
def test_a_table_of_the_result_has_no_column_of_its_question(made):
    assert not {"question", "prefill_step", "decode_step"} & set(made().to_frame())


@pytest.mark.parametrize("more", [{}, {"efficiencies": None}, {"chips": 4, "ranks": None}, {"alpha_s": 1e-6}])
def test_the_question_of_a_collective_asks_for_the_same_times(more):
    first = collective(**more)
    again = tm.collective(**{one.name: getattr(first.question, one.name) for one in fields(first.question)})
    assert figures(first).keys() == figures(again).keys()
    assert all(np.array_equal(x, figures(again)[name], equal_nan=True) for name, x in figures(first).items())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"efficiencies": "neuron-async"},
        {"batching": "static"},
        {"compiled": False},
        {"chunk_tokens": 256, "draft_tokens": 2, "acceptance": 0.5},
    ],
)
def test_the_question_of_a_server_asks_for_the_same_times(more):
    first = serving(**more)
    asked = {one.name: getattr(first.question, one.name) for one in fields(first.question)}
    option = asked.pop("option")
    again = tm.serve(**asked, efficiencies=option.id)
    assert all(np.array_equal(x, figures(again)[name], equal_nan=True) for name, x in figures(first).items())


def test_the_question_of_two_machines_asks_for_the_same_times():
    first = apart()
    again = disaggregate(**{one.name: getattr(first.question, one.name) for one in fields(first.question)})
    assert all(np.array_equal(x, figures(again)[name], equal_nan=True) for name, x in figures(first).items())


def test_the_basis_of_a_server_is_that_of_its_steps():
    result = serving()
    words = {*np.ravel(result.prefill_step.basis), *np.ravel(result.decode_step.basis)}
    assert set(np.ravel(result.basis)) <= words
