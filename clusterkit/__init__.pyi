from clusterkit.api.project import Project as Project
from clusterkit.api.project import open_project as open  # noqa: A004 - as `clusterkit.open`
from clusterkit.api.runs import Runs as Runs
from clusterkit.api.runs import Table as Table
from clusterkit.errors import ClusterkitError as ClusterkitError
from clusterkit.node.log import log as log

__version__: str
__all__ = ("ClusterkitError", "Project", "Runs", "Table", "__version__", "log", "open")
