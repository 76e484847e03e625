"""What changed from one build to the next."""

from clusterkit.images.building.packages import compare, parse

TEXT = """\
torch==2.13.0+cpu
debian/libc6==2.36-9+deb12u10
mine @ file:///opt/mine
# Editable install
"""


def test_a_list_is_read() -> None:
    assert parse(TEXT) == {"torch": "2.13.0+cpu", "debian/libc6": "2.36-9+deb12u10"}


def test_changes() -> None:
    changes = compare({"a": "1", "b": "1", "c": "1"}, {"b": "1", "c": "2", "d": "1"})
    assert (changes.added, changes.removed, changes.changed) == ({"d": "1"}, {"a": "1"}, {"c": ("1", "2")})
    assert changes
    assert not compare({"a": "1"}, {"a": "1"})
