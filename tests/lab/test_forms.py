"""Forms of the laws of decode: the choice among them does not see the rows that judge it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from trnlab import forms
from trnmodel.evidence import search
from trnmodel.evidence.fit import cases
from trnmodel.evidence.questions import _decode
from trnmodel.evidence.readings import stack_of
from trnmodel.evidence.rows import published


def test_a_choice_among_forms_does_not_see_what_it_is_judged_by():
    # y = 2 x but for name "c", whose rows follow x squared: left out, it is predicted by the line, and does not choose
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    names, y = list("aabbcc"), 2 * x
    y[4:] = x[4:] ** 2
    shapes = {"line": x, "square": x**2}
    seen = []

    def errors(form, train, judge):
        seen.append((set(train.tolist()), set(judge.tolist())))
        at = shapes[form]
        return np.log(at[judge] * np.exp(np.mean(np.log(y[train] / at[train]))) / y[judge])

    found, chosen = search.chosen_without(names, list(shapes), errors)
    assert chosen[4:] == ["line", "line"]
    np.testing.assert_allclose(found[4:], np.log(2 / x[4:]))
    assert all(not train & judge for train, judge in seen)


def test_the_first_form_of_experts_is_the_law_in_force():
    """Its columns times the constants of the stack are the lines of the step's breakdown."""
    rows = published()
    rows = rows[rows.source.str.contains("contrib/models/(?:DeepSeek-V3|Trinity)/")]
    of = cases(rows, "expert-decode")
    rows = [forms._row(case, "expert-decode") for case in of]
    told = forms.Told(*np.array(rows, dtype=float).T)
    layers, routed = next(iter(forms.FORMS["expert-decode"].values()))(told)
    for case, plain, wait, rest in zip(of, layers, routed, told.rest_s, strict=True):
        e = stack_of(case.reading)
        step = _decode(case.reading, None)
        assert np.isclose(rest + plain * e.layer_s + wait * e.expert_core_s, float(step.time_s), rtol=1e-9)
    assert len(of) > 10


TOLD = {  # a point where kernels gather experts and one where they do not, in powers of small numbers
    "step_s": (1, 1), "rest_s": (0, 0), "layers": (7, 11), "expert_layers": (3, 5), "ranks": (16, 64), "cores": (4, 16),
    "tokens": (5**6, 3), "pairs": (3**12, 3), "top_k": (2, 2**12), "selects": (True, False), "hidden_host": (1, 0),
}  # fmt: skip
COLUMNS = {
    # log2 of 2 x 4 and 2 x 16 cores is 3 and 5, of 2 x 16 and 2 x 64 ranks 5 and 7; roots of 3^12, 5^6 and 2^12
    "cores, experts^1/4": [[7, 11], [3 * 3 * 27, 5 * 5 * 8]],
    "cores, experts^1/3": [[7, 11], [3 * 3 * 81, 5 * 5 * 16]],
    "cores, experts^1/2": [[7, 11], [3 * 3 * 729, 5 * 5 * 64]],
    "cores, tokens^1/3": [[7, 11], [3 * 3 * 25, 5 * 5]],
    "cores, tokens^1/2": [[7, 11], [3 * 3 * 125, 5 * 5]],
    "ranks, tokens^1/3": [[7, 11], [3 * 5 * 25, 5 * 7]],
    "ranks, tokens^1/2": [[7, 11], [3 * 5 * 125, 5 * 7]],
    "root of cores, tokens^1/3": [[7, 11], [3 * 2 * 25, 5 * 4]],
    "no group, tokens^1/3": [[7, 11], [3 * 25, 5]],
    "layers, by who waits for the host": [[7, 0], [0, 11]],
    "layers": [[7, 11]],
    "layers and a step": [[7, 11], [30, 30]],
    "layers and a step that waits": [[7, 11], [0, 30]],
    "layers, doublings of cores": [[7 * 3, 11 * 5]],
    "doublings, by who waits": [[7 * 3, 0], [0, 11 * 5]],
    "doublings and a step that waits": [[7 * 3, 11 * 5], [0, 30]],
}


def test_columns_of_each_form_by_hand():
    told = forms.Told(**{name: np.array(values, dtype=float) for name, values in TOLD.items()})
    found = {name: form(told) for of in forms.FORMS.values() for name, form in of.items()}
    assert list(found) == list(COLUMNS)
    for name, columns in COLUMNS.items():
        np.testing.assert_allclose(found[name], columns, rtol=1e-12, err_msg=name)


DENSE = {
    "kind": "inference-LLM",
    "phase": "decode",
    "source": "a table",
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
    "pp": "1",
    "dp": "1",
}
RATE = {"metric": "throughput", "unit": "tokens/s", "value": "200"}
INF2 = {"instance": "inf2.48xlarge", "lnc": ""}
EXPERTS = {"workload": "Qwen3-30B-A3B", "tp": "8"}


@pytest.mark.parametrize(
    ("group", "change", "of_reading", "told"),
    [
        # 3 sequences at 200 tokens/s are 15 ms a step; ranks of two cores; of a dense model one token counts
        ("decode", {}, {}, (0.015, 80, 0, 16, 32, 1, 0, 0, 1, 0)),
        ("decode", RATE, {}, (0.015, 80, 0, 16, 32, 1, 0, 0, 1, 0)),
        # top 8 of 128: 3 tokens choose 24; 16 tokens can choose all, and 31 no more than all
        ("expert-decode", EXPERTS, {}, (0.015, 48, 48, 8, 16, 3, 24, 8, 1, 0)),
        ("expert-decode", EXPERTS | {"batch": "31"}, {}, (0.015, 48, 48, 8, 16, 16, 128, 8, 1, 0)),
        # whole experts on two ranks: none are gathered by token
        ("expert-decode", EXPERTS, {"moe_ep": 2}, (0.015, 48, 48, 8, 16, 3, 24, 8, 0, 0)),
        ("expert-decode", EXPERTS, {"ep": 2}, (0.015, 48, 48, 16, 32, 3, 24, 8, 0, 0)),
        # a stack whose steps do not wait for the host, and one without a time for each dense layer
        ("decode", {}, {"stack": "vllm-neuron-2026-async"}, (0.015, 80, 0, 16, 32, 1, 0, 0, 1, 1)),
        ("expert-decode", EXPERTS | INF2, {}, (0.015, 0, 48, 8, 8, 3, 24, 8, 1, 0)),
    ],
)
def test_what_a_case_tells_of_the_forms_by_hand(group, change, of_reading, told):
    (case,) = cases(pd.DataFrame([DENSE | change]), group)
    case = replace(case, reading=replace(case.reading, **of_reading))
    measured_s, rest_s, *shapes = forms._row(case, group)
    np.testing.assert_allclose([measured_s, *shapes], told, rtol=1e-9)
    step, lines = _decode(case.reading, None, breakdown=True), forms.LINES[group]
    assert rest_s == pytest.approx(float(step.time_s) - sum(float(step.operators[name].overhead_s) for name in lines))
    assert rest_s < float(step.time_s)


def test_a_model_is_predicted_by_the_law_of_the_others(monkeypatch):
    """Steps of 5 ms and 40 us a layer but for model "c", 1.25 times as long; a rate is then predicted too high."""
    layers = np.array([10.0, 20.0, 40.0, 80.0, 30.0, 60.0, 50.0])
    names, ends = list("aabbccd"), ["step", "step", "throughput", "step", "step", "throughput", "step"]
    step_s = (5e-3 + 40e-6 * layers) * np.where(np.array(names) == "c", 1.25, 1.0)
    rows = [(s, 5e-3, n, 0, 8, 8, 1, 0, 0, True, 0) for s, n in zip(step_s, layers, strict=True)]
    of = [
        SimpleNamespace(model=m, reading=SimpleNamespace(meaning=f"decode-{end}"))
        for m, end in zip(names, ends, strict=True)
    ]
    of.insert(3, SimpleNamespace(model="e", reading=SimpleNamespace(meaning="decode-step")))
    rows.insert(3, None)  # a case that the law has no say in
    monkeypatch.setattr(forms, "_row", lambda case, group: rows[[one is case for one in of].index(True)])
    found = forms.chosen_inside(of, "decode")
    assert np.isnan(found[3])
    assert found[5:7] == pytest.approx([1 / 1.25 - 1, 1.25 - 1], rel=1e-3)


@pytest.mark.parametrize(("far", "over"), [(7, -2), (-7, 2)])
def test_a_constant_stays_within_five_logarithms_of_where_it_starts(far, over, monkeypatch):
    """Layers of 3e-5 x e^7 s are given e^5 of them at most, e^-2 of what was measured; and of e^-7 s e^-5, e^2."""
    of = [SimpleNamespace(model=model, reading=SimpleNamespace(meaning="decode-step")) for model in "abc"]
    rows = [(3e-5 * np.exp(far) * n, 0.0, n, 0, 8, 8, 1, 0, 0, 1, 0) for n in (10, 20, 30)]
    monkeypatch.setattr(forms, "FORMS", {"decode": {"layers": lambda t: (t.layers,)}})
    monkeypatch.setattr(forms, "_row", lambda case, group: rows["abc".index(case.model)])
    np.testing.assert_allclose(forms.chosen_inside(of, "decode"), np.exp(over) - 1, rtol=1e-3)
