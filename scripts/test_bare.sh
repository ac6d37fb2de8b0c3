#!/usr/bin/env bash
# Both commands of the README in a fresh clone on a fresh Debian 12: debootstrap, a root of its own, `make demo`,
# `make test`. Needs root, debootstrap, 8 GB below $TMPDIR (or /var/tmp), and a Debian mirror and a Python index, which
# are those of this machine's apt and pip. What is committed is tested. Mounts and processes are in namespaces of their
# own: they end with this script, whatever ends it. `COMMANDS="make demo"`: other commands.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ "$(id -u)" != 0 ]; then echo "make test-bare needs root: it makes a root file system" >&2; exit 1; fi
if ! command -v debootstrap >/dev/null; then echo "Run this line: apt-get install -y debootstrap" >&2; exit 1; fi

at=$(mktemp -d "${TMPDIR:-/var/tmp}/mesos-gpu-bare-XXXXXX")
trap 'rm -rf --one-file-system "$at"' EXIT
trap 'exit 143' HUP INT TERM
chmod 755 "$at"

# Debian's own sources of this machine's apt, or what debootstrap takes by itself.
apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
    awk '$1 ~ /^Debian/ && $2 ~ /^bookworm/ {print $2, $3}' | sort -u >"$at/sources"
mirror=$(awk '$1 == "bookworm" {print $2; exit}' "$at/sources")
echo "test-bare: debootstrap in $at"
debootstrap --variant=minbase --include=ca-certificates bookworm "$at/root" ${mirror:+"$mirror"} >"$at/log" ||
    { tail -20 "$at/log" >&2; exit 1; }
if [ -n "$mirror" ]; then
    while read -r suite uri; do echo "deb $uri $suite main"; done <"$at/sources" >"$at/root/etc/apt/sources.list"
fi
apt-config dump | grep -E '^Acquire::(https?|ftp)::|^Acquire::Retries' >"$at/root/etc/apt/apt.conf.d/90carried" || true

# What pip is told here, whoever tells it; directories and files that it names are carried, too.
python3 -m pip config list 2>/dev/null | sed -n "s/^[^.]*\.\([a-z-]*\)='\(.*\)'$/\1 = \2/p; s/^:env:\.\([a-z-]*\)='\(.*\)'$/\1 = \2/p" |
    sort -u -t= -k1,1 >"$at/pip"
{ echo "[global]"; cat "$at/pip"; } >"$at/root/etc/pip.conf"
# An index in a directory has its files beside it.
grep -oE '(file:)?/[^ ]+' "$at/pip" | sed 's,^file:/*\(/.*\)/[^/]*$,\1,' | sort -u >"$at/paths" || true
cp /etc/ssl/certs/ca-certificates.crt "$at/root/etc/ssl/certs/ca-certificates.crt"
cp /etc/resolv.conf "$at/root/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$at/root/etc/hosts"
git clone --quiet --no-hardlinks "$root" "$at/root/srv/mesos_gpu"

cat >"$at/root/inside" <<'INSIDE'
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends python3 python3-venv git make >/dev/null # as the README says
cd /srv/mesos_gpu
for command in "$@"; do
    echo "test-bare: $command"
    $command
done
INSIDE
cat >"$at/enter" <<'ENTER'
set -eu
at=$1; shift
mount --bind "$at/root" "$at/root"
mount --rbind /sys "$at/root/sys"
mount --rbind /dev "$at/root/dev"
mount -t proc proc "$at/root/proc"
mount -t tmpfs tmpfs "$at/root/run"
while read -r path; do
    if [ -d "$path" ]; then mkdir -p "$at/root$path"; mount --bind -o ro "$path" "$at/root$path"; fi
    if [ -f "$path" ]; then install -D -m 644 "$path" "$at/root$path"; fi
done <"$at/paths"
mkdir "$at/root/old"
cd "$at/root"
pivot_root . old
umount --lazy /old
rmdir /old
exec /bin/bash /inside "$@"
ENTER
commands=("make demo" "make test")
[ -z "${COMMANDS:-}" ] || commands=("$COMMANDS")
keep=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CI WORKERS; do
    [ -z "${!name:-}" ] || keep+=("$name=${!name}")
done
# Not exec'd: `rm` follows. A signal reaches the script when this has ended; kill -9 of the script ends it, too.
setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child=KILL \
    env -i "${keep[@]}" bash "$at/enter" "$at" "${commands[@]}" &
child=$!
trap 'kill -9 $child 2>/dev/null || true; wait $child || true; rm -rf --one-file-system "$at"' EXIT
wait $child
echo "test-bare: passed"
