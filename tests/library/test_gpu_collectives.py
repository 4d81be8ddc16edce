"""Collectives of GPUs by the one engine, against 836 measured ones: NCCL, and the all-reduce kernels of engines."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import load, reader
from trnmodel.catalog.options import options
from trnmodel.catalog.stacks import Efficiencies, basis, efficiencies
from trnmodel.evidence import search
from trnmodel.evidence.fit import cases, log_errors, parameters, tuned
from trnmodel.evidence.rows import COLLECTIVES
from trnmodel.evidence.score import validate
from trnmodel.fabric.collectives import SPOKEN
from trnmodel.units import US

ROWS = pd.read_csv(COLLECTIVES)
NAMED = ROWS.workload.str.extract(r"(?P<kind>\w+) (?P<ranks>\d+) ranks size=(?P<message_bytes>\d+)B")
MEASURED = pd.DataFrame(
    {
        "device": ROWS.instance,
        "kernel": ROWS.date_or_sdk.str.rsplit(" ", n=1).str[0],
        "kind": NAMED.kind,
        "ranks": NAMED.ranks.astype(int),
        "message_bytes": NAMED.message_bytes.astype(int),
        "time_us": ROWS.value,
    }
)
SYSTEMS = {"a100_sxm": "hgx-a100", "h100_sxm": "hgx-h100", "b200_sxm": "hgx-b200", "gb200": "gb200-nvl72"}
RINGS = ("all_reduce", "all_gather", "reduce_scatter")
CONSTANTS = ("hop_s", "collective_launch_s", "collective_rate_share")
FUSED = ["TRTLLM", "vLLM_custom_graph", "SGLang_CustomAllReduce_graph"]
KINDS = {kind: (kind, "ring") for kind in RINGS} | {"alltoall": ("all_to_all", "phased")}
ERRORS = {  # median and worst signed error of NCCL by kind and machine
    ("all_reduce", "hgx-a100"): (0.12, -0.51),
    ("all_gather", "hgx-a100"): (0.15, -0.43),
    ("reduce_scatter", "hgx-a100"): (0.13, 0.38),
    ("alltoall", "hgx-a100"): (0.12, -0.43),
    ("all_reduce", "hgx-h100"): (0.12, 0.73),
    ("all_gather", "hgx-h100"): (0.13, -0.43),
    ("reduce_scatter", "hgx-h100"): (0.12, 0.44),
    ("alltoall", "hgx-h100"): (0.17, -0.59),
    ("all_reduce", "hgx-b200"): (0.09, 0.58),
    ("all_gather", "hgx-b200"): (0.10, -0.50),
    ("reduce_scatter", "hgx-b200"): (0.10, -0.47),
    ("alltoall", "hgx-b200"): (0.19, -0.38),
    ("all_reduce", "gb200-nvl72"): (0.06, 0.57),
    ("all_gather", "gb200-nvl72"): (0.09, 0.42),
    ("reduce_scatter", "gb200-nvl72"): (0.10, 0.37),
    ("alltoall", "gb200-nvl72"): (0.18, -0.36),
}


def nccl(device):
    return MEASURED[(MEASURED.device == device) & (MEASURED.kernel == "NCCL")]


def predicted_s(rows, system, algorithm=None, **given):
    """Times of measured rows, in their order, by the algorithm of their kind."""
    found = pd.Series(np.nan, rows.index)
    for kind, part in rows.groupby("kind"):
        name, own = KINDS[kind]
        asked = {"ranks": part.ranks.to_numpy(), "algorithm": algorithm or own, **given}
        found[part.index] = tm.collective(name, part.message_bytes.to_numpy(), system, **asked).time_s
    return found


def errors(rows, system, algorithm=None, **given):
    return predicted_s(rows, system, algorithm, **given) / (rows.time_us * US) - 1


def test_all_rows_are_asked():
    assert len(MEASURED) == 836
    assert len(pd.concat(map(nccl, SYSTEMS))) == 440
    assert set(MEASURED.kernel) == {"NCCL", *FUSED}


@pytest.mark.parametrize(("device", "system"), SYSTEMS.items())
def test_nccl_by_kind_within_the_stated_error(device, system):
    found = errors(nccl(device), system)
    for kind, part in found.groupby(nccl(device).kind):
        median, worst = ERRORS[kind, system]
        assert part.abs().median() == pytest.approx(median, abs=0.012)
        assert part[part.abs().idxmax()] == pytest.approx(worst, abs=0.012)


@pytest.mark.slow
@pytest.mark.parametrize(("device", "system"), SYSTEMS.items())
def test_constants_of_the_catalog_are_those_of_the_fit(device, system):
    chip, rows = tm.system(system).chip, nccl(device)
    shipped = [getattr(chip, name) for name in CONSTANTS]

    def logs(values):
        own = dict(zip(("alpha_s", "launch_s", "rate_share"), values, strict=True))
        return np.log(1 + errors(rows, system, **own))

    most = [search.LARGEST, search.LARGEST, -math.log(shipped[2])]
    assert search.constants(logs, shipped, high=most) == pytest.approx(shipped, rel=2e-3)
    for name, value in zip(CONSTANTS, shipped, strict=True):
        low, high = chip.range(name)
        assert low < value < high
        assert name in chip.estimates


@pytest.mark.parametrize(("device", "system"), SYSTEMS.items())
@pytest.mark.parametrize("kernel", FUSED)
def test_fused_kernels_start_in_less_than_a_library_call(device, system, kernel):
    """The fastest algorithm with NCCL's floor is too slow for them while it is the start that counts."""
    rows = MEASURED[(MEASURED.device == device) & (MEASURED.kernel == kernel) & (MEASURED.message_bytes <= 65536)]
    found = errors(rows, system, "best")
    assert 0.3 < found.median() < 2.0
    assert errors(rows, system, "best", launch_s=3e-6).abs().median() < 0.45


@pytest.mark.parametrize("system", SYSTEMS.values())
def test_constants_can_be_replaced_and_the_bound_stays_one(system):
    spec = tm.system(system)
    sizes, asked = np.geomspace(1, 1e9, 12), {"ranks": 4, "algorithm": "ring"}
    shipped = tm.collective("all_reduce", sizes, spec, **asked)
    ideal = {"collective_launch_s": 0.0, "collective_rate_share": 1.0}
    bare = tm.collective("all_reduce", sizes, replace(spec, chip=replace(spec.chip, **ideal)), **asked)
    given = tm.collective("all_reduce", sizes, spec, launch_s=0.0, rate_share=1.0, **asked)
    assert given.time_s == pytest.approx(bare.time_s)
    assert np.all(shipped.time_s > given.time_s)
    assert np.all(given.time_s >= given.lower_bound_s)
    assert shipped.lower_bound_s == pytest.approx(given.lower_bound_s)
    twice = replace(spec, chip=replace(spec.chip, hop_s=2 * spec.chip.hop_s))
    assert tm.collective("all_reduce", 0.0, twice, **asked).time_s - shipped.time_s[0] == pytest.approx(
        6 * spec.chip.hop_s, rel=1e-3
    )


def test_within_a_domain_no_latency_beyond_it_is_needed():
    near = tm.collective("all_reduce", 1e6, tm.system("hgx-h100", count=4), ranks=8)
    assert near.time_s == pytest.approx(tm.collective("all_reduce", 1e6, "hgx-h100").time_s)
    with pytest.raises(ValueError, match=r"no hop latency is published"):
        tm.collective("all_reduce", 1e6, tm.system("hgx-h100", count=4), ranks=16)


def test_every_row_has_an_answer_and_every_kernel_votes():
    judged = validate(COLLECTIVES)
    assert (judged.skipped == "").all()
    assert judged.use.value_counts().to_dict() == {"library": 440, "gpu-all-reduce": 396}
    assert judged.id.is_unique
    assert len(cases(COLLECTIVES, "gpu-all-reduce")) == 396 / len(FUSED)  # the fastest kernel of each size


def test_no_constant_of_the_kernels_can_be_moved_to_a_better_fit():
    of = cases(COLLECTIVES, "gpu-all-reduce")
    shipped = {
        p: getattr(efficiencies(p.quantity.partition(":")[2], "gpu-serving"), p.fields[0])
        for p in parameters("gpu-all-reduce")
    }
    assert len(shipped) == 6 * len(SYSTEMS)

    def loss(values):
        errors = log_errors(of, tuned(values)) / search.LOSS_SCALE
        return np.sum(np.sqrt(1 + errors**2))

    least = loss(shipped)
    for one, value in shipped.items():
        assert min(loss(shipped | {one: value * change}) for change in (0.98, 1.02)) > least


def test_a_small_all_reduce_in_a_step_takes_what_engines_measure():
    """Batch 16 of a hidden size of 8,192 in BF16 is 256 KiB; on eight H100 SGLang takes 9.36, vLLM 10.79 us."""
    step = tm.decode_step(
        "llama-3.1-70b", "hgx-h100", tm.Mapping(tp=8), batch=16, context=4096, efficiencies="gpu-serving"
    )
    sent = step.messages[0]
    here = MEASURED[(MEASURED.device == "h100_sxm") & (MEASURED.ranks == 8) & (MEASURED.message_bytes == 2**18)]
    measured = here[here.kernel.isin(FUSED)].time_us * US
    assert (sent.message_bytes, sent.count, sorted(here.time_us)[:3]) == (2**18, 160, [9.355, 10.17, 10.79])
    each = float(step.network_s) / sent.count
    assert (abs(each / measured - 1) < 0.2).all()
    call = tm.collective("all_reduce", sent.message_bytes, "hgx-h100", ranks=8, efficiencies="gpu-serving")
    assert each == pytest.approx(float(call.time_s), rel=1e-12)
    assert call.algorithm == "in_graph_one_shot"


def test_one_shot_then_two_and_never_below_the_links():
    """q = n - 1 or 2 (n - 1) / n buffers, and the copies: at 8 ranks and 1 GB (1.75 + c) / share of 1 GB / 450 GB/s."""
    e = efficiencies("h100", "gpu-serving")
    call = tm.collective("all_reduce", [256, 1e9], "hgx-h100", efficiencies=e)
    assert call.algorithm.tolist() == ["in_graph_one_shot", "in_graph_two_shot"]
    beside = 7 * e.shot_rank_s
    small = e.one_shot_s + beside + (7 + e.shot_copies) * 256 / (e.one_shot_rate_share * 450e9)
    large = e.two_shot_s + beside + (1.75 + e.shot_copies) * 1e9 / (e.two_shot_rate_share * 450e9)
    assert call.time_s == pytest.approx([small, large], rel=1e-12)
    assert np.all(call.time_s > call.lower_bound_s)


def test_constants_of_a_stack_may_be_arrays():
    slow = replace(efficiencies("h100", "gpu-serving"), one_shot_s=np.array([0.0, 5e-6, 1.0]))
    times = tm.collective("all_reduce", 1024, "hgx-h100", efficiencies=slow).time_s
    alone = [
        tm.collective("all_reduce", 1024, "hgx-h100", efficiencies=replace(slow, one_shot_s=start)).time_s
        for start in (0.0, 5e-6, 1.0)
    ]
    assert times == pytest.approx(alone)
    assert times[2] < 2e-5  # two shots, from where one takes longer


def test_kernels_end_at_the_scale_up_domain():
    two = tm.system("hgx-h100", count=2)
    inside, across = (tm.collective("all_reduce", 2**18, two, ranks=n, efficiencies="gpu-serving") for n in (8, 16))
    assert inside.algorithm == "in_graph_one_shot"
    assert not str(across.algorithm).startswith("in_graph")
    assert across.time_s > 2 * inside.time_s
    apart = tm.collective("all_reduce", 2**18, two, ranks=2, stride=8, efficiencies="gpu-serving")
    assert not str(apart.algorithm).startswith("in_graph")
    alone = tm.collective("all_reduce", 2**18, two, ranks=1, efficiencies="gpu-serving")
    assert alone.time_s == 0


def test_an_exchange_starts_as_the_library_does():
    """NCCL's all-to-all of 1 KiB, 2 to 8 ranks: the middle one of a device is the stack's latency there."""
    small = MEASURED[(MEASURED.kernel == "NCCL") & (MEASURED.kind == "alltoall") & (MEASURED.message_bytes == 1024)]
    general = reader.spec(Efficiencies, "gpu-serving")
    of_chips = {tm.system(SYSTEMS[device]).chip.id: rows for device, rows in small.groupby("device")}
    for shipped, rows in [(general, small), *((efficiencies(chip), rows) for chip, rows in of_chips.items())]:
        assert shipped.hop_s == pytest.approx(rows.time_us.median() * US)
        assert shipped.range("hop_s")[0] == pytest.approx(rows.time_us.min() * US)


KERNEL_CONSTANTS = [name for name in SPOKEN if "shot" in name]
NEAR = {"h200": "h100", "b300": "b200", "gb300": "gb200"}


@pytest.mark.parametrize(("chip", "near"), NEAR.items())
def test_a_gpu_without_all_reduces_has_those_of_its_generation_in_wider_ranges(chip, near):
    e, own = efficiencies(chip), efficiencies(near)
    for name in (*KERNEL_CONSTANTS, "hop_s"):
        assert getattr(e, name) == pytest.approx(getattr(own, name), rel=1e-3)
        (low, high), (least, most) = e.range(name), own.range(name)
        assert low < least < most < high
        assert load.facts_rows()[e.sources[name][0]].locator == f"assumed: gpu-serving/{name}:{near}/project"


@pytest.mark.parametrize("name", KERNEL_CONSTANTS)
def test_a_chip_without_rows_has_the_range_of_those_with_some(name):
    found = [getattr(efficiencies(tm.system(system).chip), name) for system in SYSTEMS.values()]
    general = reader.spec(Efficiencies, "gpu-serving")
    assert general.range(name) == pytest.approx((min(found), max(found)), rel=1e-3)
    assert getattr(efficiencies("mi300x"), name) == getattr(general, name)


def test_the_constants_of_a_chip_reach_every_door():
    """The hand-tuned scenario, an option, and a step take them; a stack of one chip on another is a given one."""
    own, tuned_by_hand = efficiencies("h100"), efficiencies("h100", "hand-tuned")
    assert tuned_by_hand.one_shot_s == own.one_shot_s != efficiencies("a100").one_shot_s
    assert own is efficiencies("h100") is efficiencies("h100", "gpu-serving")
    assert efficiencies("trainium2") is reader.spec(Efficiencies, "vllm-neuron-2026")
    drafts = options("h100", "llama-3.3-70b", "sglang-eagle3-llama-3.3-70b")[0].efficiencies
    assert drafts.one_shot_s == own.one_shot_s
    assert basis(own, tm.chip("h100"), 1, "decode").word == "measured"
    assert basis(own, tm.chip("a100"), 1, "decode").reason.startswith("stack: given with the call (")
    mine = replace(tm.chip("h100"), id="mine")
    assert efficiencies(mine) is own  # another name changes nothing
    unknown = replace(mine, catalog_id="")
    assert efficiencies(unknown).one_shot_s == reader.spec(Efficiencies, "gpu-serving").one_shot_s


@pytest.mark.parametrize("system", tm.systems())
def test_a_larger_all_reduce_never_takes_less_time_and_more_ranks_never_less(system):
    spec = tm.system(system)
    if load.entities()[spec.chip.id].vendor != "NVIDIA":
        pytest.skip("no kernels of engines")
    sizes = np.geomspace(1, 1e10, 60)
    times = [
        tm.collective("all_reduce", sizes, spec, ranks=n, efficiencies=efficiencies(spec.chip)).time_s
        for n in (1, 2, 3, 4)
    ]
    assert np.all(np.diff(times, axis=1) >= 0)
    assert np.all(np.diff(times, axis=0) >= 0)
    many = tm.collective("all_reduce", [0, 1e30], spec, ranks=2, efficiencies=efficiencies(spec.chip)).time_s
    assert 0 < many[0] < many[1]


@pytest.mark.parametrize("system", tm.systems())
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all", "p2p"])
def test_a_default_call_answers_or_names_the_row_that_is_missing(system, kind):
    """NVIDIA's and AWS's answer; of AMD's and Google's no latency is in data, and the row that lacks is none."""
    spec = tm.system(system)
    try:
        found = tm.collective(kind, [1e3, 1e9], system)
    except ValueError as error:
        entity, quantity = re.search(r"data/facts has no row of (\S+),(\w+)", str(error)).groups()
        facts = tm.facts()
        assert entity in (spec.id, spec.chip.id)
        assert facts[(facts.entity == entity) & (facts.quantity == quantity)].empty
        assert load.entities()[spec.chip.id].vendor not in ("NVIDIA", "AWS")
    else:
        assert np.isfinite(found.time_s).all()
        assert found.time_s[0] < found.time_s[1] or spec.chips == 1


def test_beyond_the_domain_the_missing_latency_is_that_of_the_network():
    with pytest.raises(ValueError, match=r"no row of hgx-h200,scaleout_hop_s; allowed are"):
        tm.collective("all_reduce", 1e6, tm.system("hgx-h200", count=2))


@pytest.mark.parametrize(
    ("system", "near"), [("hgx-h200", "hgx-h100"), ("hgx-b300", "hgx-b200"), ("gb300-nvl72", "gb200-nvl72")]
)
def test_a_gpu_without_rows_of_its_own_is_extrapolated_from_its_generation(system, near):
    found, measured = (tm.collective("all_reduce", [2.0**10, 2.0**28], name, ranks=4) for name in (system, near))
    np.testing.assert_allclose(found.time_s, measured.time_s)  # the same links, and constants that are borrowed
    assert set(found.basis) == {"extrapolated"}
    assert all("no collective row" in reason for reason in found.basis_reason)
    for name in CONSTANTS:
        assert tm.system(system).chip.range(name) == tm.system(near).chip.range(name)


def test_a_fact_of_a_chip_stands_in_the_place_of_the_general_one():
    """Of numbers alone: a policy of the stack and its name are the same on every chip."""
    own, general = (reader.spec(Efficiencies, "gpu-serving", on) for on in ("h100", ""))
    changed = {name for name, facts in own.sources.items() if facts != general.sources[name]}
    assert changed == {*KERNEL_CONSTANTS, "hop_s"}
    assert own.sources["one_shot_s"] == ("gpu-serving/one_shot_s:h100/project",)
    assert (own.in_graph, own.id, own.fitted_on) == (general.in_graph, general.id, general.fitted_on)
    assert reader.spec(Efficiencies, "gpu-serving", "tpu-v6e") is general
    assert reader.spec(Efficiencies, "hand-tuned-gpu", "h200").one_shot_s == efficiencies("h200").one_shot_s
    elsewhere = efficiencies("mi300x")
    assert elsewhere.range("one_shot_s") == pytest.approx((0.5 * general.one_shot_s, 1.5 * general.one_shot_s))
