"""Tables of the scale-out network: its size, work per byte that is sent, a training step across domains, a cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from numpy.typing import NDArray

from trnbook.chapters import common, scale_out_printed
from trnmodel.catalog import load, systems
from trnmodel.catalog.systems import System
from trnmodel.evidence import tables as evidence
from trnmodel.evidence.rows import published
from trnmodel.fabric import scaleout
from trnmodel.fabric.groups import chip_links
from trnmodel.formulas import transit
from trnmodel.formulas.bounds import busbw_factor
from trnmodel.formulas.clos import Clos
from trnmodel.models.transformer import model
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.steps.answers import Step
from trnmodel.training.step import TrainStep
from trnmodel.units import format_digits, format_quantity

SWITCHES = scaleout.switch_bits_per_s()
DOMAINS = (1, 2, 8, 64)
WORK, RIDGE = "work per byte sent", "ridge of a network"
BETWEEN = "2x trn2.48xlarge, EFA"  # measured calls between two instances


def answer(system: System, chips: float) -> str:
    """Return the card that opens the chapter: chips that three layers join, the rate of each, and how sure it is.

    Examples
    --------
    >>> print(answer(systems.system("trn3-nl72x2-pcie160"), 524_288).splitlines()[0].partition(": ")[0])
    > **524,288 chips**
    """
    shares = scale_out_printed.measured_share().share
    out, up = (format_quantity(rate, "B/s", 3) for rate in (system.scaleout_bytes_per_s_per_dir, chip_links(system)))
    return common.card(
        f"{chips:,.0f} chips",
        f"three layers of the smallest switches that AWS uses join this many chips of {system.name}",
        mark="",
        rival=f"{up} per chip inside its domain; on this network it is {out}",
        rank="Compared with",
        proof="Check: numbers that are not ours",
        more="You need this page for training and large fleets. In the case of this book, serving never leaves a rack."
        "\n\n**How sure?** The count is arithmetic on ports. Its formula gives every size that SemiAnalysis prints. "
        "Single large transfers of Trainium2 reach "
        f"{shares.min():.0%} to {shares.max():.0%} of the printed rate. "
        "Gradients in [training](#how-long-does-an-exchange-take) reach far less.",
    )


def attached(system: str | System, port_bits_per_s: float) -> dict[str, Any]:
    """Return how the NICs of a system meet ports of a rate, as arguments of `tm.clos`.

    A NIC is split over the planes of AWS's network where its rate has a port in each, else it has one plane.

    Examples
    --------
    >>> attached("trn3-nl72x2-pcie160", 400e9)["planes"], attached("trn3-nl72x2-pcie160", 100e9)["planes"]
    (1, 2.0)
    """
    nic = scaleout.nic(system)
    planes = nic["planes"] if nic["nic_bits_per_s"] >= nic["planes"] * port_bits_per_s else 1
    return nic | {"port_bits_per_s": port_bits_per_s, "planes": planes}


def curves(chips: Mapping[str, NDArray]) -> pd.DataFrame:
    """Return chips over the switches on offer as lines of a chart, a row for each point.

    Examples
    --------
    >>> (curves({"a": SWITCHES}).switch_bits_per_s / 1e12).tolist()
    [12.8, 25.6, 51.2, 102.4]
    """
    lines = [
        pd.DataFrame({"switch_bits_per_s": SWITCHES, "line": name, "max_chips": most}) for name, most in chips.items()
    ]
    return pd.concat(lines, ignore_index=True)


def sized(full: Clos, cluster: Clos) -> dict[str, Any]:
    """Return a network as a row: port, layers, reach, and the parts of a cluster per chip, NaN where it is too small.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"switch_bits_per_s": 12.8e12, "layers": 2, **attached("trn3-nl72x2-pcie160", 100e9)}
    >>> sized(tm.clos(**ask), tm.clos(**ask, chips=8192))["optics_per_chip"]
    1.0
    """
    parts = {f"{name}_per_chip": float(getattr(cluster, name) / cluster.chips) for name in ("switches", "optics")}
    named = {"port": scaleout.giga(float(full.port_bits_per_s)), "layers": float(full.layers)}
    return named | {"max_chips": float(full.max_chips)} | parts


def per_byte(step: Step, group: str) -> float:
    """Return the work of a rank over the bytes that it sends in the exchanges of one group [FLOP/B].

    Examples
    --------
    >>> from trnbook.shared import case
    >>> round(per_byte(case.choice("llama-3.3-70b", "trn2.48xlarge").first, "tp"))
    9045
    """
    ranks = float(getattr(step, group))
    sent = sum(
        float(one.message_bytes * one.count * busbw_factor(one.kind, ranks))
        for one in step.messages
        if one.group == group
    )
    return float(step.work_flop_per_rank) / sent


def peak_flop_per_s(system: System, precision: str) -> float:
    """Return the peak of a system's chip in the format that a precision computes in [FLOP/s].

    Examples
    --------
    >>> peak_flop_per_s(systems.system("trn2.48xlarge"), "bf16")
    667000000000000.0
    """
    return float(system.chip.peak(load.precision(precision).compute))


def ranked(work: Mapping[str, float], ridges: Mapping[str, float]) -> pd.DataFrame:
    """Return work per byte that programs send, and the ridges of networks, the least first.

    Examples
    --------
    >>> ranked({"a": 4321.0}, {"b": 2.0}).what.tolist()
    ['b: 2', 'a: 4,300']
    """
    parts = {WORK: work, RIDGE: ridges}
    rows = [
        (f"{name}: {format_digits(float(x), 2)}", kind, float(x))
        for kind, some in parts.items()
        for name, x in some.items()
    ]
    table = pd.DataFrame(rows, columns=["what", "kind", "flop_per_byte_sent"])
    return table.sort_values("flop_per_byte_sent", kind="stable", ignore_index=True)


def may_leave(work: Mapping[str, float], ridges: Mapping[str, float]) -> str:
    """Return the claim about the work that does not wait for the network: gradients and caches where it is no other.

    Examples
    --------
    >>> work = {"experts": 2.0, "cache of a prompt": 9.0}
    >>> may_leave(work, {"ridge": 5.0}), may_leave(work, {"ridge": 1.0})
    ('Only gradients and caches may leave the domain', 'What lies right of both ridges may leave the domain')
    """
    least = max(ridges.values())
    late = {name for name in work if name.startswith(("cache", "gradients"))}
    only = {name for name, one in work.items() if one > least} == late
    return f"{'Only gradients and caches' if only else 'What lies right of both ridges'} may leave the domain"


def by_domains(times_s: Mapping[str, list[float]]) -> pd.DataFrame:
    """Return times over some numbers of domains as a row for each number, with a column for each system.

    Examples
    --------
    >>> by_domains({"trn2.48xlarge": [1.0, 2.0, 3.0, 4.0]})["trn2.48xlarge"].tolist()
    ['1 s', '2 s', '3 s', '4 s']
    """
    columns = {systems.system(name).name: [format_quantity(t, "s", 3) for t in some] for name, some in times_s.items()}
    return pd.DataFrame({"domains": DOMAINS, **columns})


def exposed(few: TrainStep, many: TrainStep) -> str:
    """Return what share of a step the gradients expose on four domains, and on sixteen.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"global_batch": 1024, "seq": 2048, "zero": 1}
    >>> step = tm.train_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8, dp=8), **ask)
    >>> exposed(step, step).startswith("On four domains gradients expose")
    True
    """
    first, second = (float(one.data_s / one.time_s) for one in (few, many))
    return f"On four domains gradients expose {first:.0%} of the step, on sixteen they expose {second:.0%}."


def sent(best: Choice, cache_bytes: float) -> dict[str, Any]:
    """Return the cache of a prompt on its way to other chips as a row: its bytes, the time to send it and to prefill.

    Examples
    --------
    >>> from trnbook.shared import case
    >>> row = sent(case.choice("llama-3.3-70b", "trn2.48xlarge"), 327_680 * 4096)
    >>> round(row["send_s"], 3)
    0.054
    """
    send_s = float(cache_bytes) / (best.chips * best.system.scaleout_bytes_per_s_per_dir)
    return {
        "model": best.first.model.id,
        "system": best.system.id,
        "chips": best.chips,
        "cache_bytes": float(cache_bytes),
        "send_s": send_s,
        "prefill_s": float(best.first.time_s),
        "prefill_over_sending": float(best.first.time_s) / send_s,
    }


def late(leaving: pd.DataFrame) -> pd.DataFrame:
    """Return what sending a cache adds after prefill, in one piece, and layer by layer as soon as each is done.

    Examples
    --------
    >>> row = {"model": "llama-3.3-70b", "system": "trn2.48xlarge", "cache_bytes": 8e9, "send_s": 0.08}
    >>> row |= {"prefill_s": 1.0}
    >>> late(pd.DataFrame([row])).late_s.round(4).tolist()
    [0.001]
    """
    rows = []
    for row in leaving.itertuples():
        latency_s = float(scaleout.distances(row.system).latency_s[2])
        ask = row.cache_bytes, row.prefill_s, row.cache_bytes / row.send_s, latency_s
        pieces = {"late_s": model(row.model).n_layers, "late_whole_s": 1}
        added = {name: float(transit.kv_exposed_s(*ask[:2], n, *ask[2:])) for name, n in pieces.items()}
        rows.append({"model": row.model, "system": row.system, "send_s": row.send_s, **added})
    return tidy(rows)


def between_instances() -> pd.DataFrame:
    """Return the rows of collectives that were measured between two instances of Trainium2, for `tm.validate`.

    Examples
    --------
    >>> between_instances().source.nunique()
    1
    """
    rows = published()
    return rows[rows.instance == BETWEEN].reset_index(drop=True)


def timed(judged: pd.DataFrame) -> pd.DataFrame:
    """Return judged collectives with measured and predicted times.

    Examples
    --------
    >>> row = {"workload": "all_reduce", "kind_of_call": "all_reduce", "value": "2"}
    >>> row |= {"predicted": 1.0, "error": -0.5, "message_bytes": "8"}
    >>> timed(pd.DataFrame([row])).measured_s.tolist()
    [2.0]
    """
    columns = {"call": judged.workload, "kind": judged.kind_of_call.str.replace("_", "-")}
    columns |= {"message_bytes": judged.message_bytes.astype(float)}
    times = {"measured_s": judged.value.astype(float), "predicted_s": judged.predicted, "error": judged.error}
    return pd.DataFrame(columns | times)


def rates(names: Iterable[str | System]) -> pd.DataFrame:
    """Compare scale-out with scale-up per system: id, name, chip, chips, generation, rates per chip, their ratio.

    Examples
    --------
    >>> rates(["trn2.48xlarge"]).scaleup_over_scaleout.round(1).tolist()
    [20.5]
    """
    rows = []
    for spec in map(systems.system, names):
        out, up = spec.scaleout_bytes_per_s_per_dir, chip_links(spec)
        rows.append(
            {
                "system": spec.id,
                "name": spec.name,
                "chip": spec.chip.name,
                "chips": spec.domain_chips,
                "generation": spec.nic_generation or "not stated",
                "scaleup_bytes_per_s_per_dir": up,
                "scaleout_bytes_per_s_per_dir": out,
                "scaleup_over_scaleout": up / out,
            }
        )
    return tidy(rows)


def by_rack(names: Iterable[str | System]) -> pd.DataFrame:
    """Return how far three layers reach, by the chips that share a pair of top-of-rack switches, for each system.

    Examples
    --------
    >>> by_rack(["trn3-nl72x2-pcie160"]).chips.astype(int).tolist()
    [524288, 294912, 589824]
    """
    specs = [systems.system(name) for name in names]
    parts = [scaleout.by_rack(one).assign(system=one.id) for one in {one.id: one for one in specs}.values()]
    table = pd.concat(parts, ignore_index=True)
    return table[["system", *table.columns[:-1]]]


def ways(system: str | System) -> pd.DataFrame:
    """Return the latency of each way through the network, and what a chip keeps in flight on it.

    Examples
    --------
    >>> ways("trn3-nl72x2-pcie160").switch_hops.tolist()
    [1, 3, 5, 6, 6, 6, 6]
    """
    columns = "way switch_hops fibre_s latency_s latency_s_low latency_s_high in_flight_bytes".split()
    return scaleout.distances(system)[columns]


def left_out() -> pd.DataFrame:
    """Return errors of collectives that a host calls, with each run left out of its own prediction.

    Examples
    --------
    >>> "8 on 2 machines" in set(left_out().what)
    True
    """
    return evidence.table("collective_host_calls")
