#!/usr/bin/env bash
# Make build/tools, an environment with what writes and audits the locks, and print the path of its programs. Quick when
# nothing changed since the last time. It is none of .venv's: these tools bring a pip and much else.
set -euo pipefail
cd "$(dirname "$0")/.."
at=build/tools
want=$(sha256sum requirements-tools.lock)
if [ "$(cat "$at/.ready" 2>/dev/null)" != "$want" ]; then
    rm -rf "$at"
    "${PYTHON:-python3}" -m venv "$at"
    "$at/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-tools.lock >&2
    echo "$want" >"$at/.ready"
fi
echo "$at/bin"
