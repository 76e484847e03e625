"""Remote I/O behind one interface: `local` (this machine) and `ssh` (paramiko, rsync over it)."""
