#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# setup.sh -- brings what a target of the Makefile needs and this machine lacks.
#
# usage: tools/setup.sh BUILD_FOLDER GROUP...   (build test lint wheel oracle
#        demo aarch64).  Each thing is looked for first, only what is missing is
#        installed: system packages with apt-get (Debian 12, Ubuntu 24.04 or
#        later), Python packages with pip into BUILD_FOLDER/venv.  What was
#        found is stamped, so that a second call is instant.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=$1
shift
mkdir -p "$build"
build=$(cd "$build" && pwd)
venv=$build/venv
stamps=$build/.setup
pins=$root/packaging

say() {
    echo "setup: $*" >&2
}

# ---- system packages --------------------------------------------------------
missing=()

want_command() { # command package
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

want_header() { # header package: whether the C compiler finds it
    if ! printf '#include <stddef.h>\n#include <stdarg.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\n' "$1" |
        cc -E -x c - >/dev/null 2>&1; then
        missing+=("$2")
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        say "needs root (or sudo) to run: $*"
        exit 1
    fi
}

# Packages that improve what is built and that it can do without: what apt does
# not have, or will not install, is left out.
optional=()

want_optional() { # command package...: all packages, unless the command is there
    local command=$1
    shift
    command -v "$command" >/dev/null 2>&1 || optional+=("$@")
}

install_optional() {
    local known=() p
    [ ${#optional[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null 2>&1 || return 0
    if [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null; then
        say "without ${optional[*]}: installing them needs root"
        return 0
    fi
    # a machine that has never asked knows no packages
    apt-cache show "${optional[0]}" >/dev/null 2>&1 ||
        as_root apt-get -qq update >&2 || true
    for p in "${optional[@]}"; do
        if ! apt-cache show "$p" >/dev/null 2>&1; then
            say "without ${optional[*]}: apt has no $p (docs/building.md)"
            return 0
        fi
        known+=("$p")
    done
    say "installing ${known[*]} (optional)"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
        --no-install-recommends "${known[@]}" >&2 ||
        say "that failed: going on without"
}

install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        say "missing here, and there is no apt-get: ${missing[*]}"
        say "install your system's packages of these, then run this again"
        exit 1
    fi
    say "installing ${missing[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
        --no-install-recommends "${missing[@]}" >&2
    missing=()
}

# ---- Python -----------------------------------------------------------------
# An interpreter will do if it is 3.11 or later, can make a venv, and has its
# headers; prints its path.
python_found() {
    local p
    for p in python3 python3.11 python3.12 python3.13 python3.14 \
        /usr/bin/python3; do
        command -v "$p" >/dev/null 2>&1 || continue
        if "$p" - >/dev/null 2>&1 <<'END'
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
sys.exit(sys.version_info < (3, 11) or not os.path.exists(header))
END
        then
            command -v "$p"
            return 0
        fi
    done
    return 1
}

make_venv() {
    local p
    if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version \
        >/dev/null 2>&1; then
        return 0
    fi
    p=$(python_found) || {
        say "no Python of 3.11 or later with venv and headers"
        exit 1
    }
    say "making $venv with $p"
    rm -rf "$venv"
    "$p" -m venv "$venv"
}

pip_install() { # arguments of pip install
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "$@" >&2
}

# ---- groups -----------------------------------------------------------------
# Each first names its system packages, then installs its Python packages.
system_build() {
    want_command cc gcc
    want_header stdio.h libc6-dev
    want_command cmake cmake
    want_command ninja ninja-build
    want_command ccache ccache
    want_command pkg-config pkg-config
    want_command objdump binutils
    want_header cjson/cJSON.h libcjson-dev
    want_header sleef.h libsleef-dev
    # CMake looks for it when it configures, whatever is built later.
    want_header cmocka.h libcmocka-dev
    python_found >/dev/null ||
        missing+=(python3 python3-venv python3-dev)
    # native code for compiled functions (docs/dependencies.md)
    case $(uname -m) in
    x86_64) want_optional clang-19 clang-19 llvm-19-dev ;;
    esac
}
python_build() {
    pip_install -r "$pins/requirements-build.txt"
}

system_test() {
    want_command g++ g++
}
python_test() {
    pip_install -r "$pins/requirements-test.txt"
}

system_aarch64() {
    want_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    # only recommended by the compiler, which cannot link without it
    [ -e /usr/aarch64-linux-gnu/lib/crt1.o ] || missing+=(libc6-dev-arm64-cross)
    want_command qemu-aarch64-static qemu-user-static
}
python_aarch64() {
    :
}

system_lint() {
    want_command clang clang
    want_command clang-format-14 clang-format-14
    want_command clang-tidy-14 clang-tidy-14
}
python_lint() {
    pip_install -r "$pins/requirements-lint.txt"
}

system_wheel() {
    :
}
python_wheel() {
    pip_install -r "$pins/requirements-wheel.txt"
}

system_oracle() {
    :
}
python_oracle() {
    pip_install -r "$pins/requirements-oracle.txt"
}

system_demo() {
    :
}
python_demo() {
    pip_install -r "$pins/requirements-demo.txt"
    pip_install --no-deps -r "$pins/requirements-demo-files.txt"
}

# A stamp holds what it was made from, so a changed pin is installed.
stamp_of() {
    { # a group may have no Python packages
        cat "$root/tools/setup.sh"
        cat "$pins"/requirements-"$1"*.txt 2>/dev/null || true
    } | cksum
}

todo=()
for group in "$@"; do
    if [ ! -x "$venv/bin/python" ] ||
        [ "$(stamp_of "$group")" != "$(cat "$stamps/$group" 2>/dev/null)" ]
    then
        todo+=("$group")
    fi
done
[ ${#todo[@]} -gt 0 ] || exit 0

for group in "${todo[@]}"; do
    "system_$group"
done
install_missing
install_optional
make_venv
mkdir -p "$stamps"
for group in "${todo[@]}"; do
    "python_$group"
    stamp_of "$group" >"$stamps/$group"
done
