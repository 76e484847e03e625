"""Runs one job of a Hydra multirun as Hydra's basic launcher does, in a process that has only Hydra.

THIS LAUNCH FIRST NUMBER main.py OVERRIDE...; or -m and a module in place of main.py.
"""

import json
import os
import runpy
import sys
from typing import Any


def multirun(
    hydra: Any,
    config_name: Any,
    task_function: Any,
    overrides: Any,
    with_log_configuration: bool = True,
) -> Any:
    """Takes the place of `Hydra.multirun`: one job, with its number, and no sweep."""
    from hydra._internal.callbacks import Callbacks
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher
    from hydra.types import HydraContext, RunMode
    from omegaconf import OmegaConf

    config = hydra.compose_config(
        config_name=config_name,
        overrides=overrides,
        with_log_configuration=with_log_configuration,
        run_mode=RunMode.MULTIRUN,
    )
    OmegaConf.get_cache(config)["now"].update((tuple(words), value) for words, value in hydra.known["now"])
    context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
    launcher = BasicLauncher()
    launcher.setup(hydra_context=context, task_function=task_function, config=config)
    words: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    (job,) = launcher.launch([words], hydra.number)
    return job.return_value  # raises what the application raised


def main() -> None:
    """Registers the configs of plugins that need not be installed here, and starts the application."""
    from hydra._internal.hydra import Hydra
    from hydra.core.config_store import ConfigStore

    launch, first, number = sys.argv[1:4]
    known = json.loads(launch)
    for group, name, node in known["configs"]:
        ConfigStore.instance().store(group=group, name=name, node=node)
    patched: Any = Hydra
    patched.multirun, patched.known, patched.number = multirun, known, int(first) + int(number)
    if sys.argv[4] == "-m":
        sys.argv[:] = sys.argv[5:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = sys.argv[4:]
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
