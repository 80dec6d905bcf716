#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# lint.sh -- the checks that read code and run none of it.
#
# usage: tools/lint.sh CLANG_TREE VENV      (called by make lint, after a build
#        with clang in CLANG_TREE, whose compile_commands.json it needs)
set -u

cd "$(dirname "$0")/.." || exit 1
tree=$1
venv=$2
failed=0
jobs=$(nproc 2>/dev/null || echo 2)

step() { # name command...
    local name=$1
    shift
    echo "== $name"
    "$@" || {
        echo "FAILED: $name"
        failed=1
    }
}

# Files that a tool wrote are as the tool writes them.
own_files() { # folder...
    find "$@" \( -name '*.c' -o -name '*.h' \) -print0 2>/dev/null |
        xargs -0 -r grep -LZi '^\(/\*\|//\| \*\).*generated' |
        sort -z
}

format() {
    own_files src include python/ext tools examples bench tests |
        xargs -0 -r clang-format-14 --dry-run -Werror
}

# The tiers are one text compiled three times, all vector arithmetic: the
# compilers' own warnings cover it, clang-tidy takes minutes for it.
tidy() {
    find src python/ext tools/marram -name '*.c' -not -path '*/tier/*' \
        -print0 2>/dev/null | sort -z |
        xargs -0 -r -n 1 -P "$jobs" clang-tidy-14 -p "$tree" --quiet \
            --extra-arg=-Wno-unknown-warning-option 2>/dev/null
}

python_files() {
    find python tools tests packaging examples bench -name '*.py' \
        -print -quit 2>/dev/null | grep -q .
}

step "clang-format" format
step "clang-tidy" tidy
if python_files; then
    step "ruff" "$venv/bin/ruff" check --no-cache .
    step "mypy, tools" "$venv/bin/mypy" --cache-dir "$tree/mypy" \
        tests/run.py tests/layers/check_layers.py tests/layers/check_headers.py \
        tests/exports/check_exports.py packaging/wheel.py packaging/backend.py tools/gen/*.py \
        tools/rows.py tests/reference/programs.py tests/faults/bad_arguments.py
    if [ -f python/marram/__init__.py ]; then
        step "mypy, python/marram" "$venv/bin/mypy" --cache-dir "$tree/mypy" \
            python/marram
    fi
fi
exit $failed
