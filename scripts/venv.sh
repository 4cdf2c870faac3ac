# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: makes a virtual environment in .venv with the pinned packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONDONTWRITEBYTECODE # otherwise each process compiles all its imports again

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

# apt_install PACKAGE...: install Debian packages; false if that is not permitted.
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

# install VENV CONSTRAINTS ARGUMENT...: what `pip install` does with these arguments, by uv where
# that can be had: it takes seconds, pip minutes. uv gets the indices that pip is set to use.
# One at a time: an editable installation writes into the folder of the sources.
install() (
    mkdir -p build
    exec 9>build/.installing
    ! command -v flock >/dev/null || flock 9
    local venv=$1 constraints=$2 set links more index cert quiet=--quiet
    shift 2
    ! [ -t 2 ] || quiet='' # a person sees what is downloaded, how much, and how far it is
    set=$("$venv/bin/python" -m pip config list 2>/dev/null || true)
    pip_set() { sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" <<<"$set" | head -n 1 | sed 's/\\n/ /g'; }
    links=$(pip_set find-links) more=$(pip_set extra-index-url) index=$(pip_set index-url) cert=$(pip_set cert)
    # PyPI's PyTorch for Linux brings some gigabytes of CUDA, which nothing here uses.
    [ -n "$links$more$index" ] || local -x UV_TORCH_BACKEND=${UV_TORCH_BACKEND:-cpu}
    if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt uv; then
        env ${links:+UV_FIND_LINKS="$(tr -s ' ' , <<<"$links")"} ${more:+UV_INDEX="$more"} \
            ${index:+UV_DEFAULT_INDEX="$index"} ${cert:+SSL_CERT_FILE="$cert"} \
            "$venv/bin/uv" pip install $quiet --python "$venv/bin/python" \
            --index-strategy unsafe-best-match --constraint "$constraints" "$@" && return
    fi
    echo "uv did not install it; pip takes some minutes" >&2
    "$venv/bin/python" -m pip install $quiet --disable-pip-version-check \
        --constraint "$constraints" "$@"
)

# installed EXTRAS: whether n3ic is in .venv with these extras, or with more.
installed() {
    local stamp have one
    for stamp in .venv/.installed-*; do
        [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ] || continue
        have=,${stamp#*.installed-},
        for one in ${1//,/ }; do
            case $have in
            *,"$one",*) ;;
            *,all,*) [ "$one" != dev ] || continue 2 ;;
            *) continue 2 ;;
            esac
        done
        return 0
    done
    return 1
}

# make_venv EXTRAS: install n3ic with these extras into .venv, if that has not been done yet.
make_venv() {
    local extras=$1 python
    ! installed "$extras" || return 0
    python=$(find_python)
    if ! [ -x .venv/bin/python ]; then
        echo "creating .venv with $python" >&2
        "$python" -m venv .venv || {
            echo "the venv module is missing; on Debian: apt-get install python3-venv" >&2
            return 1
        }
    fi
    echo "installing n3ic[$extras] into .venv" >&2
    install .venv constraints.txt --editable ".[$extras]"
    touch ".venv/.installed-$extras"
    echo "installed: $(du -sm .venv | cut -f 1) MB in .venv" >&2
}

# compile_once VENV: compilers that keep what they compiled in build/compiled come first on the PATH.
compile_once() {
    local name real folder=$PWD/build/compilers/${1#.} # of each environment, for they run side by side
    mkdir -p "$folder"
    for name in cc gcc g++ clang; do
        real=$(PATH=${PATH//"$folder:"/} command -v "$name") || continue
        printf '#!/bin/sh\n[ "$1" != --version ] || exec %q --version\nexec %q -IS %q %q %q "$@"\n' \
            "$real" "$PWD/$1/bin/python" \
            "$PWD/scripts/compiled_once.py" "$PWD/build/compiled" "$real" >"$folder/$name"
        chmod +x "$folder/$name"
    done
    PATH=$folder:${PATH//"$folder:"/}
}
