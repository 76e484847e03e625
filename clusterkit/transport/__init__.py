"""Remote I/O behind one interface: this machine, and others by ssh."""
