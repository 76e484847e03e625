#!/usr/bin/env bash
# Everything about this project that needs a GPU, one part after the other, each with a limit of its own.
#
#   tests/benchmarks/gpu.sh [RESULT.json] [--minutes M] [--only PART,PART] [--call N] [--base DIR] [--list]
#                           [--dry-run]
#
# Run it from anywhere on a machine with one NVIDIA GPU, ten or more processors and the trainer's packages
# (`pip install -e '.[train,dev]'`; PYTHON names another interpreter than .venv's or the path's). Packages that
# are missing are named at once, and the parts that need only torch run without them. `--list` names the parts
# in their order, what they find out and how long each takes at most: 8.7 minutes, the default, reach for the
# most valuable ones, and `--minutes 60` for all. Findings are written to RESULT.json (by default
# gpu-<time>.json here), anew after each part, and beside those that are in it already: what a part found is
# replaced when it is run again. A part that fails, is cut off or has no time left is recorded and does not stop
# the others. `python -m tests.benchmarks.gpu_page RESULT.json` makes docs/gpu.md of it.
#
# `--only mt10,together,pack,mps --minutes 6` compares the ways to have four seeds on one GPU: in one process, as
# processes beside each other, and as these under NVIDIA MPS. It tells the steps a second of all four, added up,
# over those of one run in the same call.
#
# `--call N` is the Nth of the calls that `--list` shows: the first hour on a GPU, truth first. Calls 1 and 2 fit
# 15 minutes together, and so do 3 and 4. They write to the same RESULT.json.
#
# `--base DIR` measures each speed of the checkout in DIR as well, right after this one's: what a change is worth
# is told by one call on one machine.
#
# `--dry-run` walks through all of it on the CPU with tiny numbers, in less than three minutes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
# RESULT.json is meant from where the caller is; the package is found from the root whatever is installed
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tests.benchmarks.gpu_all "$@"
