"""Run a command that ends when the calling process ends, however that one ends.

`run` starts this file as a program in a new session. The program waits for the command and for the end of its standard
input, a pipe that the calling process holds open. The pipe closes when that process is killed. Then the command and its
children are killed too, so that nothing writes into a folder that the next run has claimed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def run(command: list[str], temporary: Path) -> subprocess.CompletedProcess[str]:
    """Return status, output and errors of a command whose temporary files lie in a folder.

    It is killed with all its children where we are interrupted or killed.
    """
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, *command],
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as process:
        os.close(reading)
        try:
            output, errors = process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            os.close(writing)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _hold() -> int:
    """Wait for the command; kill this whole group once nobody holds the other end of standard input."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def watch() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return process.wait()


if __name__ == "__main__":
    sys.exit(_hold())
