"""Shell scripts that are run on hosts as root. Each completes its part, or fails with a message."""

from typing import Final

from mesos_gpu.install.cluster.survey import MARK

_AGENT: Final = "mesos-gpu-agent.service"
#: Prologue that fails if another apply runs on the host.
_ALONE: Final = """\
set -eu
umask 022
exec 9>/run/mesos-gpu-cluster.lock
flock -n 9 || { echo "another apply is under way on this host"; exit 75; }
"""
_PART: Final = """\
part=$(mktemp -d /var/tmp/mesos-gpu-cluster-XXXXXX)
"""

#: Install Debian packages. $@: their names.
PACKAGES: Final = f"""\
{_ALONE}export DEBIAN_FRONTEND=noninteractive
apt-get update -qq 9>&-
apt-get install -qq -y --no-install-recommends "$@" 9>&-
"""

_APT: Final = """\
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -qq -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@" 9>&-; }
"""

#: Install Debian packages of this program. $1: digest to record at the end; $2: "yes" if an earlier release may replace
#: a later one. stdin: a tar of the packages. An installation from a wheel is moved aside, and restored if this fails.
DEB: Final = f"""\
{_ALONE}{_PART}home=/opt/mesos-gpu
undo() {{
    rm -rf "$part"
    [ ! -d $home.before ] || {{ rm -rf $home; mv $home.before $home; }}
}}
trap undo EXIT
chmod 755 "$part"
tar -x -C "$part" --no-same-owner -f -
if [ -d $home ] && ! dpkg-query -S $home >/dev/null 2>&1; then rm -rf $home.before; mv $home $home.before; fi
{_APT}apt update
more=--reinstall
[ "$2" != yes ] || more="$more --allow-downgrades"
apt install $more "$part"/*.deb
rm -rf $home.before
printf '%s\\n' "$1" >{MARK}
"""

#: Install a wheel. $1: digest to record at the end. stdin: a tar of the wheel, requirements.txt, and wheels/ if hosts
#: have no index. Debian packages of this program are removed first.
WHEEL: Final = f"""\
{_ALONE}{_PART}trap 'rm -rf "$part"' EXIT
tar -x -C "$part" --no-same-owner -f -
home=/opt/mesos-gpu
if dpkg-query -S $home >/dev/null 2>&1; then dpkg --remove mesos-gpu 9>&-; fi
[ -x $home/bin/pip ] || python3 -m venv --clear $home
rm -f {MARK}
pip() {{ $home/bin/pip --disable-pip-version-check --no-input --quiet "$@" 9>&-; }}
index=""
[ ! -d "$part/wheels" ] || index="--no-index --find-links $part/wheels"
pip install $index --require-hashes -r "$part/requirements.txt"
pip install --no-index --no-deps --force-reinstall "$part"/*.whl
printf '%s\\n' "$1" >{MARK}
"""

#: Write files and add users. stdin: a tar of files by number, of `list` with NUMBER MODE OWNER PATH for each, and of
#: `users` with NAME and its line of sysusers.d(5). All files are written beside their targets first, so that a failure
#: leaves none of them.
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

#: Enable and start services. For each service three words: start, restart or enable; its unit; IP:PORT at which it then
#: listens, or "-". It must listen within five minutes (the first start of Mesos downloads it), or, without an address,
#: run for three seconds. It has failed when it was not running for six seconds.
SERVICES: Final = f"""\
{_ALONE}while [ $# -gt 0 ]; do
    unit=$2 ip=${{3%:*}} port=${{3#*:}}
    systemctl --quiet enable "$unit" 9>&-
    [ "$1" = enable ] || systemctl "$1" "$unit" 9>&- || true # what it says is told below
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
        echo "$unit does not run; the end of systemd's journal, and of its log:"
        journalctl --no-pager --quiet --lines=10 --unit="$unit" 2>/dev/null || true
        tail -n 20 "/var/log/mesos-gpu/$(echo "${{unit%.service}}" | cut -c 11-).log" || true
        exit 1
    fi
    shift 3
done
"""

#: Prefix of lines that name a directory that is not removed.
STAYS: Final = "stays: "
#: Stop services, remove files. $1: package to remove, deb or wheel; or "-". stdin: lines "unit NAME" and "file PATH".
#: An agent gets SIGUSR1: it ends its tasks, and the master no longer expects it. The registry copy of a master and the
#: data of a ZooKeeper server are removed too: a server that came back with them would vote with old data.
TAKE_AWAY: Final = f"""\
{_ALONE}{_PART}trap 'rm -rf "$part"' EXIT
cat >"$part/list"
while read -r kind unit; do
    [ "$kind" = unit ] || continue
    [ -e "/usr/lib/systemd/system/$unit" ] || [ -e "/etc/systemd/system/$unit" ] || continue
    systemctl --quiet disable "$unit" 9>&-
    if [ "$unit" = {_AGENT} ] && systemctl --quiet is-active "$unit"; then
        systemctl kill --kill-who=main --signal=USR1 "$unit"
        tries=0
        while systemctl --quiet is-active "$unit" && [ $tries -lt 300 ]; do tries=$((tries + 1)); sleep 0.2; done
    fi
    systemctl stop "$unit" 9>&-
    short=${{unit#mesos-gpu-}} short=${{short%.service}}
    [ "$short" != firewall ] || nft delete table inet mesos_gpu 2>/dev/null || true
    [ "$short" != master ] || rm -rf /var/lib/mesos-master/replicated_log
    [ "$short" != zookeeper ] || rm -rf /var/lib/mesos-gpu-zookeeper/version-2
    rm -f /var/log/mesos-gpu/"$short".log /var/log/mesos-gpu/"$short".log.*
    case $short in agent) stay="mesos mesos-gpu" ;; master) stay=mesos-master ;; *) stay=mesos-gpu-$short ;; esac
    for each in $stay; do [ ! -d "/var/lib/$each" ] || echo "{STAYS}/var/lib/$each"; done
done <"$part/list"
case $1 in
deb)
    rm -f {MARK}
    dpkg-query -W -f '${{Package}} ${{db:Status-Status}}\\n' mesos-gpu mesos-gpu-agent 2>/dev/null >"$part/debs" || true
    while read -r name status; do
        [ "$status" = not-installed ] || dpkg --purge "$name" 9>&- >/dev/null
    done <"$part/debs"
    ;;
wheel) rm -rf /opt/mesos-gpu ;;
esac
while read -r kind path; do [ "$kind" != file ] || rm -f -- "$path"; done <"$part/list"
for each in /etc/mesos-gpu/secrets /etc/mesos-gpu/zookeeper /etc/mesos-gpu /usr/lib/mesos-gpu /opt/mesos-gpu \\
    /var/log/mesos-gpu; do
    [ ! -d $each ] || rmdir --ignore-fail-on-non-empty $each
done
[ ! -d /run/systemd/system ] || systemctl daemon-reload
"""
