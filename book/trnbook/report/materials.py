"""The bill of materials of a release, as CycloneDX, and the licences of the scripts that the book brings."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from trnbook.report.execute import LOCK

BILL, NOTICES = "sbom.cdx.json", "THIRD-PARTY-NOTICES.txt"
THEMES = ["sphinx", "sphinx-book-theme", "pydata-sphinx-theme", "sphinx-copybutton", "sphinx-design", "myst-nb"]
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>.+?))? (?P<hashes>--hash=.+)")


@dataclass(frozen=True, slots=True)
class Script:
    """A script or font that lies in the pages of the book; the version is empty where the file does not state it."""

    name: str
    licence: str
    copyright: str
    file: str
    version: str
    text: str


def scripts(static: Path, licences: Path) -> list[Script]:
    """Return what `bundled.csv` lists, with versions as the files in `static` state them.

    Raises ValueError where a file is missing or no longer states its version: the table is then out of date.
    """
    bundled = []
    with (licences / "bundled.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            content = (static / row["file"]).read_bytes().decode("utf-8", "replace")
            version = re.search(row["version"], content) if row["version"] else None
            if row["version"] and not version:
                raise ValueError(f"bundled.csv: {row['file']} states no version of {row['name']}")
            bundled.append(Script(**row | {"version": version[1] if version else ""}))
    return bundled


def requirements(lock: str) -> Iterator[dict[str, str]]:
    r"""Yield name, version, marker and hashes of each line of a lock.

    Examples
    --------
    >>> [line] = requirements("one==1.0 ; os_name == 'nt' \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\n")
    >>> line["marker"], line["hashes"]
    ("os_name == 'nt'", '--hash=sha256:ab --hash=sha256:cd')
    """
    for line in re.sub(r"\s*\\\n\s*", " ", lock).splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not (match := REQUIREMENT.fullmatch(line.strip())):
            raise ValueError(f"requirements.lock: no version and hash in {line!r}")
        yield {name: value or "" for name, value in match.groupdict().items()}


def bill(lock: str, bundled: list[Script]) -> str:
    """Return the bill of materials: every package of the lock with its hashes, and every bundled script."""
    from cyclonedx.model import Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def component(kind: str, name: str, version: str, licence: str, properties: dict[str, list[str]]) -> Any:
        purl = PackageURL(kind, None, name, version or None)
        return Component(
            type=ComponentType.LIBRARY,
            bom_ref=purl.to_string(),
            name=name,
            version=version or None,
            purl=purl,
            licenses=[LicenseExpression(licence)] if licence else [],
            properties=[Property(name=key, value=value) for key, values in properties.items() for value in values],
        )

    bom = Bom(serial_number=uuid5(NAMESPACE_OID, f"{lock}{bundled}"))
    described: Any = bom.metadata  # no timestamp is valid, though its type does not say so
    described.timestamp = None  # the same lock gives the same bytes
    for one in requirements(lock):
        hashes = [part.removeprefix("--hash=") for part in one["hashes"].split()]
        marks = {"locked-hash": hashes, "marker": [one["marker"]] if one["marker"] else []}
        bom.components.add(component("pypi", one["name"], one["version"], _licence(one["name"]), marks))
    for script in bundled:
        lies_in = {"file": [f"_static/{script.file}"], "copyright": [script.copyright]}
        bom.components.add(component("npm", script.name, script.version, script.licence, lies_in))
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _licence(name: str) -> str:
    """Return the SPDX licence expression of an installed package; empty if it states none."""
    try:
        stated = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""  # for another platform
    if "License-Expression" not in stated:
        return ""
    return stated["License-Expression"]


def notices(bundled: list[Script], static: Path, licences: Path) -> str:
    """Return the licences of everything bundled, each text once, under the names that it holds for."""
    parts = ["The pages of this book contain work of others, under these licences."]
    for text in dict.fromkeys(script.text for script in bundled):
        names = [
            f"{one.name} {one.version}".strip() + f" ({one.licence}), copyright {one.copyright}"
            for one in bundled
            if one.text == text
        ]
        place = licences / text if (licences / text).is_file() else static / text
        parts.append("\n".join([*names, "", place.read_text(encoding="utf-8").strip()]))
    for name in THEMES:
        package = metadata.distribution(name)
        texts = [file for file in package.files or [] if ".dist-info" in str(file) and "LICEN" in file.name.upper()]
        contents = [Path(str(package.locate_file(file))).read_text(encoding="utf-8").strip() for file in texts]
        parts.append("\n\n".join([f"{name} {package.version}", *contents]))
    return f"\n\n{'-' * 80}\n\n".join(parts) + "\n"


def write(pages: Path, licences: Path) -> None:
    """Write the notices into a built book and, where the lock is at hand, the bill of materials."""
    static = pages / "_static"
    bundled = scripts(static, licences)
    (pages / NOTICES).write_text(notices(bundled, static, licences), encoding="utf-8")
    if LOCK.is_file():
        (pages / BILL).write_text(bill(LOCK.read_text(encoding="utf-8"), bundled), encoding="utf-8")
