#!/bin/sh
# Makes the virtual environment FOLDER with this project and what deploy/locks/LOCK.txt names, hashes checked: images and
# machines get the same. It holds no pip and no setuptools; FOLDER/sbom.cdx.json (CycloneDX) lists what it holds.
#   install_locked.sh FOLDER LOCK [TOOLS]      LOCK is runtime or compiler; TOOLS, FOLDER.tools by default, is made if missing
set -eu
folder=$1 lock=$2 tools=${3:-$1.tools}
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
case $tools in /*) ;; *) tools=$PWD/$tools ;; esac
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore

fail() {
  echo "ingot: $1" >&2
  exit 1
}

[ -e "deploy/locks/$lock.txt" ] || fail "there is no deploy/locks/$lock.txt; LOCK is runtime or compiler."
[ ! -e "$folder" ] || fail "$folder is there already; remove it, or name another folder."
[ -d "$tools/wheel" ] || sh scripts/locked_tools.sh "$tools"

trap 'rm -rf "$folder"' EXIT # half an environment is none
"$tools/bin/python" -m venv --without-pip "$folder"
pip() { "$tools/bin/python" -m pip --python "$folder/bin/python" "$@"; }
pip install -q --only-binary :all: --require-hashes -r "deploy/locks/$lock.txt"
pip install -q --no-deps --no-index "$tools"/wheel/*.whl
pip check -q || fail "deploy/locks/$lock.txt does not fit pyproject.toml; run: make lock"

version=$(basename "$tools"/wheel/*.whl | cut -d- -f2)
sed "s/^dynamic = .*/version = \"$version\"/" pyproject.toml >"$folder/sbom.toml" # the root of the SBOM
"$tools/bin/cyclonedx-py" environment --output-reproducible --output-format JSON --output-file "$folder/sbom.cdx.json" \
  --pyproject "$folder/sbom.toml" "$folder/bin/python"
rm "$folder/sbom.toml"
trap - EXIT
