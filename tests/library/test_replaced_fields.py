"""A value of a machine is a field of a spec: replaced it moves the answer, and no name is asked again."""

from dataclasses import fields, replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.systems import Switch

TORUS, RACKS = tm.system("trn2-ultraserver"), tm.system("trn3-nl72x2-pcie160")


def on(where, **changes):
    """A system whose chip has changes."""
    return replace(where, chip=replace(where.chip, **changes))


def with_core(chip, **changes):
    """A chip whose core has changes."""
    return replace(chip, core=replace(chip.core, **changes))


def reduced(where, message_bytes=2**10, **more):
    """Time of an all-reduce."""
    return float(tm.collective("all_reduce", message_bytes, where, **more).time_s)


def product(chip, **more):
    """Time of a matrix product that is bound by loads."""
    return tm.kernel.matmul(chip, 64, 4096, 4096, **more)


CHIPS = tm.chip("trainium2"), tm.chip("trainium3")
MOVED = {
    "hop_s": lambda: (reduced(TORUS), reduced(on(TORUS, hop_s=9e-6))),
    "switch_s": lambda: (reduced(RACKS), reduced(replace(RACKS, switch_s=9e-6))),
    "scaleout_hop_s": lambda: tuple(
        reduced(replace(TORUS, count=2, scaleout_hop_s=latency)) for latency in (TORUS.scaleout_hop_s, 9e-5)
    ),
    "lane_bytes_per_s_per_dir": lambda: (
        reduced(RACKS, 2**28, rate_share=1.0),
        reduced(replace(RACKS, lane_bytes_per_s_per_dir=4e9), 2**28, rate_share=1.0),
    ),
    "scaleup_bytes_per_s_per_dir": lambda: (
        reduced(TORUS, 2**28, rate_share=1.0),
        reduced(
            replace(TORUS, scaleup_bytes_per_s_per_dir={"instance": 1e11, "ultraserver": 1e11}), 2**28, rate_share=1.0
        ),
    ),
    "network_bytes_per_s_per_dir": lambda: tuple(
        reduced(replace(TORUS, count=2, network_bytes_per_s_per_dir=rate), 2**28) for rate in (16e11, 1e11)
    ),
    "algorithm_max_bytes": lambda: (
        reduced(TORUS, 2**21, algorithm="neuron"),
        reduced(on(TORUS, algorithm_max_bytes={"mesh": 2.0**22, "rdh": 2.0**25}), 2**21, algorithm="neuron"),
    ),
    "hbm_accesses_per_pair": lambda: tuple(
        reduced(
            on(TORUS, hbm_bytes_per_s=1e10, hbm_accesses_per_pair={k: n * v for k, v in accesses.items()}),
            2**28,
            buffers="hbm",
        )
        for accesses in [TORUS.chip.hbm_accesses_per_pair]
        for n in (1, 2)
    ),
    "dma_linear_bytes": lambda: (
        product(CHIPS[0], weight_dtype="fp8").load_s,
        product(with_core(CHIPS[0], dma_linear_bytes=1e5), weight_dtype="fp8").load_s,
    ),
    "busy_core_share": lambda: tuple(
        product(chip, busy_cores=8).tensor_s for chip in (CHIPS[0], replace(CHIPS[0], busy_core_share=0.5))
    ),
    "dma_transpose_share": lambda: tuple(
        product(chip, transpose="dma").load_s
        for chip in (CHIPS[0], with_core(CHIPS[0], dma_transpose_share={"hbm-sbuf": 0.1}))
    ),
    "native_weight_dtypes": lambda: tuple(
        product(chip, weight_dtype="int8").vector_s
        for chip in (CHIPS[0], with_core(CHIPS[0], native_weight_dtypes={"bf16": ("int8",)}))
    ),
    "passes of an operator": lambda: tuple(
        tm.kernel.elementwise(
            CHIPS[0], replace(tm.kernel.operator("silu"), scalar_passes={"": passes}), 4096, 4096
        ).time_s
        for passes in (1.0, 50.0)
    ),
    "hbm_bytes": lambda: tuple(
        tm.memory_fit("llama-3.1-8b", where, batch=1, context=128).capacity_bytes
        for where in (RACKS, on(RACKS, hbm_bytes=2 * RACKS.chip.hbm_bytes))
    ),
    "default_stack": lambda: tuple(
        tm.decode_step("llama-3.1-8b", where, tm.Mapping(tp=8), batch=1, context=128).time_s
        for where in (TORUS, on(TORUS, default_stack="ideal"))
    ),
    "encoder_stack": lambda: tuple(
        tm.prefill("bert-base-uncased", where, tm.Mapping(tp=8), input_tokens=128).time_s
        for where in (TORUS, on(TORUS, encoder_stack="ideal"))
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_a_replaced_field_moves_the_answer(name):
    before, after = MOVED[name]()
    assert np.all(np.isfinite([before, after]))
    assert before != after


def test_what_a_core_can_do_is_a_field():
    old, new = CHIPS
    with pytest.raises(ValueError, match="has no indirect access"):
        product(old, gather="dereference")
    assert product(with_core(old, indirect_access=1.0), gather="dereference").time_s > 0
    with pytest.raises(ValueError, match="has none; use 'tensor' or 'dma'"):
        product(with_core(new, background_transpose=0.0), transpose="background")


def test_a_switch_is_a_field_by_id_or_as_a_part():
    small = Switch(id="mine", switch_lanes=8.0, switch_ports=1.0)
    with pytest.raises(ValueError, match="mine has 8 lanes, 1 ports"):
        tm.topology(replace(RACKS, switch=small))
    assert replace(RACKS, switch="scorpio-x-320").switch.switch_lanes == 320
    with pytest.raises(ValueError, match="trn3-nl72x2-pcie160: switch='nobody' is unknown"):
        replace(RACKS, switch="nobody")


def test_a_rack_with_twice_the_memory():
    twice = replace(RACKS, chip=replace(RACKS.chip, hbm_bytes=2 * RACKS.chip.hbm_bytes))
    assert twice.hbm_bytes == 2 * RACKS.hbm_bytes
    asked = {"batch": 700, "context": 131072, "mapping": tm.Mapping(tp=8)}
    fits = [tm.memory_fit("llama-3.1-8b", where, **asked) for where in (RACKS, twice)]
    assert fits[1].capacity_bytes == 2 * fits[0].capacity_bytes
    assert fits[1].total_bytes == fits[0].total_bytes


def named(spec, name="mine"):
    """A spec and all that it is made of under other ids."""
    inner = {f.name: getattr(spec, f.name) for f in fields(spec) if hasattr(getattr(spec, f.name), "sources")}
    return replace(spec, id=name, **{part: named(made, f"{name}-{part}") for part, made in inner.items()})


@pytest.mark.parametrize("where", [TORUS, RACKS], ids=lambda spec: spec.id)
def test_a_machine_of_another_name_gives_the_same_answers(where):
    mine = named(where)
    step = {"model": "mixtral-8x7b", "mapping": tm.Mapping(tp=2, ep=4), "batch": 8, "context": 2048}
    calls = [
        lambda it: tm.decode_step(system=it, **step).time_s,
        lambda it: tm.prefill("llama-3.1-8b", it, tm.Mapping(tp=4), input_tokens=4096).time_s,
        lambda it: tm.collective("all_to_all", 2**24, it).time_s,
        lambda it: tm.collective("all_reduce", 2**24, it, algorithm="neuron", buffers="hbm").time_s,
        lambda it: tm.topology(it).all_to_all_bytes_per_s_per_pair(),
        lambda it: tm.topology(it).bisection_bytes_per_s_per_dir,
        lambda it: (
            tm.kernel.matmul(
                it.chip, 4096, 4096, 4096, busy_cores=it.chip.cores, transpose="dma", weight_dtype="int8"
            ).time_s
        ),
        lambda it: tm.kernel.attention(it.chip, 4096, 4096).time_s,
        lambda it: tm.kernel.elementwise(it.chip, "softmax", 4096, 4096).time_s,
        lambda it: tm.kernel.dma(it.chip, 2**24, 512).time_s,
    ]
    for number, call in enumerate(calls):
        assert call(mine) == call(where), number
