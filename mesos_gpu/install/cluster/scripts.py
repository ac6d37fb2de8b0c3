"""What is run on hosts as root: scripts of sh. Each does its part as a whole, or says why not."""

from typing import Final

from mesos_gpu.install.cluster.survey import MARK

#: At most one of them at once on a host.
_ALONE: Final = """\
set -eu
umask 022
exec 9>/run/mesos-gpu-cluster.lock
flock -n 9 || { echo "another apply is under way on this host"; exit 75; }
"""
_PART: Final = """\
part=$(mktemp -d /var/tmp/mesos-gpu-cluster-XXXXXX)
"""

#: $@: names of packages.
PACKAGES: Final = f"""\
{_ALONE}export DEBIAN_FRONTEND=noninteractive
apt-get update -qq 9>&-
apt-get install -qq -y --no-install-recommends "$@" 9>&-
"""

#: $1: digest that is noted in the end. stdin: the package.
DEB: Final = f"""\
{_ALONE}{_PART}trap 'rm -rf "$part"' EXIT
chmod 755 "$part"
cat >"$part/mesos-gpu.deb"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq 9>&-
apt-get install -qq -y --no-install-recommends --reinstall "$part/mesos-gpu.deb" 9>&-
printf '%s\\n' "$1" >{MARK}
"""

#: $1: digest that is noted in the end. stdin: a tar of the wheel, of requirements.txt, and of wheels/, if hosts have no
#: index.
WHEEL: Final = f"""\
{_ALONE}{_PART}trap 'rm -rf "$part"' EXIT
tar -x -C "$part" --no-same-owner -f -
home=/opt/mesos-gpu
[ -x $home/bin/pip ] || python3 -m venv --clear $home
rm -f {MARK}
pip() {{ $home/bin/pip --disable-pip-version-check --no-input --quiet "$@" 9>&-; }}
index=""
[ ! -d "$part/wheels" ] || index="--no-index --find-links $part/wheels"
pip install $index --require-hashes -r "$part/requirements.txt"
pip install --no-index --no-deps --force-reinstall "$part"/*.whl
printf '%s\\n' "$1" >{MARK}
"""

#: stdin: a tar of the files by number, of `list` with NUMBER MODE OWNER PATH for each, and of `users` with NAME and its
#: line of sysusers.d(5). All are written beside their places first, so that a failure leaves none of them.
FILES: Final = f"""\
{_ALONE}{_PART}undo() {{
    while read -r n mode owner path; do rm -f "$path.mesos-gpu-new"; done <"$part/list"
    rm -rf "$part"
}}
trap undo EXIT
chmod 700 "$part"
: >"$part/list"
tar -x -C "$part" --no-same-owner -f -
while read -r name line; do
    getent passwd "$name" >/dev/null || systemd-sysusers --inline "$line" 2>/dev/null ||
        useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin "$name"
done <"$part/users"
while read -r n mode owner path; do
    to=${{path%/*}}
    case $to in */secrets) [ -d "$to" ] || mkdir -p -m 700 "$to" ;; *) mkdir -p "$to" ;; esac
    [ ! -d "$path" ] || {{ echo "$path is a directory"; exit 1; }}
    rm -f "$path.mesos-gpu-new"
    (umask 077 && cp "$part/$n" "$path.mesos-gpu-new")
    chown "$owner" "$path.mesos-gpu-new"
    chmod "$mode" "$path.mesos-gpu-new"
done <"$part/list"
while read -r n mode owner path; do mv -T "$path.mesos-gpu-new" "$path"; done <"$part/list"
for each in /usr/lib/tmpfiles.d/mesos-gpu-*.conf; do
    [ ! -e "$each" ] || systemd-tmpfiles --create "$each"
done
[ ! -d /run/systemd/system ] || systemctl daemon-reload
"""

#: For each service three words: start, restart or enable; its unit; IP:PORT at which it then listens, or -. It must
#: listen within five minutes, for the first start of Mesos fetches it, or run for three seconds; it is given up when it
#: has not run for six seconds.
SERVICES: Final = f"""\
{_ALONE}while [ $# -gt 0 ]; do
    unit=$2 ip=${{3%:*}} port=${{3#*:}}
    systemctl --quiet enable "$unit" 9>&-
    [ "$1" = enable ] || systemctl "$1" "$unit" 9>&-
    tries=0 most=300
    [ "$3" != - ] || most=3
    while :; do
        systemctl --quiet is-active "$unit" || tries=$((tries + 50))
        if [ "$3" != - ] && bash -c ": </dev/tcp/$ip/$port" 2>/dev/null; then break; fi
        tries=$((tries + 1))
        [ $tries -lt $most ] || break
        sleep 1
    done
    if ! systemctl --quiet is-active "$unit" || {{ [ "$3" != - ] && [ $tries -ge $most ]; }}; then
        echo "$unit does not run; the end of its log:"
        tail -n 20 "/var/log/mesos-gpu/$(echo "${{unit%.service}}" | cut -c 11-).log" || true
        exit 1
    fi
    shift 3
done
"""
