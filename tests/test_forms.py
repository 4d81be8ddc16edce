"""Forms of the laws of decode: the choice among them does not see the rows that judge it."""

import numpy as np

from trnmodel.evidence import forms, search
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
    told = told._replace(selects=told.selects > 0)
    layers, routed = next(iter(forms.FORMS["expert-decode"].values()))(told)
    for case, plain, wait, rest in zip(of, layers, routed, told.rest_s, strict=True):
        e = stack_of(case.reading)
        step = _decode(case.reading, None)
        assert np.isclose(rest + plain * e.layer_s + wait * e.expert_core_s, float(step.time_s), rtol=1e-9)
    assert len(of) > 10
