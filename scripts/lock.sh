#!/usr/bin/env bash
# Write requirements.lock anew: the newest releases that setup.cfg allows, with the hashes of all their files,
# for every CPython that setup.cfg allows on Linux.
set -euo pipefail
cd "$(dirname "$0")/.."
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
"${PYTHON:-python3}" -m venv "$at"
"$at/bin/python" -m pip install --quiet --disable-pip-version-check 'uv<1'
"$at/bin/uv" pip compile --quiet --upgrade --universal --generate-hashes --no-annotate --python-version 3.11 \
    --extra dev --custom-compile-command 'make lock' --output-file requirements.lock setup.cfg
