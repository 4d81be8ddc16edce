"""Questions without a model: a kernel, a collective, a graph of collectives, an operator of a bare chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from trnmodel.catalog.specs import Chip
from trnmodel.catalog.systems import System
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.readings import Reading, Tune, joined, machine, stack_of
from trnmodel.fabric.collectives import LAUNCHED, Collective, collective
from trnmodel.fabric.expert_exchange import combine_s, dispatch_s
from trnmodel.fabric.runtime import NONE, RUNTIMES, graph_barrier_s, launch_s
from trnmodel.formulas import roofline
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.kernels import kernel

CALLS = ("matmul", "experts", "attention", "elementwise", "dma")
FRAME = ("kernel", "peak_flop_per_s")  # arguments about the row, not of the kernel's call
MATRIX_BYTES = 2.0  # an element of a BF16 matrix, where a row names rows and columns


def bare_chip(r: Reading) -> Chip:
    """Return the chip of a reading, whatever the system around it."""
    where = machine(r)
    return where.chip if isinstance(where, System) else where


def kernel_answer(r: Reading, tune: Tune | None = None) -> kernel.KernelTime:
    """Return the kernel of a reading by `tm.kernel`; raises UnreadableRowError where the row names none."""
    return _kernel_answer(r, tune) if tune else _own_kernel_answer(r)


@lru_cache(maxsize=4096)
def _own_kernel_answer(r: Reading) -> kernel.KernelTime:
    """Return the kernel of a reading with its own chip and stack, which a prediction and its place both ask."""
    return _kernel_answer(r, None)


def _kernel_answer(r: Reading, tune: Tune | None) -> kernel.KernelTime:
    """Return the kernel of a reading, with its chip and stack changed where one asks for it."""
    arguments: dict[str, Any] = {name: value for name, value in r.arguments if name not in FRAME}
    call = dict(r.arguments).get("kernel")
    if call not in CALLS:
        raise UnreadableRowError("workload: names no kernel with a shape that is known")
    sequences = arguments.pop("sequences", 1.0)  # of attention: each has its own heads
    arguments |= {name: arguments[name] * sequences for name in ("heads", "kv_heads") if name in arguments}
    arguments |= {name: str(arguments[name]).lower() for name in ("dtype", "op") if name in arguments}
    lnc = int(arguments.pop("lnc", 0)) or r.mapping[3] or 1
    specs = bare_chip(r), kernel.stack(r.stack)
    chip, stack = map(tune, specs) if tune else specs
    return getattr(kernel, call)(chip, **arguments, lnc=lnc, stack=stack).require_valid()


def _kernel(figure: Callable[[kernel.KernelTime], Any]) -> Callable[[Reading, Tune | None], float]:
    return lambda r, tune: float(figure(kernel_answer(r, tune)))


def _kernel_mfu(r: Reading, tune: Tune | None) -> float:
    """Return the share of the peak that the page names, or of that of the rank's cores."""
    answer, core = kernel_answer(r, tune), bare_chip(r).core
    assert core is not None  # the kernel has run on it
    own = core.tensor.peak_flop_per_s[answer.dtype] * (r.mapping[3] or 1)
    return float(answer.flop / answer.time_s) / float(dict(r.arguments).get("peak_flop_per_s", own))


def message(r: Reading) -> tuple[str, float, float]:
    """Kind, ranks and bytes of a collective; raises UnreadableRowError naming what the row does not say."""
    arguments: dict[str, Any] = dict(r.arguments)
    if "exchange" in arguments:
        sent = arguments["tokens"] * arguments["experts_per_token"] * arguments["hidden"] * MATRIX_BYTES
        return "all_to_all", float(arguments["ranks"]), float(sent)
    if "rows" in arguments:
        arguments["message_bytes"] = arguments["rows"] * arguments["columns"] * MATRIX_BYTES
    missing = [name for name in ("kind", "ranks", "message_bytes") if name not in arguments]
    if missing:
        raise UnreadableRowError(f"workload: names no {', '.join(missing)} of its collective")
    return str(arguments["kind"]), float(arguments["ranks"]), float(arguments["message_bytes"])


def _exchange_s(r: Reading) -> Any:
    """Return the time of a dispatch or a combine of experts as `fabric.expert_exchange` has it."""
    asked: dict[str, Any] = dict(r.arguments)
    names = ("tokens", "hidden", "experts", "experts_per_token", "ranks")
    sizes = [asked[name] for name in names]
    if asked["exchange"] == "dispatch":
        return dispatch_s(*sizes, launch=asked["launch"])
    back = {"per_choice": asked.get("per_choice") == "yes", "imbalance": asked.get("imbalance", 1.0)}
    return combine_s(*sizes, launch=asked["launch"], **back)


def _collective(r: Reading, in_graph: bool = False) -> Collective:
    kind, ranks, size = message(r)
    algorithm = str(dict(r.arguments).get("algorithm", "best"))
    where = joined(r, ranks, spread=True)
    launch = {"in_graph": in_graph} | _launch(r)
    return collective(kind, size, where, ranks=ranks, lnc=r.mapping[3], algorithm=algorithm, **launch).require_valid()


def launched(r: Reading) -> str:
    """Return "host" for a collective of NeuronCores with a launch, "slots" for one with fixed slots, else nothing.

    Rows of one of these say nothing about another.
    """
    if r.meaning == "collective-exchange":
        return "slots"
    inside = dict(r.arguments).get("launcher") == NONE or bare_chip(r).core is None
    return "" if inside or r.meaning not in COLLECTIVES else LAUNCHED


def _launch(r: Reading) -> dict[str, Any]:
    """Return the launch of a reading's collective, where the row says what launched it; else the chip's own counts."""
    arguments = dict(r.arguments)
    launcher = str(arguments.get("launcher", ""))
    if launcher == NONE:
        return {"in_graph": True}
    return {"launch_s": launch_s(launcher, waits=arguments.get("waits") == "yes")} if launcher else {}


def in_step_s(r: Reading, tune: Tune | None, kind: str, message_bytes: Any, ranks: float) -> Any:
    """Return the time of a message as a step of the reading's stack sends it."""
    return collective(kind, message_bytes, machine(r), ranks=ranks, efficiencies=stack_of(r, tune)).time_s


def _in_step_s(r: Reading, tune: Tune | None) -> Any:
    kind, ranks, size = message(r)
    return in_step_s(r, tune, kind, size, ranks)


def _algbw(r: Reading) -> float:
    return message(r)[2] / float(_collective(r).time_s)


def _graph_s(r: Reading) -> float:
    """Return the barrier that a graph pays once, which holds its first collective, and those that follow."""
    _, ranks, _ = message(r)
    runtime = RUNTIMES.get(r.where[:4])
    if runtime is None:
        raise UnreadableRowError(f"instance: no runtime was measured on {r.where}")
    more = float(dict(r.arguments).get("count", 1)) - 1
    return float(graph_barrier_s(ranks, runtime)) + (
        more * float(_collective(r, in_graph=True).time_s) if more else 0.0
    )


def _chip_rates(r: Reading, tune: Tune | None) -> tuple[Any, Any]:
    e, chip = stack_of(r, tune), bare_chip(r)
    return chip.peak("fp16") * e.prefill_matmul_share, chip.hbm_bytes_per_s * e.weight_stream_share


def _chip_matmul_s(r: Reading, tune: Tune | None) -> Any:
    m, n, k = (float(dict(r.arguments)[name]) for name in "mnk")
    moved = (m * k + k * n + m * n) * r.precision.storage_bytes("activations")
    return roofline.time_s(2 * m * n * k, moved, *_chip_rates(r, tune), 1.0)


def _chip_elements_per_s(r: Reading, tune: Tune | None) -> Any:
    return _chip_rates(r, tune)[1] / (2 * r.precision.storage_bytes("activations"))


COLLECTIVES: Mapping[str, Callable[[Reading, Tune | None], Any]] = {
    "collective-exchange": lambda r, tune: float(_exchange_s(r)),
    "collective-time": lambda r, tune: float(_collective(r).time_s),
    "collective-algbw": lambda r, tune: _algbw(r),
    "collective-busbw": lambda r, tune: _algbw(r) * float(busbw_factor(*message(r)[:2])),
}

PRIMITIVES: Mapping[str, Callable[[Reading, Tune | None], Any]] = {
    "kernel-time": _kernel(lambda answer: answer.time_s),
    "kernel-flop-rate": _kernel(lambda answer: answer.flop / answer.time_s),
    "kernel-mfu": _kernel_mfu,
    "kernel-byte-rate": _kernel(lambda answer: (answer.hbm_read_bytes + answer.hbm_write_bytes) / answer.time_s),
    "kernel-read-bytes": _kernel(lambda answer: answer.hbm_read_bytes),
    "kernel-write-bytes": _kernel(lambda answer: answer.hbm_write_bytes),
    **COLLECTIVES,
    "collective-in-step": _in_step_s,
    "graph-time": lambda r, tune: _graph_s(r),
    "chip-matmul": _chip_matmul_s,
    "chip-elements": _chip_elements_per_s,
}
