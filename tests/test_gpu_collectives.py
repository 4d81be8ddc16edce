"""Collectives of GPUs by the one engine, against 836 measured ones: NCCL, which is fitted, and fused all-reduces."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence import search
from trnmodel.units import US

MEASURED = pd.read_csv(Path(__file__).parent / "golden" / "gpu_collectives.csv")
SYSTEMS = {"a100_sxm": "hgx-a100", "h100_sxm": "hgx-h100", "b200_sxm": "hgx-b200", "gb200": "gb200-nvl72"}
RINGS = ("all_reduce", "all_gather", "reduce_scatter")
CONSTANTS = ("hop_s", "collective_floor_s", "collective_rate_share")
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


@pytest.mark.parametrize(("device", "system"), SYSTEMS.items())
def test_constants_of_the_catalog_are_those_of_the_fit(device, system):
    chip, rows = tm.system(system).chip, nccl(device)
    shipped = [getattr(chip, name) for name in CONSTANTS]

    def logs(values):
        own = dict(zip(("alpha_s", "floor_s", "rate_share"), values, strict=True))
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
    assert errors(rows, system, "best", floor_s=3e-6).abs().median() < 0.45


@pytest.mark.parametrize("system", SYSTEMS.values())
def test_constants_can_be_replaced_and_the_bound_stays_one(system):
    spec = tm.system(system)
    sizes, asked = np.geomspace(1, 1e9, 12), {"ranks": 4, "algorithm": "ring"}
    shipped = tm.collective("all_reduce", sizes, spec, **asked)
    ideal = {"collective_floor_s": 0.0, "collective_rate_share": 1.0}
    bare = tm.collective("all_reduce", sizes, replace(spec, chip=replace(spec.chip, **ideal)), **asked)
    given = tm.collective("all_reduce", sizes, spec, floor_s=0.0, rate_share=1.0, **asked)
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
