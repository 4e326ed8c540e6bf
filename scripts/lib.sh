# shellcheck shell=bash
# Functions that the scripts source.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/builder-dev
mkdir -p "$cache"

say() { printf '%s\n' "$*" >&2; }

die() { say "$(basename "$0"): $*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "needs root to run: $*"
    fi
}

# Read the lists of packages; mirrors of hosted runners sometimes do not answer at the first time.
apt_update() {
    local pause
    for pause in 5 20 60 ""; do
        as_root apt-get -qq -o Acquire::Retries=3 update && return
        [ -z "$pause" ] || { say "apt-get update failed; again in $pause s"; sleep "${BUILDER_RETRY_PAUSE:-$pause}"; }
    done
    die "apt-get update failed four times"
}

# Install missing Debian packages.
need_packages() {
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null || die "there is no apt-get on this machine; install these packages by other means: ${missing[*]}"
    say "installing ${missing[*]}"
    apt_update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o Acquire::Retries=3 install "${missing[@]}" >"$cache/apt.log" 2>&1 ||
        { tail -n 20 "$cache/apt.log" >&2; die "apt-get could not install ${missing[*]}"; }
}

# In a workflow, inputs come first from the mirror that `publish` keeps beside the images of the repository: they survive their
# upstreams. Where there is none, or it cannot be read, they come from the upstreams.
use_mirror() {
    [ -n "${BUILDER_MIRROR:-}" ] || BUILDER_MIRROR=ghcr.io/${GITHUB_REPOSITORY,,}/inputs
    export BUILDER_MIRROR
}

# On a host that is not Debian, the templates of python3-apt list the mirrors of the Debian archive.
need_debian_mirrors() {
    [ -n "${BUILDER_DEB_MIRROR:-}" ] || grep -qx ID=debian /etc/os-release ||
        [ -e /usr/share/python-apt/templates/Debian.info ] || need_packages python-apt-common
}

find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "needs Python 3.11 or newer"
}

# Create a virtual environment with exactly the packages of a requirements file; create it again when Python or the file
# changes.
make_venv() { # FOLDER REQUIREMENTS
    local folder=$1 requirements=$2 python stamp
    python=$(find_python)
    stamp=$("$python" -c 'import sys; print(sys.version)'; sha256sum <"$requirements")
    if [ -x "$folder/bin/python" ] && [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
    rm -rf "$folder"
    if ! "$python" -m venv "$folder" 2>"$cache/venv.log"; then
        need_packages python3-venv
        "$python" -m venv "$folder"
    fi
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r "$requirements"
    printf '%s' "$stamp" >"$folder/.stamp"
}

# Put the development tools on PATH and this checkout on PYTHONPATH. The tools are in the virtual environment
# BUILDER_DEV, or in one that this function creates.
use_dev() {
    # Tests start hundreds of interpreters; without bytecode each compiles what it imports.
    unset PYTHONDONTWRITEBYTECODE
    local dev=${BUILDER_DEV:-$cache/dev}
    [ -n "${BUILDER_DEV:-}" ] || make_venv "$dev" "$repository/scripts/dev-requirements.txt"
    export PATH="$dev/bin:$PATH" PYTHONPATH="$repository"
}
