"""Builds the command that serves one ssh connection inside a job: OpenSSH's sshd on a stream. Pure.

sshd runs on the node as the user, in inetd mode (sshd(8), -i), and listens on nothing. Each session enters
the program's place as `clusterkit shell` does. File transfers stay on the node: few images have their tools.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit.interactive.entering import SHELL, enter_script, find_script
from clusterkit.resources import NODE_PROGRAMS

if TYPE_CHECKING:
    from clusterkit.interactive.inside import Inside

_LOUD = "if command -v bash >/dev/null 2>&1; then exec bash {}; fi; exec sh {}"
_COMMAND = _LOUD.format('-c "$1"', '-c "$1"')
_FROM_INPUT = _LOUD.format("-s", "-s")
_SFTP_FOLDERS = "/usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/lib64/ssh /usr/libexec /usr/lib/misc"

# What sshd runs for every session, after `find_script`. $1 job.sh.
_SESSION = f"""
original=${{SSH_ORIGINAL_COMMAND:-}} terminal=${{TERM:-dumb}} run_dir=${{1%/*}}
case $original in
  internal-sftp | "internal-sftp "* | */sftp-server | */sftp-server\\ *)
    cd -- "$run_dir" || exit 1
    for folder in {_SFTP_FOLDERS}; do
      [ ! -x "$folder/sftp-server" ] || exec "$folder/sftp-server"
    done
    echo "[clusterkit] $(uname -n) has no sftp-server" >&2
    exit 127 ;;
  "rsync --server "* | "scp "*)
    cd -- "$run_dir" || exit 1
    eval "exec $original" ;;
esac
if [ -n "$original" ]; then
  set -- sh -c {shlex.quote(_COMMAND)} sh "$original"
elif [ -t 0 ]; then
  set -- sh -c {shlex.quote(SHELL)} sh "$run_id"
else
  set -- sh -c {shlex.quote(_FROM_INPUT)}
fi
"""

# After `find_script`. $1 job.sh, $2 attempt, $3 the relay's text, $4 its mark. Reads three lines in base64:
# the host's key, the user's public one, the script of a session. StrictModes would refuse a folder below
# /tmp; own_check has looked at the folders above. Only local forwarding: nothing may listen that others could
# connect to.
_SSHD = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
sshd=$(command -v sshd) python=$(command -v python3 || command -v /usr/libexec/platform-python)
for one in "sshd:$sshd" "python3:$python"; do
  if [ ! -x "${one#*:}" ]; then
    echo "[clusterkit] $(uname -n) has no ${one%%:*}" >&2
    exit 127
  fi
done
umask 077
keys=$(mktemp -d "$scratch/ssh.XXXXXX") || exit 1
trap 'rm -rf -- "$keys"' EXIT
for file in host_key authorized_keys session; do
  IFS= read -r line && printf '%s\n' "$line" | base64 -d >"$keys/$file" || exit 1
done
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }
cat >"$keys/config" <<END
HostKey "$keys/host_key"
AuthorizedKeysFile "${keys//%/%%}/authorized_keys"
AuthenticationMethods publickey
StrictModes no
UsePAM no
PidFile none
LogLevel ERROR
PrintMotd no
AllowTcpForwarding local
AllowStreamLocalForwarding local
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitUserRC no
Subsystem sftp internal-sftp
ForceCommand exec bash $(quoted "$keys/session") $(quoted "$1") $2
END
"$python" -I -c "$3" "$4" program "$sshd" -i -f "$keys/config"
"""


def sshd_argv(place: Inside, mark: str) -> list[str]:
    """The argv, on the node, of a relay to an sshd for each stream; it reads `sshd_input` first."""
    script = find_script(place.cluster) + _SSHD
    arguments = [
        f"{place.run.run_dir}/job.sh",
        str(place.attempt),
        (NODE_PROGRAMS / "relay.py").read_bytes().decode(),
        mark,
    ]
    return ["bash", "-c", script, "bash", *arguments]


def sshd_input(place: Inside, host_key: bytes, public_key: bytes) -> bytes:
    """What the command reads first.

    Args:
        place: the running run.
        host_key: the private key by which the client knows the host.
        public_key: the key that may log in.
    """
    session = enter_script(place.cluster, arguments=_SESSION).encode("utf-8", "surrogateescape")
    files: Sequence[bytes] = (host_key, public_key, session)
    return b"".join(base64.b64encode(one) + b"\n" for one in files)
