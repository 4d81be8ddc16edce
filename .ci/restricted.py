"""Run a command as on a CPU without wide vectors: OpenBLAS as for Sandy Bridge, NumPy at the baseline of its build.

`python .ci/restricted.py COMMAND ...` hands the setting on to what the command starts, kernels of chapters included.
"""

import os
import platform
import sys

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

OFF = "NPY_DISABLE_CPU_FEATURES"
own = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]  # NumPy warns of names that a CPU lacks
os.environ[OFF] = " ".join([*os.environ.get(OFF, "").split(), *own])
if platform.machine() in ("x86_64", "AMD64"):
    os.environ["OPENBLAS_CORETYPE"] = "Sandybridge"
if __name__ == "__main__":
    os.execvp(sys.argv[1], sys.argv[1:])
