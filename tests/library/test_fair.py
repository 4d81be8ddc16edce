"""A comparison is fair by default: public software on every chip, a basis on every result, no ideal beside a public."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import load, reader, stacks
from trnmodel.catalog.reader import lineage
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import IDEAL, efficiencies
from trnmodel.evidence.cells import measure
from trnmodel.evidence.fit import MEANINGS, cases, parameters
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import machine, reading
from trnmodel.evidence.rows import COMPARATORS, published
from trnmodel.result import BASES, Basis, alike, tidy, weakest
from trnmodel.search import deployments, sizing
from trnmodel.search.frontier import frontiers
from trnmodel.search.sweep import sweep
from trnmodel.serving.server import disaggregate
from trnmodel.steps.deployment import Deployment

LLAMA, TP8 = "llama-3.1-8b", tm.Mapping(tp=8)
TRN2, TRN3, H200 = "trn2.48xlarge", "trn3-nl72x2-pcie160", "hgx-h200"
ASK = {"model": LLAMA, "mapping": TP8, "batch": 4, "context": 1024}
PROMPTS = ("prefill", "expert-prefill", "encoder")  # groups


def at_a_row(system, **more):
    """Llama-3.1-8B on four ranks at batch 1 and 2,048 tokens: a row of data/evidence/measured.csv."""
    return tm.decode_step("llama-3.1-8b", system, tm.Mapping(tp=4), batch=1, context=2048, **more)


def decode(system, **more):
    return tm.decode_step(system=system, **ASK, **more)


def bases(stack=None):
    """Words of decode, prefill and memory by chip that runs."""
    chips = [load.chip(chip) for chip in load.chips() if load.chip(chip).default_stack]
    parts = "decode", "prefill", "memory"
    found = {}
    for chip in chips:
        e = efficiencies(chip, stack)
        found[chip.id] = tuple(stacks.basis(e, chip, chip.lnc_default, part).word[0] for part in parts)
    return found


def test_what_the_default_call_of_each_chip_rests_on():
    """Decode, prefill, memory: measured or extrapolated. GPUs' prefill rows are of A100 alone, memory is Inf2's."""
    assert bases() == {
        **dict.fromkeys(("trainium1", "trainium2"), ("m", "m", "e")),
        "inferentia2": ("m", "m", "m"),
        **dict.fromkeys(("trainium3", "trainium4-roadmap"), ("e", "e", "e")),
        "a100": ("m", "m", "e"),
        **dict.fromkeys(("h100", "h200", "b200", "gb200", "gb300"), ("m", "e", "e")),
        **dict.fromkeys("b300 mi210 mi300x mi355x tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7".split(), ("e", "e", "e")),
    }
    assert set(bases("ideal").values()) == {("i", "i", "i")}


def test_the_chips_that_a_stack_names_are_those_of_the_rows_that_its_constants_were_fitted_on():
    """All chips of three rows of the stack itself, and none that no row of it or of a stack above it ran on.

    A row or two of a chip say hardly anything of the constants there: Trainium3 has three of experts, B300 has one.
    """
    found, own, groups = {}, {}, (*MEANINGS, "comparator")
    owners = {"decode": set(), "prefill": set()}
    for group in groups:
        for part in owners if group == "comparator" else ["prefill" if group in PROMPTS else "decode"]:
            owners[part] |= {owner for one in parameters(group) for owner in one.owner.split("|")}
    for group in groups:
        for case in cases(COMPARATORS if group == "comparator" else published(), group):
            where, r = machine(case.reading), case.reading
            chip = where if isinstance(where, Chip) else where.chip
            part = "prefill" if r.meaning in (*MEANINGS["prefill"], "forward", "run-of-steps") else "decode"
            stack = r.stack or chip.default_stack
            own.setdefault((stack, part), Counter())[chip.id] += 1
            for one in owners[part].intersection(lineage(stack)):  # a row fits its stack and those below it
                found.setdefault((one, part), set()).add(chip.id)
    assert len(found) > 12
    for stack, part in found:
        named = set(efficiencies("trainium1", stack).fitted_on[part])
        ran = set().union(*(found.get((one, part), ()) for one in lineage(stack)))
        several = {chip for chip, rows in own.get((stack, part), Counter()).items() if rows >= 3}
        assert several <= named <= ran, (stack, part)
    assert efficiencies("trainium2").fitted_on["memory"] == ("inferentia2",)  # of one printed run


def test_the_naive_call_is_like_for_like():
    """70B FP8, batch 16, 8 chips: issue 11 found 13.1 ms on Trn3 beside 2.4 on an ideal H200, 2.35 and 2.40 ideal."""
    ask = {"model": "llama-3.1-70b", "batch": 16, "context": 4096, "precision": "fp8"}
    ranks = {TRN3: tm.Mapping(tp=32), H200: TP8}
    own = {system: tm.decode_step(system=system, mapping=m, **ask) for system, m in ranks.items()}
    ideal = {
        system: tm.decode_step(system=system, mapping=m, **ask, efficiencies="ideal") for system, m in ranks.items()
    }
    assert {system: step.stack_kind for system, step in own.items()} == {TRN3: "public", H200: "public"}
    assert float(ideal[TRN3].time_s / ideal[H200].time_s) == pytest.approx(2.35 / 2.40, rel=0.03)
    assert 0.5 < float(own[TRN3].time_s / own[H200].time_s) < 2  # it was 5.5


def test_every_result_of_a_stack_says_what_it_rests_on():
    sides = {"prefill_mapping": TP8, "decode_mapping": TP8, "batch": 4, "input_tokens": 512, "output_tokens": 64}
    results = [
        decode(TRN3),
        tm.prefill(LLAMA, TRN3, TP8, input_tokens=512),
        tm.memory_fit(LLAMA, TRN3, TP8, batch=[1, 2, 10**6], context=1024),
        served(TRN3, [0.1, 1e6]),
        served(TRN3, 0.1, batching="static"),
        disaggregate(LLAMA, prefill_system=TRN3, decode_system=TRN2, **sides),
    ]
    for result in results:
        words, reasons = np.ravel(result.basis), np.ravel(result.basis_reason)
        assert (set(words), result.stack_kind, result.stack.id) == ({"extrapolated"}, "public", "vllm-neuron-2026")
        assert all("chip: " in reason and "inferentia2" in reason for reason in reasons)
        if np.ndim(result.basis) == 0:
            assert result.ground() == f"extrapolated ({result.basis_reason})"
        table = result.to_frame()
        assert {"stack", "stack_kind", "basis", "basis_reason"} <= set(table.columns)
        assert set(table.basis) == {"extrapolated"}
        assert not {"judge", "question"} & set(table.columns)
    assert len(results[2].to_frame()) == 3


def test_a_basis_is_computed_when_it_is_asked_for(monkeypatch):
    asked, step = [], tm.memory_fit("llama-3.1-8b", TRN2, tm.Mapping(tp=8), batch=1, context=128)
    basis = Basis(np.array(["measured", "interpolated"], dtype=object), "batch: 7")
    monkeypatch.setattr(type(step), "judge", lambda step: asked.append(step) or basis)
    assert not asked
    assert step.basis.tolist() == ["measured", "interpolated"]
    table = step.to_frame()  # a word a point, one reason for both
    assert table.basis.tolist() == ["measured", "interpolated"]
    assert table.basis_reason.tolist() == ["batch: 7", "batch: 7"]
    assert asked


def test_the_weakest_part_names_its_reason():
    firm, loose = Basis("measured", "", 0.1), Basis("extrapolated", "chip: never served", 0.3)
    assert weakest({"prefill": firm, "decode": firm}) == Basis("measured", "", 0.1)
    assert weakest({"prefill": loose, "decode": firm}) == Basis("extrapolated", "prefill chip: never served", 0.3)
    assert weakest({"prefill": loose, "decode": loose}) == loose
    points = Basis(np.array(BASES, dtype=object), np.array(["", "a", "b", ""], dtype=object))
    both = weakest({"prefill": points, "decode": loose})
    assert both.word.tolist() == ["extrapolated", "extrapolated", "extrapolated", "ideal"]
    assert both.reason[1] == "prefill a; decode chip: never served"


@pytest.mark.parametrize(
    ("stack", "kind", "word", "reason"),
    [
        ("ideal", "ideal", "ideal", ""),
        (replace(IDEAL, id="perfect"), "ideal", "ideal", ""),
        (replace(IDEAL, hop_s=1e-6), "given", "extrapolated", "stack: given with the call (ideal is none of data/)"),
        (replace(efficiencies("trainium2")), "public", "measured", ""),  # a copy is the same stack
        (
            replace(efficiencies("trainium2"), prompt_bucket="exact", hop_s=np.array([1e-6, 2e-6])),
            "public",
            "extrapolated",
            "stack: given with the call (hop_s, prompt_bucket)",
        ),
        (
            replace(efficiencies("trainium2"), id="mine"),
            "public",
            "extrapolated",
            "stack: given with the call (mine is",
        ),
        ("torch-neuronx", "public", "extrapolated", "stack: no decode row of torch-neuronx on trainium2"),
        ("kiln", "public", "extrapolated", "chip: kiln was fitted on trainium1"),
        ("gpu-serving", "public", "extrapolated", "chip: gpu-serving was fitted on a100, b200, gb200"),
    ],
)
def test_a_stack_on_trainium2(stack, kind, word, reason):
    step = at_a_row("trn2.3xlarge", efficiencies=stack)
    assert (step.stack_kind, step.basis) == (kind, word)
    assert step.basis_reason.startswith(reason)
    assert bool(step.basis_reason) == bool(reason)


def test_a_changed_chip_is_not_the_one_that_was_measured():
    where = tm.system("trn2.3xlarge")
    faster = replace(where, chip=replace(where.chip, hbm_bytes_per_s=2 * where.chip.hbm_bytes_per_s))
    assert at_a_row(where).basis == "measured"
    assert at_a_row(replace(where)).basis == "measured"
    assert at_a_row(faster).basis_reason == "chip: figures of trainium2 are given with the call"
    assert at_a_row(faster, efficiencies="ideal").basis == "ideal"


def test_a_stand_in_keeps_the_values_of_the_gpus_in_wide_ranges():
    """Half and one and a half of each, a share at most 1; what the GPUs' fit finds anew it has too."""
    base, e = reader.spec(stacks.Efficiencies, "gpu-serving"), efficiencies("mi300x")
    assert (base.id, e.id) == ("gpu-serving", "gpu-serving-elsewhere")
    assert not list(stacks._differing(e, base))
    for name in ("weight_stream_share", "kv_stream_share", "prefill_matmul_share"):
        value = getattr(base, name)
        assert e.range(name) == (0.5 * value, min(1.5 * value, 1.0))
        assert e.range(name)[0] < base.range(name)[0]
        assert name in e.estimates
    assert {name for name in e.ranges if name.endswith("_share") and e.ranges[name][1] > 1} == set()
    for chip in load.chips():
        if load.chip(chip).default_stack == "gpu-serving-elsewhere":
            assert load.facts_rows()[f"{chip}/default_stack/project"].confidence == "D"


def test_a_logical_core_that_is_announced_is_extrapolated():
    """AWS announces LNC 8 for Trainium3; the SDK allows 1 and 2 (sdk-lnc, L14)."""
    ranks = tm.Mapping(ep=32, lnc=8, placement=("ep", "tp", "cp", "pp", "dp"))
    ask = {"model": "deepseek-v3", "mapping": ranks, "batch": 64, "context": 1024, "precision": "mxfp8"}
    why = "lnc: 8 is announced for trainium3, not supported"
    own, ideal = (tm.decode_step(system="trn3-nl32x2-pcie160", efficiencies=e, **ask) for e in (None, "ideal"))
    assert own.ground().startswith(f"extrapolated ({why}; chip: ")
    assert ideal.ground() == f"ideal ({why})"
    assert decode(TRN3).basis_reason.startswith("chip: ")


def ask_unequal(system):
    return decode(system, efficiencies="ideal" if system == H200 else None)


def test_a_table_of_unequal_stacks_is_refused_unless_asked_for():
    grid = {"system": [TRN3, H200]}
    with pytest.raises(ValueError, match=r"mixed=False: .*trn3-nl72x2-pcie160: public, hgx-h200: ideal"):
        sweep(ask_unequal, grid, progress=False)
    assert sweep(ask_unequal, grid, progress=False, mixed=True)["stack"].tolist() == ["vllm-neuron-2026", "ideal"]
    assert set(sweep(decode, grid, progress=False).stack_kind) == {"public"}


def test_both_kinds_on_every_system_are_a_comparison():
    grid = {"system": [TRN3, H200], "efficiencies": ["ideal", None]}
    assert len(sweep(decode, grid, progress=False)) == 4
    one = {"system": [TRN3], "efficiencies": ["ideal", None]}
    assert len(sweep(decode, one, progress=False)) == 2


@pytest.mark.parametrize("mixed", [1, "yes", None])
def test_mixed_is_yes_or_no(mixed):
    with pytest.raises(ValueError, match="mixed="):
        sweep(ask_unequal, {"system": [TRN3, H200]}, progress=False, mixed=mixed)


def test_tables_without_stacks_or_systems_are_left_alone():
    table = tidy([{"system": "a", "x": 1}, {"system": "b", "x": 2}])
    assert alike(table) is table
    assert len(alike(tidy([{"stack_kind": "ideal"}, {"stack_kind": "public"}]))) == 2
    assert len(alike(table.iloc[:0].assign(stack_kind=[]))) == 0


def test_frontiers_are_alike_and_name_their_stacks():
    request, torus = tm.Request(896, 256), tm.system("trn1.32xlarge")
    bound = replace(torus, id="bound", chip=replace(torus.chip, default_stack="ideal"))
    with pytest.raises(ValueError, match=r"trn1\.32xlarge: public, bound: ideal"):
        frontiers(LLAMA, request, [torus, bound])
    both = pd.concat(frontiers(LLAMA, request, [one]) for one in (torus, bound))
    assert set(zip(both.system, both.stack_kind, both.basis, strict=True)) == {
        ("trn1.32xlarge", "public", "extrapolated"),  # the library of its default has no decode row on it
        ("bound", "ideal", "ideal"),
    }
    ideal = frontiers(LLAMA, request, [torus, bound], efficiencies="ideal")
    assert set(ideal.basis) == {"ideal"}
    assert ideal.index.tolist() == list(range(len(ideal)))


def test_two_sides_are_on_one_kind_of_stack():
    sides = {"prefill_mapping": TP8, "decode_mapping": TP8, "batch": 4, "input_tokens": 512, "output_tokens": 64}
    where = {"prefill_system": TRN2, "decode_system": TRN2}
    with pytest.raises(ValueError, match=r"mixed=False: .*prefill: ideal, decode: public"):
        disaggregate(LLAMA, **where, **sides, prefill_efficiencies="ideal")
    both = disaggregate(LLAMA, **where, **sides, prefill_efficiencies="ideal", mixed=True)
    assert (both.stack_kind, both.basis) == ("mixed", "ideal")
    assert "prefill" not in both.basis_reason
    assert (both.prefill_stack.id, both.stack.id) == ("ideal", "vllm-neuron-2026")
    d = Deployment(model=LLAMA, system=TRN2, mapping=TP8, stack="ideal")
    table = deployments.split_phases(d, [TRN3, TRN2], 4, 512, 64)
    assert set(table.prefill_stack) == set(table.basis) == {"ideal"}


def test_sizes_follow_the_stack_of_the_deployment():
    d = Deployment(model=LLAMA, system=TRN2, mapping=TP8)
    for one, kinds in ((d, {"vllm-neuron-2026", "gpu-serving"}), (d.ideal, {"ideal"})):
        assert set(sizing.across(one, [TRN2, "hgx-h100"], ["bf16"], [1024])["stack"]) == kinds
    assert "basis" in sizing.smallest([LLAMA], [TRN2], ["bf16"], 1, 1024).columns


def served(system, rate, **more):
    return tm.serve(LLAMA, tm.Request(512, 64, requests_per_s=rate), system, TP8, **{"max_batch": 32} | more)


@pytest.mark.parametrize(("system", "batch"), [("hgx-h100", 1), ("mi300x-8", 1), ("tpu-v5p-pod", 1), (TRN2, 32)])
def test_an_idle_server_steps_at_the_batch_of_its_stack(system, batch):
    """At a rate near 0 a GPU's server steps at batch 1, Neuron's at the batch that it was compiled for."""
    one = tm.decode_step(LLAMA, system, TP8, batch=batch, context=512 + 32, max_context=512 + 64)
    assert float(served(system, 1e-6).step_s) == pytest.approx(float(one.time_s), rel=1e-6)


def test_batching_may_be_asked_for_against_the_stack():
    for system in (TRN2, "hgx-h100"):
        whole, active = served(system, 1e-6, compiled=True), served(system, 1e-6, compiled=False)
        assert whole.step_s > active.step_s
        own = served(system, 1e-6)
        assert own.step_s == (whole if system == TRN2 else active).step_s


def test_batches_in_powers_of_two():
    """The batch in flight rounds up to the next compiled one, at most to the largest."""
    pads = replace(efficiencies("trainium2"), id="pads", batch_bucket="power-of-two")
    steps = {n: float(decode_at(n, pads).time_s) for n in (4, 8, 24)}
    rates = np.geomspace(1, 400, 60)
    found = served(TRN2, rates, max_batch=24, efficiencies=pads)
    for batch, step_s in zip(found.batch[found.valid], found.step_s[found.valid], strict=True):
        if 2 < batch <= 4 or 4 < batch <= 8 or batch > 16:
            assert step_s == pytest.approx(steps[4 if batch <= 4 else 8 if batch <= 8 else 24], rel=1e-6)
    assert len(set(found.step_s[found.valid])) <= 6


def decode_at(batch, stack):
    return tm.decode_step(LLAMA, TRN2, TP8, batch=batch, context=544, max_context=576, efficiencies=stack)


HELD = {  # Llama-3-70B at TP 32, Llama-3.3-70B at TP 64, Mistral-7B at TP 2, one client
    "trainium1": "831c64364c",
    "trainium2": "4512f087f3",
    "inferentia2": "cf84cef1e2",
}


@pytest.mark.parametrize("chip", HELD)
def test_the_default_call_of_a_trainium_is_within_a_tenth_of_a_published_step(chip):
    """Printed: 26.2 ms, 19.69 ms and 56.5 ms a step."""
    row = next(row for row in published().to_dict("records") if row["id"] == HELD[chip])
    default = replace(reading(row), stack="")
    where = machine(default)
    assert (where.id if isinstance(where, Chip) else where.chip.id) == chip
    assert predict(default) / default.scale == pytest.approx(measure(row), rel=0.1)


@pytest.mark.parametrize("name", stacks.stacks()[1:])
def test_a_stack_of_data_is_not_given_with_the_call(name):
    found = stacks.basis(efficiencies("trainium2", name), tm.chip("trainium2"), 2, "decode")
    assert "given with the call" not in found.reason
