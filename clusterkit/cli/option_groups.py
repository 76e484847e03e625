"""The groups in which `--help` lists the options of commands that have many."""

from __future__ import annotations

from clusterkit.config.options import NATIVE_OPTION

LAST = "Other options"
"""The title above options that no group names: `--config` and `--help`."""

GROUPS = {
    "init": {
        "Cluster": "--name --root --account --partition --container --image",
        "This machine": "--local --program --trainer",
        "Ready-made": "--example --examples",
        "Settings file": "--user --yes --force --dry-run --json",
        "Login": "--accept-new --ssh-config",
    },
    "plan": {
        "Run": f"--profile --cluster --time --nodes --until-done {NATIVE_OPTION} --total-steps",
        "Alternatives": "--times --gpus --ranks",
        "Recipe": "--set --unlock",
        "Your own environment": "--observation-dim --action-dim --action-choices",
        "Checks and output": "--send-large --json",
    },
    "tune": {
        "Run": "--profile --cluster",
        "Measurements": "--minutes --num-envs --workers --precision",
        "Recipe": "--set --unlock",
        "Checks and output": "--no-wait --dry-run --script --yes --json",
    },
    "submit": {
        "Run": "--profile --cluster --name --seed --total-steps --time --nodes --first --until-done "
        + NATIVE_OPTION,
        "Several runs": "--seeds --sweep --max-parallel --pack --in-one",
        "One after another": "--after --then --then-always",
        "Recipe": "--set --unlock",
        "Checks and output": "--dry-run --script --yes --send-large --verify-image --json",
    },
    "rerun": {
        "Changes": f"--cluster --seed --name --profile --time --total-steps --until-done {NATIVE_OPTION}",
        "Checks and output": "--dry-run --yes --json",
    },
    "sync-results": {
        "Download": "--cluster --checkpoints --watch --bandwidth-limit --json",
        "W&B": "--no-wandb --wandb-dry-run --wandb-entity --wandb-project",
        "Other trackers": "--tensorboard --mlflow",
    },
    "search": {
        "Search": "--space --metric --direction --trials --at-once --sampler --prune",
        "Run": f"--profile --cluster --total-steps --time {NATIVE_OPTION}",
        "Recipe": "--set --unlock",
        "Checks and output": "--best --yes --send-large --json",
    },
    "status": {
        "Which runs": "--all --state --cluster --group --name --profile --since",
        "Display": "--watch --expand --json",
    },
}
"""Command -> title -> the long names of its options."""
