"""Time the questions that users ask, beside the targets: `make bench`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import trnmodel as tm

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


def main() -> int:
    """Print the table; 1 if a target is missed."""
    missed = 0
    for name, seconds, target in cases():
        missed += seconds > target
        print(f"{name:<44} {seconds:>10.4f} s   target {target:>7.3f} s   {'ok' if seconds <= target else 'MISSED'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
