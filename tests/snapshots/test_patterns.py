"""Patterns and the deny list."""

import re
from pathlib import Path

import pytest

from clusterkit.errors import ConfigError
from clusterkit.snapshots.collect import SECRETS, Patterns, ignore_file, looks_secret

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("pkg", "pkg/a.py", True),
        ("pkg/", "deep/pkg/a.py", True),
        ("*.py", "pkg/a.py", True),
        ("pkg/*.py", "pkg/a.py", True),
        ("pkg/*.py", "deep/pkg/a.py", False),
        ("/data", "data/x", True),
        ("/data", "a/data/x", False),
        ("a.py", "aapy", False),
        ("wild[*]", "wild*", True),
        ("*.MP4", "x.mp4", False),
    ],
)
def test_a_pattern_means_a_name_a_folder_or_a_path(pattern: str, name: str, expected: bool) -> None:
    assert Patterns([pattern]).match(name) is expected


def test_no_patterns_match_nothing() -> None:
    assert not Patterns([]).match("anything")


@pytest.mark.parametrize(
    "name",
    [
        ".env",
        ".env.local",
        "prod.env",
        ".envrc",
        ".netrc",
        "sub/_netrc",
        "server.PEM",
        "tls.key",
        "id_rsa",
        "ID_ED25519",
        "id_ed25519.pub",
        ".ssh/config",
        ".aws/credentials",
        "wandb_api_key",
        "wandb-api-key.txt",
        "hf.token",
        "secrets.yaml",
        "secrets.json",
        "client_secret_1.json",
        "vault.kdbx",
        "terraform.tfstate",
        ".git-credentials",
        "service-account-x.json",
    ],
)
def test_what_looks_like_a_secret(name: str) -> None:
    assert looks_secret(name)
    assert looks_secret(f"deep/er/{name}")


@pytest.mark.parametrize(
    "name",
    [
        "secrets.py",
        "env.py",
        ".env.example",
        "keys.py",
        "token.py",
        "identity.csv",
        "id_map.csv",
        "monkey.txt",
        "a.public",
    ],
)
def test_what_does_not(name: str) -> None:
    assert not looks_secret(name)


def test_the_page_lists_the_whole_deny_list() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## What stays on the laptop", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^    (.+)$", section, re.MULTILINE)
    assert " ".join(listed).split() == list(SECRETS)


def test_an_ignore_file() -> None:
    assert ignore_file("# data\n\n*.npz\n  big/  \n", "f") == ("*.npz", "big/")
    with pytest.raises(ConfigError, match=r"f:2: !keep"):
        ignore_file("*\n!keep\n", "f")
