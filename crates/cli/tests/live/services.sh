#!/bin/bash
# Runs systemd with the services of this repository, on a copy of the host's files that is thrown away: as the first process of
# namespaces of its own. Arguments: the program, the folder of the services, a script to run once systemd has started, and a folder.
set -e
program=$1 services=$2 script=$3 folder=$4
mkdir -p "$folder/disk" "$folder/result"
mount -t tmpfs tmpfs "$folder/disk"
cd "$folder/disk"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cd root
mkdir -p etc/rivulet old result
mount --bind "$folder/result" result
cp "$program" usr/local/bin/rivulet
cp "$script" etc/rivulet/test.sh
cp "$services"/*.service etc/systemd/system/
cp "$services/rivulet.conf" usr/lib/sysusers.d/
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mount --rbind /dev dev
mount -t cgroup2 cgroup2 sys/fs/cgroup
# Nothing of the host's is started or changed.
rm -rf etc/systemd/system/*.wants
for unit in systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service systemd-udevd.service \
    systemd-udev-trigger.service systemd-remount-fs.service kmod-static-nodes.service systemd-tmpfiles-setup-dev.service \
    systemd-random-seed.service systemd-update-utmp.service systemd-machine-id-commit.service systemd-udevd-kernel.socket \
    systemd-udevd-control.socket dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount tmp.mount; do
    ln -sf /dev/null "etc/systemd/system/$unit"
done
cat >etc/systemd/system/rivulet-test.target <<'UNIT'
[Unit]
Requires=basic.target rivulet-test.service
UNIT
cat >etc/systemd/system/rivulet-test.service <<'UNIT'
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/bash /etc/rivulet/test.sh
StandardOutput=file:/result/output
StandardError=file:/result/output
TimeoutStartSec=60
UNIT
ln -sf /etc/systemd/system/rivulet-test.target etc/systemd/system/default.target
pivot_root . old
umount -l /old
container=rivulet exec /lib/systemd/systemd --log-target=null --show-status=no systemd.unified_cgroup_hierarchy=1
