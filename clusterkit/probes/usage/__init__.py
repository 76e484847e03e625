"""What a running program uses at the moment: a script that tells it again and again, and its reader. Pure."""

from clusterkit.probes.usage.reader import Gpu, Process, Usage, UsageReader
from clusterkit.probes.usage.script import usage_argv

__all__ = ["Gpu", "Process", "Usage", "UsageReader", "usage_argv"]
