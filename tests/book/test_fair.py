"""Captions of charts of comparisons say what is not measured."""

import numpy as np

import trnmodel as tm
from trnbook import charts
from trnbook.charts.tables import on_ground
from trnmodel.result import tidy
from trnmodel.search.sweep import sweep

LLAMA, TP8 = "llama-3.1-8b", tm.Mapping(tp=8)
TRN2, TRN3, H200 = "trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h200"
ASK = {"model": LLAMA, "mapping": TP8, "batch": 4, "context": 1024}


def decode(system, **more):
    return tm.decode_step(system=system, **ASK, **more)


def test_captions_end_with_what_is_not_measured():
    table = sweep(decode, {"system": [TRN2, TRN3]}, progress=False)
    table = table.assign(basis=table.basis.astype(str), system=table.system.astype(str))
    table.loc[table.system == TRN2, "basis"] = "measured"
    words = f"As fast (extrapolated: vllm-neuron-2026 on {tm.system(TRN3).name})"
    assert charts.table(table, caption="As fast", download="d").caption == words
    assert charts.bars(table, x="system", y="time_s", caption="As fast").to_dict()["description"] == words
    assert charts.table(table[table.system == TRN2], caption="As fast", download="d").caption == "As fast"
    ideal = sweep(decode, {"system": [TRN2, H200], "efficiencies": "ideal"}, progress=False)
    assert on_ground(ideal, "As fast") == f"As fast (ideal: ideal on {TRN2}, {H200})"
    many = tidy([{"system": f"s{i}", "stack": "x", "basis": "extrapolated"} for i in range(9)])
    assert on_ground(many, "As fast") == "As fast (extrapolated: x on 9 systems)"
    assert on_ground(many[["basis"]], "As fast") == "As fast (extrapolated)"
    assert on_ground(many.assign(basis="of a page"), "As fast") == "As fast"
    assert on_ground(many.assign(basis=np.nan), "As fast") == on_ground(many.iloc[:0], "As fast") == "As fast"
    both = tidy([{"software": "ideal", "basis": "ideal"}, {"software": "x", "basis": "measured"}])
    assert on_ground(both, "As fast") == "As fast"
