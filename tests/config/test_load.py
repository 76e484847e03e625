"""Layers: who wins, what is inherited, where files are looked for, and where each value came from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterkit.config.layers import shipped_profiles
from clusterkit.config.settings import load_settings
from clusterkit.errors import ConfigError
from tests.config.conftest import Place


def test_without_any_file_there_is_the_local_cluster_and_the_demo(place: Place) -> None:
    settings = load_settings()
    local = settings.cluster()
    assert (local.name, local.kind, local.host, local.container) == ("local", "local", None, "none")
    assert local.root == f"{place.project}/.clusterkit/local"
    assert local.scratch_root == f"{place.project}/.clusterkit/local/scratch"
    assert settings.profile().name == "local-demo"
    assert settings.project.name == "my-project"
    assert settings.project.results == place.project / "results"
    assert settings.project_dir == place.project
    assert settings.files == ()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("mlruns", "{project}/mlruns"),
        ("/far/mlruns", "/far/mlruns"),
        ("sqlite:///results/m l.db", "sqlite:///{project}/results/m l.db"),
        ("sqlite:////far/m.db", "sqlite:////far/m.db"),
        ("https://host:5000/path", "https://host:5000/path"),
    ],
)
def test_a_place_of_mlflow_starts_at_the_project(place: Place, written: str, read: str) -> None:
    place.write(f"[project.trackers]\nmlflow = '{written}'")
    assert place.load().project.trackers["mlflow"] == read.format(project=place.project)


def test_later_layers_win_key_by_key(place: Place) -> None:
    place.user('[profiles.a40-2m]\ntime = "2h"\nmemory = "10G"\n[project]\nwandb.entity = "me"')
    place.write('[profiles.a40-2m]\ntime = "3h"\n[project]\nwandb.project = "mt"')
    settings = load_settings().with_values({"profiles": {"a40-2m": {"num_envs": 7}}})
    profile = settings.profile("a40-2m")
    assert (profile.num_envs, profile.time, profile.memory) == (7, 3 * 3600, 10 * 2**30)
    assert profile.recipe == "guide-mt10"
    assert (settings.project.wandb.entity, settings.project.wandb.project) == ("me", "mt")


def test_every_value_knows_its_file_and_line(place: Place) -> None:
    place.user('[profiles.a40-2m]\nmemory = "10G"\n')
    place.write('# mine\n[profiles.a40-2m]\ntime = "3h"\nenv.A = "1"\n[clusters.x]\nroot = "/x"\n')
    settings = load_settings().with_values({"profiles": {"a40-2m": {"num_envs": 7}}})
    shown = {
        key: str(settings.origin(f"profiles.a40-2m.{key}"))
        for key in ("time", "memory", "num_envs", "seed", "device", "env.A")
    }
    assert shown == {
        "time": "clusterkit.toml:3",
        "memory": "~/.config/clusterkit/config.toml:2",
        "num_envs": "command line",
        "seed": "default",
        "device": "default",
        "env.A": "clusterkit.toml:4",
    }
    assert str(settings.origin("profiles.a40-2m.recipe")).startswith("built-in a40-2m.toml:")
    assert str(settings.origin("clusters.x.root")) == "clusterkit.toml:6"
    assert str(settings.origin("clusters.local.root")) == "built-in"
    with pytest.raises(ConfigError, match=r"there is no setting profiles\.a40-2m\.tme"):
        settings.origin("profiles.a40-2m.tme")


def test_the_shipped_line_is_the_one_in_the_file(place: Place) -> None:
    origin = load_settings().origin("profiles.a40-2m.num_envs")
    lines = shipped_profiles()["a40-2m"].read_text().splitlines()
    assert lines[origin.line - 1] == "num_envs = 32"


def test_extends_takes_what_is_not_named_and_keeps_its_origin(place: Place) -> None:
    place.write(
        '[profiles.base]\nextends = "a40-2m"\nenv = { A = "1", B = "1" }\nsbatch.qos = "low"\n'
        '[profiles.mine]\nextends = "base"\ntotal_steps = 5_000_000\nenv.B = "2"\nsbatch.exclusive = true\n'
    )
    settings = load_settings()
    mine = settings.profile("mine")
    assert (mine.name, mine.gpu, mine.total_steps, mine.num_envs) == ("mine", "a40", 5_000_000, 32)
    assert dict(mine.env) == {"A": "1", "B": "2"}
    assert dict(mine.sbatch) == {"qos": "low", "exclusive": True}
    assert str(settings.origin("profiles.mine.env.A")) == "clusterkit.toml:3"
    assert str(settings.origin("profiles.mine.env.B")) == "clusterkit.toml:8"
    assert str(settings.origin("profiles.mine.gpu")).startswith("built-in a40-2m.toml:")
    assert settings.profile("base").total_steps == 2_000_000


def test_an_extended_gpu_can_be_taken_back(place: Place) -> None:
    mine = place.load('[profiles.mine]\nextends = "a40-2m"\ngpu = "none"').profile("mine")
    assert (mine.gpu, mine.gpu_count, mine.device, mine.mujoco_gl) == (None, 0, "auto", None)


@pytest.mark.parametrize(
    ("toml", "cause"),
    [
        ('[profiles.a]\nextends = "a"', "clusterkit.toml:2: profiles.a.extends: a extends a"),
        (
            '[profiles.a]\nextends = "b"\n[profiles.b]\nextends = "a"',
            "clusterkit.toml:4: profiles.b.extends: a extends b extends a",
        ),
        ('[profiles.a]\nextends = "a40-2"', "profiles.a.extends: there is no profile 'a40-2'"),
        ("[profiles.a]\nextends = 3", "profiles.a.extends: there is no profile 3"),
    ],
)
def test_extends_in_a_circle_or_into_nothing(place: Place, toml: str, cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place.load(toml)
    assert caught.value.cause.endswith(cause)
    assert caught.value.hint


def test_the_project_file_is_found_upwards(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write('[project]\nname = "up"')
    below = place.project / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    settings = load_settings()
    assert settings.project.name == "up"
    assert settings.project_dir == place.project
    assert str(settings.origin("project.name")) == "~/work/my-project/clusterkit.toml:2"


def test_a_file_in_the_home_folder_does_not_make_the_home_a_project(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.home / "clusterkit.toml").write_text('[project]\nname = "home"')
    assert load_settings().project.name == "my-project"
    monkeypatch.chdir(place.home)
    assert load_settings().project.name == "home"


def test_a_named_file_is_the_project(place: Place) -> None:
    place.write('[project]\nname = "here"')
    other = place.home / "elsewhere" / "other.toml"
    other.parent.mkdir()
    other.write_text('[project]\nresults = "out"\n[clusters.x]\nroot = "/x"\nimage = "~/a.sif"')
    settings = load_settings(config=other)
    assert settings.project_dir == other.parent
    assert settings.project.results == other.parent / "out"
    assert settings.cluster("x").image == place.home / "a.sif"
    assert settings.files == (other,)


def test_local_paths_expand_variables(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder named `$HOME` would be made else."""
    monkeypatch.setenv("LARGE", "/large")
    trackers = 'tensorboard = "$LARGE/tb"\nmlflow = "sqlite:///${LARGE}/mlflow.db"'
    place.write(f'[project]\nresults = "$HOME/out"\n[project.trackers]\n{trackers}')
    project = load_settings().project
    assert project.results == place.home / "out"
    assert project.trackers == {"tensorboard": "/large/tb", "mlflow": "sqlite:////large/mlflow.db"}


def test_the_users_file_follows_xdg(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.user('[project]\nname = "home"')
    folder = place.home / "xdg" / "clusterkit"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('[project]\nname = "xdg"')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place.home / "xdg"))
    assert load_settings().project.name == "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert load_settings().project.name == "home"


def test_values_of_the_command_line_are_checked_like_a_file(place: Place) -> None:
    settings = load_settings()
    assert settings.with_values({"profiles": {"a40-2m": {"time": "2h"}}}).profile("a40-2m").time == 7200
    assert settings.profile("a40-2m").time == 4 * 3600
    with pytest.raises(ConfigError, match=r"^command line: profiles\.a40-2m\.time: '2' is not a duration"):
        settings.with_values({"profiles": {"a40-2m": {"time": "2"}}})


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (
            b"[project\nname = 1",
            "clusterkit.toml:1: not valid TOML: Expected ']' at the end of a table declaration",
        ),
        (b"[project]\nname = my", "clusterkit.toml:2: not valid TOML: Invalid value"),
        (b'[project]\nname = "x"\nname = "y"', "clusterkit.toml:3: not valid TOML: Cannot overwrite a value"),
        (b"a = [1,\n2\n", "clusterkit.toml:2: not valid TOML: Unclosed array"),
        (b"[project]\nname = '\xff'", "clusterkit.toml: is not UTF-8 at byte 18"),
    ],
)
def test_a_broken_file_is_named_with_its_line(place: Place, data: bytes, cause: str) -> None:
    (place.project / "clusterkit.toml").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert caught.value.cause == cause
    assert caught.value.hint


def test_a_byte_order_mark_changes_nothing(place: Place) -> None:
    (place.project / "clusterkit.toml").write_bytes(b'\xef\xbb\xbf[project]\nname = "x"\n')
    assert load_settings().project.name == "x"


@pytest.mark.parametrize("broken", ["folder", "link"])
@pytest.mark.parametrize("whose", ["project", "user"])
def test_a_file_that_cannot_be_one_is_not_passed_over(place: Place, broken: str, whose: str) -> None:
    file = place.project / "clusterkit.toml"
    if whose == "user":
        file = place.user("")
        file.unlink()
    if broken == "folder":
        file.mkdir()
    else:
        file.symlink_to("gone.toml")
    words = {"folder": "is a folder", "link": "cannot be read"}
    with pytest.raises(ConfigError, match=words[broken]) as caught:
        load_settings()
    assert caught.value.hint


def test_a_missing_file_is_named(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"^nowhere\.toml: cannot be read: No such file"):
        load_settings(config=Path("nowhere.toml"))


@pytest.mark.parametrize(
    ("ask", "cause", "hint"),
    [
        ("cluster", "there is no cluster 'datalb'", "did you mean datalab? available: datalab, local"),
        ("profile", "there is no profile 'datalb'", "available: a100-20m, "),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(place: Place, ask: str, cause: str, hint: str) -> None:
    settings = place.load('[clusters.datalab]\nroot = "/share"')
    with pytest.raises(ConfigError) as caught:
        getattr(settings, ask)("datalb")
    assert caught.value.cause == cause
    assert caught.value.hint.startswith(hint)


def test_a_default_that_does_not_exist_is_blamed_on_its_line(place: Place) -> None:
    settings = place.load('[project]\ndefault_profile = "a40-2n"')
    with pytest.raises(ConfigError) as caught:
        settings.profile()
    assert caught.value.cause == "clusterkit.toml:2: project.default_profile: there is no profile 'a40-2n'"
    assert caught.value.hint.startswith("did you mean a40-2m?")


@pytest.mark.parametrize("marked", ["run.json", "the project's results"])
def test_settings_that_came_with_a_run_are_not_read(
    place: Place, monkeypatch: pytest.MonkeyPatch, marked: str
) -> None:
    """They name programs that run as the user, as `ssh_config` does."""
    if marked != "run.json":
        place.write('[project]\nresults = "results"')
    run = place.project / "results" / "run-1"
    (run / "sub").mkdir(parents=True)
    if marked == "run.json":
        (run / "run.json").write_text('{"run_id": "run-1"}')
    theirs = run / "sub" / "clusterkit.toml"
    theirs.write_text('[project]\nname = "theirs"')
    monkeypatch.chdir(theirs.parent)
    with pytest.raises(ConfigError, match="came with results") as caught:
        load_settings()
    assert caught.value.hint == "only if you trust it: --config clusterkit.toml"
    assert load_settings(config=theirs).project.name == "theirs"
    theirs.unlink()
    assert load_settings().project_dir == (run / "sub" if marked == "run.json" else place.project)


@pytest.mark.needs("root")
@pytest.mark.parametrize("planted", ["clusterkit.toml", "."])
def test_settings_of_another_user_are_not_read(
    place: Place, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    file = place.write('[project]\nname = "theirs"')
    inner = place.project / "mine"
    inner.mkdir()
    os.chown(place.project / planted, 41002, 41002)
    monkeypatch.chdir(inner)
    with pytest.raises(ConfigError, match=r"belongs to another user \(number 41002\)"):
        load_settings()
    assert load_settings(config=file).project.name == "theirs"
    os.chown(inner, 41002, 41002)  # as in a container, whose root works in a user's folder
    assert load_settings().project.name == "theirs"
