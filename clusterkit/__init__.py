"""clusterkit: takes a reinforcement-learning run from the laptop to a Slurm cluster and back.

For Python programs, docs/python.md: `open` a project, or `log` numbers in the program of a run. What there is
stands with its types in `__init__.pyi`, and is imported when it is first used.
"""

__version__ = "0.1.0"
__all__ = ("ClusterkitError", "Project", "Runs", "Table", "__version__", "log", "open")

_HOMES = {
    "ClusterkitError": ("clusterkit.errors", "ClusterkitError"),
    "Project": ("clusterkit.api.project", "Project"),
    "Runs": ("clusterkit.api.runs", "Runs"),
    "Table": ("clusterkit.api.runs", "Table"),
    "log": ("clusterkit.node.log", "log"),
    "open": ("clusterkit.api.project", "open_project"),
}
"""Name -> the module that has it, and what it is called there."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, own = _HOMES[name]
    globals()[name] = value = getattr(import_module(module), own)
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
