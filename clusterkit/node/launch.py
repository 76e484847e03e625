"""Starts the program of a run: `python launch.py RUN_DIR`, the last step before the user's own code.

With more arguments, `python launch.py RUN_DIR PROGRAM ARGUMENT...`, it starts another program instead.

It is copied into every run directory and run by the image's interpreter, so it uses only the standard library
of Python 3.8 and nothing of clusterkit. The program's arguments go from run.json straight to exec: no shell
sees them, and signals reach the program itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, NoReturn

WORK = "work"
"""The program's working directory in the run directory: the run's own copy of its code."""
LIB = "lib"
"""In the run directory: a clusterkit.py with `log`, for programs whose Python has no clusterkit."""
SETTINGS = "clusterkit.toml"
"""In the project's folder, and so in the copy."""


def fail(message: str, code: int) -> NoReturn:
    """Print one line for the log and exit."""
    print("[clusterkit] " + message, file=sys.stderr, flush=True)
    raise SystemExit(code)


def load(run_dir: str) -> dict[str, Any]:
    """Read run.json. Exits with 2 when it is missing or damaged."""
    path = os.path.join(run_dir, "run.json")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            run: dict[str, Any] = json.load(file)
        if not run["argv"]:
            raise ValueError("argv is empty")
    except (OSError, ValueError, KeyError) as error:
        fail(f"cannot read {path}: {error!r}", 2)
    return run


def submitted(run: dict[str, Any], run_dir: str) -> dict[str, Any]:
    """The run as submitted last: a resumption may change the arguments or the cluster."""
    path = os.path.join(run_dir, "submissions", os.environ.get("CLUSTERKIT_SUBMISSION", "0"), "request.json")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            request: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return run
    except (OSError, ValueError) as error:
        fail(f"cannot read {path}: {error!r}", 2)
    names = ("argv", "env", "python_path")
    changes = {name: request[name] for name in names if request.get(name) is not None}
    return {**run, **changes}


def environment(run: dict[str, Any], run_dir: str) -> dict[str, str]:
    """The program's environment: the node's, the run's, and its location."""
    env = dict(os.environ)
    env.setdefault("PYTHONUNBUFFERED", "1")  # the log is followed live
    env.setdefault("PYTHONDONTWRITEBYTECODE", "1")  # what is in the working directory comes home
    env.update({name: str(value) for name, value in run.get("env", {}).items()})
    env["CLUSTERKIT_RUN_DIR"] = run_dir
    env["CLUSTERKIT_RUN_ID"] = str(run.get("run_id", os.path.basename(run_dir)))
    env.setdefault("CLUSTERKIT_ATTEMPT", "0")
    env.setdefault("CLUSTERKIT_SCRATCH", os.path.join(run_dir, "scratch"))
    own = (run.get("environment") or {}).get("paths", [])  # its packages, which no environment has installed
    python_path = [os.path.normpath(os.path.join(run_dir, WORK, path)) for path in own]
    python_path += [
        *copied_places(os.path.join(run_dir, WORK)),
        env.get("PYTHONPATH", ""),
        os.path.join(run_dir, LIB),
    ]
    argv = [str(argument) for argument in run["argv"]]
    if is_trainer(argv):  # it starts with -P, which leaves out the folder that a user's environment lies in
        python_path.insert(0, os.path.join(run_dir, WORK))
    python_path = [*run.get("python_path", []), *python_path]
    env["PYTHONPATH"] = os.pathsep.join(path for path in python_path if path)
    return env


def copied_places(work: str) -> list[str]:
    """The folders of the working directory to import from, not the project's, as after `pip install -e`.

    The project may have changed since the run was submitted, and other runs may write there.
    """
    if not os.path.isfile(os.path.join(work, SETTINGS)):
        return []
    finders = [vars(module) for name, module in list(sys.modules.items()) if name.startswith("__editable__")]
    packages = [path for finder in finders for path in finder.get("MAPPING", {}).values()]
    folders = []
    for place in map(os.path.realpath, [*sys.path, *map(os.path.dirname, packages)]):
        root = place
        while root != os.path.dirname(root) and not os.path.isfile(os.path.join(root, SETTINGS)):
            root = os.path.dirname(root)
        folder = os.path.normpath(os.path.join(work, os.path.relpath(place, root)))
        if os.path.isfile(os.path.join(root, SETTINGS)) and os.path.isdir(folder) and folder not in folders:
            folders.append(folder)
    return folders


def is_trainer(argv: list[str]) -> bool:
    """Whether a program is the bundled trainer, whatever else is called `trainer` where it starts."""
    return argv[:3] == ["python", "-m", "trainer"]


def restore_signals() -> None:
    """Restore the signals that a shell ignores in background jobs (SIGINT, SIGQUIT) or Python changes."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def tell(name: str, text: str = "") -> None:
    """Write a file that job.sh reads in the scratch folder; a full disk does not stop the run."""
    scratch = os.environ.get("CLUSTERKIT_SCRATCH")
    if scratch is None:
        return
    try:
        with open(os.path.join(scratch, name), "w") as file:
            file.write(text)
    except OSError as error:
        print(f"[clusterkit] cannot write to the scratch folder: {error}", file=sys.stderr, flush=True)


def says_done(argv: list[str]) -> bool:
    """Whether the program reports in its heartbeat when it is done, so that exit code 0 alone means nothing.

    The bundled trainer does, unless it writes elsewhere.
    """
    elsewhere = any(argument.split("=")[0] in ("--run-dir", "-h", "--help") for argument in argv)
    return is_trainer(argv) and argv[3:4] == ["train"] and not elsewhere


def first_line(program: str) -> str:
    """The first line of a script that is named by its path; empty if it cannot be read."""
    try:
        with open(program if "/" in program else "", encoding="latin-1", newline="\n") as file:
            return file.readline(256).rstrip("\n")
    except OSError:
        return ""


def main(arguments: list[str]) -> NoReturn:
    """Become the program. Exits with 2 for a damaged run directory, 126 or 127 when exec fails."""
    if not arguments:
        fail("usage: launch.py RUN_DIR [PROGRAM ARGUMENT...]", 2)
    run_dir = os.path.abspath(arguments[0])
    own = not arguments[1:]
    if own:
        tell("launched")  # the container started
        tell("pid", str(os.getpid()))
    run = submitted(load(run_dir), run_dir)
    env = environment(run, run_dir)
    workdir = os.path.join(run_dir, WORK)
    try:
        os.chdir(workdir)
    except OSError as error:
        fail(f"cannot enter the working directory {workdir}: {error.strerror}", 2)
    argv = arguments[1:] or [str(argument) for argument in run["argv"]]
    if own and says_done(argv):
        tell("launched", "says-done\n")
    if is_trainer(argv) and sys.version_info >= (3, 11):  # an older one cannot run it, and knows no -P
        argv.insert(1, "-P")
    if argv[0] == "python":
        argv[0] = sys.executable  # also as argv[0]: by it Python finds its virtual environment
    restore_signals()
    try:
        os.execvpe(argv[0], argv, env)
    except FileNotFoundError:
        if (line := first_line(argv[0])).startswith("#!"):
            interpreter = line[2:].strip(" ").partition(" ")[0]
            lines = "; its lines end as on Windows" if line.endswith("\r") else ""
            fail(f"the interpreter of {argv[0]!r}, {interpreter!r}, does not exist here{lines}", 127)
        fail(f"the program {argv[0]!r} does not exist here (PATH={env.get('PATH', '')})", 127)
    except (OSError, ValueError) as error:
        fail(f"cannot start {argv[0]!r}: {error}", 126)


if __name__ == "__main__":
    main(sys.argv[1:])
