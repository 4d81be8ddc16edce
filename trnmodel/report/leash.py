"""Run a command that ends when the process that asked for it ends, however that one ends.

`run` starts this file as a program in a session of its own: it waits for the command, and for the end of its standard
input, a pipe that the asking process holds open. The pipe closes by itself when that process is killed; then the
command and all that it started are killed too, and nothing writes into a folder that the next run has taken over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def run(command: list[str], temporary: Path) -> subprocess.CompletedProcess[str]:
    """Status, output and errors of a command whose temporary files lie in a folder.

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
            told, errors = process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            os.close(writing)
    return subprocess.CompletedProcess(command, process.returncode, told, errors)


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
