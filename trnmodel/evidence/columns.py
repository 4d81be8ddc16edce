"""Names of the columns that a row of training or of energy may have beside the raw ones, and tables that have them.

What neither a column nor a word states is unknown, and the call that answers has its own default for it. Tables of runs
and of watts, which have columns of their own, become rows of the one format here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

TRAINING, ENERGY = "train", "energy"  # how the meanings of these rows begin
MACHINE = ("system", "machines", "expert_ranks")  # of either kind of row
JOB = (  # arguments of a step of training
    *("micro_batch", "interleave", "recompute", "zero", "sequence_parallel", "trainable_share", "context_ranks"),
    *("network_gbit_per_s", "tokens"),
)
SHAPE = ("layers", "hidden", "heads", "vocabulary")  # of a model: how deep it ran, or a GPT of printed widths
RUN = ("global_batch", "seq", "training_stack")
WATTS = ("tokens_per_s", "limit_w", "params_b", "active_b", "idles")  # arguments of watts
NAMES = (*MACHINE, *JOB, *SHAPE, *RUN, *WATTS)
IDLE = "host overhead|idle time"  # in a remark on a run with watts
RECOMPUTES = ("none", "selective", "full")


def runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of training runs as rows of the one format; any other table as it is.

    Such a table has `system`, `model`, `global_batch`, `seq`, `metric`, `value` and `unit`, and no workload, as
    `data/evidence/training.csv` has.

    Examples
    --------
    >>> import pandas as pd
    >>> run = {"system": "hgx-a100", "count": 8, "model": "gpt3-175b", "global_batch": 64, "seq": 2048}
    >>> runs(pd.DataFrame([run | {"metric": "iteration_time", "value": 13.75, "unit": "s"}])).workload[0]
    'gpt3-175b'
    """
    if not {"system", "model", "global_batch", "seq", "metric", "value"} <= set(table.columns) or "workload" in table:
        return table
    named = {"workload": "model", "machines": "count", "expert_ranks": "ep", "context_ranks": "cp"}
    named |= {"network_gbit_per_s": "scaleout_gbit_per_s", "batch": "global_batch", "seq_len": "seq"}
    rows = _renamed(table, named).assign(kind="training", instance=table["system"])
    if {"source", "locator"} <= set(table.columns):  # of a locator the file, not the place in it
        rows["source"] = table["source"] + " " + table["locator"].str.split("[;,]").str[0]
    return rows


def watts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of measured watts as rows of the one format; any other table as it is.

    Such a table has `chip`, `model`, `n_gpus`, `power_w` and no workload and no value: the columns of
    `data/evidence/energy.csv`. An `alias` is the catalog's id of the model. A remark of host overhead or of idle time
    says that the chips stood idle between steps (`idles`).

    Examples
    --------
    >>> import pandas as pd
    >>> run = {"chip": "h100", "model": "google/gemma-2-27b-it", "n_gpus": 4, "power_w": 617.84, "alias": "gemma-2-27b"}
    >>> watts(pd.DataFrame([run]))[["workload", "value", "unit"]].values.tolist()
    [['gemma-2-27b', 617.84, 'W']]
    """
    if not {"chip", "model", "n_gpus", "power_w"} <= set(table.columns) or {"workload", "value"} & set(table.columns):
        return table
    named = {"instance": "hardware", "n_chips": "n_gpus", "expert_ranks": "ep", "value": "power_w"}
    named |= {"input_len": "input_tokens", "output_len": "output_tokens", "note": "remark", "system": "chip"}
    alias = table["alias"] if "alias" in table.columns else table["model"]
    workload = table["model"].where((alias == "") | alias.isna(), alias)
    remark = table["remark"].fillna("").astype(str) if "remark" in table.columns else workload.map(lambda _: "")
    idles = table["idles"] if "idles" in table.columns else remark.str.contains(IDLE).map({True: "1", False: ""})
    return _renamed(table, named).assign(
        idles=idles, kind="energy", phase="decode", metric="power", unit="W", workload=workload
    )


def _renamed(table: pd.DataFrame, named: Mapping[str, str]) -> pd.DataFrame:
    """Return a table with some of its columns under other names too."""
    known = {name: table[column] for name, column in named.items() if column in table.columns}
    return table.assign(**known)
