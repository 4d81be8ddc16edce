"""Kernels against measurements that are not ours: times and bytes side by side, tiers, and profiles of whole models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trnlab.accuracy import KERNEL_RESIDUALS, shipped
from trnmodel.catalog import load
from trnmodel.evidence import search
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.fit import readable
from trnmodel.evidence.primitives import kernel_answer
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import SIZES, Reading, is_rate, model_of
from trnmodel.evidence.rows import MEASURED, PRODUCTS, SIDES, published, read_table
from trnmodel.evidence.tables import KERNELS, LEFT_OUT, TUNED
from trnmodel.kernels import kernel
from trnmodel.models.transformer import Transformer, model
from trnmodel.units import US

if TYPE_CHECKING:
    import pandas as pd

BYTES = {"kernel-read-bytes": "read_bytes", "kernel-write-bytes": "write_bytes"}


def _both(r: Reading, printed: float, answer: kernel.KernelTime) -> tuple[float, float]:
    """Measured and predicted in base units, as times where a row prints a rate in disguise."""
    if r.meaning in BYTES:
        return printed, predict(r)
    time_s = float(answer.time_s)
    return time_s * predict(r) / printed if is_rate(r.meaning) else printed, time_s


def comparison(groups: Iterable[str] | None = None) -> pd.DataFrame:
    """Measured and predicted value of every usable kernel row of the published tables.

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

    wanted, records = None if groups is None else list(groups), []
    rows = {row["id"]: row for row in published().to_dict("records") if row["kind"] == "kernel"}
    for case in readable(rows.values()):
        row, r = rows[case.id], case.reading
        if wanted is not None and r.use not in wanted:
            continue
        answer = kernel_answer(r)
        measured, predicted = _both(r, case.measured, answer)
        bounds = {name: float(getattr(answer, name)) for name in ("roofline_s", "tile_s", "upper_s")}
        labels = {"id": row["id"], "group": r.use, "chip": answer.chip.id, "kernel": row["workload"]}
        labels |= {"stack": answer.stack, "dtype": answer.dtype, "quantity": BYTES.get(r.meaning, "time")}
        values = {"measured": measured, "predicted": predicted, "error": predicted / measured - 1}
        records.append({**labels, **values, **bounds, "bound": answer.bound, "source": row["source"]})
    return pd.DataFrame(records)


def tiers() -> pd.DataFrame:
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
    table = comparison((TUNED, "compiler", *KERNELS))
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


CONSTANTS = ("access_overhead_cycle", "fill_s", "exposed_evict")  # of a tuned product; the last is 1 - overlap_evict


def products() -> pd.DataFrame:
    """Matrix products on Trainium3 with their counters, and what `tm.kernel.matmul` said before any was read.

    Returns
    -------
    table : pandas.DataFrame
        The columns of `data/evidence/trn3_gemm.csv` with predicted_us, error and blind_error (signed fractions),
        cycles (TensorE active, an instruction of a core), evict_us (VectorE busy), gap_us (time without TensorE).

    Examples
    --------
    >>> table = products()
    >>> bool(table.error.abs().median() < 0.01 < table.blind_error.abs().median())
    True
    """
    import pandas as pd

    table = pd.read_csv(PRODUCTS)
    answer = _product_times(table)
    assert answer.chip.core is not None
    each_s = table.tensor_engine_active_us * US * table.lnc / table.matmul_instructions
    return table.assign(
        predicted_us=answer.time_s / US,
        error=answer.time_s / US / table.time_us - 1,
        blind_error=table.blind_time_us / table.time_us - 1,
        cycles=each_s * answer.chip.core.tensor.clock_hz,
        evict_us=answer.vector_s / US,
        gap_us=table.time_us - table.tensor_engine_active_us,
    )


def _product_times(table: pd.DataFrame, constants: Sequence[float] | NDArray | None = None) -> kernel.KernelTime:
    """Return times of a table of products on Trainium3, with other constants where some are given."""
    chip, stack = load.chip("trainium3"), kernel.stack()
    assert chip.core is not None
    if constants is not None:
        cycles, fill_s, exposed = map(float, constants)
        tensor = replace(chip.core.tensor, access_overhead_cycle=cycles)
        chip = replace(chip, core=replace(chip.core, tensor=tensor, fill_s=fill_s))
        stack = kernel.stack(stack, overlap_evict=1.0 - exposed)
    sides = (table[name].to_numpy(float) for name in SIDES)
    return kernel.matmul(chip, *sides, lnc=int(table.lnc.unique().item()), stack=stack)


def constants(table: pd.DataFrame) -> dict[str, float]:
    """Return the constants of a tuned product that fit measured times best, one vote a shape.

    Examples
    --------
    >>> constants(products())
    {'access_overhead_cycle': 12.05, 'fill_s': 1.52e-05, 'exposed_evict': 0.4822}
    """
    times, votes = table.time_us.to_numpy(float) * US, table.groupby(list(SIDES)).time_us.transform("size")
    weights = votes.to_numpy(float) ** -0.5

    def errors(values: NDArray) -> NDArray:
        return weights * np.log(_product_times(table, values).time_s / times)

    return dict(zip(CONSTANTS, search.constants(errors, (12.0, 15e-6, 0.5)).tolist(), strict=True))


def product_accuracy() -> pd.DataFrame:
    """Errors of the products of Trainium3 by shape: blind, as shipped, and with every shape of the row's file left out.

    Returns
    -------
    table : pandas.DataFrame
        m, n, k, time_us, blind_error, error, left_out_error: medians of a shape's rows. [-]
    """
    table = products()
    shapes = list(zip(*(table[name] for name in SIDES), strict=True))

    def learned(train: list[int], test: list[int]) -> NDArray:
        own, rows = {shapes[i] for i in test}, table.iloc[test]
        found = constants(table.iloc[[i for i in train if shapes[i] not in own]])
        return (_product_times(rows, [*found.values()]).time_s / US / rows.time_us - 1).to_numpy()

    left = search.left_out(range(len(table)), table.file.to_list().__getitem__, learned)
    columns = ["time_us", "blind_error", "error", "left_out_error"]
    return table.assign(left_out_error=left).groupby(list(SIDES))[columns].median().reset_index()


_PROFILE = {"HBM Read bytes per execution": "read_bytes", "MBU": "mbu", "MFU": "mfu"}


def _profile_rows() -> pd.DataFrame:
    """Return the profiler's rows with one line a model and phase, bytes in B."""
    rows = read_table(MEASURED)
    rows = rows[(rows.kind == "inference-LLM-profile") & rows.metric.isin(_PROFILE)]
    values = rows.value.astype(float) * rows.unit.map(SIZES).fillna(1.0)
    keys = {"phase": rows.phase.str.split().str[0], "metric": rows.metric.map(_PROFILE), "value": values}
    index = ["workload", "phase", "n_cores_used", "seq_len"]
    wide = rows.assign(**keys).pivot_table(index=index, columns="metric", values="value")
    return wide.reset_index().astype({"n_cores_used": float, "seq_len": float})


def profiles(phase: str = "decode") -> pd.DataFrame:
    """Return what a profiler saw of whole models on Trainium, beside the bytes and the rate that are modelled.

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
