"""Every number of every spec may be an array: three values at once are the three answers of three calls."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import get_type_hints

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.specs import Engine, Spec
from trnmodel.catalog.stacks import IDEAL, Efficiencies
from trnmodel.catalog.systems import Switch, System
from trnmodel.result import Result
from trnmodel.serving.server import disaggregate
from trnmodel.steps.rank import site

FACTORS = np.array([1.0, 1.0, 0.75])  # two are the spec itself, whose answers are the same for every field
BATCH = np.array([[1.0], [4.0], [16.0], [64.0]])
CLOSE = {"rtol": 1e-12, "atol": 0.0}

CHIP = tm.chip("trainium2")
RACKS = tm.system("trn3-nl32x2-pcie160")
TORUS = replace(tm.system("trn2-ultraserver"), count=2)
SINGLE = tm.system("trn2.3xlarge")
STACK = tm.efficiencies("trainium2")
BLOCKS = replace(tm.efficiencies("trainium3"), prefill_experts="blocks", expert_block_tokens=512.0)
KERNEL = tm.kernel.stack("stack-nki")
LOAD = {"request": tm.Request(900, 90, requests_per_s=0.01), "max_batch": 8}
PLAUSIBLE = {  # where a spec has no number of its own to perturb
    "_s": 1e-6,
    "_bytes": 2.0**20,
    "_bytes_per_s": 1e10,
    "_bytes_per_s_per_dir": 1e10,
    "_w": 500.0,
    "_share": 0.5,
    "_ratio": 2.0,
    "_tokens": 512.0,
    "_columns": 512.0,
    "_cycle": 64.0,
    "_cycle_per_element": 0.5,
    "_overlap": 1.0,
}


def numbers(spec):
    """Fields of a spec that hold a number, or numbers by word, with their kind."""
    hints = get_type_hints(type(spec))
    provenance = {field.name for field in fields(Spec)}
    found = {field.name: hints[field.name] for field in fields(spec) if field.name not in provenance}
    return [
        name
        for name, hint in found.items()
        if hint is float or str(hint).startswith("collections.abc.Mapping[str, float")
    ]


def plausible(name, now):
    """A number to perturb: the field's own, else one of its kind."""
    if np.isfinite(now) and now > 0:
        return now
    return next((number for ending, number in PLAUSIBLE.items() if name.endswith(ending)), 3.0)


def perturbed(spec, name, point=slice(None), factors=FACTORS):
    """A spec with three values of a field, or with one of them; of what a stack may lack altogether one lacks it."""
    now = getattr(spec, name)
    if isinstance(spec, Efficiencies) and getattr(IDEAL, name) in (0, np.inf) and name != "expert_block_tokens":
        last = getattr(IDEAL, name)
        return replace(spec, **{name: np.append(factors[1:] * np.asarray(plausible(name, now)), last)[point]})
    if isinstance(now, Mapping):
        return replace(spec, **{name: {key: factors[point] * value for key, value in now.items()}})
    return replace(spec, **{name: factors[point] * plausible(name, now)})


# an array of a field is given with the call as a whole, whatever one point of it is
GIVEN = ("basis", "basis_reason", "low", "high", "measured_share")


def answers(found):
    """The numbers of an answer by name."""
    if isinstance(found, Result):
        values = {field.name: getattr(found, field.name) for field in fields(found)}
        for kind in type(found).__mro__:
            names = [name for name, item in vars(kind).items() if isinstance(item, property) and name not in GIVEN]
            values |= {name: getattr(found, name) for name in names}
        return {name: v for name, v in values.items() if isinstance(v, np.ndarray | np.generic | float | int | str)}
    return found if isinstance(found, dict) else {"answer": found}


def same(many, ones, call):
    """Hold the numbers of an answer for three values to those of the three answers, the last axis being theirs."""
    for name, value in answers(many).items():
        for point, one in enumerate(ones):
            expected = np.asarray(one[name])
            taken = np.asarray(value)
            taken = taken[..., point] if taken.ndim and taken.shape[-1] == len(FACTORS) else taken
            taken = taken[..., None] if taken.ndim < expected.ndim else taken
            expected = np.broadcast_to(expected, np.broadcast_shapes(expected.shape, taken.shape))
            taken = np.broadcast_to(taken, expected.shape)
            if taken.dtype.kind in "OUb":
                assert (taken == expected).all(), (call, name, point)
            else:
                np.testing.assert_allclose(taken, expected, err_msg=f"{call} {name} {point}", **CLOSE)


def steps(where, stack, **shape):
    """Steps and memory of a dense model and of a mixture of experts; serving where the batch is one number."""
    wide = {"tp": np.array([[2], [4], [8], [16]]), "ep": 2} if shape else {"tp": 4, "pp": 2, "ep": 2, "cp": 2}
    batch = shape.get("batch", 8.0)
    for model, mapping in (("llama-3.1-8b", tm.Mapping(tp=8)), ("mixtral-8x7b", tm.Mapping(**wide))):
        ask = {"model": model, "system": where, "mapping": mapping, "efficiencies": stack}
        yield lambda ask=ask: tm.decode_step(**ask, batch=batch, context=3000)
        yield lambda ask=ask: tm.prefill(**ask, batch=batch, input_tokens=700)
        yield lambda ask=ask: tm.memory_fit(**ask, batch=batch, context=3000)
        if not shape:
            yield lambda ask=ask: tm.serve(**ask, **LOAD)


def served(where, stack):
    """Serving with as many as there are, a search over the batch."""
    yield lambda: tm.serve(
        "llama-3.1-8b", **LOAD, system=where, mapping=tm.Mapping(tp=8), efficiencies=stack, compiled=False
    )


def sent(where, **more):
    """Collectives of every kind, small and large."""
    sizes = np.array([[1e3], [1e8]])
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"):
        for ranks in ({"chips": 16}, {"ranks": 8, "stride": 4}, {}):
            if ranks or isinstance(where, System):
                yield lambda kind=kind, ranks=ranks: tm.collective(kind, sizes, where, **ranks, **more)
    yield lambda: tm.collective("all_reduce", BATCH * 1e6, where, ranks=np.array([[2], [8], [16], [64]]), **more)
    yield lambda: tm.collective("all_reduce", 1e6, where, ranks=8, algorithm="neuron", buffers="hbm", **more)


def fabric(where):
    """What a fabric answers."""
    net = tm.topology(where)
    yield lambda: {f"all to all {scope}": net.all_to_all_bytes_per_s_per_pair(scope) for scope in ("world", "rack")}
    yield lambda: {"bisection": net.bisection_bytes_per_s_per_dir, "injection": net.injection_bytes_per_s_per_dir}
    yield lambda: net.injection_by_medium() | {"over": net.oversubscription(), "rack": net.oversubscription("rack")}
    if where.fabric == "planes":
        yield lambda: {"flow": net.without(switch_trays=[(0, 0)]).all_to_all_bytes_per_s_per_pair()}


def kernels(chip, stack=KERNEL):
    """Kernels of every kind."""
    ask = {"stack": stack, "collective_bytes_per_s": 1e9}
    yield lambda: tm.kernel.matmul(chip, 5000, 4096, 1000, **ask)
    yield lambda: tm.kernel.matmul(chip, BATCH, 4096, 1000, "fp32", busy_cores=chip.cores, transpose="dma", **ask)
    yield lambda: tm.kernel.matmul(chip, 300, 700, 1000, buffering="tile", gather="rows", weight_dtype="fp8", **ask)
    yield lambda: tm.kernel.attention(chip, 512, 512, heads=8, lnc=2, **ask)
    yield lambda: tm.kernel.attention(chip, BATCH, 4096, heads=8, kv_heads=2, **ask)
    for op in ("softmax", "mask"):
        yield lambda op=op: tm.kernel.elementwise(chip, op, 3000, 4000, **ask)
    yield lambda: tm.kernel.dma(chip, 2**20, 300, transfers=4, queued=0.5, **ask)


def roofline(chip):
    """The roofline of a chip."""
    yield lambda: tm.roofline.time_s(1e15, 1e12, chip.peak("bf16"), chip.hbm_bytes_per_s, 1.0)
    yield lambda: site(chip, 1).hbm_bytes


def of_chip(chip):
    """Every call that a chip goes into."""
    yield from roofline(chip)
    yield from kernels(chip)
    for where in (chip, replace(TORUS, chip=chip)):
        yield from steps(where, STACK)
        yield from sent(where)
    yield from served(chip, STACK)
    yield from steps(replace(TORUS, chip=chip), "ideal", batch=BATCH)
    yield from steps(replace(RACKS, chip=replace(chip, cores=8.0)), STACK, batch=BATCH)
    yield lambda: disaggregate(
        "llama-3.1-8b",
        chip,
        tm.Mapping(tp=4),
        replace(TORUS, chip=chip),
        tm.Mapping(tp=8),
        batch=4,
        input_tokens=100,
        output_tokens=100,
    )
    star = replace(tm.system("hgx-h100"), chip=chip)
    yield from fabric(star)
    yield from sent(star)


def of_core(core):
    """Every call that a core goes into."""
    chip = replace(CHIP, core=core)
    yield from kernels(chip)
    yield lambda: tm.decode_step("llama-3.1-8b", chip, tm.Mapping(tp=8), batch=BATCH, context=3000, efficiencies=STACK)
    yield lambda: tm.prefill("llama-3.1-8b", chip, tm.Mapping(tp=8), batch=BATCH, input_tokens=900, efficiencies=STACK)
    yield lambda: tm.collective("all_reduce", BATCH, replace(SINGLE, chip=chip), lnc=1)


def of_system(where):
    """Every call that a system goes into."""
    yield from fabric(where)
    yield from sent(where)
    yield from steps(where, STACK)
    yield from steps(where, "ideal", batch=BATCH)
    yield lambda: {name: getattr(where, name) for name in ("nics", "hbm_bytes", "scaleout_bytes_per_s_per_dir")}
    yield lambda: disaggregate(
        "llama-3.1-8b", where, tm.Mapping(tp=8), TORUS, tm.Mapping(tp=8), batch=4, input_tokens=100, output_tokens=100
    )


def of_stack(stack):
    """Every call that a software stack goes into."""
    yield from steps(TORUS, stack)
    yield from served(CHIP, stack)
    yield from steps(CHIP, stack, batch=BATCH)
    yield from sent(TORUS, efficiencies=stack)
    yield from steps("hgx-h100", stack, batch=BATCH)


def of_kernel_stack(stack):
    """Every call that a way of writing kernels goes into."""
    yield from kernels(CHIP, stack)


def engine(part):
    """An engine, and every call that it goes into."""
    return getattr(CHIP.core, part), lambda found: of_core(replace(CHIP.core, **{part: found}))


SPECS = {
    "chip": (CHIP, of_chip),
    "core": (CHIP.core, of_core),
    **{part: engine(part) for part in ("tensor", "vector", "scalar", "gpsimd")},
    "racks": (RACKS, of_system),
    "torus": (TORUS, of_system),
    "stack": (BLOCKS, of_stack),
    "kernel stack": (KERNEL, of_kernel_stack),
    "switch": (RACKS.switch, None),
}


@cache
def own_answers(kind):
    """What the calls of a spec answer as it is."""
    spec, calls = SPECS[kind]
    return [answers(call()) for call in calls(spec)]


CASES = [(kind, name) for kind, (spec, _) in SPECS.items() for name in numbers(spec)]
VARIED = [(kind, name) for kind, name in CASES if name not in SPECS[kind][0].COUNTS]


def hold(kind, factors):
    """Three values of some fields at once, in one call, are the three answers of three calls."""
    spec, calls = SPECS[kind]
    many = spec
    ones = [spec] * len(FACTORS)
    for name, by in factors.items():
        many = perturbed(many, name, factors=by)
        ones = [perturbed(one, name, point, by) for point, one in enumerate(ones)]
    apart = [own_answers(kind) if one == spec else [answers(call()) for call in calls(one)] for one in ones]
    for number, (call, *expected) in enumerate(zip(calls(many), *apart, strict=True)):
        same(call(), expected, f"{kind}.{', '.join(factors)}, call {number}")


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in VARIED}))
def test_three_values_of_all_fields_are_three_calls(kind):
    """Each field by a factor of its own: where all fell alike, rates and sizes would leave a time as it was."""
    names = [name for varied, name in VARIED if varied == kind]
    hold(kind, {name: np.array([1.0, 1.0, 0.7 + 0.25 * n / len(names)]) for n, name in enumerate(names)})


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), VARIED)
def test_three_values_of_a_field_are_three_calls(kind, name):
    hold(kind, {name: FACTORS})


@pytest.mark.parametrize(("kind", "name"), [case for case in CASES if case[1] in SPECS[case[0]][0].COUNTS])
def test_counts_that_shape_a_machine_are_one_number(kind, name):
    spec = SPECS[kind][0]
    now = getattr(spec, name)
    wrong = {"pcb": [1.0, 2.0]} if isinstance(now, Mapping) else [1.0, 2.0]
    with pytest.raises(ValueError, match=rf"{spec.id}: {name}.*one number, for it shapes the machine"):
        replace(spec, **{name: wrong})


def test_counts_are_a_closed_list():
    counts = {kind: set(kind.COUNTS) for kind in (type(CHIP), type(CHIP.core), Engine, Switch, System, type(STACK))}
    assert {kind.__name__: len(found) for kind, found in counts.items() if found} == {
        "Chip": 3,
        "Switch": 2,
        "System": 21,
    }
    assert all(not name.endswith(("_bytes", "_s", "_dir", "_w")) for found in counts.values() for name in found)
