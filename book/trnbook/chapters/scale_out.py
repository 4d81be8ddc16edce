"""The scale-out network: its reach, its rate per chip, and the transfer of a KV cache to the decode chips."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from trnbook.chapters import common
from trnmodel.arguments import integer, listed, numbers
from trnmodel.catalog import load, systems
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import IDEAL, Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.fabric.groups import chip_links
from trnmodel.fabric.scaleout import AWS, FIBRE, distances, giga, switch_bits_per_s, tera
from trnmodel.formulas import clos as network
from trnmodel.formulas import transit
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.steps.inference import prefill
from trnmodel.steps.mapping import Mapping
from trnmodel.units import format_quantity


def symbols(system: str | System) -> list[tuple[str, ...]]:
    """Return the chapter's notation: rows of `common.notation`.

    Examples
    --------
    >>> [row[0] for row in symbols("trn3-nl72x2-pcie160")][:3]
    ['p', 'k', 'S']
    """
    spec, facts = systems.system(system), load.facts_rows()
    offered = next(fact for fact in facts.values() if fact.quantity == "switch_bytes_per_s_per_dir")
    wanted = {"p": "port_bytes_per_s_per_dir", "k": "tor_switches", "t_switch": "switch_s", "t_nic": "nic_s"}
    used = {symbol: load.fact_in_force(AWS, quantity)[0] for symbol, quantity in wanted.items()}
    rows = [_row(symbol, fact) for symbol, fact in used.items()]
    rows.insert(2, common.of_fact("S", offered, ", ".join(map(tera, switch_bits_per_s()))))
    rows.append(_row("n", load.fact_in_force(FIBRE, "group_index")[0]))
    own = {"b": "network_bytes_per_s_per_dir", "b_nic": "nic_bytes_per_s_per_dir"}
    return rows + [_row(symbol, facts[spec.sources[name][0]]) for symbol, name in own.items() if name in spec.sources]


def _row(symbol: str, fact: load.Fact) -> tuple[str, ...]:
    """Return a row of notation with the value in base units, as a range where the fact is one."""
    value, low, high = load.value_si(fact)
    unit = load.quantities()[fact.quantity].unit_si.removesuffix("1")
    ends = dict.fromkeys((low, high) if low != high else (value,))
    return common.of_fact(symbol, fact, " to ".join(format_quantity(end, unit) for end in ends))


def reach(port_bits_per_s: Iterable[float]) -> pd.DataFrame:
    """Return endpoints per network by switch, port and layers.

    Examples
    --------
    >>> table = reach([100e9, 400e9])
    >>> int(table[(table.switch == "51.2T") & (table.port == "100G") & (table.layers == 2)].endpoints.iloc[0])
    131072
    """
    ports = np.ravel(numbers("port_bits_per_s", port_bits_per_s, 1))
    switch, port, layers = map(np.ravel, np.meshgrid(switch_bits_per_s(), ports, [2, 3], indexing="ij"))
    sized = network.clos(switch_bits_per_s=switch, port_bits_per_s=port, layers=layers)
    labels = {"switch": [*map(tera, switch)], "switch_bits_per_s": switch, "port": [*map(giga, port)]}
    return pd.DataFrame({**labels, "layers": layers, "radix": sized.radix, "endpoints": sized.endpoints})


def rates(names: Iterable[str | System]) -> pd.DataFrame:
    """Compare scale-out with scale-up per system: system, chip, chips, generation, rates per chip, their ratio."""
    rows = []
    for spec in map(systems.system, listed("names", names)):
        out, up = spec.scaleout_bytes_per_s_per_dir, chip_links(spec)
        rows.append(
            {
                "system": spec.id,
                "chip": spec.chip.name,
                "chips": spec.domain_chips,
                "generation": spec.nic_generation or "not stated",
                "nic_bytes_per_s_per_dir": spec.nic_bytes_per_s_per_dir,
                "scaleout_bytes_per_s_per_dir": out,
                "domain_bytes_per_s_per_dir": out * spec.domain_chips,
                "scaleup_over_scaleout": up / out,
            }
        )
    return tidy(rows)


def kv_transfer(
    model: str | Transformer,
    system: str | System,
    tokens: ArrayLike,
    chips: int,
    precision: str | Precision = "bf16",
    efficiencies: str | Efficiencies | None = None,
) -> pd.DataFrame:
    """Return whether a prompt's KV cache reaches the decode chips while prefill still runs.

    Parameters
    ----------
    model : str or Transformer
        The model.
    system : str or System
        Whose chips prefill, and whose network carries.
    tokens : array_like
        Lengths of the prompt. [token]
    chips : int
        Chips of one prefill instance, all of which send; at most the domain's. [-]
    precision : str or Precision
        Storage and compute dtypes; the cache is sent as it is stored.
    efficiencies : str or Efficiencies, optional
        Software that prefills; default the chip's own.

    Returns
    -------
    table : pandas.DataFrame
        model, input_tokens, chips, stack, basis, kv_bytes, prefill_s, send_s, hidden (share of the sending that prefill
        covers when each layer leaves as soon as it is done), late_s (after prefill, layer by layer), late_whole_s (sent
        in one piece). NaN where the model does not fit.

    Examples
    --------
    >>> table = kv_transfer("llama-3.1-70b", "trn3-nl72x2-pcie160", [8192], 16, "mxfp8")
    >>> bool(table.send_s[0] < table.prefill_s[0])
    True
    """
    spec, model, precision = systems.system(system), read_model(model), load.precision(precision)
    chips, tokens = min(integer("chips", chips), spec.domain_chips), np.atleast_1d(numbers("tokens", tokens, 1))
    mapping = Mapping(tp=chips * spec.chip.cores / spec.chip.lnc_default)
    step = prefill(model, spec, mapping, batch=1, input_tokens=tokens, precision=precision, efficiencies=efficiencies)
    prefill_s = step.time_s
    cache, latency_s = model.kv_bytes(tokens, precision.kv), distances(spec).latency_s.iloc[2]
    rate = chips * spec.scaleout_bytes_per_s_per_dir
    named = {"model": model.id, "input_tokens": tokens, "chips": chips, "stack": step.stack.id, "basis": step.basis}
    table = pd.DataFrame({**named, "kv_bytes": cache})
    table = table.assign(prefill_s=prefill_s, send_s=cache / rate)
    for name, pieces in (("late_s", model.n_layers), ("late_whole_s", 1)):
        late_s = transit.kv_exposed_s(cache, np.nan_to_num(prefill_s), pieces, rate, latency_s)
        table[name] = np.where(np.isnan(prefill_s), np.nan, late_s)
    hidden = 1 - (table.late_s - latency_s) / table.send_s
    return table.assign(hidden=hidden, send_over_prefill=table.send_s / table.prefill_s)


def attainable(share: float) -> Efficiencies:
    """Return the software of a prefill at a share of the peak in products, with a hidden network.

    Examples
    --------
    >>> attainable(0.6).prefill_matmul_share
    0.6
    """
    return replace(
        IDEAL,
        id=f"{share:.0%} of peak",
        name=f"{share:.0%} of the peak, network hidden",
        prefill_matmul_share=share,
        prefill_attention_share=share,
    )


def room(
    models: Iterable[str | Transformer],
    system: str | System,
    tokens: ArrayLike,
    chips: Iterable[int],
    precisions: Iterable[str],
    efficiencies: Iterable[str | Efficiencies | None],
) -> pd.DataFrame:
    """Return how many times slower the network may be before sending takes as long as prefill, at worst.

    Returns
    -------
    table : pandas.DataFrame
        stack, precision, chips, model and input_tokens of the case, room (prefill over sending); none where no model
        fits that many chips.

    Examples
    --------
    >>> ask = {"tokens": [8192], "chips": [16], "precisions": ["bf16"], "efficiencies": [attainable(0.6)]}
    >>> room(["llama-3.1-8b"], "trn3-nl72x2-pcie160", **ask).room.round(1).tolist()
    [7.6]
    """
    rows = []
    for stack, precision, count in product(efficiencies, precisions, chips):
        tables = [kv_transfer(m, system, tokens, count, precision, stack) for m in listed("models", models)]
        table = pd.concat(tables, ignore_index=True)
        table = table.assign(precision=precision, room=1 / table.send_over_prefill).dropna(subset=["room"])
        rows.append(table.nsmallest(1, "room"))
    return pd.concat(rows, ignore_index=True)[["stack", "precision", "chips", "model", "input_tokens", "room"]]
