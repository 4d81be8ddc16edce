"""What software costs: one step on three kinds of it, factors that multiply, ties, and changes that were published."""

import numpy as np
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import software as tables
from trnbook.shared import case
from trnmodel.arguments import UnanswerableError

SYSTEM, LLAMA, DEEPSEEK = "trn3-nl32x2-pcie160", "llama-3.3-70b", "deepseek-v3"
KINDS = ("ideal", "hand-tuned", "public")


@pytest.fixture(scope="module")
def gap():
    return tm.software_gap(LLAMA, case.request(LLAMA), SYSTEM)


@pytest.fixture(scope="module")
def steps():
    return {name: steps_of(case.choice(name, SYSTEM)) for name in (LLAMA, DEEPSEEK)}


@pytest.fixture(scope="module")
def turned():
    plans = {kind: tm.plan(LLAMA, case.request(LLAMA), SYSTEM, efficiencies=kind).best for kind in KINDS[:2]}
    plans = {"public": case.choice(LLAMA, SYSTEM)} | plans
    rivals = tm.compare(LLAMA, case.request(LLAMA), ["hgx-h200", "gb200-nvl72"])
    return tables.dial({LLAMA: plans}, {LLAMA: rivals}, SYSTEM), plans, rivals


@pytest.fixture(scope="module")
def pairs():
    return tables.pairs(tm.validation())


def steps_of(plan):
    where, ask = (plan.question.model, plan.system, plan.degrees), tables.question_of(plan)
    stacks = {"ideal": "ideal", "hand-tuned": "hand-tuned", "public": plan.stack}
    return {kind: tm.decode_step(*where, efficiencies=e, **ask) for kind, e in stacks.items()}


def test_the_step_that_is_asked_again_is_that_of_the_plan(steps):
    for name, kinds in steps.items():
        assert float(kinds["public"].time_s) == float(case.choice(name, SYSTEM).step.time_s)


def test_the_parts_of_a_step_add_up_on_every_kind_of_software(steps):
    for kinds in steps.values():
        assert kinds["ideal"].time_s < kinds["hand-tuned"].time_s < kinds["public"].time_s
        for kind, step in kinds.items():
            reads, seen, fixed = tables.parts(step).values()
            assert reads + seen + fixed == pytest.approx(float(step.time_s))
            assert min(reads, seen, fixed) >= 0
            assert (kind == "ideal") == (seen == fixed == 0)
    public = tables.parts(steps[DEEPSEEK]["public"])
    assert public["exchange"] == pytest.approx(float(steps[DEEPSEEK]["public"].network_s))  # nothing hides it


def test_an_exchange_that_is_longer_than_what_it_hides_is_seen():
    """A step of 8 cores with little to read waits for its exchanges even where they overlap."""
    slow = tm.efficiencies("trainium2", "ideal").moved({"hop_s": 1e-3})
    step = tm.decode_step("llama-3.2-1b", "trn2.48xlarge", tm.Mapping(tp=8), batch=1, context=128, efficiencies=slow)
    reads, seen, fixed = tables.parts(step).values()
    assert step.network_s > step.memory_s
    assert (reads, fixed) == (pytest.approx(float(step.memory_s), rel=0.01), 0)
    assert reads + seen == pytest.approx(float(step.time_s))


def test_the_drawing_has_a_row_for_each_kind_in_one_scale(steps):
    drawing = tables.in_time(steps)
    assert list(drawing.frames) == [LLAMA, DEEPSEEK]
    html = drawing._repr_html_()
    assert all(html.count(f">{kind}<") == 2 for kind in KINDS)
    assert ">41.4 ms<" in html  # DeepSeek-V3 on public software, as the case has it


def test_factors_multiply_to_the_whole_gap(gap):
    run = tm.training_gap("llama-3.1-8b", "trn2.48xlarge", tokens=1e12, chips=64)
    table = tables.factors({(LLAMA, SYSTEM, "serving"): gap, ("llama-3.1-8b", "trn2.48xlarge", "training"): run})
    table = table.set_index("task").drop(columns=["model", "system"])
    for task, one in (("serving", gap), ("training", run)):
        assert table["all of them"][task] == round(one.lost(), 2)
        assert table.loc[task].drop("all of them").prod() == pytest.approx(one.lost(), rel=0.03)  # of two digits each
    assert np.isnan(table.overlap["serving"])
    assert "precision" not in table  # one format on every kind of software


def test_bars_of_mechanisms_begin_at_one_and_multiply_to_the_last(gap):
    chart = tables.lost_by_mechanism(gap, "").to_dict()
    (rows,) = chart["datasets"].values()
    *each, last = [row["times_less_throughput"] for row in rows]
    assert {row["before"] for row in rows} == {1.0}
    assert each == sorted(each, reverse=True)
    assert np.prod(each) == pytest.approx(last, rel=0.02)  # what costs nothing has no bar


def test_shares_are_ratios_of_plans_to_the_ideal_one(turned):
    table, plans, rivals = turned
    at = table.set_index("which")
    whole = plans["ideal"].tokens_per_s_per_chip
    public = at.loc["Trainium3, public"]
    low, high = (float(end) for end in plans["public"].ends("tokens_per_s_per_chip"))
    ends = [public.share_of_ideal_low, public.share_of_ideal, public.share_of_ideal_high]
    assert ends == pytest.approx([low / whole, plans["public"].tokens_per_s_per_chip / whole, high / whole])
    for c in rivals.at():
        row = at.loc[f"ties with {c.system.name}"]
        assert row.share_of_ideal == pytest.approx(c.tokens_per_s_per_chip / whole)
        assert row.share_of_ideal_low < row.share_of_ideal < row.share_of_ideal_high
    assert tables.beaten(table, LLAMA) == f"With {LLAMA}, public software overlaps 2 of 2 rivals"


def test_the_range_of_public_software_is_shaded(turned):
    table, *_ = turned
    chart = charts.ranges(table, x="share_of_ideal", y="which", caption="A claim")
    marks = [layer["mark"]["type"] for layer in tables.with_bands(chart, table).to_dict()["layer"]]
    assert (marks[0], marks.count("rect")) == ("rect", 1)


def test_a_line_by_batch_has_the_promise_beside_it(steps):
    rows = tables.by_batch({"a": steps[LLAMA]["public"]}, 0.05)
    assert rows.groupby("line").size().to_dict() == {"a": 1, "promise": 1}
    assert rows.time_s[rows.line == "promise"].tolist() == [0.05]


def test_what_breaks_its_promise_has_no_share(turned):
    _, plans, rivals = turned
    assert tables.dial({LLAMA: plans | {"ideal": None}}, {LLAMA: rivals}, SYSTEM).empty
    kinds = set(tables.dial({LLAMA: plans | {"hand-tuned": None}}, {LLAMA: rivals}, SYSTEM).which)
    assert "Trainium3, hand-tuned" not in kinds


def test_a_card_has_the_band_of_the_public_plan(gap):
    other = tm.software_gap(DEEPSEEK, case.request(DEEPSEEK), SYSTEM)
    plans = {name: case.choice(name, SYSTEM) for name in (DEEPSEEK, LLAMA)}
    said = tables.answer({DEEPSEEK: other, LLAMA: gap}, plans)
    low, high = (float(end) for end in plans[LLAMA].ends("tokens_per_s_per_chip"))
    ideal = gap.stages[0].value
    assert said.startswith(f"> **{gap.lost():.1f} times** ({ideal / high:.1f} to {ideal / low:.0f}; extrapolated)")
    assert "17 times with `deepseek-v3`" in said
    assert "no promise kept on public software" in tables.answer(
        {LLAMA: gap, DEEPSEEK: other}, plans | {DEEPSEEK: None}
    )


def test_a_model_that_does_not_fit_is_refused():
    with pytest.raises(UnanswerableError, match=r"deepseek-v3 does not fit on system = 'trn2\.3xlarge'"):
        tables.must_fit({DEEPSEEK: tm.plan(DEEPSEEK, tm.Request(512, 64), "trn2.3xlarge").best}, "trn2.3xlarge")


def test_pairs_have_the_speedup_of_their_figures(pairs):
    """A graph for 40 sequences in place of 120: 46.32 ms became 29.86."""
    assert len(pairs) > 80
    graph = pairs[pairs.what.str.contains("compiled for 40 sequences in place of 120")].iloc[0]
    assert graph.measured_speedup == pytest.approx(46.32 / 29.86)
    assert graph.predicted_speedup == pytest.approx(1.5, rel=0.05)
    assert (pairs.prediction[pairs.cause == "release"] == tables.UNMOVED).all()
    still = pairs[pairs.prediction == tables.UNMOVED]
    assert still.predicted_speedup.to_numpy() == pytest.approx(1.0)


def test_what_the_chapter_says_of_published_changes_holds(pairs):
    """Exchanges and padding are foreseen within a factor of two; launches and padding made most runs faster."""
    some = pairs[pairs.cause.isin(["exchange", "padding"])]
    assert (some.predicted_speedup / some.measured_speedup).between(0.5, 2).all()
    kernels = pairs[(pairs.cause == "kernel") & pairs.chip.ne("")]
    assert (kernels.prediction == tables.UNMOVED).mean() > 0.9
    faster = tables.closed().set_index("cause").share_faster
    assert min(faster["padding"], faster["launch"]) > max(faster["kernel"], faster["release"])
    assert (pairs.measured_speedup < 1).any()


def test_wide_experts_hold_as_the_page_says():
    table = tables.wide_experts()
    inside = (table.measured_s >= table.low_s) & (table.measured_s <= table.high_s)
    assert (inside == table.inside).all()
    assert tables.held(table) == f"{inside.sum()} of {len(table)}"
    assert len(tables.every_pair()) > len(tables.closed())


def test_what_no_longer_streams_has_no_ideal_plan():
    """70.6 GB of MXFP8 weights over 64 chips of 4.9 TB/s take 0.23 ms: no user gets 1e5 tokens/s."""
    gap = tm.software_gap(LLAMA, tm.Request(4096, 512, tokens_per_s_per_user=1e5), SYSTEM)
    assert gap.stages[0].reason
    assert np.isnan(tables.lost(gap))
    assert "all of them" not in tables.factors({(LLAMA, SYSTEM, "serving"): gap})
