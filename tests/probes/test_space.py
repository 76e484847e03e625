"""df and quota output of real machines, read."""

from clusterkit.config.models import Cluster
from clusterkit.probes import ask
from clusterkit.probes.space import Space, parse, space
from clusterkit.site import open_site

TEXT = """== home /home/w
== df /share/w/ck
Filesystem             1024-blocks       Used  Available Capacity Mounted on
nfs1:/export/share dir   100000   60000   40000      60% /share
== df /work/w
Filesystem     1024-blocks Used Available Capacity Mounted on
mds@tcp:/work        1000  400       600      40% /work
== lfs /work/w
          /work     700*      500      900       -   12   0   0   -
== df /nowhere
== df /home/w
Filesystem     1024-blocks Used Available Capacity Mounted on
nfs1:/export/home    5000 1000 4000 20% /home
== quota
Disk quotas for user w (uid 1000):
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
nfs1:/export/home    1500    2000    2500              10       0       0
"""


def test_df_and_quotas_are_joined() -> None:
    rooms = parse(TEXT, {"work root": "/share/w/ck", "scratch": "/work/w", "images": "/nowhere"})
    assert rooms == (
        Space(
            "work root",
            "/share/w/ck",
            "nfs1:/export/share dir /share",
            40_000 << 10,
            100_000 << 10,
            None,
        ),
        Space("scratch", "/work/w", "mds@tcp:/work /work", 600 << 10, 1000 << 10, 200 << 10),
        Space("images", "/nowhere", "", None, None, None),
        Space("home", "/home/w", "nfs1:/export/home /home", 4000 << 10, 5000 << 10, 1000 << 10),
    )
    assert [room.left for room in rooms] == [40_000 << 10, 200 << 10, None, 1000 << 10]


def test_nonsense_is_passed_over() -> None:
    for text in ("", "quota: error", "== df /a\n??\n== lfs /a\nusage: lfs\n== quota\nNo such user\n"):
        assert all(room.left is None for room in parse(text, {"work root": "/a"}))


def test_this_machine(tmp_path: object) -> None:
    with open_site(
        Cluster(name="local", kind="local", root=f"{tmp_path}/new", container="none"), create=False
    ) as site:
        layout = site.layout
        probe = space({"work root": layout.root, "images": layout.images, "scratch": layout.scratch})
        rooms = {room.role: room for room in ask(site.transport, probe).of(probe)}
    assert set(rooms) == {"work root", "images", "scratch", "home"}
    assert (rooms["work root"].free or 0) > 0
    assert rooms["work root"].file_system == rooms["images"].file_system
