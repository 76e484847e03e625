"""The remote shell that rsync starts: it hands rsync's own pipes to clusterkit and waits for an exit status.

Run as `python -I -S rsh.py FD HOST COMMAND...`, where FD is an inherited Unix socket whose other
end clusterkit holds. One message goes out, the words of the command with descriptors 0 and 1 attached;
one comes back, the exit status. No byte of the transfer passes through this process. It imports only what
Python has in C, so that it starts at once: `socket` alone would take as long as Python itself.
"""

import _socket
import os
import sys

LOST = 255
"""Exit status when clusterkit is gone; ssh uses the same."""


def main(argv: list[str]) -> int:
    """Sends the command and the pipes, returns the remote exit status."""
    _, descriptor, _host, *command = argv
    parent = _socket.socket(fileno=int(descriptor))
    pipes = b"".join(pipe.to_bytes(4, sys.byteorder) for pipe in (0, 1))
    words = b"\0".join(map(os.fsencode, command))
    parent.sendmsg([words], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pipes)])
    parent.shutdown(_socket.SHUT_WR)
    for pipe in (0, 1):  # else rsync would not see their end while we wait
        os.close(pipe)
    status = parent.recv(16)
    return int(status) if status else LOST


if __name__ == "__main__":
    os._exit(main(sys.argv))  # there is no standard output left to flush
