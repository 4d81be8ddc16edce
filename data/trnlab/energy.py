"""Watts of GPUs and of servers that were measured beside what the model gives, with the model of a row left out.

Fitted are what operations at the rate of the matrix engines and bytes at full memory bandwidth count as activity,
common to all chips, and an idle share for each chip that has rows enough; of servers one host and one ratio. What an
operation in a narrow format takes over a 16-bit one is a fact with a source and is not fitted. Printed watts are what
is predicted, never an input.
`python -m trnlab.energy` writes the shares into `data/facts/power.csv`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from trnmodel.catalog import facilities, load
from trnmodel.catalog.specs import Chip, published
from trnmodel.evidence import joules, search
from trnmodel.evidence.fit import Case as Vote
from trnmodel.evidence.questions import predict
from trnmodel.evidence.readings import Reading, reading
from trnmodel.evidence.records import document
from trnmodel.evidence.rows import POWERS, put_fitted, read_rows
from trnmodel.evidence.tables import TDP_SHARE
from trnmodel.formulas import energy as page
from trnmodel.power.energy import MIDDLE, Amounts, chip_watts, matmul_rate
from trnmodel.units import KW

if TYPE_CHECKING:
    import pandas as pd

SERVERS = load.DATA / "evidence" / "energy_servers.csv"
FACTS = load.DATA / "facts" / "power.csv"
FEWEST = 20  # configurations of a chip that has an idle share of its own
QUANTILE = 0.9
SHARES = ("compute_activity", "hbm_activity")
AROUND = ("host_w_per_chip", "server_ratio", "server_max_ratio")


class Row(msgspec.Struct, frozen=True):
    """A line of `data/evidence/energy.csv`: a configuration, with mean watts of all its GPUs and its output tokens/s.

    `chip` and `alias` are ids of ours, `limit_w` a TDP that differs from that of the chip.
    """

    source: str
    locator: str
    hardware: str
    n_gpus: float
    model: str
    precision: str
    params_b: float
    active_b: str
    tp: int
    pp: int
    ep: int
    batch: float
    input_tokens: str
    output_tokens: str
    task: str
    remark: str
    power_w: float
    tokens_per_s: float
    chip: str
    limit_w: str
    alias: str


class Server(msgspec.Struct, frozen=True):
    """A line of `data/evidence/energy_servers.csv`: a server under full load, or what it is rated for."""

    what: str
    chip: str
    chips: int
    limit_w: float
    kind: str
    power_kw: float
    source: str
    locator: str
    confidence: str


class Case(NamedTuple):
    """A configuration as a question: what a GPU of it does at the printed rate, and its time by the model."""

    row: Row
    reading: Reading
    chip: Chip
    dtype: str
    amounts: Amounts
    own_s: float

    @property
    def model(self) -> str:
        """What is left out together: one architecture, whatever it was trained for."""
        return self.row.alias or self.row.model

    @property
    def page(self) -> str:
        """The source, whatever its version."""
        return document(self.row.source)

    @property
    def vote(self) -> Vote:
        """The configuration as a case of any other kind: a question, and the watts of all its GPUs."""
        return Vote(self.reading, self.row.power_w, 1.0, self.page)

    @property
    def steady(self) -> bool:
        """Whether the source says that the run was in steady state."""
        return "steady state" in self.row.remark

    @property
    def measured_w(self) -> float:
        """Mean watts of one GPU."""
        return self.row.power_w / self.row.n_gpus

    @property
    def utilisation(self) -> tuple[float, float]:
        """Shares of peak and of memory bandwidth."""
        a = self.amounts
        amounts = (a.flop, self.chip.peak(self.dtype)), (a.moved_bytes, self.chip.hbm_bytes_per_s)
        compute, hbm = (float(page.utilisation(amount, a.time_s, rate)) for amount, rate in amounts)
        return compute, hbm

    @property
    def load(self) -> tuple[float, float]:
        """Operations weighed by the energy of their format over the rate of 16-bit ones, and share of the bandwidth."""
        ratio = facilities.power(self.chip).flop_ratio[self.dtype]
        weighed = page.utilisation(self.amounts.flop * ratio, self.amounts.time_s, matmul_rate(self.chip))
        return float(weighed), self.utilisation[1]


def case_of(row: Row) -> Case:
    """Return a configuration as a question, read as any row is."""
    import pandas as pd

    return _case(row, *read_rows(pd.DataFrame([msgspec.structs.asdict(row)])))


def _case(row: Row, cells: Mapping[str, str]) -> Case:
    r = reading(cells)
    return Case(row, r, joules.board(r), r.precision.compute, joules.amounts(r), joules.own_s(r))


@cache
def cases() -> tuple[Case, ...]:
    """Every configuration of GPUs with watts and a rate, one vote each."""
    return tuple(starmap(_case, zip(load.read_csv(POWERS, Row), read_rows(POWERS), strict=True)))


def _owners(of: Sequence[Case]) -> list[str]:
    """Chips with an idle share of their own: those with rows enough."""
    counted = Counter(case.chip.id for case in of)
    return sorted(name for name, many in counted.items() if many >= FEWEST)


def _measured_w(of: Sequence[Case]) -> NDArray:
    return np.array([case.measured_w for case in of])


def _watts(of: Sequence[Case], owners: Sequence[str]) -> Callable[[NDArray], NDArray]:
    """Watts of a GPU in each case by two activities and the idle shares of the owners; others have that in force."""
    tdp_w, used = np.array([float(case.chip.tdp_w) for case in of]), np.array([case.load for case in of])
    place = {name: i for i, name in enumerate(owners)}
    owner = np.array([place.get(case.chip.id, len(owners)) for case in of])

    def watts(values: NDArray) -> NDArray:
        idle = np.append(values[2:], _other())[owner]
        return page.chip_w(tdp_w, idle, values[0] * used[:, 0] + values[1] * used[:, 1])

    return watts


def _other() -> float:
    return facilities.power(load.chip("h200")).idle_share


def _start(owners: Sequence[str]) -> NDArray:
    """Values in force, where the search starts."""
    power = facilities.power(load.chip("h100"))
    idle = [float(published(load.chip(name).idle_share, power.idle_share)) for name in owners]
    return np.array([*(getattr(power, name) for name in SHARES), *idle])


def fit(of: Sequence[Case], owners: Sequence[str]) -> NDArray:
    """Activities and idle shares that fit cases best."""
    watts, measured_w = _watts(of, owners), _measured_w(of)
    first = _start(owners)
    room = search.room([*SHARES, *("idle_share" for _ in owners)], first)
    return search.constants(lambda v: np.log(watts(v) / measured_w), first, high=room)


def left_out_watts(of: Sequence[Case], name: Callable[[Case], str] | None = None) -> NDArray:
    """Watts of a GPU by a fit without the case's model (or `name`): at the printed rate, and at the model's own.

    A chip whose rows are all left out has no idle share of its own, as a chip that nobody measured has none.
    """

    def learned(train: list[Case], test: list[Case]) -> NDArray:
        owners = _owners(train)
        values = fit(train, owners)
        own = [case._replace(amounts=case.amounts._replace(time_s=np.asarray(case.own_s))) for case in test]
        return np.stack([_watts(some, owners)(values) for some in (test, own)], axis=1)

    return search.left_out(of, name or (lambda case: case.model), learned)


def transfer() -> pd.DataFrame:
    """Return the two activities as fitted to one chip alone, for each chip with rows enough: what a chip may differ by.

    The least and the most of them are the range of the activities on a chip that nobody measured.
    """
    import pandas as pd

    of, rows = cases(), []
    for name in _owners(of):
        own = [case for case in of if case.chip.id == name]
        rows.append({"chip": name} | dict(zip(SHARES, fit(own, [name])[:2], strict=True)))
    return pd.DataFrame(rows)


def accuracy() -> pd.DataFrame:
    """Every configuration with its joules a token, and errors of what the model gives for them.

    Returns
    -------
    table : pandas.DataFrame
        One row a configuration: model, chip, batch, whether it was steady, watts of a GPU measured and predicted
        with the shares in force, joules a token, signed errors with the model left out at the printed rate (`error`)
        and at the model's own (`own_error`), of 0.75 TDP and of TDP, and bottom-up. [-]
    """
    import pandas as pd

    of = cases()
    (watts, own_w), measured_w = left_out_watts(of).T, _measured_w(of)
    tdp_w = np.array([case.chip.tdp_w for case in of], dtype=float)
    bottom_w = np.array([_bottom_up_w(case) for case in of])
    slower = np.array([case.own_s / float(case.amounts.time_s) for case in of])
    against = {
        "error": watts,
        "own_error": own_w * slower,
        "share_error": TDP_SHARE * tdp_w,
        "tdp_error": tdp_w,
        "bottom_up_error": bottom_w,
    }
    names = {
        "model": [c.model for c in of],
        "chip": [c.chip.id for c in of],
        "precision": [c.row.precision for c in of],
        "batch": [c.row.batch for c in of],
        "remark": [c.row.remark for c in of],
        "steady": [c.steady for c in of],
        "measured_w": measured_w,
        "predicted_w": [predict(c.reading) / c.row.n_gpus for c in of],
        "j_per_token": measured_w * [c.row.n_gpus / c.row.tokens_per_s for c in of],
    }
    return pd.DataFrame(names | {name: found / measured_w - 1 for name, found in against.items()})


def by_chip(errors: pd.DataFrame) -> pd.DataFrame:
    """`accuracy` by chip and in all: configurations, models, median and ninetieth percentile of errors, bias."""
    import pandas as pd

    rows = []
    for name, part in [*errors.groupby("chip"), ("all", errors), ("all in steady state", errors[errors.steady])]:
        size = part.error.abs()
        row = {"chip": name, "configurations": len(part), "models": part.model.nunique(), "median_error": size.median()}
        row |= {"p90_error": size.quantile(QUANTILE), "bias_error": part.error.median()}
        rows.append(row | {"own_speed_median_error": part.own_error.abs().median()})
    return pd.DataFrame(rows)


def by_format(errors: pd.DataFrame, width: float) -> pd.DataFrame:
    """`accuracy` by format: configurations, models, bias, median error, and the share inside a band of half-width."""
    import pandas as pd

    rows = []
    for name, part in errors.groupby("precision"):
        inside = np.abs(np.log1p(part.error)) <= width
        row = {"precision": name, "configurations": len(part), "models": part.model.nunique()}
        row |= {"bias_error": part.error.median(), "median_error": part.error.abs().median()}
        rows.append(row | {"inside_share": inside.mean()})
    return pd.DataFrame(rows)


def _bottom_up_w(case: Case) -> float:
    found = chip_watts(case.amounts, case.chip, case.dtype, facilities.power(case.chip), MIDDLE)
    return float(found["bottom_up_w"])


@cache
def servers() -> tuple[Server, ...]:
    """Servers with watts."""
    return tuple(load.read_csv(SERVERS, Server))


def server_kw(of: Sequence[Server], values: NDArray) -> NDArray:
    """Kilowatts of servers by the host of one, and the ratios of load and of rating to the limit of the chips."""
    host_w, ratio, most = values
    ratios = {"load": ratio, "rating": most}
    watts = [page.server_w(one.limit_w, ratios[one.kind], host_w / one.chips) * one.chips for one in of]
    return np.array(watts) / KW


def fit_servers(of: Sequence[Server]) -> NDArray:
    """Host, ratio under load and ratio of the rating that fit servers best."""
    power = facilities.power(load.chip("h100"))
    first = [8 * power.host_w_per_chip, power.server_ratio, power.server_max_ratio]
    measured = np.array([one.power_kw for one in of])
    return search.constants(lambda v: np.log(server_kw(of, v) / measured), first)


def server_errors() -> pd.DataFrame:
    """Servers with what one set of shares gives that was fitted to all others."""
    import pandas as pd

    of = servers()
    found = search.left_out(of, lambda one: one.what, lambda train, test: server_kw(test, fit_servers(train)))
    rows = [
        {
            "what": one.what,
            "kind": one.kind,
            "measured_kw": one.power_kw,
            "predicted_kw": kw,
            "error": kw / one.power_kw - 1,
        }
        for one, kw in zip(of, found, strict=True)
    ]
    return pd.DataFrame(rows)


def calibrated() -> dict[tuple[str, str], float]:
    """Every fitted value, by entity and quantity."""
    of, around = cases(), fit_servers(servers())
    owners = _owners(of)
    values = fit(of, owners)
    width = np.quantile(np.abs(np.log(left_out_watts(of)[:, 0] / _measured_w(of))), QUANTILE)
    found: dict[tuple[str, str], float] = {("gpu-power", name): v for name, v in zip(SHARES, values, strict=False)}
    found |= {("neuron-power", name): v for name, v in zip(SHARES, values, strict=False)}
    found |= {(name, "idle_share"): v for name, v in zip(owners, values[2:], strict=True)}
    found |= {("gpu-power", name): v for name, v in zip(AROUND, (around[0] / 8, *around[1:]), strict=True)}
    found["gpu-power", "chip_width"] = width
    found["gpu-power", "server_width"] = np.abs(np.log1p(server_errors().error)).max()
    return {key: float(f"{value:.4g}") for key, value in found.items()}


def write() -> None:
    """Put fitted values into their rows."""
    put_fitted(FACTS, {key: f"{value:.4g}" for key, value in calibrated().items()})


if __name__ == "__main__":
    write()
