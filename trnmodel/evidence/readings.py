"""A measured row and what it asks -> a reading: question, machine, model and shapes, in base units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from trnmodel.arguments import Same, instance, key_of, of_key, shown
from trnmodel.catalog import load
from trnmodel.catalog.names import folded
from trnmodel.catalog.specs import Chip, Precision, Spec
from trnmodel.catalog.stacks import Efficiencies, find
from trnmodel.catalog.systems import System, system, systems
from trnmodel.evidence.cells import MOST, UnreadableRowError, number, tokens
from trnmodel.evidence.columns import ENERGY, JOB, MACHINE, RUN, TRAINING, WATTS
from trnmodel.evidence.described import described, run_columns, stated
from trnmodel.evidence.meanings import Decision, decide
from trnmodel.evidence.names import model_of
from trnmodel.evidence.records import Record
from trnmodel.evidence.software import stack_of_software
from trnmodel.evidence.spellings import KINDS, filled, spelt
from trnmodel.models import shipped
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import DAY, GB, GIB, HOUR, KB, KIB, KW, MB, MIB, MINUTE, MS, NS, TFLOP, US

COUNTS = ("n_cores_used", "lnc", "batch", "input_len", "output_len", "seq_len", "tp", "pp", "dp")
WHOLE = ("n_cores_used", "lnc", "tp", "pp", "dp")
COUNTED = {name: re.compile(rf"^{name}[ =]*(?=\d)|(?<=\d) ?(ranks?|cores?|chips?)$", re.I) for name in COUNTS}  # "TP8"
COARSE = 0.25  # of a value, that half a step of its rounding is: the number says less than a prediction
TIMES = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": MS, "us": US, "min": MINUTE, "h": HOUR, "hours": HOUR}
PER = {"s": 1.0, "min": 1 / MINUTE, "h": 1 / HOUR}
TOKENS = {
    f"{many}{name}/{per}": size * rate
    for many, size in {"": 1.0, "k": 1e3, "M": 1e6}.items()
    for name in ("tokens", "tok")
    for per, rate in PER.items()
}
REQUESTS = {f"req/{per}": rate for per, rate in PER.items()}
SEQUENCES = {f"{name}/{per}": rate for name in ("inf", "sequences", "samples", "seq") for per, rate in PER.items()}
SEQUENCES |= REQUESTS
JOULES = {"J": 1.0, "J/token": 1.0, "J/tok": 1.0, "joules": 1.0, "mJ/token": MS, "mJ/tok": MS, "mJ": MS}
FLOP_RATES = {"TFLOP/s": TFLOP, "TFLOPS": TFLOP, "PFLOP/s": 1e3 * TFLOP}
SHARES = {"fraction": 1.0, "1": 1.0, "%": 0.01}
SIZES = {"KB": KB, "MB": MB, "GB": GB, "MiB": MIB, "GiB": GIB, "bytes": 1.0, "B": 1.0}
RATES = {f"{unit}/s": factor for unit, factor in SIZES.items()}
# a meaning that ends so, or begins so, is in these units; any other is a time
UNITS = {
    "forward-throughput": SEQUENCES,
    "served-requests": REQUESTS,
    "throughput": TOKENS,
    "throughput-batch": TOKENS,
    "speed": TOKENS | {f"{unit}/{who}": size for unit, size in TOKENS.items() for who in ("user", "stream")},
    "train-tokens": TOKENS
    | {f"{unit}/{one}": size for unit, size in TOKENS.items() for one in ("GPU", "chip", "device")},
    "train-sequences": SEQUENCES,
    "train-run": TIMES | {"days": DAY},
    "train-flop-rate-chip": FLOP_RATES,
    "train-executed-flop-rate-chip": FLOP_RATES,
    "energy-watts": {"W": 1.0, "kW": KW},
    "energy-per-token": JOULES,
    "mbu": SHARES,
    "mfu": SHARES,
    "-bytes": SIZES,
    "memory:": SIZES,
    "kernel-time": TIMES | {"ns": NS},
    "flop-rate": {"TFLOPS": TFLOP},
    "busbw": RATES,
    "byte-rate": RATES,
    "algbw": RATES,
    "chip-elements": {"Gelement/s": GB},
    "critical-batch": {"tokens": 1.0},
}
FORMATS = re.compile(r"bf16|bfloat16|fp16|float16|fp32|float32|fp8|float8|int8|mxfp[48]|w4a8|auto-?cast|not printed")
RUNS = (TRAINING, ENERGY)  # questions whose rows have columns of their own
RUN_SHAPES = {"global_batch": "batch", "seq": "seq_len"}  # columns of a run that stand for a raw cell
MODELLESS = ("kernel-", "collective-", "graph-", "chip-")
# a question that the unit of a row turns into another
SHARED = r"(?:/|\bper[ _]|_per_)"
BY_TOKENS, BY_BYTES = {"train-sequences": "train-tokens"}, {"kernel-flop-rate": "kernel-byte-rate"}
BY_USER = {"decode-throughput": "decode-speed", "served-throughput": "loaded-speed"}
BY_JOULES = {"energy-watts": "energy-per-token"}
BY_CHIP = {"train-tokens": "train-tokens-chip"}
BINARY = {"message_kib": KIB, "message_mib": MIB, "message_gib": GIB}
# arguments of a question that say how a row is read; the others are arguments of the call that answers
READ = (
    *("stack", "batch", "context", "prompt", "percentile", "rounding", "unit", "replicas", "precision", "model"),
    *("where", "ep", "series", "input", "tp", "clients", "active", "moe_ep", "new_tokens", "waves", "longest"),
    *("kv", "run_batch"),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one measured number means, in base units; `arguments` are those of the call that answers."""

    meaning: str
    model: Any
    where: str
    stack: Any  # an id, or a set of efficiencies
    mapping: tuple[int, int, int, int | None]
    ep: int
    precision: Precision
    batch: float
    compiled_batch: float
    prompt: float
    input_tokens: float
    output_tokens: float
    context: float
    max_context: float
    percentile: str
    scale: float
    rounding: float
    arguments: tuple[tuple[str, float | str], ...]
    use: str
    weight: float
    reason: str
    clients: float  # requests in flight on a replica; NaN where nobody says
    waves: float  # requests of a closed loop over its slots; 0 where arrivals are not known
    new_tokens: float  # positions that a decode step takes
    moe_ep: int  # ranks of a TP group that hold whole experts
    machines: int  # that the row names, "4x trn1.32xlarge"
    unknown: float = 0  # columns that matter and that nothing states
    engine: str = ""  # that is stated, whether its stack is known or not

    def __hash__(self) -> int:
        """Return the hash of what tells most readings apart: they are keys of caches, and have many fields."""
        return hash((self.meaning, self.where, self.mapping, self.batch, self.prompt, self.context, self.arguments))

    @property
    def degrees(self) -> Degrees:
        """The mapping of one replica, `dp` times."""
        return _degrees(*self.mapping, self.ep, self.moe_ep)

    @property
    def model_id(self) -> str:
        """The model's id; nothing for a question without a model."""
        return str(getattr(self.model, "id", self.model))


Tune = Callable[[Spec], Spec]  # a change of a stack's values


@lru_cache(maxsize=512)
def _degrees(tp: int, pp: int, dp: int, lnc: int | None, ep: int, moe_ep: int) -> Degrees:
    return Degrees(tp=tp, pp=pp, dp=dp, ep=ep, moe_ep=moe_ep, lnc=lnc)


@lru_cache(maxsize=512)
def _machine(where: str, hbm_bytes_per_s: float, layers: int) -> System | Chip:
    for kind, named in (("chip", load.chip), ("system", system)):  # "trn2" alone states no size: it is the chip
        if folded(where) not in load.ids_by_name(kind):
            continue
        try:
            spec: Any = named(where)
        except ValueError:
            continue
        if not (hbm_bytes_per_s or layers):
            return spec
        return replace(
            spec, hbm_bytes_per_s=hbm_bytes_per_s or spec.hbm_bytes_per_s, hbm_bytes=spec.hbm_bytes * (layers or 1)
        )
    raise UnreadableRowError(f"instance {shown(where)} is unknown; one such as trn2.48xlarge or trainium2 would help")


def machine(r: Reading) -> System | Chip:
    """Return the system of a reading, or a bare chip, with the HBM that the row states; one layer has room for all.

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> cells = {"instance": "2x trn1.32xlarge", "workload": "Llama-3.1-8B", "tp": 64, "batch": 4, "seq_len": 2048}
    >>> row = texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0]
    >>> machine(reading(row)).id
    'trn1.32xlarge'
    """
    arguments = dict(r.arguments)
    layers = read_model(r.model).n_layers if "one_layer" in arguments else 0
    return _machine(r.where, float(arguments.get("hbm_bytes_per_s", 0)), layers)


def joined(r: Reading, ranks: float, spread: bool = False) -> System | Chip:
    """Return the machine of a reading, or as many as its row names where one has too few ranks.

    Parameters
    ----------
    r : Reading
        What a row means. [-]
    ranks : float
        Ranks that work together. [-]
    spread : bool
        Whether ranks that one machine could hold are on all machines alike, as those of a collective are. [-]

    Returns
    -------
    machine : System or Chip
        One machine, or several joined by their network. [-]

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> cells = {"instance": "2x trn1.32xlarge", "workload": "Llama-3.1-8B", "tp": 64, "batch": 4, "seq_len": 2048}
    >>> row = texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0]
    >>> [joined(reading(row), ranks).count for ranks in (32, 64)]
    [1, 2]
    """
    where = machine(r)
    if isinstance(where, Chip) or r.machines == 1:
        return where
    if spread:
        return joined_alike(where, r.machines, ranks, r.mapping[3])
    return replace(where, count=r.machines) if ranks > where.chips * site(where, r.mapping[3]).ranks_per_chip else where


def joined_alike(where: System | str, machines: int, ranks: float, lnc: int | None) -> System:
    """Return machines that have as many of the ranks each: all of their chips work, or one of each.

    Raises UnreadableRowError for ranks that fill several chips of a machine and not all.

    Examples
    --------
    >>> [joined_alike("trn2.48xlarge", 2, ranks, 2).domain_chips for ranks in (8, 128)]
    [1, 16]
    """
    one = system(where) if isinstance(where, str) else where
    per_chip = site(one, lnc).ranks_per_chip
    if machines == 1:
        return one
    if ranks > one.chips * per_chip or ranks == machines * one.chips * per_chip:
        return replace(one, count=machines)
    if ranks % machines or ranks > machines * per_chip:
        raise UnreadableRowError(
            f"ranks {ranks:g} on {machines} machines: allowed are as many on each, on one of its chips or on all"
        )
    return _chips_apart(Same(one), machines)


@lru_cache(maxsize=64)
def _chips_apart(where: Same[System], machines: int) -> System:
    """Return machines of which one chip each works, with its share of their network."""
    whole = where.it
    one: dict[str, Any] = {
        "fabric": "single",
        "domain_chips": 1,
        "torus_shape": (),
        "compute_trays_per_rack": math.nan,
        "racks": math.nan,
    }
    return replace(
        whole, count=machines, network_bytes_per_s_per_dir=whole.network_bytes_per_s_per_dir / whole.chips, **one
    )


def stack_of(r: Reading, tune: Tune | None = None) -> Efficiencies:
    """Return the stack of a reading on its machine, changed where one asks for it.

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> cells = {"instance": "2x trn1.32xlarge", "workload": "Llama-3.1-8B", "tp": 64, "batch": 4, "seq_len": 2048}
    >>> row = texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms", "note": "SDK 2.18.0, tnx"}]))[0]
    >>> stack_of(reading(row)).id
    'transformers-neuronx-2.18.0'
    """
    kind = read_model(r.model).kind if r.model else ""
    chosen = _stack(Same(machine(r)), key_of(r.stack or None), kind)
    return instance("tune", tune(chosen), Efficiencies, "a change of a stack") if tune else chosen


def is_of_model(r: Reading) -> bool:
    """Return whether the software stack of a model's steps answers a reading, and no trainer or kernel.

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> cells = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    >>> is_of_model(reading(texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0]))
    True
    """
    return bool(r.model) and not r.meaning.startswith((*RUNS, *MODELLESS))


def with_stack(r: Reading, stack: str | Efficiencies) -> Reading:
    """Return a reading that is asked with a stack, unless it states another release, or has no constants of a stack.

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> cells = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "batch": 4, "seq_len": 2048}
    >>> row = texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0]
    >>> with_stack(reading(row), "ideal").stack.id
    'ideal'
    """
    if not is_of_model(r):
        return r
    where, own = machine(r), stack_of(r).id if r.stack or r.engine else ""
    e = find(where if isinstance(where, Chip) else where.chip, stack, "efficiencies", read_model(r.model).kind)
    return r if own and own != e.id else replace(r, stack=e)


@lru_cache(maxsize=512)
def _stack(where: Same[System | Chip], stack: Any, kind: str) -> Efficiencies:
    """Return the stack of a machine by id or as an object; None is the machine's own for a kind of model."""
    return find(where.it if isinstance(where.it, Chip) else where.it.chip, of_key(stack), "efficiencies", kind)


def _stated_model(workload: str, models: Mapping[str, Any] | None, cells: Mapping[str, str]) -> Any:
    """Return the model of a row: by its shape, its id or its name; none where the row states parameters alone."""
    if made := described(workload, cells):
        return made
    if workload in shipped.catalog() and not (models and workload in models):
        return workload
    try:
        return model_of(workload, models)
    except UnreadableRowError:
        if "params_b" in cells:
            return ""
        raise


def _arguments(own: Mapping[str, float | str], n_chips: float) -> dict[str, float | str]:
    """Return arguments of a question of training or of watts, which counts the chips that its row does."""
    counted = {} if math.isnan(n_chips) or not own.keys() & set(WATTS) else {"chips": n_chips}
    return {name: value for name, value in own.items() if name in (*JOB, *WATTS)} | counted


def counts(row: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers of a row's shapes, NaN for a blank cell; raise UnreadableRowError for any other text.

    Examples
    --------
    >>> numbers = counts(dict.fromkeys(COUNTS, "") | {"tp": "TP8", "seq_len": "4k"})
    >>> numbers["tp"], numbers["seq_len"], numbers["batch"]
    (8.0, 4096.0, nan)
    """
    numbers = {}
    for name in COUNTS:
        cell = COUNTED[name].sub("", row[name]) if row[name] else ""
        numbers[name] = value = tokens(cell) if name.endswith("_len") else number(cell)
        whole = name not in WHOLE or value % 1 == 0
        if row[name] and not (1 <= value <= MOST and whole):
            kind = "whole numbers" if name in WHOLE else "numbers"
            raise UnreadableRowError(f"{name} {shown(row[name])}: allowed are {kind} from 1 to {MOST}, or a blank cell")
    return numbers


def _first(*values: float) -> float:
    return next((value for value in values if not math.isnan(value)), math.nan)


def _length(policy: str, n: Mapping[str, float], fallback: float) -> float:
    """Return a length by its policy: "seq", "input", "median" or "middle" of the output, or a number."""
    known = {
        "seq": n["seq_len"],
        "input": n["input_len"],
        "median": n["input_len"] + n["output_len"] / 2 + 1,
        "middle": n["input_len"] + n["output_len"] / 2,
    }
    return _first(known.get(policy, number(policy)), fallback)


def _lengths(n: Mapping[str, float], policies: Mapping[str, str]) -> dict[str, float]:
    """Prompt, output, context and compiled maximum of a row, each by its policy or by what the row prints."""
    input_len, out, seq = n["input_len"], n["output_len"], n["seq_len"]
    total, prompt, context = input_len + out, policies.get("prompt", ""), policies.get("context", "")
    longest = _length(policies.get("longest", ""), n, math.nan)
    return {
        "input_tokens": _first(input_len, number(prompt), seq),
        "output_tokens": _first(out, seq - input_len if seq > input_len else math.nan),
        "prompt": _length(prompt, n, _first(input_len, seq)),
        "context": _length(context, n, _first(total, seq, input_len)),
        "max_context": _first(longest, seq, total, input_len, number(context), number(prompt)),
    }


def _mapping(n: Mapping[str, float], replicas: float) -> tuple[int, int, int, int | None]:
    """TP, PP, DP and logical core size; a missing TP is what cores, LNC and the other degrees leave."""
    pp, dp, per_rank, tp = _first(n["pp"], 1.0), _first(n["dp"], 1.0), _first(n["lnc"], 1.0), n["tp"]
    if not math.isnan(replicas):
        tp, dp = _first(tp, 1.0), replicas
    if math.isnan(tp):
        tp = max(1.0, _first(n["n_cores_used"], per_rank) / per_rank / pp / dp)
    if tp % 1:
        cores = f"{n['n_cores_used']:g} cores at LNC {per_rank:g}, PP {pp:g}, DP {dp:g}"
        raise UnreadableRowError(f"n_cores_used: {cores} leave no whole TP")
    return int(tp), int(pp), int(dp), None if math.isnan(n["lnc"]) else int(n["lnc"])


def _workers(stated: str, n: Mapping[str, float], where: str) -> float:
    """Return how many replicas of one core run: a number, or one on each core of the machine."""
    if stated != "cores":
        return number(stated)
    at = site(_machine(where, 0, 0), None if math.isnan(n["lnc"]) else int(n["lnc"]))
    return _first(n["n_cores_used"], float(at.chips * at.ranks_per_chip))


def _replicas(n: Mapping[str, float], where: System | Chip, machines: int) -> float:
    """Replicas of a training job that prints none: what the cores that it names hold, else those of its machines."""
    at = site(where, None if math.isnan(n["lnc"]) else int(n["lnc"]))
    cores = _first(n["n_cores_used"], at.chips * machines * at.ranks_per_chip * at.lnc)
    return max(1.0, cores / at.lnc // (_first(n["tp"], 1.0) * _first(n["pp"], 1.0)))


def _batches(n: Mapping[str, float], say: Mapping[str, str], replicas: int) -> dict[str, float]:
    """Active and compiled sequences of a replica: the row's, a number, "total" over all replicas, or "total:N".

    Of clients in flight no more are active than slots were compiled; where a row names no slots there is one for each.
    """
    policy, clients = say["batch"], number(say["clients"]) / replicas
    if math.isnan(n["batch"]) and not policy and not math.isnan(clients):
        policy = f"{max(1.0, clients):.15g}"
    total, _, printed = policy.rpartition(":") if policy.startswith("total") else ("", "", policy)
    stated, batch = number(printed), _first(n["batch"], 1.0)
    if policy[:1].isdigit() and not 1 <= stated <= MOST:
        raise UnreadableRowError(f"note: a compiled batch of {shown(policy)}: allowed are numbers from 1 to {MOST}")
    batch = max(1.0, batch / replicas) if policy.startswith("total") else batch
    compiled = max(batch, _first(stated / (replicas if total else 1), batch))
    active = _first(number(say["active"]), clients, batch)
    return {"batch": min(max(1.0, active), compiled), "compiled_batch": compiled, "clients": clients}


def _printed_precision(printed: str) -> Precision:
    text = printed.lower()
    if text and not FORMATS.search(text):
        known = "bf16, fp16, fp32, fp8, int8, mxfp4 and w4a8"
        raise UnreadableRowError(f"precision {shown(printed)}: names no format; {known} are formats")
    if "fp8" in text and ("expert" in text or "moe" in text):
        return replace(load.precision("bf16"), name="fp8-experts", experts="fp8")
    names = [("w4a8", "w4a8"), ("mxfp8", "mxfp8"), ("mxfp4", "mxfp4-moe"), ("fp8", "fp8"), ("int8", "int8")]
    return load.precision(next((preset for word, preset in names if word in text), "bf16"))


@lru_cache(maxsize=512)
def _precision(preset: str, printed: str) -> Precision:
    """Return the format that a preset names ("int8+int8" has the cache's too), or the one that the row prints."""
    if not preset:
        return _printed_precision(printed)
    if preset == "fp32-autocast":
        return replace(load.precision("fp32"), name=preset, compute="bf16", attention="bf16")
    name, _, kv = preset.partition("+")
    return replace(load.precision(name), kv=kv) if kv else load.precision(name)


@lru_cache(maxsize=512)
def _cached_in(precision: Precision, kv: str) -> Precision:
    """Return formats of which that of the cache is another, where one is stated."""
    return replace(precision, kv=kv, name=f"{precision.name}+{kv}") if kv else precision


@lru_cache(maxsize=512)
def _where(instance: str) -> str:
    if "not stated" in instance.lower():
        return "not stated"
    if instance.strip().lower() in systems():
        return instance.strip().lower()
    if gpu := re.search(r"(?<![a-z])([ABH][1-3]00|GB[23]00|MI[23]\d\dX?)(?!\d)", instance, re.I):
        return gpu[1].lower()
    plain = re.sub(r"^(\d+ ?x |aws |amazon )+", "", instance.lower())  # one of several alike
    plain = re.sub(r"(?<=\dx)l\b", "large", plain)
    named = re.search(r"\b(trn|inf)\d\w*\.\w+", plain)
    return _instance(named[0] if named else re.sub(r"^trn2 ultraserver", "trn2-ultraserver", plain).split(" ")[0])


def _machines(instance: str) -> int:
    """How many machines a name counts: "4x trn1.32xlarge"."""
    counted = re.match(r"(\d{1,5}) ?[x×] ", instance)
    return max(int(counted[1]), 1) if counted else 1


def _instance(name: str) -> str:
    """Return an instance by its name, or by family and size where one of the catalogue has both ("trn3.48xlarge")."""
    family, _, size = name.partition(".")
    known = [one for one in systems() if one.startswith(family) and one.endswith(f".{size}")]
    return known[0] if len(known) == 1 and re.fullmatch(r"[a-z]+\d+", family) and name not in known else name


@lru_cache(maxsize=512)
def _units(meaning: str) -> Mapping[str, float]:
    """Return the units of a meaning, with their sizes."""
    fits = [units for end, units in UNITS.items() if meaning.endswith(end) or meaning.startswith(end)]
    return fits[0] if fits else TIMES


def _meaning(question: str, row: Mapping[str, str]) -> str:
    """Return the question of a row, by what its unit is of and what it is shared out over: tokens, a user, a chip."""
    unit, text = row["unit"], f"{row['metric']} {row['unit']}"
    if question in BY_TOKENS and "tok" in unit:
        question = BY_TOKENS[question]
    if question in BY_JOULES and re.match(r"m?J\b|joules", unit, re.I):
        return BY_JOULES[question]
    if question in BY_BYTES and unit.endswith("B/s"):
        return BY_BYTES[question]
    if re.search(rf"{SHARED}(user|stream)\b", text, re.I):
        return BY_USER.get(question, question)
    if not re.search(rf"{SHARED}(device|gpu|chip|accelerator|card|core)\b", text, re.I):
        return question
    if question not in BY_CHIP and question.endswith(("throughput", "requests")):
        raise UnreadableRowError(f"{shown(text)}: of a part of the machine; units of {question} are of all of it")
    return BY_CHIP.get(question, question)


def is_rate(meaning: str) -> bool:
    """Whether more of a meaning is faster.

    Examples
    --------
    >>> [is_rate(name) for name in ("decode-step", "decode-throughput", "kernel-mfu", "energy-per-token")]
    [False, True, True, False]
    """
    units = _units(meaning)
    by_time = units is SHARES or any("/" in name or name == "TFLOPS" for name in units)
    return by_time and not meaning.startswith(ENERGY)


def _scale(meaning: str, row: Mapping[str, str], override: str) -> float:
    """Return base units in the unit of a row, which must be one of its meaning; "MB=MiB GB=GiB" overrides two.

    Where the unit is blank the metric may name it: "TPOT (ms)".
    """
    inside = re.search(r"\(([^()]+)\)$", row["metric"])
    unit = row["unit"].partition(" ")[0] or (inside[1] if inside else "")
    overrides = {before: after for before, _, after in (pair.partition("=") for pair in override.split())}
    unit = overrides.get(unit, unit)
    known = _units(meaning)
    if unit not in known:
        unit = spelt({**row, "unit": row["unit"] or unit})["unit"]
    if unit not in known:
        raise UnreadableRowError(f"unit {shown(row['unit'])}: units of {meaning} are {', '.join(known)}")
    return known[unit]


def call_arguments(arguments: Mapping[str, str]) -> tuple[tuple[str, float | str], ...]:
    """Return arguments of the call that answers: numbers where they are some, messages in bytes, kinds by their names.

    Examples
    --------
    >>> call_arguments({"kind": "All-Reduce", "message_kib": "64", "stack": "ideal"})
    (('kind', 'all_reduce'), ('message_bytes', 65536.0))
    """
    call: dict[str, float | str] = {}
    for name, printed in arguments.items():
        if name not in READ:
            value = number(printed)
            call[name] = printed if math.isnan(value) else value
    for name in BINARY.keys() & call.keys():
        call["message_bytes"] = call.pop(name) * BINARY[name]
    if "kind" in call:
        kind = str(call["kind"]).lower().replace("-", "_")
        call["kind"] = KINDS.get(kind, kind)
    return tuple(sorted(call.items()))


def reading(
    row: Mapping[str, str], models: Mapping[str, Any] | None = None, decided: Decision | None = None
) -> Reading:
    """Return what a row means; raises UnreadableRowError with the reason for a row that cannot be predicted.

    Parameters
    ----------
    row : mapping of str to str
        The cells of a row, as `trnmodel.evidence.cells.texts` has them. [-]
    models : mapping, optional
        Workload name to model, asked before the names of the catalog. [-]
    decided : Decision, optional
        What the row asks, where that is known; else it is decided here. [-]

    Returns
    -------
    reading : Reading
        The question of the row with its machine, model and sizes. [base units]

    Examples
    --------
    >>> import pandas as pd
    >>> from trnmodel.evidence.cells import texts
    >>> cells = {"instance": "2x trn1.32xlarge", "workload": "Llama-3.1-8B", "tp": 64, "batch": 4, "seq_len": 2048}
    >>> row = texts(pd.DataFrame([cells | {"metric": "TPOT", "value": 9, "unit": "ms"}]))[0]
    >>> one = reading(row)
    >>> one.meaning, one.model, one.where, one.mapping, one.batch, one.scale
    ('decode-step', 'llama-3.1-8b', 'trn1.32xlarge', (64, 1, 1, None), 4.0, 0.001)
    """
    row = filled(row)
    d = decided or decide(row)
    if d.refused:
        raise UnreadableRowError(d.reason or f"metric {shown(row['metric'])} has no counterpart in the model")
    return _reading(row, d, models)


def _rounding(stated: str, printed: str) -> float:
    """Return half a step of a rounded value: what is stated, or half of the last digit that is printed.

    Examples
    --------
    >>> _rounding("digit", "0.3"), _rounding("0.01", "0.02"), _rounding("", "7")
    (0.05, 0.005, 0.0)
    """
    if stated == "digit":
        return 0.5 / 10 ** len(printed.partition(".")[2])
    return number(stated) / 2 if stated else 0.0


def _software(record: Record, where: str, known: Any) -> str:
    """Return the stack for what a record says of its software; nothing for the chip's own."""
    if not known:
        return ""
    spec = _machine(where, 0, 0)
    chip = spec if isinstance(spec, Chip) else spec.chip
    return stack_of_software(record, chip.id, read_model(known).kind)


def _model(row: Mapping[str, str], d: Decision, columns: Mapping[str, str], models: Mapping[str, Any] | None) -> Any:
    """Return the model of a row; nothing for a question without one."""
    if d.question.startswith(MODELLESS):
        return ""
    if chosen := d.arguments.get("model", ""):
        return chosen
    if d.question.startswith(RUNS):
        return _stated_model(row["workload"], models, columns)
    return model_of(row["workload"], models)


def _shapes(row: Mapping[str, str], say: Mapping[str, str], run: Mapping[str, float | str]) -> dict[str, float]:
    """Return the numbers of a row's shapes, with those that its words or its own columns state."""
    n = counts(row)
    n["input_len"], n["tp"] = _first(n["input_len"], number(say["input"])), _first(number(say["tp"]), n["tp"])
    n["batch"] = _first(number(say["run_batch"]), n["batch"])
    return n | {cell: float(run[name]) for name, cell in RUN_SHAPES.items() if name in run}


def _job_shapes(n: Mapping[str, float], run: Mapping[str, float | str], where: str, machines: int) -> dict[str, float]:
    """Return the shapes of a training job: where it prints no DP, replicas fill the cores that it names."""
    ranks = float(run.get("expert_ranks", 1)) * float(run.get("context_ranks", 1))
    replicas = max(1.0, _replicas(n, _machine(where, 0, 0), machines) // ranks)
    return {**n, "dp": _first(n["dp"], replicas), "tp": _first(n["tp"], 1.0)}


def _vote(d: Decision, rounding: float, value: float) -> tuple[float, str]:
    """Return the weight of a row and why it has none: a number that is rounded to a part of itself says little."""
    coarse = value > 0 and rounding > COARSE * value
    return (0.0, f"rounded to {rounding / value:.0%} of its value") if coarse else (d.weight, d.reason)


def _reading(row: Mapping[str, str], d: Decision, models: Mapping[str, Any] | None) -> Reading:
    say = {name: d.arguments.get(name, "") for name in READ}
    meaning = _meaning(d.question, row)
    scale = _scale(meaning, row, say["unit"])
    is_job, is_run = d.question.startswith(TRAINING), d.question.startswith(RUNS)
    columns = run_columns(row, d.record) if is_run else {}
    run = stated(columns, (*MACHINE[1:], *RUN, *(JOB if is_job else WATTS)))
    known = _model(row, d, columns, models)
    n = _shapes(row, say, run)
    where = say["where"] or _where(row["instance"])
    machines = int(_first(d.record.machines, _machines(row["instance"])))
    if is_job:
        n = _job_shapes(n, run, where, machines)
    rounding = _rounding(say["rounding"], row["value"])
    weight, reason = _vote(d, rounding, number(row["value"]))
    mapping = _mapping(n, _workers(say["replicas"], n, where))
    sizes = _batches(n, say, mapping[2]) | _lengths(n, say)
    arguments = dict(call_arguments(d.arguments)) | _arguments(run, number(row["n_chips"]))
    return Reading(
        meaning=meaning,
        model=known,
        where=where,
        stack=run.get("training_stack", "") if is_run else say["stack"] or _software(d.record, where, known),
        mapping=mapping,
        ep=int(run.get("expert_ranks", _first(number(say["ep"]), 1))),
        precision=_cached_in(_precision(say["precision"], row["precision"]), say["kv"]),
        percentile=say["percentile"],
        scale=scale,
        rounding=rounding,
        arguments=tuple(sorted(arguments.items())),
        use=d.use,
        weight=weight,
        reason=reason,
        waves=_first(number(say["waves"]), 0.0),
        new_tokens=_first(number(say["new_tokens"]), 1.0),
        moe_ep=int(_first(number(say["moe_ep"]), 1)),
        machines=machines,
        unknown=len(d.unknown),
        engine=d.record.engine,
        **{name: math.nan if math.isnan(size) else size for name, size in sizes.items()},  # one NaN equals itself
    )
