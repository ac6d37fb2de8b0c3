#!/usr/bin/env bash
# Make .venv with the project and its tools in it. Quick when nothing changed since the last time.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.ready
want=$(cat setup.cfg pyproject.toml requirements.lock pymesos.lock scripts/setup.sh mesos_gpu/__init__.py | sha256sum | cut -d' ' -f1)

python=${PYTHON:-python3}
"$python" - <<'PY' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit("mesos_gpu needs Python 3.11 or later; this is %s. Set PYTHON=/path/to/python3.11." % sys.version.split()[0])
PY

# Debian packages: libsasl2-2 for Mesos itself; tar ships with Debian.
missing=()
if ! "$python" -c 'import ctypes; ctypes.CDLL("libsasl2.so.2")' 2>/dev/null; then missing+=(libsasl2-2); fi
if ! "$python" -c 'import ctypes; ctypes.CDLL("libstdc++.so.6")' 2>/dev/null; then missing+=(libstdc++6); fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then missing+=(python3-venv); fi
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing ${missing[*]} with apt-get"
        (apt-get install -qq -y --no-install-recommends "${missing[@]}" ||
            { apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}"; }) >/dev/null
    else
        echo "setup: these Debian packages are missing. Run this line, then try again:" >&2
        echo "    sudo apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
fi

# Agents of `mesos-gpu up --secure` prove by CRAM-MD5 who they are. Where that is not installed, --secure names the package.
if ! compgen -G "/usr/lib*/*/sasl2/libcrammd5.so" >/dev/null && ! [ -e /usr/lib64/sasl2/libcrammd5.so ] &&
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing libsasl2-modules with apt-get"
    (apt-get install -qq -y --no-install-recommends libsasl2-modules ||
        { apt-get update -qq && apt-get install -qq -y --no-install-recommends libsasl2-modules; }) >/dev/null ||
        echo "setup: mesos-gpu up --secure does not start on this host: libsasl2-modules is missing" >&2
fi

# A C compiler builds the libraries that keep shares of GPUs. Where there is none, and none is installed here, shares are
# kept by other means, and all else works: it stops nothing.
if ! command -v cc >/dev/null && ! command -v gcc >/dev/null && ! command -v clang >/dev/null &&
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing gcc libc6-dev with apt-get"
    (apt-get install -qq -y --no-install-recommends gcc libc6-dev ||
        { apt-get update -qq && apt-get install -qq -y --no-install-recommends gcc libc6-dev; }) >/dev/null ||
        echo "setup: no C compiler: shares of GPUs are not kept by libraries of ours on this host" >&2
fi

[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0
[ -x .venv/bin/python ] || "$python" -m venv .venv
echo "setup: installing mesos_gpu and its tools into .venv"
pip=(.venv/bin/python -m pip install --disable-pip-version-check)
"${pip[@]}" --progress-bar off --require-hashes -r requirements.lock |
    .venv/bin/python -m scripts.installing requirements.lock "$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')"
pip+=(--quiet)
echo "setup: building pymesos and mesos_gpu"
# Without its dependencies: one of them does not build, and mesos_gpu has another in its place (docs/adr/0015).
"${pip[@]}" --require-hashes --no-deps --no-build-isolation -r pymesos.lock
# Built by what the lock names; by a path, and not by a finder that each start of Python would import.
"${pip[@]}" --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
echo "$want" >"$stamp"
