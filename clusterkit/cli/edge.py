"""The outermost layer of every command: turns any exception into two lines and a documented exit code.

It uses only the standard library at import, because it also guards the import of everything else.
"""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from clusterkit import interruption
from clusterkit.cli.streams import READER_GONE, prepare
from clusterkit.errors import ClusterkitError
from clusterkit.interruption import INTERRUPTED

_COLLECT_AFTER = 100_000
"""New objects between two garbage collections. The imports of a command make some 70,000, which all stay;
with Python's default of 700 they are searched about a hundred times."""


def run(command: Callable[[], object]) -> NoReturn:
    """Runs a command and exits Python with its exit code.

    Args:
        command: the command; it may return, raise SystemExit or raise any exception.
    """
    gc.set_threshold(_COLLECT_AFTER)
    prepare()
    interruption.catch()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one of them
            signal.signal(number, _leave)
    codes: list[int] = []

    def of_thread(hook: threading.ExceptHookArgs) -> None:
        if hook.exc_value is not None:
            codes.append(_show(hook.exc_value))

    threading.excepthook = of_thread
    # Exceptions raised while an object is finalized do not affect the command's result.
    sys.unraisablehook = lambda _: None
    code = _code_of(command)
    sys.exit(next(filter(None, [code, *codes, _code_of(sys.stdout.flush)]), 0))


def _leave(number: int, _: object) -> NoReturn:
    """Exits through an exception, so that this command's processes on a cluster are ended, too."""
    sys.exit(128 + number)


def _code_of(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        newline = "\n" if sys.stderr.isatty() else ""  # the shell's prompt would follow ^C or a question
        sys.stderr.write(newline + interruption.words())
        return INTERRUPTED
    except BaseException as error:
        return _show(error)
    return 0


def _show(error: BaseException) -> int:
    """Prints the error and its hint; returns the exit code."""
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
        from clusterkit.cli.causes import unexpected

        fault = unexpected(error, sys.argv[1:])
    return fault


def _tell(fault: ClusterkitError) -> None:
    try:
        from clusterkit.cli.ui.console import print_fault, show_error

        show_error(fault)
        if "--json" in itertools.takewhile(lambda word: word != "--", sys.argv):
            print_fault(fault)
    except Exception:
        sys.stderr.write(f"error: {fault.cause}\n" + (f"next:  {fault.hint}\n" if fault.hint else ""))
