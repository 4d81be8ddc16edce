"""Transfers over the scale-out network: latency by distance, and a KV cache on its way from prefill to decode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from trnmodel.arguments import integer, numbers, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.systems import System
from trnmodel.formulas import clos as network
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.steps.inference import prefill
from trnmodel.steps.mapping import Mapping

if TYPE_CHECKING:
    import pandas as pd

AWS, FIBRE = "aws-scaleout", "smf-fibre"


def _spread(entity: str, quantity: str) -> tuple[float, float, float]:
    fact = load.fact_in_force(entity, quantity)
    return fact[1], *fact[2]


def distances(system: str | System) -> pd.DataFrame:
    """Latency of one way through the network, from the same rack to a building as far as each optical module drives.

    Returns
    -------
    table : pandas.DataFrame
        way, switch_hops, distance_m, fibre_s, latency_s with `_low` and `_high`, in_flight_bytes (what a chip must keep
        outstanding to fill the way), light (share of the latency that is fibre), estimate (NIC latency is ours).

    Examples
    --------
    >>> ways = distances("trn3-nl72x2-pcie160").set_index("way")
    >>> round(float(ways.fibre_s["building, 400G ZR"]) * 1e3, 3)
    0.588
    """
    import pandas as pd

    spec, index = systems.system(system), load.value(FIBRE, "group_index")
    if np.isnan(spec.scaleout_bytes_per_s_per_dir):
        refuse("system", spec.id, "no scale-out rate of it is published")
    optics = [fact for fact in load.facts_rows().values() if fact.quantity == "reach_m"]
    ways = [("same top of rack", 1, 0.0), ("same pod", 3, 0.0), ("other pod", 5, 0.0)]
    # spine to spine: one more switch than between pods
    ways += [
        (f"building, {load.entities()[fact.entity].name.removesuffix(' optics')}", 6, load.value_si(fact)[0])
        for fact in sorted(optics, key=lambda fact: load.value_si(fact)[0])
        if fact.entity != "optics-dr4"
    ]
    words, hops, metres = (np.array(column) for column in zip(*ways, strict=True))
    fibre = network.fibre_delay_s(metres, index)
    bounds = zip(_spread(AWS, "switch_s"), _spread(AWS, "nic_s"), strict=True)
    middle, low, high = (network.path_latency_s(hops, switch, card, fibre) for switch, card in bounds)
    columns = {"way": words, "switch_hops": hops, "distance_m": metres, "fibre_s": fibre}
    columns |= {"latency_s": middle, "latency_s_low": low, "latency_s_high": high, "fibre_share": fibre / middle}
    inside = network.in_flight_bytes(spec.scaleout_bytes_per_s_per_dir, middle)
    return pd.DataFrame({**columns, "in_flight_bytes": inside, "estimate": True})


def fibre_check() -> tuple[float, float]:
    """Delay of a kilometre of fibre: from the group index, and as a text prints it. [s]"""
    kilometre = load.units()["km"].factor
    computed = float(network.fibre_delay_s(kilometre, load.value(FIBRE, "group_index")))
    return computed, load.value(FIBRE, "fibre_delay_s_per_m") * kilometre


def kv_transfer(
    model: str | Transformer,
    system: str | System,
    tokens: Iterable[float],
    chips: int,
    precision: str | Precision = "bf16",
) -> pd.DataFrame:
    """Whether a prompt's KV cache reaches the decode chips while prefill still runs.

    Parameters
    ----------
    model : str or Transformer
        The model.
    system : str or System
        Whose chips prefill, and whose network carries.
    tokens : iterable of float
        Lengths of the prompt. [token]
    chips : int
        Chips of one prefill instance, all of which send; at most the domain's. [-]
    precision : str or Precision
        Storage and compute dtypes; the cache is sent as it is stored.

    Returns
    -------
    table : pandas.DataFrame
        model, input_tokens, chips, kv_bytes, prefill_s, send_s, hidden (share of the sending that prefill covers when
        each layer leaves as soon as it is done), late_s (after prefill, layer by layer), late_whole_s (sent in one
        piece). NaN where the model does not fit.

    Examples
    --------
    >>> table = kv_transfer("llama-3.1-70b", "trn3-nl72x2-pcie160", [8192], 16, "mxfp8")
    >>> bool(table.send_s[0] < table.prefill_s[0])
    True
    """
    import pandas as pd

    spec, model, precision = systems.system(system), read_model(model), load.precision(precision)
    chips, tokens = min(integer("chips", chips), spec.domain_chips), np.atleast_1d(numbers("tokens", tokens, 1))
    ranks = chips * spec.chip.cores / spec.chip.lnc_default
    step = prefill(model, spec, Mapping(tp=ranks), batch=1, input_tokens=tokens, precision=precision)
    cache = np.array([float(model.kv_bytes(context, precision.kv)) for context in tokens])
    rate = chips * spec.scaleout_bytes_per_s_per_dir
    latency = distances(spec).latency_s.iloc[2]
    known = np.where(np.isnan(step.time_s), 0.0, step.time_s)
    late = [network.kv_exposed_s(cache, known, pieces, rate, latency) for pieces in (model.n_layers, 1)]
    table = pd.DataFrame(
        {"model": model.id, "input_tokens": tokens, "chips": chips, "kv_bytes": cache, "prefill_s": step.time_s}
    )
    fits = ~np.isnan(step.time_s)
    table["send_s"] = cache / rate
    table["late_s"], table["late_whole_s"] = (np.where(fits, one, np.nan) for one in late)
    table["hidden"] = 1 - (table.late_s - latency) / table.send_s
    table["send_over_prefill"] = table.send_s / table.prefill_s
    return table


def measured_share() -> pd.DataFrame:
    """Measured transfers over EFA against the printed rate: what, measured and printed bytes per second, share, source.

    Examples
    --------
    >>> bool(measured_share().share.between(0, 1).all())
    True
    """
    import pandas as pd

    rows = pd.read_csv(load.DATA / "evidence" / "measured.csv", dtype=str, keep_default_na=False)
    rows = rows[(rows.phase == "network p2p") & (rows.metric == "bandwidth")]
    found = []
    for row in rows.itertuples():
        spec, sending = systems.system(row.instance), float(row.n_chips)
        rate = load.parse_number(row.value)[0] * load.units()[row.unit].factor
        printed = sending * spec.scaleout_bytes_per_s_per_dir
        found.append((row.workload, sending, rate, printed, rate / printed, row.source))
    columns = ["what", "chips", "measured_bytes_per_s", "printed_bytes_per_s", "share", "source"]
    return pd.DataFrame(found, columns=columns)
