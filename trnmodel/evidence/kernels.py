"""Kernels against measurements that are not ours: times and bytes side by side, tiers, and profiles of whole models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trnmodel.catalog import load
from trnmodel.evidence.accuracy import KERNEL_RESIDUALS, KERNELS, LEFT_OUT, shipped
from trnmodel.evidence.primitives import kernel_answer, peak_flop_per_s
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import SIZES, Reading, model_of, reading
from trnmodel.evidence.rows import MEASURED, UnreadableRowError, measure, read_rows, read_table
from trnmodel.kernels import kernel
from trnmodel.models.transformer import Transformer, model

if TYPE_CHECKING:
    import pandas as pd

TUNED = "tuned-nki"
BYTES = {"kernel-read-bytes": "read_bytes", "kernel-write-bytes": "write_bytes"}


def _both(r: Reading, printed: float, answer: kernel.KernelTime) -> tuple[float, float]:
    """Measured and predicted in base units, as times where a row prints a rate in disguise."""
    if r.meaning in BYTES:
        return printed, predict(r)
    if r.meaning == "kernel-mfu":
        printed = float(answer.flop) / (printed * peak_flop_per_s(r, answer))
    elif r.meaning == "kernel-flop-rate":
        printed = float(answer.flop) / printed
    return printed, float(answer.time_s)


def comparison(groups: Iterable[str] | None = None) -> pd.DataFrame:
    """Measured and predicted value of every usable kernel row.

    Parameters
    ----------
    groups : iterable of str, optional
        Uses that the rules name. Default: all.

    Returns
    -------
    table : pandas.DataFrame
        id, group, chip, kernel, quantity, measured and predicted (in s or B), error (signed fraction), and for times
        roofline_s, tile_s, upper_s and the bound.

    Examples
    --------
    >>> table = comparison(["tuned-nki"])
    >>> bool((table.predicted >= table.roofline_s).all())
    True
    """
    import pandas as pd

    wanted = None if groups is None else list(groups)
    records = []
    for row in read_rows(MEASURED):
        if row["kind"] != "kernel":
            continue
        try:
            r = reading(row)
        except UnreadableRowError:
            continue
        if wanted is not None and r.use not in wanted:
            continue
        answer = kernel_answer(r)
        measured, predicted = _both(r, measure(row) * r.scale, answer)
        bounds = {name: float(getattr(answer, name)) for name in ("roofline_s", "tile_s", "upper_s")}
        labels = {"id": row["id"], "group": r.use, "chip": r.where, "kernel": row["workload"], "stack": answer.stack}
        labels |= {"dtype": answer.dtype, "quantity": BYTES.get(r.meaning, "time")}
        values = {"measured": measured, "predicted": predicted, "error": predicted / measured - 1}
        records.append({**labels, **values, **bounds, "bound": answer.bound, "source": row["source"]})
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


def tiers(groups: Iterable[str] = (TUNED, "compiler", *KERNELS)) -> pd.DataFrame:
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
    wide = table[["id", "kernel", "group"]].assign(**{tier: table.roofline_s / table[c] for tier, c in named.items()})
    return wide.melt(id_vars=["id", "kernel", "group"], var_name="tier", value_name="share")


def leave_one_out(group: str) -> pd.DataFrame:
    """Error of the time of each shape of a framework path under constants fitted to its other shapes.

    Examples
    --------
    >>> float(leave_one_out("framework-compile").error.abs().median()) < 0.15
    True
    """
    every = shipped(KERNEL_RESIDUALS)
    table = every[(every.group == group) & (every.split == LEFT_OUT)]
    ratio = 1 + table.error
    error = ratio.where(table.meaning == "kernel-time", 1 / ratio) - 1
    return table[["model"]].assign(error=error).rename(columns={"model": "kernel"})


_PROFILE = {"HBM Read bytes per execution": "read_bytes", "MBU": "mbu", "MFU": "mfu"}


def _profile_rows() -> pd.DataFrame:
    """The profiler's rows with one line a model and phase, bytes in B."""
    rows = read_table(MEASURED)
    rows = rows[(rows.kind == "inference-LLM-profile") & rows.metric.isin(_PROFILE)]
    values = rows.value.astype(float) * rows.unit.map(SIZES).fillna(1.0)
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

    rows, records = _profile_rows(), []
    for row in rows[rows.phase == phase].itertuples():
        try:
            known = model(model_of(row.workload))
        except UnreadableRowError:
            continue
        predicted = _profile_predicted(known, phase, row.n_cores_used, row.seq_len)
        measured = {"read_bytes": row.read_bytes, "mbu": row.mbu, "mfu": row.mfu}
        labels = {"model": row.workload, "cores": row.n_cores_used, "tokens": row.seq_len}
        error = predicted["read_bytes_predicted"] / row.read_bytes - 1
        records.append(labels | measured | predicted | {"read_bytes_error": error})
    return pd.DataFrame(records)


def _profile_predicted(transformer: Transformer, phase: str, cores: float, tokens: float) -> dict[str, float]:
    """Bytes, MBU and MFU of one core: its shard of the weights as one product with all tokens, collectives apart."""
    chip, decode = load.chip("trainium1"), phase == "decode"
    assert chip.core is not None
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
