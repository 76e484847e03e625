"""The site's lines, run by job.sh: what reaches the program, and what does not reach the script."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.job_script import render, render_node
from clusterkit.config.models import Cluster
from clusterkit.interactive.entering import enter_script
from tests.backends.runs import Run, job_script, python
from tests.backends.test_script import SCRIPTS
from tests.programs import write_program
from tests.waiting import until

_SCRIPT = render(job_script(**SCRIPTS["plain"]))
_ASSIGNED = r"(?<![\w$\"'-])([a-z][a-z_]*)\+?=|\b(?:for|local) ([a-z_]+)"
VARIABLES = sorted({name for names in re.findall(_ASSIGNED, _SCRIPT) for name in names if name})
"""All variables of the script."""
_COMMANDS = (
    "rm mkdir printf env exec builtin command trap umask ulimit cat mv date kill wait [ read unset export"
)
FUNCTIONS = sorted({*re.findall(r"^([a-z_]+)\(\)", _SCRIPT, re.MULTILINE), *_COMMANDS.split(), "eval"})
"""All its functions, and commands that it calls."""
SHOW = python("import json; json.dump(dict(os.environ), open(run_dir + '/env.json', 'w'))")


def started(tmp_path: Path, *lines: str, argv: list[str] = SHOW, **job: Any) -> Run:
    return Run(tmp_path, argv, job={"prelude": lines, **job})


def environment(run: Run) -> dict[str, str]:
    """What the program found."""
    found: dict[str, str] = json.loads((run.dir / "env.json").read_text())
    return found


@pytest.mark.slow
def test_no_variable_of_it_reaches_what_is_removed_recorded_or_decided(tmp_path: Path) -> None:
    theirs = tmp_path / "my data"
    theirs.mkdir()
    (theirs / "only-copy").touch()
    assert {
        "scratch",
        "short_tmp",
        "attempt_dir",
        "detail",
        "child",
        "environment",
        "round",
        "prelude_odd",
    } < set(VARIABLES)
    lines = [f"{name}='{theirs}'" for name in VARIABLES]
    run = started(tmp_path, *lines, "export DATA=$scratch/sets", *(f"readonly {name}" for name in VARIABLES))
    assert run.run() == 0, run.log()
    assert run.exit == {"code": 0, "signal": None, "why": "completed"}
    assert (theirs / "only-copy").exists()
    assert [path.name for path in theirs.iterdir()] == ["only-copy"]
    assert list(run.scratch.iterdir()) == []
    assert environment(run)["DATA"] == f"{theirs}/sets"


@pytest.mark.slow
def test_an_exported_variable_reaches_the_program_whatever_its_name(tmp_path: Path) -> None:
    run = started(tmp_path, *(f"export {name}='of {name}\n$(touch pwned)\\'" for name in VARIABLES))
    assert run.run() == 0, run.log()
    found = environment(run)
    assert {name: found[name] for name in VARIABLES} == {
        name: f"of {name}\n$(touch pwned)\\" for name in VARIABLES
    }
    assert list(run.scratch.iterdir()) == []
    assert not list(tmp_path.rglob("pwned"))


def test_clusterkits_own_variables_are_not_its_to_change(tmp_path: Path) -> None:
    lines = ("export CLUSTERKIT_ATTEMPT=7 CLUSTERKIT_SCRATCH=/x CLUSTERKIT_OTHER=mine",)
    run = started(tmp_path, *lines)
    assert run.run() == 0
    found = environment(run)
    assert found["CLUSTERKIT_ATTEMPT"] == "0"
    assert found["CLUSTERKIT_SCRATCH"] == f"{run.scratch}/run-1-0"
    assert found["CLUSTERKIT_OTHER"] == "mine"


@pytest.mark.slow
def test_no_function_of_it_is_called_by_the_script(tmp_path: Path) -> None:
    called = tmp_path / "called"
    lines = [f"function {name} {{ /bin/echo {name} >>'{called}'; }}" for name in FUNCTIONS]
    run = started(tmp_path, "export SITE=here", *lines)
    assert run.run() == 0, run.log()
    assert run.exit["why"] == "completed"
    assert environment(run)["SITE"] == "here"
    assert not called.exists()


def test_exported_functions_and_bash_env_reach_the_lines_and_the_program_and_not_the_script(
    tmp_path: Path,
) -> None:
    """As `module` does, on most clusters, and as functions of the submitting shell do with sbatch."""
    setup = tmp_path / "bash env"
    setup.write_text(
        "shopt -s expand_aliases; of_the_site() { export SITE=$1; }; scratch=/nowhere; umask 022\n"
    )
    program = python(
        "import subprocess",
        "print(subprocess.run(['bash', '-c', 'module two; mine'], capture_output=True, text=True).stdout)",
        "os.system('umask')",
        "print(os.environ['SITE'])",
    )
    functions = {"module": "() {  echo loaded $1\n}", "rm": "() {  echo removed\n}"}
    run = started(
        tmp_path, "module one; of_the_site x", "mine() { echo mine; }; export -f mine", argv=program
    )
    given = {f"BASH_FUNC_{name}%%": text for name, text in functions.items()}
    given |= {"BASH_ENV": str(setup), "SHELLOPTS": "noclobber", "BASHOPTS": "extdebug"}
    run.path.chmod(0o700)
    process = subprocess.Popen([run.path], env={**os.environ, **given})
    assert process.wait(120) == 0, run.log()
    assert "loaded one\n" in run.log()
    assert "loaded two\nmine\n\n" in run.log()
    assert "0077\nx\n" in run.log()
    assert "removed" not in run.log()
    assert list(run.scratch.iterdir()) == []


@pytest.mark.slow
def test_no_variable_of_it_reaches_what_a_node_of_several_removes(tmp_path: Path) -> None:
    theirs = tmp_path / "my data"
    theirs.mkdir()
    lines = (*(f"{name}='{theirs}'" for name in ("own_scratch", "short_tmp", "ranks", "scratch")), "exit 0")
    run = started(tmp_path, *lines, nodes=2)
    for name in ("node.sh", "rendezvous.py"):
        (run.dir / name).write_text(render_node(run.contents))
    (run.dir / "attempts/0/ranks").mkdir(parents=True)
    run.scratch.mkdir()
    given = {"SLURM_NODEID": "1", "CLUSTERKIT_ATTEMPT": "0", "CLUSTERKIT_SUBMISSION": "0"}
    argv = ["bash", "-p", run.dir / "node.sh", run.scratch / "run-1-0"]
    done = subprocess.run(argv, env={**os.environ, **given}, capture_output=True, text=True)
    assert "[clusterkit] the prelude ended its shell with status 0" in done.stdout, done.stderr
    assert (run.dir / "attempts/0/ranks/failed").read_text().startswith("1 failed 1 ")
    assert theirs.is_dir()
    assert list(run.scratch.iterdir()) == []


def test_no_other_user_sees_a_value_among_the_arguments_of_a_command(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "env").write_text(
        f'#!/bin/bash -p\necho "$*" >>"{tmp_path}/calls"\nexec {shutil.which("env")} "$@"\n'
    )
    (tools / "env").chmod(0o755)
    run = started(tmp_path, "export KEY=$(echo of-the-site | tr a-z A-Z); mine() { :; }; export -f mine")
    assert run.run(PATH=f"{tools}:{os.environ['PATH']}") == 0
    assert environment(run)["KEY"] == "OF-THE-SITE"
    calls = (tmp_path / "calls").read_text()
    assert "BASH_FUNC_mine" in calls
    assert "OF-THE-SITE" not in calls


def test_functions_of_the_submitting_shell_that_it_removes_are_gone(tmp_path: Path) -> None:
    run = started(tmp_path, "unset -f broken")
    assert (
        run.run(**{"BASH_FUNC_broken%%": "() {  :\n}", "BASH_FUNC_kept%%": "() {  :\n}", "odd.name": "x"})
        == 0
    )
    found = environment(run)
    assert "BASH_FUNC_broken%%" not in found
    assert found["BASH_FUNC_kept%%"] == "() {  :\n}"
    assert found["odd.name"] == "x"


def test_a_secret_that_it_exports_is_never_written_and_the_runs_own_wins(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "with_secrets.py").write_text(
        "import os, sys\nos.environ['HF_TOKEN'] = repr(os.environ.get('HF_TOKEN'))\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[3:]])\n"
    )
    program = python("os.system('grep -r OF-THE-NODE $CLUSTERKIT_SCRATCH')", "print(os.environ['HF_TOKEN'])")
    job = {"secrets": str(secrets), "secret_names": ("HF_TOKEN",)}
    run = started(tmp_path, "export HF_TOKEN=$(echo OF-THE-NODE | cat)", argv=program, **job)
    assert run.run() == 0, run.log()
    assert "\nNone\n" in run.log()
    assert "OF-THE-NODE" not in run.log().replace("echo OF-THE-NODE", "")


def test_the_environment_of_the_submitting_shell_may_hold_anything(tmp_path: Path) -> None:
    given = {"POSIXLY_CORRECT": "1", "CDPATH": "/usr:.", "GLOBIGNORE": "*", "TMOUT": "1"}
    given |= {"--help": "a", "-u": "b", "é": "c"}
    run = started(tmp_path, "export SITE=here")
    assert run.run(**given) == 0, run.log()
    found = environment(run)
    assert {name: found[name] for name in given} == given
    assert found["SITE"] == "here"
    assert len(run.log().splitlines()) == 3, run.log()


def test_a_secret_of_the_submitting_shell_is_not_written_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o700)
    job = {"secrets": str(tmp_path / "secrets"), "secret_names": ("HF_TOKEN",)}
    line = 'grep -rlF "$HF_TOKEN" "$CLUSTERKIT_SCRATCH"; echo "looked: $HF_TOKEN"'
    run = started(tmp_path, line, **job)
    run.run(HF_TOKEN="of the shell\nand more")
    assert "\nlooked: of the shell\n" in run.log()
    assert str(run.scratch) not in run.log()


def test_what_passes_into_a_container_is_what_it_exports(tmp_path: Path) -> None:
    tools = write_program(tmp_path / "site", "apptainer", 'env >"$OUT"')
    (tmp_path / "image.sif").touch()
    lines = (
        f"PATH={tools}:$PATH prefix=X passed=Y",
        f"export OUT='{tmp_path}/env' CUDA_VISIBLE_DEVICES=3 name=n",
    )
    job = {"container": "apptainer", "image": str(tmp_path / "image.sif")}
    run = started(tmp_path, *lines, "export CLUSTERKIT_ATTEMPT=9", **job)
    run.run(CUDA_VISIBLE_DEVICES="0,1")
    found = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert found["APPTAINERENV_CUDA_VISIBLE_DEVICES"] == "3"
    assert found["APPTAINERENV_CLUSTERKIT_ATTEMPT"] == "0"
    assert found["APPTAINERENV_TMPDIR"] == "/tmp"
    assert found["name"] == "n"


def test_umask_and_limits_reach_the_program_and_not_the_record(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    program = python(
        "import json, resource",
        "json.dump([os.umask(0), *resource.getrlimit(resource.RLIMIT_NOFILE),"
        " *resource.getrlimit(resource.RLIMIT_CORE)], open(run_dir + '/limits', 'w'))",
    )
    run = started(tmp_path, "umask 022", "ulimit -S -n 100; ulimit -H -n 200", "ulimit -c 0", argv=program)
    assert run.run() == 0, run.log()
    assert json.loads((run.dir / "limits").read_text()) == [0o022, 100, 200, 0, 0]
    assert (run.dir / "attempts/0/exit.json").stat().st_mode & 0o077 == 0
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("exit 9", "with status 9"),
        ("exit 0", "with status 0"),
        ("exit 85", "with status 85"),
        ("exec true", "with status 0"),
        ("set -e; false", "with status 1, after `false` ended with status 1"),
        ("set -u; : $NO_SUCH", "with status 1"),
        ("if true; then", "with status 2"),
        ("echo 'no end", "with status 2"),
        ("cat <<END", "with status 0"),
        ("kill -KILL $$", "by SIGKILL"),
        ("set -n", "with status 0"),
        (": ${NO_SUCH:?}", "with status"),
        ("shopt -s extdebug; trap false DEBUG", "with status 0: the program"),
        ("ulimit -f 0", "by SIGXFSZ"),
    ],
)
def test_lines_that_end_their_shell_end_the_run_and_say_so(tmp_path: Path, line: str, how: str) -> None:
    run = started(tmp_path, line)
    assert run.run() == 1
    detail = run.exit["detail"]
    assert detail.startswith(f"the prelude ended its shell {how}"), detail
    assert (run.exit["code"], run.exit["why"]) == (1, "failed")
    assert f"[clusterkit] {detail}\n" in run.log()
    assert not (run.dir / "env.json").exists()
    assert list(run.scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('rm -rf "$CLUSTERKIT_SCRATCH"', "No such file or directory"),
        ("export BIG=$(head -c 140000 /dev/zero | tr '\\0' x)", "Argument list too long"),
        ('mkdir "$CLUSTERKIT_SCRATCH/prelude/trap"', "Is a directory"),
    ],
)
def test_an_environment_that_cannot_be_written_is_not_called_the_end_of_their_shell(
    tmp_path: Path, line: str, why: str
) -> None:
    run = started(tmp_path, line)
    assert run.run() == 1
    assert run.exit["detail"].startswith(
        f"the program's environment cannot be written to {run.scratch}/run-1-0/"
    )
    assert re.search(rf"{why}\n\[clusterkit\] the program's environment cannot be written", run.log())
    assert list(run.scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "set -e",
        "set -u",
        "set -euo pipefail",
        "set -C",
        "set -o posix",
        "set -a",
        "set -f; IFS=x",
        "set -x; export SHELLOPTS",
        "set -T -E; trap : DEBUG RETURN ERR",
        "shopt -s expand_aliases extglob nullglob; alias exec=false builtin=false trap=false",
        "cd /",
        "unset PATH",
        "export PATH=/nowhere",
        "unset -v HOME USER LANG",
        "exec </dev/zero",
        "exec >/dev/null 2>&1 3>&- 4>&-",
        "exec >&- 2>&-",
        "cat; read -r line; cat >/dev/null",
        "head -c 1000000 /dev/zero | tr '\\0' x; echo",
        "sleep 5 & disown",
        "trap '' TERM USR1 USR2 INT HUP",
        "trap 'exit 3' USR1",
        "function env { false; }; readonly -f env",
        "export SITE=x\\",
        "eval 'return 3' 2>/dev/null",
        "printf '\\0'; export RAW=$'\\xff\\xfe'",
        "export TMPDIR=/tmp; hash -r; enable -n echo",
        "export POSIXLY_CORRECT=y",
        "export RANDOM=x SECONDS=y LINENO=z IFS=/ LC_ALL=none PS4='$(touch pwned)' UIDS=1",
        "trap 'rm -rf \"$TMPDIR\"' EXIT; exec() { :; }; builtin() { :; }; trap() { :; }",
        "unset LINENO BASH_SOURCE; set -E",
        "export BASH_ENV=/no/such ENV=/no/such BASH_COMPAT=3 BASH_XTRACEFD=77 FUNCNEST=1",
    ],
)
def test_whatever_it_leaves_on_the_run_is_the_same(tmp_path: Path, line: str) -> None:
    run = started(tmp_path, line, "export SITE=here")
    assert run.run() == 0, run.log()
    assert run.exit["why"] == "completed"
    assert environment(run)["SITE"] == "here"
    assert list(run.scratch.iterdir()) == []


def test_signals_still_reach_a_program_behind_lines_that_ignore_them(tmp_path: Path) -> None:
    program = python("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(85))", "ready()", "time.sleep(60)")
    run = started(tmp_path, "set -e; trap '' USR1; trap 'touch never' EXIT", argv=program)
    assert run.signalled(signal.SIGUSR1) == 85
    assert run.exit == {"code": 85, "signal": "USR1", "why": "requeue"}


def test_a_trap_for_the_end_does_not_run_and_is_said(tmp_path: Path) -> None:
    run = started(tmp_path, f"trap \"rm -rf '{tmp_path}/kept'\" EXIT; mkdir '{tmp_path}/kept'")
    assert run.run() == 0
    assert (tmp_path / "kept").is_dir()
    (line,) = (line for line in run.log().splitlines() if "its trap for the end of its shell" in line)
    assert line.startswith("[clusterkit] prelude: ")
    assert "rm -rf" in line


def test_commands_of_its_own_that_fail_are_said_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "setup").write_text("false\nmissing-in-setup\ntrue\n")
    lines = (
        f"source '{tmp_path}/setup'",
        "source /no/such/activate",
        "load() { false; return 3; }",
        "load one && true",
        "  load one",
        "false || true; if false; then :; fi",
        "x=$(false; true)",
        "true; ls /no/such; true",
    )
    run = started(tmp_path, *lines)
    assert run.run() == 0, run.log()
    said = [line for line in run.log().splitlines() if line.startswith("[clusterkit] prelude: ")]
    assert said == [
        "[clusterkit] prelude: `source /no/such/activate` ended with status 1",
        "[clusterkit] prelude: `  load one` ended with status 3",
        "[clusterkit] prelude: `ls /no/such` ended with status 2",
    ]
    assert run.exit == {
        "code": 0,
        "signal": None,
        "why": "completed",
        "prelude": "`source /no/such/activate` ended with status 1",
    }


def test_a_command_that_fails_many_times_is_said_once(tmp_path: Path) -> None:
    run = started(
        tmp_path, "for i in {1..300}; do ls /no/such; false; done 2>/dev/null", "false", argv=["true"]
    )
    run.run()
    said = [line for line in run.log().splitlines() if line.startswith("[clusterkit] prelude: ")]
    assert said == [
        f"[clusterkit] prelude: `{fault}"
        for fault in ("ls /no/such` ended with status 2", "false` ended with status 1")
    ]


def test_a_strict_one_ends_the_run_at_its_first_fault(tmp_path: Path) -> None:
    run = started(tmp_path, "source /no/such/activate", "true", strict_prelude=True)
    assert run.run() == 1
    assert run.exit["why"] == "failed"
    assert "strict_prelude is set: `source /no/such/activate` ended with status 1" in run.exit["detail"]
    assert not (run.dir / "env.json").exists()
    fine = started(tmp_path / "fine", "true", strict_prelude=True)
    assert fine.run() == 0


@pytest.mark.parametrize("line", ["trap 'echo mine' ERR", "trap - ERR", "mine() { trap : ERR; }; mine"])
def test_a_trap_of_its_own_that_hides_what_fails_is_said(tmp_path: Path, line: str) -> None:
    fault = "its own trap for ERR replaces the one that notices commands that fail"
    run = started(tmp_path / "run", line, "false")
    assert run.run() == 0
    assert f"[clusterkit] prelude: {fault}\n" in run.log()
    assert run.exit["prelude"] == fault
    strict = started(tmp_path / "strict", line, "false", strict_prelude=True)
    assert strict.run() == 1
    assert strict.exit["detail"] == f"the prelude failed, and strict_prelude is set: {fault}"


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_a_signal_meanwhile_is_recorded_whatever_the_lines_do(tmp_path: Path, name: str) -> None:
    for number, line in enumerate((f"kill -{name} $PPID", f"kill -{name} $PPID; exit 3")):
        run = started(tmp_path / str(number), line)
        code = 128 + signal.Signals[f"SIG{name}"]
        assert run.run() == code
        assert run.exit == {"code": code, "signal": name, "why": "signalled"}


def test_a_document_may_go_over_several_entries_and_lines(tmp_path: Path) -> None:
    run = started(
        tmp_path, "export SITE=$(cat <<'END'", "it's $(a)\nEND\nand more", "END", ")", 'export B="x$NO_SUCH"'
    )
    assert run.run() == 0, run.log()
    assert environment(run)["SITE"] == "it's $(a)"
    assert environment(run)["B"] == "x"


def test_lines_that_look_like_the_scripts_own_change_nothing_for_a_shell_beside_the_program(
    tmp_path: Path,
) -> None:
    """`clusterkit shell` finds the scratch folder by the lines of job.sh that begin with its names."""
    pwned = tmp_path / "pwned"
    theirs = (f"scratch_root=$(touch {pwned})\nrun_id=x", "export scratch=mine RAW=$'\\xff' MANY=$'a\\nb'")
    run = started(tmp_path, *theirs, argv=python("ready()", "while True: time.sleep(1)"))
    process = run.start()
    until((run.dir / "ready").exists)
    pwned.unlink()  # of the prelude itself, which may
    cluster = Cluster(name="local", kind="local", root=str(tmp_path), container="none")
    argv = ["bash", "-c", enter_script(cluster), "bash", str(run.path), "0", "dumb"]
    tell = [shutil.which("env") or "env", "-0"]
    done = subprocess.run([*argv, *tell], capture_output=True, cwd=tmp_path, env={"PATH": "/bin:/usr/bin"})
    pairs = dict(pair.split(b"=", 1) for pair in done.stdout.split(b"\0") if pair)
    assert (pairs[b"scratch"], pairs[b"RAW"], pairs[b"MANY"]) == (b"mine", b"\xff", b"a\nb"), done.stderr
    assert pairs[b"TERM"] == b"dumb"
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert {path.name for path in tmp_path.glob("pwned")} == set()


def test_a_container_runtime_is_looked_for_where_its_path_points(tmp_path: Path) -> None:
    image = {"container": "apptainer", "image": "/image.sif"}
    run = started(tmp_path, "export PATH=/nowhere", **image)
    assert run.run() == 127
    detail = run.exit.pop("detail")
    assert "apptainer is not on PATH" in detail
    assert f"[clusterkit] {detail}\n" in run.log()
    assert run.exit == {"code": 127, "signal": None, "why": "container", "detail": detail}
    assert list(run.scratch.iterdir()) == []


def test_an_interpreter_whose_path_env_would_read_as_a_variable(tmp_path: Path) -> None:
    odd = write_program(tmp_path / "a=b", "python", f'exec {shutil.which("python3")} "$@"')
    run = started(tmp_path, python=str(odd / "python"))
    assert run.run() == 0, run.log()
