#!/bin/sh
# Usage: make_venv.sh FOLDER LOCK [project]
# A virtual environment with exactly what a lock file names (every wheel checked by its hash), and with "project" also
# this package in editable mode. Needs Python 3.11 or newer and nothing else; never root.
set -eu
folder=$1 lock=$2 project=${3:-}
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "tidelake needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2
    exit 1
}
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT

# The pip that installs into $folder: its own, that of $python, or (Debian splits pip and ensurepip off) the wheel that
# Debian's package holds, which apt fetches and checks for anybody.
pip() {
    if [ -n "$wheel" ]; then
        "$folder/bin/python" "$wheel/pip" -q --disable-pip-version-check "$@"
    elif [ -n "$outside" ]; then
        "$python" -m pip -q --disable-pip-version-check --python "$folder/bin/python" "$@"
    else
        "$folder/bin/python" -m pip -q --disable-pip-version-check "$@"
    fi
}
wheel='' outside=''
if [ ! -x "$folder/bin/python" ] || ! pip --version >/dev/null 2>&1; then
    rm -rf "$folder"
    if ! "$python" -m venv "$folder" >/dev/null 2>&1; then
        rm -rf "$folder"
        "$python" -m venv --without-pip "$folder"
        outside=yes
        if ! pip --version >/dev/null 2>&1; then
            (cd "$fetched" && apt-get download python3-pip-whl && dpkg-deb -x python3-pip-whl_*.deb .) >/dev/null 2>&1 || true
            for wheel in "$fetched"/usr/share/python-wheels/pip-*.whl; do :; done
            [ -f "$wheel" ] || {
                rm -rf "$folder"
                echo "cannot make a virtual environment: install python3-venv (or pip)" >&2
                exit 1
            }
        fi
    fi
fi
echo "installing $lock into $folder"
# uv is a matter of speed only: where it does not reach the index that pip is set up for, pip does the work.
{ pip install --no-deps --require-hashes -r requirements/bootstrap.txt &&
    "$folder/bin/uv" pip install -q --python "$folder/bin/python" --no-deps --require-hashes -r "$lock"; } ||
    pip install --no-deps --require-hashes -r "$lock"
if [ -n "$project" ]; then
    # The build backend is in the lock, so nothing unlocked is fetched here.
    pip install --no-deps --no-build-isolation -e .
fi
