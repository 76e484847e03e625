"""A place for the sockets, and real servers with and without one-time codes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.doubles.code_sshd import CodeSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.transport.runtime import runtime_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with runtime_folder():
        yield Path(os.environ["XDG_RUNTIME_DIR"])


@pytest.fixture
@needing("sshd")
def server(tmp_path: Path, folder: Path) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path / "sshd")) as running:
        yield running


@pytest.fixture
@needing("one-time codes")
def serve(tmp_path: Path, folder: Path) -> Iterator[Callable[[str], CodeSshd]]:
    with ExitStack() as stack:
        yield lambda alias="node": stack.enter_context(closing(CodeSshd(tmp_path / alias, alias=alias)))
