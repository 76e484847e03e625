"""A project that a stranger has written: no command starts a program of it that its user has not allowed.

Every program of the stranger leaves a file. Its folder came as an archive, with a `.git` of the stranger's.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from clusterkit.cli.catalogue import SHORT
from clusterkit.runs.ledger import Ledger
from tests import forked
from tests.allowing import state
from tests.runs.test_ledger import run as a_run

COMMANDS = (
    "status",
    "status --all --json",
    "plan",
    "logs last",
    "why last",
    "doctor",
    "doctor --no-job",
    "submit --dry-run",
    "submit --script",
    "deploy --dry-run",
    "sync-results",
    "config",
    "docs own-project",
    "profiles",
    "storage list",
    "storage prune --ended --dry-run",
    "storage clean last --dry-run",
    "report last",
    "curves last --once",
    "export last",
    "diff last last",
    "cancel last",
    "resume last --dry-run",
    "shell last -- true",
    "ssh-config last",
    "forward last 8000",
    "login far",
    "logout far",
    "top last --once",
    "notify",
    "init far --yes --name far --force",
    "init --local --dry-run",
    "skill",
)
STARTING = (
    "submit",
    "run",
    "run python train.py",
    "rerun last",
    "ssh last",
    "dev",
    "rehearse",
    "search space",
    "tune",
    "evaluate last",
    "play last",
)
"""Commands that start the project's program: on this machine because they are typed, so they are typed where
it runs elsewhere."""
OTHERS = {"demo", "build", "completion"}
"""`demo` starts the program here, `build` reads nothing of a project, completion is tried by `TAB`."""
TAB = ("clusterkit status ", "clusterkit logs ", "clusterkit config ", "clusterkit submit --cluster ")
FAR = """
[clusters.far]
host = "far.invalid"
root = "/nowhere"
container = "none"
"""
BASE = """
[project]
name = "gift"
default_cluster = "{cluster}"
default_profile = "tiny"
program = ["python", "train.py"]
[profiles.tiny]
time = "5m"
"""


@dataclass(frozen=True)
class Gift:
    """A stranger's project in the folder `gift`, and the home folder of whoever looks at it."""

    folder: Path
    home: Path

    @property
    def canary(self) -> Path:
        """The file that a program of the stranger leaves."""
        return self.home / "ran"

    @property
    def touch(self) -> str:
        """A shell command of the stranger's."""
        return f"touch {self.canary}"

    def script(self, name: str, *, python: bool = False) -> Path:
        """A program of the stranger's in the folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = f"open({str(self.canary)!r}, 'w')\n" if python else f"#!/bin/sh\n{self.touch}\n"
        file.write_text(text)
        file.chmod(0o755)
        return file

    def settings(self, text: str, *, cluster: str = "far") -> None:
        """Writes clusterkit.toml."""
        base = BASE.format(cluster=cluster)
        if "[project]\n" in text:  # one table is written once
            text, _, more = text.partition("[project]\n")
            base = base.replace("[project]\n", f"[project]\n{more}")
        (self.folder / "clusterkit.toml").write_text(base + text)

    def has_ssh(self, text: str) -> None:
        """Names a configuration of ssh with this text in the settings."""
        self.settings(FAR + 'ssh_config = "ssh_config"\n')
        (self.folder / "ssh_config").write_text(text)

    def commit(self) -> None:
        """Makes a repository of the folder, with all of it in a commit."""
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
            git(self.folder, *words)

    def refused(self, *words: str, **variables: str) -> str:
        """What a command says that is refused for want of permission, and has started nothing."""
        done = self.types(*words, **variables)
        assert (done.returncode, self.canary.exists()) == (10, False), words
        return done.stderr

    def types(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of clusterkit as whoever looks at it."""
        own = {"HOME": str(self.home), "PATH": os.environ["PATH"], "COLUMNS": "300", **state()}
        env = forked.of_python() | own | variables
        return forked.run(words, folder=self.folder, env=env)

    def survives(self, *more: str) -> None:
        """Types every command, and lets the shell complete."""
        for line in (*COMMANDS, *more):
            done = self.types(*line.split())
            assert not self.canary.exists(), f"{line}:\n{done.stdout}{done.stderr}"
            assert done.returncode != 70, f"{line}:\n{done.stdout}{done.stderr}"
        for line in TAB:
            self.types(_CLUSTERKIT_LINE=line, _CLUSTERKIT_SHELL="bash")
            assert not self.canary.exists(), line


@pytest.fixture
def gift(tmp_path: Path) -> Gift:
    home = tmp_path / "home"
    folder = home / "Downloads" / "gift"
    folder.mkdir(parents=True)
    made = Gift(folder, home)
    (folder / "train.py").write_text("print('hello')\n")
    with Ledger(folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        ledger.add(replace(a_run("tiny-20260101-000001-k3f9", "700001", "far"), state="RUNNING"))
    return made


def test_every_command_is_typed() -> None:
    lines = [*COMMANDS, *STARTING, *OTHERS]
    assert {name for name in SHORT if not any(f"{line} ".startswith(f"{name} ") for line in lines)} == set()


SSH = {
    "ProxyCommand": "Host *\n  ProxyCommand {touch}\n",
    "Match exec": 'Match exec "{touch}"\n  User x\n',
    "KnownHostsCommand": "Host *\n  KnownHostsCommand /bin/sh -c '{touch}'\n  ProxyCommand none\n",
    "LocalCommand": "Host *\n  PermitLocalCommand yes\n  LocalCommand {touch}\n",
    "PKCS11Provider": "Host *\n  PKCS11Provider {folder}/evil.so\n",
    "Include": "Include {folder}/more\n",
    "ProxyJump": "Host far.invalid\n  ProxyJump hop\nHost hop\n  ProxyCommand {touch}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SSH)
def test_ssh_configuration_of_a_stranger_is_not_read(gift: Gift, name: str) -> None:
    gift.has_ssh(SSH[name].format(touch=gift.touch, folder=gift.folder))
    (gift.folder / "more").write_text(SSH["Match exec"].format(touch=gift.touch))
    gift.survives(*STARTING)
    refused = gift.refused("status")
    assert "clusterkit.toml:14: clusters.far.ssh_config = " in refused
    assert "`clusterkit config allow`" in refused


@pytest.mark.needs("ssh")
def test_ssh_configuration_that_is_allowed_is_read_until_it_changes(gift: Gift) -> None:
    gift.has_ssh(f"Include {gift.folder}/more\n")
    (gift.folder / "more").write_text('Match exec "./proxy.sh"\n  User x\n')
    gift.script("proxy.sh")
    allowed = gift.types("config", "allow")
    assert [line.strip() for line in allowed.stdout.splitlines()][1:] == ["more", "proxy.sh", "ssh_config"]
    gift.types("status")
    assert gift.canary.exists()
    for name in ("ssh_config", "more", "proxy.sh"):
        before = (gift.folder / name).read_text()
        (gift.folder / name).write_text(f"{before}# changed\n")
        gift.canary.unlink(missing_ok=True)
        assert "(changed)" in gift.refused("status"), name
        (gift.folder / name).write_text(before)
    gift.settings(FAR + 'ssh_config = "ssh_config"\n[profiles.other]\ntime = "2h"\n')
    gift.types("status")
    assert gift.canary.exists()
    gift.canary.unlink()
    assert "no longer allowed" in gift.types("config", "allow", "--revoke").stderr
    gift.refused("status")


@pytest.mark.needs("ssh")
def test_ssh_configuration_of_ones_own_settings_may_not_lie_in_a_strangers_folder(gift: Gift) -> None:
    gift.settings("")
    own = gift.home / ".config" / "clusterkit" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(FAR + 'ssh_config = "ssh_config"\n')
    (gift.folder / "ssh_config").write_text(SSH["Match exec"].format(touch=gift.touch))
    gift.refused("status")
    own.write_text(FAR + f'ssh_config = "{gift.home}/ssh_config"\n')
    (gift.home / "ssh_config").write_text(SSH["Match exec"].format(touch=gift.touch))
    gift.types("status")
    assert gift.canary.exists()


@pytest.mark.slow
def test_commands_of_secrets_and_notices_are_not_started(gift: Gift) -> None:
    script = gift.script("evil.sh")
    gift.settings(
        f'[secrets]\nnames = ["TOKEN"]\ncommands = {{ TOKEN = ["{script}"] }}\n'
        f'[notify]\ncommand = ["./evil.sh"]\nwebhook_command = ["sh", "-c", "{gift.touch}"]\n'
        'webhook_kind = "json"\nfrom_job = true\n',
        cluster="local",
    )
    gift.survives()
    for line in ("submit --dry-run", "submit", "notify"):
        refused = gift.refused(*line.split())
        for key in ("secrets.commands.TOKEN", "notify.command", "notify.webhook_command"):
            assert key in refused


@pytest.mark.slow
def test_modules_of_a_strangers_folder_are_not_imported(gift: Gift) -> None:
    gift.settings('[secrets]\nnames = ["TOKEN"]\n', cluster="local")
    for name in ("keyring.py", "json.py", "sitecustomize.py", "usercustomize.py", "matplotlib.py"):
        gift.script(name, python=True)
    gift.script("keyring/__main__.py", python=True)
    for name in ("keyring", "ssh", "git", "ps", "rsync", "wandb", "sh", "bash"):
        if not (gift.folder / name).exists():
            gift.script(name)
    gift.survives()


def test_own_commands_do_not_start_in_a_strangers_folder(gift: Gift) -> None:
    own = gift.home / ".config" / "clusterkit" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        '[secrets]\nnames = ["TOKEN"]\n'
        f'commands = {{ TOKEN = ["{sys.executable}", "-c", "import colorsys; print(\'0123456789\')"] }}\n'
    )
    gift.settings("", cluster="local")
    gift.script("colorsys.py", python=True)
    assert gift.types("submit", "--dry-run").returncode == 0
    assert not gift.canary.exists()


@pytest.mark.slow
def test_nothing_that_doctor_would_start_here(gift: Gift) -> None:
    gift.script(".venv/bin/python")
    gift.script("evil/json.py", python=True)
    text = f'[clusters.local]\nprelude = ["{gift.touch}"]\n'
    text += f'[clusters.bare]\nroot = "~/x"\ncontainer = "apptainer"\nprelude = ["{gift.touch}"]\n'
    text += f'[profiles.tiny.env]\nPYTHONPATH = "{gift.folder}/evil"\nBASH_ENV = "{gift.script("rc")}"\n'
    gift.settings(text, cluster="local")
    gift.survives()
    for words in (("doctor",), ("doctor", "-c", "bare"), ("doctor", "--no-job")):
        said = gift.types(*words).stdout
        assert not gift.canary.exists()
        assert "clusterkit config allow" in said
    gift.types("config", "allow")
    gift.types("doctor")
    assert gift.canary.exists()


HOSTS = ("$({touch})", "a;{touch}", "`{touch}`", "x@a|{touch}", "-oProxyCommand={touch}", "a\\n{touch}")


@pytest.mark.parametrize("host", HOSTS)
def test_host_is_no_shell_line_for_ones_own_proxy_command(gift: Gift, host: str) -> None:
    ssh = gift.home / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text('Match exec "true %n"\n  ProxyCommand true %h %n %r\n')
    gift.settings(FAR.replace("far.invalid", host.format(touch=gift.touch.replace(" ", "${{IFS}}"))))
    gift.types("status")
    assert not gift.canary.exists()


@pytest.mark.parametrize("root", ["~/$({touch})", "~/`{touch}`", "~/x';{touch};'", '~/x\\";{touch};\\"'])
def test_root_on_this_machine_is_no_shell_line(gift: Gift, root: str) -> None:
    gift.settings(f'[clusters.local]\nroot = "{root.format(touch=gift.touch)}"\n', cluster="local")
    for line in ("plan", "submit --dry-run", "storage list", "deploy --dry-run", "status --all"):
        gift.types(*line.split())
        assert not gift.canary.exists(), line


def git(folder: Path, *words: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.environ["PATH"]}
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, env=own, capture_output=True)


def fsmonitor(gift: Gift) -> None:
    git(gift.folder, "config", "core.fsmonitor", gift.touch)


def hooks(gift: Gift) -> None:
    for name in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction"):
        gift.script(f".git/hooks/{name}")
    (gift.folder / ".env").write_text("SECRET=1\n")  # left-out files are looked at in an index of our own


def hooks_path(gift: Gift) -> None:
    hooks(gift)
    shutil.move(gift.folder / ".git" / "hooks", gift.folder / "hooks")
    git(gift.folder, "config", "core.hooksPath", "hooks")


def filters(gift: Gift) -> None:
    (gift.folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for key in ("clean", "smudge", "process"):
        git(gift.folder, "config", f"filter.evil.{key}", f"{gift.touch}; cat")
    git(gift.folder, "config", "filter.evil.required", "true")
    for key in ("diff.external", "diff.evil.textconv", "diff.evil.command"):
        git(gift.folder, "config", key, gift.touch)


def included(gift: Gift) -> None:
    (gift.folder / "more").write_text(
        f'[core]\n\tfsmonitor = "{gift.touch}"\n[filter "evil"]\n\tclean = "{gift.touch}"\n'
    )
    (gift.folder / ".gitattributes").write_text("* filter=evil\n")
    git(gift.folder, "config", "include.path", "../more")


def in_worktree_scope(gift: Gift) -> None:
    (gift.folder / ".gitattributes").write_text("* filter=evil\n")
    git(gift.folder, "config", "extensions.worktreeConfig", "true")
    git(gift.folder, "config", "--worktree", "filter.evil.clean", f"{gift.touch}; cat")


def equals_sign(gift: Gift) -> None:
    (gift.folder / ".gitattributes").write_text("* filter=a=b\n")
    git(gift.folder, "config", "filter.a=b.clean", f"{gift.touch}; cat")


def nested(gift: Gift) -> None:
    inner = gift.folder / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a.txt").write_text("a\n")
    git(inner, "config", "core.fsmonitor", gift.touch)


def submodule(gift: Gift) -> None:
    source = gift.home / "source"
    source.mkdir()
    (source / "a.txt").write_text("a\n")
    (source / ".gitattributes").write_text("* filter=evil\n")
    replace(gift, folder=source).commit()
    git(gift.folder, "submodule", "-q", "add", str(source), "sub")
    git(gift.folder, "commit", "-qm", "sub")
    git(gift.folder / "sub", "config", "core.fsmonitor", gift.touch)
    git(gift.folder / "sub", "config", "filter.evil.clean", f"{gift.touch}; cat")
    git(gift.folder / "sub", "config", "filter.evil.process", gift.touch)
    (gift.folder / "sub" / "a.txt").write_text("b\n")
    gift.canary.unlink(missing_ok=True)


def lazy_fetch(gift: Gift) -> None:
    git(gift.folder, "config", "extensions.partialClone", "origin")
    git(gift.folder, "config", "remote.origin.url", f"ext::{gift.touch.replace(' ', '% ')}")
    git(gift.folder, "config", "remote.origin.promisor", "true")
    git(gift.folder, "config", "protocol.ext.allow", "always")
    git(gift.folder, "config", "protocol.allow", "always")
    for blob in (gift.folder / ".git" / "objects").glob("??/*"):
        kind = ["git", "-C", str(gift.folder), "cat-file", "-t", blob.parent.name + blob.name]
        if subprocess.run(kind, capture_output=True).stdout == b"blob\n":
            blob.unlink()
    gift.canary.unlink(missing_ok=True)


def bare_inside(gift: Gift) -> None:
    """The project is a bare repository's folder inside the stranger's repository."""
    git(gift.folder.parent, "init", "-q")
    shutil.rmtree(gift.folder / ".git")
    git(gift.folder.parent, "init", "-q", "--bare", str(gift.folder / "bare.tmp"))
    for path in (gift.folder / "bare.tmp").iterdir():
        shutil.move(path, gift.folder / path.name)
    for setting in (("fsmonitor", gift.touch), ("bare", "false"), ("worktree", str(gift.folder))):
        git(gift.folder.parent, "config", "-f", str(gift.folder / "config"), f"core.{setting[0]}", setting[1])
    gift.canary.unlink(missing_ok=True)


GIT = (
    fsmonitor,
    hooks,
    hooks_path,
    filters,
    included,
    in_worktree_scope,
    equals_sign,
    nested,
    submodule,
    lazy_fetch,
    bare_inside,
)


@pytest.mark.slow
@pytest.mark.parametrize("attack", GIT)
def test_git_starts_nothing_that_the_repository_names(gift: Gift, attack: Callable[[Gift], None]) -> None:
    gift.settings("", cluster="local")
    (gift.folder / ".gitignore").write_text(".clusterkit\n")
    gift.commit()
    attack(gift)
    (gift.folder / "train.py").write_text("print('changed')\n")
    gift.canary.unlink(missing_ok=True)
    for line in ("submit --dry-run", "plan", "doctor --no-job", "deploy --dry-run", "status"):
        done = gift.types(*line.split())
        assert not gift.canary.exists(), f"{line}:\n{done.stdout}{done.stderr}"
        assert done.returncode != 70


def test_own_filter_of_git_is_used(gift: Gift) -> None:
    """A program of the user's own configuration of git is no stranger's."""
    (gift.home / ".gitconfig").write_text(f'[filter "own"]\n\tclean = "{gift.touch}; cat"\n')
    gift.settings("", cluster="local")
    gift.commit()
    (gift.folder / ".gitattributes").write_text("* filter=own\n")
    git(gift.folder, "config", "filter.own.clean", "false")
    (gift.folder / "train.py").write_text("print('changed')\n")
    assert gift.types("submit", "--dry-run").returncode == 0
    assert gift.canary.exists()


def test_init_allows_what_one_wrote_and_nothing_of_a_stranger(gift: Gift) -> None:
    gift.has_ssh(SSH["Match exec"].format(touch=gift.touch))
    done = gift.types("init", "--local", "--yes", "--force", "--program", "python train.py")
    assert done.returncode == 0, done.stderr
    gift.refused("status")
    (gift.folder / "clusterkit.toml").unlink()
    own = gift.script(".venv/bin/python")
    assert gift.types("init", "--local", "--yes", "--program", "python train.py").returncode == 0
    assert gift.types("doctor", "--no-job").returncode in (0, 1)
    assert "config allow" not in gift.types("doctor", "--no-job").stdout
    own.write_text("#!/bin/sh\nexit 3\n")
    assert "config allow" in gift.types("doctor", "--no-job").stdout


def test_permission_is_private_and_only_ones_own(gift: Gift) -> None:
    gift.has_ssh("Host *\n")
    place = {"XDG_STATE_HOME": str(gift.home / "state")}
    done = gift.types("config", "allow", "--json", **place)
    assert '"key": "clusters.far.ssh_config"' in done.stdout
    (record,) = (gift.home / "state" / "clusterkit" / "allowed").iterdir()
    assert (record.stat().st_mode & 0o777, record.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert gift.types("status", **place).returncode != 10
    record.chmod(0o620)
    gift.refused("status", **place)
    record.chmod(0o600)
    record.write_text("{")
    gift.refused("status", **place)
    Gift(gift.folder.rename(gift.folder.with_name("moved")), gift.home).refused("status")


def run_of_a_stranger(gift: Gift, run_id: str, files: dict[str, str]) -> None:
    """A run on this machine that came with the project, and is among its ledger's."""
    folder = gift.folder / "root" / "runs" / run_id
    for name, text in {"run.json": json.dumps({"schema": 1, "run_id": run_id}), **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with Ledger(gift.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        (run,) = ledger.runs()
        state = {"run_id": run_id, "cluster": "local", "run_dir": str(folder), "state": "COMPLETED"}
        ledger.add_all([replace(run, **state)])


ROOT = '[clusters.local]\nroot = "~/Downloads/gift/root"\n'


@pytest.mark.parametrize("way", ["~/.vim/pack", "$HOME/.vim/pack", "../../.vim/pack", ".venv/lib", "link"])
def test_results_are_not_written_where_other_programs_read(gift: Gift, way: str) -> None:
    pack = gift.home / ".vim" / "pack"
    pack.mkdir(parents=True)
    if way == "link":
        (gift.folder / "results").symlink_to("../../.vim/pack")
    gift.settings(ROOT + ("" if way == "link" else f'[project]\nresults = "{way}"\n'), cluster="local")
    run_of_a_stranger(gift, "x", {"start/evil/plugin/evil.vim": "call system('x')\n"})
    for line in ("sync-results x", "sync-results x --watch", "export x"):
        assert "project.results = " in gift.refused(*line.split()), line
    assert list(pack.iterdir()) == []
    gift.types("config", "allow")
    assert gift.types("sync-results", "x").returncode == 0


@pytest.mark.slow
def test_metrics_go_to_no_server_of_a_stranger(gift: Gift) -> None:
    gift.settings(f'{ROOT}[project.trackers]\nmlflow = "http://127.0.0.1:9"\n', cluster="local")
    run_of_a_stranger(gift, "x", {"metrics.jsonl": '{"step": 1, "loss": 1}\n'})
    assert "project.trackers.mlflow = http://127.0.0.1:9" in gift.refused("sync-results", "x")
    own = gift.types("sync-results", "x", "--mlflow", str(gift.home / "mlruns"))
    assert own.returncode == 0, own.stderr


@pytest.mark.parametrize("name", [".clusterkit", ".clusterkit/ssh", ".clusterkit/ledger.sqlite3"])
def test_links_of_a_stranger_let_nothing_be_removed_or_written(gift: Gift, name: str) -> None:
    gift.settings("", cluster="local")
    run_of_a_stranger(gift, "thesis", {})
    for folder in ("work", "thesis"):
        (gift.home / folder / "inner").mkdir(parents=True)
    place = gift.folder / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(gift.home / "new" if place.suffix == ".sqlite3" else gift.home)
    before = sorted(gift.home.rglob("*"))
    for line in ("status", "logs last", "sync-results", "submit --dry-run", "cancel last --yes"):
        done = gift.types(*line.split())
        assert sorted(gift.home.rglob("*")) == before, line
        assert f"{name}: is a link" in done.stderr


@pytest.mark.parametrize("folder", ["gift", "gift/.git beside"])
def test_permission_covers_files_above_the_settings(gift: Gift, folder: str) -> None:
    inner = Gift(gift.folder / "inner", gift.home)
    inner.folder.mkdir()
    if folder != "gift":
        git(inner.folder, "init", "-q")  # as a submodule has
    inner.settings('[notify]\ncommand = ["../tell.sh"]\n')
    gift.script("tell.sh").write_text("#!/bin/sh\ntrue\n")
    assert "tell.sh" in inner.types("config", "allow").stdout
    gift.script("tell.sh")
    inner.refused("notify")


INCLUDES = (
    '"Include" {folder}/d/*',
    "Include {folder}/d/mor\\e",
    "Include {folder}/'d'/more",
    "Include {folder}/d/[m]ore",
)


@pytest.mark.parametrize("line", INCLUDES)
def test_included_file_is_known_however_it_is_written(gift: Gift, line: str) -> None:
    gift.has_ssh(line.format(folder=gift.folder) + "\n")
    (gift.folder / "d").mkdir()
    (gift.folder / "d" / "more").write_text("Host *\n")
    allowed = gift.types("config", "allow")
    assert "d/more" in allowed.stdout or "cannot follow" in allowed.stderr
    (gift.folder / "d" / "more").write_text(SSH["Match exec"].format(touch=gift.touch))
    gift.refused("status")


@pytest.mark.needs("ssh")
def test_settings_named_by_an_option_need_the_same_permission(gift: Gift) -> None:
    gift.has_ssh(SSH["Match exec"].format(touch=gift.touch))
    (gift.folder / "clusterkit.toml").rename(gift.folder / "other.toml")
    refused = gift.refused("status", "--config", "other.toml")
    assert "`clusterkit config allow --config other.toml`" in refused
    assert gift.types("config", "allow", "--config", "other.toml").returncode == 0
    gift.types("status", "--config", "other.toml")
    assert gift.canary.exists()
