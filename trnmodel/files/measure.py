"""Benchmark scripts for a saved plan: its own point, and the further runs that tell most of the software's constants.

Flags as their documents have them. vLLM: docs.vllm.ai, "vllm bench serve" (random prompts of one length, results as
JSON, `--metadata`). AWS: "NCCOM-TEST User Guide" (`-r`, `-b`, `-e`, `-f`, `-d`, `--report-to-json-file`), "Neuron
Monitor User Guide" (its configuration file) and "Neuron Sysfs User Guide" (power as a share of the most, each minute).
NVIDIA: nccl-tests, README (`-b`, `-e`, `-f`, `-g`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import trnmodel
from trnmodel.arguments import ImpossibleError, refuse
from trnmodel.catalog import untrusted
from trnmodel.declared import Checked, declare
from trnmodel.files.saved import answer_again
from trnmodel.quantities import quantity
from trnmodel.result import Card, in_sentence, tidy
from trnmodel.search.choice import Choice
from trnmodel.search.launch import command, served_name, server_of
from trnmodel.search.next_measurement import next_measurement
from trnmodel.search.pairs import Pair
from trnmodel.search.plan import Plan
from trnmodel.search.points import Point, points, spreads
from trnmodel.units import HOUR, KIB, format_digits, format_duration

if TYPE_CHECKING:
    import pandas as pd

README, MARK, RESULTS = "README.txt", "measure.json", "results"
KIND, FORMAT = "trnmodel measurements", 1
OURS = re.compile(r"[a-z0-9-]+\.(sh|json|txt)")  # names of files that this module writes
MAX_MARK_BYTES, MAX_DEPTH = 256 * KIB, 8
WIDTH = 100
HEAD = "#!/usr/bin/env bash\n# Written by trnmodel measure; README.txt says why each run is there.\nset -euo pipefail\n"
HERE = 'cd "$(dirname "$0")"'
PORTS = {"sglang": 30000}  # of servers that do not listen on 8000
WIDE_BYTES, LEAST_MESSAGE = 2, KIB  # bytes of an activation that is sent, and the smallest message that is timed
STEP = 4  # factor between the sizes of messages
NEURON, NVIDIA = "AWS", "NVIDIA"
MONITOR = {
    "period": "1s",
    "neuron_runtimes": [
        {
            "tag_filter": ".*",
            "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}, {"type": "execution_stats"}],
        }
    ],
    "system_metrics": [{"type": "vcpu_usage"}, {"type": "memory_info"}, {"type": "neuron_hw_counters"}],
}


class Run(NamedTuple):
    """A run of the benchmark: its name, its point, the server that it needs, and its script."""

    name: str
    point: Point
    server: str
    script: str


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Measurements(Card):
    """Scripts that were written for a plan: the folder, its files, each run of the server, and what they cost.

    `instance_h` are the instance-hours of the runs as predicted, without the start of a server and its compilation;
    `usd` is their rent, NaN where none is published. `advice` says what to learn before the plan's decision, where it
    has a load and a rival with a price.
    """

    folder: str
    files: tuple[str, ...]
    runs: tuple[Run, ...]
    system: str
    instances: float
    usd_per_h: float
    advice: str

    @property
    def instance_h(self) -> float:
        """Instance-hours of all runs of the server, as predicted."""
        return sum(run.point.duration_s for run in self.runs) * self.instances / HOUR

    @property
    def usd(self) -> float:
        """Rent of these instance-hours [USD]."""
        return self.instance_h * self.usd_per_h

    def card(self) -> list[str]:
        """Return where the scripts are, what they measure and cost, and what to learn first."""
        usd = f", ${format_digits(self.usd, 2)} at the published rent" if np.isfinite(self.usd) else ""
        hours = f"{format_digits(self.instance_h, 2)} instance-hours of {self.system}{usd}"
        lines = [f"{self.folder}: {len(self.runs)} runs of the server, {hours}; {README} says why each is there"]
        lines += [
            f"{run.script}: {_described(run.point)}, {format_duration(run.point.duration_s)}" for run in self.runs
        ]
        others = [name for name in self.files if name not in {run.script for run in self.runs}]
        return [*lines, f"also written: {', '.join(others)}", *([self.advice] if self.advice else [])]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each run of the server.

        Returns
        -------
        table : pandas.DataFrame
            run, script, server_script, batch, clients, requests_per_s (infinite where all are sent at once),
            input_tokens, output_tokens, requests, duration_s, tells (the constants that it narrows).
        """
        rows = []
        for run in self.runs:
            point = run.point
            row: dict[str, Any] = {"run": run.name, "script": run.script, "server_script": run.server}
            row |= {"batch": point.batch, "clients": point.concurrency, "requests_per_s": point.requests_per_s}
            row |= {"input_tokens": point.input_tokens, "output_tokens": point.output_tokens}
            row |= {"requests": point.prompts, "duration_s": point.duration_s}
            rows.append(row | {"tells": " ".join(point.narrowed)})
        return tidy(rows)


@declare(
    path=Checked("the path of a file that save_plan wrote", {"type": "string"}),
    folder=Checked("the path of a folder that is new, empty or was written by this call", {"type": "string"}),
)
def measure(path: str | Path, folder: str | Path) -> Measurements:
    """Write benchmark scripts for a saved plan into a folder: its own point, and what tells most beside it.

    Parameters
    ----------
    path : str or Path
        A file that `tm.save_plan` or `trnmodel plan --save` wrote. [-]
    folder : str or Path
        Folder that is made. One that is empty or that this call wrote may be there; results in it stay. [-]

    Returns
    -------
    measurements : Measurements
        `.runs`, `.files`, `.instance_h`, `.usd`, `.advice`; `.to_frame()` has a row for each run.

    Raises
    ------
    ValueError
        The file is no saved plan, nothing keeps the promises of its plan, its best choice runs on two systems, or the
        folder holds something else.

    Notes
    -----
    The scripts start the server with the plan's own command, where the documents of its software give one, and run
    `vllm bench serve` at the planned load. Up to three further runs are those that narrow the constants of the software
    most, as the model has them: other batches and shorter prompts. Where chips exchange data, the collective of a
    decode step and of a prompt is timed by itself. What the tools print is read by `trnmodel validate`.

    Examples
    --------
    >>> import tempfile
    >>> import trnmodel as tm
    >>> request = {"input_tokens": 512, "output_tokens": 64}
    >>> asked = {"model": "llama-3.1-8b", "systems": "trn2.3xlarge", "request": request}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     plan = tm.save_plan(asked, f"{place}/plan.json")
    ...     tm.measure(f"{place}/plan.json", f"{place}/scripts").runs[0].script
    'bench.sh'
    """
    where = untrusted.as_path("path", path)
    target = untrusted.as_path("folder", folder, "a folder")
    before = _former_files(target)
    plan = answer_again(where.absolute()).plan  # so that a server finds a model of one's own from any folder
    c = plan.best
    if c is None or not c.valid:
        raise ImpossibleError(f"path={untrusted.printed(where)}: no system keeps the promises of this plan today")
    if isinstance(c, Pair):
        refuse("path", str(where), "its best choice runs on two systems, which no single server is")
    assert plan.demand is not None
    runs, advice = _runs(c), _advice(plan)
    price = float(plan.demand.price(c.system).usd_per_chip_h) * c.system.chips
    texts = _scripts(plan, c, runs)
    result = Measurements(
        folder=untrusted.printed(target),
        files=(README, *texts),
        runs=tuple(runs),
        system=c.system.id,
        instances=c.instances,
        usd_per_h=price,
        advice=advice,
    )
    texts = {README: _readme(plan, c, result), **texts}
    _write(target, texts | {MARK: _mark(texts, result)}, before - texts.keys())
    return result


def _advice(plan: Plan) -> str:
    """Return what to learn before the plan's decision; empty where it has no load, or no rival with a price."""
    with suppress(ValueError):
        return next_measurement(plan).advice
    return ""


def _runs(c: Choice) -> list[Run]:
    """Return the runs of the server; those at another batch need a server of their own where graphs are compiled."""
    runs = list[Run]()
    for place, point in enumerate(points(c)):
        other = c.times.compiled and point.batch != int(c.batch)
        end = f"-batch-{point.batch}" if other else ""
        name = "own-point" if not place else f"batch-{point.batch}-input-{point.input_tokens}"
        runs.append(Run(name, point, f"server{end}.sh", f"bench{end}.sh"))
    return runs


def _scripts(plan: Plan, c: Choice, runs: Iterable[Run]) -> dict[str, str]:
    """Return the scripts by name: servers, benchmarks, collectives and power."""
    texts, of_script = dict[str, str](), dict[str, list[Run]]()
    for run in runs:
        of_script.setdefault(run.script, []).append(run)
        started = _started(plan, c, run.point.batch)
        if started and run.server not in texts:
            texts[run.server] = f"{HEAD}{HERE}\n{started}\n"
    for script, some in of_script.items():
        texts[script] = _bench(plan, c, some)
    collective = _collective(c)
    if collective:
        texts["collective.sh"] = collective
    if c.system.chip.vendor == NEURON:
        texts["power.sh"], texts["monitor.json"] = _power(), json.dumps(MONITOR, indent=2) + "\n"
    return texts


def _started(plan: Plan, c: Choice, batch: int) -> str:
    """Return the command of a server with so many slots; empty where no document gives it."""
    step = c.step if batch == int(c.batch) else c.question.decode(c.degrees, np.asarray(float(batch)))
    longest = float(plan.request.longest_context)
    return command(plan.model, c.option, step, c.first, c.dtypes, c.lnc, longest)


def _bench(plan: Plan, c: Choice, runs: Iterable[Run]) -> str:
    """Return the script of the runs that one server answers."""
    port = PORTS.get(server_of(c.option), 8000)
    lines = [
        HEAD,
        HERE,
        f"mkdir -p {RESULTS}",
        f'HOST="${{HOST:-127.0.0.1}}" PORT="${{PORT:-{port}}}"',
        'RELEASE="${RELEASE:-$(vllm --version 2>/dev/null | tail -n 1)}"  # of the server; set it where it is another',
    ]
    return "\n".join([*lines, *(_bench_line(plan, c, run) for run in runs)]) + "\n"


def _bench_line(plan: Plan, c: Choice, run: Run) -> str:
    """Return the call of `vllm bench serve` for a run."""
    point, share = run.point, float(plan.request.prefix_share)
    prefix = int(point.input_tokens * share)
    arguments = ["vllm", "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"]
    arguments += [
        "--model",
        served_name(plan.model, c.option),
        "--dataset-name",
        "random",
        "--seed",
        "0",
        "--ignore-eos",
    ]
    arguments += ["--random-input-len", str(max(point.input_tokens - prefix, 1))]
    arguments += ["--random-prefix-len", str(prefix)] if prefix else []
    arguments += ["--random-output-len", str(point.output_tokens), "--num-prompts", str(point.prompts)]
    arguments += ["--max-concurrency", str(point.concurrency)]
    arguments += ["--request-rate", f"{point.requests_per_s:.6g}"] if np.isfinite(point.requests_per_s) else []
    arguments += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99"]
    arguments += ["--save-result", "--result-dir", RESULTS, "--result-filename", f"{run.name}.json", "--metadata"]
    arguments += [f"{name}={value}" for name, value in _metadata(c, point).items()]
    return f'\n{shlex.join(arguments)} "release=$RELEASE" --host "$HOST" --port "$PORT"'


def _metadata(c: Choice, point: Point) -> dict[str, str]:
    """Return what the benchmark does not print of a run: machine, degrees, precision and slots."""
    cells = {"system": c.system.id, "chips": f"{c.chips:g}", "tp": f"{c.tp:g}", "ep": f"{c.ep:g}", "pp": f"{c.pp:g}"}
    cells |= {"lnc": str(c.lnc)} if c.system.chip.core else {}
    cells |= {"precision": c.precision, "max_num_seqs": str(point.batch if c.times.compiled else int(c.batch))}
    server = server_of(c.option)
    return cells | ({"engine": server} if server else {})


def _collective(c: Choice) -> str:
    """Return the script that times the exchange of a decode step and of a prompt; empty where there is none."""
    vendor, ranks = c.system.chip.vendor, int(max(c.tp, c.ep))
    if ranks < 2 or vendor not in (NEURON, NVIDIA) or c.instances > 1:
        return ""
    width = c.question.model.hidden_size * WIDE_BYTES
    low = 2 ** int(np.log2(max(width * c.batch / c.ep, LEAST_MESSAGE)))
    high = 2 ** int(np.ceil(np.log2(max(width * float(c.question.request.new_tokens), STEP * low))))
    sizes = ["-b", str(low), "-e", str(high), "-f", str(STEP)]
    kinds = ["all_reduce"] * (c.tp > 1) + ["alltoall"] * (c.ep > 1)
    lines = [HEAD, HERE, f"mkdir -p {RESULTS}"]
    for kind in kinds:
        n = int(c.tp if kind == "all_reduce" else c.ep)
        if vendor == NEURON:
            arguments = ["nccom-test", kind, "-r", str(n), *sizes, "-d", "bf16", "--non-interactive"]
            arguments += ["--report-to-json-file", f"{RESULTS}/nccom-{kind.replace('_', '-')}.json"]
            lines.append(f"NEURON_LOGICAL_NC_CONFIG={c.lnc} {shlex.join(arguments)}")
        else:
            arguments = [f"{kind}_perf", *sizes, "-g", str(n), "-d", "bfloat16"]
            lines.append(f"{shlex.join(arguments)} | tee {RESULTS}/nccl-{kind.replace('_', '-')}.txt")
    return "\n".join(lines) + "\n"


def _power() -> str:
    """Return the script that records counters and power while another one runs."""
    return f"""{HEAD}{HERE}
mkdir -p {RESULTS}
neuron-monitor -c monitor.json > {RESULTS}/neuron-monitor.jsonl &
monitor=$!
echo device,status,timestamp,min_percent,max_percent,mean_percent > {RESULTS}/power.csv
trap 'kill "$monitor"' EXIT
while sleep 60; do  # the driver renews these shares of the most power each minute
  for device in /sys/devices/virtual/neuron_device/neuron*; do
    printf '%s,%s\\n' "${{device##*/}}" "$(cat "$device/stats/power/utilization")"
  done >> {RESULTS}/power.csv
done
"""


def _described(point: Point) -> str:
    """Return a run in words."""
    rate = f"{format_digits(point.requests_per_s, 3)} requests/s, " if np.isfinite(point.requests_per_s) else ""
    lengths = f"{point.input_tokens:,} tokens in and {point.output_tokens:,} out"
    most = "one at a time" if point.concurrency == 1 else f"up to {point.concurrency:,} at once"
    return f"{point.prompts:,} requests of {lengths}, {rate}{most}"


def _title(name: str) -> str:
    """Return what a constant is called, in a sentence."""
    return in_sentence(quantity(name, "Efficiencies").title or name.replace("_", " "))


def _why(run: Run, place: int) -> str:
    """Return why a run is asked."""
    narrowed = [_title(name) for name in run.point.narrowed]
    says = f"It narrows {_list(narrowed)}." if narrowed else "It narrows no constant by a tenth."
    if not place:
        return f"This is the plan's own point: what it prints stands against the plan's figures. {says}"
    return f"Of all other runs this one tells most beside those above. {says}"


def _plain(text: str) -> str:
    """Return a name on one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _list(texts: list[str]) -> str:
    """Return texts as a list in words."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _readme(plan: Plan, c: Choice, result: Measurements) -> str:
    """Return the text that says what each script measures, why, and what it costs."""
    request = plan.request.describe()
    parts = [f"Measurements for the plan of {_plain(plan.model.id)} on {c.place}"]
    parts.append(
        f"The plan chooses {c.mapping}, for requests of {request}. These scripts measure its own point, and the few "
        "others that tell most of the constants of its software."
    )
    usd = f", or ${format_digits(result.usd, 2)} at the published rent" if np.isfinite(result.usd) else ""
    parts.append(
        f"All runs of the server take {format_digits(result.instance_h, 2)} instance-hours{usd}, as predicted. "
        "The start of each server, with its compilation, comes on top and is not predicted."
    )
    parts += _steps_of(plan, c, result)
    shares = spreads(c, [run.point for run in result.runs])
    lines = [
        f"{_title(name)} ({name}): +-{100 * a:.0f} % before, +-{100 * b:.0f} % after" for name, (a, b) in shares.items()
    ]
    if lines:
        parts.append("What the runs of the server narrow, if the form of the model is right:\n" + _bulleted(lines))
    rest = [_title(name) for name in c.stack.open_ranges if name not in shares]
    if rest:
        parts.append(f"What they leave as it is: {_list(rest)}.")
    parts.append(
        "When all is done, compare what was measured with the prediction:\n\n"
        f"  trnmodel validate {RESULTS}/*.json --system {shlex.quote(c.system.id)}"
    )
    if result.advice:
        parts.append(f"For the decision between systems: {result.advice}")
    return "\n\n".join(_filled(part) for part in parts) + "\n"


def _steps_of(plan: Plan, c: Choice, result: Measurements) -> list[str]:
    """Return the paragraphs on each script, in the order in which they are run."""
    parts, number = list[str](), 0
    servers = dict.fromkeys((run.server, run.script) for run in result.runs)
    for server, script in servers:
        number += 1
        runs = [(place, run) for place, run in enumerate(result.runs) if run.script == script]
        if server in result.files:
            start = f"{number}. Start {server} and wait until it answers, then run {script} beside it."
        else:
            why = plan.no_command or "the plan's software is a scenario, or no document gives its flags"
            start = f"{number}. Start your own server ({why}), then run {script} beside it."
        lines = [
            f"{run.name} ({_described(run.point)}; {format_duration(run.point.duration_s)}): {_why(run, place)}"
            for place, run in runs
        ]
        parts.append(f"{start}\n{_bulleted(lines)}")
    if "collective.sh" in result.files:
        number += 1
        parts.append(
            f"{number}. Without a server, run collective.sh. It times the exchange of a decode step and of a prompt by "
            "itself, which no run of a server tells apart from the rest of a step. The hours above do not count it."
        )
    if "power.sh" in result.files:
        parts.append(
            "While a benchmark runs, power.sh in a second terminal records the counters of neuron-monitor and, each "
            "minute, the power of each device as a share of the most that it may draw. Stop it with Ctrl-C. "
            "It costs nothing more."
        )
    return parts


def _bulleted(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _filled(part: str) -> str:
    """Return a paragraph in lines of bounded width; its own lines stay apart, and commands stay whole."""
    lines = part.split("\n")
    return "\n".join(
        line
        if line.startswith("  ")
        else fill(line, WIDTH, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)
        for line in lines
    )


def _mark(texts: Mapping[str, str], result: Measurements) -> str:
    """Return the file that says that a folder was written by this module, with its files."""
    rows = json.loads(result.to_frame().to_json(orient="records", double_precision=12))
    held = {"kind": KIND, "format": FORMAT, "trnmodel": trnmodel.__version__, "files": sorted(texts), "runs": rows}
    return json.dumps(held, indent=1, allow_nan=False) + "\n"


def _former_files(folder: Path) -> set[str]:
    """Return the files that an earlier call wrote into a folder; refuse one that holds something else."""
    printed = untrusted.printed(folder)
    try:
        if not os.path.lexists(folder):
            return set()
        if not folder.is_dir():
            raise ValueError(f"folder={printed}: this is a file; allowed is a folder that is new or empty")
        if not any(folder.iterdir()):
            return set()
        if (folder / MARK).is_symlink() or not (folder / MARK).is_file():
            raise ValueError(f"folder={printed}: it holds other files; allowed is a folder that is new or empty")
    except OSError as error:
        raise ValueError(f"folder={printed}: cannot be read: {error.strerror}") from None
    origin = f"folder={printed}: {MARK}"
    content = untrusted.content("folder", folder / MARK, MAX_MARK_BYTES)
    held = untrusted.json_object(content, origin, "the mark of such a folder", MAX_DEPTH)
    files = held.get("files")
    if held.get("kind") != KIND or not isinstance(files, list):
        raise ValueError(f"{origin}: it was not written by trnmodel measure; allowed is a folder that is new or empty")
    return {name for name in files if isinstance(name, str) and OURS.fullmatch(name)}


def _write(folder: Path, texts: Mapping[str, str], stale: Iterable[str]) -> None:
    """Write files whole: all as drafts first, then each is renamed; what an earlier call wrote beside them goes."""
    drafts = dict[Path, Path]()
    made = [one for one in (folder, *folder.parents) if not os.path.lexists(one)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            drafts[path] = draft = folder / f".{name}.{os.getpid()}.draft"
            with draft.open("x", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            draft.chmod(0o755 if name.endswith(".sh") else 0o644)
        for path, draft in drafts.items():
            draft.replace(path)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    except (OSError, UnicodeEncodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        refuse("folder", untrusted.printed(folder), f"cannot be written: {why}")
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        for one in made:
            with suppress(OSError):
                one.rmdir()
