"""The Hydra launcher `hydra/launcher=clusterkit`. Installed as `hydra_plugins/clusterkit_launcher.py` too.

Only classes below `hydra_plugins` are plugins to Hydra, so it is that copy that runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

SETTINGS = {
    "_target_": "hydra_plugins.clusterkit_launcher.ClusterkitLauncher",
    **dict.fromkeys(("profile", "cluster", "name", "max_parallel")),
}
"""The settings below `hydra.launcher`; None for clusterkit's default."""

ConfigStore.instance().store(group="hydra/launcher", name="clusterkit", node=SETTINGS, provider="clusterkit")


class ClusterkitLauncher(Launcher):
    """Submits the jobs of a multirun as one group, and does not wait for them."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._hydra: Any = None
        self._config: Any = None

    def setup(
        self,
        *,
        hydra_context: HydraContext,  # noqa: ARG002
        task_function: TaskFunction,  # noqa: ARG002
        config: DictConfig,
    ) -> None:
        """Keeps the settings; the application itself runs in the jobs."""
        self._hydra, self._config = config.hydra, config

    def launch(
        self,
        job_overrides: Sequence[Sequence[str]],
        initial_job_idx: int,
    ) -> Sequence[JobReturn]:
        """Submits the jobs; their results are not known yet."""
        from clusterkit import interruption
        from clusterkit.cli.ui.console import show_error, transfer_bar
        from clusterkit.cli.ui.sweep import show_group, show_plan
        from clusterkit.commands.hydra import Multirun, launch
        from clusterkit.errors import ClusterkitError
        from clusterkit.project import load_project, open_ledger

        _ = self._hydra.sweep.dir  # whose time the jobs share
        sources = self._hydra.runtime.config_sources
        multirun = Multirun(
            [list(job) for job in job_overrides],
            list(self._hydra.overrides.hydra),
            initial_job_idx,
            [self._config_of(part) for part in ("launcher", "sweeper")],
            [(list(words), value) for words, value in OmegaConf.get_cache(self._config)["now"].items()],
            self._hydra.job.config_name,
            next((one.path for one in sources if one.provider == "command-line"), None),
            **self._options,
        )
        interruption.catch()
        try:
            settings = load_project(None)
            with open_ledger(settings) as ledger:
                done = launch(settings, ledger, multirun, bar=transfer_bar, agree=show_plan)
            show_group(done)
            if done.trouble:
                raise done.trouble
        except KeyboardInterrupt:
            sys.stderr.write(interruption.words("submit"))
            raise SystemExit(interruption.INTERRUPTED) from None
        except ClusterkitError as error:
            show_error(error)
            raise SystemExit(error.exit_code) from None
        return [
            JobReturn(overrides=list(job), working_dir=one.row.run_dir, status=JobStatus.COMPLETED)
            for job, one in zip(job_overrides, done.placed, strict=True)
        ]

    def _config_of(self, part: str) -> tuple[str, str, object]:
        """Returns the group, the chosen name and the content of the config of Hydra's launcher or sweeper."""
        group, config = f"hydra/{part}", self._hydra[part]
        content = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
        return group, self._hydra.runtime.choices[group], content
