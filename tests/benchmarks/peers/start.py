"""Starts a cell; imports nothing before that, for every process that a side spawns imports this module again.

python -m tests.benchmarks.peers.start --side sb3 --case ppo-cartpole --seed 0 --steps 12288
"""

from __future__ import annotations

if __name__ == "__main__":
    from tests.benchmarks.peers.cell import main

    main()
