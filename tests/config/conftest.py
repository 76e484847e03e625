"""A home and a project folder of their own for every test that reads settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.config.settings import Settings, load_settings


@dataclass(frozen=True)
class Place:
    """A project folder below a home folder, the current folder of the test."""

    home: Path
    project: Path

    def user(self, toml: str) -> Path:
        file = self.home / ".config" / "clusterkit" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(toml, encoding="utf-8")
        return file

    def write(self, toml: str) -> Path:
        file = self.project / "clusterkit.toml"
        file.write_text(toml, encoding="utf-8")
        return file

    def load(self, toml: str | None = None) -> Settings:
        if toml is not None:
            self.write(toml)
        return load_settings()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    home = tmp_path / "home"
    project = home / "work" / "my-project"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(project)
    return Place(home.resolve(), project.resolve())
