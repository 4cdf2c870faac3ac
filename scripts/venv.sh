# Sourced by the other scripts: a virtual environment in .venv with what is pinned.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "n3ic needs Python 3.11 or newer; install it, or name it: PYTHON=/path/to/python $0" >&2
    return 1
}

# apt_install PACKAGE...: install Debian packages; false where there is no right to.
apt_install() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null || return 1
    echo "installing $*" >&2
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# make_venv EXTRAS: install n3ic with these extras into .venv, if that has not been done yet.
make_venv() {
    local extras=$1 stamp=".venv/.installed-$1" python
    if [ -f "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ]; then
        return
    fi
    python=$(find_python)
    if ! [ -x .venv/bin/python ]; then
        echo "creating .venv with $python" >&2
        "$python" -m venv .venv || {
            echo "the venv module is missing; on Debian: apt-get install python3-venv" >&2
            return 1
        }
    fi
    echo "installing n3ic[$extras] into .venv (some minutes the first time)" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt --editable ".[$extras]"
    touch "$stamp"
}
