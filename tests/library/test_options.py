"""Documented options of software: printed tables by hand, who may borrow what, drafts, and rows that cannot be."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load, options, stacks
from trnmodel.catalog.stacks import IDEAL
from trnmodel.catalog.tables import DataError
from trnmodel.formulas import latency
from trnmodel.result import Basis
from trnmodel.serving import drafts
from trnmodel.serving.drafts import drafting_s, head_of
from trnmodel.steps.answers import COST_CONSTANTS, dominant_constant

# Printed by the sources: drafted tokens, tokens per step, and the time of a token without and with drafts [ms].
PRINTED = {
    "neuron-eagle3-llama-3.1-8b": (3, 1 + 4395 / 1976, 10.52, 6.41),
    "neuron-eagle3-gpt-oss-120b": (1, 1.68, 7.00, 5.82),
    "neuron-fused-draft-llama-3.3-70b": (7, 19.6918 / 5.38637, 19.6918, 5.38637),
    "trtllm-mtp1": (1, 1.92, 1e3 / 111, 1e3 / 198),
    "trtllm-mtp2": (2, 2.58, 1e3 / 111, 1e3 / 250),
    "trtllm-mtp3": (3, 2.82, 1e3 / 111, 1e3 / 253),
    "sglang-eagle3-llama-3.3-70b": (63, 5.88, 1e3 / 88.61, 1e3 / 234.54),
}
RUNS = {  # model, system, TP, sequences, context, precision of the printed runs
    "neuron-eagle3-llama-3.1-8b": ("llama-3.1-8b", "trn2.48xlarge", 8, 2, 576, "bf16"),
    "neuron-eagle3-gpt-oss-120b": ("gpt-oss-120b", "trn2.48xlarge", 16, 1, 576, "bf16"),
    "neuron-fused-draft-llama-3.3-70b": ("llama-3.3-70b", "trn2.48xlarge", 64, 1, 10751, "bf16"),
    "trtllm-mtp1": ("deepseek-r1", "hgx-b200", 8, 1, 2048, "fp8"),
    "trtllm-mtp2": ("deepseek-r1", "hgx-b200", 8, 1, 2048, "fp8"),
    "trtllm-mtp3": ("deepseek-r1", "hgx-b200", 8, 1, 2048, "fp8"),
    "sglang-eagle3-llama-3.3-70b": ("llama-3.3-70b", "hgx-h100", 8, 1, 512, "bf16"),
}
EVERY = {one.id: one for one in options.documented()}


def asked(name, efficiencies, new_tokens=1):
    model, system, tp, batch, context, precision = RUNS[name]
    ask = {"batch": batch, "context": context, "precision": precision, "efficiencies": efficiencies}
    return tm.decode_step(model, system, tm.Mapping(tp=tp), **ask, new_tokens=new_tokens)


@pytest.mark.parametrize("name", PRINTED)
def test_an_option_has_what_its_source_prints(name):
    tokens, made, plain_ms, drafted_ms = PRINTED[name]
    option = EVERY[name]
    assert option.draft_tokens == tokens
    assert option.tokens_per_step == pytest.approx(made, rel=2e-3)
    if option.drafting != "included":
        extra_s = (option.tokens_per_step * drafted_ms - plain_ms) / 1e3
        assert option.step_extra_s == pytest.approx(extra_s, rel=1e-3)


@pytest.mark.parametrize("name", PRINTED)
def test_the_gain_of_drafts_is_that_of_the_printed_runs(name):
    """What the model says that drafts gain lies within a sixth of the printed gain, though nothing was fitted to it."""
    _, _, plain_ms, drafted_ms = PRINTED[name]
    option = EVERY[name]
    plain, verify = asked(name, option.efficiencies), asked(name, option.efficiencies, option.draft_tokens + 1)
    gain = plain.time_s * option.tokens_per_step / (verify.time_s + drafting_s(option, verify))
    assert gain / (plain_ms / drafted_ms) == pytest.approx(1, abs=1 / 6)


@pytest.mark.parametrize(("batch", "printed"), [(1, 1.8), (32, 1.5)])
def test_what_sglang_prints_of_mtp_on_h200_is_what_the_model_says(batch, printed):
    """Its page has 1.8 times at one sequence and 1.5 times at 32, TP 8 of H200, with three drafted tokens."""
    option = EVERY["sglang-mtp3"]
    ask = {"batch": batch, "context": 2048, "precision": "fp8", "efficiencies": option.efficiencies}
    plain, verify = (tm.decode_step("deepseek-v3", "hgx-h200", tm.Mapping(tp=8), **ask, new_tokens=n) for n in (1, 4))
    gain = plain.time_s * option.tokens_per_step / (verify.time_s + drafting_s(option, verify))
    assert gain / printed == pytest.approx(1, abs=1 / 6)


def test_the_most_sequences_are_those_that_a_document_names():
    most = {name: option.most_sequences for name, option in EVERY.items()}
    assert most.pop("neuron-async") == np.inf
    assert max(most.values()) == most["trtllm-mtp1"] == 256
    assert most["trtllm-mtp2"] == most["neuron-eagle3-gpt-oss-120b"] == 1
    assert all(option.most_sequences >= option.measured_batch for option in EVERY.values() if option.measured_batch > 0)


def test_positions_that_a_page_prints_add_up_to_its_tokens_per_step():
    by_position = {name: EVERY[f"neuron-eagle3-{name}"].tokens_per_step for name in ("llama-3.1-8b", "gpt-oss-120b")}
    assert by_position["llama-3.1-8b"] == pytest.approx(1 + 0.8649 + 0.7247 + 0.6346, abs=5e-3)
    assert by_position["gpt-oss-120b"] == pytest.approx(1 + 1566 / 2270, abs=0.011)
    rounds_per_s = 1 / 9.4e-3
    assert EVERY["neuron-mtp-qwen3.6-35b-a3b"].tokens_per_step * rounds_per_s == pytest.approx(186, rel=0.01)


def test_a_range_of_prompts_is_a_range_of_tokens_per_step():
    option = EVERY["vllm-eagle3-llama-4-maverick"]
    assert option.range("tokens_per_step") == (2.37, 3.08)
    assert option.tokens_per_step == pytest.approx((2.37 + 3.08) / 2)


@pytest.mark.parametrize("option", EVERY.values(), ids=EVERY)
def test_each_figure_has_a_source_and_a_locator(option):
    needed = {"documented_on", "covers", "base_stack", "engine"}
    if option.speculates:
        needed |= {"drafting", "draft_tokens", "tokens_per_step", "measured_on"}
    assert needed <= option.sources.keys()
    for fact in (load.facts_rows()[one] for ids in option.sources.values() for one in ids):
        assert fact.locator
        assert fact.source in load.sources()
    assert option.covers <= {options.ANY, *tm.model_ids()}
    assert option.efficiencies.id == option.base_stack
    assert not option.draft_model or option.draft_model in tm.model_ids()


def test_the_stack_as_it_is_comes_first_then_what_is_documented_then_what_is_borrowed():
    on_trainium3 = options.options("trainium3", "llama-3.3-70b")
    assert [one.id for one in on_trainium3] == [
        *("vllm-neuron-2026", "neuron-async", "neuron-fused-draft-llama-3.3-70b"),
    ]
    assert [one.borrowed for one in on_trainium3] == ["", "", "documented on trainium2"]
    assert [one.borrowed for one in options.options("trainium2", "llama-3.3-70b")] == ["", "", ""]
    moved = {one.id: one.borrowed for one in options.options("h200", "deepseek-r1")}
    assert moved["trtllm-mtp3"] == "its tokens per step were measured on b200"


@pytest.mark.parametrize(
    ("chip", "model"),
    [
        ("trainium1", "llama-3.1-8b"),  # another engine of the same vendor
        ("mi300x", "llama-3.3-70b"),  # another vendor
        ("tpu-v7", "deepseek-v3"),
        ("h100", "qwen3-32b"),  # nobody printed what its drafts gain
        ("trainium2", "qwen3.6-35b-a3b"),  # by the community, on another generation
    ],
)
def test_nothing_is_borrowed_across_engines_vendors_or_models(chip, model):
    drafting = [one.id for one in options.options(chip, model) if one.speculates]
    assert drafting == []


def test_what_is_borrowed_or_drafts_is_extrapolated():
    measured = Basis("measured")
    first, steps, fused = options.options("trainium3", "llama-3.3-70b")
    assert first.basis(measured) is measured
    assert steps.basis(measured) is measured  # the step says itself where it is on another chip
    assert fused.basis(measured).word == "extrapolated"
    assert "documented on trainium2" in fused.basis(measured).reason
    here = options.options("trainium2", "llama-3.3-70b")[-1]
    assert here.basis(measured).word == "extrapolated"
    assert here.basis(measured).reason.endswith("neuron-fused-draft-llama-3.3-70b was measured at 1 sequence")


@pytest.mark.parametrize("word", ["ideal", "hand-tuned"])
def test_drafts_of_public_software_run_on_the_other_kinds_too(word):
    """A model accepts as many drafted tokens there; what the public host added to a step is left out with it."""
    e = stacks.find(tm.chip("trainium2"), word, "efficiencies")
    first, eagle = options.options("trainium2", "llama-3.1-8b", word)
    (public,) = [one for one in options.options("trainium2", "llama-3.1-8b") if one.speculates]
    assert (first.efficiencies, first.speculates, eagle.efficiencies) == (e, False, e)
    assert (eagle.id, eagle.tokens_per_step, eagle.step_extra_s) == (public.id, public.tokens_per_step, 0.0)
    assert eagle.borrowed == "its drafts were measured on public software"
    assert [one.id for one in options.options("trainium2", "llama-3.2-1b", word)] == [e.id]


@pytest.mark.parametrize("word", ["vllm-neuron-2026-async", IDEAL, replace(IDEAL, id="mine")])
def test_a_named_stack_is_the_only_option(word):
    (one,) = options.options("trainium2", "llama-3.1-8b", word)
    assert one.efficiencies == stacks.find(tm.chip("trainium2"), word, "efficiencies")
    assert not one.speculates
    assert one.tokens_per_step == 1


def test_options_are_named_one_by_one_or_several():
    eagle, steps = "neuron-eagle3-llama-3.1-8b", "Neuron-Async"
    assert [one.id for one in options.options("trainium2", "llama-3.1-8b", eagle)] == [eagle]
    chosen = options.options("trainium2", "llama-3.1-8b", [steps, eagle, steps, IDEAL])
    assert [one.id for one in chosen] == ["neuron-async", eagle, "ideal"]
    assert options.options("trainium2", "llama-3.1-8b", "public") == options.options("trainium2", "llama-3.1-8b")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("neuron-asinc", "efficiencies='neuron-asinc' is unknown; nearest: neuron-async"),
        ("trtllm-mtp1", "it is documented for deepseek-r1 on b200, h200; allowed for llama-3.1-8b on trainium2 are"),
        ("", "efficiencies='' is unknown"),
        ("=1+1\n\0<b>", r"efficiencies='=1\+1"),
        ("x" * 10_000, "efficiencies='xxx"),
        (
            3,
            'efficiencies=3: allowed is "public", "no-speculation", "hand-tuned", "ideal", the id of a stack or ',
        ),
        ([], "efficiencies=\\[\\]: allowed is"),
        (["neuron-async", None], "efficiencies=None: allowed is"),
        (True, "efficiencies=True: allowed is"),
        (float("nan"), "efficiencies=nan: allowed is"),
    ],
)
def test_what_is_no_option_is_refused_in_one_line(wrong, message):
    with pytest.raises(ValueError, match=message) as refused:
        options.options("trainium2", "llama-3.1-8b", wrong)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_chip_without_a_public_stack_says_so():
    bare = replace(tm.chip("trainium4-roadmap"), default_stack="")
    with pytest.raises(ValueError, match="trainium4-roadmap has no public stack"):
        options.options(bare, "llama-3.1-8b")


@pytest.mark.parametrize("made", [1.0, 1.2, 2.4, 3.99, 4.0])
def test_acceptance_is_the_inverse_of_tokens_per_step(made):
    share = latency.acceptance(3, made)
    assert float(latency.tokens_per_step(3, share)) == pytest.approx(made, rel=1e-12)


def test_acceptance_takes_arrays():
    tokens, made = np.array([1, 3, 7]), np.array([[1.0], [1.5]])
    share = latency.acceptance(tokens, made)
    assert share.shape == (2, 3)
    assert latency.tokens_per_step(tokens, share) == pytest.approx(np.broadcast_to(made, (2, 3)))


@pytest.mark.parametrize("option", [one for one in EVERY.values() if one.speculates], ids=lambda one: one.id)
def test_a_measured_yield_is_one_of_its_acceptance(option):
    share = drafts.acceptance(option)
    assert 0 < share < 1
    assert float(latency.tokens_per_step(option.draft_tokens, share)) == pytest.approx(option.tokens_per_step)


def test_drafts_of_nothing_and_drafts_that_are_included_cost_nothing():
    step = asked("neuron-fused-draft-llama-3.3-70b", "public", 8)
    assert drafting_s(EVERY["neuron-async"], step) == 0
    assert drafting_s(EVERY["neuron-fused-draft-llama-3.3-70b"], step) == 0
    assert drafting_s(options.plain(IDEAL), step) == 0


def test_a_head_is_one_layer_and_the_tables_of_the_model():
    llama, r1 = tm.model("llama-3.3-70b"), tm.model("deepseek-r1")
    head = head_of(llama, "head")
    layer, tables = llama.layers[-1], sum(part.params for part in llama.outer)
    assert head.total_params - tables == layer.params / layer.count
    assert head_of(r1, "mtp").layers[0].parts == r1.prediction[-1].parts
    assert head_of(r1, "mtp").max_context == r1.max_context


def test_drafts_are_priced_for_any_mapping_and_batch_at_once():
    option = EVERY["trtllm-mtp2"]
    mapping, batch = tm.Mapping(tp=[2, 4, 8], ep=[4, 2, 1]), np.array([[8.0], [64.0]])
    ask = {"context": 4096, "precision": "fp8", "efficiencies": option.efficiencies, "new_tokens": 3}
    grid = drafting_s(option, tm.decode_step("deepseek-r1", "hgx-b200", mapping, batch=batch, **ask))
    assert grid.shape == (2, 3)
    for row, many in enumerate(batch.ravel()):
        for place, (tp, ep) in enumerate([(2, 4), (4, 2), (8, 1)]):
            one = tm.decode_step("deepseek-r1", "hgx-b200", tm.Mapping(tp=tp, ep=ep), batch=many, **ask)
            assert drafting_s(option, one) == pytest.approx(grid[row, place], rel=1e-12)


def test_a_pipeline_drafts_on_its_last_stage_and_an_impossible_point_has_no_time():
    option = EVERY["neuron-eagle3-llama-3.1-8b"]
    ask = {"batch": 8, "context": 2048, "efficiencies": option.efficiencies, "new_tokens": 4}
    staged = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8, pp=2), **ask)
    assert drafting_s(option, staged) > 0
    heads = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=[8, 128]), **ask)
    assert np.isnan(drafting_s(option, heads)).tolist() == [False, True]


def test_a_smaller_model_drafts_on_the_ranks_that_its_heads_allow():
    smaller = {"drafting": "model", "draft_model": "llama-3.2-1b", "draft_tokens": 5, "tokens_per_step": 3.0}
    option = replace(options.plain(tm.efficiencies("trainium2")), **smaller)
    ask = {"batch": 4, "context": 2048, "new_tokens": 6}
    step = tm.decode_step("llama-3.1-70b", "trn2.48xlarge", tm.Mapping(tp=[8, 64]), **ask)
    assert drafts.smaller_group("llama-3.2-1b", step.question).tolist() == [8, 32]
    alone = tm.decode_step("llama-3.2-1b", "trn2.48xlarge", tm.Mapping(tp=[8, 32]), batch=4, context=2048)
    assert drafting_s(option, step) == pytest.approx(5 * alone.time_s)


WRONG = {"draft_tokens": 3, "drafting": "head", "tokens_per_step": 2.0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens_per_step": 4.5}, "tokens_per_step=4.5: allowed are numbers from 1 to 4"),
        ({"tokens_per_step": 0.9}, "tokens_per_step=0.9: allowed are numbers from 1 to 4"),
        ({"tokens_per_step": float("nan")}, "tokens_per_step=nan"),
        ({"drafting": "none"}, "drafting='none': allowed is none without draft_tokens"),
        ({"drafting": "magic"}, "drafting='magic'"),
        ({"draft_tokens": 0, "tokens_per_step": 1.0}, "drafting='head': allowed is none without draft_tokens"),
        ({"draft_tokens": -1}, "draft_tokens=-1"),
        ({"drafting": "model"}, "draft_model='': allowed is the id of a model that drafts"),
        ({"step_extra_s": -1.0}, "step_extra_s=-1"),
        ({"borrowed": 3}, "borrowed=3"),
        ({"documented_on": "trainium2"}, "documented_on='trainium2': allowed is a frozenset"),
    ],
)
def test_an_option_that_cannot_be_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        options.Option(id="mine", **WRONG | changed)


def test_an_option_of_your_own_has_the_acceptance_that_it_states():
    mine = options.Option(id="mine", **WRONG)
    assert latency.tokens_per_step(3, drafts.acceptance(mine)) == pytest.approx(2.0)
    assert mine.passes == 3


@pytest.fixture
def rows(copied_data, forget_data):
    """Change a cell of `data/facts/options.csv` in a copy of `data/`."""

    def change(row, column, value):
        path = copied_data / "facts" / "options.csv"
        with path.open(newline="") as stream:
            table = list(csv.DictReader(stream))
        next(one for one in table if one["id"] == row)[column] = value
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, table[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
        forget_data()

    return change


@pytest.mark.parametrize(
    ("row", "column", "value", "message"),
    [
        ("neuron-async/documented_on/sdk-async-scheduling", "value_printed", "trainium2 moon", "'moon' is no chip"),
        ("neuron-async/base_stack/project", "value_printed", "=cmd()", "base_stack '=cmd()' is none of"),
        ("neuron-async/covers/sdk-serving-features", "quantity", "note", "column quantity: 'note' is not listed"),
        ("neuron-async/covers/sdk-serving-features", "value_printed", " ", "no row says on which chips"),
        ("trtllm-mtp1/tokens_per_step/trtllm-r1-latency", "value_printed", "9.2", "allowed are numbers from 1 to 2"),
        ("trtllm-mtp1/tokens_per_step/trtllm-r1-latency", "value_printed", "many", "'many' is no number or range"),
        ("trtllm-mtp1/tokens_per_step/trtllm-r1-latency", "locator", "", "column locator is empty"),
        ("trtllm-mtp1/drafting/trtllm-r1-latency", "value_printed", "<script>", "drafting='<script>'"),
        ("trtllm-mtp1/covers/trtllm-r1-latency", "source", "nowhere", "column source: 'nowhere' is not listed"),
    ],
)
def test_a_wrong_row_is_an_error_that_names_its_file(rows, row, column, value, message):
    rows(row, column, value)
    with pytest.raises(DataError, match=re.escape(message)) as refused:
        options.documented()
    assert "options.csv" in str(refused.value)


def test_a_row_that_covers_a_strange_model_concerns_nobody(rows):
    rows("trtllm-mtp1/covers/trtllm-r1-latency", "value_printed", "../../etc/passwd \u202e")
    assert [one.id for one in options.options("b200", "deepseek-r1")] == ["gpu-serving"]


def test_a_table_lists_every_option_with_its_sources():
    table = options.option_table().set_index("id")
    assert [*table.index] == [*EVERY]
    assert all(set(ids.split()) <= load.sources().keys() for ids in table.sources)
    assert table.documented_on["neuron-async"] == "trainium2 trainium3"


ONE = {"batch": 1, "context": 4608, "efficiencies": "vllm-neuron-2026"}


def test_a_step_that_is_mostly_one_constant_says_which():
    step = tm.decode_step("llama-3.3-70b", "trn3-nl16-torus", tm.Mapping(tp=16), **ONE)
    name, share = dominant_constant(step)
    assert name == "dense_layer_s"
    assert float(step.time_s * share) == pytest.approx(80 * step.stack.dense_layer_s)  # 80 layers
    assert 80 * step.stack.dense_layer_s == pytest.approx(12.9e-3, rel=0.01)


def test_a_step_without_such_a_constant_says_none():
    ideal = tm.decode_step("llama-3.3-70b", "trn3-nl16-torus", tm.Mapping(tp=16), **ONE | {"efficiencies": "ideal"})
    assert dominant_constant(ideal) == ("", 0)
    many = tm.decode_step("llama-3.3-70b", "trn3-nl16-torus", tm.Mapping(tp=[16, 16]), **ONE | {"batch": [1, 64]})
    name, share = dominant_constant(many)
    assert name.tolist() == ["dense_layer_s", ""]
    assert share[1] < 0.5 < share[0]


@pytest.mark.parametrize("phase", COST_CONSTANTS)
def test_constants_of_a_step_are_fields_of_its_stack_and_all_costs_have_some(phase):
    stack = replace(tm.efficiencies("trainium2"), layer_s=1e-3, step_overhead_s=2e-3, prefill_overhead_s=3e-3)
    ask = {"model": "qwen3-30b-a3b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=4), "efficiencies": stack}
    step = tm.prefill(**ask, input_tokens=2048) if phase == "prefill" else tm.decode_step(**ask, batch=4, context=2048)
    costs = {name for name, line in step.breakdown().items() if np.any(np.asarray(line.overhead_s) > 0)}
    assert costs <= COST_CONSTANTS[phase].keys()
    assert all(hasattr(stack, name) for names in COST_CONSTANTS[phase].values() for name in names)
    assert 0 < dominant_constant(step).share < 1
