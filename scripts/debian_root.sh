# A fresh Debian with a fresh clone of this repository, for scripts that source this file after `set -euo pipefail`.
#
# make_debian SUITE [PACKAGE…]  makes the root file system $at/root in a new directory by debootstrap, with the apt
#     sources and the pip settings of this machine and a clone of what is committed in /srv/mesos_gpu.
# run_in_debian COMMAND…  runs commands in that clone, in namespaces: mounts and processes end with the caller, however
#     the caller ends.
#
# Needs root, debootstrap, 8 GB below $TMPDIR (or /var/tmp), and a Debian mirror and a Python index, which are those of
# this machine's apt and pip. The directory is removed at the end of the caller.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=$(basename "$0" .sh)
if [ "$(id -u)" != 0 ]; then echo "$name needs root: it makes a root file system" >&2; exit 1; fi
if ! command -v debootstrap >/dev/null; then echo "Run this line: apt-get install -y debootstrap" >&2; exit 1; fi
at=$(mktemp -d "${TMPDIR:-/var/tmp}/mesos-gpu-bare-XXXXXX")
child=
trap '[ -z "$child" ] || { kill -9 $child 2>/dev/null || true; wait $child || true; }; rm -rf --one-file-system "$at"' EXIT
trap 'exit 143' HUP INT TERM
chmod 755 "$at"

make_debian() {
    local suite=$1 mirror found uri include=ca-certificates
    shift
    for package in "$@"; do include+=",$package"; done
    # Debian's own sources of this machine's apt, or the default of debootstrap.
    apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
        awk '$1 ~ /^Debian/ {print $2, $3}' | sort -u >"$at/sources"
    mirror=$(awk -v suite="$suite" '$1 == suite {print $2; exit}' "$at/sources")
    # Without a source of this suite: the mirror that this machine has of another one.
    [ -n "$mirror" ] || mirror=$(awk '$1 !~ /-/ {print $2; exit}' "$at/sources")
    echo "$name: debootstrap of $suite in $at"
    debootstrap --variant=minbase --include="$include" "$suite" "$at/root" ${mirror:+"$mirror"} >"$at/log" ||
        { tail -20 "$at/log" >&2; return 1; }
    if [ -n "$mirror" ]; then
        { echo "$suite $mirror"; cat "$at/sources"; } | awk -v suite="$suite" 'index($1, suite) == 1' | sort -u |
            while read -r found uri; do echo "deb $uri $found main"; done >"$at/root/etc/apt/sources.list"
    fi
    apt-config dump | grep -E '^Acquire::(https?|ftp)::|^Acquire::Retries' >"$at/root/etc/apt/apt.conf.d/90carried" || true

    # Settings of pip from files and variables; directories and files that they name are carried, too.
    python3 -m pip config list 2>/dev/null | sed -n "s/^[^.]*\.\([a-z-]*\)='\(.*\)'$/\1 = \2/p; s/^:env:\.\([a-z-]*\)='\(.*\)'$/\1 = \2/p" |
        sort -u -t= -k1,1 >"$at/pip"
    { echo "[global]"; cat "$at/pip"; } >"$at/root/etc/pip.conf"
    # An index in a directory has its files beside it.
    grep -oE '(file:)?/[^ ]+' "$at/pip" | sed 's,^file:/*\(/.*\)/[^/]*$,\1,' | sort -u >"$at/paths" || true
    cp /etc/ssl/certs/ca-certificates.crt "$at/root/etc/ssl/certs/ca-certificates.crt"
    cp /etc/resolv.conf "$at/root/etc/resolv.conf"
    printf '127.0.0.1 localhost\n::1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$at/root/etc/hosts"
    git clone --quiet --no-hardlinks "$root" "$at/root/srv/mesos_gpu"
}

run_in_debian() {
    local keep=(HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin) variable
    for variable in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY CI WORKERS; do
        [ -z "${!variable:-}" ] || keep+=("$variable=${!variable}")
    done
    cat >"$at/root/inside" <<INSIDE
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /srv/mesos_gpu
for command in "\$@"; do
    echo "$name: \$command"
    eval "\$command"
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
    # A child, for the directory must be removed at the end. A signal reaches the caller when the child has ended.
    setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child=KILL \
        env -i "${keep[@]}" bash "$at/enter" "$at" "$@" &
    child=$!
    wait $child
    child=
}
