"""What a row of a kernel asks, by its operator and its shape, and a row of a collective, by its message and ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from trnmodel.arguments import shown
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.meanings_common import (
    ASIDE,
    MEANING,
    SIDES,
    Question,
    cell,
    no_meaning,
    read_as,
    whole,
    without_blanks,
)
from trnmodel.evidence.records import Record, is_known
from trnmodel.fabric.runtime import LAUNCHERS, NONE
from trnmodel.units import KIB

KERNELS = {
    "kernel_time": "kernel-time",
    "kernel_read_bytes": "kernel-read-bytes",
    "kernel_write_bytes": "kernel-write-bytes",
    "flop_rate": "kernel-flop-rate",
    "byte_rate": "kernel-byte-rate",
    "mfu": "kernel-mfu",
}
COLLECTIVES = {"collective_time": "collective-time", "busbw": "collective-busbw", "algbw": "collective-algbw"}
STACKS = {"torch-trace": "stack-torch-trace", "torch-compile": "stack-torch-compile-beta2"}  # others are by hand
OPTIONAL = ("groups", "kv_heads", "sequences", "causal", "engines", "queued")  # sizes of a kernel with a default
MASKED = "masked-dense"  # every expert computes every token
PARTITIONS = 128  # of SBUF
FP32_BYTES = 4
VECTORS = 3  # that an addition moves: two operands and the sum
SIZED = ("message_bytes", "message_kib", "message_mib", "message_gib")
ON_DEVICE = ("nki", "torch-compile")  # whose calls leave nothing to the host but the launch
CODE_USES = {"torch-trace": "framework-trace", "torch-compile": "framework-compile", "compiler": "compiler"}

VERSION_USES = {"baseline": "kernels before tuning", "dropped": "kernels not kept"}
OP_USES = {"dma": "dma", "vectors": "dma", "experts": "expert layer"}


def kernel(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of a kernel asks.

    Parameters
    ----------
    row : mapping of str to str
        Its cells. [-]
    record : Record
        Its typed columns: the operator with its shape, its format, who wrote it, and what is measured. [-]

    Returns
    -------
    question : Question
        A figure of a kernel, with the arguments of its call. [-]

    Examples
    --------
    >>> kernel({}, Record(op="matmul", m=512.0, square="yes", measure="kernel_time", code="nki")).arguments
    {'kernel': 'matmul', 'm': '512', 'k': '512', 'n': '512', 'stack': 'stack-nki'}
    """
    shape = _shape_of_kernel(row, record)
    transposed = "tensor" if record.code == "compiler" and record.op == "matmul" else ""
    arguments = shape | read_as(record)
    arguments |= {
        "lnc": whole(record.physical_cores),
        "stack": STACKS.get(record.code, "stack-nki"),
        "peak_flop_per_s": whole(record.peak_flop_per_s),
        "dtype": record.dtype if record.op != "vectors" else "",
        "transpose": record.transpose or transposed,
        "buffering": record.buffering,
    }
    return Question(KERNELS[record.measure], without_blanks(arguments), _use_of_kernel(record), _unknown(record))


def _shape_of_kernel(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return the call of a kernel with its sizes; raises UnreadableRowError where a row does not state them."""
    if record.op not in (*SHAPES, "experts"):
        name = shown(row.get("workload", ""))
        raise UnreadableRowError(
            f"{MEANING}: workload {name}: names no kernel with a shape that is known; "
            "a name such as 'matmul M=512 K=512 N=512' is one"
        )
    if "launch" in record.inside and row.get("launches", "") != "overlapped":
        raise UnreadableRowError(
            f"{MEANING}: the time holds a launch by a path of unknown cost; the time on the device can be asked"
        )
    if record.measure not in KERNELS:
        raise no_meaning(row, "latency, achieved TFLOPS, memory bandwidth, MFU, bytes read and written")
    shape = _experts(row, record) if record.op == "experts" else SHAPES[record.op](record)
    if missing := [name for name, text in shape.items() if not text and name not in OPTIONAL]:
        raise UnreadableRowError(f"{MEANING}: the row does not state {', '.join(missing)} of its {record.op}")
    return shape


def _matmul(record: Record) -> dict[str, str]:
    sides = {name: record.m if record.square else getattr(record, name) for name in SIDES}
    if is_known(record.products):  # limbs side by side: their products add up along the contraction
        sides["k"] *= record.products
    return {"kernel": "matmul", "groups": record.groups} | {name: whole(x) for name, x in sides.items()}


def _experts(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return the experts of one logical core with the tokens of each, beside the other cores that the row names.

    Routing is taken as uniform where an expert computes its own tokens alone. With sequence parallelism each rank
    brings a sequence, and the layer computes all of them.
    """
    tp, ep = cell(row, "tp", 1.0), record.expert_ranks if is_known(record.expert_ranks) else 1.0
    lnc = cell(row, "lnc", 1.0)
    busy_cores = max(lnc, cell(row, "n_cores_used", tp * ep * lnc) / cell(row, "n_chips", 1.0))
    tokens = cell(row, "batch", 1.0) * cell(row, "seq_len") * (tp if _gathers(record) else 1.0)
    if record.kernels != MASKED:
        tokens *= record.experts_per_token / record.experts
    sizes = {"tokens_per_expert": tokens, "hidden_size": record.hidden}
    sizes |= {"intermediate_size": record.expert_intermediate / tp}
    sizes |= {"experts": record.experts / ep, "busy_cores": busy_cores}
    return {"kernel": "experts"} | {name: whole(x) for name, x in sizes.items()}


def _gathers(record: Record) -> bool:
    """Return whether the ranks of a layer bring tokens of their own."""
    return record.sequence_parallel in ("on", "1")


def _unknown(record: Record) -> tuple[str, ...]:
    """Return what matters to a kernel and is stated nowhere: the cores that it really ran on, the tokens of a layer."""
    cores = ("cores",) if is_known(record.physical_cores) else ()
    return (*cores, "tokens") if record.op == "experts" and _gathers(record) else cores


def _convolution(record: Record) -> dict[str, str]:
    """Return a convolution as the product of its filters with the windows of the image."""
    rows, columns = record.height - record.window + 1, record.width - record.window + 1
    sides = {"m": record.filters, "n": rows * columns, "k": record.channels * record.window**2}
    return {"kernel": "matmul"} | {name: whole(x) for name, x in sides.items()}


def _elementwise(record: Record) -> dict[str, str]:
    name = record.function.lower().replace("_", "")
    return {"kernel": "elementwise", "op": name, "rows": whole(record.rows), "columns": whole(record.columns)}


def _attention(record: Record) -> dict[str, str]:
    """Return attention with its sizes; a prompt attends to as many keys as it has queries."""
    names = ("heads", "kv_heads", "head_size", "sequences", "queries", "causal")
    sizes = {name: whole(getattr(record, name)) for name in names}
    return {"kernel": "attention", **sizes, "keys": whole(record.keys) or sizes["queries"]}


def _vectors(record: Record) -> dict[str, str]:
    """Return the transfers of an addition of vectors: a chunk to a row, or a chunk to each partition."""
    by_row = record.axis == "row"
    transfers = record.elements / record.chunk / (1 if by_row else PARTITIONS)
    row_bytes = FP32_BYTES * (1 if by_row else record.chunk)
    return _dma(VECTORS * record.elements * FP32_BYTES, row_bytes, transfers) | {"queued": "0"}


def _transfers(record: Record) -> dict[str, str]:
    moved = _dma(record.transfer_kib * KIB, record.row_bytes, record.transfers)
    return moved | {"engines": whole(record.engines)}


def _dma(moved_bytes: float, row_bytes: float, transfers: float) -> dict[str, str]:
    numbers = {"moved_bytes": moved_bytes, "row_bytes": row_bytes, "transfers": transfers}
    return {"kernel": "dma"} | {name: whole(x) for name, x in numbers.items()}


SHAPES: Mapping[str, Callable[[Record], dict[str, str]]] = {
    "matmul": _matmul,
    "convolution": _convolution,
    "elementwise": _elementwise,
    "attention": _attention,
    "vectors": _vectors,
    "dma": _transfers,
}


def _use_of_kernel(record: Record) -> str:
    """Return what a kernel's row is used for, by how it was written and what it is."""
    if record.code in CODE_USES:
        return CODE_USES[record.code]
    if record.version in VERSION_USES:
        return VERSION_USES[record.version]
    if record.measure.endswith("_bytes"):
        return "bytes"
    if record.version == "sweep":
        return "tuned-gemm"
    if record.buffering:
        return "nki-schedule"
    if record.op in OP_USES:
        return OP_USES[record.op]
    if record.op == "attention":
        return "framework-attention" if record.causal else "attention"
    if record.op == "elementwise" or record.groups:
        return "memory"
    return "fp32" if record.dtype == "fp32" else "tuned-nki"


def collective(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of a collective asks.

    Parameters
    ----------
    row : mapping of str to str
        Its cells. [-]
    record : Record
        Its typed columns: kind, ranks and message, the graph around it, and what is inside the time. [-]

    Returns
    -------
    question : Question
        A time or a rate of a collective, or of a graph of several. [-]

    Examples
    --------
    >>> call = Record(measure="busbw", kind_of_call="all_reduce", ranks=64.0, message_mib=16.0)
    >>> collective({}, call)[:2]
    ('collective-busbw', {'message_mib': '16', 'ranks': '64', 'kind': 'all_reduce'})
    """
    if record.exchange:
        return _exchange(row, record)
    use = _use_of_series(record) if record.series else _use_of_collective(row, record)
    if record.network == "cards":
        return Question(ASIDE, {}, "network")
    if record.graph == "null":
        return Question(ASIDE, _message(row, record), "null")
    _require_message(row, record)
    arguments = _message(row, record)
    if record.graph == "step":
        return Question("collective-in-step", arguments | {"stack": "gpu-serving"}, use)
    name = "graph-time" if record.graph == "yes" else COLLECTIVES[record.measure]
    if name == "graph-time" or record.each or record.engine == "nccl":
        return Question(name, arguments | ({"launcher": NONE} if record.each else {}), use)
    launcher = _launcher(record)
    unknown = () if record.server_of else ("launch",) if launcher else ("launch", "engine")
    return Question(name, arguments | without_blanks({"launcher": launcher, "waits": record.waits}), use, unknown)


def _launcher(record: Record) -> str:
    """Return what launched a collective; blank where the row says nothing about a launch.

    Raises UnreadableRowError for a time that holds copies by the host, or a launch by a path that it does not name.
    """
    launched = "launch" in record.inside or "host" in record.inside
    if "copies" in record.inside or (launched and "host" in record.inside and record.engine in ON_DEVICE):
        raise UnreadableRowError(f"{MEANING}: the time holds work of the host on the message, and the model has none")
    if record.engine in LAUNCHERS:
        return record.engine
    if launched:
        raise UnreadableRowError(
            f"{MEANING}: the time holds a launch, and the row does not say by what; a column engine with one of "
            f"{', '.join(LAUNCHERS)} would"
        )
    return ""


def _exchange(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of a dispatch or a combine asks: tokens and experts, and whether the host waits for a call."""
    launcher = _launcher(record)
    if launcher != "nki" or record.measure != "collective_time":
        raise UnreadableRowError(
            f"{MEANING}: dispatch and combine have constants for the time of kernels of NKI alone; "
            "engine=nki and a time would help"
        )
    sizes = {
        "tokens": record.tokens_per_rank,
        "hidden": record.hidden,
        "experts": record.experts,
        "experts_per_token": record.experts_per_token,
        "ranks": record.expert_ranks if is_known(record.expert_ranks) else record.ranks,
    }
    if missing := [name for name, size in sizes.items() if not is_known(size)]:
        raise UnreadableRowError(f"{MEANING}: the row does not state {', '.join(missing)} of its {record.exchange}")
    arguments = {name: whole(size) for name, size in sizes.items()}
    arguments |= {
        "exchange": record.exchange,
        "per_choice": record.per_choice,
        "imbalance": whole(record.load_imbalance),
        "launch": "synchronised" if record.waits == "yes" else "overlapped",
    }
    return Question("collective-exchange", without_blanks(arguments) | read_as(record), "expert exchange")


def _require_message(row: Mapping[str, str], record: Record) -> None:
    """Refuse a row of a collective that does not state its kind, its ranks or its size."""
    if record.measure not in COLLECTIVES:
        raise no_meaning(row, "time, busbw, algbw")
    sized = any(is_known(getattr(record, name)) for name in (*SIZED, "rows"))
    known = {"kind_of_call": record.kind_of_call, "ranks": is_known(record.ranks), "message_bytes": sized}
    if missing := [name for name, there in known.items() if not there]:
        names = ", ".join(missing)
        raise UnreadableRowError(
            f"{MEANING}: the row names no {names} of its collective; "
            "a workload such as 'all_reduce 64 ranks size=1048576B' names kind, ranks and size"
        )


def _message(row: Mapping[str, str], record: Record) -> dict[str, str]:
    """Return the call of a collective: kind, ranks, size, algorithm, and the machine or the listing that it is of."""
    names = (*SIZED, "rows", "columns", "ranks", "count")
    arguments = {name: whole(getattr(record, name)) for name in names} | read_as(record)
    arguments |= {
        "kind": record.kind_of_call,
        "series": record.series or (row.get("instance", "")[:4] if record.graph in ("yes", "null") else ""),
        "algorithm": _algorithm(record),
    }
    if record.server_of:
        arguments["where"] = f"hgx-{record.gpu.lower()}"
    return without_blanks(arguments)


def _algorithm(record: Record) -> str:
    """Return the algorithm that a library takes, where it is known: a ring, or one step to all others."""
    if record.engine != "nccl":
        return ""
    return "phased" if re.fullmatch(r"all[_-]?to[_-]?all", record.kind_of_call, re.IGNORECASE) else "ring"


def _use_of_series(record: Record) -> str:
    """Return what a line of a sweep is used for; raises UnreadableRowError for a percentile of the run."""
    if record.measure == "collective_time" and record.statistic in ("", "mean"):
        return "fit"
    if record.measure in ("busbw", "algbw"):
        return "rate"
    raise UnreadableRowError(f"{MEANING}: a percentile of a run whose mean is asked")


def _use_of_collective(row: Mapping[str, str], record: Record) -> str:
    """Return what a row of a collective is used for."""
    if record.graph == "yes":
        return "groups" if record.groups else {1.0: "one", 12.0: "twelve"}.get(record.count, "")
    if record.each:
        return "each"
    if row.get("kind", "").startswith("gpu"):
        return "library" if record.engine == "nccl" else "gpu-all-reduce"
    return "platform not stated" if "not stated" in row.get("instance", "") else ""
