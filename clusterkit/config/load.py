"""The one way to the settings: find the files, read them, merge and check them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterkit.config.settings import Settings, command_line, settings_from
from clusterkit.config.sources import built_in_layers, find_project_file, read_layer, user_file
from clusterkit.config.whose import refuse_foreign


def load_settings(
    *, config: Path | None = None, start: Path | None = None, values: Mapping[str, object] | None = None
) -> Settings:
    """Reads and checks all settings: built-in < user file < project file < command line.

    Args:
        config: the project's file (`--config`); None looks for clusterkit.toml from `start` upwards.
        start: where to look; None is the current folder.
        values: values of the command line by dotted key, e.g. ``{"profiles.a40-2m.time": "2h"}``.

    Raises:
        ConfigError: the file that was found is another user's or came with results, or a file cannot be
            read, is not TOML, or holds a wrong key or value; then one line per fault.
    """
    begin = (start or Path.cwd()).resolve()
    found = config.resolve() if config else find_project_file(begin)
    if found and not config:
        refuse_foreign(found, begin)
    project_dir = found.parent if found else begin
    files = tuple(file for file in (user_file(), found) if file)
    layers = [*built_in_layers(project_dir), *(read_layer(file) for file in files)]
    if values:
        layers.append(command_line(values))
    return settings_from(tuple(layers), project_dir, files)
