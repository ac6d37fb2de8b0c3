#!/usr/bin/env bash
# Tests in a virtual machine with Debian 13, whose kernel has cgroups of version 2 only, and no Docker Engine: the kernel
# of this machine may have given its controllers to version 1. `TESTS="…"`: other arguments of pytest. `ACCEL=kvm`: faster
# where KVM works (default: tcg, an emulator, some twenty times slower than the machine). `LIMIT_S`: seconds until the
# machine is stopped (7200). Needs qemu-system-x86, and what debian_root.sh says.
set -euo pipefail
if ! command -v qemu-system-x86_64 >/dev/null; then
    echo "Run this line: apt-get install -y --no-install-recommends qemu-system-x86" >&2
    exit 1
fi
source "$(dirname "$0")/debian_root.sh"

tests=${TESTS:-tests/kernel/test_limits.py tests/kernel/images tests/e2e/local/test_images_of_executors.py}
make_debian trixie systemd systemd-sysv dbus udev procps iproute2 kmod
packages="python3 python3-venv git make zstd linux-image-cloud-amd64 initramfs-tools busybox-static docker-registry apache2-utils"
run_in_debian "apt-get update -qq" "apt-get install -qq -y --no-install-recommends $packages >/dev/null" "make setup" \
    ".venv/bin/python -c 'from mesos_gpu.libmesos.fetch import library_path; print(library_path())'"

cat >"$at/root/etc/systemd/system/tests.service" <<'UNIT'
[Unit]
Description=Tests of mesos_gpu
After=multi-user.target
[Service]
Type=oneshot
Environment=HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/bin/bash /root/tests
ExecStopPost=/sbin/poweroff -f
TimeoutStartSec=infinity
Delegate=yes
[Install]
WantedBy=multi-user.target
UNIT
cat >"$at/root/root/tests" <<TESTS
exec >/dev/ttyS1 2>&1
cd /srv/mesos_gpu
echo "\$(. /etc/os-release; echo "\$PRETTY_NAME"), Linux \$(uname -r), \$(stat -fc %T /sys/fs/cgroup): \$(cat /sys/fs/cgroup/cgroup.controllers)"
.venv/bin/mesos-gpu doctor
echo "doctor: exit status \$?"
.venv/bin/pytest -p no:randomly -p no:cacheprovider -v --timeout 1800 $tests
echo "exit status \$?"
sync
TESTS
mkdir -p "$at/root/etc/systemd/system/multi-user.target.wants"
ln -s ../tests.service "$at/root/etc/systemd/system/multi-user.target.wants/tests.service"
printf '127.0.0.1 localhost vm\n::1 localhost\n' >"$at/root/etc/hosts"
echo vm >"$at/root/etc/hostname"
echo "/dev/vda / ext4 defaults 0 1" >"$at/root/etc/fstab"
kernel=$(echo "$at"/root/boot/vmlinuz-*)
cp "$kernel" "$at/kernel"
cp "${kernel/vmlinuz/initrd.img}" "$at/initrd"
truncate -s 8G "$at/disk"
mkfs.ext4 -q -F -d "$at/root" "$at/disk"
echo "$name: a virtual machine begins"
: >"$at/output"
tail -f --pid=$$ "$at/output" &
timeout "${LIMIT_S:-7200}" qemu-system-x86_64 -accel "${ACCEL:-tcg},thread=multi" -cpu max -smp "$(nproc)" -m 4096 \
    -display none -monitor none -no-reboot -nic none -serial "file:$at/console" -serial "file:$at/output" \
    -kernel "$at/kernel" -initrd "$at/initrd" -drive "file=$at/disk,format=raw,if=virtio" \
    -append "console=ttyS0 panic=-1 root=/dev/vda rw quiet systemd.mask=serial-getty@ttyS0.service" || true
if ! tr -d '\r' <"$at/output" | grep -c "^\(doctor: \)\?exit status 0$" | grep -qx 2; then
    tail -5 "$at/console"
    echo "$name: failed" >&2
    exit 1
fi
echo "$name: passed"
