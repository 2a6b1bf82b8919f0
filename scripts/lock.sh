#!/bin/sh
# Writes deploy/locks: every package that images install, with the hashes of its files, for Python 3.11 and newer. What is
# locked already stays, unless pyproject.toml wants another; `--upgrade` takes the newest instead.
#   lock.sh UV FOLDER [--upgrade]
set -eu
cd "$(dirname "$0")/.."
uv=$1 folder=$2
shift 2
lock() { # NAME OPTION...
  name=$1
  shift
  "$uv" pip compile -q --universal --python-version 3.11 --generate-hashes --only-binary :all: --no-annotate \
    --custom-compile-command "make lock" --output-file "$folder/$name.txt" "$@" >/dev/null
}
lock compiler pyproject.toml --extra compiler --extra telemetry "$@"
lock runtime pyproject.toml --extra runtime --extra telemetry --constraints "$folder/compiler.txt" "$@" # both services run the same versions
lock tools --group tools "$@"
