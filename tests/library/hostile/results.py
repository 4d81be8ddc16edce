"""What public calls return, walked to the end: every kind of object that a user can reach, and how to reach it."""

from __future__ import annotations

import inspect
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from typing import Any

from trnmodel.cost.tco import Cost

from .calls import HELPERS, Call, _call, _kinds, calls, parameters, registered
from .values import made

LEFT = (
    "cell",
    "renamed",
    "config_file",
    "named_file",
    "table_file",
    "Config",
    "tm.validat",
    "changed",
)  # tables, and specs again
CHECKED = {
    "PricesAsked",
    "Times",
    "Column",
    "Columns",
    "Option",
}  # what an account computes with: nobody hands them values
MOST_ITEMS = 3  # of a list or a mapping that are walked
Reached = dict[type, str]


def roots() -> Iterator[str]:
    """The code of every public call with arguments that work, and of three results that no such call gives."""
    for call in calls():
        if not call.code.startswith(LEFT):
            yield f"{call.code}({', '.join(f'{name}={code}' for name, code in call.base.items())})"
    yield "tm.Precision()"
    yield "tm.plan('llama-3.2-1b', tm.Request(512, 64, 20.0), 'trn2.48xlarge', users=10.0).capacity"


def ours(value: Any) -> bool:
    """Whether a value is an object of this package; a question asks again with values that its call has checked."""
    if type(value).__name__.endswith("Question") or type(value).__name__ in CHECKED:
        return False
    return type(value).__module__.startswith("trnmodel") and not isinstance(value, types.ModuleType | type)


def attributes(kind: type) -> list[str]:
    """Public fields and properties of a kind of object."""
    found = [field.name for field in fields(kind)] if is_dataclass(kind) else [*getattr(kind, "_fields", ())]
    found += [*getattr(kind, "__struct_fields__", ())]
    members = inspect.getmembers_static(kind, lambda item: isinstance(item, property | cached_property))
    return [name for name in dict.fromkeys([*found, *(name for name, _ in members)]) if name[0] != "_"]


def methods(kind: type) -> dict[str, Callable]:
    """Public methods of a kind of object that this package defines, by name."""
    members = inspect.getmembers_static(kind, lambda item: isinstance(item, types.FunctionType | classmethod))
    return {
        name: getattr(kind, name)
        for name, item in members
        if name[0] != "_" and getattr(item, "__module__", "").startswith("trnmodel")
    }


def _needs_nothing(method: Callable) -> bool:
    several = list(inspect.signature(method).parameters.values())[1:]
    return all(one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in several)


def _inside(code: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds and gives, each with the code that reaches it."""
    if isinstance(value, Mapping):
        yield from (
            (f"[*({code}).values()][{place}]", item) for place, item in enumerate([*value.values()][:MOST_ITEMS])
        )
    elif type(value) in (list, tuple):
        yield from ((f"{code}[{place}]", item) for place, item in enumerate(value[:MOST_ITEMS]))
    if ours(value):
        yield from ((f"{code}.{name}", getattr(value, name)) for name in attributes(type(value)))
        yield from (
            (f"{code}.{name}()", getattr(value, name)())
            for name, method in methods(type(value)).items()
            if _needs_nothing(method)
        )


@cache
def reached() -> Reached:
    """Every kind of object of this package that a public call leads to, with code that makes one."""
    found: Reached = {}
    waiting = deque[tuple[str, Any]]()
    for code in roots():
        waiting.append((code, made(code, HELPERS)))
    while waiting:
        code, value = waiting.popleft()
        if ours(value):
            if type(value) in found:
                continue
            found[type(value)] = code
        if ours(value) or type(value) in (list, tuple) or isinstance(value, Mapping):
            waiting.extend(_inside(code, value))
    return found


# Arguments of every method of a result: what works, and the kind of each, as `calls.py` has them of public calls.

HOUR = next(name for name in parameters(Cost.break_even) if name.endswith("usd_per_h"))
STEP = "share: compute_memory_overlap network_overlap; flag: breakdown"
METHODS: dict[str, tuple[str, str]] = {
    "Wiring.farthest_routes": ("scope='world'", "choice: scope"),
    "Wiring.scope": ("scope='world', ratios=()", "choice: scope; ratios: ratios"),
    "Attention.flop_per_pair": ("absorbed=True", "flag: absorbed"),
    "Attention.cached_tokens": ("context=128", "number: context"),
    "Attention.pairs": ("tokens=4, past=128, causal=True", "number: tokens past; flag: causal"),
    "Attention.visible": ("context=128", "number: context"),
    "Term.weights_read": ("tokens=4, expert_read='distinct'", "number: tokens; choice: expert_read"),
    "Choice.chip_s": ("resource='memory'", "choice: resource"),
    "Choice.energy": ("facility='aws-air'", "choice: facility; object: power"),
    "Pair.chip_s": ("resource='memory'", "choice: resource"),
    "Pair.energy": ("facility='aws-air'", "choice: facility; object: power"),
    "Comparison.at": ("speed=20.0", "one: speed"),
    "Comparison.break_even": ("speed=20.0", "one: speed; choice: owner; any: region pricing"),
    "Comparison.compared_with": ("speed=20.0", "one: speed"),
    "Comparison.loads": ("speed=20.0", "one: speed"),
    "Comparison.difference": ("a='trn2.3xlarge', b='inf2.48xlarge', speed=20.0", "choice: a b; one: speed"),
    "Claims.to_frame": ("", ""),
    "Claims.of": ("verdict='agrees', kind='computed'", "choice: verdict kind"),
    "Claims.claim": ("claim_id='NC160'", "choice: claim_id"),
    "Explanation.to_frame": ("", ""),
    "Diagnosis.to_frame": ("", ""),
    "Diagnoses.to_frame": ("", ""),
    "Diagnoses.causes": ("", ""),
    "SoftwareGap.end": ("software='ideal'", "choice: software"),
    "SoftwareGap.lost": ("", "choice: software"),
    "SoftwareGap.loss": ("", "choice: stage"),
    "SoftwareGap.largest": ("", "choice: software"),
    "SoftwareGap.to_frame": ("", ""),
    "Plan.reason": ("", "choice: c"),
    "Plan.capacity_of": ("", "choice: c"),
    "Plan.merit": ("", "choice: c"),
    "Plan.flips": ("", ""),
    "Plan.to_data": ("", ""),
    "Plan.to_workbook": ("path='/dev/null/x.xlsx'", "text: path"),
    "Demand.at_rate": ("", "object: request"),
    "Demand.price": ("", "object: system"),
    "Demand.site": ("", "object: system"),
    "Demand.most_instances": ("", "object: system"),
    "Demand.least": ("", "object: system"),
    "Demand.each": ("", "object: system"),
    "Support.to_frame": ("", ""),
    "Quality.to_frame": ("", ""),
    "Quality.exceeds": ("limit=2.0", "one: limit"),
    "Check.to_frame": ("", ""),
    "Measurements.to_frame": ("", ""),
    "NextMeasurement.to_frame": ("", ""),
    "Calibration.save": ("path='/dev/null/x.yaml'", "text: path"),
    "Scenario.ask": ("call='plan'", "choice: call"),
    "Scenario.energy": ("", "object: system"),
    "Scenario.goodput": ("", "object: system"),
    "Scenario.tco": ("", "object: system"),
    "Deployment.basis": (
        "batch=4.0, input_tokens=512.0, context=2048.0",
        "one: batch input_tokens context",
    ),
    "Deployment.decode": (
        "batch=4, context=2048",
        f"from1: batch context max_context compiled_batch expert_imbalance new_tokens; {STEP}; choice: expert_read",
    ),
    "Deployment.prefill": (
        "input_tokens=2048",
        f"from1: batch input_tokens max_context expert_imbalance; number: past; {STEP}",
    ),
    "Deployment.fit": (
        "batch=4, context=2048",
        "from1: batch context input_tokens prompts; count: tp pp dp ep cp",
    ),
    "TokenCost.causes": ("", ""),
    "TokenCost.chip_s": ("phase='decode'", "choice: phase"),
    "TokenCost.chip_s_ends": ("phase='decode'", "choice: phase"),
    "TokenCost.common_chip_s": ("phase='decode'", "choice: phase"),
    "TokenCost.common_usd_per_h": ("", ""),
    "TokenCost.drawn_chip_s": ("drawn={}, phase='decode'", "table: drawn; choice: phase"),
    "TokenCost.drawn_usd_per_h": ("drawn={}", "table: drawn"),
    "TokenCost.drawn_usd_per_mtoken": ("drawn={}, phase='decode'", "table: drawn; choice: phase"),
    "TokenCost.describe": ("", "choice: name"),
    "TokenCost.uncertain": ("", ""),
    "TokenCosts.break_even": ("against='trn2.3xlarge'", "choice: against"),
    "TokenCosts.card": ("against='trn2.3xlarge'", "choice: against"),
    "TokenCosts.draws": (
        "software='public', phase='decode', draws=16, seed=1",
        "choice: software phase; integer: draws; whole: seed",
    ),
    "TokenCosts.of": ("software='public'", "choice: software"),
    "TokenCosts.priced": ("pricing='on-demand'", "any: pricing region"),
    "TokenCosts.ties": ("system='trn2.3xlarge', against='trn2.3xlarge'", "choice: system against"),
    "TokenCosts.describe": ("system='trn2.3xlarge'", "choice: system"),
    "Cost.break_even": (f"which='chip_usd', {HOUR}=2.0", f"choice: which; number: {HOUR}"),
    "Cost.drawn_break_even": (
        f"which='chip_usd', drawn={{}}, {HOUR}=2.0",
        f"choice: which; table: drawn; figure: {HOUR}",
    ),
    "Cost.drawn_usd_per_h": ("drawn={}", "table: drawn"),
    "Cost.flop_per_s_per_usd_per_h": ("dtype='bf16'", "choice: dtype"),
    "Cost.mtoken_ends": ("answer=100.0", "divisor-figure: answer"),
    "Cost.usd_per_mtoken": ("answer=100.0", "divisor-figure: answer"),
    "TrainStep.chip_hours": ("tokens=1e12", "number: tokens"),
    "TrainStep.run_s": ("tokens=1e12", "number: tokens"),
    "TrainRun.behind": ("row={'tokens_per_s': 1e4}", "table: row"),
    "TrainRun.bill_usd": ("", "choice: useful"),
    "TrainRun.calendar_days": ("", "choice: useful"),
    "TrainRun.days_at": ("mfu=0.4", "number: mfu"),
    "TrainRun.next": ("most=2", "integer: most"),
    "TrainRun.owner_usd": ("owner='neocloud'", "object: owner; choice: useful"),
    "TrainRun.owned_hour": ("owner='neocloud'", "object: owner; choice: useful"),
    "TrainRun.site_j": ("owner='neocloud', facility='aws-air'", "object: owner facility; choice: useful"),
    "TrainRuns.difference": ("a='hgx-h100', b='hgx-a100'", "choice: a b"),
    "TrainRun.renter_usd": ("pricing='market'", "object: pricing; choice: useful; any: region"),
    "Space.again": ("", "choice: where"),
    "Space.ask": ("place=0", "whole: place"),
    "Space.different": ("best=1", "integer: best"),
    "Space.order": ("allowed=True", "places: allowed"),
    "Space.step": ("place=0", "whole: place"),
    "Spent.describe": ("unit='USD', scale=2.0", "text: unit; one: scale"),
    "Sensitivity.percentiles": ("at=50.0", "number: at"),
    "Sensitivity.tornado": ("answer='answer'", "answer: answer"),
    "Sensitivity.wins": ("least=True", "flag: least"),
    "Uncertain.at": ("u=0.5", "share: u"),
    "at": ("", "choice: name"),
    "banded": ("", "choice: name"),
    "ends": ("", "choice: name"),
    "figure": ("", "choice: name"),
    "in_words": ("unit='s', basis='measured', scale=2.0", "choice: name; text: unit basis; one: scale"),
    "moved": ("", "table: values"),
    "range": ("", "choice: name"),
    "to_frame": ("", "flag: bands"),
    "widths": ("", "choice: name; part: part"),
}


def row(kind: type, name: str) -> tuple[str, str] | None:
    """The row of a method: that of its type, else of all types; None where there is neither."""
    return METHODS.get(f"{kind.__name__}.{name}", METHODS.get(name))


def uncovered() -> list[str]:
    """Methods of what public calls return of which an argument is in no row."""
    known, found = registered(), []
    for kind in reached():
        for name, method in methods(kind).items():
            spoiled = set(_kinds(row(kind, name)[1])) if row(kind, name) else known.get(method, set())
            found += [f"{kind.__name__}.{name}({one})" for one in sorted(parameters(method) - spoiled)]
    return found


def result_calls() -> Iterator[Call]:
    """A call of every method of every kind of object that public calls lead to."""
    for kind, code in reached().items():
        for name in methods(kind):
            if (known := row(kind, name)) and known[1]:
                base, kinds = known
                if name in METHODS and hasattr(kind, "FIGURE") and "name" in _kinds(kinds):
                    base = f"name='{kind.FIGURE}', {base}"
                # where not even a gift reaches the rival, and where a system makes less than another
                below_zero = name.endswith("break_even") or name == "difference"
                yield _call("results", f"{code}.{name}", base, kinds, any_number=below_zero)
