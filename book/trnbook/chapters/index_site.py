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
    from trnmodel.search.choice import Choice
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


def serving(c: Choice, size: Capacity, spared: Capacity) -> dict[str, str]:
    """Return what a site needs for the users of a system, and how long failures take a replica out.

    Parameters
    ----------
    c : Choice
        What the system does for the request. [-]
    size, spared : Capacity
        Its instances for the users, without spares and with an availability. [-]
    """
    users, request = size.question.users or 0.0, c.question.request
    site_w = float(c.energy().facility_j_per_token) * users * float(request.tokens_per_s_per_user or 0.0)
    rack_w = float(c.energy().decode.all_in_w) * per_rack(size.system)
    of_time = f"{100 * (spared.question.availability or 0.0):g}% of the time"
    return {
        f"Instances for {counted(users, 'user')}": f"{size.instances:,.0f}",
        "Power provisioned at the site [kW]": format_digits(size.provisioned_site_w / KW, 3),
        "Power provisioned for a rack [kW]": f"{format_digits(rack_w / KW, 2)}, {per_rack(size.system):g} chips",
        "Energy at the site [MWh per month]": format_digits(site_w * PERIOD_H * HOUR / MWH, 3),
        "Some replica is out [hours per year]": format_digits(size.lost_h_per_year, 2),
        f"Spares, so that all run {of_time}": counted(spared.spare_instances, "instance"),
    }


def training(run: TrainRun, job: Goodput, draws: Sensitivity) -> dict[str, str]:
    """Return days and energy of a training run, and how often a large job stops and how much of its time is useful."""
    days, cuts = run.calendar_days(), draws.percentiles().iloc[0]
    chips = counted(float(job.chips), "chip")
    share = _between(*(100 * float(one) for one in (job.goodput, cuts.p5, cuts.p95)))
    return {
        f"Training {run.model.id} on 2T tokens [days]": f"{_between(days.value, days.low, days.high)}",
        "The chips of that run": f"{run.chips:,.0f}",
        "Its energy at the site [MWh]": format_digits(run.site_j().value / MWH, 3),
        f"Hours between stops of a job on {chips}": format_digits(float(job.mtbf_s) / HOUR, 2),
        "Useful share of that job's time [%]": share,
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
