"""Time the questions that users ask, beside the targets: `make bench`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import trnmodel as tm
from trnmodel import report
from trnmodel.fabric import what_if as audit
from trnmodel.formulas import tiers
from trnmodel.units import GB, KIB, US

MILLION = 1_000_000


def median_s(call: Callable[[], object], repeats: int = 5) -> float:
    """Median time of a call, after one that warms caches."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def cases() -> Iterator[tuple[str, float, float]]:
    """Name, seconds, and the most that is allowed."""
    face = [sys.executable, "-c", "import trnmodel"]
    yield "import trnmodel", median_s(lambda: subprocess.run(face, check=True)), 0.15

    intensity = np.geomspace(1, 1e4, MILLION)
    yield "roofline, 1e6 points", median_s(lambda: tm.roofline.attainable_flop_per_s(intensity, 667e12, 2.9e12)), 1.0

    rng = np.random.default_rng(0)
    m, n, k = rng.integers(1, 20_000, (3, MILLION))
    yield "tm.kernel.matmul, 1e6 shapes", median_s(lambda: tm.kernel.matmul("trainium2", m, n, k)), 1.0

    sizes = np.geomspace(1, 1e10, MILLION)
    yield (
        "tm.collective, 1e6 all-reduce times",
        median_s(lambda: tm.collective("all_reduce", sizes, "trn2.48xlarge")),
        1.0,
    )

    yield "ring and bucket formulas, 1e6 times each", median_s(two_formulas), 2.0

    yield "144-chip topology with all metrics", median_s(all_metrics), 5.0

    llama = {"model": "llama-3.1-70b", "system": "trn2.48xlarge", "precision": "bf16"}
    one = lambda: tm.decode_step(mapping=tm.Mapping(tp=64), batch=8, context=4096, **llama)  # noqa: E731
    yield "one decode step", median_s(one, 50), 1e-3
    batch, context = np.arange(1, 501.0)[:, None, None], np.linspace(64, 16_384, 500)[:, None]
    grid = tm.Mapping(tp=np.array([8, 16, 32, 64]))
    yield "1e6 decode steps with memory fit", median_s(lambda: decode_and_fit(llama, grid, batch, context)), 1.0

    yield "refusing a parameter file of 60 kB of brackets", median_s(hostile_file, 3), 5.0


def two_formulas() -> tuple:
    """A ring and a bucket of three dimensions over a million pairs of sizes."""
    m, n = np.geomspace(KIB, GB, 1000)[:, None], np.arange(1, 1001)
    links = (np.linspace(1, 2, 1000) * GB, GB, GB)
    ring = tiers.hierarchical_s("all_reduce", ("ring",), m, (n,), (US,), (GB,))
    return ring, tiers.multiport_bucket_s("all_reduce", m, (4, 4, 4), US, links)


def hostile_file() -> str:
    """What reading a file of nothing but brackets says."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        Path(file.name).write_text("batch: " + "[" * 60_000)
        try:
            return str(report.read_parameters(file.name))
        except report.InputError as refused:
            return str(refused)


def all_metrics() -> dict[str, float]:
    """Build the largest switched fabric and take every metric of it."""
    return audit.metrics(tm.topology("trn3-nl72x2-pcie160"))


def decode_and_fit(llama: dict[str, str], mapping: tm.Mapping, batch: np.ndarray, context: np.ndarray) -> tuple:
    """Time and memory of a grid of decode steps."""
    asked = {"mapping": mapping, "batch": batch, "context": context, **llama}
    return tm.decode_step(**asked), tm.memory_fit(**asked)


def main() -> int:
    """Print the table; 1 if a target is missed."""
    missed = 0
    for name, seconds, target in cases():
        missed += seconds > target
        print(f"{name:<44} {seconds:>10.4f} s   target {target:>7.3f} s   {'ok' if seconds <= target else 'MISSED'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
