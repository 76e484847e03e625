"""Worker and evaluator processes that need not import anything: forked from one that has.

The product spawns them, which costs a second or two of imports each. Here a fork server starts them, itself
forked from the process of the tests before any of them has begun. What they are given is pickled and sent to
them as ever, their random numbers are their own, and no file or lock of their parent is theirs.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.context import BaseContext

import numpy as np
import pytest
import torch

_get_context, _spawn = multiprocessing.get_context, util.spawnv_passfds


@contextmanager
def warm() -> Iterator[None]:
    """Has the processes that this one starts meanwhile forked."""

    def context(method: str | None = None) -> BaseContext:
        return _get_context("forkserver" if method == "spawn" else method)

    resource_tracker.ensure_running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(util, "spawnv_passfds", _fork_server)
        forkserver.ensure_running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", context)
        yield


@contextmanager
def cold() -> Iterator[None]:
    """Has them spawned, as ever, where that is what a test is about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", _get_context)
        yield


def _fork_server(path: bytes, words: list[str], descriptors: list[int]) -> int:
    """Forks the server in the place of starting it; it ends with the last process that knows of it."""
    process = os.fork()
    if process == 0:
        try:
            util.spawnv_passfds = _spawn
            begin = 3
            for descriptor in (*sorted(descriptors), os.sysconf("SC_OPEN_MAX")):
                os.closerange(begin, descriptor)
                begin = descriptor + 1
            sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
            gc.freeze()
            os.register_at_fork(after_in_child=_draw_anew)
            forkserver.main(*descriptors, preload=[])
        finally:
            os._exit(0)
    return process


def _draw_anew() -> None:
    np.random.seed()
    torch.seed()
