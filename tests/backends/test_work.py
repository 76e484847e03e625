"""The working directory of a run: a copy of its code, of which only what the program wrote comes home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.results.listing import list_argv, parse_listing
from tests.backends.runs import Run
from tests.doubles.full_disk import small_disk
from tests.programs import write_program

CODE = {
    "train.py": "import os\n",
    "run.sh": "#!/bin/sh\n",
    "pkg/model.py": "size = 3\n",
    "pkg/.hidden": "x",
    "ünï \\ 100% -n": "odd",
    "two\nlines": "names have no newline in any list",
}


def make(root: Path, *lines: str) -> Run:
    """A run whose snapshot is as `publish` leaves it: nobody may write there."""
    run = Run(root, [sys.executable, "-c", "\n".join(("import os, shutil", *lines))])
    for name, text in CODE.items():
        path = run.code / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o500 if name.endswith(".sh") else 0o400)
    (run.code / "link").symlink_to("pkg/model.py")
    (run.code / "gone").symlink_to("nowhere")
    for folder in (run.code / "pkg", run.code):
        folder.chmod(0o500)
    return run


def unentered(root: Path) -> Path:
    """A folder with a `find` that fails in the end, as an ordinary user's does: root enters any folder."""
    script = f'{shutil.which("find")} "$@" && ! test -d shut -o -d run-1/work/shut'
    return write_program(root / "tools", "find", script)


def tree(folder: Path) -> dict[str, object]:
    """Content of every file below a folder, and the targets of links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file():
            found[name] = path.read_text()
    return found


def listed(run: Run, *, path: str | None = None) -> set[str]:
    """What `sync-results` is told of the working directory."""
    environment = {**os.environ, "PATH": path} if path else None
    done = subprocess.run(
        list_argv(str(run.dir.parent)), input=b"./run-1", capture_output=True, check=True, env=environment
    )
    listing = parse_listing(done.stdout, {"run-1"})
    assert listing.run_ids == {"run-1"}
    names = [*(file.inside for file in listing.files), *(link.path[6:] for link in listing.links)]
    return {name[5:] for name in names if name.startswith("work/")}


def test_the_program_starts_in_a_copy_of_its_code_that_it_may_change(tmp_path: Path) -> None:
    run = make(
        tmp_path,
        "assert os.getcwd() == os.environ['CLUSTERKIT_RUN_DIR'] + '/work'",
        "assert sorted(os.listdir()) == "
        + repr(sorted({name.split("/")[0] for name in (*CODE, "link", "gone")})),
        "assert os.access('run.sh', os.X_OK) and not os.access('train.py', os.X_OK)",
        "open('pkg/model.py', 'a').write('changed')",
        "open('pkg/new', 'w').write('n')",
    )
    before = tree(run.code)
    assert run.run() == 0, run.log()
    assert tree(run.code) == before
    assert tree(run.work) == {"pkg/model.py": "size = 3\nchanged", "pkg/new": "n"}
    assert f"its own copy of the code: {len(CODE) + 2} files, c" in run.log()


def test_only_what_the_program_wrote_or_changed_comes_home(tmp_path: Path) -> None:
    run = make(
        tmp_path,
        "shutil.copytree('pkg', 'out/pkg')",  # times and modes are those of the code
        "shutil.copy2('train.py', 'same.py')",
        "open('run.sh', 'a').write('#')",
        "os.remove('link'); os.symlink('same.py', 'link')",
        "os.kill(os.getpid(), 9)",
    )
    assert run.run() == 137
    wrote = {"out/pkg/model.py", "out/pkg/.hidden", "same.py", "run.sh", "link"}
    assert set(CODE) <= tree(run.work).keys()  # a run that may go on keeps its code
    assert listed(run) == wrote
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, tool in {"sh": "sh", "cat": "cat", "grep": "grep", "python3": sys.executable}.items():
        (tools / name).symlink_to(str(shutil.which(tool)))  # and no find that knows -printf
    assert listed(run, path=str(tools)) == wrote


def test_the_next_attempt_finds_what_the_one_before_wrote(tmp_path: Path) -> None:
    run = make(
        tmp_path,
        "again = os.path.exists('state')",
        "open('state', 'a').write('x'); open('train.py', 'a').write('#')",
        "assert not again or open('pkg/model.py').read() == 'size = 3\\n'",
        "os._exit(0 if again else 85)",
    )
    assert run.run() == 85
    assert run.run() == 0, run.log(1)
    assert tree(run.work) == {"state": "xx", "train.py": "import os\n##"}
    assert "copy of the code" not in run.log(1)


def test_a_run_that_has_ended_gets_its_code_again_when_it_goes_on(tmp_path: Path) -> None:
    run = make(tmp_path, "open('pkg/state', 'a').write('x')", "open('train.py', 'a').write('#')")
    assert run.run() == 0
    assert run.run() == 0, run.log(1)
    assert tree(run.work) == {"pkg/state": "xx", "train.py": "import os\n##"}
    assert listed(run) == {"pkg/state", "train.py"}


def test_a_copy_that_was_interrupted_is_made_whole(tmp_path: Path) -> None:
    run = make(tmp_path, "assert open('pkg/model.py').read() == 'size = 3\\n'", "os.kill(os.getpid(), 9)")
    (run.dir / "work" / "pkg").mkdir(parents=True)
    (run.dir / "work" / "train.py").write_text(CODE["train.py"])
    (run.dir / "work" / "run.sh").write_text("the program's")
    (run.dir / "work" / "link").symlink_to("pkg/model.py")
    (run.dir / "work.list").touch()
    (run.dir / "work.list.gone").touch()
    assert run.run() == 137, run.log()
    assert not (run.dir / ".clusterkit-partial").exists()
    assert set(CODE) < tree(run.work).keys()
    assert listed(run) == {"run.sh"}


def test_a_file_with_the_size_and_time_of_the_code_is_known_by_its_content(tmp_path: Path) -> None:
    run = make(
        tmp_path,
        "before = os.stat('train.py')",
        "open('train.py', 'w').write('IMPORT os\\n')",
        "os.utime('train.py', ns=(before.st_atime_ns, before.st_mtime_ns))",
    )
    assert run.run() == 0
    assert tree(run.work) == {"train.py": "IMPORT os\n"}
    assert listed(run) == {"train.py"}


def test_a_start_up_file_of_bash_changes_nothing(tmp_path: Path) -> None:
    """Neither job.sh nor any bash of its own reads it."""
    run = make(tmp_path, "os.kill(os.getpid(), 9)")
    run.work.mkdir()
    (run.work / "run.sh").write_text("the program's")
    start_up = tmp_path / "start-up"
    start_up.write_text("echo noise\n")
    environment = {**os.environ, "BASH_ENV": str(start_up)}
    assert subprocess.run(["bash", "-p", str(run.path)], env=environment).returncode == 137
    assert "noise" not in (run.dir / "work.list").read_text()
    assert listed(run) == {"run.sh"}


def test_an_attempt_that_has_begun_keeps_its_code(tmp_path: Path) -> None:
    """The one before may end later: its node was out of reach."""
    run = make(tmp_path, "os.mkdir(os.environ['CLUSTERKIT_RUN_DIR'] + '/attempts/1')")
    assert run.run() == 0
    assert set(CODE) < tree(run.work).keys()


def test_folders_that_the_program_made_stay_when_empty(tmp_path: Path) -> None:
    run = make(tmp_path, "os.makedirs('out/of/mine')")
    assert run.run() == 0
    assert [path.name for path in run.work.iterdir()] == ["out"]
    assert (run.work / "out/of/mine").is_dir()


def test_a_folder_that_cannot_be_entered_keeps_no_code(tmp_path: Path) -> None:
    run = make(tmp_path, "os.mkdir('shut', 0)")
    assert run.run(PATH=f"{unentered(tmp_path)}:{os.environ['PATH']}") == 0
    assert [path.name for path in run.work.iterdir()] == ["shut"]


def test_a_working_directory_that_was_renamed_is_made_again(tmp_path: Path) -> None:
    run = make(tmp_path, "os.rename(os.getcwd(), '../mine')", "os._exit(85)")
    assert run.run() == 85
    assert set(CODE) < tree(run.dir / "mine").keys()
    shutil.rmtree(run.dir / "mine")
    assert run.run() == 85, run.log(1)


def test_a_system_without_gnu_tools_keeps_the_code(tmp_path: Path) -> None:
    """As BSD's: all of the working directory comes home, so that nothing is missing there."""
    tools = tmp_path / "tools"
    for name, option in {"find": "-printf", "mv": "-t", "cp": "--reflink*"}.items():
        refuses = f"for x do case $x in {option}) exit 1 ;; esac; done"
        write_program(tools, name, f'{refuses}\nexec {shutil.which(name)} "$@"')
    run = make(tmp_path, "open('new', 'w').write('n')")
    for number in range(2):
        assert run.run(PATH=f"{tools}:{os.environ['PATH']}") == 0, run.log(number)
    assert tree(run.work).keys() == tree(run.code).keys() | {"new"}


@pytest.mark.needs("a small disk")
def test_a_full_disk_is_said_before_the_program_starts(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", kib=2048) as disk:
        run = Run(disk, ["touch", str(tmp_path / "started")])
        (run.code / "large").write_bytes(os.urandom(3 << 19))
        assert run.run() == 1
        assert "No space left on device" in str(run.exit["detail"])
        assert run.exit["why"] == "failed"
    assert not (tmp_path / "started").exists()


def test_a_cancelled_run_keeps_no_code(tmp_path: Path) -> None:
    run = make(
        tmp_path,
        "open(os.environ['CLUSTERKIT_RUN_DIR'] + '/attempts/0/cancel.json', 'w').write('{\"requested\": 5}')",
        "open('mine', 'w').close()",
        "os.kill(os.getpid(), 15)",
    )
    assert run.run() == 143
    assert tree(run.work).keys() == {"mine"}


@pytest.mark.parametrize("way", ["path", "finder"])
def test_an_installed_project_is_imported_from_the_working_directory(tmp_path: Path, way: str) -> None:
    """As after `pip install -e`: by a folder on the path, or by a finder of setuptools."""
    run = make(tmp_path, "import mine", "print('mine is', mine.__file__)")
    run.code.chmod(0o700)
    site = tmp_path / "site"
    for folder in (tmp_path / "project", run.code):
        (folder / "src/mine").mkdir(parents=True)
        (folder / "src/mine/__init__.py").touch()
        (folder / "clusterkit.toml").touch()
    site.mkdir()
    places = {"mine": str(tmp_path / "project/src/mine")}
    (site / "__editable___mine_1_finder.py").write_text(f"MAPPING = {places!r}")
    (site / "sitecustomize.py").write_text("import __editable___mine_1_finder")
    place = site if way == "finder" else tmp_path / "project/src"
    assert run.run(PYTHONPATH=str(place)) == 0, run.log()
    assert f"mine is {run.work}/src/mine/__init__.py" in run.log()


def test_nothing_else_of_a_run_is_hidden_by_the_list(tmp_path: Path) -> None:
    """The list names files of the working directory only, with their times."""
    run = make(tmp_path, "open(os.environ['CLUSTERKIT_RUN_DIR'] + '/train.py', 'w').write('import os\\n')")
    assert run.run() == 0
    done = subprocess.run(list_argv(str(run.dir.parent)), input=b"./run-1", capture_output=True, check=True)
    names = {file.inside for file in parse_listing(done.stdout, {"run-1"}).files}
    assert {"train.py", "run.json", "attempts/0/exit.json"} <= names
    assert json.loads((run.dir / "attempts/0/exit.json").read_text())["why"] == "completed"
