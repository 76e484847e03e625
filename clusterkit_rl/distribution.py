"""Whose packages Python finds, and how this distribution is installed.

Other authors' distributions on PyPI, `clusterkit` and `trainer`, have packages of the same names. Only a
package with a name of its own can tell them apart before one of them runs.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

DISTRIBUTION = "clusterkit-rl"
HERE = Path(__file__).resolve().parent.parent
"""The folder of the packages: site-packages, or a checkout."""
_NAMESAKES = ("clusterkit-", "trainer-")


def refuse_namesakes() -> None:
    """Exits with 1 if `clusterkit` is another package; makes `trainer` ours whatever the path holds."""
    fault = namesake()
    if fault:
        sys.stderr.write("error: {}\nnext:  {}\n".format(*fault))
        raise SystemExit(1)
    _import_own_trainer()


def namesake() -> tuple[str, str] | None:
    """Returns the cause and the next step if another author's files would run; None if all are ours."""
    with os.scandir(HERE) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(_NAMESAKES) and name.endswith((".dist-info", ".egg-info")):
                package, version = name.rpartition(".")[0].split("-")[:2]
                return (
                    f"another author's distribution `{package}` ({version}) is installed in {HERE}, "
                    f"where its files and those of {DISTRIBUTION} have the same names",
                    f"{_pip('uninstall', package)}; then {install_command('--force-reinstall', '--no-deps')}",
                )
    found = _folder("clusterkit")
    if found == HERE / "clusterkit":
        return None
    if found is None:
        return (
            f"files of {DISTRIBUTION} are missing in {HERE / 'clusterkit'}; they go when another author's "
            "distribution `clusterkit` is uninstalled",
            install_command("--force-reinstall", "--no-deps"),
        )
    return (
        f"another package `clusterkit`, in {found}, hides the one of {DISTRIBUTION}, in {HERE}",
        _pip("uninstall", "clusterkit")
        if found.parent.name in ("site-packages", "dist-packages")
        else f"take {found.parent} out of PYTHONPATH, or rename that folder",
    )


def install_command(*options: str, extra: str = "") -> str:
    """Returns the command that installs this distribution again from where it came, for a message.

    Args:
        options: of pip.
        extra: an optional part of the distribution, such as `train`.
    """
    wanted = f"[{extra}]" if extra else ""
    if (HERE / "pyproject.toml").is_file():
        return _pip("install", *options, "-e", f"{HERE}{wanted}")
    source = _source()
    came = f" @ {source}" if source else ""
    return _pip("install", *options, f"{DISTRIBUTION}{wanted}{came}")


def _source() -> str | None:
    """The URL of what was installed: a wheel, folder or repository; None if it came by its name (PEP 610)."""
    import json
    from importlib.metadata import Distribution

    for found in Distribution.discover(name=DISTRIBUTION, path=[str(HERE)]):
        record = json.loads(found.read_text("direct_url.json") or "{}")
        if not record:
            continue
        vcs = record.get("vcs_info")
        return f"{vcs['vcs']}+{record['url']}@{vcs['commit_id']}" if vcs else str(record["url"])
    return None


def _import_own_trainer() -> None:
    """Imports our `trainer` if another one precedes it: `python -m` looks in the project's folder first."""
    if _folder("trainer") == HERE / "trainer":
        return
    spec = PathFinder.find_spec("trainer", [str(HERE)])
    if spec and spec.loader:
        sys.modules["trainer"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


def _folder(package: str) -> Path | None:
    """Where an import would find a package; None without the package or without its __init__.py.

    In a run, the file `clusterkit.py` of its lib folder gives way to the package.
    """
    of_run = os.environ.get("CLUSTERKIT_RUN_DIR", "") + "/lib"
    spec = PathFinder.find_spec(package, [place for place in sys.path if place != of_run])
    return Path(spec.origin).resolve().parent if spec and spec.origin else None


def _pip(*words: str) -> str:
    import shlex

    return shlex.join([sys.executable, "-m", "pip", *words])
