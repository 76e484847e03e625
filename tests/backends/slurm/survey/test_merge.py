"""A second init changes what the site says otherwise, and no word that the person wrote."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.config.merge import merged
from tests.backends.slurm.survey.sites import TESTBED, text_of
from tests.backends.slurm.survey.test_draft import drafted

MINE = """
[profiles.mine]
extends = "a40-test"
program = [
  "python",
  'train.py',
]
env = {A = "#", "B C"='2'}

[[notes]]
day = 1

[[notes]]
day   =   2
"""
FIRST = merged("", drafted(TESTBED)) + MINE
LINES = FIRST.splitlines()
CHANGED = TESTBED | {
    "partitions": text_of(TESTBED, "partitions").replace("MaxTime=1-00:00:00", "MaxTime=12:00:00"),
    "version": "slurm 99.05.1\n",
}


def commented(above: set[int], behind: set[int]) -> tuple[str, list[str]]:
    """The first init's file with comments of the person's, and those in their order."""
    lines, comments = [], []
    for number, line in enumerate(LINES):
        if number in above:
            comments.append(f"# above {chr(number + 200)}")
            lines.append(comments[-1])
        if number in behind and line:
            comments.append(f"behind {chr(number + 200)}")
            line += f" # {comments[-1]}"
        lines.append(line)
    return "\n".join([*lines, "# the end"]), [*comments, "# the end"]


def again(text: str) -> str:
    before = tomllib.loads(text)["clusters"]["uni"]
    return merged(text, drafted(CHANGED, before=before, root="~/elsewhere"))


AGAIN = again(FIRST).splitlines()
CHANGES = sum(line not in AGAIN for line in LINES)
"""How many lines of the first file the changed site changes."""
NUMBERS = st.sets(st.integers(0, len(LINES) - 1))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_at_every_place_stay(end: str) -> None:
    text, comments = commented(set(range(len(LINES))), set(range(len(LINES))))
    new = again(text.replace("\n", end))
    assert re.findall(r"# above .|behind .|# the end", new) == comments
    assert new.count("\n") == new.count(end)
    assert again(new) == new


@pytest.mark.slow
@given(NUMBERS, NUMBERS)
def test_comments_at_any_places_stay(above: set[int], behind: set[int]) -> None:
    text, comments = commented(above, behind)
    new = again(text)
    assert re.findall(r"# above .|behind .|# the end", new) == comments
    assert tomllib.loads(new) == tomllib.loads(again(FIRST))
    assert sum(line not in new.splitlines() for line in text.splitlines()) <= CHANGES


def test_only_what_the_site_says_otherwise_changes() -> None:
    was, now = LINES, again(FIRST).splitlines()
    assert len(was) == len(now)
    changed = [" ".join(line.split()) for line, other in zip(now, was, strict=True) if line != other]
    assert changed == [
        "# Slurm 99.05.1, cluster testbed: JobRequeue=1, PreemptMode=OFF, KillWait=5, MaxArraySize=1001",
        'root = "~/elsewhere" # a folder',
        'max_time = "12h" # the longest job',
        'partition = "gpu-a40" # jobs of at most 12h',
        'partition = "gpu-a100" # jobs of at most 12h',
    ]


OTHERS = """# mine

# about uni
[clusters.uni] # first
root = "~/old" # kept
# account = "other"

# about b
[clusters.b]
root = "~/b"
"""


def test_new_tables_stand_where_they_belong() -> None:
    before = tomllib.loads(OTHERS)["clusters"]["uni"]
    new = merged(OTHERS, drafted(TESTBED, before=before, root="~/old"))
    assert new.startswith("# mine\n\n[project]\n")
    assert '\n\n# about uni\n[clusters.uni] # first\nroot = "~/old" # kept\nhost = "uni"' in new
    assert '\n# account = "other"\n\n# 1 node with' in new
    assert '\n\n# about b\n[clusters.b]\nroot = "~/b"\n\n# Tests container, GPU' in new
    headers = re.findall(r"^\[(.*)\]", new, re.MULTILINE)
    assert headers[:5] == [
        "project",
        "clusters.uni",
        "clusters.uni.gpus.a40",
        "clusters.uni.gpus.a100",
        "clusters.b",
    ]


def test_a_gpu_type_that_is_gone_takes_only_its_own_comments_along() -> None:
    text = FIRST.replace("[clusters.uni.gpus.a40]", "[clusters.uni.gpus.old]").replace('"gpu-a40"', '"gone"')
    text = text.replace("\n# 1 node", "\n# mine\n\n# 1 node", 1)
    new = again(text)
    assert "\n# mine\n" in new
    assert "gpus.old" not in new
    assert set(tomllib.loads(new)["clusters"]["uni"]["gpus"]) == {"a40", "a100"}
