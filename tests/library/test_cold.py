"""A command that prints text loads no package that it does not need."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from trnmodel.cli.app import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print(sorted(sys.modules.keys() & {"networkx", "scipy.special", "scipy.sparse", "pandas"}))
"""


@pytest.mark.parametrize(
    "command",
    [
        "decode llama-3.3-70b trn2.48xlarge --tp 16 --batch 8",
        "decode deepseek-v3 trn3-nl72x2-pcie160 --tp 4 --ep 16 --batch 64",
        "plan llama-3.3-70b --speed 50 --in 2048 --out 500",
    ],
)
def test_text_needs_no_heavy_package(command):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command.split()], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_needs_no_numpy():
    script = "import sys; from trnmodel.cli.app import app; sys.exit('numpy' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode


def test_text_and_json_are_one_answer():
    command = [sys.executable, "-m", "trnmodel.cli", *"decode llama-3.1-8b trn2.3xlarge --tp 4".split()]
    text, row = (
        subprocess.run([*command, *more], capture_output=True, text=True, check=True, timeout=120).stdout
        for more in ((), ("--json",))
    )
    assert text.startswith(f"time {1e3 * json.loads(row)['time_s']:.2g} ms")
