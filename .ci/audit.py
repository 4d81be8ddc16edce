"""Ask for known vulnerabilities of what the lock names: fail where there is one, say so where nobody can be asked.

Run as `audit.py PIP_AUDIT LOCK`. pip-audit counts a package that its service does not know as skipped and still reports
"no known vulnerabilities"; this counts them.
"""

import json
import re
import subprocess
import sys

UNREACHED = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|ServiceError|ProxyError|HTTPError"
)


def verdict(report: str, errors: str) -> tuple[int, str]:
    """Return the exit status and what to print, from pip-audit's JSON report and its standard error."""
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (errors.strip().splitlines() or ["no message"])[-1]
        if UNREACHED.search(errors):
            return 0, f"NOT AUDITED: the service of advisories could not be reached ({last[:200]})"
        return 1, f"the audit failed: {last[:2000]}"
    asked = [one for one in packages if "skip_reason" not in one]
    lines = [
        f"{one['name']} {one['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'no version'}"
        for one in asked
        for hole in one["vulns"]
    ]
    if lines:
        return 1, "\n".join(["known vulnerabilities:", *lines])
    if not asked:
        return 0, f"NOT AUDITED: the service of advisories answered for none of {len(packages)} packages"
    rest = f"; NOT AUDITED: the other {len(packages) - len(asked)}" if len(asked) < len(packages) else ""
    return 0, f"no known vulnerability in {len(asked)} of {len(packages)} packages{rest}"


def main(pip_audit: str, lock: str) -> int:
    """Audit a lock and print the verdict."""
    command = [pip_audit, "-r", lock, "--no-deps", "--disable-pip", "--progress-spinner=off", "-f", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        print("NOT AUDITED: the service of advisories did not answer within ten minutes")  # noqa: T201
        return 0
    status, words = verdict(done.stdout, done.stderr)
    print(words)  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
