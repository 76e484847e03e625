"""What would show a secret's value to others is refused, in every form, and no message repeats it."""

from __future__ import annotations

import base64
import json
import os
import shlex
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from clusterkit.config.settings import Settings, load_settings
from clusterkit.errors import ConfigError
from clusterkit.runs.secret_values import SecretValues, values_at_hand
from clusterkit.submit.materials import Materials, without_values
from clusterkit.submit.pipeline import resolve
from clusterkit.submit.plan import Plan
from clusterkit.submit.request import SubmitRequest
from clusterkit.submit.sweep import axes

VALUE = 'hf_Q7"ö/&0123$abc'
SECRETS = SecretValues({"OTHER": "another value", "HF_TOKEN": VALUE})
FORMS = (
    VALUE,
    unicodedata.normalize("NFD", VALUE),
    json.dumps(VALUE),
    json.dumps(json.dumps({"key": VALUE})),
    shlex.quote(f"echo {shlex.quote(VALUE)}"),
    repr(VALUE.encode()),
    f"https://me:{quote(VALUE, safe='')}@host",
    os.fsdecode(VALUE.encode("latin-1")),
    VALUE.encode().hex(),
    *(base64.b64encode(before + VALUE.encode() + b"@host").decode() for before in (b"", b"m", b"me")),
    base64.urlsafe_b64encode(VALUE.encode()).decode(),
)
SETTINGS = """
[project]
program = ["python", "train.py"]
default_profile = "tiny"
[project.wandb]
project = "runs"
[profiles.tiny]
time = "5m"
env = { PLACE = "here" }
[clusters.far]
host = "nowhere.invalid"
root = "/x"
container = "none"
prelude = ["module load python"]
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    (tmp_path / "clusterkit.toml").write_text(SETTINGS)
    return load_settings(config=tmp_path / "clusterkit.toml")


def plan_of(settings: Settings, **asked: object) -> Plan:
    request = SubmitRequest(settings.cluster("far"), settings.profile("tiny"))
    return resolve(settings, replace(request, **asked))  # type: ignore[arg-type]


def refusal(work: Callable[[], object]) -> str:
    """The message of what must be refused; it repeats no form of the value."""
    with pytest.raises(ConfigError) as raised:
        work()
    text = f"{raised.value.cause}\n{raised.value.hint}"
    assert not any(form in text for form in FORMS)
    return text


@pytest.mark.parametrize("form", FORMS, ids=range(len(FORMS)))
def test_form_among_the_arguments_is_refused_by_its_place(settings: Settings, form: str) -> None:
    plan = plan_of(settings, arguments=("a", f"--x=({form})"))
    told = refusal(lambda: SECRETS.refuse_shown(plan=plan))
    assert told.startswith("the value of HF_TOKEN is in argument 3 of the program, ")
    assert "the program gets it in its environment, as HF_TOKEN" in told


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"name": f"a-{VALUE}"}, "--name"),
        ({"native": (f"--comment={VALUE}",)}, "the scheduler's option --comment"),
        ({"axes": axes(None, ["x=b,hf_Q70123abc"]), "arguments": ("{x}",)}, "argument 2 of the program"),
    ],
)
def test_option_is_refused_by_its_name(settings: Settings, asked: dict[str, object], place: str) -> None:
    plan = plan_of(settings, **asked)
    secrets = SecretValues({"HF_TOKEN": "hf_Q70123abc" if "axes" in asked else VALUE})
    assert refusal(lambda: secrets.refuse_shown(plan=plan)).startswith(
        f"the value of HF_TOKEN is in {place},"
    )


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("profiles.tiny.env", {"X": VALUE}, "profiles.tiny.env.X"),
        ("profiles.tiny.env", {"hf_Q70123abc": "1"}, "a name in profiles.tiny.env"),
        ("profiles.tiny.program", ["python", VALUE], "profiles.tiny.program.1"),
        ("project.program", ["python", VALUE], "argument 1 of the program"),
        ("project.name", VALUE, "project.name"),
        ("project.wandb.project", VALUE, "the variable WANDB_PROJECT of the program"),
        ("clusters.far.prelude", [f"login {shlex.quote(VALUE)}"], "clusters.far.prelude.0"),
        ("clusters.far.binds", [f"/data/{VALUE}"], "clusters.far.binds.0"),
        ("notify.mail", "hf_Q70123abc@uni.edu", "the scheduler's option --mail-user"),
    ],
)
def test_setting_is_refused_by_its_name(settings: Settings, key: str, value: object, place: str) -> None:
    table: object = value
    for part in reversed(key.split(".")):
        table = {part: table}
    assert isinstance(table, dict)
    plan = plan_of(settings.with_values(table))
    secrets = SecretValues(
        {"HF_TOKEN": VALUE if VALUE in str(value) or "login" in str(value) else "hf_Q70123abc"}
    )
    assert refusal(lambda: secrets.refuse_shown(plan=plan)).startswith(
        f"the value of HF_TOKEN is in {place},"
    )


def test_plan_without_a_value_is_not_refused(settings: Settings) -> None:
    SECRETS.refuse_shown(plan=plan_of(settings, arguments=("$HF_TOKEN", "HF_TOKEN", "hf_Q7")))
    SecretValues().refuse_shown(plan=plan_of(settings, arguments=(VALUE,)))


def test_webhook_is_refused_without_its_address(settings: Settings) -> None:
    address = "https://ntfy.sh/topic_9f8e7d6c5b"
    secrets = SecretValues(webhook={"url": address, "kind": "ntfy", "on": []})
    told = refusal(lambda: secrets.refuse_shown(plan=plan_of(settings, arguments=(address,))))
    assert told.startswith("the webhook's address is in argument 2 of the program, ")
    assert "topic" not in told


@pytest.mark.parametrize(
    "content",
    [
        *(os.fsencode(form) for form in FORMS),
        VALUE.encode("utf-16"),
        b"x" * ((1 << 20) - 5) + VALUE.encode(),
        b"\0\xff" * 50 + VALUE.encode(),
    ],
)
def test_file_with_a_value_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "data").write_bytes(content)
    (tmp_path / "train.py").write_text("import os\nos.environ['HF_TOKEN']\n")
    told = refusal(lambda: SECRETS.refuse_in_files(tmp_path, ("conf/data", "train.py")))
    assert told.startswith("the value of HF_TOKEN is in conf/data, ")
    assert 'add "/conf/data" to `exclude`' in told
    SECRETS.refuse_in_files(tmp_path, ("train.py",))


def test_name_and_link_with_a_value_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(f"/nowhere/{VALUE}")
    assert "is in link," in refusal(lambda: SECRETS.refuse_in_files(tmp_path, ("link",)))
    secrets = SecretValues({"HF_TOKEN": "hf_Q70123abc"})
    (tmp_path / "hf_Q70123abc.txt").touch()
    told = refusal(lambda: secrets.refuse_in_files(tmp_path, ("hf_Q70123abc.txt",)))
    assert "is in ***.txt," in told
    assert "hf_Q7" not in told


def test_several_files_are_counted(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).write_text(VALUE)
    assert "is in a, b, c and 2 more files," in refusal(lambda: SECRETS.refuse_in_files(tmp_path, "abcde"))


def test_longest_line_of_a_value_is_refused_and_no_common_one(tmp_path: Path) -> None:
    key = (
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\nQg==\n-----END PRIVATE KEY-----\n"
    )
    secrets = SecretValues({"KEY": key})
    (tmp_path / "a").write_text("  + MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\n")
    (tmp_path / "b").write_text("-----BEGIN PRIVATE KEY-----\n...\nQg==\n-----END PRIVATE KEY-----\n")
    assert "is in a," in refusal(lambda: secrets.refuse_in_files(tmp_path, "ab"))
    secrets.refuse_in_files(tmp_path, "b")


def test_recorded_diff_has_no_value_and_other_facts_are_refused() -> None:
    diff = f"-token = {json.dumps(VALUE)}\n+token = os.environ['HF_TOKEN']\n"
    materials = Materials("c", "t", {"git_branch": "main", "diff": diff}, None)
    masked = without_values(SECRETS, materials)
    assert masked.facts["diff"] == "-token = \"***\"\n+token = os.environ['HF_TOKEN']\n"
    SECRETS.refuse_shown(snapshot=masked.facts)
    told = refusal(lambda: SECRETS.refuse_shown(snapshot={"git_branch": VALUE}))
    assert "is in the git branch of the code," in told


def test_value_at_hand_asks_nobody(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = settings.with_values(
        {"secrets": {"names": ["HF_TOKEN", "SHORT", "NONE"], "commands": {"NONE": ["false"]}}}
    )
    monkeypatch.setenv("HF_TOKEN", VALUE)
    monkeypatch.setenv("SHORT", "abc")
    assert values_at_hand(asking).values == {"HF_TOKEN": VALUE}
