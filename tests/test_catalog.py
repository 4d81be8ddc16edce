"""Specs built from facts: every id, names, provenance, ranges, immutability."""

import copy
import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.specs import Chip, Precision

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
        ("a100", "bf16", 312, 80e9 / GIB, 2.039),
        ("h100", "bf16", 989, 80e9 / GIB, 3.35),
        ("tpu-v5p", "bf16", 459, 95, 2.765),
        ("tpu-v4", "bf16", 275, 32e9 / GIB, 1.2),
        ("mi210", "fp16", 181, 64e9 / GIB, 1.6384),
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
    assert set(names.kind) <= {"aws", "instance", "codename", "nl", "short", "vendor"}
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


# 144 GiB / 8 cores = 18 GiB a core; the deep dive prints 36 GB at LNC=2 and 144 GB at LNC=8
@pytest.mark.parametrize(
    ("chip_id", "lnc", "gib"),
    [
        ("trainium3", 1, 18),
        ("trainium3", 2, 36),
        ("trainium3", None, 36),
        ("trainium3", 8, 144),
        ("trainium2", 2, 24),
        ("trainium1", 1, 16),
        ("h100", 1, 80e9 / GIB),
    ],
)
def test_memory_of_a_logical_core(chip_id, lnc, gib):
    assert tm.chip(chip_id).hbm_bytes_per_logical_core(lnc) == gib * GIB


def test_logical_cores_that_nobody_offers_are_refused():
    with pytest.raises(ValueError, match=r"lnc=4: trainium3 allows \(1, 2, 8\)"):
        tm.chip("trainium3").hbm_bytes_per_logical_core(4)
    with pytest.raises(ValueError, match=r"lnc=2: trainium1 allows \(1,\)"):
        tm.chip("trainium1").hbm_bytes_per_logical_core(2)


def test_range_is_a_pair_where_open_and_equal_where_decided():
    chip = tm.chip("trainium3")
    assert chip.range("hbm_bytes_per_s") == (4.7e12, 4.9e12)
    assert chip.range("tdp_w") == (700.0, 1000.0)
    assert chip.range("hbm_bytes") == (144 * GIB, 144 * GIB)
    assert chip.range("peak_flop_per_s[bf16]") == (671e12, 671e12)


def test_estimates_are_marked():
    assert {"scaleup_bytes_per_s_per_dir", "tdp_w"} <= tm.chip("trainium3").estimates
    assert "hbm_bytes_per_s" not in tm.chip("trainium3").estimates


def test_trainium4_is_announced_ratios_and_nothing_else():
    base, chip = tm.chip("trainium3"), tm.chip("trainium4-roadmap")
    # announced: at least 3x FP8, at least 6x FP4, 4x memory bandwidth, 2x capacity
    assert chip.peak("fp8") == 3 * base.peak("fp8")
    assert chip.peak("mxfp4") == 6 * base.peak("mxfp4")
    assert chip.hbm_bytes == 2 * base.hbm_bytes
    assert chip.range("hbm_bytes_per_s") == pytest.approx((4 * 4.7e12, 4 * 4.9e12))
    assert chip.estimates >= {"peak_flop_per_s[fp8]", "hbm_bytes", "hbm_bytes_per_s"}
    assert chip.scaleup_bytes_per_s_per_dir != chip.scaleup_bytes_per_s_per_dir  # unknown
    with pytest.raises(ValueError, match="no dense peak"):
        chip.peak("bf16")


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
