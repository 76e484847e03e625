"""Our trainer beside its peers: the same tasks, sizes and seeds, in one run on one machine.

    python -m tests.benchmarks.peers [--quick] [--budget MINUTES]

A cell is one side training one case with one seed, in a process of its own, alone on the machine. Its finding
is a line of JSON in `build/peers/`; a call goes on where the one before it stopped, then writes the page
`docs/comparison.md` out of `docs/comparison.jsonl`, which holds the findings that the page shows.
"""
