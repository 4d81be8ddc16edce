"""Tables that others print in columns of their own -> rows of the common format with typed columns.

Each of the four tables of `data/evidence` below stands as its source prints it. Here its times become seconds, its
sizes the bytes of the full buffer on a rank, and its words the typed columns; nothing that a table leaves open is
filled in. A measurement that failed stays, as a row without a value and with the reason in `refused`.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from trnmodel.arguments import refuse
from trnmodel.catalog.load import DATA
from trnmodel.catalog.systems import system
from trnmodel.evidence.cells import COLUMNS, texts
from trnmodel.units import MS, US

if TYPE_CHECKING:
    import pandas as pd

EAGER, KERNELS, EXCHANGE, LAYER = (
    DATA / "evidence" / f"{name}.csv"
    for name in ("trn2_collectives", "trn2_collectives_nki", "expert_exchange", "trn2_moe_layer")
)
TEXTS = (
    "locator measure statistic system network engine release inside launches kind_of_call routing blockwise "
    "sequence_parallel refused exchange per_choice"
).split()
NUMBERS = (
    "value_si machines ranks groups message_bytes logical_bytes receive_buffer_bytes fill load_imbalance expert_ranks "
    "hidden experts experts_per_token expert_intermediate tokens_per_rank capacity_factor drop_rate"
).split()
TIER = "C (community)"
CALLS = "all_reduce all_gather reduce_scatter all_to_all broadcast".split()
EXCHANGES = {  # operations of the table of exchanges, and the collective that each one is
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "all_to_all_v (fixed slots)": "all_to_all",
    "dispatch": "all_to_all",
    "combine": "all_to_all",
    "ag_rs": "",  # two collectives in one graph
}
SLOTTED = ("dispatch", "combine")  # through buffers with a fixed slot for each rank
TIMES = {  # column: what the time is of, what is inside it, and whether a call waits for the one before
    "kernel_us": ("time, calls back to back", "launch", "overlapped"),
    "kernel_latency_us": ("time, synchronised after each call", "launch", "synchronised"),
    "with_host_copies_us": ("time with copies to and from the host", "launch host", "synchronised"),
    "e2e_api_us": ("time of the whole call", "launch host", "synchronised"),
}


def collectives(table: pd.DataFrame) -> pd.DataFrame:
    r"""Return rows of a table of `torch.distributed` or NKI collectives, one for each row of the table.

    The clock of such a row runs over many calls with one synchronisation at the end, so that launches overlap. Time of
    the host is inside where the framework launches each call; a kernel of NKI is launched alone.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns of `data/evidence/trn2_collectives.csv`, as text. `message_bytes` is what one rank contributes to an
        all-gather, and the full buffer of a rank in the other calls. [B]

    Returns
    -------
    rows : pandas.DataFrame
        The common columns and the typed ones: `value` in seconds, `message_bytes` of the full buffer on a rank.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = collectives(pd.read_csv(EAGER, dtype=str, keep_default_na=False))
    >>> rows[["kind_of_call", "ranks", "message_bytes", "value", "inside"]].values.tolist()[0]
    ['all_gather', 2.0, 32.0, 0.000638772, 'launch host']
    """
    unknown = sorted(set(table["collective"]) - set(CALLS))
    if unknown:
        refuse("collective", unknown, f"allowed are {', '.join(CALLS)}")
    by_kernel = table["note"].str.startswith("nki.collectives")
    ranks = _numbers(table["ranks"])
    size = _numbers(table["message_bytes"])
    size = size.where(table["collective"] != "all_gather", size * ranks)
    seconds = (_numbers(table["time_us"]) * US).round(12)
    return _rows(
        table,
        cores=ranks * _numbers(table["lnc"]),
        workload=table["collective"] + " " + table["ranks"] + " ranks size=" + _whole(size) + "B",
        phase="collective",
        metric="time",
        value=seconds,
        kind="collective",
        measure="collective_time",
        statistic="mean",
        engine=by_kernel.map({True: "nki", False: "torch-distributed"}),
        release=_first(table["software"], r"nki-library ([^ ,]+)").where(
            by_kernel, _first(table["software"], r"torch_neuronx ([^ ,]+)")
        ),
        inside=by_kernel.map({True: "launch", False: "launch host"}),
        launches="overlapped",
        kind_of_call=table["collective"],
        ranks=ranks,
        groups=1,
        message_bytes=size,
    )


def expert_exchange(table: pd.DataFrame) -> pd.DataFrame:
    r"""Return rows of a table of exchanges between experts: one for each time that a row of the table prints.

    A row prints up to three times: of calls back to back, of calls with a synchronisation after each, and of the whole
    call from the host. Dispatch, combine and the transport are all-to-all exchanges. Their message is the rows that a
    rank sends, its own block included; dispatched rows are as wide as the table says, which is wider than the model.
    A low-latency dispatch prints the bytes of every choice of an expert, but sends each rank a token once: its message
    is not stated. An all-gather prints what one rank contributes.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns of `data/evidence/expert_exchange.csv`, as text.

    Returns
    -------
    rows : pandas.DataFrame
        The common columns and the typed ones: `value` in seconds, `message_bytes` of the full buffer on a rank.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = expert_exchange(pd.read_csv(EXCHANGE, dtype=str, keep_default_na=False).head(1))
    >>> rows[["metric", "value", "message_bytes", "inside"]].values.tolist()[0]
    ['time, calls back to back', 0.0001771, 135168.0, 'launch']
    """
    import pandas as pd

    unknown = sorted(set(table["op"]) - set(EXCHANGES))
    if unknown:
        refuse("op", unknown, f"allowed are {', '.join(EXCHANGES)}")
    timed = [
        table.assign(time_us=table[name], metric=metric, inside=inside, launches=launches)[table[name] != ""]
        for name, (metric, inside, launches) in TIMES.items()
    ]
    table = pd.concat(timed).sort_index(kind="stable").reset_index(drop=True)
    ranks, groups, hidden = (_numbers(table[name]) for name in ("ep_ranks", "groups_at_once", "hidden"))
    call, of_experts = table["op"].map(EXCHANGES), table["kind"] == "expert exchange"
    logical, width = _numbers(table["logical_bytes_per_rank"]), _numbers(table["row_width_elements"])
    sent = (logical * width.fillna(hidden) / hidden).mask(
        (table["op"] == "dispatch") & (table["buffer_mode"] == "low_latency")
    )
    size = sent.where(of_experts, _numbers(table["payload_bytes_per_rank"]))
    size = size.where(call != "all_gather", size * ranks)
    by_kernel = of_experts | (table["kind"] == "transport curve")
    named = [
        table["op"],
        _around(" (", table["buffer_mode"], ")"),
        " " + table["ep_ranks"] + " ranks",
        _around(" size=", _whole(size), "B"),
        _around(", ", table["tokens_per_rank"], " tokens per rank"),
        _around(", routing ", table["routing"]),
        _around(", fill ", table["fill"]),
    ]
    return _rows(
        table,
        cores=ranks * groups * _numbers(table["lnc"]),
        workload=reduce(add, named),
        phase="collective",
        metric=table["metric"],
        value=(_numbers(table["time_us"]) * US).round(12),
        kind="collective",
        inside=table["inside"],
        launches=table["launches"],
        measure="collective_time",
        statistic="p50",
        engine=by_kernel.map({True: "nki", False: "torch-compile"}),
        release=_first(table["software"], r"(?<![\w-])nki ([^ ,]+)").where(
            by_kernel, _first(table["software"], r"torch-neuronx ([^ ,]+)")
        ),
        kind_of_call=call,
        exchange=table["op"].where(table["op"].isin(SLOTTED), ""),
        per_choice=table["buffer_mode"].map({"low_latency": "yes"}).fillna(""),
        ranks=ranks,
        groups=groups,
        message_bytes=size,
        expert_ranks=ranks.where(of_experts),
        hidden=hidden,
        experts=_numbers(table["experts"]),
        experts_per_token=_numbers(table["topk"]),
        tokens_per_rank=_numbers(table["tokens_per_rank"]),
        routing=table["routing"],
        load_imbalance=_numbers(table["load_imbalance"]),
        logical_bytes=logical,
        receive_buffer_bytes=_numbers(table["recv_buffer_bytes_per_rank"]),
        fill=_numbers(table["fill"]),
    )


def moe_layer(table: pd.DataFrame) -> pd.DataFrame:
    r"""Return rows of a table of one expert layer under several mappings: the median time, one for each row.

    The clock of such a run does not wait for the device, so that a run's time is really that of the run before it and
    the median alone says what a layer takes. A row without a time failed; `refused` holds what the table says of it.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns of `data/evidence/trn2_moe_layer.csv`, as text.

    Returns
    -------
    rows : pandas.DataFrame
        The common columns and the typed ones; `value` in seconds, NaN where the run failed.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = moe_layer(pd.read_csv(LAYER, dtype=str, keep_default_na=False).head(3))
    >>> rows[["seq_len", "value", "refused"]].values.tolist()[1:]
    [['4096', 0.08216568, ''], ['8192', nan, 'failed: NRT_RESOURCE at load (scratchpad of 3.5 GB did not fit)']]
    """
    parts = ("experts", "experts_per_token", "hidden", "expert_intermediate")
    shape = table["model_layer"].str.extract(r": (\d+) experts, top (\d+), hidden (\d+), intermediate (\d+)$")
    seconds = (_numbers(table["p50_ms"]) * MS).round(8)
    return _rows(
        table,
        cores=_numbers(table["logical_cores"]) * _numbers(table["lnc"]),
        workload=table["model_layer"] + "; " + table["config"] + ", routing " + table["distribution"],
        phase="prefill",
        batch=table["batch"],
        input_len=table["seq_len"],
        seq_len=table["seq_len"],
        tp=table["tp"],
        metric="latency p50",
        value=seconds,
        kind="kernel",
        measure="kernel_time",
        statistic="p50",
        engine="torch-xla",
        release=_first(table["software"], r"venv pytorch_([0-9_]+)").str.replace("_", "."),
        inside="launch host",
        launches="overlapped",
        expert_ranks=_numbers(table["ep"]),
        **{name: _numbers(shape[column]) for column, name in enumerate(parts)},
        routing=table["distribution"],
        blockwise=table["blockwise_matmul"],
        sequence_parallel=table["sequence_parallel"],
        capacity_factor=_numbers(table["capacity_factor"]),
        drop_rate=_numbers(table["drop_rate"]),
        refused=table["status"].mask(table["status"] == "ok", ""),
    )


def collected() -> pd.DataFrame:
    """Return the rows of all four tables, one below the other, each with an id that follows from what it is.

    Examples
    --------
    >>> rows = collected()
    >>> len(rows), len(rows[rows["refused"] != ""]), rows["id"].is_unique
    (1278, 6, True)
    """
    import pandas as pd

    readers = {EAGER: collectives, KERNELS: collectives, EXCHANGE: expert_exchange, LAYER: moe_layer}
    tables = [read(pd.read_csv(path, dtype=str, keep_default_na=False)) for path, read in readers.items()]
    return pd.concat(tables, ignore_index=True)


def _numbers(cells: pd.Series) -> pd.Series:
    """Return the numbers of printed cells; NaN for a blank or a word."""
    import pandas as pd

    return pd.to_numeric(cells, errors="coerce").astype(float)


def _around(before: str, cells: pd.Series, after: str = "") -> pd.Series:
    """Return cells with text around them; a blank stays one."""
    return cells.where(cells == "", before + cells + after)


def _whole(sizes: pd.Series) -> pd.Series:
    """Return whole numbers as text, blank for NaN."""
    return sizes.astype("Int64").astype("string").fillna("").astype(str)


def _first(cells: pd.Series, pattern: str) -> pd.Series:
    """Return what the one group of a pattern matches in each cell; blank for no match."""
    return cells.str.extract(pattern, expand=False).fillna("")


def _rows(table: pd.DataFrame, *, cores: pd.Series, **columns: pd.Series | str | int) -> pd.DataFrame:
    """Return rows with ids and all columns, blank where nothing is said, from a table and what its words mean.

    `cores` are the physical cores in use. They fill chips in order, as the notes of the tables say.
    """
    import numpy as np

    names = _first(table["instance"], r"(\w+\.\w+)")
    per_chip = names.map({name: system(name).chip.cores for name in names.unique()})
    machines = table["nodes"].astype(int)
    rows = table[["source", "locator", "instance", "lnc", "note"]].assign(
        date_or_sdk=table["software"],
        n_chips=(np.ceil(cores / machines / per_chip) * machines).astype(int),
        n_cores_used=cores.astype(int),
        precision=table["dtype"],
        unit="s",
        tier=TIER,
        system=names,
        machines=machines,
        value_si=columns["value"],
        network=table["instance"].str.contains("EFA").map({True: "efa", False: ""}),
        **columns,
    )
    blank = dict.fromkeys((*COLUMNS, *TEXTS), "") | dict.fromkeys(NUMBERS, np.nan)
    rows = rows.assign(**{name: cell for name, cell in blank.items() if name not in rows})
    rows = rows.astype(dict.fromkeys(NUMBERS, float))[list(blank)]
    rows.insert(0, "id", [row["id"] for row in texts(rows)])
    return rows
