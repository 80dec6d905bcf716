#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# aarch64.sh -- builds for 64-bit ARM and runs the C tests in qemu's user mode.
#
# usage: tools/aarch64.sh VENV_PYTHON BUILD_FOLDER [ctest arguments]
# Wants Debian's gcc-aarch64-linux-gnu and qemu-user-static (setup.sh aarch64
# installs them).  The libraries for ARM are fetched into BUILD_FOLDER/sysroot
# with an apt state of its own there, so the system's stays as it is.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
python=$1
mkdir -p "$2"
build=$(cd "$2" && pwd)
shift 2
sysroot=$build/sysroot
apt=$build/apt
debs=(libc6 libgcc-s1 libcjson1 libcjson-dev libcmocka0 libcmocka-dev
    libsleef3 libsleef-dev)

if [ ! -e "$sysroot/complete" ]; then
    mkdir -p "$sysroot" "$apt/lists/partial" "$apt/archives/partial"
    : >"$apt/status"
    cat >"$apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
END
    APT_CONFIG=$apt/apt.conf apt-get -qq update
    (cd "$apt/archives" && APT_CONFIG=$apt/apt.conf apt-get -qq download "${debs[@]}")
    for d in "$apt"/archives/*.deb; do
        dpkg -x "$d" "$sysroot"
    done
    touch "$sysroot/complete"
fi

[ -f "$build/build.ninja" ] || cmake -G Ninja -S "$root" -B "$build" \
    -DCMAKE_TOOLCHAIN_FILE="$root/cmake/aarch64-linux-gnu.cmake" \
    -DMR_SYSROOT="$sysroot" -DMR_PYTHON="$python" -DMR_PYTHON_EXT=OFF \
    -DMR_BLAS=none -DMR_JIT=OFF -DCMAKE_C_COMPILER_LAUNCHER=ccache
ninja -C "$build" marram tests
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure "$@"
