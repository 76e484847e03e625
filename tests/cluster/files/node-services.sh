#!/bin/bash
# Starts the services of a node, named in TESTBED_SERVICES, each with a log in /testbed.
set -euo pipefail
logs=/testbed

wait_for() { # a command that succeeds once the service answers
    for _ in $(seq 600); do
        if "$@" 2>/dev/null; then return; fi
        sleep 0.05
    done
    echo "gave up waiting for: $*" >&2
    exit 1
}
answers() { : <"/dev/tcp/127.0.0.1/$1"; }
owned() { # user, folders
    mkdir -p "${@:2}"
    chown "$1:" "${@:2}"
}
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }

start_munge() {
    owned munge /run/munge /var/lib/munge /var/log/munge
    as munge munged -F >$logs/munged.log 2>&1 &
    wait_for test -S /run/munge/munge.socket.2
}
start_sshd() {
    mkdir -p /run/sshd
    /usr/sbin/sshd -D -e >$logs/sshd.log 2>&1 &
}
start_database() {
    local socket=/run/mysqld/mysqld.sock data=/var/lib/mysql
    owned mysql /run/mysqld $data
    ln -sfn mysqld /run/mariadbd # where newer client libraries look
    mariadbd --user=mysql --datadir=$data --socket=$socket --skip-networking --performance-schema=OFF \
        --innodb-buffer-pool-size=64M --innodb-log-file-size=8M --innodb-lock-wait-timeout=900 \
        --innodb-flush-log-at-trx-commit=0 --innodb-snapshot-isolation=OFF >$logs/mariadbd.log 2>&1 &
    wait_for test -S $socket
    wait_for mariadb -S $socket -e "create database slurm_acct_db;
        create user slurm@localhost identified by 'slurm'; grant all on slurm_acct_db.* to slurm@localhost;"
}
start_slurmdbd() {
    as slurm slurmdbd -D >$logs/slurmdbd.log 2>&1 &
    wait_for answers 6819
}
start_slurmctld() {
    owned slurm /var/spool/slurmctld
    as slurm slurmctld -D >$logs/slurmctld.log 2>&1 &
    wait_for answers 6817
}
start_slurmd() {
    mkdir -p /var/spool/slurmd
    slurmd -D >$logs/slurmd.log 2>&1 &
}

for service in $TESTBED_SERVICES; do
    "start_$service"
done
touch /testbed/ready
exec sleep infinity
