#!/usr/bin/env bash
# Both commands of the README in a fresh clone on a fresh Debian 12: `make demo` and `make test` of what is committed.
# `COMMANDS="make demo"`: another command.
set -euo pipefail
source "$(dirname "$0")/debian_root.sh"

make_debian bookworm
commands=("make demo" "make test")
[ -z "${COMMANDS:-}" ] || commands=("$COMMANDS")
# What the README asks for.
run_in_debian "apt-get update -qq" \
    "apt-get install -qq -y --no-install-recommends python3 python3-venv git make >/dev/null" "${commands[@]}"
echo "$name: passed"
