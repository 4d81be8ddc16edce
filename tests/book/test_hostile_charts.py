"""Every argument of every call of `trnbook.charts` meets what nobody should pass, like those of the library.

The kinds of arguments, the corpus and the judge are those of `tests/library/hostile`.
"""

from collections.abc import Iterator
from functools import cache
from itertools import islice

import pandas as pd
import pytest
from hostile.calls import HELPERS, Call, _call, _names, parameters
from hostile.corpus import corpus
from hostile.judge import little_memory

from trnbook import charts

SHOWN = 12


def frame() -> pd.DataFrame:
    """Columns for every chart."""
    columns = {
        "chip": ["trainium2", "trainium3"] * 2,
        "dtype": ["bf16", "bf16", "fp8", "fp8"],
        "intensity_flop_per_byte": [1.0, 1.0, 2.0, 2.0],
        "attainable_flop_per_s": [1e12, 2e12, 3e12, 4e12],
        "time_s": [1e-3, 2e-3, 3e-3, 4e-3],
        "limit_s": [5e-3] * 4,
        "tp": [1, 2, 1, 2],
    }
    return pd.DataFrame(columns)


def peaks() -> pd.DataFrame:
    """A roof of each of two chips."""
    ridges = {f"ridge_flop_per_byte{end}": 200.0 for end in ("", "_low", "_high")}
    return frame().head(2).assign(peak_flop_per_s=2e14, hbm_bytes_per_s=1e12, estimate=False, **ridges)


def explored() -> pd.DataFrame:
    """A frontier of two points."""
    labels = {"model": "m", "system": "trn1.32xlarge", "stack_kind": "ideal", "precision": "bf16"}
    names = [f"tokens_per_s_per_{name}" for name in ("chip", "chip_low", "chip_high")]
    speeds = {name: [2.0, 1.0] for name in (*names, "promised_tokens_per_s_per_user", "decode_tokens_per_s_per_chip")}
    times = dict.fromkeys(("time_s", "compute_s", "memory_s", "network_s", "overhead_s"), 1e-3)
    mapping = {
        "place": [1, 2],
        "tp": 1.0,
        "ep": 1.0,
        "pp": 1.0,
        "cp": 1.0,
        "chance": 1.0,
        "batch": 1.0,
        "chips": 1.0,
        "basis": "ideal",
        "why": "",
    }
    joules = {f"server_j_per_token{end}": 1.0 for end in ("", "_low", "_high")} | {"energy_basis": "extrapolated"}
    usd = {f"useful_usd_per_h{end}": 1.0 for end in ("", "_low", "_high")} | {"cost_basis": "extrapolated"}
    return pd.DataFrame(labels | mapping | speeds | times | joules | usd)


def rolled() -> pd.DataFrame:
    """Two quantiles of joules."""
    who = {"system": "trn1.32xlarge", "wanted_tokens_per_s_per_user": 20.0, "software": "ideal", "why": ""}
    return pd.DataFrame(who | {"share_of_draws": [0.05, 0.95], "server_j_per_token": [1.0, 2.0]})


def promised() -> pd.DataFrame:
    """A point of a frontier."""
    words = {"system": "trn1.32xlarge", "line": "all others", "band": "0.5 to 2", "mapping": "m", "bound": "prompts"}
    return pd.DataFrame(words | {"basis": "ideal", "speed": [20.0], "value": 1.0, "low": 0.5, "high": 2.0})


def nodes() -> pd.DataFrame:
    """Two chips to draw."""
    return pd.DataFrame({"node": ["a", "b"], "kind": "chip", "x": [0, 1], "y": [0, 1], "links": ["1", "1"]})


def links() -> pd.DataFrame:
    """The link between them."""
    return pd.DataFrame({"one": ["a"], "other": ["b"], "x": [0], "y": [0], "x2": [1], "y2": [1], "group": ["pcb"]})


HELPERS.update(
    charts=charts,
    frame=frame,
    peaks=peaks,
    explored=explored,
    rolled=rolled,
    promised=promised,
    nodes=nodes,
    links=links,
)


@cache
def calls() -> tuple[Call, ...]:
    """All calls of charts."""
    return tuple(_calls())


def _calls() -> Iterator[Call]:
    drawn = {
        "lines": (
            (
                "x='intensity_flop_per_byte', y='attainable_flop_per_s', color='chip', dash='dtype', shape='dtype', "
                "choose='dtype', highlight=['Trainium2']"
            ),
            "choice: x y color dash shape choose; flag: log_x log_y; any: highlight;",
        ),
        "bars": (
            "x='chip', y='time_s', color='dtype', highlight=['fp8']",
            "choice: x y color; any: highlight;",
        ),
        "stacks": ("x='chip', y='time_s', color='dtype', limit='limit_s'", "choice: x y color limit;"),
        "spans": ("start='limit_s', end='time_s', y='chip', color='dtype'", "choice: start end y color;"),
        "waterfall": (
            "before='limit_s', x='time_s', y='chip', color='dtype', label='chip'",
            "choice: before x y color label; flag: log_x;",
        ),
        "ranges": (
            "x='time_s', y='chip', color='dtype', highlight=['fp8']",
            "choice: x y color; flag: log_x; any: highlight;",
        ),
        "scatter": (
            "x='time_s', y='limit_s', color='chip', label='dtype', highlight=['Trainium2']",
            "choice: x y color label; any: highlight;",
        ),
        "regions": ("x='tp', y='time_s', color='chip', panel='dtype'", "choice: x y color panel;"),
    }
    for name, (base, kinds) in drawn.items():
        yield _call(
            "charts",
            f"charts.{name}",
            f"frame=frame(), caption='c', under='u', {base}",
            f"frame: frame; text: caption under; {kinds}",
        )
    yield _call(
        "charts",
        "charts.roofline",
        "frame=peaks(), chosen={}, marker=1.0, highlight=['Trainium2'], caption='c', under='u'",
        "frame: frame; models: chosen; one: marker; any: highlight; text: caption under",
    )
    yield _call(
        "charts",
        "charts.frontier",
        "frame=explored(), chosen={}, caption='c', under='u'",
        "frame: frame; models: chosen; text: caption under",
    )
    yield _call(
        "charts",
        "charts.promises",
        "frame=promised(), caption='c', under='u', highlight=['trn1.32xlarge']",
        "frame: frame; text: caption under; any: highlight",
    )
    yield _call(
        "charts",
        "charts.draws",
        "frame=rolled(), chosen={}, caption='c', under='u'",
        "frame: frame; models: chosen; text: caption under",
    )
    yield _call(
        "charts",
        "charts.table",
        "frame=frame(), caption='c', download='d'",
        "any-frame: frame; text: caption download; flag: file_only find",
    )
    yield _call("charts", "charts.ours", "labels=['Trainium3 FP8']", "any: labels")
    yield _call(
        "charts",
        "charts.topology",
        "nodes=nodes(), links=links(), caption='c', under='u'",
        "frame: nodes links; frame-or-none: labels paths; text: caption under",
    )


@pytest.fixture(autouse=True, scope="module")
def _bounded():
    with little_memory():
        yield


@pytest.mark.one_cpu
@pytest.mark.parametrize("name", sorted(_names(charts)))
def test_every_public_argument_meets_hostile_values(name):
    item = getattr(charts, name)
    known = {call.code: set(call.kinds) for call in calls()}
    assert not parameters(item) or f"charts.{name}" in known
    assert parameters(item) <= known.get(f"charts.{name}", set())


@pytest.mark.one_cpu
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7])
@pytest.mark.parametrize("call", calls(), ids=lambda call: call.code)
def test_hostile_values_are_refused_by_name_or_answered_with_sense(call, every):
    faults = [(case.line(), case.fault()) for case in islice(corpus(call), 0, None, every)]
    lines = [ascii(f"{line}  ->  {fault}") for line, fault in faults if fault]
    assert not lines, "\n".join([f"{len(lines)} wrong answers", *lines[:SHOWN]])
