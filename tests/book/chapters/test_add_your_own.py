"""The chapter on own figures: an own config.json, own rows, and questions that have no answer."""

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook.chapters import add_your_own as own
from trnmodel.arguments import ImpossibleError, UnanswerableError


def plan(model="llama-3.1-8b", system="trn2.48xlarge", speed=50.0):
    return tm.plan(model, tm.Request(4096, 512, tokens_per_s_per_user=speed), systems=system)


@pytest.mark.parametrize("layers", [1, 16])
def test_a_written_file_is_the_shipped_model_with_other_layers(layers):
    """A layer of Llama-3.1-8B: 2 x 4096 x 4096 + 2 x 4096 x 1024 + 3 x 4096 x 14336 = 218,112,000, and two norms."""
    m = tm.model("llama-3.1-8b")
    found = tm.model(own.config_file(m, layers))
    assert found.n_layers == layers
    assert m.total_params - found.total_params == pytest.approx((m.n_layers - layers) * 218_112_000, rel=1e-6)


def test_a_list_with_an_entry_for_each_layer_is_cut_with_the_layers():
    assert tm.model(own.config_file(tm.model("gpt-oss-20b"), 12)).n_layers == 12


def test_a_model_that_is_not_shipped_is_refused_in_a_line():
    with pytest.raises(UnanswerableError, match="is not shipped"):
        own.config_file(tm.model(own.config_file(tm.model("llama-3.1-8b"), 3)), 2)


@pytest.mark.parametrize("ask", [{"speed": 1e6}, {"model": "llama-3.1-405b", "system": "trn2.3xlarge"}])
def test_a_question_without_an_answer_is_impossible(ask):
    with pytest.raises(ImpossibleError):
        own.answered(plan(**ask))


def test_a_row_that_cannot_be_asked_keeps_its_reason():
    rows = pd.DataFrame({"value": [3.0], "unit": "ms", "predicted": np.nan, "low": np.nan, "high": np.nan})
    (told,) = own.verdicts(rows.assign(basis="", skipped="no model")).to_dict("records")
    assert (told["inside"], told["reason"]) == ("", "no model")
