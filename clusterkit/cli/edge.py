"""The edge of every command: whatever is raised inside ends in two lines and a documented exit code.

On the standard library alone, for it also guards the import of everything else.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from clusterkit.cli.streams import READER_GONE, prepare
from clusterkit.errors import ClusterkitError

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def run(command: Callable[[], object]) -> NoReturn:
    """Run a command to its end, and leave Python with its exit code.

    Args:
        command: ends by itself, by SystemExit, or by what it raises.
    """
    prepare()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one of them
            signal.signal(number, _leave)
    codes: list[int] = []

    def of_thread(hook: threading.ExceptHookArgs) -> None:
        if hook.exc_value is not None:
            codes.append(_show(hook.exc_value))

    threading.excepthook = of_thread
    # What an object raises while it is thrown away changes nothing that the command did.
    sys.unraisablehook = lambda _: None
    code = _code_of(command)
    sys.exit(next(filter(None, [code, *codes, _code_of(sys.stdout.flush)]), 0))


def _leave(number: int, _: object) -> NoReturn:
    """Ends by an exception, so that what runs on a cluster for this command is ended, too."""
    sys.exit(128 + number)


def _code_of(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        if sys.stderr.isatty():  # the shell's prompt would stand behind ^C, or behind a question
            sys.stderr.write("\n")
        return INTERRUPTED
    except BaseException as error:
        return _show(error)
    return 0


def _show(error: BaseException) -> int:
    """Show what happened and what to do; returns the exit code."""
    try:
        fault = _fault(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        fault = ClusterkitError(f"{type(error).__name__}: {error}")
    if fault.exit_code != READER_GONE:
        _tell(fault)
    return fault.exit_code


def _fault(error: BaseException) -> ClusterkitError:
    from clusterkit.cli.causes import fault_of

    fault = fault_of(error)
    if fault is None:
        from clusterkit.cli.crash import unexpected

        fault = unexpected(error, sys.argv[1:])
    return fault


def _tell(fault: ClusterkitError) -> None:
    try:
        from clusterkit.cli.ui.console import show_error

        show_error(fault)
    except Exception:
        sys.stderr.write(f"error: {fault.cause}\n" + (f"next:  {fault.hint}\n" if fault.hint else ""))
