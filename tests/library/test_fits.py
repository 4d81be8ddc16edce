"""Fits, votes, verdicts and lines of tables by hand: what a group takes, when fits settle, how wide a bracket is."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence import fit, search
from trnmodel.evidence.cells import COLUMNS
from trnmodel.evidence.readings import reading

ROW = dict.fromkeys(COLUMNS, "") | {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "somebody's table",
    "date_or_sdk": "SDK 2.29",
    "lnc": "2",
    "instance": "trn2.48xlarge",
    "workload": "Llama-3.1-70B",
    "batch": "3",
    "seq_len": "2048",
    "tp": "16",
    "precision": "BF16",
    "metric": "TPOT p50",
    "value": "15",
    "unit": "ms",
}


@pytest.mark.parametrize(
    ("groups", "moves", "calls"),
    [(["decode"], 9, 1), (["decode", "prefill"], 3, 2 * 3), (["decode", "prefill"], 99, 24)],
)
def test_fits_go_round_until_none_moves(groups, moves, calls, monkeypatch):
    """One group once; two until a round changes nothing, here the third; twelve rounds at most."""
    seen = []

    def one(some, group, found):
        seen.append(group)
        return {"value": min(len(seen) // len(groups), moves - 1)}

    monkeypatch.setattr(fit, "fit", one)
    fit._fit_all(dict.fromkeys(groups, ()))
    assert len(seen) == calls


@pytest.mark.parametrize(
    ("change", "group", "belongs"),
    [
        ({}, "decode", True),
        ({}, "prefill", False),
        ({}, "expert-decode", False),
        ({"percentile": "99"}, "decode", False),
        ({"stack": "ideal"}, "decode", False),
        ({"use": "comparator"}, "decode", False),
        ({"use": "comparator"}, "comparator", True),
        ({"meaning": "decode-throughput"}, "decode", True),
        ({"meaning": "run-per-token"}, "decode", True),
        ({"model": "qwen3-30b-a3b"}, "decode", False),
        ({"model": "qwen3-30b-a3b"}, "expert-decode", True),
        ({"model": "jamba-v0.1"}, "expert-decode", True),
        ({"meaning": "run-per-token"}, "expert-decode", False),
        ({"meaning": "one-prefill"}, "prefill", True),
        ({"meaning": "forward"}, "encoder", True),
        ({"meaning": "forward", "model": "bert-large-uncased"}, "encoder", True),
        ({"meaning": "forward", "model": "qwen3-30b-a3b"}, "encoder", False),
        ({"meaning": "loaded-step"}, "server", True),
        ({"meaning": "loaded-step", "model": "qwen3-30b-a3b"}, "server", False),
    ],
)
def test_the_group_that_a_row_belongs_to(change, group, belongs):
    assert fit._belongs(replace(reading(ROW), **change), group) is belongs


def test_rows_of_one_question_are_one_vote(monkeypatch):
    """The middle of 11, 15 and 40 ms with the largest of their weights; of kernels that compete the least."""
    rows = pd.DataFrame([ROW | {"value": value} for value in ("15", "11", "40")] + [ROW | {"batch": "4"}])
    found = fit.cases(rows, "decode")
    assert [(case.measured, case.weight) for case in found] == [(0.015, 1.0), (0.015, 1.0)]
    assert [case.reading.batch for case in found] == [3, 4]
    monkeypatch.setattr(fit, "FASTEST", {"decode"})
    assert [case.measured for case in fit.cases(rows, "decode")] == [0.011, 0.015]
    monkeypatch.undo()
    (first,) = list(fit.readable([ROW | {"id": "x", "source": "a page @12ab"}]))
    assert (first.measured, first.weight, first.source, first.id) == (0.015, 1.0, "a page", "x")
    assert (first.model, first.family) == ("llama-3.1-70b", "trn2")
    shape = replace(
        first, reading=replace(first.reading, model="", arguments=(("m", 2.0), ("n", 3.0)), where="trn1n.32xlarge")
    )
    assert (shape.model, shape.family) == ("m=2.0 n=3.0", "trn1")


def test_labels_of_a_case_by_hand():
    """TP 16 of two cores on one replica; three sequences in a batch compiled for five; measured in seconds."""
    (case,) = fit.cases(pd.DataFrame([ROW]), "decode")
    row = replace(case.reading, compiled_batch=5.0, context=777.0, prompt=555.0)
    (found,) = pd.DataFrame(fit.labels([replace(case, reading=row)])).to_dict("records")
    by_hand = {
        "meaning": "decode-step",
        "model": "llama-3.1-70b",
        "where": "trn2.48xlarge",
        "stack": row.stack,
        "tp": 16,
        "batch": 5.0,
        "context": 777.0,
        "prompt": 555.0,
        "measured": 0.015,
        "source": "somebody's table",
    }
    assert found.items() >= by_hand.items()


def test_logarithms_and_fitted_errors_by_hand():
    """Predicted over measured; without cases to learn from as shipped."""
    of = fit.cases(pd.DataFrame([ROW, ROW | {"batch": "4", "value": "9"}]), "decode")
    steps = [
        float(
            tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=16, lnc=2), batch=batch, context=2048).time_s
        )
        for batch in (3, 4)
    ]
    by_hand = [math.log(steps[0] / 0.015), math.log(steps[1] / 0.009)]
    assert fit.log_errors(of) == pytest.approx(by_hand, rel=1e-9)
    assert fit.fitted_errors("decode")([], of) == pytest.approx(np.exp(by_hand) - 1, rel=1e-9)
    learned = fit.fitted_errors("decode")(of[:1], of[:1])
    assert abs(learned[0]) < abs(math.exp(by_hand[0]) - 1) / 2  # its own row fits better than before


def test_what_no_case_moves_stays():
    """A fit on one dense row of Trainium2 leaves parameters of other stacks where they are in force."""
    of = fit.cases(pd.DataFrame([ROW]), "decode")
    found = fit.fit(of, "decode")
    assert set(found) == set(fit.parameters("decode"))
    moved = {p for p, value in found.items() if abs(value / fit._in_force(p) - 1) > 1e-3}
    mine = {p for i, p in enumerate(found) if i in fit._moved_by(of[0], list(found))}
    assert moved
    assert moved <= mine
    assert mine < set(found)


def test_a_line_of_different_weights_is_that_of_numpy():
    x, y, w = [1.0, 2.0, 4.0, 7.0], [3.0, 2.0, 9.0, 5.0], [1.0, 4.0, 9.0, 16.0]
    slope, base = np.polyfit(x, y, 1, w=np.sqrt(w))
    assert search.line(x, y, w) == pytest.approx((base, slope))


def test_constants_stay_within_their_ends():
    """e^3 of where they start, or what is given; a share ends at one; a zero stays."""
    assert search.constants(lambda c: np.log(c / 1e4), [1.0])[0] == pytest.approx(math.exp(3), rel=1e-3)
    assert search.constants(lambda c: np.log(c / 1e-4), [1.0])[0] == pytest.approx(math.exp(-3), rel=1e-3)
    assert search.constants(lambda c: np.log(c / 9.0), [1.0], high=1.0)[0] == pytest.approx(math.e, rel=1e-3)
    assert search.constants(lambda c: np.log(c / 0.1), [1.0], low=-1.0)[0] == pytest.approx(1 / math.e, rel=1e-3)
    assert search.constants(lambda c: np.log((c + 1) / [3.0, 3.0]), [1.0, 0.0]).tolist() == [2.0, 0.0]
    assert search.room(["a_share", "b_overlap", "c_s", "d_share"], [0.5, 0.25, 0.5, 1e-9]) == pytest.approx(
        [math.log(2), math.log(4), 3.0, 3.0]
    )


def test_far_errors_count_by_their_size():
    """Soft L1 at a tenth, four rows at 1 and one at e: by SciPy's minimum of sum of sqrt(1 + (e / 0.1)^2)."""
    from scipy.optimize import minimize_scalar

    y = np.array([1.0, 1.0, 1.1, 1.2, math.e])
    best = minimize_scalar(lambda x: np.sqrt(1 + ((x - np.log(y)) / 0.1) ** 2).sum(), bounds=(-1, 2), method="bounded")
    assert search.constants(lambda c: np.log(c / y), [1.0])[0] == pytest.approx(math.exp(best.x), rel=5e-4)


def test_a_form_is_chosen_by_errors_of_at_most_a_half():
    """Form "wild" is exact but for one row that it misses by 9; form "flat" is 0.2 off each: 0.1 is less than 0.2."""
    names, off = [*"abcde"], {"wild": [0, 0, 0, 9.0, 0], "flat": [0.2] * 5}
    _, chosen = search.chosen_without(names, ["flat", "wild"], lambda form, train, judge: np.array(off[form])[judge])
    assert chosen == ["wild"] * 5
    off = {"wild": [0, 0.9, 0.9, 0.9, 0], "flat": [0.4] * 5}  # two or three of four are a half: 0.25 or 0.375
    _, chosen = search.chosen_without(names, ["flat", "wild"], lambda form, train, judge: np.array(off[form])[judge])
    assert chosen == ["wild"] * 5
    off["flat"] = [0.3] * 5
    _, chosen = search.chosen_without(names, ["flat", "wild"], lambda form, train, judge: np.array(off[form])[judge])
    assert chosen == ["flat", "wild", "wild", "wild", "flat"]
