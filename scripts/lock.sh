#!/usr/bin/env bash
# Write the locks anew: the newest releases that setup.cfg allows, with the hashes of all their files, for every CPython
# that setup.cfg allows on Linux. requirements.lock: to run, test and check; requirements-run.lock: of these, what a host
# needs to run; requirements-tools.lock: uv, which writes them, and what `make audit` needs.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(scripts/tools.sh)
compile() { # LOCK, options of uv, what is asked for
    "$bin/uv" pip compile --quiet --upgrade --universal --generate-hashes --no-annotate --python-version 3.11 \
        --custom-compile-command 'make lock' --output-file "$@"
}
compile requirements.lock --extra all --extra dev setup.cfg
compile requirements-run.lock --constraint requirements.lock --extra all setup.cfg
sed -n '/^tools =/,/^$/s/^    //p' setup.cfg | compile requirements-tools.lock -
