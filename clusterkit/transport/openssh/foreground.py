"""Lending the terminal to a program for a while, as a shell does for its jobs.

ssh must not stay in our process group: it lets the ssh of a jump host run on there, and a Ctrl-C that means
one of our commands would end the connection of all others. Source: glibc manual, Implementing a Shell.
"""

from __future__ import annotations

import os
import signal
import subprocess


def is_ours(terminal: int) -> bool:
    """Whether this process is in the foreground of its terminal."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it is none, or that of other processes
        return False


def wait_in_foreground(process: subprocess.Popen[bytes], terminal: int) -> int:
    """Wait for a program that leads a process group and owns the terminal meanwhile; its exit status.

    Ctrl-C reaches only the program. Ctrl-Z stops both it and us, until the shell goes on with both.

    Args:
        process: started with `process_group=0`.
        terminal: a descriptor of our terminal, of which we are in the foreground.
    """
    # whoever is not in the foreground is stopped when it changes that, unless this is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        while True:
            os.tcsetpgrp(terminal, process.pid)
            os.killpg(process.pid, signal.SIGCONT)  # it may have asked before the terminal was its own
            try:
                _, status = os.waitpid(process.pid, os.WUNTRACED)
            finally:
                os.tcsetpgrp(terminal, os.getpgrp())
            if not os.WIFSTOPPED(status):
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode
            os.killpg(0, signal.SIGTSTP)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
