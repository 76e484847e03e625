#!/bin/bash
# The first process of a node, in namespaces of its own: makes the node's root file system, waits for its network
# cable, and becomes its init. TESTBED_* variables come from node.py.
set -euo pipefail
state=$TESTBED_STATE node=$TESTBED_NODE
own=$state/nodes/$node root=$state/nodes/$node/root

hostname "$node"
# One read-only system for all nodes, the cluster's own /etc files over it, and what the node writes on top.
mount -t overlay overlay "$root" \
    -o "lowerdir=$state/layer:$TESTBED_ROOTFS,upperdir=$own/upper,workdir=$own/work"

mount -t proc proc "$root/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
for controller in $TESTBED_CONTROLLERS; do
    mkdir "$root/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "$root/sys/fs/cgroup/$controller"
done

dev=$root/dev
mount -t tmpfs -o mode=755,nosuid tmpfs "$dev"
while read -r name major minor; do
    mknod -m 666 "$dev/$name" c "$major" "$minor"
done <<'DEVICES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229
DEVICES
# GPUs nobody can open: they must not be aliases of, say, /dev/null, which a job would then be denied.
for minor in $TESTBED_GPUS; do
    mknod -m 666 "$dev/nvidia$minor" c 195 "$minor"
done
mkdir "$dev/pts" "$dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$dev/shm"
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
for number in 0 1 2; do
    name=(stdin stdout stderr)
    ln -s "fd/$number" "$dev/${name[number]}"
done

mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/share" "$root/testbed"
mount --bind "$state/home" "$root/home"
mount --rbind "$state/share" "$root/share" # and the disks in it
mount --bind "$state/slurm" "$root/etc/slurm"
mount --bind "$own/testbed" "$root/testbed"

mkdir "$root/.old"
cd "$root"
pivot_root . .old
umount -l /.old
rmdir /.old

read -r connected # end of input instead: the tests' process is gone
ip link set lo up
ip addr add "$TESTBED_ADDRESS/24" dev eth0
ip link set eth0 up
exec </dev/null
exec /usr/bin/tini -g -- /bin/bash /testbed/node-services.sh
