"""Draw random hostile calls and judge every answer: `python -m tests.library.hostile [seed] [number]`.

The seed is by default the first 8 hexadecimal digits of the commit. Ends with how many calls passed and failed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np

from . import ordinary
from .calls import Call, calls
from .corpus import Case
from .judge import CPU_S, little_memory

CASES = 20_000
PEAK_BYTES = 2 * 2**30
SHOWN = 40
VARIANTS = 8
DIGITS = "0123456789"


def commit_seed() -> int:
    """The first 8 hexadecimal digits of the commit as a number."""
    asked = ["git", "rev-parse", "HEAD"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout[:8], 16)


def made_up(rng: np.random.Generator) -> str:
    """The code of a value that is in no pool: a number of any size, an array with one bad item, or any text."""
    number = f"{rng.choice([-1, 1])}*10.0**{rng.integers(-330, 309)}"
    choice = rng.integers(5)
    if choice == 0:
        return number
    if choice == 1:
        return f"{rng.choice([-1, 1])}*{''.join(rng.choice(list(DIGITS), rng.integers(1, 60)))}".replace("*0", "*1")
    if choice == 2:
        items = ["2.0"] * int(rng.integers(1, 6))
        items[rng.integers(len(items))] = str(rng.choice([number, "nan", "None", "'x'", "inf", "-3"]))
        return f"[{', '.join(items)}]"
    if choice == 3:
        return repr("".join(chr(code) for code in rng.integers(1, 0x2FFF, rng.integers(1, 40))))
    return f"np.full({tuple(rng.integers(0, 4, rng.integers(1, 4)).tolist())}, {number})"


def works(call: Call, codes: dict[str, str]) -> bool:
    """Whether a call takes its arguments."""
    try:
        call.function(**call.arguments(codes))
    except ValueError:
        return False
    return True


def variants(call: Call, rng: np.random.Generator) -> list[dict[str, str]]:
    """A few sets of ordinary arguments of a call, that of its base first."""
    return [
        {},
        *filter(partial(works, call), (ordinary.draw(call, rng) for _ in range(VARIANTS if call.ordinary else 0))),
    ]


def drawn(of: list[tuple[Call, list[dict[str, str]]]], rng: np.random.Generator) -> Case:
    """A random call, its other arguments ordinary, with one to three of its arguments spoiled."""
    call, known = of[rng.integers(len(of))]
    call = replace(call, base=call.base | known[rng.integers(len(known))])
    names = rng.permutation(list(call.kinds))[: rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1])]
    codes = {}
    for name in map(str, names):
        kind = call.kind(name)
        pool = (*kind.pool, *kind.extra)
        free = kind.pool is kind.__dataclass_fields__["pool"].default
        codes[name] = made_up(rng) if free and rng.random() < 0.3 else str(rng.choice(pool))
    return Case(call, codes)


def weighed(rng: np.random.Generator) -> list[tuple[Call, list[dict[str, str]]]]:
    """Calls with their ordinary arguments, those with many arguments more often."""
    return [pair for call in calls() for pair in [(call, variants(call, rng))] * min(len(call.kinds), 12)]


def sort(found: str) -> str:
    """The sort of a wrong answer."""
    sorts = {
        "names no": "messages that do not name the argument",
        "accepted": "hostile values accepted",
        "message": "messages too long or of several lines",
        "warning": "warnings",
        "more than": "slow",
        "prints": "prints",
    }
    known = next((text for start, text in sorts.items() if found.startswith(start)), "")
    wrong_number = "silent wrong numbers" if " = " in found.split(":")[0] else "exceptions other than documented errors"
    return known or wrong_number


def run(seed: int, number: int) -> int:
    """Judge so many hostile calls and the ordinary ones; the number of failures."""
    rng = np.random.default_rng(seed)
    of = weighed(rng)
    faults: list[tuple[str, str]] = []
    slowest, sorts = (0.0, ""), Counter()
    for _ in range(number):
        case = drawn(of, rng)
        if any(case.call.kind(name).skips(value) for name, value in case.values().items()):
            continue
        start = time.process_time()
        found = case.fault()
        slowest = max(slowest, (time.process_time() - start, case.line()))
        if found:
            faults.append((case.line(), found))
            sorts[sort(found)] += 1
    kept = [(row["call"], found) for row in ordinary.rows() if (found := ordinary.fault(row))]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    limits = [("peak memory", f"{peak} B")] if peak > PEAK_BYTES else []
    limits += [("slowest call", f"{slowest[0]:.1f} s: {slowest[1]}")] if slowest[0] > CPU_S else []
    say(f"seed {seed:08x}: {number} hostile calls, {len(faults)} wrong answers")
    for name, count in sorts.most_common():
        say(f"  {count} {name}")
    say(f"{len(ordinary.rows())} ordinary calls, {len(kept)} with other numbers than before")
    say(f"peak memory {peak / 2**20:.0f} MiB; slowest call {slowest[0]:.2f} s of CPU: {slowest[1][:200]}")
    failed = [*faults, *kept, *limits]
    for line, found in failed[:SHOWN]:
        say(ascii(f"{line}  ->  {found}"))
    say(f"{number + len(ordinary.rows()) - len(faults) - len(kept)} passed, {len(failed)} failed")
    return len(failed)


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    asked = sys.argv[1:]
    with little_memory():
        failures = run(int(asked[0], 16) if asked else commit_seed(), int(asked[1]) if asked[1:] else CASES)
    sys.exit(min(failures, 1))
