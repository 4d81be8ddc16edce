"""The first page's table for who builds a site: power, failures and training of three systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from trnbook.shared.choices import per_rack
from trnmodel.cost.tco import PERIOD_H
from trnmodel.units import HOUR, KW, KWH, counted, format_digits

if TYPE_CHECKING:
    from trnmodel.reliability.goodput import Goodput
    from trnmodel.search.capacity import Capacity
    from trnmodel.search.sensitivity import Sensitivity
    from trnmodel.search.train_run import TrainRun

MWH = 1000 * KWH


def whole_domains(domain_chips: int, most: int) -> int:
    """Return the largest number of chips that fills whole domains, at most so many.

    Examples
    --------
    >>> whole_domains(16, 2048), whole_domains(144, 2048)
    (2048, 2016)
    """
    return max(most // domain_chips, 1) * domain_chips


def serving(size: Capacity) -> dict[str, str]:
    """Return what a site needs for the users of a system.

    Parameters
    ----------
    size : Capacity
        The instances of a system for the users, at the site of its cooling. [-]
    """
    rack_w = float(size.choice.energy().decode.all_in_w) * per_rack(size.system)
    return {
        f"Instances for {counted(size.question.users or 0.0, 'user')}": f"{size.instances:,.0f}",
        "Mean power at the site [kW]": format_digits(size.mean_site_w / KW, 3),
        "Energy at the site [MWh per month]": format_digits(size.mean_site_w * PERIOD_H * HOUR / MWH, 3),
        "Power provisioned at the site [kW]": format_digits(size.provisioned_site_w / KW, 3),
        "Power provisioned for a rack or server [kW]": f"{format_digits(rack_w / KW, 2)}, "
        f"{per_rack(size.system):g} chips",
    }


def training(run: TrainRun) -> dict[str, str]:
    """Return days and energy of a training run, failures included."""
    days, joules = run.calendar_days(), run.site_j()
    return {
        "Chips": f"{run.chips:,.0f}",
        f"Days for {run.model.id} on 2T tokens": _between(days.value, days.low, days.high),
        "Energy at the site [MWh]": _between(*(x / MWH for x in (joules.value, joules.low, joules.high))),
    }


def failures(size: Capacity, spared: Capacity, job: Goodput, drained: Goodput, draws: Sensitivity) -> dict[str, str]:
    """Return how often a large job stops, how much of its time is useful, and what failures take from a server.

    Parameters
    ----------
    size, spared : Capacity
        Instances for the users, without spares and with an availability. [-]
    job, drained : Goodput
        A job in which a part is swapped while its rack runs on, and one in which the rack is drained. [-]
    draws : Sensitivity
        The first job in draws of the rates of failure. [-]
    """
    cuts = draws.percentiles().iloc[0]
    chips, useful = counted(float(job.chips), "chip"), "Time that is useful to that job [%]"
    of_time = f"{100 * (spared.question.availability or 0.0):g}% of the time"
    return {
        f"Hours between stops of a job on {chips}": format_digits(float(job.mtbf_s) / HOUR, 2),
        useful: _between(*(100 * float(one) for one in (job.goodput, cuts.p5, cuts.p95))),
        "The same if the whole rack is drained for a repair [%]": format_digits(100 * float(drained.goodput), 2),
        "Some replica is out without a spare [hours per year]": format_digits(size.lost_h_per_year, 2),
        f"Spare instances, so that all replicas run {of_time}": f"{spared.spare_instances:,.0f}",
    }


def table(columns: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return a row for each figure and a column for each system.

    Examples
    --------
    >>> table({"one": {"kW": "3"}, "two": {"kW": "4"}}).to_dict("records")
    [{'what': 'kW', 'one': '3', 'two': '4'}]
    """
    names = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows: list[dict[str, Any]] = [
        {"what": name} | {system: column.get(name, "") for system, column in columns.items()} for name in names
    ]
    return pd.DataFrame(rows)


def _between(value: float, low: float, high: float) -> str:
    """Return a value with its range."""
    middle, least, most = (format_digits(one, 2) for one in (value, low, high))
    return f"{middle} ({least} to {most})"
