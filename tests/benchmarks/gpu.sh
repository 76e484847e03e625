#!/usr/bin/env bash
# Everything about this project that needs a GPU, in one call of under nine minutes.
#
#   tests/benchmarks/gpu.sh [RESULT.json] [--minutes M] [--dry-run]
#
# Run it from anywhere on a machine with one NVIDIA GPU, ten or more processors and the trainer's packages
# (`pip install -e '.[train,dev]'`; PYTHON names another interpreter than .venv's or the path's). Written to
# RESULT.json (by default gpu-<time>.json here), anew after each part, so that even a run that is cut off leaves
# what it found:
#
#   machine    GPU, driver, processors, versions
#   tests      the tests that only a GPU can run: captured equals eager, resumption, lag, guard
#   speed      updates a second, eager and captured, batch 512 and 1280, fp32, tf32 and bf16; memory
#   paper      the same, captured, for the networks of McLean et al. 2025
#   equality   greatest relative difference of captured and eager after 1 000 updates
#   reference  a single file in LeanRL's manner, its whole update captured, and compiled and captured
#   seeds      updates a second of 1, 2, 4 and 8 seeds whose updates are one graph
#   compiled   a plain implementation through torch.compile
#   mt10, paper_mt10   environment steps a second of whole runs of guide-mt10 and mclean2025-mt10
#   two_million        2M steps of guide-mt10, or as many as the time that is left allows
#
# Every part has a limit of its own, and one that fails or is cut off is recorded and does not stop the others.
# `--dry-run` walks through all of it on the CPU with tiny numbers, in about a minute.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
# RESULT.json is meant from where the caller is; the package is found from the root whatever is installed
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m tests.benchmarks.gpu_all "$@"
