"""Torus or switch: parts of an exchange, readings of the lanes, exchanges of the running case, and measured calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from trnbook.chapters import common, guard
from trnbook.shared import case, ledger
from trnbook.shared import fabrics as compare
from trnmodel.catalog import systems
from trnmodel.catalog.systems import System
from trnmodel.evidence import score
from trnmodel.evidence import tables as evidence
from trnmodel.fabric import what_if
from trnmodel.fabric.collectives import Collective
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.search.choice import Choice
from trnmodel.steps.request import Request
from trnmodel.units import KIB, MIB, format_quantity, format_within

AS_MANY_LANES = "trn3-torus-144"  # a reading of the torus: no more lanes than a switched chip
SECONDS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6}  # of a unit of measured times
NL32_TORUS = "trn3-nl32x2-torus"
LINE = next(one for one in case.LINES if one.chapter == "torus-or-switch")  # of the running case
ALL_REDUCE, ALL_TO_ALL = "all_reduce", "all_to_all"
SWITCHES, TORUS, USED = "planes", "torus", "as used"  # fabrics of systems, and the first reading of their lanes
FABRICS: Mapping[str, str] = {TORUS: "torus", SWITCHES: "switches"}
NAMES: Mapping[str, str] = {ALL_REDUCE: "all-reduce", ALL_TO_ALL: "all-to-all"}
SMALL, LARGE = 64 * KIB, 16 * MIB  # sizes of measured messages, by which they are told apart
EXPERTS = "dispatch, combine"
TIE = "equally fast"


def check(spec: System, torus: System, model: Transformer) -> None:
    """Check that one system has switches and the other is a torus of several chips, and that the case can ask a model.

    Raises
    ------
    UnanswerableError
        A parameter is none of it; the message names it.

    Examples
    --------
    >>> check(systems.system("trn3-nl32x2-pcie160"), systems.system("trn2.48xlarge"), read_model("deepseek-v3"))
    """
    guard.neuroncore(system=spec, torus_system=torus)
    guard.need(torus.domain_chips > 1, f"torus_system = {torus.id!r} is a single chip")
    guard.need(torus.fabric == "torus", f"torus_system = {torus.id!r} is no torus")
    guard.need(spec.fabric == "planes", f"system = {spec.id!r} has no switches; allowed are switched racks")
    guard.generates(model=model)
    guard.spans(case.INPUT_TOKENS + case.OUTPUT_TOKENS, model=model)


def in_rack(spec: System) -> dict[str, Any]:
    """Return a system and the chips of its rack, as a call of `tm.collective` takes them; all chips without racks.

    Examples
    --------
    >>> [in_rack(systems.system(name))["chips"] for name in ("trn3-nl72x2-pcie160", "trn1.32xlarge")]
    [72, 16]
    """
    racks = spec.racks if spec.racks >= 1 else 1.0
    return {"system": spec, "chips": int(spec.domain_chips / racks)}


Times = Mapping[tuple[str, str, str], Collective]  # by reading of the lanes, kind, and fabric of the system


def _ratio(times: Times, reading: str, kind: str) -> float:
    """Return the time of an exchange on the torus over that with switches."""
    return float(times[reading, kind, TORUS].time_s / times[reading, kind, SWITCHES].time_s)


def answer(times: Times, spec: System, torus: System, public_s: Iterable[Any]) -> str:
    """Return the card that opens the chapter.

    Parameters
    ----------
    times : mapping of (str, str, str) to Collective
        Exchanges by reading, kind and fabric. [-]
    spec, torus : System
        Both systems. [-]
    public_s : iterable of array
        Times of the all-reduce on public software, with switches and on the torus. [s]
    """
    gains = [_ratio(times, reading, ALL_TO_ALL) for reading in dict.fromkeys(key[0] for key in times)]
    several = len(gains) > 1
    sums = [format_within(*_with_ends(times[USED, ALL_REDUCE, fabric]), "s", "") for fabric in (SWITCHES, TORUS)]
    public_s = list(public_s)
    public = [format_quantity(float(time_s), "s", 3) for time_s in public_s]
    near = abs(float(np.divide(*public_s)) - 1) < 0.05
    gains_nothing = "an all-reduce gains nothing from switches: it" if near else "an all-reduce"
    band = " The range is that of other readings of their lanes." if several else ""
    return common.card(
        (gains[0], min(gains), max(gains)) if several else f"{gains[0]:.1f} times",
        f"how much faster an all-to-all is within a rack of {spec.name} than in one of {torus.name}",
        unit="times" if several else "",
        mark="ideal",
        rank="Compared with",
        rival=f"an all-reduce over the links alone, which takes {sums[0]} with switches and {sums[1]} on the torus",
        proof="Check: numbers that are not ours",
        more=f"**On public software {gains_nothing} takes {public[0]} with switches and {public[1]} on the torus.** "
        "The planner counts with these times, and [a section](#all-reduce-steps-against-bytes) explains them.\n\n"
        f"**How sure?** The card counts the links alone.{band} We fitted no loss of an all-to-all, so the model gives "
        "public software the same time. The check says little about the shape, because the host's launch hides it. "
        "We know of no collective that was measured on Trainium3. "
        + ledger.rests_on(*ledger.estimated(torus, "scaleup_bytes_per_s_per_dir")),
    )


def _with_ends(answer: Collective) -> tuple[float, float, float]:
    """Return the time of an exchange with its low and high end [s]."""
    low, high = map(float, answer.ends("time_s"))
    return float(answer.time_s), low, high


def parts(times: Times, bare: Mapping[tuple[str, str], Collective]) -> pd.DataFrame:
    """Return exchanges, by the lanes as used, as the time of their bytes and that of their start-ups.

    Parameters
    ----------
    times : mapping of (str, str, str) to Collective
        Exchanges by reading, kind and fabric. [-]
    bare : mapping of (str, str) to Collective
        Exchanges by kind and fabric, without start-ups. [-]

    Returns
    -------
    table : pandas.DataFrame
        what (kind and fabric), part, time_s.
    """
    rows = []
    for (kind, fabric), moving in bare.items():
        moving_s, whole_s = float(moving.time_s), float(times[USED, kind, fabric].time_s)
        for part, time_s in (("start-ups", whole_s - moving_s), ("bytes", moving_s)):
            rows.append({"what": f"{NAMES[kind]}, {FABRICS[fabric]}", "part": part, "time_s": time_s})
    return pd.DataFrame(rows)


def helped_most(times: Times) -> str:
    """Return the kind of exchange that switches speed up most, in words."""
    return NAMES[max(NAMES, key=lambda kind: _ratio(times, USED, kind))]


def by_reading(times: Times) -> pd.DataFrame:
    """Return the time of an all-to-all by reading, and how much faster switches make each kind of exchange.

    Returns
    -------
    table : pandas.DataFrame
        reading, switched and torus (systems), torus_s and switches_s of an all-to-all, and a ratio for each kind.
    """
    rows = []
    for reading in dict.fromkeys(key[0] for key in times):
        one, ring = (times[reading, ALL_TO_ALL, fabric] for fabric in (SWITCHES, TORUS))
        row: dict[str, Any] = {"reading": reading, "switched": _id(one), "torus": _id(ring)}
        row |= {"switches_s": float(one.time_s), "torus_s": float(ring.time_s)}
        rows.append(row | {f"{name} faster": _ratio(times, reading, kind) for kind, name in NAMES.items()})
    return pd.DataFrame(rows)


def _id(answer: Collective) -> str:
    return answer.system.id


def readings(system: str | System, torus: str | System) -> dict[str, tuple[System, System]]:
    """Return a switched system and a torus under each count of their lanes, "as used" first.

    Examples
    --------
    >>> list(readings("trn3-nl32x2-pcie160", "trn3-nl32x2-torus"))
    ['as used', "by AWS's own lane map", 'with as many lanes on the torus']
    """
    mapped = systems.system(common.LANE_MAP)

    def pair(reading: Callable[[System], System]) -> tuple[System, System]:
        return reading(systems.system(system)), reading(systems.system(torus))

    def with_printed_lanes(spec: System) -> System:
        return mapped if spec.fabric == mapped.fabric and spec.chip.id == mapped.chip.id else spec

    def with_thin_torus(spec: System) -> System:
        return what_if.alternatives(spec).get(AS_MANY_LANES, spec)

    used = pair(systems.system)
    other = {
        "by AWS's own lane map": pair(with_printed_lanes),
        "with as many lanes on the torus": pair(with_thin_torus),
    }
    return {USED: used} | {name: pair for name, pair in other.items() if pair != used}


def request(model: str | Transformer) -> Request:
    """Return the request of a model of the case, or that of its mixture of experts for another model.

    Examples
    --------
    >>> request("llama-3.3-70b").tokens_per_s_per_user, request("qwen3-8b").tokens_per_s_per_user
    (50.0, 20.0)
    """
    name = read_model(model).id
    return case.request(name if name in case.PROMISES else "deepseek-v3")


def questions(system: System, torus: System) -> list[tuple[str, str, System]]:
    """Return what the chapter asks first: each kind of exchange on each system, by each reading of their lanes.

    Examples
    --------
    >>> len(questions(systems.system("trn3-nl32x2-pcie160"), systems.system("trn3-nl32x2-torus")))
    12
    """
    read = readings(system, torus)
    return [(name, kind, it) for name, both in read.items() for kind in NAMES for it in both]


def places(torus: System, system: System) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return each kind of exchange in one rack and over the whole domain: the place, the kind, and where, torus first.

    Examples
    --------
    >>> [place for place, *_ in places(systems.system("trn2.48xlarge"), systems.system("trn3-nl32x2-pcie160"))][1:3]
    ['one rack', 'whole domain']
    """
    both = {"one rack": [in_rack(torus), in_rack(system)], "whole domain": [{"system": torus}, {"system": system}]}
    return [(place, kind, where) for place, where in both.items() for kind in NAMES]


def around_a_tie(ratios: pd.DataFrame) -> pd.DataFrame:
    """Return lines of ratios with one more at each place, on which both fabrics are equally fast.

    Parameters
    ----------
    ratios : pandas.DataFrame
        message_bytes, torus_over_switches, exchange, place. [-]

    Examples
    --------
    >>> line = {"message_bytes": 1.0, "torus_over_switches": 2.0, "exchange": "all-reduce", "place": "one rack"}
    >>> around_a_tie(pd.DataFrame([line])).torus_over_switches.tolist()
    [2.0, 1.0]
    """
    tie = ratios.drop_duplicates(["place", "message_bytes"]).assign(torus_over_switches=1.0, exchange=TIE)
    return pd.concat([ratios, tie], ignore_index=True)


COUNTED: Mapping[tuple[tuple[str, Any], ...], tuple[str, str]] = {  # what arguments of `tm.collective` count
    (("in_graph", True), ("rate_share", 1.0)): ("the links alone", "--in-graph --rate-share 1"),
    (("efficiencies", "public"),): ("public software, in a graph", "none"),
    (("in_graph", True),): ("as measured calls, in a graph", "--in-graph"),
    (): ("as measured calls, launched by the host", "the default"),
}


def counted(calls: Iterable[Mapping[str, Any]], times_s: Iterable[Iterable[Any]]) -> pd.DataFrame:
    """Return the times of an exchange by what is counted, with the arguments that ask for it.

    Parameters
    ----------
    calls : iterable of mapping of str to object
        Arguments of `tm.collective`. [-]
    times_s : iterable of iterable of array
        Times on the torus and with switches for each of them. [s]

    Examples
    --------
    >>> counted([{"in_graph": True}], [[2e-4, 1e-4]]).values.tolist()
    [['as measured calls, in a graph', '200 µs', '100 µs', 'in_graph=True', '--in-graph']]
    """
    rows = []
    for ask, both in zip(calls, times_s, strict=True):
        what, command = COUNTED.get(tuple(sorted(ask.items())), ("as asked", "see the call"))
        torus, switches = (format_quantity(float(time_s), "s", 3) for time_s in both)
        said = ", ".join(f"{name}={value!r}" for name, value in ask.items()) or "none"
        rows.append({"what is counted": what, "torus": torus, "switches": switches})
        rows[-1] |= {"arguments": said, "option of the command": command}
    return pd.DataFrame(rows)


def cases(model: str) -> list[tuple[str, str]]:
    """Return the models of the case, and the chapter's, on the systems of the case and on a torus of Trainium3.

    Examples
    --------
    >>> len(cases("deepseek-v3")), len(cases("qwen3-30b-a3b"))
    (8, 12)
    """
    return [(name, where) for name in dict.fromkeys([*case.PROMISES, model]) for where in (*case.SYSTEMS, NL32_TORUS)]


def exchanges(rows: Iterable[tuple[str, Choice, Mapping[str, float]]]) -> pd.DataFrame:
    """Return the exchanges of decode steps, those of a kind added up, beside the whole step.

    Parameters
    ----------
    rows : iterable of (str, Choice, mapping of str to float)
        Models as they were asked, plans, and the time of their messages by kind. [s]

    Raises
    ------
    AssertionError
        Messages do not add up to the exchanges of their step, or these are not those of the running case.
    """
    shown = []
    for name, best, sent in rows:
        where, network_s = best.system.id, float(best.step.network_s)
        assert np.isclose(sum(sent.values()), network_s)
        assert name not in case.PROMISES or where not in case.SYSTEMS or network_s == case.value(LINE, name, where)
        times = {f"{kind}_s": sent.get(kind, np.nan) for kind in NAMES}
        row = {"model": best.question.model.id, "system": where, **times, "network_s": network_s}
        shown.append(row | {"step_s": float(best.step.time_s)})
    return pd.DataFrame(shown)


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """Return measured exchanges on Trainium2 beside their predictions, one for each configuration.

    Parameters
    ----------
    table : pandas.DataFrame
        Rows of `tm.validation()`. [-]

    Returns
    -------
    table : pandas.DataFrame
        run, message, predicted_s, measured_s, and error as `tm.validation` has it.
    """
    rows = table[(table.kind == "collective") & (table.chip == "trainium2") & table.unit.isin([*SECONDS])]
    rows = score.counted(rows[rows.meaning.isin(["collective-time", "collective-exchange"])])
    size, factor = pd.to_numeric(rows.message_bytes, errors="coerce"), rows.unit.map(SECONDS)
    experts = rows.meaning == "collective-exchange"
    classes = np.select(
        [experts, size >= LARGE, size < SMALL], [EXPERTS, "16 MiB and more", "below 64 KiB"], "64 KiB to 16 MiB"
    )
    checked = pd.DataFrame(
        {
            "run": rows.workload,
            "message": classes,
            "predicted_s": rows.predicted * factor,
            "measured_s": rows.value.astype(float) * factor,
            "error": rows.error,
            "source": rows.source,
        }
    )
    return checked.sort_values("message", kind="stable", ignore_index=True)


def accuracy(rows: pd.DataFrame) -> str:
    """Return in a sentence how far half of the large and of the small messages lie from their prediction."""
    off = rows.error.abs().groupby(rows.message).median()
    return (
        f"Half of the large messages took within {off['16 MiB and more']:.0%} of their prediction, half of the small "
        f"ones within {off['below 64 KiB']:.0%}."
    )


def sheets(spec: System, torus: System, judged: pd.DataFrame) -> dict[str, tuple[str, pd.DataFrame]]:
    """Return the tables behind the chapter by what they show, each with the name of its file.

    Parameters
    ----------
    spec, torus : System
        Both systems. [-]
    judged : pandas.DataFrame
        Rows of `tm.validation()`. [-]
    """
    both = dict.fromkeys(it.id for it in (spec, torus, systems.system(common.LANE_MAP)))
    contract = evidence.table("collective_contract")
    aside = score.reasons(score.excluded(judged[judged.kind == "collective"]))[["reason", "rows"]]
    tables = {
        "All-to-all of one chip to all others of its rack or domain, one way": ("capacities", compare.capacities(both)),
        "The same by routing: any paths, evenly over the shortest, one path per pair": (
            "routings",
            compare.routings(both),
        ),
        "Each tier of switched racks: lanes of a chip into it, and those that it hands on": (
            "tiers",
            compare.tiers([spec, common.LANE_MAP]),
        ),
        "Latency of the empty fabric, one way": ("latencies", compare.latencies(both)),
        f"Other readings of what sources leave open about {torus.name}": ("readings", what_if.readings(torus.id)),
        "What launches a collective, and how long that takes on Trainium2": (
            "launchers",
            evidence.table("collective_launchers"),
        ),
        "Error of calls on Trainium2 that take more than three launches, with the run left out": (
            "host-calls",
            evidence.table("collective_host_calls"),
        ),
        "Floor and bus bandwidth of each published run of AWS's own test": ("runs", evidence.table("collective_fits")),
        "What such a run reaches of the modelled links, were it this system": (
            "shares",
            evidence.table("collective_shares"),
        ),
        "Graphs with none, one and twelve all-reduces": ("barriers", evidence.table("collective_barriers")),
        "Every row of AWS's test, and what it is used for": ("contract", contract),
        "Measured rows that are set aside, and why": ("set-aside", aside),
    }
    return {what: (name, rows) for what, (name, rows) in tables.items() if len(rows)}
