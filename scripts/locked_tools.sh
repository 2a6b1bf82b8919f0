#!/bin/sh
# Makes the virtual environment TOOLS with what deploy/locks/tools.txt names, hashes checked, and with it TOOLS/wheel, the
# wheel of this project. scripts/install_locked.sh makes other environments with it.
#   locked_tools.sh TOOLS
set -eu
tools=$1
case $tools in /*) ;; *) tools=$PWD/$tools ;; esac
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore

fail() {
  echo "ingot: $1" >&2
  exit 1
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is missing."
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
  fail "the venv module of $python is missing; on Debian: apt-get install python3-venv."

"$python" -m venv --clear "$tools"
"$tools/bin/python" -m pip install -q --require-hashes --only-binary :all: -r deploy/locks/tools.txt
# Built from a copy: setuptools would put into the wheel what an older build has left beside the sources.
mkdir "$tools/source"
cp -R pyproject.toml README.md LICENSE shared_ir runtime_service compiler_service ingot "$tools/source"
find "$tools/source" -name __pycache__ -prune -exec rm -rf {} +
"$tools/bin/python" -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$tools/wheel" "$tools/source"
rm -rf "$tools/source"
