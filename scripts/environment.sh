#!/bin/sh
# Makes the virtual environment VENV and installs this project with EXTRAS into it. One line, unless something is missing.
#   environment.sh VENV EXTRAS
set -eu
venv=$1 extras=$2

fail() {
  echo "ingot: $1" >&2
  exit 1
}

find_python() {
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is missing; on Debian: apt-get install python3 python3-venv."
}

if [ ! -x "$venv/bin/python" ]; then
  python=$(find_python)
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    fail "the venv module of $python is missing; on Debian: apt-get install python3-venv."
  fi
  "$python" -m venv "$venv" || fail "the virtual environment $venv cannot be made."
fi
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$venv holds a Python older than 3.11; remove it (make clean) and try again."

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
# Until the distribution was called ingot-ml it was `ingot`; both would own the same modules and the same command.
# -I: without the folder we are in, where an old build may have left metadata of that name.
rm -rf ingot.egg-info
ours='import importlib.metadata as m, sys; sys.exit("shared_ir" not in (m.distribution("ingot").read_text("top_level.txt") or ""))'
if "$venv/bin/python" -I -c "$ours" 2>/dev/null; then
  "$venv/bin/python" -I -m pip uninstall -q -y ingot || fail "the older distribution in $venv cannot be removed; make clean."
fi

echo "ingot: installing packages ($extras) into $venv"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$venv/bin/python" -m pip install -q --no-compile --retries 5 -e ".[$extras]" >"$log" 2>&1; then
  # Warnings say why a download failed; those about indexes that lack a package say nothing and are many.
  grep -v 'is ignored: it is' "$log" |
    sed -e 's/Retrying (Retry(.*)) after/Retrying after/' -e 's/ object at 0x[0-9a-f]*//' |
    awk '!seen[$0]++' | tail -n 15 >&2
  fail "the packages could not be installed; pip says why above (is PyPI reachable?)."
fi
