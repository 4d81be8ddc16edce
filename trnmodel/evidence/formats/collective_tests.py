"""nccl-tests and nccom-test: a table of sizes with the time of a collective and two bandwidths, as text or as JSON.

nccl-tests has the columns twice, for buffers out of place and in place. Headings vary with options, so that columns
are taken by their names. Bandwidths of nccom-test count bytes by 1e9 or by 2**30: size and time of the fastest line of
a table say which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trnmodel.evidence.formats.documents import Document, Located
from trnmodel.evidence.formats.runs import Refusal, Run, amount, figures_of, number_of, run_of
from trnmodel.evidence.spellings import KINDS
from trnmodel.units import GB, GIB, US

NCCL, NCCOM = "nccl-tests", "nccom-test"
NCCL_JSON = 3  # the last version of the file that was looked at
NEEDS = "instance kind_of_call ranks"
COLLECTIVE, GPU_COLLECTIVE = "collective", "gpu-collective"
PLACES = {"out_of_place": "out of place", "in_place": "in place"}
PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|gather|scatter|hypercube)_perf", re.I
)
COMMAND = re.compile(r"\bnccom-test\b[^\n]*")
OPERATION = re.compile(
    r"(?<![\w-])(all_reduce|allr|all_gatherv?|allgv?|reduce_scatter|redsct|sendrecv|alltoallv?|permute)(?![\w-])"
)
OF_STREAMS = re.compile(r"--streams[-_]json\b")  # a file of its own says which collective each stream runs
WORKERS = re.compile(r"(?:-r|--nworkers)[ =]+(\d{1,6})\b")
NODES = re.compile(r"(?:-N|--nnodes)[ =]+(\d{1,5})\b")
DEVICE = re.compile(r"^#\s+Rank\s+(\d+)(?:\s+Group\s+(\d+))?\s+Pid\s+\d+ on\s+(\S+)\s+device\s+\d+ \[[^\]]*\]\s*(.*)$")
NCCL_VERSION = re.compile(r"nccl-library=(\d+)|NCCL version (\d+\.\d+(?:\.\d+)?)")
NCCL_HEAD = re.compile(r"^#\s+size\s+count\s+type\b.*\bbusbw\b")
NCCOM_HEAD = re.compile(r"^\s*size\(B\)\s+count\(elems\)")
TIMED = re.compile(r"time(?::(\w+))?\(us\)")
FAILED = re.compile(r"\bFailure\b|\berrors? found\b|\btest failed\b")
NCCOM_UNITS = {"GB/s": GB, "GiB/s": GIB}


def recognises(of: Document) -> bool:
    """Return whether a text is one of these tools'."""
    return _tool_of(of) != ""


def _tool_of(of: Document) -> str:
    if any(_is_nccl(one) for one in of.objects) if of.is_json else False:
        return NCCL
    if any(_is_nccom(one) for one in of.objects) if of.is_json else False:
        return NCCOM
    lines = of.text.splitlines()
    if any(map(NCCL_HEAD.match, lines)):
        return NCCL
    return NCCOM if any(map(NCCOM_HEAD.match, lines)) else ""


def _is_nccl(values: Mapping[str, Any]) -> bool:
    rows = values.get("results")
    return isinstance(rows, list) and any(isinstance(one, Mapping) and PLACES.keys() & one.keys() for one in rows)


def _is_nccom(values: Mapping[str, Any]) -> bool:
    rows = values.get("results")
    return isinstance(rows, list) and any(isinstance(one, Mapping) and "size(B)" in one for one in rows)


def runs(of: Document) -> Iterator[Run | Refusal]:
    """Return the lines of the tables of a text, each a run."""
    as_json = of.is_json
    if not as_json:
        yield from _nccl_text(of) if _tool_of(of) == NCCL else _nccom_text(of)
        return
    yield from of.broken
    for one in of.objects:
        if _is_nccl(one):
            yield from _nccl_json(of, one)
        elif _is_nccom(one):
            yield from _nccom_json(of, one)
        else:
            yield Refusal(of.line(one.at), "collective", "no results of nccl-tests or nccom-test")


def _kind(name: str) -> str:
    """Return a collective by the name that a tool gives it.

    Examples
    --------
    >>> _kind("alltoall"), _kind("redsct"), _kind("all_gather")
    ('all_to_all', 'reduce_scatter', 'all_gather')
    """
    return KINDS.get(name.lower(), name.lower())


def _message(kind: str, ranks: float, size: Any) -> dict[str, Any]:
    """Return the cells that say which collective a line is of: kind, ranks and bytes, those that are known."""
    size_bytes = amount(size)
    known = {"kind_of_call": kind, "ranks": ranks, "message_bytes": size_bytes}
    cells = {name: x for name, x in known.items() if x and x == x}
    ranked = f" {ranks:g} ranks" if ranks > 0 else ""
    return cells | {"workload": f"{kind or 'collective'}{ranked} size={size_bytes:.0f}B"} if size_bytes > 0 else cells


def _line(
    tool: str,
    line: int,
    shared: Mapping[str, Any],
    size: Any,
    columns: Mapping[str, Mapping[str, Any]],
    note: str = "",
    unit: str = "GB/s",
) -> Run:
    """Return the figures of a line of a table by the tool's name of the figure and its statistic."""
    cells = {**shared, **_message(str(shared.get("kind_of_call", "")), number_of(shared.get("ranks")), size)}
    cells |= {"note": note} if note else {}
    wrong = amount(columns.get("#wrong", {}).get(""))
    if wrong > 0:
        return run_of(tool, line, cells, [Refusal(line, note, f"the collective returned {wrong:g} wrong values")])
    columns = {name: values for name, values in columns.items() if name != "#wrong"}
    if not amount(size) > 0:
        return run_of(tool, line, cells, [Refusal(line, "size", "the size of the message is no number above 0")])
    figures = [
        one
        for key, values in columns.items()
        for one in figures_of(tool, key, values, line, unit if key.endswith("bw") else "")
    ]
    return run_of(tool, line, cells, figures, note)


def _nccom_unit(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the unit of the bandwidths of a table: what size over time of its fastest line is nearer to.

    Slow lines have too few digits to tell: both units print 0.01 for 1 KiB in 100 us.

    Examples
    --------
    >>> _nccom_unit([{"size(B)": "33554432", "time(us)": "768", "algbw(GB/s)": "40.69", "busbw(GB/s)": "40.69"}])
    'GiB/s'
    """
    known = [(amount(row.get("size(B)")), _nccom_columns(row)) for row in rows]
    rates = [
        (number_of(columns["algbw"][""]), size_bytes / (number_of(columns["time"].get("avg")) * US))
        for size_bytes, columns in known
        if {"algbw", "time"} <= columns.keys() and number_of(columns["time"].get("avg")) > 0 and size_bytes > 0
    ]
    printed, bytes_per_s = max((one for one in rates if one[0] > 0), default=(0.0, 0.0))
    if not printed:
        return "GB/s"
    return min(NCCOM_UNITS, key=lambda unit: abs(math.log(bytes_per_s / NCCOM_UNITS[unit] / printed)))


def _nccl_shared(program: str, ranks: float, devices: Sequence[str], hosts: int, version: str) -> dict[str, Any]:
    """Return the cells that all lines of a run of nccl-tests share."""
    cells: dict[str, Any] = {"kind": GPU_COLLECTIVE, "phase": "collective", "engine": "nccl", "needs": NEEDS}
    cells |= {"kind_of_call": _kind(program)} if program else {}
    cells |= {"ranks": ranks, "n_cores_used": ranks} if ranks > 0 else {}
    cells |= {"instance": devices[0]} if devices and devices[0] else {}
    cells |= {"machines": hosts} if hosts > 1 else {}
    return cells | ({"date_or_sdk": f"NCCL {version}"} if version else {})


def _nccl_json(of: Document, values: Located) -> Iterator[Run | Refusal]:
    if amount(values.get("version")) > NCCL_JSON:
        yield Refusal(of.line(values.at), NCCL, f"version {values['version']} is unknown; read are up to {NCCL_JSON}")
        return
    config: Any = values.get("config") if isinstance(values.get("config"), Mapping) else {}
    arguments = " ".join(str(one) for one in values.get("args") or [] if isinstance(one, str))
    program = PROGRAM.search(arguments)
    devices = [one for one in config.get("devices") or [] if isinstance(one, Mapping)]
    first = [one for one in devices if one.get("group") == devices[0].get("group")]
    names = [str(one.get("device_info", "")).strip() for one in first]
    hosts = len({one.get("hostname") for one in first})
    code = number_of(values.get("nccl_version"))
    version = f"{code // 10000:.0f}.{code // 100 % 100:.0f}.{code % 100:.0f}" if code >= 10000 else ""
    ranks = max(float(len(first)), amount(config.get("nthreads")) * amount(config.get("ngpus")) * max(hosts, 1))
    shared = _nccl_shared(program[1] if program else "", ranks, names, hosts, version)
    for one in values["results"]:
        at = of.line(getattr(one, "at", values.at))
        if not isinstance(one, Mapping):
            yield Refusal(at, "results", "no line of results")
            continue
        for place, note in PLACES.items():
            if isinstance(body := one.get(place), Mapping):
                line = of.line(getattr(body, "at", values.at))
                keys = {"time": "time", "cpu_time": "cputime", "alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "#wrong"}
                columns = {ours: {"": body[key]} for key, ours in keys.items() if key in body}
                yield _line(NCCL, line, shared | _type(one.get("type")), one.get("size"), columns, note)


def _type(name: Any) -> dict[str, str]:
    """Return the format of a message's elements, where it is one of a precision."""
    formats = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}
    formats |= dict.fromkeys(("fp8", "fp8e4", "fp8e4m3", "fp8e5m2", "f8e4m3", "f8e5m2"), "fp8") | {"int8": "int8"}
    known = formats.get(str(name).lower(), "")
    return {"precision": known} if known else {}


@dataclass
class _Listing:
    """What the lines above a table of nccl-tests say: the program, the library, the devices and the headings."""

    program: str = ""
    version: str = ""
    header: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    printing: bool = False

    def read(self, text: str) -> None:
        """Take what a line says; a device behind a table begins the next listing of the file."""
        if hit := PROGRAM.search(text):
            self.program = hit[1]
        if hit := NCCL_VERSION.search(text):
            self.version = hit[2] or _dotted(hit[1])
        if hit := DEVICE.match(text):
            if self.printing:
                self.devices, self.groups, self.hosts, self.printing = [], [], set(), False
            self.groups.append(hit[2])
            if hit[2] == self.groups[0]:
                self.devices.append(hit[4].strip())
                self.hosts.add(hit[3])
        if NCCL_HEAD.match(text):
            self.header, self.printing = text.lstrip("# ").split(), True

    def shared(self, named: re.Match[str] | None) -> dict[str, Any]:
        """Return the cells that all lines of the table share; the name of the file may name the program."""
        program = self.program or (named[1] if named else "")
        return _nccl_shared(program, float(len(self.devices)), self.devices, len(self.hosts), self.version)


def _nccl_text(of: Document) -> Iterator[Run | Refusal]:
    """Return the lines of the tables of a listing."""
    listing, named = _Listing(), PROGRAM.search(of.path.name)
    for number, text in enumerate(of.text.splitlines(), start=1):
        cells = text.split()
        if text.startswith("#") or not listing.header:
            listing.read(text)
        elif cells and cells[0].isdigit():
            yield from _nccl_line(number, listing.header, cells, listing.shared(named))
        elif cells:
            yield Refusal(number, NCCL, "no line of the table: it does not begin with a size")


def _dotted(code: str) -> str:
    """Return a version of NCCL from its code.

    Examples
    --------
    >>> _dotted("22703")
    '2.27.3'
    """
    return f"{int(code) // 10000}.{int(code) // 100 % 100}.{int(code) % 100}" if len(code) < 9 else ""


def _nccl_line(number: int, header: list[str], cells: list[str], shared: Mapping[str, Any]) -> Iterator[Run | Refusal]:
    """Return the one or two runs of a line: out of place, and in place where it has that."""
    starts = [place for place, name in enumerate(header) if name in ("time", "cputime")]
    if not starts or len(cells) < starts[0] + 3:
        yield Refusal(number, NCCL, f"{len(cells)} columns of {len(header)}: the line ends early")
        return
    row = dict(zip(header[: starts[0]], cells, strict=False)) if starts else {}
    for start, note in zip(starts, PLACES.values(), strict=False):
        columns = dict(zip(header[start : start + 4], ({"": cell} for cell in cells[start : start + 4]), strict=False))
        if len(columns) < 3:
            yield Refusal(number, NCCL, f"{len(cells)} columns of {len(header)}: the figures {note} are missing")
            continue
        yield _line(NCCL, number, {**shared, **_type(row.get("type"))}, row.get("size"), columns, note)


def _nccom_shared(command: str) -> dict[str, Any]:
    """Return the cells that a command of nccom-test states: collective, ranks and machines."""
    operation, workers, nodes = OPERATION.search(command), WORKERS.search(command), NODES.search(command)
    cells: dict[str, Any] = {"kind": COLLECTIVE, "phase": "collective", "engine": NCCOM, "needs": NEEDS}
    cells |= {"kind_of_call": _kind(operation[1])} if operation and not OF_STREAMS.search(command) else {}
    cells |= {"ranks": float(workers[1])} if workers else {}
    return cells | ({"machines": float(nodes[1])} if nodes and int(nodes[1]) > 1 else {})


def _nccom_json(of: Document, values: Located) -> Iterator[Run | Refusal]:
    asked = {key: one for key, one in values.items() if key != "results"}
    shared = _nccom_shared(" ".join(_words(asked)))
    unit = _nccom_unit(one for one in values["results"] if isinstance(one, Mapping))
    for one in values["results"]:
        line = of.line(getattr(one, "at", values.at))
        if isinstance(one, Mapping):
            yield _nccom_line(line, one, shared, unit)
        else:
            yield Refusal(line, "results", "no line of results")


def _words(values: Any) -> Iterator[str]:
    """Return the options that a configuration states, as a command line would: a key and its value."""
    names = {"nworkers": "--nworkers", "nranks": "--nworkers", "ranks": "--nworkers", "nnodes": "--nnodes"}
    if isinstance(values, Mapping):
        for key, one in values.items():
            if isinstance(one, str | int | float):
                yield f"{names.get(key, key)} {one}"
            else:
                yield from _words(one)
    elif isinstance(values, list):
        yield from (str(one) for one in values if isinstance(one, str))


def _nccom_columns(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures of a row by the tool's names, times by their statistic."""
    columns: dict[str, dict[str, Any]] = {}
    for heading, cell in row.items():
        if hit := TIMED.fullmatch(heading):
            columns.setdefault("time", {})[hit[1] or "avg"] = cell
        elif heading in ("algbw(GB/s)", "busbw(GB/s)"):
            columns[heading.partition("(")[0]] = {"": cell}
    return columns


def _nccom_line(line: int, row: Mapping[str, Any], shared: Mapping[str, Any], unit: str) -> Run:
    cells = {**shared, **_type(row.get("type"))}
    return _line(NCCOM, line, cells, row.get("size(B)"), _nccom_columns(row), unit=unit)


def _nccom_text(of: Document) -> Iterator[Run | Refusal]:
    header, shared, rows = list[str](), _nccom_shared(""), dict[int, dict[str, str]]()
    for number, text in enumerate(of.text.splitlines(), start=1):
        if hit := COMMAND.search(text):
            yield from _nccom_table(rows, shared)
            shared, header, rows = _nccom_shared(hit[0]), [], {}
        elif NCCOM_HEAD.match(text):
            yield from _nccom_table(rows, shared)
            header, rows = text.split(), {}
        elif header and (cells := text.split()) and cells[0].isdigit():
            if len(cells) < len(header) or FAILED.search(text):
                yield Refusal(number, NCCOM, f"the run failed or the line ends early: {text.strip()[:120]}")
            else:
                rows[number] = dict(zip(header, cells, strict=False))
    yield from _nccom_table(rows, shared)


def _nccom_table(rows: Mapping[int, Mapping[str, str]], shared: Mapping[str, Any]) -> Iterator[Run]:
    """Return the runs of the lines of a table, by their numbers."""
    unit = _nccom_unit(rows.values())
    yield from (_nccom_line(number, row, shared, unit) for number, row in rows.items())
