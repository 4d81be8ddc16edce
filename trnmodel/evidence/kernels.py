"""Kernels against measurements that are not ours, and the two constants of each framework path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from trnmodel.catalog import load
from trnmodel.evidence import fitting
from trnmodel.kernels import kernel
from trnmodel.models.transformer import model
from trnmodel.units import GB, KB, MB, MS, NS, TFLOP, US

if TYPE_CHECKING:
    import pandas as pd

TUNED = "tuned-nki"
FITTED = {"framework-compile": ("load_share", "store_share"), "framework-trace": ("store_share",)}
_UNITS = {"ns": NS, "us": US, "ms": MS, "s": 1.0, "TFLOPS": TFLOP, "%": 0.01, "B": 1.0}


def contract() -> pd.DataFrame:
    """Every measured kernel row with what it means to the model: its call, or the reason why it is set aside.

    Examples
    --------
    >>> len(contract()), int((contract().group != "").sum()) > 40
    (142, True)
    """
    import pandas as pd

    rules = pd.read_csv(load.DATA / "evidence" / "kernel_contract.csv", keep_default_na=False)
    measured = pd.read_csv(load.DATA / "evidence" / "measured.csv").loc[rules.row].reset_index(drop=True)
    strayed = (measured.workload != rules.workload) | (measured.metric != rules.metric)
    if strayed.any():
        raise load.DataError(f"kernel_contract.csv: rows {rules.row[strayed].tolist()} of measured.csv have moved")
    columns = measured[["source", "date_or_sdk", "instance", "value", "unit", "note"]]
    return pd.concat([rules, columns], axis=1)


def excluded() -> pd.DataFrame:
    """Kernel rows that are set aside, counted by reason.

    Examples
    --------
    >>> int(excluded().rows.sum()) + len(comparison())
    142
    """
    rows = contract()
    counts = rows[rows.group == ""].groupby("reason").size().sort_values(ascending=False, kind="stable")
    return counts.rename("rows").reset_index()


def _arguments(text: str) -> dict[str, Any]:
    pairs = dict(pair.split("=") for pair in text.split())
    return {name: float(value) if value[0].isdigit() else value for name, value in pairs.items()}


def _call(row, **changes: Any) -> kernel.KernelTime:
    given = _arguments(row.arguments) | changes
    if "lnc" in given:
        given["lnc"] = int(given["lnc"])
    return getattr(kernel, row.op)(row.chip, **given)


def _measured(row, answer: kernel.KernelTime) -> float:
    """The row's value in base units, as a time where it is one in disguise."""
    value = float(row.value) * _UNITS[row.unit.split()[0]]
    if row.quantity == "flop_per_s":
        return float(answer.flop) / value
    if row.quantity == "mfu":
        return float(answer.flop) / (value * float(row.peak_tflops) * TFLOP)
    return value


_PREDICTED = {"read_bytes": "hbm_read_bytes", "write_bytes": "hbm_write_bytes"}


def comparison(groups: Iterable[str] | None = None) -> pd.DataFrame:
    """Measured and predicted value of every usable kernel row.

    Parameters
    ----------
    groups : iterable of str, optional
        Groups of the contract. Default: all.

    Returns
    -------
    table : pandas.DataFrame
        row, group, chip, kernel, quantity, measured and predicted (in s or B), error (signed fraction), and for times
        roofline_s, tile_s, upper_s and the bound.

    Examples
    --------
    >>> table = comparison(["tuned-nki"])
    >>> bool((table.predicted >= table.roofline_s).all())
    True
    """
    import pandas as pd

    rows = contract()
    wanted = rows[rows.group.isin(list(groups))] if groups is not None else rows[rows.group != ""]
    records = []
    for row in wanted.itertuples():
        answer = _call(row)
        measured = _measured(row, answer)
        predicted = float(getattr(answer, _PREDICTED.get(row.quantity, "time_s")))
        bounds = {name: float(getattr(answer, name)) for name in ("roofline_s", "tile_s", "upper_s")}
        labels = {"row": row.row, "group": row.group, "chip": row.chip, "kernel": row.workload, "stack": answer.stack}
        labels |= {"dtype": answer.dtype, "quantity": "time" if row.quantity not in _PREDICTED else row.quantity}
        values = {"measured": measured, "predicted": predicted, "error": predicted / measured - 1}
        records.append({**labels, **values, **bounds, "bound": answer.bound, "source": row.source})
    return pd.DataFrame(records)


def side_by_side(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """The times ("time") or the HBM bytes ("bytes") of a comparison, with the unit in the names of the columns.

    Examples
    --------
    >>> side_by_side(comparison(["tuned-nki"]), "time").columns.tolist()[4:7]
    ['measured_s', 'predicted_s', 'error']
    """
    unit = {"time": "s", "bytes": "bytes"}[quantity]
    rows = table[(table.quantity == "time") == (quantity == "time")]
    kept = [
        "group",
        "chip",
        "kernel",
        "dtype",
        "measured",
        "predicted",
        "error",
        "bound" if unit == "s" else "quantity",
    ]
    return rows[kept].rename(columns={name: f"{name}_{unit}" for name in ("measured", "predicted")})


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Error of a comparison by group: rows, median absolute, median signed, worst.

    Examples
    --------
    >>> float(summary(comparison(["tuned-nki"])).median_abs_error.iloc[0]) < 0.08
    True
    """
    grouped = table.groupby("group", sort=False).error
    columns = {
        "rows": grouped.size(),
        "median_abs_error": grouped.apply(lambda e: e.abs().median()),
        "median_error": grouped.median(),
        "worst_error": grouped.apply(lambda e: e.loc[e.abs().idxmax()]),
    }
    import pandas as pd

    return pd.DataFrame(columns).reset_index()


def tiers(groups: Iterable[str] = (TUNED, "compiler", *FITTED)) -> pd.DataFrame:
    """How far each path is from the machine: rate of the roofline, of whole tiles, predicted and measured.

    Returns
    -------
    table : pandas.DataFrame
        kernel, group, tier ("roofline", "tile bound", "path, predicted", "path, measured"), share of the roofline.

    Examples
    --------
    >>> bool((tiers().share <= 1.0 + 1e-12).all())
    True
    """
    table = comparison(groups)
    table = table[table.quantity == "time"]
    named = {
        "roofline": "roofline_s",
        "tile bound": "tile_s",
        "path, predicted": "predicted",
        "path, measured": "measured",
    }
    wide = table[["row", "kernel", "group"]].assign(**{tier: table.roofline_s / table[c] for tier, c in named.items()})
    return wide.melt(id_vars=["row", "kernel", "group"], var_name="tier", value_name="share")


def fit(group: str, without: int | None = None) -> dict[str, float]:
    """Launch cost and share of bandwidth of a framework path, by log errors over its rows, outliers damped.

    `without` leaves out one row of measured.csv.

    Examples
    --------
    >>> sorted(fit("framework-compile"))
    ['launch_s', 'share']
    """
    rows = [row for row in contract().itertuples() if row.group == group and row.row != without]
    measured = [_measured(row, _call(row)) for row in rows]
    name = _arguments(rows[0].arguments)["stack"]

    def log_errors(values):
        launch, share = map(float, values)
        changed = kernel.stack(name, launch_s=launch, **dict.fromkeys(FITTED[group], share))
        return [np.log(float(_call(row, stack=changed).time_s) / m) for row, m in zip(rows, measured, strict=True)]

    shipped = kernel.stack(name)
    first = shipped.launch_s, shipped.store_share
    launch_s, share = fitting.constants(log_errors, first, high=[fitting.LARGEST, -np.log(shipped.store_share)])
    return {"launch_s": float(launch_s), "share": float(share)}


def leave_one_out(group: str) -> pd.DataFrame:
    """Error of each row of a framework path under constants fitted to its other rows.

    Examples
    --------
    >>> float(leave_one_out("framework-compile").error.abs().median()) < 0.15
    True
    """
    import pandas as pd

    rows = [row for row in contract().itertuples() if row.group == group]
    errors = []
    for held_out in rows:
        fitted = fit(group, without=held_out.row)
        shares = dict.fromkeys(FITTED[group], fitted["share"])
        changed = kernel.stack(_arguments(held_out.arguments)["stack"], launch_s=fitted["launch_s"], **shares)
        answer = _call(held_out, stack=changed)
        errors.append(float(answer.time_s) / _measured(held_out, answer) - 1)
    return pd.DataFrame({"row": [row.row for row in rows], "kernel": [row.workload for row in rows], "error": errors})


_PROFILE = {"HBM Read bytes per execution": "read_bytes", "MBU": "mbu", "MFU": "mfu"}


def _profile_rows() -> pd.DataFrame:
    """The profiler's rows with one line a model and phase, bytes in B."""
    import pandas as pd

    rows = pd.read_csv(load.DATA / "evidence" / "measured.csv")
    rows = rows[(rows.kind == "inference-LLM-profile") & rows.metric.isin(_PROFILE)]
    values = rows.value.astype(float) * rows.unit.map({"GB": GB, "MB": MB, "KB": KB}).fillna(1.0)
    keys = {"phase": rows.phase.str.split().str[0], "metric": rows.metric.map(_PROFILE), "value": values}
    index = ["workload", "phase", "n_cores_used", "seq_len"]
    wide = rows.assign(**keys).pivot_table(index=index, columns="metric", values="value")
    return wide.reset_index().astype({"n_cores_used": float, "seq_len": float})


def profiles(phase: str = "decode") -> pd.DataFrame:
    """What a profiler saw of whole models on Trainium, beside the bytes of the model and the rate of the DMA engines.

    Parameters
    ----------
    phase : str
        "decode" (one token) or "prefill" (the compiled length).

    Returns
    -------
    table : pandas.DataFrame
        One row a model with known shapes: cores, tokens, and read_bytes (of one core), mbu and mfu, measured and
        predicted, with the signed error of the bytes.

    Examples
    --------
    >>> table = profiles()
    >>> bool(table.read_bytes_error.abs().median() < 0.05)
    True
    """
    import pandas as pd

    aliases = pd.read_csv(load.DATA / "evidence" / "workload_aliases.csv")
    named, rows = list(zip(aliases.pattern, aliases.model, strict=True)), _profile_rows()
    records = []
    for row in rows[rows.phase == phase].itertuples():
        known = [id_ for pattern, id_ in named if re.match(pattern, row.workload, re.IGNORECASE)]
        if known:
            predicted = _profile_predicted(model(known[0]), phase, row.n_cores_used, row.seq_len)
            measured = {"read_bytes": row.read_bytes, "mbu": row.mbu, "mfu": row.mfu}
            labels = {"model": row.workload, "cores": row.n_cores_used, "tokens": row.seq_len}
            error = predicted["read_bytes_predicted"] / row.read_bytes - 1
            records.append(labels | measured | predicted | {"read_bytes_error": error})
    return pd.DataFrame(records)


def _profile_predicted(transformer, phase: str, cores: float, tokens: float) -> dict[str, float]:
    """Bytes, MBU and MFU of one core: its shard of the weights as one product with all tokens, collectives apart."""
    chip, decode = load.chip("trainium1"), phase == "decode"
    m = 1.0 if decode else tokens
    weights = float(transformer.weight_bytes_read(m, "bf16")) / cores
    kv = float(transformer.kv_bytes(tokens, "bf16")) / cores if decode else 0.0
    width = transformer.hidden_size
    answer = kernel.matmul(chip, m, width, weights / load.dtypes()["bf16"] / width)
    read, time_s = weights + kv, max(float(answer.time_s), float(kernel.dma(chip, weights + kv, weights).time_s))
    peak, bandwidth = chip.core.tensor.peak_flop_per_s["bf16"], chip.hbm_bytes_per_s / chip.cores
    return {
        "read_bytes_predicted": read,
        "mbu_predicted": read / time_s / bandwidth,
        "mfu_predicted": float(answer.flop) / time_s / peak,
    }
