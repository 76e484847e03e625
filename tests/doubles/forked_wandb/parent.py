"""Imports wandb and forks a process for each that asks, until the one that started it ends.

python parent.py LISTENER LIFELINE ADDRESS
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path


def next_command(listener: socket.socket, lifeline: socket.socket) -> list[str] | None:
    """Returns in a new process what it is to run, and in this one None when nobody can ask any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that serve
    while True:
        if lifeline in select.select([listener, lifeline], [], [])[0]:
            return None
        link, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            lifeline.close()
            return served(link)
        link.close()


def served(link: socket.socket) -> list[str]:
    """Returns in a new process what it is to run; this one waits for that, and kills it with its asker."""
    _, files, _, _ = socket.recv_fds(link, 1, 250)
    with link.makefile() as requests:
        argv, folder, env = json.loads(requests.readline())
    process = os.fork()
    if process == 0:
        link.close()
        os.setsid()
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        return list(argv)
    for file in files:
        os.close(file)
    ended = os.pidfd_open(process)
    if link in select.select([ended, link], [], [])[0]:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with suppress(OSError):
        link.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def main() -> None:
    sys.path.pop(0)  # this folder
    listener, lifeline = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    import wandb.cli.cli
    import wandb.sdk.launch  # noqa: F401 - `wandb.init` does

    gc.freeze()  # what every process shares need not be looked at by each
    command = next_command(listener, lifeline)
    if command is None:
        shutil.rmtree(Path(sys.argv[3]).parent)
        return
    kind, program, *arguments = command
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})


if __name__ == "__main__":
    main()
