#!/bin/sh
# Makes the trainer's environment in a Debian-based image: for trainer.def.j2 and for the Dockerfile.
#
#   install.sh PYTHON cuda|cpu [pip option ...]
#
# Expects the lock files beside itself. Leaves a virtual environment in /opt/venv, and beside itself packages.txt,
# which says what the image holds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$1 torch=$2
shift 2

export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# A rootless build may have only one user id; apt cannot become its download user then.
echo 'APT::Sandbox::User "root";' >/etc/apt/apt.conf.d/10-rootless
# An image is not a machine that may lose power halfway: no fsync after every file.
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/10-image
apt-get update -q
# MuJoCo renders through EGL on a GPU and through OSMesa without one.
packages='ca-certificates libegl1 libgl1 libopengl0 libosmesa6'
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    packages="$packages python3 python3-venv"
    python=python3
fi
# shellcheck disable=SC2086 # several words are meant
apt-get install -q -y --no-install-recommends $packages
# The driver's EGL library comes from the host (--nv), the file that names it does not.
mkdir -p /usr/share/glvnd/egl_vendor.d
cat >/usr/share/glvnd/egl_vendor.d/10_nvidia.json <<'VENDOR'
{"file_format_version": "1.0.0", "ICD": {"library_path": "libEGL_nvidia.so.0"}}
VENDOR

[ -d /opt/venv ] || "$python" -m venv /opt/venv
# Nothing that is not locked, and no file that is not the one it was locked with.
/opt/venv/bin/python -m pip install --no-cache-dir --no-compile --require-hashes --only-binary=:all: \
    -r "$here/locked.txt" -r "$here/locked-$torch.txt" "$@"
{
    /opt/venv/bin/python -m pip list --format=freeze
    dpkg-query -W -f 'debian/${Package}==${Version}\n'
} >"$here/packages.txt"

# From here on: make two builds of the same versions the same, so that a rebuilt image differs from the one on
# the cluster only where its contents do, and an upload can leave out the rest.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log \
    /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old
# Bytecode that records its source's time would differ, or be stale once times are fixed and slow each start down.
stdlib=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
find /opt /usr -xdev -name __pycache__ -prune -exec rm -rf {} +
# The packages' own tests are never imported. Some files are for other versions of Python and do not compile.
/opt/venv/bin/python -m compileall -qq -f -j 2 -x '/tests/' --invalidation-mode unchecked-hash \
    /opt/venv/lib "$stdlib" || true
# Not /var/tmp and not all of /etc: those hold what the build mounts from the host.
find /opt /usr /var/lib /var/cache /var/log /etc/apt /etc/ssl /etc/alternatives -xdev -exec touch -h -d @1700000000 {} +
