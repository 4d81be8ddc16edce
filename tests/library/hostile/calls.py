"""Every public call with arguments that work, the kind of each argument, and ordinary values of it.

This is the one place that knows where public names live. A call is code, so that a failure prints as a line to run.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import trnmodel as tm
from trnmodel.result import Card
from trnmodel.serving import server as serving
from trnmodel.steps.deployment import Deployment

from .files import CONFIGS, ROOT, Config, config_file, keys, named_file, renamed, table_file, written
from .kinds import KINDS, Kind, of_rule
from .values import made

NOT_TYPED = {
    "Topology": "made by tm.topology",
    "Transformer": "made by tm.model",
    "MappingProxyType": "of the standard library",
    "Capacity": "made by tm.plan",
    "Calibration": "made by tm.calibrate",
    "Check": "made by tm.check",
    "Measurements": "made by tm.measure",
    "NextMeasurement": "made by tm.next_measurement",
    "Choice": "a choice of a Plan",
    "Demand": "made by tm.plan",
    "Claim": "a row of Claims",
    "Claims": "made by tm.claims",
    "Diagnoses": "made by tm.doctor",
    "Diagnosis": "a row of Diagnoses",
    "Flips": "made by tm.plan",
    "Collective": "made by tm.collective",
    "Comparison": "made by tm.compare",
    "Cost": "made by tm.tco",
    "Energy": "made by tm.energy",
    "Explanation": "made by tm.explain",
    "Goodput": "made by tm.goodput",
    "KernelTime": "made by tm.kernel.matmul",
    "Legality": "made by tm.legal",
    "MeasuredRows": "made by tm.read_measurements",
    "MemoryFit": "made by tm.memory_fit",
    "Plan": "made by tm.plan",
    "Quality": "made by tm.quality",
    "RequestEnergy": "made by tm.energy",
    "Scenario": "made by tm.scenario",
    "Sensitivity": "made by tm.sensitivity",
    "Serving": "made by tm.serve",
    "SoftwareGap": "made by tm.software_gap",
    "Step": "made by tm.decode_step",
    "Support": "made by tm.support",
    "TokenCost": "a line of TokenCosts",
    "TokenCosts": "made by tm.token_cost",
    "TrainRun": "made by tm.train_run",
    "TrainRuns": "made by tm.train_run",
    "TrainStep": "made by tm.train_step",
}


@dataclass(frozen=True)
class Call:
    """A public call: its code, whose it is to mend, and codes of arguments that work."""

    code: str
    owner: str
    base: dict[str, str]
    kinds: dict[str, str]
    ordinary: dict[str, tuple[str, ...]]
    also: dict[str, tuple[str, ...]] = field(default_factory=dict)
    together: tuple[dict[str, str], ...] = ()
    any_number: bool = False  # what it answers may be negative, or NaN for no number

    @cached_property
    def function(self) -> Callable:
        """What is called."""
        return made(self.code, HELPERS)

    @cached_property
    def target(self) -> Any:
        """The public function or constructor behind the call."""
        if self.code.startswith("changed("):
            return type(made(self.code.removeprefix("changed(")[:-1], HELPERS))
        return getattr(self.function, "__func__", self.function)

    @cached_property
    def optional(self) -> frozenset[str]:
        """Arguments that may be None."""
        found = inspect.signature(self.target).parameters.values()
        return frozenset(p.name for p in found if p.default is None or "None" in str(p.annotation))

    @cached_property
    def declared(self) -> dict[str, Kind]:
        """The kinds of the arguments whose declaration says what they must refuse."""
        rules = getattr(self.target, "allowed", {})
        found = {name: of_rule(rule) for name, rule in rules.items()}
        return {name: kind for name, kind in found.items() if kind}

    def declared_names(self) -> dict[str, str]:
        """The declared arguments; what lets NaN pass is a figure."""
        rules = getattr(self.target, "allowed", {})
        return {
            name: "declared figure" if getattr(rules[name], "unknown", False) else "declared" for name in self.declared
        }

    def kind(self, name: str) -> Kind:
        """The kind of an argument: what the row says, else what its declaration says."""
        return KINDS[self.kinds[name]] if self.kinds[name] not in FROM_DECLARATION else self.declared[name]

    def refuses(self, name: str, value: Any) -> bool:
        """Whether a value must be refused."""
        return not (value is None and name in self.optional) and bool(self.kind(name).refuses(value))

    def arguments(self, codes: dict[str, str]) -> dict[str, Any]:
        """The arguments that codes make, those of the base where none is given."""
        return {name: made(code, HELPERS) for name, code in (self.base | codes).items()}

    def line(self, codes: dict[str, str]) -> str:
        """The call as one line of code."""
        short = {name: code if len(code) < 60 else code[:57] + "..." for name, code in (self.base | codes).items()}
        return f"{self.code}({', '.join(f'{name}={code}' for name, code in short.items())})"


def _keywords(text: str) -> dict[str, str]:
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(keyword.arg): ast.unparse(keyword.value) for keyword in call.keywords}


def _lists(text: str) -> dict[str, tuple[str, ...]]:
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(k.arg): tuple(ast.unparse(item) for item in k.value.elts) for k in call.keywords}  # type: ignore[attr-defined]


def _kinds(text: str) -> dict[str, str]:
    """`number: a b; flag: c` as {"a": "number", "b": "number", "c": "flag"}."""
    groups = (group.split(":") for group in filter(str.strip, text.split(";")))
    return {name: kind.strip() for kind, names in groups for name in names.split()}


def _call(
    owner: str,
    code: str,
    base: str = "",
    kinds: str = "",
    ordinary: str = "",
    *,
    also: dict[str, tuple[str, ...]] | None = None,
    misfit: str = "",
    any_number: bool = False,
) -> Call:
    together = (_keywords(misfit),) if misfit else ()
    return Call(code, owner, _keywords(base), _kinds(kinds), _lists(ordinary), also or {}, together, any_number)


SPEC_KINDS = {
    "str": "text",
    "float": "figure",
    "int": "integer",
    "bool": "flag",
    "Mapping": "table",
    "tuple": "sizes",
    "frozenset": "any",
    "Core": "object",
    "Engine": "object",
    "Switch": "object",
}
PROVENANCE = dict.fromkeys(("sources", "ranges", "estimates"), "any")


def _spec_kinds(kind: type) -> dict[str, str]:
    names = {f.name: str(f.type).partition("[")[0].partition(" |")[0] for f in fields(kind)}
    return {name: SPEC_KINDS.get(found, "choice") for name, found in names.items()} | PROVENANCE


def _replaced(owner: str, code: str, kind: type, **other: str) -> Call:
    """The constructor of a spec, by a copy with one field changed."""
    return Call(f"changed({code})", owner, {}, _spec_kinds(kind) | other, {})


def changed(spec: Any) -> Callable:
    """A spec's constructor with all but the fields to change."""
    return lambda **changes: replace(spec, **changes)


def _used(owner: str, code: str, spec: Any) -> Call:
    """A call on a spec with one number changed; what is then refused may be the spec as a whole, by its id."""
    used = {"figure": "used-figure", "integer": "used-figure", "sizes": "used-sizes"}
    kinds = {name: used[kind] for name, kind in _spec_kinds(type(spec)).items() if kind in used}
    return Call(code, owner, {}, kinds, {}, also=dict.fromkeys(kinds, (spec.id,)))


# What stands behind calls on things that a user has changed.


def step_on_chip(**changes: Any):
    """A decode step on a bare chip with changes."""
    chip = replace(tm.chip("trainium2"), **changes)
    return tm.decode_step("llama-3.1-8b", chip, tm.Mapping(tp=4), batch=4, context=2048)


def kernel_on_core(part: str) -> Callable:
    """A matrix product on a chip whose core, or one of its engines, has changes."""

    def run(**changes: Any):
        chip = tm.chip("trainium2")
        own = chip.core if part == "core" else getattr(chip.core, part)
        own = replace(own, **changes)
        core = own if part == "core" else replace(chip.core, **{part: own})
        return tm.kernel.attention(replace(chip, core=core), 512, 512)

    return run


def fabric_of(name: str) -> Callable:
    """A collective and the hops of a system with changes."""

    def run(**changes: Any):
        where = replace(tm.system(name), **changes)
        return tm.topology(where).hop_histogram(), tm.collective("all_reduce", 2**20, where)

    return run


def steps_of_stack(**changes: Any):
    """Prefill and decode of a mixture of experts under a changed set of efficiencies."""
    stack = replace(tm.efficiencies("trainium2"), **changes)
    where = {"model": "mixtral-8x7b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=4, ep=2)}
    return (
        tm.prefill(**where, input_tokens=512, efficiencies=stack),
        tm.decode_step(**where, batch=4, context=2048, efficiencies=stack),
    )


def rate(x: Any, label: Any = "a") -> dict[str, Any]:
    """A function to sweep."""
    return {"kind": type(x).__name__, "label": type(label).__name__}


@cache
def _measured() -> pd.DataFrame:
    return pd.read_csv(ROOT / "data" / "evidence" / "measured.csv", dtype=str, keep_default_na=False).head(4)


def measured(rows: int = 2) -> pd.DataFrame:
    """The first measured rows."""
    return _measured().head(rows).copy()


def run_file() -> Path:
    """A run of `vllm bench serve` in a file."""
    return ROOT / "tests" / "data" / "formats" / "vllm_old.json"


def cell(**changes: Any) -> pd.DataFrame:
    """Two measured rows judged, of which the first has hostile cells."""
    rows = measured().astype(object)
    for name, value in changes.items():
        rows[name] = pd.Series([value, rows[name].iloc[1]], index=rows.index, dtype=object)
    judged = tm.validate(rows)
    assert len(judged) == 2, "a row is lost"
    assert judged.skipped.iloc[1] == "", "the good row is lost"
    assert judged.predicted.iloc[0] > 0 or judged.skipped.iloc[0], "neither a prediction nor a reason"
    assert len(judged.skipped.iloc[0]) <= 400, "the reason is too long"
    return judged


def served() -> Deployment:
    """A model on eight GPUs."""
    return Deployment(model="llama-3.1-8b", system="hgx-h100", mapping=tm.Mapping(tp=2))


SCENARIO = {"model": "llama-3.2-1b", "request": {"input_tokens": 512, "output_tokens": 64}, "systems": "trn2.3xlarge"}
SCENARIO |= {"training": {"tokens": 1e9, "chips": 16, "recompute": ["none"], "zero": [1]}}
SCENARIO |= {"job": {"chips": 64}, "step": {"tp": 4, "batch": 4, "context": 512}, "precision": "bf16"}


def measuring() -> dict[str, Any]:
    """A scenario with measurements of its own."""
    path = written("own.csv", measured().to_csv(index=False))
    return SCENARIO | {"measurements": str(path)}


@cache
def plan_file() -> str:
    """A saved plan."""
    path = written("plan.json", "")
    tm.save_plan(SCENARIO, path)
    return str(path)


def empty_folder() -> str:
    """A folder for scripts, the same each time."""
    return str(written("scripts.txt", "").with_name("scripts"))


def compared() -> Any:
    """A comparison whose systems have prices."""
    return tm.compare("llama-3.2-1b", tm.Request(512, 64, 20.0), ["trn2.3xlarge", "hgx-h100"])


def scenario_with(section: str) -> Callable:
    """A scenario of which a section has other values."""
    own: Any = SCENARIO.get(section, {})
    return lambda **changes: tm.scenario(SCENARIO | {section: own | changes} if section else SCENARIO | changes)


HELPERS: dict[str, Any] = {
    "SCENARIO": SCENARIO,
    "measuring": measuring,
    "plan_file": plan_file,
    "run_file": run_file,
    "empty_folder": empty_folder,
    "compared": compared,
    "scenario_with": scenario_with,
    "changed": changed,
    "step_on_chip": step_on_chip,
    "kernel_on_core": kernel_on_core,
    "fabric_of": fabric_of,
    "steps_of_stack": steps_of_stack,
    "rate": rate,
    "measured": measured,
    "cell": cell,
    "Config": Config,
    "renamed": renamed,
    "config_file": config_file,
    "named_file": named_file,
    "table_file": table_file,
    "served": served,
    "disaggregate": serving.disaggregate,
    "tokens_per_step": serving.tokens_per_step,
}

FROM_DECLARATION = ("declared", "declared figure")
STEP = "model='llama-3.1-8b', system='trn2.48xlarge', mapping=tm.Mapping(tp=8)"
MODELS = """'llama-3.1-8b', 'llama-3.1-70b', 'mixtral-8x7b', 'qwen3-30b-a3b', 'deepseek-v2-lite', 'gpt-oss-20b',
    'gemma-2-9b'"""
SYSTEMS = "'trn2.48xlarge', 'trn1.32xlarge', 'trn3-nl72x2-pcie160', 'trn2-ultraserver', 'hgx-h100'"
DEGREES = "tp=8", "tp=8, pp=2", "tp=4, dp=2", "tp=4, ep=4", "tp=16"
MAPPINGS = ", ".join(f"tm.Mapping({degrees})" for degrees in DEGREES)
PLACES = f"model=[{MODELS}], system=[{SYSTEMS}], mapping=[{MAPPINGS}]"
AGES = "age_days", "rates"  # of a rent at a date
DEMAND = "tm.plan('llama-3.2-1b', tm.Request(512, 64, 20.0), 'trn2.48xlarge', chips=64.0).demand"
OF_SYSTEM = "price", "site", "most_instances", "least", "each"  # methods of a demand
PROMISED = "request=tm.Request(512, 64, tokens_per_s_per_user=20.0)"
REQUESTS = ", ".join(
    f"tm.Request({prompt}, {answer}, requests_per_s={rate}, prefix_share={share})"
    for prompt in (100, 1000)
    for answer in (10, 100)
    for rate in (0.1, 1)
    for share in (0, 0.5)
)
ASKED = "precision=['bf16', 'fp8'], efficiencies=['ideal']"
RUN = "tm.train_run('llama-3.2-1b', 'hgx-a100', tokens=1e12, chips=8, global_batch=8, recompute=['none'])"
CHIPS = "chip=['trainium2', 'trainium3', 'trainium1', 'inferentia2']"
SIZES = "[1, 100, 128, 512, 4096, 5000]"


KIN = {  # keys of a configuration that name one quantity
    "num_local_experts": ("num_experts",),
    "n_routed_experts": ("num_experts",),
}


CANDIDATE = "text: name reads kind system; one: noise cost_usd"


def _searches() -> Iterator[Call]:
    ends = "request=tm.Request(512, 64), systems=['trn2.3xlarge', 'inf2.48xlarge'], speeds=[20.0]"
    both = f"systems='trn2.3xlarge', prefill_systems='trn2.3xlarge', {PROMISED}"
    for name, asked, kinds in (
        ("tm.plan", f"model='llama-3.1-8b', {both}", "object: systems prefill_systems; any: pricing"),
        ("tm.compare", f"model='llama-3.2-1b', {ends}", "object: systems; any: pricing region"),
    ):
        yield _call("doors", name, asked, kinds)
    yield _call(
        "doors",
        "tm.next_measurement",
        "decision=compared(), candidates=None, users=100.0, months=12.0, bill='rented', hours=2.0, draws=400",
        "object: decision; any: candidates speed",
    )
    yield _call("doors", "tm.Candidate", "name='ours', reads='prefill on hgx-h100', noise=0.1, cost_usd=5.0", CANDIDATE)
    yield _call(
        "doors",
        "tm.software_gap",
        f"model='llama-3.2-1b', system='trn2.3xlarge', of='usd_per_mtoken', precision='bf16', {PROMISED}",
        "any: precision pricing",
    )
    yield _call(
        "doors",
        "tm.training_gap",
        "model='llama-3.2-1b', system='hgx-a100', tokens=1e12, chips=8, seq=2048, global_batch=8",
    )


def _files() -> Iterator[Call]:
    yield _call("rows", "tm.scenario", "source=measuring()", "object: source", also={"source": ("scenario",)})
    yield _call(
        "rows",
        "tm.scenario_table",
        "sources=[SCENARIO], call='energy', executor=None, progress=False",
        "object: sources; executor: executor",
        also={"sources": ("scenario",)},
    )
    yield _call("rows", "tm.check", "path=plan_file()", "object: path")
    yield _call("rows", "tm.measure", "path=plan_file(), folder=empty_folder()", "object: path; folder: folder")
    yield _call(
        "rows",
        "tm.save_plan",
        "source=SCENARIO, path=plan_file()",
        "object: source path answer",
        also={"source": ("scenario",)},
    )
    for section, names in (
        ("request", "input_tokens output_tokens"),
        ("job", "chips"),
        ("step", "tp batch context"),
        ("training", "tokens"),
    ):
        yield _call(
            "rows", f"scenario_with({section!r})", "", f"any: {names}", also=dict.fromkeys(names.split(), ("scenario",))
        )
    yield _call(
        "doors",
        "tm.train_run",
        "model='llama-3.2-1b', systems=['hgx-a100', 'hgx-h100'], tokens=1e12, chips=16, seq=2048, global_batch=8, "
        "recompute=['none'], zero=[1], sequence_parallel=[True]",
        "object: systems; list: recompute; any: zero sequence_parallel pricing region",
    )


def _roots() -> Iterator[Call]:
    yield _call("doors", "tm.chip", "name='trainium2'", also={"name": ("chip",)})
    yield _call("doors", "tm.system", "name='trn2.48xlarge'", also={"name": ("system",)})
    yield _call("rows", "tm.model", "source='llama-3.1-8b'", also={"source": ("model",)})
    yield _call("rows", "renamed", "", "any: name")
    yield _call("doors", "tm.topology", "system='trn2.48xlarge'")
    yield _call("doors", "tm.schema", "name='decode_step'", also={"name": ("a public call",)})
    yield _call("doors", "tm.efficiencies", "chip='trainium2', stack='ideal'")
    for name in ("facts", "model_ids", "names_table", "prices", "validation"):
        yield _call("doors", f"tm.{name}")
    yield _call("doors", "tm.systems", "roadmap=True")
    yield _call(
        "doors",
        "tm.sweep",
        "function=rate, grid={'x': [1.0, 2.0]}, progress=False",
        "callable: function; grid: grid; executor: executor; choice: to",
    )
    yield from (*_searches(), *_files())
    yield _call("doors", "tm.fleet", "name='llama-3-h100'", also={"name": ("fleet",)})
    yield _call(
        "doors",
        "tm.goodput",
        "system='trn3-nl72x2-pcie160', chips=4096, checkpoint_bytes=1e12, swap='hot', step_spread=0.01, spare_chips=8",
        "one: failure_domain_chips",
    )
    yield _call("doors", "tm.rent", "system='hgx-h100', pricing='on-demand'", "any: pricing region")
    yield from (_call("doors", f"tm.rent('hgx-h100').{name}", "at='2026-11-22'", "choice: at") for name in AGES)
    yield _call(
        "doors",
        "tm.token_cost",
        f"model='llama-3.2-1b', systems='trn2.3xlarge', {PROMISED}",
        "object: systems; any: pricing region",
    )
    yield _call("doors", "tm.owner", "name='neocloud'", also={"name": ("owner",)})
    yield _call(
        "doors",
        "tm.tco",
        "system='trn3-nl32x2-pcie160', goodput=0.9, utilisation=0.8, chip_usd=9e3, switch_usd_per_lane=9.0, tdp_w=800",
        "share: goodput",
    )
    yield _call(
        "doors",
        "tm.train_step",
        "model='gpt3-6.7b', system='hgx-a100', mapping=tm.Mapping(tp=2, pp=2), global_batch=8, seq=2048, count=1",
    )
    yield _call(
        "doors",
        "tm.train_run",
        "model='llama-3.2-1b', systems='hgx-a100', tokens=1e12, chips=8, seq=2048, global_batch=8, batch_slack=0.0, "
        "recompute=['none'], zero=[1], sequence_parallel=[True]",
        "object: systems; list: recompute; any: zero sequence_parallel pricing region",
    )
    yield _call("doors", f"{RUN}.days_at", "mfu=0.4", "number: mfu")
    yield _call(
        "doors",
        "tm.sensitivity",
        "function=lambda x: 2 * x, inputs={'x': (1.0, 2.0)}, draws=16, seed=1",
        "callable: function; grid: inputs; any: distributions",
    )
    yield _call(
        "doors",
        "tm.energy",
        "step=served(), batch=4, request=tm.Request(512, 64)",
    )
    yield from _measured_rows()


def _measured_rows() -> Iterator[Call]:
    yield _call("rows", "tm.validate", "rows=measured()", "frame: rows; models: models")
    yield _call(
        "rows", "tm.read_measurements", "paths=run_file(), stated={'tp': 8}", "object: paths; statement: stated"
    )
    yield _call("rows", "tm.frozen", "rows=measured()", "frame-or-none: rows; models: models")
    step = "tm.decode_step('llama-3.2-1b', 'trn2.48xlarge', batch=1, context=2048)"
    yield _call("doors", "tm.explain", f"answer={step}", "object: answer")
    yield _call("rows", "tm.nearest", "rows=measured(), count=2", "frame: rows; models: models")
    yield _call("rows", "tm.claims", "topic='memory', verdict='agrees'", "choice: topic verdict source")
    yield _call("rows", "tm.doctor", "rows=measured()", "frame: rows; models: models")
    yield _call("rows", "tm.calibrate", "rows=measured()", "frame: rows; models: models")
    yield _call("rows", "config_file", "", "config: text", also={"text": ("config.json",)})
    yield _call("rows", "named_file", "", "file-name: name")
    yield _call("rows", "table_file", "", "csv: text", also={"text": ("rows",)})
    for name in CONFIGS:
        yield Call(f"Config('{name}')", "rows", {}, dict.fromkeys(keys(name), "token"), {}, also=KIN)
    yield Call("cell", "rows", {}, dict.fromkeys(_measured(), "cell"), {})


def _specs() -> Iterator[Call]:
    yield _call(
        "main",
        "tm.Mapping",
        "",
        "count: tp pp dp ep cp moe_ep; integer: lnc; choice: placement",
        "tp=[1, 8], pp=[1, 4], dp=[2], ep=[1, 16], cp=[1, 2], moe_ep=[1, 2], lnc=[None, 2]",
    )
    yield _call(
        "main",
        "tm.Request",
        "input_tokens=1000, output_tokens=100, tokens_per_s_per_user=20.0, ttft_s=1.0, requests_per_s=1.0",
        "from1: input_tokens output_tokens; positive: tokens_per_s_per_user ttft_s; percentile: ttft_percentile;"
        "share: prefix_share; arrivals: requests_per_s",
        "input_tokens=[1, 4096], output_tokens=[1, 512], tokens_per_s_per_user=[None, 50], ttft_s=[None, 2],"
        "ttft_percentile=[50, 99], prefix_share=[0, 1], requests_per_s=[None, 0.1]",
        misfit="input_tokens=[1, 2, 3], output_tokens=[1, 2]",
    )
    yield _call(
        "doors",
        "tm.Precision",
        "",
        "choice: weights experts kv activations compute attention; text: name; flag: sparse",
        "weights=['bf16', 'fp8', 'mxfp4']",
    )
    yield _call("main", "tm.Mapping(tp=2).extent", "name='tp'", "choice: name")
    yield _call("doors", f"{DEMAND}.at_rate", "request=tm.Request(512, 64)", "object: request")
    yield from (_call("doors", f"{DEMAND}.{name}", "system='trn2.48xlarge'", "object: system") for name in OF_SYSTEM)
    yield _call("doors", "tm.Precision().storage_bytes", "part='weights'", "choice: part")
    chip = tm.chip("trainium2")
    yield _replaced("doors", "tm.chip('trainium2')", tm.Chip)
    yield _replaced("doors", "tm.chip('trainium2').core", tm.Core)
    yield _replaced("doors", "tm.chip('trainium2').core.tensor", tm.Engine)
    yield _replaced("doors", "tm.system('trn3-nl32x2-pcie160')", tm.System, cross_rack_shift="whole")
    stack = tm.efficiencies("trainium2")
    policies = {name: "choice" for name, kind in _spec_kinds(type(stack)).items() if kind == "text"}
    policies |= {"id": "text", "name": "text", "measured_as": "stack-id"}
    endless = {f.name: "rate" for f in fields(stack) if f.default == np.inf}
    yield _replaced("doors", "tm.efficiencies('trainium2')", type(stack), **policies, **endless)
    yield _replaced("doors", "tm.rent('hgx-h100')", tm.Rent, chip="object")
    yield _replaced("doors", "tm.fleet()", tm.Fleet, checkpoint_bytes_per_s="rate")
    yield _replaced("doors", "tm.prices()", tm.Prices)
    yield _replaced("doors", "tm.owner()", tm.Owner)
    yield _used("doors", "step_on_chip", chip)
    yield _used("doors", "kernel_on_core('core')", chip.core)
    for engine in ("tensor", "vector", "scalar"):
        yield _used("doors", f"kernel_on_core('{engine}')", getattr(chip.core, engine))
    for name in ("trn3-nl32x2-pcie160", "trn2.48xlarge"):
        yield _used("doors", f"fabric_of('{name}')", tm.system(name))
    yield _used("doors", "steps_of_stack", stack)


def _methods() -> Iterator[Call]:
    yield _call("doors", "tm.chip('trainium2').peak", "dtype='bf16'", "choice: dtype; flag: sparse")
    yield _call("doors", "tm.chip('trainium2').logical", "", "integer: lnc")
    yield _call("doors", "tm.chip('trainium2').range", "name='hbm_bytes'", "choice: name")
    yield _call("doors", "tm.chip('trainium2').at", "name='hbm_bytes'", "choice: name")
    yield _call("doors", "tm.chip('trainium2').moved", "values={'tdp_w': 500.0}", "table: values")
    yield _call("doors", "tm.system('trn3-nl32x2-pcie160').with_switch_trays", "trays=5", "integer: trays")
    fabric = "tm.topology('trn2.48xlarge')"
    yield _call(
        "doors",
        f"{fabric}.hop_histogram",
        "",
        "choice: metric scope",
        "metric=['edges', 'intermediate'], scope=['world', 'rack']",
    )
    yield _call("doors", f"{fabric}.path", "one='chip0,0', other='chip2,2'", "choice: one other")
    yield _call("doors", f"{fabric}.injection_by_medium")
    for name in ("flow", "oversubscription"):
        yield _call("doors", f"{fabric}.{name}", "", "choice: scope", "scope=['world']")
    yield _call(
        "doors",
        f"{fabric}.all_to_all_bytes_per_s_per_pair",
        "",
        "choice: scope routing",
        "scope=['world'], routing=['free', 'even', 'whole']",
    )
    yield _call("doors", f"{fabric}.without", "", "lanes: lanes; list: links switches switch_trays")
    answer = "tm.decode_step('llama-3.1-8b', 'trn2.48xlarge', batch=1, context=128)"
    yield _call("main", f"{answer}.require_valid")
    yield _call("main", f"{answer}.to_frame")


def _transformer() -> Iterator[Call]:
    dense, experts = "tm.model('llama-3.1-8b')", "tm.model('deepseek-v2-lite')"
    counts = "[0, 1, 128, 4096, 131072]"
    yield _call("doors", f"{dense}.active_params", "", "flag: input_embedding")
    for name in ("'gpt-oss-20b'", "'deepseek-v2-lite'"):
        yield _call(
            "doors",
            f"tm.model({name}).prefill_flop",
            "tokens=2048",
            "number: tokens past; choice: attention logits",
            f"tokens={counts}, past={counts}, attention=['causal', 'full'], logits=['last', 'all', 'none']",
        )
    yield _call(
        "doors",
        f"{experts}.decode_flop",
        "context=2048",
        "number: context tokens source",
        "context=[128, 4096, 131072], tokens=[1, 4]",
    )
    yield _call("doors", f"{dense}.train_flop", "seq=2048", "number: seq; choice: attention", "seq=[128, 4096]")
    yield _call("doors", f"{dense}.kv_bytes_per_token", "", "choice: dtype", "dtype=['bf16', 'fp8', 'fp32']")
    yield _call(
        "doors",
        "tm.model('gpt-oss-20b').kv_bytes",
        "context=2048",
        "number: context source; choice: dtype",
        f"context={counts}, dtype=['bf16', 'fp8']",
    )
    yield _call("doors", f"{dense}.state_bytes", "", "choice: dtype conv_dtype")
    yield _call(
        "doors",
        f"{experts}.weight_bytes",
        "",
        "object: precision; flag: prediction",
        "precision=['bf16', 'fp8', 'mxfp4-moe'], prediction=[True, False]",
    )
    yield _call(
        "doors",
        f"{experts}.weight_bytes_read",
        "batch=4",
        "number: batch; object: precision; choice: expert_read phase",
        "batch=[1, 7, 64, 512], precision=['bf16', 'fp8'], expert_read=['distinct', 'per_token', 'all']",
    )
    yield _call(
        "doors",
        f"{experts}.operators",
        "phase='decode', batch=4, past=2047",
        "number: batch tokens past source; object: precision; choice: phase expert_read attention logits",
        "batch=[1, 4], tokens=[1, 2], past=[0, 2047]",
    )
    for name in ("terms", "summed_terms"):
        yield _call("doors", f"{experts}.{name}", "", "object: precision; choice: phase")
    for name in ("attentions", "outline"):
        yield _call("doors", f"{experts}.{name}", "", "choice: phase")


def _steps() -> Iterator[Call]:
    mixed = "mapping=tm.Mapping(tp=[1, 2, 4]), batch=np.full(2, 4.0)"
    shape = "context=[128, 2048, 8192, 32768]"
    more = "expert_imbalance=[1, 1.5], compute_memory_overlap=[0, 0.5, 1], network_overlap=[0, 1]"
    yield _call(
        "main",
        "tm.decode_step",
        f"{STEP}, batch=4, context=2048",
        "",
        f"{PLACES}, {ASKED}, {shape}, {more}, batch=[1, 4, 32], max_context=[32768], compiled_batch=[32],"
        "new_tokens=[1, 4], expert_read=['distinct', 'all']",
        misfit=mixed,
    )
    yield _call(
        "main",
        "tm.prefill",
        f"{STEP}, input_tokens=2048",
        "",
        f"{PLACES}, {ASKED}, {more}, batch=[1, 4], input_tokens=[1, 100, 2048, 8192], past=[0, 1000],"
        "max_context=[32768]",
        misfit=mixed,
    )
    yield _call(
        "main",
        "tm.Deployment",
        STEP,
        "object: model system mapping precision stack; one: batch replicas spares",
        f"{PLACES}, precision=['bf16', 'fp8'], stack=['ideal'], batch=[1, 64], replicas=[1, 2], spares=[0, 1]",
    )
    yield _call(
        "main",
        "tm.legal",
        f"{STEP}, context=2048",
        "",
        f"{PLACES}, context=[1, 4096, 10**7], efficiencies=['ideal'], training=[False]",
        misfit="mapping=tm.Mapping(tp=[1, 2, 4]), context=np.full(2, 4.0)",
    )
    yield _call(
        "main",
        "tm.support",
        "model='llama-3.1-8b', system='trn2.48xlarge'",
        "",
        f"{PLACES}, efficiencies=['ideal', 'hand-tuned', 'neuron-async']",
        also={"efficiencies": ("stack",)},
    )
    yield _call(
        "main",
        "tm.quality",
        "model='llama-3.1-8b', precision='fp8'",
        "",
        "model=['llama-3.1-8b', 'deepseek-v3'], precision=['bf16', 'fp8', 'w4a8', 'mxfp8-kvfp8']",
        any_number=True,
    )
    yield _call(
        "main",
        "tm.memory_fit",
        f"{STEP}, batch=4, context=2048",
        "",
        f"{PLACES}, {ASKED}, {shape}, batch=[1, 4, 64], input_tokens=[128, 2048], prompts=[1, 4]",
        misfit=mixed,
    )
    yield _call(
        "main",
        "tm.serve",
        f"{STEP}, request=tm.Request(1000, 100, requests_per_s=1), max_batch=16",
        "",
        f"{PLACES}, {ASKED}, request=[{REQUESTS}],"
        "max_batch=[4, 16], batching=['continuous', 'static'], compiled=[True, False],"
        "draft_tokens=[0, 3], acceptance=[0, 0.7], draft_step_s=[0, 1e-3], chunk_tokens=[512], max_context=[8192]",
        misfit="mapping=tm.Mapping(tp=[1, 2, 4]), request=tm.Request(1000, 100, requests_per_s=np.ones(2))",
    )
    yield _call(
        "main",
        "disaggregate",
        "model='llama-3.1-8b', prefill_system='trn2.48xlarge', prefill_mapping=tm.Mapping(tp=8),"
        "decode_system='trn1.32xlarge', decode_mapping=tm.Mapping(tp=16), batch=4, input_tokens=1000,"
        "output_tokens=100",
        "object: model prefill_system prefill_mapping decode_system decode_mapping precision prefill_efficiencies"
        " decode_efficiencies; from1: batch input_tokens output_tokens; share: transfer_share; flag: mixed",
        "batch=[1, 16], input_tokens=[100, 4000], output_tokens=[10, 1000], transfer_share=[0.5, 1],"
        "prefill_efficiencies=['ideal'], decode_efficiencies=['ideal'], mixed=[True]",
    )
    yield _call(
        "main",
        "tokens_per_step",
        "draft_tokens=4, acceptance=0.7",
        "number: draft_tokens; share: acceptance",
        "draft_tokens=[0, 1, 4, 8], acceptance=[0, 0.3, 0.7, 1]",
    )


def _pages() -> Iterator[Call]:
    for name, peak in {"attainable_flop_per_s": "figure", "ceilings_flop_per_s": "levels"}.items():
        yield _call(
            "main",
            f"tm.roofline.{name}",
            "intensity_flop_per_byte=[100.0], peak_flop_per_s=6e14, bandwidth_bytes_per_s=[3e12]",
            f"figure: intensity_flop_per_byte bandwidth_bytes_per_s; {peak}: peak_flop_per_s",
            "intensity_flop_per_byte=[[0.0], [1.5], [500.0, 9.0]], peak_flop_per_s=[1e14],"
            "bandwidth_bytes_per_s=[[1e12]]",
        )
    yield _call(
        "main",
        "tm.roofline.ridge_point_flop_per_byte",
        "peak_flop_per_s=6e14, bandwidth_bytes_per_s=3e12",
        "figure: peak_flop_per_s bandwidth_bytes_per_s",
        "peak_flop_per_s=[1e14, 6.67e14], bandwidth_bytes_per_s=[1e12, 2.9e12]",
    )
    yield _call(
        "main",
        "tm.roofline.time_s",
        "work_flop=1e12, moved_bytes=1e9, peak_flop_per_s=6e14, bandwidth_bytes_per_s=3e12, overlap=1.0",
        "figure: work_flop moved_bytes peak_flop_per_s bandwidth_bytes_per_s; share: overlap",
        "work_flop=[0, 1e9, 1e15], moved_bytes=[0, 1e6, 1e12], overlap=[0, 0.3, 1]",
    )
    yield _call(
        "main",
        "tm.clos",
        "switch_bits_per_s=25.6e12, port_bits_per_s=100e9, layers=3",
        "",
        "switch_bits_per_s=[12.8e12, 51.2e12], port_bits_per_s=[100e9, 400e9], layers=[2, 3], tor_bits_per_s=[12.8e12],"
        "oversubscription=[1, 3], nic_bits_per_s=[400e9], planes=[1, 2], chips_per_nic=[1, 2],"
        "module_bits_per_s=[800e9], endpoint_medium=['copper', 'optical'], chips=[64, 5000]",
    )
    yield _call(
        "main",
        "tm.collective",
        "kind='all_reduce', message_bytes=2**20, system='trn2.48xlarge'",
        "choice: algorithm",
        "kind=['all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'broadcast', 'p2p'],"
        "message_bytes=[0, 1024, 2**20, 2**30], ranks=[1, 4, 16, 64, 7], alpha_s=[0, 1e-6], lnc=[1, 2],"
        "system=['trn2.48xlarge', 'trn1.32xlarge', 'trn2-ultraserver', 'trn3-nl32x2-pcie160'], stride=[1, 4],"
        "launch_s=[0, 1e-5], in_graph=[True, False], rate_share=[0.5, 1], buffers=['sbuf', 'hbm']",
    )


def _kernels() -> Iterator[Call]:
    yield _call(
        "doors",
        "tm.kernel.matmul",
        "chip='trainium2', m=512, n=512, k=512",
        "pairs: overlap; choice: dtype buffering",
        f"{CHIPS}, m={SIZES}, n={SIZES}, k={SIZES}, dtype=['bf16', 'fp8', 'fp32'], lnc=[1, 2], groups=[1, 8],"
        "transpose=['none', 'tensor', 'dma'], gather=['none', 'rows'], buffering=['double', 'tile', 'none'],"
        "collective_bytes_per_s=[0, 2e10], weight_dtype=['int8'],"
        "overlap=[None, {'load': 0.5}], busy_cores=[2], output_dtype=['fp32']",
    )
    yield _call(
        "doors",
        "tm.kernel.matmul",
        "chip='trainium2', m=2048, n=4096, k=512, block_rows=512, block_columns=1024",
        "",
        "block_rows=[128, 1024], block_columns=[512, 2048], m=[4096]",
    )
    yield _call(
        "doors",
        "tm.kernel.attention",
        "chip='trainium3', queries=512, keys=1024, heads=8",
        "pairs: overlap",
        f"{CHIPS}, queries=[1, 128, 1000], keys=[1024, 4096], heads=[8, 64], kv_heads=[1, 8], head_size=[64, 128],"
        "causal=[0, 1], exponential=['scalar'], transpose=['none', 'tensor'], kv_dtype=['fp8'], lnc=[1, 2],"
        "collective_bytes_per_s=[2e10]",
    )
    yield _call(
        "doors",
        "tm.kernel.elementwise",
        "chip='trainium3', op='rmsnorm', rows=512, columns=512",
        "pairs: overlap; choice: op",
        f"{CHIPS}, op=['rmsnorm', 'softmax', 'rope', 'residual'], rows={SIZES}, columns={SIZES}, hbm=[0, 1],"
        "dtype=['bf16', 'fp32'], collective_bytes_per_s=[2e10]",
    )
    yield _call(
        "doors",
        "tm.kernel.experts",
        "chip='trainium2', tokens_per_expert=256, hidden_size=512, intermediate_size=1024",
        "pairs: overlap; choice: dtype weight_dtype",
        f"{CHIPS}, tokens_per_expert={SIZES}, hidden_size={SIZES}, intermediate_size={SIZES}, experts=[1, 8],"
        "dtype=['bf16', 'fp8', 'fp32'],"
        "weight_dtype=['mxfp4'], lnc=[1, 2], busy_cores=[2], collective_bytes_per_s=[2e10]",
    )
    yield _call(
        "doors",
        "tm.kernel.dma",
        "chip='trainium2', moved_bytes=2**20, row_bytes=512",
        "number: engines",
        f"{CHIPS}, moved_bytes=[1, 2**20, 2**33], row_bytes=[1, 512, 65536], transfers=[0, 1, 100], engines=[1, 16],"
        "queued=[0, 1], collective_bytes_per_s=[2e10]",
    )
    yield _call(
        "doors",
        "tm.kernel.host",
        "moved_bytes=1e9, stage_bytes_per_s=[7e9, 16e9]",
        "stages: stage_bytes_per_s",
        "moved_bytes=[0, 1e9, 140e9], stage_bytes_per_s=[[7e9, 16e9], [1e9]], overlap=[0, 0.5, 1]",
    )
    yield _call("doors", "tm.kernel.operators")
    yield _call("doors", "tm.kernel.operator", "op='softmax'", "choice: op")
    yield _call(
        "doors",
        "tm.kernel.smallest_contraction",
        "chip='trainium2'",
        "choice: dtype",
        f"{CHIPS}, engine=['vector', 'scalar']",
    )
    changes = {f.name: "share-figure" for f in fields(tm.kernel.stack()) if f.type == "float"} | {"launch_s": "figure"}
    yield Call("tm.kernel.stack", "doors", {}, {"name": "object"} | changes, {}, also={"name": ("stack",)})


def _shown() -> Iterator[Call]:
    yield _call(
        "doors", "tm.units.parse_number", "text='1-2'", "text: text", "text=['1,299', '~5', '2 to 3']", any_number=True
    )
    yield _call(
        "doors",
        "tm.units.read_number",
        "name='--in', typed='2k'",
        "any: name; text: typed; flag: of_bytes",
        "typed=['4096', '1.5 Gi', '15T'], of_bytes=[False]",
        also={"typed": ("--in",)},
        any_number=True,
    )
    yield _call("doors", "tm.units.format_quantity", "value=1.0, unit='B'", "real: value; text: unit; whole: digits")
    yield _call(
        "doors",
        "tm.units.format_within",
        "value=1.0, low=0.5, high=2.0, unit='B', basis='measured'",
    )
    yield _call("doors", "tm.units.format_digits", "value=1.0, digits=2")


@cache
def calls() -> tuple[Call, ...]:
    """All calls; the arguments of a declared one need no kind in its row."""
    groups = (_roots, _specs, _methods, _transformer, _steps, _pages, _kernels, _shown)
    rows = (call for group in groups for call in group())
    return tuple(replace(call, kinds=call.declared_names() | call.kinds) for call in rows)


def public() -> dict[str, Callable]:
    """Every public function, method and constructor that takes arguments, by its name."""
    found: dict[str, Callable] = {}
    for name in tm.__all__:
        item = getattr(tm, name)
        if isinstance(item, types.ModuleType):
            found |= {f"{name}.{key}": getattr(item, key) for key in _names(item)}
        elif callable(item):
            found[name] = item
    found |= {name: HELPERS[name] for name in ("disaggregate", "tokens_per_step")}
    answers = (Card, tm.Deployment)  # their methods stand in results.py
    kinds = [item for item in found.values() if isinstance(item, type) and not issubclass(item, answers)]
    found |= {
        f"{kind.__name__}.{name}": getattr(kind, name)
        for kind in [*kinds, type(tm.efficiencies("trainium2"))]
        for name, item in inspect.getmembers_static(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    return {name: item for name, item in found.items() if name not in NOT_TYPED}


def _names(module: types.ModuleType) -> list[str]:
    own = [n for n, item in vars(module).items() if getattr(item, "__module__", "") == module.__name__]
    return [name for name in getattr(module, "__all__", own) if callable(getattr(module, name)) and name[0] != "_"]


def registered() -> dict[Any, set[str]]:
    """The functions and constructors of all calls, each with the arguments that some call spoils."""
    found: dict[Any, set[str]] = {}
    for call in calls():
        found.setdefault(call.target, set()).update(call.kinds)
    return found


def parameters(item: Callable) -> set[str]:
    """Names of arguments of a callable; those that it takes under any name count for nothing."""
    kept = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in inspect.signature(item).parameters.values() if p.kind in kept} - {"self"}
