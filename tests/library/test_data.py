"""The files of `data/`: everything sourced, every conflict decided, printed totals are sums of printed parts."""

import re
from collections import defaultdict

import numpy as np
import pytest

from trnmodel import kernel
from trnmodel.catalog import load
from trnmodel.catalog.names import folded
from trnmodel.catalog.tables import DataError

CONFLICTS = range(1, 62)  # the list of disagreements between sources that the project started from


def test_there_are_facts_and_every_one_is_sourced_and_located():
    facts = load.facts()
    assert len(facts) >= 1000
    assert not facts[["id", "source", "locator", "value_printed", "status", "reason"]].eq("").any().any()
    assert facts.source.isin(load.sources()).all()
    assert facts.id.is_unique


def test_saved_texts_are_cited_by_line():
    facts = load.facts()
    saved = [name for name, source in load.sources().items() if "saved copy" in source.note]
    assert sorted(saved) == ["trainium3-deep-dive", "trainium3-encyclopedia", "trn1-arch", "trn2-arch", "trn3-arch"]
    assert facts[facts.source.isin(saved)].locator.str.contains(r"L\d").all()
    assert all(re.fullmatch(r"[0-9a-f]{64}", load.sources()[name].sha256) for name in saved)


def test_every_number_has_a_value_in_base_units():
    numbers = load.facts().query("unit_si != 'text'")
    assert numbers.value_si.notna().all()
    assert (numbers.low_si <= numbers.value_si).all()
    assert (numbers.value_si <= numbers.high_si).all()


def test_our_own_estimates_carry_their_formula():
    estimates = load.facts().query("confidence == 'D'")
    assert len(estimates) > 20
    reasoned = estimates.note.ne("") | estimates.locator.str.match("derived|assumed|counted|ideal")
    assert reasoned.all()


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_every_conflict_is_decided_or_open_with_a_reason(conflict):
    items = [item for item in load.decisions() if item.conflict == conflict]
    assert items
    assert all(len(item.reason) > 40 or item.use for item in items)
    assert all(item.reason and re.fullmatch(r"\d{4}-\d\d-\d\d", item.date) for item in items)


def test_rejected_claims_stay_visible_with_the_reason():
    peaks = load.facts().query(
        "entity == 'trainium1' and quantity == 'peak_flop_per_s' and qualifier.str.contains('bf16')"
    )
    verdicts = peaks.groupby("value_printed").status.first().to_dict()
    assert verdicts == {"190": "chosen", "191": "rejected", "210": "rejected", "0.19": "chosen"}
    assert peaks.query("value_printed == '210'").reason.str.contains("April 2023").all()


NEURON = [name for name, row in load.entities().items() if row.kind == "chip" and row.core and not row.base]


@pytest.mark.parametrize("chip", NEURON)
def test_a_peak_of_a_chip_is_one_that_its_cores_multiply_at(chip):
    """Printed chip totals are 3 % (BF16 of Trainium) to 14 % (FP32 of Trainium3) above the sum of the printed cores."""
    chip = load.chip(chip)
    for dtype, peak in chip.peak_flop_per_s.items():
        assert np.isfinite(kernel.matmul(chip, 16384, 16384, 16384, dtype).time_s)
        assert 0.99 < peak / (chip.cores * chip.core.tensor.peak_flop_per_s[dtype]) < 1.15


@pytest.mark.parametrize("core", ["neuroncore-v3.tensor", "neuroncore-v4.tensor"])
def test_plain_fp8_is_the_double_mode_of_bf16(core):
    """158 TFLOPS are printed for FP8 on NeuronCore-v3, twice its 79; the same instruction gives v4 no more."""
    ratio = load.value(core, "double_row_ratio", "fp8")
    assert load.value(core, "peak_flop_per_s", "fp8") == ratio * load.value(core, "peak_flop_per_s", "bf16") == 158e12
    assert load.value("trainium3", "peak_flop_per_s", "fp8") == 2 * 671e12
    assert load.value("trainium3", "peak_flop_per_s", "mxfp8") == 2517e12


def test_a_peak_that_no_instruction_reaches_is_kept_as_printed():
    for chip in ("trainium1", "inferentia2"):
        assert load.value(chip, "printed_peak_op_per_s", "int8") == 380e12
        assert "int8" not in load.chip(chip).peak_flop_per_s


NO_LISTING = {"trainium1", "trainium2", "inferentia2", "trainium4-roadmap"}  # the decision on memory says so


def test_memory_is_what_the_device_lists():
    """MiB of nvidia-smi, bytes of rocm-smi, KB of rocminfo, the limit of a runtime; never a GB of a data sheet."""
    facts = load.facts()
    listed = facts[(facts.quantity == "hbm_bytes") & facts.note.str.startswith("device l")]
    assert set(load.chips()) - set(listed.entity) == NO_LISTING
    for fact in listed.itertuples():
        assert load.chip(fact.entity).hbm_bytes == fact.value_si
    assert [chip for chip in load.chips() if load.chip(chip).hbm_bytes % 1e9 == 0] == []


def test_an_open_disagreement_is_a_pair():
    claims = load.facts().query("entity == 'trainium3' and quantity == 'hbm_bytes_per_s'")
    assert set(claims.status) == {"open"}
    assert load.fact_in_force("trainium3", "hbm_bytes_per_s")[1:] == (4.9e12, (4.7e12, 4.9e12))


def test_names_point_to_one_thing():
    """Each kind has a table of its own: "Trn2" is a chip among chips, and an instance among systems."""
    meant = defaultdict(set)
    for row in load.names():
        meant[load.entities()[row.id].kind, folded(row.alias)].add(row.id)
        assert load.resolve(load.entities()[row.id].kind, row.alias) == row.id
    assert [ids for ids in meant.values() if len(ids) > 1] == []


# The expected value is a printed total, the factors are printed too; nothing here was computed by the project first.
TOTALS = {
    "16 x 2.9 = 46.4": (("trn2.48xlarge", "hbm_bytes_per_s"), ("trainium2", "hbm_bytes_per_s"), 16, 0),
    "64 x 2.9 = 185.6": (("trn2-ultraserver", "hbm_bytes_per_s"), ("trainium2", "hbm_bytes_per_s"), 64, 0),
    "64 x 4.9 = 313.6": (("trn3-nl32x2-pcie160", "hbm_bytes_per_s"), ("trainium3", "hbm_bytes_per_s"), 64, 0),
    "144 x 4.9 = 705.6": (("trn3-nl72x2-pcie160", "hbm_bytes_per_s"), ("trainium3", "hbm_bytes_per_s"), 144, 0),
    "16 x 190 = 3,040": (("trn1.32xlarge", "peak_flop_per_s", "bf16"), ("trainium1", "peak_flop_per_s", "bf16"), 16, 0),
    "12 x 190 = 2,280": (
        ("inf2.48xlarge", "peak_flop_per_s", "bf16"),
        ("inferentia2", "peak_flop_per_s", "bf16"),
        12,
        0,
    ),
    "16 x 47.5 = 760": (("trn1.32xlarge", "peak_flop_per_s", "fp32"), ("trainium1", "peak_flop_per_s", "fp32"), 16, 0),
    # totals in PFLOPS are printed with three digits: 16 x 667 = 10.672, 16 x 1,299 = 20.784, 64 x 2,563 = 164.032
    "16 x 667 = 10.7 P": (
        ("trn2.48xlarge", "peak_flop_per_s", "bf16"),
        ("trainium2", "peak_flop_per_s", "bf16"),
        16,
        0.005,
    ),
    "64 x 1,299 = 83.2 P": (
        ("trn2-ultraserver", "peak_flop_per_s", "fp8"),
        ("trainium2", "peak_flop_per_s", "fp8"),
        64,
        0.001,
    ),
    "64 x 2,563 = 164 P": (
        ("trn2-ultraserver", "sparse_peak_flop_per_s", "fp8"),
        ("trainium2", "sparse_peak_flop_per_s", "fp8"),
        64,
        0.001,
    ),
    "64 x 2,517 = 161,088": (
        ("trn3-nl32x2-pcie160", "peak_flop_per_s", "mxfp8"),
        ("trainium3", "peak_flop_per_s", "mxfp8"),
        64,
        0,
    ),
    "144 x 671 = 96,624": (
        ("trn3-nl72x2-pcie160", "peak_flop_per_s", "bf16"),
        ("trainium3", "peak_flop_per_s", "bf16"),
        144,
        0,
    ),
    "144 x 183 = 26,352": (
        ("trn3-nl72x2-pcie160", "peak_flop_per_s", "fp32"),
        ("trainium3", "peak_flop_per_s", "fp32"),
        144,
        0,
    ),
    "16 x 96 GiB = 1,536 GiB": (("trn2.48xlarge", "hbm_bytes"), ("trainium2", "hbm_bytes"), 16, 0),
    "144 x 144 GiB = 20,736 GiB": (("trn3-nl72x2-pcie160", "hbm_bytes"), ("trainium3", "hbm_bytes"), 144, 0),
    "16 x 200 Gb/s = 3,200 Gb/s": (
        ("trn2.48xlarge", "network_bytes_per_s_per_dir"),
        ("trainium2", "scaleout_bytes_per_s_per_dir"),
        16,
        0,
    ),
    "144 x 200 Gb/s = 28,800 Gb/s": (
        ("trn3-nl72x2-pcie160", "network_bytes_per_s_per_dir"),
        ("trainium3", "scaleout_bytes_per_s_per_dir"),
        144,
        0,
    ),
    "8 x 28 MiB = 224 MiB": (("trainium2", "sbuf_bytes"), ("neuroncore-v3", "sbuf_bytes"), 8, 0),
    "8 x 32 MiB = 256 MiB": (("trainium3", "sbuf_bytes"), ("neuroncore-v4", "sbuf_bytes"), 8, 0),
    "128 x 224 KiB = 28 MiB": (("neuroncore-v3", "sbuf_bytes"), ("neuroncore-v3", "sbuf_partition_bytes"), 128, 0),
    "128 x 16 KiB = 2 MiB": (("neuroncore-v2", "psum_bytes"), ("neuroncore-v2", "psum_partition_bytes"), 128, 0),
    "16 x 23 = 368 GB/s": (("neuroncore-v3", "dma_bytes_per_s"), ("neuroncore-v3", "dma_engine_bytes_per_s"), 16, 0),
    "8 x 315 = 2,520 against 2,517": (
        ("trainium3", "peak_flop_per_s", "mxfp8"),
        ("neuroncore-v4.tensor", "peak_flop_per_s", "mxfp8"),
        8,
        0.002,
    ),
    "4 x 36 GiB = 144 GiB": (("trainium3", "hbm_bytes"), ("trainium3", "hbm_stack_bytes"), 4, 0),
}


@pytest.mark.parametrize("name", TOTALS)
def test_printed_totals_are_sums_of_printed_parts(name):
    total, part, count, tolerance = TOTALS[name]
    assert count * load.value(*part) == pytest.approx(load.value(*total), rel=tolerance or 1e-12)


@pytest.mark.parametrize(
    ("chip", "printed"),
    # 3.2 Gb/s x 1,024 x 2 / 8 = 819.2 GB/s; 5.7 x 1,024 x 4 / 8 = 2.918 TB/s; 9.6 x 1,024 x 4 / 8 = 4.915 TB/s
    [("trainium1", 820e9), ("trainium2", 2.9e12), ("trainium3", 4.9e12), ("mi210", 1.6384e12)],
)
def test_memory_bandwidth_is_stacks_times_pins_times_rate(chip, printed):
    factors = [load.value(chip, quantity) for quantity in ("hbm_stacks", "hbm_stack_pins", "hbm_pin_bytes_per_s")]
    assert factors[0] * factors[1] * factors[2] == pytest.approx(printed, rel=0.007)
    assert load.value(chip, "hbm_bytes_per_s") == printed


@pytest.mark.parametrize("core", ["neuroncore-v2", "neuroncore-v3", "neuroncore-v4"])
def test_core_peak_is_array_times_clock(core):
    # 2 x 128 x 128 x 2.8 GHz = 91.75; x 2.4 GHz = 78.64 TFLOP/s; printed 92, 79, 79
    rows, columns, clock = (load.value(f"{core}.tensor", q) for q in ("array_rows", "array_cols", "clock_hz"))
    assert 2 * rows * columns * clock == pytest.approx(
        load.value(f"{core}.tensor", "peak_flop_per_s", "bf16"), rel=0.005
    )


def test_vector_clock_ratio_of_the_deep_dive():
    ratio = load.value("neuroncore-v4.vector", "clock_hz") / load.value("neuroncore-v3.vector", "clock_hz")
    assert ratio == pytest.approx(load.value("neuroncore-v4.vector", "clock_ratio_to_previous"))


def test_scale_up_of_trainium3_is_lanes_times_lane():
    chip, lane = load.chip("trainium3"), load.value("pcie-gen6-lane", "scaleup_bytes_per_s_per_dir")
    assert chip.scaleup_lanes * lane == chip.scaleup_bytes_per_s_per_dir == 1.152e12
    total = load.value("trainium3", "scaleup_lanes_total")
    assert chip.scaleup_lanes + chip.scaleup_lanes_redundant == total == 160
    assert 2 * total * lane == load.value("trainium3", "scaleup_bytes_per_s_both_dirs")  # 160 x 8 x 2 = 2,560 GB/s


def test_a_ruling_on_units_is_what_is_stored():
    """128 lanes of PCIe Gen6 of 8 GB/s in both directions are the 2,048 that AWS heads GiB."""
    printed = load.facts().query("quantity == 'scaleup_bytes_per_s_both_dirs'").set_index("entity")
    labelled = printed[printed.unit_printed == "GiB/sec"]
    assert len(labelled) >= 8  # the pages of three generations, two editions of one
    assert labelled.loc["trn3-nl72x2-pcie160"].value_si.tolist() == [128 * 8e9 * 2] * 2
    assert (labelled.value_si == labelled.value_printed.str.replace(",", "").astype(float) * 1e9).all()
    memory = load.facts().query("quantity == 'hbm_bytes' and unit_printed == 'GiB'")
    assert (memory.value_si % 2**30 == 0).all()  # a ruling on links leaves what is binary alone


@pytest.fixture
def edit(copied_data):
    """A function that replaces text once in a file of a copy of `data/`, which is then the data."""

    def replace(file: str, old: str, new: str) -> None:
        path = copied_data / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return replace


def test_a_ruling_on_a_unit_that_nobody_knows_is_refused(edit):
    edit("decisions.yaml", "read_as: {GiB/sec: GB/s}", "read_as: {GiB/sec: furlong/s}")
    with pytest.raises(DataError, match=r"no unit 'furlong/s'"):
        load.facts()


HBM = "trainium2/hbm_bytes_per_s/ah-trainium2,trainium2,hbm_bytes_per_s,,2.9,TB/sec,ah-trainium2,L30 Device Memory,A,"


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("facts/chips.csv", "confidence,note", "trust,note", r"chips\.csv row 1: columns are .*expected"),
        ("facts/chips.csv", HBM, HBM.replace(",A,", ",Z,"), r"chips\.csv row \d+: .*column confidence"),
        ("facts/chips.csv", HBM, HBM + ",,", r"chips\.csv row \d+: expected 10 cells"),
        (
            "facts/chips.csv",
            HBM,
            HBM.replace("TB/sec", "TB per s"),
            r"chips\.csv row \d+ .*unit_printed: 'TB per s' is not",
        ),
        (
            "facts/chips.csv",
            HBM,
            HBM.replace("TB/sec", "GiB"),
            r"chips\.csv row \d+ .*unit_printed: 'GiB' is in B, not in B/s",
        ),
        (
            "facts/chips.csv",
            HBM,
            HBM.replace("2.9,", "fast,"),
            r"chips\.csv row \d+ .*value_printed: 'fast' is no number",
        ),
        (
            "facts/chips.csv",
            HBM,
            HBM.replace(",L30 Device Memory,", ",,"),
            r"chips\.csv row \d+ .*column locator is empty",
        ),
        (
            "facts/chips.csv",
            HBM,
            HBM.replace(",ah-trainium2,L30", ",rumour,L30"),
            r"column source: 'rumour' is not listed",
        ),
        (
            "facts/chips.csv",
            HBM,
            HBM.replace(",trainium2,", ",trainium9,"),
            r"column entity: 'trainium9' is not listed",
        ),
        ("facts/chips.csv", HBM, f"{HBM}\n{HBM}", r"facts/\*\.csv: column id: .*occurs twice"),
        (
            "facts/chips.csv",
            "nk-trainium2,trainium2,hbm_bytes_per_s,,3,",
            "nk-trainium2,trainium2,hbm_bytes_per_s,,3.1,",
            r"decisions\.yaml item \d+ .*= '3', which now prints '3\.1': decide again",
        ),
        (
            "facts/chips.csv",
            "nk-trainium2,trainium2,hbm_stacks,,4,",
            "nk-trainium2,trainium2,hbm_stacks,,4,stacks,nk-trainium2,L16,A,\nx,trainium2,hbm_stacks,,6,",
            r"trainium2/hbm_stacks\[\]: sources disagree and decisions\.yaml does not decide",
        ),
        ("decisions.yaml", 'use: "trainium2/cores/ah-trainium2"', 'use: "trainium2/cores/nobody"', r"unknown fact"),
        ("decisions.yaml", "  conflict: 11\n", "  conflict: eleven\n", r"decisions\.yaml item \d+: .*conflict"),
        ("decisions.yaml", "  quantity: hbm_bytes_per_s\n", "  quantity: hbm_bytes\n", r"does not speak of"),
        (
            "decisions.yaml",
            "  conflict: 11\n",
            "  conflict: 11\n  conflict: 12\n",
            r"decisions\.yaml: .*line \d+: .*'conflict'",
        ),
        ("decisions.yaml", "  conflict: 11\n", "  conflict: 190:20\n", r"decisions\.yaml: .*line \d+: '190:20'"),
        ("lists/units.csv", "GB,B,1e9", "GB,B,many", r"units\.csv row \d+: .*factor"),
    ],
)
def test_a_planted_error_is_named_by_file_row_and_column(edit, file, old, new, message):
    edit(file, old, new)
    with pytest.raises(DataError, match=message):
        load.facts()


def test_an_alias_must_point_to_something(edit):
    edit("lists/names.csv", "Trn2,trainium2,", "Trn2,trainium22,")
    with pytest.raises(DataError, match=r"names\.csv row \d+: column id: 'trainium22'"):
        load.chip("Trn2")


def test_dropping_a_decision_fails(edit):
    edit("decisions.yaml", 'qualifier: "fp16|bf16|cfp8|tf32"', 'qualifier: "fp16|cfp8|tf32"')
    with pytest.raises(DataError, match=r"trainium1/peak_flop_per_s\[bf16\]: sources disagree"):
        load.chip("trainium1")
