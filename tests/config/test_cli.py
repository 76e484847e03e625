"""`clusterkit config` and `clusterkit profiles`, as typed."""

from __future__ import annotations

import tomllib

import pytest
from typer.testing import CliRunner

from clusterkit.cli.app import app
from clusterkit.cli.complete import project, values_of
from clusterkit.cli.ui.console import out
from clusterkit.config.settings import load_settings
from clusterkit.errors import ConfigError
from tests.config.conftest import Place


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(place, monkeypatch)


class Run:
    """Runs a command in the test's project; 120 columns unless said otherwise."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.columns(120, monkeypatch)

    def columns(self, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(out, "_width", width)

    def __call__(self, *argv: str) -> str:
        result = CliRunner().invoke(app, argv)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout


def test_the_output_is_toml_that_means_the_same(run: Run) -> None:
    run.place.write(
        '[project]\ndefault_cluster = "x"\nexclude = ["a \\"b\\"", "ü"]\n'
        '[clusters.x]\nroot = "/data/$USER"\ngpus."1g.10gb".memory = "10G"\nsbatch.exclusive = true\n'
        '[profiles.mine]\nextends = "a40-2m"\ntime = "1d"\n'
    )
    first = run("config")
    run.place.write("\n".join(line for line in first.splitlines() if not line.startswith('name = "')))
    assert run("config") == first
    document = tomllib.loads(first)
    assert document["clusters"]["x"]["gpus"]["1g.10gb"]["memory"] == "10G"
    assert document["profiles"]["mine"]["time"] == "1d"
    assert document["project"]["exclude"] == ['a "b"', "ü"]


def test_only_profiles_of_ones_own_are_shown_unless_all(run: Run) -> None:
    run.place.write('[profiles.a40-2m]\ntime = "1d"\n')
    assert set(tomllib.loads(run("config"))["profiles"]) == {"a40-2m", "local-demo"}
    assert "built-in profiles are not shown" in run("config")
    assert len(tomllib.loads(run("config", "--all"))["profiles"]) == 28


def test_origins_stand_behind_the_values(run: Run) -> None:
    run.place.write('[profiles.a40-2m]\ntime = "1d"\n')
    text = run("config", "profiles.a40-2m", "--show-origin")
    lines = {line.split(" = ")[0]: line.split("  # ")[1] for line in text.splitlines() if " = " in line}
    assert lines["time"] == "clusterkit.toml:2"
    assert lines["num_envs"].startswith("built-in a40-2m.toml:")
    assert lines["seed"] == "default"
    assert tomllib.loads(text)["profiles"]["a40-2m"]["time"] == "1d"


def test_one_value(run: Run) -> None:
    assert tomllib.loads(run("config", "profiles.a40-2m.time")) == {"profiles": {"a40-2m": {"time": "4h"}}}


@pytest.mark.parametrize("key", ["profiles.a40-2", "profils", "a b", "profiles.a40-2m.tim"])
def test_an_unknown_key_is_an_error(run: Run, key: str) -> None:
    with pytest.raises(ConfigError):
        run("config", key)


def test_another_file(run: Run) -> None:
    other = run.place.home / "other.toml"
    other.write_text('[profiles.theirs]\nextends = "check"\n')
    assert "[profiles.theirs]" in run("config", "--config", str(other))
    assert "theirs" in run("profiles", "--config", str(other))


def test_a_program_of_one_s_own_is_offered_its_own_profiles(run: Run) -> None:
    run.place.write(
        '[project]\nprogram = ["python", "x.py"]\ndefault_profile = "mine"\n[profiles.mine]\ntime = "1h"\n'
    )
    assert [line.split()[0] for line in run("profiles").splitlines()] == ["profile", "mine"]
    assert len(run("profiles", "--all").splitlines()) > 29
    with pytest.raises(ConfigError) as refused:
        load_settings().profile("a40")
    assert refused.value.hint == "available: mine"
    assert [name for name, _ in values_of("--profile", "PROFILE", project(None, ()))] == ["mine"]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_profiles_fit_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    run.columns(width, monkeypatch)
    run.place.write(
        '[project]\ndefault_profile = "a40-2m"\n[profiles.mine]\ntime = "90m"\ngpu = "a40"\ngpus = 4\n'
    )
    text = run("profiles")
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= width
    assert lines[0].split()[:7] == ["profile", "gpu", "cpus", "time", "recipe", "steps", "envs"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:] if not line.startswith(" ")}
    assert rows["a40-2m"][:7] == ["*", "a40", "16", "4h", "guide-mt10", "2M", "32"]
    assert rows["mt10-test"][4] == "100k"
    assert rows["mine"][:7] == ["a40", "x4", "1", "1h30m", "-", "-", "-"]
    assert len(rows) == 29
