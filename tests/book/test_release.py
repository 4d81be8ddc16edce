"""What a release says of itself: its bill of materials, its licences, and the verdict of an audit."""

import csv
import importlib.util
import json
import re

import pytest

from trnbook.report import materials

LICENCES = {"MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "OFL-1.1", "CC-BY-4.0"}


@pytest.fixture(scope="module")
def lock(root):
    return (root / "requirements.lock").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bundled(root, tmp_path_factory):
    """The scripts of a book whose files state the version 3.4.5 or 4.3.2, as each pattern wants it."""
    static, licences = tmp_path_factory.mktemp("static"), root / "book" / "licences"
    with (licences / "bundled.csv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            path = static / row["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            states = re.sub(r"\(.*\)", "4.3.2" if "(4" in row["version"] else "3.4.5", row["version"])
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{states}\n")
    (static / "SourceSansPro-LICENSE.txt").write_text("SIL Open Font License", encoding="utf-8")
    return static, licences


@pytest.fixture(scope="module")
def bill(lock, bundled):
    return materials.bill(lock, materials.scripts(*bundled))


def test_the_bill_holds_every_package_of_the_lock_and_every_script(lock, bill):
    parts = json.loads(bill)["components"]
    packages = [(one["name"], one["version"]) for one in parts if one["purl"].startswith("pkg:pypi/")]
    assert sorted(packages) == sorted(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    properties = [one for part in parts for one in part.get("properties", [])]
    hashes = [one["value"] for one in properties if one["name"] == "locked-hash"]
    assert sorted(hashes) == sorted(re.findall(r"--hash=(\S+)", lock))
    scripts = {one["name"] for one in parts if one["purl"].startswith("pkg:npm/")}
    assert scripts >= {
        "vega",
        "vega-lite",
        "vega-embed",
        "mathjax",
        "source-sans-pro",
        "bootstrap",
        "font-awesome-free",
    }


def test_the_bill_is_cyclonedx(bill):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None


def test_the_bill_is_the_same_each_time_and_names_no_host(lock, bundled, bill):
    assert materials.bill(lock, materials.scripts(*bundled)) == bill
    assert set(re.findall(r"https?://([^/\"]+)", bill)) <= {"cyclonedx.org"}


def test_every_script_has_a_licence_and_its_text(bundled):
    found = materials.scripts(*bundled)
    assert {name for one in found for name in one.licence.split(" AND ")} <= LICENCES
    words = materials.notices(found, *bundled)
    for phrase in ("University of Washington", "Apache License", "SIL Open Font License", "Mike Bostock", "Sphinx"):
        assert phrase in words
    assert all(one.name in words and one.copyright in words for one in found)


def test_a_script_that_no_longer_states_its_version_is_noticed(bundled, tmp_path):
    static, licences = bundled
    for path in static.rglob("*"):
        if path.is_file():
            copy = tmp_path / path.relative_to(static)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="states no version of vega"):
        materials.scripts(tmp_path, licences)


@pytest.mark.parametrize("line", ["numpy>=2", "numpy==2.0", "-e .", "https://example.org/x.whl --hash=sha256:ab"])
def test_a_line_of_the_lock_without_version_and_hash_is_refused(line):
    with pytest.raises(ValueError, match="no version and hash"):
        list(materials.requirements(line))


@pytest.fixture(scope="module")
def verdict(root):
    spec = importlib.util.spec_from_file_location("audit", root / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.verdict


CLEAN = {"name": "one", "version": "1.0", "vulns": []}
SKIPPED = {"name": "two", "skip_reason": "Dependency not found on PyPI and could not be audited: two (2.0)"}
HOLED = {"name": "three", "version": "3.0", "vulns": [{"id": "CVE-2026-1", "fix_versions": ["3.1"], "aliases": []}]}
UNREACHED = "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded"


@pytest.mark.parametrize(
    ("packages", "status", "words"),
    [
        ([CLEAN], 0, "no known vulnerability in 1 of 1 packages"),
        ([CLEAN, SKIPPED], 0, "NOT AUDITED: the other 1"),
        ([SKIPPED, SKIPPED], 0, "NOT AUDITED"),
        ([], 0, "NOT AUDITED"),
        ([CLEAN, SKIPPED, HOLED], 1, "three 3.0: CVE-2026-1, fixed in 3.1"),
        ([HOLED | {"vulns": [{"id": "X", "fix_versions": []}]}], 1, "fixed in no version"),
    ],
)
def test_an_audit_fails_on_a_vulnerability_and_says_what_nobody_was_asked_about(verdict, packages, status, words):
    found, told = verdict(json.dumps({"dependencies": packages, "fixes": []}), "")
    assert found == status
    assert words in told


@pytest.mark.parametrize(
    ("report", "errors", "status"),
    [
        ("", UNREACHED, 0),
        ("", "ERROR: invalid requirement", 1),
        ("{}", "", 1),
        ("not JSON", UNREACHED, 0),
        ("[]", "", 1),
    ],
)
def test_an_audit_passes_without_a_service_and_fails_when_it_is_broken(verdict, report, errors, status):
    found, told = verdict(report, errors)
    assert found == status
    assert ("NOT AUDITED" in told) == (status == 0)
