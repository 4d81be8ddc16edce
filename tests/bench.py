"""Time the questions that users ask, beside the targets: `make bench`.

CPU seconds on one core, medians. Where a machine is noisy, `TRNMODEL_BENCH_BASE` names a checkout of an older commit:
the same questions are then asked there in turn, and the ratio is printed beside its target.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

import trnmodel as tm

MILLION = 1_000_000
LLAMA = {"model": "llama-3.1-70b", "system": "trn2.48xlarge", "precision": "bf16"}
DEGREES = np.array([8.0, 16.0, 32.0, 64.0])
ROUNDS = 3
SCALES = itertools.count(1.0, 0.01)  # of measurements, so that each asks anew


class Case(NamedTuple):
    """A question, how often it is asked in one measurement, and the most seconds that it may take."""

    name: str
    ask: Callable[[], object]
    target_s: float
    times: int = 1


def median_s(case: Case, repeats: int = 5) -> float:
    """Median CPU time of a question, after one that warms caches."""
    case.ask()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(case.times):
            case.ask()
        found.append((time.process_time() - start) / case.times)
    return statistics.median(found)


def decode_and_fit(mapping: tm.Mapping, batch: np.ndarray, context: np.ndarray) -> None:
    """Time and memory of many decode steps."""
    asked = {"mapping": mapping, "batch": batch, "context": context, **LLAMA}
    tm.decode_step(**asked), tm.memory_fit(**asked)


def grids(points: int = MILLION) -> tuple[tuple, tuple]:
    """A grid of degrees, batch and context, and the same points with every array of degrees full."""
    batch, context = np.arange(1, points / 2000 + 1)[:, None, None], np.linspace(64, 16_384, 500)[:, None]
    shape = np.broadcast_shapes(batch.shape, context.shape, DEGREES.shape)
    full = lambda x: np.broadcast_to(x, shape).copy()  # noqa: E731
    stages = np.resize([1.0, 2.0], len(DEGREES))
    dense = tm.Mapping(tp=full(DEGREES), pp=full(stages), ep=full(1.0))
    return (tm.Mapping(tp=DEGREES, pp=stages), batch, context), (dense, full(batch), full(context))


def steps() -> Iterator[Case]:
    """Decode steps: one, a million, ten millions; those of a base are asked the same."""
    dense, experts = tm.Mapping(tp=64), tm.Mapping(tp=16, ep=4)
    one = {"batch": 8, "context": 4096}
    yield Case("one decode step, dense", lambda: tm.decode_step(mapping=dense, **one, **LLAMA), 0.12e-3, 200)
    moe = {"model": "qwen3-30b-a3b", "system": "trn2.48xlarge", "mapping": experts}
    yield Case("one decode step, experts", lambda: tm.decode_step(**moe, **one), 0.20e-3, 200)
    yield Case("tm.collective, one call", lambda: tm.collective("all_reduce", 2**24, "trn2.48xlarge"), 0.2e-3, 200)
    sparse, full = grids()
    yield Case("1e6 decode steps with memory fit", lambda: decode_and_fit(*sparse), 1.0)
    yield Case("the same, arrays of degrees as full", lambda: decode_and_fit(*full), 1.0)


class Banded(NamedTuple):
    """A question whose band may take at most `BAND_TARGET` times as long as its value."""

    name: str
    ask: Callable[[], tm.result.Grounded]
    times: int = 1


BAND_TARGET = 3.0


def banded(points: int = MILLION) -> Iterator[Banded]:
    """Steps and hours of one point and of many."""
    mapping, rng = tm.Mapping(tp=8), np.random.default_rng(0)
    batch, context = rng.integers(1, 64, points).astype(float), rng.integers(128, 30_000, points).astype(float)
    dollars = rng.uniform(2e3, 2e4, points // 10)
    dense, experts = ("llama-3.1-8b", "trn2.48xlarge", mapping), ("qwen3-30b-a3b", "trn2.48xlarge", mapping)
    rack = "trn3-nl72x2-pcie160"
    yield Banded("decode step, dense", lambda: tm.decode_step(*dense, batch=8, context=4096), 50)
    yield Banded("decode step, experts", lambda: tm.decode_step(*experts, batch=8, context=4096), 50)
    yield Banded("prefill", lambda: tm.prefill(*dense, input_tokens=4096), 50)
    yield Banded("hour of a rack", lambda: tm.tco(rack), 20)
    yield Banded("1e6 decode steps", lambda: tm.decode_step(*dense, batch=batch, context=context))
    yield Banded("1e6 prefills", lambda: tm.prefill(*dense, input_tokens=context))
    yield Banded("1e5 hours of a rack", lambda: tm.tco(rack, chip_usd=dollars))
    yield Banded("1e5 hours of a server", lambda: tm.tco("hgx-h100", server_usd=dollars))


def band_s(case: Banded, repeats: int = 3) -> tuple[float, float]:
    """Median CPU times of a value, and of the band of one that has none yet."""
    case.ask().low  # noqa: B018 - warms caches
    values, bands = list[float](), list[float]()
    for _ in range(repeats):
        start = time.process_time()
        results = [case.ask() for _ in range(case.times)]
        middle = time.process_time()
        for result in results:
            result.low  # noqa: B018
        values.append((middle - start) / case.times)
        bands.append((time.process_time() - middle) / case.times)
    return statistics.median(values), statistics.median(bands)


def bands() -> list[bool]:
    """Print value, band and ratio of each question, the ratio beside its target; say which are met."""
    met = []
    for case in banded():
        value, band = band_s(case)
        what = f"band over value: {case.name}, {band * 1e3:.3g} / {value * 1e3:.3g} ms"
        met.append(line(what, band / value, BAND_TARGET, ""))
    return met


def drawn() -> Iterator[Case]:
    """Draws of all that is uncertain."""
    from trnmodel.catalog import facilities
    from trnmodel.catalog import prices as priced

    rack, many = tm.system("trn3-nl32x2-pcie160"), MILLION // 10
    given = {"chip": rack.chip, "stack": tm.efficiencies(rack.chip, "hand-tuned")}
    given |= {"power": facilities.power(rack.chip), "site": facilities.facility("aws-air")}

    def joules(chip: tm.Chip, stack: object, power: facilities.Power, site: facilities.Facility) -> np.ndarray:
        one = {"batch": 32, "context": 4096, "efficiencies": stack}
        step = tm.decode_step("llama-3.3-70b", replace(rack, chip=chip), tm.Mapping(tp=8), **one)
        return tm.energy(step, power=power, facility=site).facility_j_per_token

    def useful(fleet: tm.Fleet) -> object:
        return tm.goodput(rack, 16_384, model="llama-3.1-405b", fleet=fleet)

    owned = {"prices": priced.prices(), "owner": priced.owner(), "chip": rack.chip}
    seen = tm.decode_step("llama-3.3-70b", rack, tm.Mapping(tp=8), batch=32, context=4096)

    def dollars(prices: priced.Prices, owner: priced.Owner, chip: tm.Chip) -> np.ndarray:
        return tm.tco(replace(rack, chip=chip), prices=prices, owner=owner).usd_per_mtoken(seen)

    yield Case("1e5 draws of $/Mtoken", lambda: tm.sensitivity(dollars, owned, many), 2.0)
    yield Case("1e5 draws of J/token", lambda: tm.sensitivity(joules, given, many), 2.0)
    costs = tm.token_cost("llama-3.3-70b", tm.Request(2048, 512, tokens_per_s_per_user=50), "trn2.48xlarge")
    yield Case("1e5 draws of a rented $/Mtoken", lambda: costs.draws("hand-tuned", draws=many), 2.0)
    yield Case("1e5 draws of a goodput", lambda: tm.sensitivity(useful, {"fleet": tm.fleet()}, many), 2.0)
    yield from training()


def training() -> Iterator[Case]:
    """A step of GPT-3, a million of them, and the search of 64 GPUs."""
    from trnmodel.search.train_search import space, told

    cluster, rng = tm.system("hgx-a100", count=512), np.random.default_rng(1)
    degrees = {name: 2.0 ** rng.integers(0, top, MILLION) for name, top in (("tp", 4), ("pp", 6), ("dp", 6))}
    many = tm.Mapping(**degrees)
    sizes = {"micro_batch": 2.0 ** rng.integers(0, 4, MILLION), "interleave": 1.0 + rng.integers(0, 3, MILLION)}
    ask = {"global_batch": 1536, "seq": 2048}
    one = tm.Mapping(tp=8, pp=8)
    yield Case("train step", lambda: tm.train_step("gpt3-175b", cluster, one, **ask), 3e-4, 200)
    yield Case("1e6 train steps", lambda: tm.train_step("gpt3-175b", cluster, many, **ask, **sizes), 1.0)
    wide = {"recompute": ("none", "selective", "full"), "zero": range(4), "sequence_parallel": (True, False)}
    wide |= {"max_cp": 64}
    few, model = tm.system("hgx-a100", count=8), tm.model("gpt3-175b")

    def search() -> None:
        found = space(model, few, **wide, **ask)
        told(found, found.order()[:5])

    yield Case("train search, 64 GPUs, 1.2e5 points", search, 0.5)
    yield Case("train run, 8,192 chips", lambda: tm.train_run("llama-3.1-405b", "hgx-h100", tokens=15e12), 1.0)


def searches() -> Iterator[Case]:
    """Searches of a request: each time of another length, since an answer that was given is in a cache."""
    lengths = itertools.count(256)

    def plan(*systems: str) -> tm.Plan:
        return tm.plan("llama-3.1-70b", tm.Request(2048, next(lengths), tokens_per_s_per_user=20), systems or None)

    def chances() -> list[float]:
        return [choice.chance for choice in plan().choices]

    yield Case("tm.plan, a request on one system", lambda: plan("trn2.48xlarge"), 0.02)
    yield Case("tm.plan, a request on all systems", plan, 0.3)
    yield Case("tm.plan, all systems with 1,000 draws", chances, 0.5)


def more() -> Iterator[Case]:
    """Questions with targets of their own."""
    from trnmodel.fabric import what_if
    from trnmodel.formulas import tiers
    from trnmodel.units import GB, KIB, US

    intensity = np.geomspace(1, 1e4, MILLION)
    yield Case("roofline, 1e6", lambda: tm.roofline.attainable_flop_per_s(intensity, 667e12, 2.9e12), 1.0)
    m, n, k = np.random.default_rng(0).integers(1, 20_000, (3, MILLION))
    yield Case("tm.kernel.matmul, 1e6 shapes", lambda: tm.kernel.matmul("trainium2", m, n, k), 1.0)
    sizes = np.geomspace(1, 1e10, MILLION)
    yield Case("tm.collective, 1e6 sizes", lambda: tm.collective("all_reduce", sizes, "trn2.48xlarge"), 1.0)

    def formulas() -> None:
        few, ranks = np.geomspace(KIB, GB, 1000)[:, None], np.arange(1, 1001)
        links = (np.linspace(1, 2, 1000) * GB, GB, GB)
        tiers.hierarchical_s("all_reduce", ("ring",), few, (ranks,), (US,), (GB,))
        tiers.multiport_bucket_s("all_reduce", few, (4, 4, 4), US, links)

    yield Case("ring and bucket formulas, 1e6 times each", formulas, 2.0)

    yield from drawn()
    yield from searches()
    yield Case("144-chip topology, all metrics", lambda: what_if.metrics(tm.topology("trn3-nl72x2-pcie160")), 5.0)
    yield Case("refusing a file of 60 kB of brackets", hostile_file, 5.0)
    yield Case("tm.calibrate, ten rows", calibration, 2.0)


def calibration() -> None:
    """Correct a stack by ten rows, of which no answer is saved."""
    import pandas as pd

    row = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "seq_len": 8192, "unit": "ms"}
    scale = next(SCALES)
    rows = [row | {"batch": batch, "metric": "TPOT", "value": scale * (9 + batch / 4)} for batch in range(1, 11)]
    tm.calibrate(pd.DataFrame(rows))


def swept(points: int = MILLION) -> list[bool]:
    """Rows of a sweep over the call that makes them; rows in a file; and candidates with cost, in two processes."""
    batch, context = np.arange(1.0, points / 500 + 1), np.linspace(64, 16_384, 500)
    ask = {"mapping": tm.Mapping(tp=16), **LLAMA}

    def call() -> object:
        return tm.decode_step(batch=batch[:, None], context=context, **ask)

    def rows(**more: object) -> object:
        return tm.sweep(tm.decode_step, ask | {"batch": batch, "context": context}, progress=False, **more)

    table, bare = median_s(Case("", rows, 0)), median_s(Case("", call, 0))
    met = [line("1e6 rows of tm.sweep over the call itself", table / bare, 2.0, "")]
    with tempfile.TemporaryDirectory() as folder:
        file_s = median_s(Case("", lambda: rows(to=f"{folder}/rows.parquet"), 0), 1)
    met.append(line("1e6 rows of tm.sweep to a Parquet file", file_s, 2.0, "s"))
    script = [sys.executable, str(Path(__file__).resolve()), "--candidates"]
    found = json.loads(subprocess.run(script, check=True, capture_output=True).stdout)
    met.append(line("1e7 candidates with cost, two cores", found["cpu_s"] / 2, 5.0, "s"))
    met.append(line("the same, memory of the largest process", found["megabytes"], 300.0, "MB"))
    return met


HOUR = tm.tco("trn2.48xlarge")


def candidate(tp: float, ep: float, max_batch: np.ndarray, input_tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Speed and dollars of a server of experts at a mapping, a batch and a prompt."""
    request = tm.Request(input_tokens, 512, tokens_per_s_per_user=20)
    served = tm.serve("qwen3-30b-a3b", request, "trn2.48xlarge", tm.Mapping(tp=tp, ep=ep), max_batch=max_batch)
    rate = served.tokens_per_s_per_chip
    return {"tokens_per_s_per_chip": rate, "usd_per_mtoken": HOUR.usd_per_mtoken(rate)}


def candidates() -> dict[str, float]:
    """Time of the best thousand of ten million candidates in two processes, and the memory of the largest of all."""
    from concurrent.futures import ProcessPoolExecutor

    grid = {"tp": 2.0 ** np.arange(7), "ep": 2.0 ** np.arange(4), "max_batch": np.arange(1.0, 513.0)}
    grid |= {"input_tokens": np.linspace(256, 16_384, 700)}
    start, wall = spent_s(), time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        tm.sweep(candidate, grid, pool, progress=False, least="usd_per_mtoken", rows=1000)
        megabytes = max(peak_mb(), *pool.map(peak_mb, [None] * 8))
    return {"cpu_s": spent_s() - start, "wall_s": time.perf_counter() - wall, "megabytes": megabytes}


def peak_mb(_: object = None) -> float:
    """Most memory that this process has had, pages that it shares with others among it [MB]."""
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) * 1024 / 1e6


def hostile_file() -> str:
    """What reading a file of nothing but brackets says."""
    from trnbook import report

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        Path(file.name).write_text("batch: " + "[" * 60_000)
        try:
            return str(report.read_parameters(file.name))
        except report.InputError as refused:
            return str(refused)


def command_s(*arguments: str, repeats: int = 5) -> float:
    """Median CPU time of a command."""
    found = []
    for _ in range(repeats):
        start = spent_s()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        found.append(spent_s() - start)
    return statistics.median(found)


def spent_s() -> float:
    """CPU time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def book() -> Iterator[bool]:
    """CPU seconds of each chapter of the book, its kernel among them, and of a book that is made."""
    from trnbook import report

    with tempfile.TemporaryDirectory() as folder:
        for chapter in report.notebooks():
            start = spent_s()
            report.run([chapter], out_dir=folder, progress=False)
            yield line(f"make book, chapter {chapter}", spent_s() - start, 5.0, "s")
    made = ("-m", "trnmodel.cli", "book")
    command_s(*made, repeats=1)
    yield line("make book, nothing changed", command_s(*made, repeats=3), 2.0, "s")


def cold() -> Iterator[bool]:
    """CPU seconds of new processes: the shipped measurements, and commands that print text."""
    read = ("-c", "import pandas, trnmodel; judge = trnmodel.validation")
    judged = command_s(*read[:1], f"{read[1]}; judge()", repeats=3) - command_s(*read, repeats=3)
    yield line("tm.validation, 3,483 rows", judged, 2.0, "s")
    decode = "decode llama-3.3-70b trn2.48xlarge --tp 16 --batch 8"
    for asked in (decode, "plan llama-3.3-70b --speed 50 --in 2048 --out 500"):
        yield line(f"trnmodel {asked}"[:48], command_s("-m", "trnmodel.cli", *asked.split()), 0.5, "s")


def elsewhere(base: str) -> dict[str, float]:
    """The steps' times in another checkout."""
    script = [sys.executable, str(Path(__file__).resolve()), "--steps"]
    environment = os.environ | {"PYTHONPATH": base}
    return json.loads(subprocess.run(script, cwd=base, env=environment, check=True, capture_output=True).stdout)


def line(name: str, value: float, target: float, unit: str, least: bool = False) -> bool:
    """Print a figure beside its target; whether the target is met."""
    met = value >= target if least else value <= target
    bound = "at least" if least else "at most"
    print(f"{name:<48} {value:>10.4f} {unit}   {bound} {target:>8.4f}   {'ok' if met else 'MISSED'}", flush=True)
    return met


BASE_RATES = {
    "one decode step, dense": 0.26 / 0.12,
    "one decode step, experts": 0.56 / 0.20,
    "tm.collective, one call": 0.9 / 0.2,
    "1e6 decode steps with memory fit": 1.3,
}


def main() -> int:
    """Print the table; 1 if a target is missed."""
    if "--steps" in sys.argv:
        print(json.dumps({case.name: median_s(case) for case in steps()}))
        return 0
    if "--candidates" in sys.argv:
        print(json.dumps(candidates()))
        return 0
    if "--sweeps" in sys.argv:
        return int(not all(swept()))
    if "--bands" in sys.argv:
        return int(not all(bands()))
    met = [line("import trnmodel", command_s("-c", "import trnmodel"), 0.15, "s")]
    met.append(line("trnmodel --version", command_s("-m", "trnmodel.cli", "--version"), 0.2, "s"))
    cases = [*steps()]
    found = {case.name: median_s(case) for case in cases}
    met += [line(case.name, found[case.name] * 1e3, case.target_s * 1e3, "ms") for case in cases]
    sparse, full = (found[case.name] for case in cases[-2:])
    met.append(line("rate of full arrays of degrees over the grid's", sparse / full, 0.6, "", least=True))
    many, _ = grids(10 * MILLION)
    ten = median_s(Case("1e7", lambda: decode_and_fit(*many), 10.0), 1)
    met.append(line("rate of 1e7 points over that of 1e6", 10 * sparse / ten, 0.9, "", least=True))
    if base := os.environ.get("TRNMODEL_BENCH_BASE"):
        rounds = [(elsewhere(base), {case.name: median_s(case) for case in cases}) for _ in range(ROUNDS)]
        for name, wanted in BASE_RATES.items():
            ratio = statistics.median(old[name] / new[name] for old, new in rounds)
            met.append(line(f"rate over the base's: {name}", ratio, wanted, "", least=True))
    met += [line(case.name, median_s(case) * 1e3, case.target_s * 1e3, "ms") for case in more()]
    met += [*bands(), *swept(), *book(), *cold()]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
