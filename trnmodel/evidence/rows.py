"""Tables of measurements: a file or a table of anybody's, checked, as rows of text; and the published tables."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from trnmodel.arguments import refuse, shown
from trnmodel.catalog.load import DATA
from trnmodel.evidence.cells import COLUMNS, text, texts
from trnmodel.evidence.collections import collected
from trnmodel.evidence.columns import NAMES, runs, watts
from trnmodel.evidence.kinds import WIDE
from trnmodel.units import MIB

if TYPE_CHECKING:
    import pandas as pd

MEASURED, LATER, THIRD, COMPARATORS, COLLECTIVES, PRODUCTS, RUNS, POWERS = (
    DATA / "evidence" / f"{name}.csv"
    for name in (
        *("measured", "measured_2", "measured_3", "comparators", "gpu_collectives", "trn3_gemm"),
        *("training", "energy"),
    )
)
NEEDED = ("instance", "workload", "metric", "value", "unit")
SIDES = ("m", "n", "k")  # of a matrix product, in a table of products
MAX_FILE_BYTES, MAX_ROWS, MAX_COLUMNS = 64 * MIB, 100_000, 1_000


def _content(path: Path) -> str:
    """Return the text of a regular file of at most 64 MiB; bytes that are no UTF-8 become replacement characters."""
    allowed = f"allowed is a readable CSV file, a regular one of at most {MAX_FILE_BYTES // MIB} MiB"
    try:
        if not path.is_file():
            why = "not a readable CSV file" if path.exists() else "there is no such file"
            refuse("rows", str(path), f"{why}: {allowed}")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        refuse("rows", str(path), f"not a readable CSV file ({error.strerror}): {allowed}")
    if len(content) > MAX_FILE_BYTES:
        refuse("rows", str(path), f"the file is too large: {allowed}")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        refuse("rows", str(path), f"the file is UTF-16: {allowed}, in UTF-8")
    return content.decode("utf-8-sig", errors="replace")


def column_name(name: str) -> str:
    """Return a column by the name of the format, whatever its case and the blanks around it; any other as it is.

    Examples
    --------
    >>> column_name(" Batch"), column_name("my own")
    ('batch', 'my own')
    """
    known = name.strip().lower()
    return known if known in (*COLUMNS, *NAMES) else name


def separator(content: str) -> str:
    r"""Return what parts the columns of a header: comma, semicolon or tab, whichever parts most of them.

    Examples
    --------
    >>> separator("instance;workload;metric\ntrn2;a,b;TPOT")
    ';'
    """
    first = content.partition("\n")[0].replace('"', "")
    return max(",;\t", key=lambda one: len({column_name(name) for name in first.split(one)} & set(COLUMNS)))


def _from_csv(path: Path) -> pd.DataFrame:
    """Return the rows of a CSV file as text, parted by commas, semicolons or tabs; a short row ends in blank cells."""
    import pandas as pd

    content = _content(path)
    reader = csv.reader(io.StringIO(content, newline=""), strict=True, delimiter=separator(content))
    try:
        lines = list(islice(reader, MAX_ROWS + 2))
    except csv.Error as error:
        refuse("rows", str(path), f"not a readable CSV file: line {reader.line_num}: {error}")
    if not lines:
        refuse("rows", str(path), "not a readable CSV file: it is empty")
    header = [column_name(name) for name in lines[0]]
    if len(header) > MAX_COLUMNS:
        refuse("rows", str(path), f"{len(header)} columns; allowed are at most {MAX_COLUMNS}")
    if len(lines) > MAX_ROWS + 1:
        refuse("rows", str(path), f"more than {MAX_ROWS} rows")
    for number_, line in enumerate(lines, start=1):
        if len(line) > len(header):
            refuse("rows", str(path), f"record {number_} has {len(line)} cells for {len(header)} columns")
    filled = [line + [""] * (len(header) - len(line)) for line in lines[1:] if any(map(str.strip, line))]
    return pd.DataFrame(filled, columns=header, dtype=str)


def published() -> pd.DataFrame:
    """Return the tables of published measurements of Trainium and Inferentia, one below the other, as text.

    Columns that only some of the tables have are blank in the rows of the others.

    Examples
    --------
    >>> rows = published()
    >>> set(COLUMNS) <= set(rows.columns), rows.id.is_unique
    (True, True)
    """
    import pandas as pd

    rows = [row for path in (MEASURED, LATER, THIRD, PRODUCTS) for row in read_rows(path)]
    return pd.DataFrame([*rows, *texts(collected())]).fillna("")


def read_table(rows: pd.DataFrame | str | Path) -> pd.DataFrame:
    """Return the rows as a DataFrame, refused with one clear error where they are not such a table."""
    import pandas as pd

    if isinstance(rows, (str, Path)):
        rows = _from_csv(Path(rows))
    if not isinstance(rows, pd.DataFrame):
        refuse("rows", rows, "allowed is a DataFrame or the path of a CSV file")
    rows = watts(runs(products(rows)))
    names = [name for name in rows.columns if isinstance(name, str)]
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise ValueError(f"rows: columns {missing} are missing; the format has {COLUMNS}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"rows: columns {shown(twice)} are given more than once")
    if len(rows) > MAX_ROWS:
        raise ValueError(f"rows: {len(rows)} rows; allowed are at most {MAX_ROWS}")
    return rows


def products(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of matrix products with their counters as rows of measured times; any other table as it is.

    Such a table has `instance`, `m`, `n`, `k` and `time_us`, and no workload and no value: a product of m x k by k x n,
    on one logical core of `lnc` physical ones, in `dtype`. Its own columns stay.

    Examples
    --------
    >>> import pandas as pd
    >>> sweep = pd.DataFrame([{"instance": "trn3pd98.3xlarge", "m": 2048, "n": 4096, "k": 1024, "time_us": 134.872}])
    >>> products(sweep)[["workload", "value", "unit"]].values.tolist()
    [['GEMM product M=2048 K=1024 N=4096', 134.872, 'us']]
    """
    if not {"instance", "time_us", *SIDES} <= set(table.columns) or {"workload", "value"} & set(table.columns):
        return table
    sides = zip(*(map(text, table[name]) for name in SIDES), strict=True)
    named = {"n_cores_used": "lnc", "precision": "dtype", "note": "file"}
    return table.assign(
        workload=[f"GEMM product M={m} K={k} N={n}" for m, n, k in sides],
        value=table["time_us"],
        **dict.fromkeys(("kind", "phase"), "kernel"),
        metric="latency",
        unit="us",
        **{name: table[column] for name, column in named.items() if column in table.columns},
    )


def read_rows(rows: pd.DataFrame | str | Path) -> list[dict[str, str]]:
    """Return measured rows as texts by column, checked; a column that is missing is blank.

    Examples
    --------
    >>> import pandas as pd
    >>> table = [{"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "metric": "TPOT", "value": 9, "unit": "ms"}]
    >>> read_rows(pd.DataFrame(table))[0]["value"]
    '9'
    """
    return texts(read_table(rows))


def save(table: pd.DataFrame, path: Path, form: str = "%.6g") -> None:
    """Write a table of evidence: the one form of all files that a command writes."""
    table.to_csv(path, index=False, float_format=form, lineterminator="\n")


def put(path: Path, printed: Callable[[Mapping[str, str]], str | None]) -> None:
    """Write facts anew, each with the value that is `printed` of it, or as it stands where that is none."""
    with path.open(newline="") as file:
        facts = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        lines = csv.DictWriter(file, list(facts[0]), lineterminator="\n")
        lines.writeheader()
        lines.writerows(fact | {"value_printed": printed(fact) or fact["value_printed"]} for fact in facts)


def put_fitted(path: Path, values: Mapping[tuple[str, str], str]) -> None:
    """Put values by entity and quantity into the facts that say that they are fitted."""
    put(
        path,
        lambda fact: values.get((fact["entity"], fact["quantity"])) if fact["locator"].startswith("fitted") else None,
    )


def wide_rows() -> list[dict[str, str]]:
    """Return the rows of other chips once more, as the kind that is asked of the hand-tuned scenario.

    Examples
    --------
    >>> {row["kind"] for row in wide_rows()}
    {'wide-experts'}
    """
    return [row | {"kind": WIDE} for row in read_rows(COMPARATORS)]
