"""What single operations of an update cost on a GPU, in TF32, each in a CUDA graph as an update has it.

    python -m tests.benchmarks.gpu_micro [--dry-run]

`product`: one product of a critic's inner layer, of two members and of four, for batches of 512 and 1,280, in
cuBLAS's words: `nn` is a layer's way forward, `tn` the same with weights that are kept transposed, and also
the gradient of a layer's rows, `nt` that of its weights. `branches`: both gradients of a layer one after the
other, and beside each other on two captured streams. `optimizer`: Adam's step of both critics, the norm of
their gradients and the targets' step, whole tensors and in pieces. Operands change from one to the next, for
those of an update do not lie in the GPU's cache either. `--dry-run` does it on the CPU with tiny numbers.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.benchmarks.gpu_sizes import DRY, GPU, Sizes
from trainer.algorithms import optimizers, pieces
from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage
from trainer.machine.device import configure

MEMBERS = (2, 4)
_OPERANDS = 6
"""Sets of operands: 100 MB and more of the two members', twice an H200's cache."""


class Micro:
    """Where to measure.

    Args:
        sizes: of everything.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.device = torch.device("cpu") if sizes.dry else torch.device("cuda", torch.cuda.current_device())
        self._replays, self._turns, self._width = sizes.replays, sizes.turns, sizes.width
        self._batches = [*sizes.batches.values()]

    def microseconds(self, work: Callable[[int], object]) -> float:
        """Returns what a call takes, given which in turn it is, of many in a graph that is replayed."""

        def all_turns() -> None:
            for turn in range(self._turns):
                work(turn)

        replay, settle = all_turns, lambda: None
        if self.device.type == "cuda":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                all_turns()  # libraries start, as they may not during a capture
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                all_turns()
            replay, settle = graph.replay, torch.cuda.synchronize
        replay()
        settle()
        begun = time.perf_counter()
        for _ in range(self._replays):
            replay()
        settle()
        return 1e6 * (time.perf_counter() - begun) / (self._replays * self._turns)

    def products(self) -> Iterator[dict[str, Any]]:
        """One product of each kind."""
        for members in MEMBERS:
            for batch in self._batches:
                for kind, product in self._kinds(members, batch).items():
                    spent = self.microseconds(product)
                    flops = 2 * members * batch * self._width**2
                    found = {"members": members, "batch": batch, "kind": kind, "microseconds": spent}
                    yield {"what": "product", **found, "tflops": flops / spent / 1e6}

    def branches(self) -> Iterator[dict[str, Any]]:
        """Both gradients of a layer of two members, one after the other and beside each other."""
        for batch in self._batches:
            kinds = self._kinds(2, batch)
            in_a_row, beside = _both(kinds["tn"], kinds["nt"])
            found = {"what": "branches", "batch": batch, "in_a_row": self.microseconds(in_a_row)}
            if self.device.type == "cuda":
                found["beside"] = self.microseconds(beside)
            yield found

    def optimizers(self) -> Iterator[dict[str, Any]]:
        """Whole tensors, then pieces; which of both a run takes here is told."""
        wide = self._width
        shapes = (2, 53, wide), *[(2, wide, wide)] * 2, (2, wide, 1), *[(2, 1, wide)] * 3, (2, 1, 1)
        parameters, gradients, targets = (
            [torch.randn(shape, device=self.device) for shape in shapes] for _ in range(3)
        )
        adam = GuardedAdam(parameters, 3e-4, 1e-8, 1.0)
        average = GuardedAverage(targets, parameters, 0.005)
        norm, blocked = torch.ones((), device=self.device), torch.zeros((), device=self.device)
        own = bool(pieces.piece(parameters))
        numbers = sum(each.numel() for each in parameters)
        size = -(-numbers // (240 * 16)) * 16
        for in_pieces in (False, True):

            def cut(_tensors: Sequence[Tensor], given: int = size if in_pieces else 0) -> int:
                return given

            with patch.object(pieces, "piece", cut), patch.object(optimizers, "piece", cut):
                yield {
                    "what": "optimizer",
                    "in_pieces": in_pieces,
                    "as_in_a_run": in_pieces == own,
                    "numbers": numbers,
                    "adam": self.microseconds(lambda _: adam.step(gradients, norm, blocked)),
                    "norm": self.microseconds(lambda _: pieces.global_norm(gradients)),
                    "average": self.microseconds(lambda _: average.step(blocked)),
                }

    def _kinds(self, members: int, batch: int) -> dict[str, Callable[[int], object]]:
        """Returns each kind of product of rows and square weights, given which in turn it is."""
        shape, square = (members, batch, self._width), (members, self._width, self._width)
        rows, weights = (
            [torch.randn(size, device=self.device) for _ in range(_OPERANDS)] for size in (shape, square)
        )
        out, grown = torch.empty_like(rows[0]), torch.empty_like(weights[0])

        def pair(turn: int) -> tuple[Tensor, Tensor, Tensor]:
            number = turn % _OPERANDS
            return rows[number], rows[number - 1], weights[number]

        def forward(turn: int) -> None:
            own, _, weight = pair(turn)
            torch.bmm(own, weight, out=out)

        def of_rows(turn: int) -> None:
            own, _, weight = pair(turn)
            torch.bmm(own, weight.mT, out=out)

        def of_weights(turn: int) -> None:
            own, other, _ = pair(turn)
            torch.bmm(own.mT, other, out=grown)

        return {"nn": forward, "tn": of_rows, "nt": of_weights}


def _both(
    one: Callable[[int], object], other: Callable[[int], object]
) -> tuple[Callable[[int], object], Callable[[int], object]]:
    """Returns both operations as one, in a row and on two streams."""
    side = torch.cuda.Stream() if torch.cuda.is_available() else None

    def in_a_row(turn: int) -> None:
        one(turn)
        other(turn)

    def beside(turn: int) -> None:
        own = torch.cuda.current_stream()
        side.wait_stream(own)
        with torch.cuda.stream(side):
            other(turn)
        one(turn)
        own.wait_stream(side)

    return in_a_row, beside


def main() -> None:
    """Print all findings, as they are found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with tiny numbers")
    micro = Micro(DRY if parser.parse_args().dry_run else GPU)
    configure(micro.device.type, "tf32")
    for findings in (micro.products(), micro.branches(), micro.optimizers()):
        for finding in findings:
            print(json.dumps(finding), flush=True)


if __name__ == "__main__":
    main()
