"""Tables of errors and fits that chapters show: `python -m trnlab.tables` writes `data/evidence/tables/*.csv`.

Floats are written with all digits that they need to be read back to the same bits. A test computes every table anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trnlab import collective_fits, comparators, energy, kernels, layers, training, wide_experts
from trnlab import table as accuracy
from trnmodel.catalog.stacks import KINDS
from trnmodel.evidence.tables import FOLDER, GROUPS, judged
from trnmodel.result import stacked

if TYPE_CHECKING:
    import pandas as pd


def other_chips() -> pd.DataFrame:
    """Measured rows of other chips with what each kind of software gives, one kind below the other."""
    return stacked({kind: comparators.comparators(stack) for kind, stack in KINDS.items()}, "software")


def other_chips_bounds() -> pd.DataFrame:
    """Predicted over measured of other chips where nothing is lost, by question and chip."""
    return comparators.others(comparators.comparators())


def other_chips_by_chip() -> pd.DataFrame:
    """Errors of the stack of GPUs by chip."""
    return comparators.others_fitted("where")


def other_chips_by_model() -> pd.DataFrame:
    """Errors of the stack of GPUs by model."""
    return comparators.others_fitted("model")


def other_chips_all_reduce() -> pd.DataFrame:
    """Errors of the all-reduce kernels of engines by chip."""
    return comparators.others_fitted("where", comparators.ALL_REDUCE)


def energy_by_chip() -> pd.DataFrame:
    """Errors of joules per token by chip."""
    return energy.by_chip(energy.accuracy())


def errors_by_regime() -> pd.DataFrame:
    """Errors by regime of every group, one group below the other."""
    return stacked({group: accuracy.by_regime(group) for group in GROUPS.values()}, "group")


def errors_by_source() -> pd.DataFrame:
    """Errors by source of every group, one group below the other."""
    return stacked({group: accuracy.by_source(group) for group in GROUPS.values()}, "group")


def kernels_left_out() -> pd.DataFrame:
    """Errors of kernels under constants fitted to other shapes, one group below the other."""
    return stacked({group: kernels.leave_one_out(group) for group in kernels.KERNELS}, "group")


def measured_times() -> pd.DataFrame:
    """Measured and predicted times of steps, prefills and forward passes."""
    return accuracy.points(judged())


def profiles() -> pd.DataFrame:
    """Profiled decodes and prefills, one phase below the other."""
    return stacked({phase: kernels.profiles(phase) for phase in ("decode", "prefill")}, "phase")


TABLES: Mapping[str, Callable[[], pd.DataFrame]] = {
    "collective_barriers": collective_fits.barriers,
    "collective_contract": collective_fits.contract,
    "collective_curves": collective_fits.curves,
    "collective_fits": collective_fits.fits,
    "collective_host_calls": collective_fits.host_call_table,
    "collective_launchers": collective_fits.launchers,
    "collective_misses": collective_fits.misses,
    "collective_recomputed": collective_fits.recomputed,
    "collective_shares": collective_fits.shares,
    "energy_by_chip": energy_by_chip,
    "energy_errors": energy.accuracy,
    "energy_servers": energy.server_errors,
    "errors_by_regime": errors_by_regime,
    "errors_by_source": errors_by_source,
    "kernel_tiers": kernels.tiers,
    "kernels": kernels.comparison,
    "kernels_left_out": kernels_left_out,
    "layers": layers.layers,
    "measured_times": measured_times,
    "other_chips": other_chips,
    "other_chips_all_reduce": other_chips_all_reduce,
    "other_chips_bounds": other_chips_bounds,
    "other_chips_by_chip": other_chips_by_chip,
    "other_chips_by_model": other_chips_by_model,
    "product_errors": kernels.product_accuracy,
    "products": kernels.products,
    "profiles": profiles,
    "training_aside": training.aside,
    "training_errors": training.table,
    "wide_experts": wide_experts.brackets,
}


def write() -> None:
    """Compute all tables anew and write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in TABLES.items():
        make().to_csv(FOLDER / f"{name}.csv", index=False, na_rep="nan", lineterminator="\n")


if __name__ == "__main__":
    write()
