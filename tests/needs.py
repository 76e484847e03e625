"""What tests need of the machine beyond Python, git and make; where it is missing they are skipped.

A test says so by `@pytest.mark.needs("root")`, a fixture by `@needing("sshd")` below `@pytest.fixture`; the
doubles that use such a thing call `need`, which fails where neither was said. All these tests have the mark
`needs`. At the end of a run each thing that was missing has one line: how many tests were skipped without it,
and how to have it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainer.machine.processors import usable_processors

SECURITY_KEY = Path("/usr/lib/openssh/regress/misc/sk-dummy/sk-dummy.so")
"""OpenSSH's own stand-in for a FIDO token."""
_Function = TypeVar("_Function", bound=Callable[..., Any])
_REASON = "needs "
_PACKAGES = {
    "bash": "bash",
    "busybox": "busybox",
    "bwrap": "bubblewrap",
    "csh": "csh",
    "dash": "dash",
    "ffmpeg": "ffmpeg",
    "fish": "fish",
    "g++": "g++",
    "gcc": "gcc libc6-dev",
    "kadmin.local": "krb5-admin-server",
    "kinit": "krb5-user",
    "krb5kdc": "krb5-kdc",
    "ksh": "ksh",
    "mmdebstrap": "mmdebstrap",
    "mount": "mount",
    "ps": "procps",
    "rsync": "rsync",
    "shellcheck": "shellcheck",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "tcsh": "tcsh",
    "unshare": "util-linux",
    "zsh": "zsh",
    "zstd": "zstd",
}
"""Debian's package of each program."""


def find(program: str) -> str | None:
    """Returns a program's path; some lie outside an ordinary user's PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin:/sbin")


def pam_module(name: str) -> Path | None:
    """Returns the path of a PAM module of this machine."""
    tops = (Path(top) for top in ("/lib", "/lib64", "/usr/lib"))
    return next((path for top in tops for path in top.rglob(name)), None)


def _lacks_program(name: str) -> str | None:
    if find(name):
        return None
    return f"apt-get install {_PACKAGES[name]}" if shutil.which("apt-get") else f"install {name}"


def _lacks_root() -> str | None:
    return None if os.geteuid() == 0 else "run the tests as root"


def _lacks_user() -> str | None:
    return None if os.geteuid() != 0 else "run the tests as a user other than root"


def _lacks_open_checkout() -> str | None:
    folders = Path(__file__).resolve().parents if os.geteuid() == 0 else ()
    closed = [folder for folder in folders if not folder.stat().st_mode & 0o001]
    return f"clone into a folder that other users may enter, which {closed[-1]} is not" if closed else None


def _lacks_procfs() -> str | None:
    return None if Path("/proc/self/stat").exists() else "run the tests on Linux"


def _lacks_processors() -> str | None:
    return None if usable_processors() > 1 else "run the tests on two processors"


def _lacks_small_disk() -> str | None:
    return _lacks_root() or _lacks_program("mount")


def _lacks_folding_disk() -> str | None:
    if lacks := _lacks_root() or _lacks_program("mount"):
        return lacks
    fuse = Path("/usr/lib/python3/dist-packages/fusepy.py").exists() and Path("/dev/fuse").exists()
    return None if fuse else "apt-get install python3-fusepy, on a machine with /dev/fuse"


def _lacks_one_time_codes() -> str | None:
    lacks = _lacks_root() or _lacks_program("unshare") or _lacks_program("sshd")
    return lacks or (None if pam_module("pam_oath.so") else "apt-get install libpam-oath")


def _lacks_kerberos() -> str | None:
    programs = ("sshd", "ssh", "krb5kdc", "kadmin.local", "kinit")
    if lacks := next(filter(None, map(_lacks_program, programs)), None):
        return lacks
    options = subprocess.run(["ssh", "-F", "none", "-G", "node"], capture_output=True, text=True, check=True)
    if "gssapiauthentication " in options.stdout:
        return None
    return "apt-get install openssh-client-gssapi openssh-server-gssapi"


def _lacks_security_key() -> str | None:
    return None if SECURITY_KEY.exists() else "apt-get install openssh-tests"


def _lacks_nvrtc() -> str | None:
    from trainer.algorithms.kernels.nvrtc import libraries  # which takes PyTorch's time

    for library in libraries():
        with suppress(OSError):
            return ctypes.CDLL(library) and None
    return "pip install nvidia-cuda-nvrtc"


def _lacks_pypi() -> str | None:
    try:
        socket.create_connection(("pypi.org", 443), timeout=5).close()
    except OSError:
        return "run the tests where pypi.org can be reached"
    return None


NEEDS: dict[str, Callable[[], str | None]] = {
    **{name: partial(_lacks_program, name) for name in _PACKAGES},
    "root": _lacks_root,
    "an ordinary user": _lacks_user,
    "a checkout that others may read": _lacks_open_checkout,
    "procfs": _lacks_procfs,
    "two processors": _lacks_processors,
    "a small disk": _lacks_small_disk,
    "a folding disk": _lacks_folding_disk,
    "one-time codes": _lacks_one_time_codes,
    "Kerberos": _lacks_kerberos,
    "NVRTC": _lacks_nvrtc,
    "PyPI": _lacks_pypi,
    "a security key": _lacks_security_key,
}
"""Functions that return how to have a thing, or None where it is there."""
_WITH = {"one-time codes": ("sshd", "root"), "Kerberos": ("sshd",)}
"""Things that come with another."""


_declared: set[str] | None = None
"""What the test that runs, or its fixtures, say that they need; None outside of tests."""


@cache
def _cure(name: str) -> str | None:
    return NEEDS[name]()


def needing(*names: str, unless: Callable[[Any], bool] = lambda _: False) -> Callable[[_Function], _Function]:
    """Declares what a fixture needs.

    Args:
        names: keys of `NEEDS`.
        unless: tells of the fixture's parameter, None without one, that it needs nothing then.
    """

    def declare(function: _Function) -> _Function:
        function.needs = lambda param: () if unless(param) else names  # type: ignore[attr-defined]
        return function

    return declare


def need(*names: str) -> None:
    """Skips the test, or all tests of the fixture that calls it, unless the machine has all of `names`."""
    for name in names:
        if _declared is not None and name not in _declared:
            pytest.fail(f"uses {name} without saying so: mark the test with needs({name!r})", pytrace=False)
        if cure := _cure(name):
            pytest.skip(f"{_REASON}{name}: {cure}")


def param(name: str) -> object:
    """Returns a program's name as a test's parameter, skipped where the program is missing."""
    return pytest.param(name, marks=pytest.mark.needs(name))


def _needs_of(item: pytest.Item) -> set[str]:
    fixtures = getattr(item, "_fixtureinfo", None)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    named = [
        definition.func.needs(parameters.get(fixture))
        for fixture, definitions in (fixtures.name2fixturedefs.items() if fixtures else ())
        for definition in definitions
        if hasattr(definition.func, "needs")
    ]
    names = set().union(*named, *(marker.args for marker in item.iter_markers("needs")))
    return names.union(*(_WITH.get(name, ()) for name in names))


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker."""
    config.addinivalue_line("markers", "needs(name, ...): skipped unless the machine has these")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests whose fixtures need something."""
    for item in items:
        if names := _needs_of(item):
            item.add_marker(pytest.mark.needs(*sorted(names)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test before its fixtures are made."""
    global _declared
    _declared = {name for marker in item.iter_markers("needs") for name in marker.args}
    need(*sorted(_declared))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what was skipped, one line for each reason."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("skipped")
    for reason, number in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])):
        terminalreporter.line(f"{number:5} {reason}")


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
