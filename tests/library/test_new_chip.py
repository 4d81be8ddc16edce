"""A chip, its core, a system and a stack by rows of data alone; a row that is missing is named."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.serving.server import disaggregate

CORE, CHIP, SYSTEM, STACK = "neuroncore-x", "trainiumx", "trnx.16xlarge", "x-serving"
ENGINES = ("tensor", "vector", "scalar", "gpsimd")
ENTITIES = [
    f"{CORE},core,NeuronCore-X,AWS,,,",
    *(f"{CORE}.{part},engine,{part} of NeuronCore-X,AWS,,," for part in ENGINES),
    f"{CHIP},chip,Trainium X,AWS,{CORE},,",
    f"{SYSTEM},system,trnx.16xlarge,AWS,,,",
    f"{STACK},stack,Serving on Trainium X,AWS,,,",
]
PRINTED = [  # entity, quantity, qualifier, value, unit
    (CORE, "sbuf_bytes", "", "32", "MiB"),
    (CORE, "sbuf_partitions", "", "128", "1"),
    (CORE, "dma_engines", "", "16", "1"),
    (CORE, "dma_engine_bytes_per_s", "", "40", "GB/s"),
    (CORE, "dma_start_s", "", "2", "us"),
    *(
        ("tensor", *row)
        for row in (
            ("clock_hz", "", "2.4", "GHz"),
            ("array_rows", "", "128", "1"),
            ("max_stationary_cols", "", "128", "1"),
            ("max_moving_cols", "", "512", "1"),
            ("min_initiation_cycle", "", "64", "cycles"),
            ("access_overhead_cycle", "", "64", "cycles"),
            ("fp32_cost_ratio", "", "4", "1"),
            ("peak_flop_per_s", "bf16", "80", "TFLOPS"),
        )
    ),
    *(
        (part, *row)
        for part in ("vector", "scalar")
        for row in (
            ("clock_hz", "", "1.2", "GHz"),
            ("elements_per_cycle", "other", "128", "elements/cycle"),
            ("access_overhead_cycle", "", "60", "cycles"),
        )
    ),
    ("gpsimd", "clock_hz", "", "1.4", "GHz"),
    ("gpsimd", "access_overhead_cycle", "", "150", "cycles"),
    (CHIP, "cores", "", "4", "1"),
    (CHIP, "lnc_choices", "", "1 2", "text"),
    (CHIP, "lnc_default", "", "2", "1"),
    (CHIP, "peak_flop_per_s", "bf16", "1,000", "TFLOPS"),
    (CHIP, "hbm_bytes", "", "96", "GiB"),
    (CHIP, "hbm_bytes_per_s", "", "6", "TB/s"),
    (CHIP, "default_stack", "", STACK, "text"),
    (SYSTEM, "chips", "", "16", "1"),
    (SYSTEM, "status", "", "announced", "text"),
    (SYSTEM, "torus_shape", "", "4 4", "text"),
    (SYSTEM, "scaleup_bytes_per_s_per_dir", "", "800", "GB/s"),
    (STACK, "weight_stream_share", "", "0.7", "1"),
]
MORE = [(SYSTEM, "network_bytes_per_s_per_dir", "", "3,200", "Gb/s"), (CHIP, "busy_core_share", "", "80", "%")]
FILES = ("lists/entities.csv", "facts/chips.csv", "systems/systems.csv")
SYSTEMS = [f"{SYSTEM},{CHIP},torus,,project,assumed,"]


def fact(entity, quantity, qualifier, value, unit):
    """A line of `data/facts`."""
    entity = f"{CORE}.{entity}" if entity in ENGINES else entity
    label = f"{entity}/{quantity}:{qualifier}/project"
    return f'{label},{entity},{quantity},{qualifier},"{value}",{unit},project,assumed,D,made up'


@pytest.fixture
def rows(copied_data, forget_data):
    """A function that adds rows to a copy of `data/`, which is then the data."""
    before = {file: (copied_data / file).read_text(encoding="utf-8") for file in FILES}

    def add(entities=ENTITIES, facts=(*PRINTED, *MORE), systems=SYSTEMS):
        lines = (entities, [fact(*row) for row in facts], systems)
        for (file, text), more in zip(before.items(), lines, strict=True):
            (copied_data / file).write_text("\n".join([text.rstrip("\n"), *more, ""]), encoding="utf-8")
        forget_data()

    return add


def finite(answer, *names):
    """Whether an answer holds for every point, with these numbers above zero."""
    assert np.all(answer.valid), answer.reason
    return all(np.all(np.asarray(getattr(answer, name)) > 0) for name in names)


def ask():
    """Every public call on the new machine."""
    mapping = tm.Mapping(tp=8)
    request = tm.Request(512, 64, requests_per_s=0.1)
    where = {"model": "llama-3.1-8b", "system": SYSTEM, "mapping": mapping}
    assert finite(tm.decode_step(**where, batch=8, context=2048), "time_s", "memory_s", "network_s")
    assert finite(tm.decode_step("mixtral-8x7b", SYSTEM, tm.Mapping(tp=8, ep=4), batch=8, context=2048), "network_s")
    assert finite(tm.prefill(**where, input_tokens=2048), "time_s", "compute_s")
    assert finite(tm.memory_fit(**where, batch=8, context=2048), "total_bytes", "capacity_bytes")
    assert finite(tm.serve(**where, request=request, max_batch=8), "tokens_per_s")
    sides = {"prefill_system": SYSTEM, "prefill_mapping": mapping, "decode_system": SYSTEM, "decode_mapping": mapping}
    assert finite(disaggregate("llama-3.1-8b", **sides, batch=4, input_tokens=512, output_tokens=64), "transfer_s")
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "p2p"):
        assert finite(tm.collective(kind, 2**20, SYSTEM, chips=16), "time_s")
    net = tm.topology(SYSTEM)
    assert net.all_to_all_bytes_per_s_per_pair() == pytest.approx(2 * 200e9 / (16 * 1))  # rings of 4: mean distance 1
    assert tm.efficiencies(CHIP).weight_stream_share == 0.7
    assert finite(tm.kernel.matmul(CHIP, 4096, 4096, 4096, busy_cores=4), "time_s")
    assert finite(tm.kernel.attention(CHIP, 2048, 2048), "time_s")
    assert finite(tm.kernel.elementwise(CHIP, "softmax", 4096, 4096), "time_s")
    assert finite(tm.kernel.dma(CHIP, 2**20, 4096), "time_s")
    assert SYSTEM in tm.systems()
    assert CHIP in load.chips()
    assert (tm.facts().entity == CHIP).sum() == 8


def test_rows_alone_make_a_machine(rows):
    rows()
    ask()


@pytest.mark.parametrize("missing", ENTITIES, ids=lambda line: line.split(",")[0])
def test_a_missing_entity_is_named(rows, missing):
    rows(entities=[line for line in ENTITIES if line != missing])
    name, kind = missing.split(",")[:2]
    place = r"data/systems/systems\.csv: .*" if kind in ("chip", "system") else r"chips\.csv row \d+ .*column entity: "
    with pytest.raises(ValueError, match=rf"{place}'{name}'.* is not listed in data/"):
        ask()


@pytest.mark.parametrize("missing", PRINTED, ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_missing_fact_is_named(rows, missing):
    rows(facts=[row for row in (*PRINTED, *MORE) if row != missing])
    with pytest.raises(ValueError, match=r"data/facts/\S+\.csv") as error:
        ask()
    entity = f"{CORE}.{missing[0]}" if missing[0] in ENGINES else missing[0]
    assert entity in str(error.value)
    assert missing[1] in str(error.value) or missing[0] == STACK  # whose last row is gone


@pytest.mark.parametrize(
    ("quantity", "value", "words"),
    [
        (
            "status",
            "sold out",
            "status='sold out': allowed are analyst, announced, custom, for rent, our reading, roadmap",
        ),
        ("alternative_of", "trn9", "alternative_of='trn9' is unknown; nearest"),
        ("alternative_of", "trn3-nl72x2-aws-lanes", "trn3-nl72x2-aws-lanes is an alternative of another system itself"),
        ("alternative_of", SYSTEM, f"{SYSTEM} is this system itself"),
    ],
)
def test_a_row_with_no_status_or_no_primary_system_is_named(rows, quantity, value, words):
    left = [row for row in (*PRINTED, *MORE) if row[:2] != (SYSTEM, quantity)]
    rows(facts=[*left, (SYSTEM, quantity, "", value, "text")])
    with pytest.raises(ValueError, match=rf"data/facts/\*\.csv: rows of {SYSTEM}: .*{words}"):
        tm.system(SYSTEM)


def test_a_missing_system_is_named(rows):
    rows(systems=[])
    with pytest.raises(ValueError, match=rf"data/systems/systems\.csv has no row of {SYSTEM}"):
        ask()


def test_a_chip_that_is_not_listed_is_named(rows):
    rows(systems=[SYSTEMS[0].replace(CHIP, "trainiumy")])
    with pytest.raises(ValueError, match=r"data/systems/systems\.csv: .*'trainiumy' is not listed"):
        ask()


def test_a_chip_without_a_default_stack_takes_the_one_that_is_given():
    where = tm.system("trn2.48xlarge")
    bare = replace(where, chip=replace(where.chip, id="mine", default_stack=""))
    asked = {"model": "llama-3.1-8b", "mapping": tm.Mapping(tp=8), "batch": 1, "context": 128}
    with pytest.raises(
        ValueError, match="efficiencies=None: mine has no public stack; name another one, such as 'ideal'"
    ):
        tm.decode_step(system=bare, **asked)
    given = tm.decode_step(system=bare, **asked, efficiencies="vllm-neuron-2026")
    assert given.time_s == tm.decode_step(system=where, **asked).time_s


def test_a_chip_runs_on_public_software_or_says_that_nothing_runs():
    """NVIDIA's on their own stack, AMD's and TPUs on its stand-in, AWS's on theirs, Trainium4 on an assumption."""
    found = {chip: load.chip(chip).default_stack for chip in load.chips()}
    assert found.pop("trainium4-roadmap") == "neuron-roadmap"
    others = {"gpu-serving" if load.chip(chip).vendor == "NVIDIA" else "gpu-serving-elsewhere" for chip in found}
    assert others == {"gpu-serving", "gpu-serving-elsewhere"}
    wanted = {"AWS": "nxd-inference", "NVIDIA": "gpu-serving", "AMD": "gpu-serving-elsewhere"}
    wanted["Google"] = wanted["AMD"]
    today = dict.fromkeys(("trainium2", "trainium3"), "vllm-neuron-2026")
    assert found == {chip: wanted[load.chip(chip).vendor] for chip in found} | today
    encoders = {chip: load.chip(chip).encoder_stack for chip in load.chips()}
    assert {load.chip(chip).vendor for chip, stack in encoders.items() if stack} == {"AWS"}
    bare = replace(tm.chip("trainium4-roadmap"), default_stack="")
    with pytest.raises(ValueError, match="trainium4-roadmap has no public stack"):
        tm.decode_step("llama-3.1-8b", bare, batch=1, context=128)
