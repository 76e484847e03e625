"""The process that tests/forked.py starts: it has imported a program, and becomes it again and again."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import multiprocessing.process
import os
import pkgutil
import runpy
import selectors
import socket
import struct
import sys
import threading
from typing import NamedTuple, NoReturn

HEAVY = {"clusterkit": ("rich._emoji_codes",), "trainer": ("torch", "mujoco", "metaworld")}
"""What else a program imports once it is at work."""
NEEDS_ITS_OWN_START = ("clusterkit.node.launch", "clusterkit.node.inside")


class Command(NamedTuple):
    """What a process is to do."""

    words: list[str]
    folder: str
    environ: dict[str, str]
    own_session: bool
    terminal: bool = False
    """The only stream is a terminal, to read from too."""


def import_all(program: str) -> None:
    """Import the program's modules, and what they import late."""
    package = __import__(program)
    for module in pkgutil.walk_packages(package.__path__, f"{program}."):
        if not module.name.endswith(".__main__") and module.name not in NEEDS_ITS_OWN_START:
            __import__(module.name)
    for module_name in HEAVY[program]:
        __import__(module_name)
    if program == "clusterkit":
        _make_ready()
    else:
        _check_environments()
    gc.freeze()  # what every process shares need not be looked at by each


def _make_ready() -> None:
    """What commands do whatever their words: compile a template, take options apart."""
    import typer

    from clusterkit.backends.job_script import templates
    from clusterkit.cli.app import app

    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert command.name == name
    for name in templates().list_templates(filter_func=lambda name: name.endswith(".sh.j2")):
        templates().get_template(name)


def _check_environments() -> None:
    """What each process on Meta-World does first: compare its tasks with their official classes."""
    from trainer import recipe
    from trainer.envs.self_check import environment_class

    for task in recipe.task_names(recipe.load("local-demo").values["tasks"]):
        environment_class(task)


def run_and_leave(program: str) -> NoReturn:
    """Run a program as `python -m` does, and end with its exit code but without taking the interpreter apart.

    That touches every object that all of them share, which costs more than most commands do. Threads, atexit
    and both streams come to their end as ever; a file that nobody has closed does not.
    """
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | type(None)):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:
        sys.exit(code)  # as Python itself has it
    os._exit(code)


def next_command(listener: socket.socket) -> Command | None:
    """Returns in a new process what it is to do, and in this one None when all who asked have gone.

    A request is a byte that brings descriptors: a file with the command, both streams, and where to write the
    process id and then the exit code, or less than zero the signal.
    """
    links: set[socket.socket] = set()
    asked = False
    with selectors.DefaultSelector() as events:
        events.register(listener, selectors.EVENT_READ)
        while links or not asked:
            for key, _ in events.select():
                if key.fileobj is listener:
                    link, _ = listener.accept()
                    if _user_of(link) == os.geteuid():
                        events.register(link, selectors.EVENT_READ)
                        links.add(link)
                        asked = True
                    continue
                if key.fileobj not in links:
                    events.unregister(key.fd)
                    os.close(key.fd)
                    process, answers = key.data
                    _, status = os.waitpid(process, 0)
                    _tell(answers, os.waitstatus_to_exitcode(status))
                    os.close(answers)
                    continue
                link = next(one for one in links if one is key.fileobj)
                _, received, _, _ = socket.recv_fds(link, 1, 4)
                if not received:
                    events.unregister(link)
                    links.remove(link)
                    link.close()
                    continue
                given, *streams, answers = received
                process = os.fork()
                if process == 0:
                    for other in [*events.get_map().values()]:
                        os.close(other.fd)
                        if other.data:
                            os.close(other.data[1])
                    for end in (listener, *links):
                        end.detach()
                    return _become(given, streams, answers)
                for descriptor in (given, *streams):
                    os.close(descriptor)
                events.register(os.pidfd_open(process), selectors.EVENT_READ, (process, answers))
    return None


def _user_of(link: socket.socket) -> int:
    """The user id at the other end, by SO_PEERCRED: an abstract address is open to everybody here."""
    _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)


def _become(given: int, streams: list[int], answers: int) -> Command:
    with open(given) as file:
        command = Command(*json.load(file))
    if command.own_session:
        os.setsid()
    if command.terminal:
        os.login_tty(*streams)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    else:
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
            os.close(stream)
    os.chdir(command.folder)
    multiprocessing.process.ORIGINAL_DIR = command.folder
    os.environ.clear()
    os.environ.update(command.environ)
    sys.path.insert(0, command.folder)
    if "clusterkit.cli.ui.console" in sys.modules:
        _renew_consoles()
    _tell(answers, os.getpid())
    os.close(answers)
    return command


def _renew_consoles() -> None:
    """Many modules hold the consoles, which look at streams and environment when they are made."""
    from clusterkit.cli.ui import console

    for name in ("out", "err"):
        getattr(console, name).__dict__.update(console._console(stderr=name == "err").__dict__)


def _tell(answers: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # who started it does not ask
        os.write(answers, f"{number}\n".encode())


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    program, address = sys.argv[1:]
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind("\0" + address)
    except OSError:  # another process of the test run was quicker
        sys.exit()
    listener.listen(64)
    import_all(program)
    command = next_command(listener)
    if command is not None:
        sys.argv[1:] = command.words
        if program == "clusterkit":
            run_and_leave(program)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
