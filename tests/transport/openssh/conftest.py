"""A place for the sockets, and real servers with and without one-time codes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.doubles.code_sshd import CodeSshd, why_not
from tests.doubles.loopback_sshd import LoopbackSshd, find_sshd
from tests.transport.runtime import runtime_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with runtime_folder():
        yield Path(os.environ["XDG_RUNTIME_DIR"])


@pytest.fixture
def server(tmp_path: Path, folder: Path) -> Iterator[LoopbackSshd]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed")
    with closing(LoopbackSshd(tmp_path / "sshd")) as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path, folder: Path) -> Iterator[Callable[[str], CodeSshd]]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda alias="node": stack.enter_context(closing(CodeSshd(tmp_path / alias, alias=alias)))
