"""A run of the tests says each failure when it happens, with the command that repeats it."""

from __future__ import annotations

import re
import shlex
import signal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Makes a run that a CI system ends say what has failed so far, as one does after Ctrl-C."""
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        config.pluginmanager.register(_Telling(config))


class _Telling:
    """In the process that a person looks at."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        cause = report.longrepr
        crash = getattr(cause, "reprcrash", None)
        words = (crash.message if crash else str(cause)).strip().splitlines() or [""]
        test = re.sub(r"@(cluster \d+|tests/[\w/]+\.py)$", "", report.nodeid)  # xdist adds the group's name
        terminal.write_line(f"\nFAILED {test}: {words[0][:200]}", red=True)
        terminal.write_line(f"       .venv/bin/python -m pytest -n 0 {shlex.quote(test)}")
