"""Specs built from facts: every id, names, provenance, ranges, immutability."""

import copy
import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load, reader
from trnmodel.catalog.facilities import Power, power
from trnmodel.catalog.reader import lineage
from trnmodel.catalog.specs import Chip, Precision, _number_check
from trnmodel.catalog.stacks import Efficiencies, _widened
from trnmodel.catalog.tables import DataError, Decision, Fact, by_id, read_yaml
from trnmodel.steps.rank import site

CHIPS = """trainium1 trainium2 trainium3 inferentia2 trainium4-roadmap a100 h100 h200 b200 gb200 b300 gb300 mi210 mi300x
mi355x tpu-v4 tpu-v5e tpu-v5p tpu-v6e tpu-v7""".split()
GIB = tm.units.GIB


@pytest.mark.parametrize("chip_id", CHIPS)
def test_every_chip_builds_with_a_source_behind_every_number(chip_id):
    chip = tm.chip(chip_id)
    assert chip.hbm_bytes > 0
    assert chip.hbm_bytes_per_s > 0
    assert chip.peak_flop_per_s
    assert {"hbm_bytes", "hbm_bytes_per_s"} <= chip.sources.keys()
    assert all(fact in load.facts_rows() for facts in chip.sources.values() for fact in facts)


def test_the_list_of_chips_is_closed():
    assert sorted(load.chips()) == sorted(CHIPS)


@pytest.mark.parametrize(
    ("chip_id", "dtype", "printed_tflops", "hbm_gib", "hbm_tb_per_s"),
    [
        ("trainium1", "bf16", 190, 32, 0.82),
        ("trainium2", "bf16", 667, 96, 2.9),
        ("trainium2", "fp8", 1299, 96, 2.9),
        ("trainium3", "mxfp8", 2517, 144, 4.9),
        ("inferentia2", "bf16", 190, 32, 0.82),
        ("trainium3", "fp8", 2 * 671, 144, 4.9),
        ("a100", "bf16", 312, 80, 2.039),
        ("h100", "bf16", 989, 81559 / 1024, 3.35),
        ("tpu-v5p", "bf16", 459, 95, 2.765),
        ("tpu-v4", "bf16", 275, 32, 1.2),
        ("mi210", "fp16", 181, 67092480 / 1024**2, 1.6384),
    ],
)
def test_printed_figures(chip_id, dtype, printed_tflops, hbm_gib, hbm_tb_per_s):
    chip = tm.chip(chip_id)
    assert chip.peak(dtype) == printed_tflops * 1e12
    assert chip.hbm_bytes == hbm_gib * GIB
    assert chip.hbm_bytes_per_s == pytest.approx(hbm_tb_per_s * 1e12)


@pytest.mark.parametrize(
    ("alias", "chip_id"),
    [("Trn2", "trainium2"), ("TRAINIUM3", "trainium3"), ("AWS Trainium 3", "trainium3"), ("Ironwood", "tpu-v7")],
)
def test_names_of_the_sources_resolve(alias, chip_id):
    assert tm.chip(alias) is tm.chip(chip_id)


@pytest.mark.parametrize(
    ("alias", "system_id"),
    [
        ("trn2u.48xlarge", "trn2.48xlarge"),
        ("Trn2 UltraServer", "trn2-ultraserver"),
        ("trn3-gen1-ultraserver", "trn3-nl32x2-pcie160"),
        ("trn3-gen2-ultraserver", "trn3-nl72x2-pcie160"),
        ("Teton3 PDS", "trn3-nl32x2-pcie160"),
        ("Teton3 MAX", "trn3-nl72x2-pcie160"),
    ],
)
def test_names_of_systems_resolve(alias, system_id):
    assert load.resolve("system", alias) == system_id


def test_table_of_names():
    names = load.names_table()
    assert set(names.kind) <= {"aws", "instance", "codename", "nl", "short", "typed", "vendor"}
    assert names.source.isin(load.sources()).all()
    assert (names.locator != "").all()


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(ValueError, match=r"chip='trainum3' is unknown; nearest: trainium3"):
        tm.chip("trainum3")
    with pytest.raises(ValueError, match=r"chip=3: allowed is an id or a name"):
        tm.chip(3)
    with pytest.raises(ValueError, match=r"no fact for trainium3/hbm_byte\[\]; nearest: .*trainium3/hbm_bytes\[\]"):
        load.value("trainium3", "hbm_byte")


def test_an_unknown_dtype_lists_those_with_a_peak():
    with pytest.raises(ValueError, match=r"dtype='nvfp4': trainium3 has no dense peak for it; it has \['bf16'"):
        tm.chip("trainium3").peak("nvfp4")
    with pytest.raises(ValueError, match=r"h100 has no sparse peak"):
        tm.chip("h100").peak("bf16", sparse=True)


def test_sparse_peaks_are_apart_from_dense_ones():
    chip = tm.chip("trainium2")
    assert (chip.peak("bf16"), chip.peak("bf16", sparse=True)) == (667e12, 2563e12)


# The SDK prints banks of 24 GB, each shared by two cores that both reach all of it at LNC=1; the deep dive 36 GB at
# LNC=2 and 144 GB for a whole chip. Trainium1 has two cores and 32 GiB, and no bank that they share.
@pytest.mark.parametrize(
    ("chip_id", "lnc", "gib", "ranks"),
    [
        ("trainium3", 1, 36, 2),
        ("trainium3", 2, 36, 1),
        ("trainium3", None, 36, 1),
        ("trainium3", 8, 144, 1),
        ("trainium2", 1, 24, 2),
        ("trainium2", 2, 24, 1),
        ("trainium1", 1, 16, 1),
        ("trainium4-roadmap", 1, 36, 1),
        ("h100", 1, 81559 / 1024, 1),
    ],
)
def test_memory_that_a_logical_core_reaches(chip_id, lnc, gib, ranks):
    found = site(tm.chip(chip_id), lnc)
    assert (found.hbm_bytes, found.ranks_per_bank) == (gib * GIB, ranks)


def test_banks_are_as_the_sdk_prints_them():
    chip = tm.chip("trainium2")
    assert load.value("trainium2", "hbm_bytes_reachable", "1") == load.value("trainium2", "hbm_stack_bytes") == 24e9
    assert chip.hbm_stacks * chip.hbm_bank_cores == chip.cores
    assert "hbm_bank_cores" in tm.chip("trainium3").estimates


def test_what_is_announced_is_no_choice_of_today():
    """The SDK: LNC can only be set to 1 or 2, of which 2 is the default; 8 is announced for Trainium3."""
    chip = tm.chip("trainium3")
    assert (chip.lnc_choices, chip.lnc_announced, chip.logical(), chip.logical(8)) == ((1, 2), (8,), 2, 8)
    assert tm.chip("trainium2").lnc_announced == ()
    assert site(chip, 8).announced
    assert "announced" in site(chip, 8).description
    assert not site(chip, 1).announced
    assert site(chip, 1).description == "LNC 1"
    with pytest.raises(ValueError, match=r"mine: lnc_default=8: allowed are its lnc_choices, \(1, 2\)"):
        replace(chip, id="mine", lnc_default=8)


def test_logical_cores_that_nobody_offers_are_refused():
    with pytest.raises(ValueError, match=r"lnc=4: trainium3 allows \(1, 2\), and \(8,\) are announced"):
        tm.chip("trainium3").logical(4)
    with pytest.raises(ValueError, match=r"lnc=2: trainium1 allows \(1,\)$"):
        tm.chip("trainium1").logical(2)
    with pytest.raises(ValueError, match=r"lnc=8: trainium2 allows \(1, 2\)$"):
        tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(lnc=8), batch=1, context=128)


def test_range_is_a_pair_where_open_and_equal_where_decided():
    chip = tm.chip("trainium3")
    assert chip.range("hbm_bytes_per_s") == (4.7e12, 4.9e12)
    # 9.2 Gb/s x 1,024 pins x 4 stacks / 8, which the decision leaves open between them
    (slower,) = (
        load.facts()
        .query("entity == 'trainium3' and quantity == 'hbm_bytes_per_s' and source == 'project'")
        .itertuples()
    )
    assert (slower.value_si, slower.status) == (pytest.approx(9.2e9 / 8 * 1024 * 4, rel=1e-4), "open")
    assert chip.range("tdp_w") == (700.0, 1000.0)
    assert chip.range("hbm_bytes") == (144 * GIB, 144 * GIB)
    assert chip.range("peak_flop_per_s[bf16]") == (671e12, 671e12)
    passes = {f"collective_pass_bytes_per_s[{cores}]" for cores in (1, 2)}
    own = {"hbm_bytes_per_s", "collective_cores", "hop_s", "intra_chip_bytes_per_s", "tdp_w", "collective_launch_s"}
    own |= {"busy_core_share"}
    assert set(chip.ranges) == own | passes
    assert not tm.system("trn2.48xlarge").ranges


def test_estimates_are_marked():
    assert {"scaleup_bytes_per_s_per_dir", "tdp_w"} <= tm.chip("trainium3").estimates
    assert "hbm_bytes_per_s" not in tm.chip("trainium3").estimates


def test_trainium4_is_announced_ratios_and_nothing_else():
    base, chip = tm.chip("trainium3"), tm.chip("trainium4-roadmap")
    # announced: at least 3x FP8 (printed of Trainium3 for MXFP8), at least 6x FP4, 4x memory bandwidth, 2x capacity
    assert chip.peak("mxfp8") == 3 * base.peak("mxfp8")
    assert chip.peak("mxfp4") == 6 * base.peak("mxfp4")
    assert chip.hbm_bytes == 2 * base.hbm_bytes
    assert chip.range("hbm_bytes_per_s") == pytest.approx((4 * 4.7e12, 4 * 4.9e12))
    assert chip.estimates >= {"peak_flop_per_s[mxfp8]", "hbm_bytes", "hbm_bytes_per_s"}
    assert (chip.ratios_to, base.ratios_to) == ("trainium3", "")
    assert chip.process == chip.packaging == ""  # unknown
    for dtype in ("bf16", "fp8"):
        with pytest.raises(ValueError, match="no dense peak"):
            chip.peak(dtype)


def test_what_nobody_announced_of_trainium4_is_a_range_that_says_so():
    """From Trainium3 to what the announced ratios allow; each is ours (D), is called assumed, and has a reason."""
    chip, facts = tm.chip("trainium4-roadmap"), tm.facts().set_index("id")
    assert chip.range("tdp_w") == (700, 3 * 1000)  # 700-1000 W on Trainium3, and three times its FP8
    assert chip.range("scaleup_bytes_per_s_per_dir") == (144 * 64e9 / 8, 144 * 224e9 / 8)
    assert chip.range("sbuf_bytes") == (256 * 2**20, 3 * 256 * 2**20)
    assert chip.range("scaleout_bytes_per_s_per_dir") == (25e9, 50e9)
    announced = {"peak_flop_per_s[mxfp8]", "peak_flop_per_s[mxfp4]", "hbm_bytes", "hbm_bytes_per_s", "hop_s"}
    for label in chip.ranges.keys() - announced:
        (row,) = facts.loc[list(chip.sources[label])].itertuples()
        assert row.confidence == "D"
        assert row.locator.startswith("assumed: ")
        assert row.note


def test_cores_know_their_engines():
    core = tm.chip("trainium3").core
    assert (core.tensor.clock_hz, core.vector.clock_hz) == (2.4e9, 1.2e9)
    assert core.tensor.elements_per_cycle["mxfp8"] == 8 * 128
    assert core.vector.exponential_ratio == 4
    assert (core.tensor.throttle_share, core.tensor.throttle_ramp_s) == (0.5, 3e-6)
    assert core.dma_engines * core.dma_engine_bytes_per_s == 528e9
    assert tm.chip("h100").core is None


def test_specs_are_immutable():
    chip = tm.chip("trainium2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        chip.hbm_bytes = 1.0
    with pytest.raises(TypeError):
        chip.peak_flop_per_s["bf16"] = 1.0
    with pytest.raises(TypeError):
        chip.sources["hbm_bytes"] = ()
    peaks = {"bf16": 1.0}
    built = Chip(id="mine", peak_flop_per_s=peaks)
    peaks["bf16"] = 2.0
    assert built.peak("bf16") == 1.0


def test_a_spec_equals_no_other_kind_of_thing():
    chip, words = tm.chip("trainium2"), load.precision("bf16")
    assert chip == copy.copy(chip)
    assert chip != tm.chip("trainium3")
    assert chip != words
    assert chip != chip.id


def test_ids_that_occur_twice_are_named_whatever_their_count():
    rows = [SimpleNamespace(id=name) for name in ("b", "a", "c", "a", "b", "b")]
    with pytest.raises(DataError, match=r"facts\.csv: column id: \['a', 'b'\] occurs twice"):
        by_id(rows, "id", "facts.csv")
    assert list(by_id(rows[:3], "id", "facts.csv")) == ["b", "a", "c"]


def test_variants_come_from_replace():
    faster = dataclasses.replace(tm.chip("trainium2"), hbm_bytes_per_s=3e12)
    assert (faster.hbm_bytes_per_s, tm.chip("trainium2").hbm_bytes_per_s) == (3e12, 2.9e12)
    assert tm.chip(faster) is faster


@pytest.mark.parametrize("chip_id", ["trainium3", "h100"])
def test_specs_travel_to_other_processes(chip_id):
    chip = tm.chip(chip_id)
    for twin in (pickle.loads(pickle.dumps(chip)), copy.deepcopy(chip)):
        assert twin == chip
        assert hash(twin) == hash(chip)
        assert twin.sources == chip.sources


@pytest.mark.parametrize("wrong", [-1.0, float("inf")])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"mine: hbm_bytes=.*: allowed are numbers from 1e-30 to 1e\+30"):
        Chip(id="mine", hbm_bytes=wrong)
    with pytest.raises(ValueError, match=r"mine: peak_flop_per_s\[bf16\]="):
        Chip(id="mine", peak_flop_per_s={"bf16": wrong})


WRONG = ["9", None, True, object(), [], [1.0, -1.0], 10**400, -1, float("inf"), {}]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_what_is_no_number_is_refused_by_the_name_of_its_field(wrong):
    engine = tm.chip("trainium2").core.tensor
    specs = [
        (tm.chip("trainium2"), "hbm_bytes"),
        (engine, "clock_hz"),
        (tm.chip("trainium2").core, "dma_start_s"),
        (tm.system("trn2-ultraserver"), "host_bytes"),
        (tm.efficiencies("trainium2"), "hop_s"),
        (tm.kernel.stack(), "overlap_load"),
    ]
    for spec, name in specs:
        with pytest.raises(ValueError, match=f"{spec.id}: {name}=.*allowed"):
            dataclasses.replace(spec, **{name: wrong})
    with pytest.raises(ValueError, match=r"peak_flop_per_s\[bf16\]=.*allowed"):
        dataclasses.replace(engine, peak_flop_per_s={"bf16": wrong})


@pytest.mark.parametrize(
    ("spec", "change", "words"),
    [
        (tm.chip("trainium2"), {"id": None}, "id=None: allowed is text"),
        (tm.chip("trainium2"), {"cores": 0}, "cores=0"),
        (tm.chip("trainium2"), {"hbm_bytes_per_s": 0.0}, "hbm_bytes_per_s=0.0"),
        (tm.chip("trainium2"), {"lnc_choices": (1, 0)}, "lnc_choices=0: allowed are whole numbers from 1"),
        (tm.chip("trainium2"), {"lnc_default": 4}, "lnc_default=4: allowed are its lnc_choices"),
        (tm.chip("trainium2"), {"core": "neuroncore-v3"}, "core='neuroncore-v3': allowed is Core or None"),
        (tm.chip("trainium2"), {"peak_flop_per_s": [1]}, "peak_flop_per_s=.*a mapping from words"),
        (tm.chip("trainium2"), {"peak_flop_per_s": {1: 2.0}}, "peak_flop_per_s=1: allowed is text"),
        (tm.chip("trainium2"), {"sources": {"tdp_w": 5}}, r"sources\[tdp_w\]=5"),
        (tm.chip("trainium2"), {"ranges": {"tdp_w": (1, 2, 3)}}, r"ranges\[tdp_w\]=.*a low and a high"),
        (tm.chip("trainium2"), {"estimates": "tdp_w"}, "estimates='tdp_w': allowed is a frozenset"),
        (tm.system("trn2-ultraserver"), {"fabric": "ring"}, "fabric='ring'.*torus"),
        (tm.system("trn2-ultraserver"), {"count": True}, "count=True"),
        (tm.system("trn2-ultraserver"), {"chip": "trn2"}, "chip='trn2': allowed is Chip"),
        (tm.system("trn2-ultraserver"), {"racks": [1, 2]}, "racks=.*one number"),
        (tm.efficiencies("trainium2"), {"weight_stream_share": 51}, "weight_stream_share=51.*to 1"),
        (tm.efficiencies("trainium2"), {"weight_stream_share": 0}, "weight_stream_share=0"),
        (tm.efficiencies("trainium2"), {"kv_stream_bytes_per_s": 10**400}, "kv_stream_bytes_per_s=1000"),
        (tm.efficiencies("trainium2"), {"network_overlap": 1.5}, "network_overlap=1.5.*from 0 to 1"),
        (tm.efficiencies("trainium2"), {"hop_s": float("nan")}, "hop_s=nan"),
        (tm.efficiencies("trainium2"), {"kv_head_policy": "copy"}, "kv_head_policy='copy': allowed are even"),
        (tm.efficiencies("trainium2"), {"context_bucket": []}, r"context_bucket=\[\]"),
        (tm.kernel.stack(), {"load_share": 2}, "load_share=2.*to 1"),
    ],
)
def test_fields_say_what_they_allow(spec, change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(spec, **change)


def test_a_figure_may_be_an_array_of_figures():
    rates = np.array([2e12, 3e12])
    chip = dataclasses.replace(tm.chip("trainium2"), hbm_bytes_per_s=rates)
    rates[0] = 0
    assert chip.hbm_bytes_per_s.tolist() == [2e12, 3e12]
    with pytest.raises(ValueError, match="read-only"):
        chip.hbm_bytes_per_s[0] = 0
    assert chip == pickle.loads(pickle.dumps(chip)) != tm.chip("trainium2")
    both = tm.kernel.matmul(chip, 64, 4096, 4096)
    for place, rate in enumerate(chip.hbm_bytes_per_s):
        alone = tm.kernel.matmul(dataclasses.replace(chip, hbm_bytes_per_s=rate), 64, 4096, 4096)
        assert both.time_s[place] == alone.time_s
    assert np.isnan(dataclasses.replace(chip, hbm_bytes_per_s=[float("nan"), 1e12]).hbm_bytes_per_s[0])


def test_a_share_that_ends_one_rounding_beyond_one_is_one():
    assert dataclasses.replace(tm.efficiencies("trainium2"), kv_stream_share=1 + 2**-52).kv_stream_share == 1.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tm.chip([]), r"chip=\[\]: allowed is an id or a name"),
        (lambda: tm.chip("x" * 10**6), "chip='xxx.*is unknown; nearest"),
        (lambda: load.resolve("colour", "red"), "kind='colour': allowed are chip"),
        (lambda: load.resolve([], "red"), r"kind=\[\]"),
        (lambda: load.value([], "clock_hz"), r"entity=\[\]: allowed is text"),
        (lambda: load.value("trainium2", None), "quantity=None"),
        (lambda: load.fact_in_force("trainium2", "hbm_bytes", {}), r"qualifier=\{\}"),
        (lambda: load.precision({}), r"precision=\{\}: allowed is a preset"),
        (lambda: Precision(kv=["bf16"]), r"kv=\['bf16'\]"),
        (lambda: Precision(name=5), "name=5"),
        (lambda: load.precision("bf16").storage_bytes("__class__"), "part='__class__': allowed are activations"),
        (lambda: tm.chip("trainium2").peak([]), r"dtype=\[\]"),
        (lambda: tm.chip("trainium2").peak("bf16", "yes"), "sparse='yes'"),
        (lambda: tm.chip("trainium2").logical(True), "lnc=True"),
        (lambda: tm.chip("trainium2").logical("2"), "lnc='2'"),
        (lambda: tm.chip("trainium2").range("colour"), "name='colour'.*hbm_bytes"),
        (lambda: tm.chip("trainium2").range("id"), "name='id'"),
        (lambda: tm.chip("trainium2").range("peak_flop_per_s"), "name='peak_flop_per_s'"),
        (lambda: tm.chip("trainium2").range(6), "name=6"),
        (lambda: tm.efficiencies("trainium2", object()), "stack=<object.*the id of a stack"),
        (lambda: tm.efficiencies(object(), "ideal"), "chip=<object"),
        (lambda: tm.efficiencies("trainium2", "stack-nki"), "stack='stack-nki': it is a stack of kernels"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert len(str(caught.value)) < 1000


def test_precisions():
    mix = load.precision("w4a8")
    assert (mix.weights, mix.compute) == ("mxfp4", "mxfp8")
    assert mix.storage_bytes("weights") == 4.25 / 8  # 32 elements of 4 bits and one scale of 8
    assert Precision(weights="fp8").experts == "fp8"
    assert Precision(weights="bfloat16").weights == "bf16"
    assert load.precision(mix) is mix


def test_wrong_precisions_are_refused():
    with pytest.raises(ValueError, match=r"kv='fp7': allowed are bf16, cfp8"):
        Precision(kv="fp7")
    with pytest.raises(ValueError, match=r"precision='w8a4' is unknown; nearest: w4a8"):
        load.precision("w8a4")


def test_data_is_found_inside_an_installed_package(tmp_path):
    site = tmp_path / "site"
    shutil.copytree(Path(tm.__file__).parent, site / "trnmodel", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(load.DATA, site / "trnmodel" / "data", dirs_exist_ok=True)
    code = "import trnmodel as tm; from trnmodel.catalog import load; print(load.DATA, tm.chip('Trn3').hbm_bytes)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == [str(site / "trnmodel" / "data"), str(144.0 * GIB)]


def test_items_of_a_list_count_from_one(tmp_path):
    file = tmp_path / "decisions.yaml"
    file.write_text("- 5\n")
    with pytest.raises(DataError, match=r"decisions\.yaml item 1"):
        read_yaml(file, Decision)


def test_a_base_without_a_row_is_refused_and_not_passed_over(monkeypatch):
    rows = load.entities()
    lost = msgspec.structs.replace(rows["neuron-power"], base="neuron-powr")
    monkeypatch.setattr(load, "entities", lambda: rows | {"neuron-power": lost})
    with pytest.raises(DataError, match="no row of neuron-powr"):
        lineage("neuron-power")


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("hop_s", (0.0, 1e-6), (-1e-9,)),  # a time may be nothing
        ("network_overlap", (0.0, 0.5, 1.0), (-0.1, 1.01)),
        ("weight_stream_share", (1e-30, 0.5, 1.0), (0.0, 1e-31, 1.01)),
        ("kv_stream_bytes_per_s", (1.0, 1e30, float("inf")), (0.0, 1e-31, 2e30)),  # no limit is its default
    ],
)
def test_what_a_number_of_a_stack_may_be(name, allowed, refused):
    e = tm.efficiencies("trainium2")
    for value in allowed:
        assert getattr(replace(e, **{name: value}), name) == value
        assert getattr(replace(e, **{name: np.array([value, value])}), name).tolist() == [value, value]
    for value in refused:
        with pytest.raises(ValueError, match=name):
            replace(e, **{name: value})
        with pytest.raises(ValueError, match=name):
            replace(e, **{name: np.array([value, value])})


@pytest.mark.parametrize("ends", ["ab", (1.0,), (1.0, 2.0, 3.0), 5.0, {1.0, 2.0}])
def test_a_range_is_a_low_and_a_high(ends):
    with pytest.raises(ValueError, match="a low and a high"):
        replace(tm.chip("trainium2"), ranges={"tdp_w": ends})


@pytest.mark.parametrize(
    ("name", "printed", "allowed", "refused"),
    [
        ("network_overlap", 0.0, (0, 1), (1.1, -0.1)),
        ("kv_stream_share", 0.9, (1e-30, 1, 1 + 1e-10), (0, 1.1)),
        ("hop_s", 1.0, (0, 1e-30, 1e30), (1e-31, 2e30)),
        ("rdh_traffic_ratio", 1.0, (1e-30, 1e30), (0, 2e30)),
    ],
)
def test_what_a_number_may_be_by_its_name(name, printed, allowed, refused):
    """Asked of the rule itself, which specs keep."""
    fields = {field.name: field for field in dataclasses.fields(Efficiencies)}
    check = _number_check(fields[name])
    assert check("here", printed) == printed
    for value in allowed:
        assert check("here", value) == pytest.approx(min(value, 1) if name.endswith(("share", "overlap")) else value)
    for value in refused:
        with pytest.raises(ValueError, match=r"here=.*allowed are numbers"):
            check("here", value)


def test_an_announced_ratio_scales_its_base():
    """Three times the FP8 of a base, 1.5 times its memory, once with a low and a high from its base."""
    rows = load._of("trainium4-roadmap")["ratio_to_base"]
    base = tm.chip(load.entity_row(load.entity_row("trainium4-roadmap").base).id)
    found = load._scaled(base, load.assemble(Chip, "trainium4-roadmap"))
    for qualifier, (fact, _) in rows.items():
        name, _, dtype = qualifier.partition(":")
        got, was = (found[name][dtype], getattr(base, name)[dtype]) if dtype else (found[name], getattr(base, name))
        assert got / was == load.value_si(fact)[0] >= 1
        label = f"{name}[{dtype}]" if dtype else name
        assert found["sources"][label][0] == fact.id
        assert label in found["estimates"]


def test_ids_that_a_source_spells_otherwise():
    assert load.ids_by_name.__wrapped__("chip")["trainium2"] == "trainium2"
    assert set(load.ids_by_name.__wrapped__("chip").values()) == set(CHIPS)
    with pytest.raises(ValueError, match="kind='colour': allowed are"):
        load.ids_by_name.__wrapped__("colour")


def test_both_estimates_of_watts_are_marked():
    """Of a chip whose node is known: those of its kind of chip and those of its node."""
    found = power(tm.chip("trainium2"))
    kind, node = reader.spec(Power, "neuron-power"), reader.spec(Power, "node-5nm")
    assert found.estimates == {*kind.estimates, *node.estimates}
    assert kind.estimates - node.estimates
    assert dict(found.flop_j) == dict(node.flop_j)


def test_a_printed_range_in_base_units():
    """From 3 to 5 TB/s; 4 between."""
    row = Fact("one", "mine", "hbm_bytes_per_s", "", "3-5", "TB/s", "mine", "p. 1", "B", "")
    assert load.value_si(row) == (4e12, 3e12, 5e12)


def test_an_open_ratio_of_an_open_base(monkeypatch):
    """Between 2 and 7 times what is between 3 and 11."""
    base = replace(tm.chip("trainium3"), hbm_bytes=5.0, ranges={"hbm_bytes": (3.0, 11.0)})
    (_, (fact, _)), *_ = load._of("trainium4-roadmap")["ratio_to_base"].items()
    two = msgspec.structs.replace(fact, value_printed="2-7")
    monkeypatch.setattr(load, "_of", lambda entity: {"ratio_to_base": {"hbm_bytes": (two, (2.0, 7.0))}})
    found = load._scaled(base, {"id": "mine", "ranges": {}, "sources": {}})
    assert (found["hbm_bytes"], found["ranges"]["hbm_bytes"]) == (22.5, (6.0, 77.0))  # 4.5 times 5
    assert found["sources"]["hbm_bytes"] == (two.id, *base.sources["hbm_bytes"])


def test_constants_of_a_stack_are_wider_by_a_factor():
    """From half to three times of each that has a source; a share and an overlap end at 1."""
    values = {"network_overlap": 0.5, "kv_stream_share": 0.25, "weight_stream_share": 0.75, "hop_s": 2.0}
    e = replace(
        tm.efficiencies("trainium2"), **values, sources=dict.fromkeys((*values, "layer_s"), ("one",)), layer_s=0.0
    )
    assert _widened(vars(e), 0.5, 3.0) == {
        "network_overlap": (0.25, 1.0),
        "kv_stream_share": (0.125, 0.75),
        "weight_stream_share": (0.375, 1.0),
        "hop_s": (1.0, 6.0),
    }
    assert _widened(vars(e), 1.0, 1.0) == {}


def test_rates_of_lanes_leave_room_for_a_million_of_them():
    spec = tm.system("trn3-nl32x2-pcie160")
    limit = 1e30 / 2**20
    assert replace(spec, lane_bytes_per_s_per_dir=limit).lane_bytes_per_s_per_dir == limit
    with pytest.raises(ValueError, match=r"lane_bytes_per_s_per_dir=.*allowed are numbers from"):
        replace(spec, lane_bytes_per_s_per_dir=limit * 1.01)
