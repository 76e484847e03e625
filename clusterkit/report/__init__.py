"""Reports from pulled run directories: statistics, curves and one page."""
