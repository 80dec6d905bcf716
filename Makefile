# SPDX-License-Identifier: Apache-2.0
#
# The front door: each target first brings what this machine lacks (into
# $(BUILD)/venv and, with apt-get, the system), then calls CMake or a script.
# docs/building.md says more.
#
#   make                    library, extension, command, examples
#   make demo               runs the examples
#   make test               all tests but the slow ones; SAN=address (and
#                           undefined behaviour) or SAN=thread: under sanitizers
#   make test-slow          exhaustive tests, minutes to hours
#   make test-aarch64       kernels and operators on emulated 64-bit ARM
#   make test-oracles       compares with MLX, PyTorch and JAX (large downloads)
#   make lint               format, clang-tidy, ruff, mypy, a build with clang
#   make bench              every benchmark, in turns of ROUNDS=3
#   make install PREFIX=    headers, library, command; DESTDIR is honoured
#   make wheel              dist/marram-*.whl
#   make generate           after a change of api/: ops.h, stubs, reference
#   make clean              removes what was built, but not the venv

BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
CC     := $(if $(filter default,$(origin CC)),cc,$(CC))
SAN    ?=
ROUNDS ?= 3
# Warnings are errors in continuous integration and in make lint.
WERROR ?= $(if $(CI),ON,OFF)

VENV   := $(abspath $(BUILD))/venv
PYTHON := $(VENV)/bin/python
SETUP  := tools/setup.sh $(BUILD)
RUN    := PYTHONPATH=$(abspath $(BUILD))/python $(PYTHON)

comma   := ,
# Undefined behaviour is looked for wherever wrong addresses are.
SANITIZE := $(if $(filter address,$(SAN)),address$(comma)undefined,$(SAN))
SANTREE := $(BUILD)-san-$(subst $(comma),-,$(SANITIZE))
CLANG   := $(BUILD)-clang

CONFIGURE = cmake -G Ninja -S . -DMR_PYTHON=$(PYTHON) -DMR_WERROR=$(WERROR) \
	-DCMAKE_C_COMPILER_LAUNCHER=ccache
NINJA     = ninja -j $(JOBS)

.PHONY: all setup demo test test-main test-san test-slow test-aarch64 \
	test-oracles lint bench install wheel clean distclean exports generate
.DELETE_ON_ERROR:

all: setup
	@test -f $(BUILD)/build.ninja -a $(BUILD)/build.ninja -nt $(BUILD)/.setup/build || \
		$(CONFIGURE) -B $(BUILD) -DCMAKE_C_COMPILER=$(CC)
	@$(NINJA) -C $(BUILD) products

setup:
	@$(SETUP) build

demo: all
	@$(SETUP) demo
	$(BUILD)/bin/examples/digits examples/data/digits.npy \
		$(BUILD)/digits.safetensors >$(BUILD)/digits.log; \
		rc=$$?; cat $(BUILD)/digits.log; exit $$rc
	$(RUN) examples/embed.py $(BUILD)/embeddings.npy
	$(RUN) examples/picture.py $(BUILD)/digits.log $(BUILD)/embeddings.npy \
		$(BUILD)/demo.png
	@echo "the picture is in $(BUILD)/demo.png"

ifeq ($(SAN),)
test: test-main
else
test: test-san
endif

test-main: all
	@$(SETUP) test demo
	@$(NINJA) -C $(BUILD) tests
	@$(PYTHON) tests/run.py $(BUILD) generated layers headers exports c python

test-san:
	@$(SETUP) build test
	@test -f $(SANTREE)/build.ninja || \
		$(CONFIGURE) -B $(SANTREE) -DCMAKE_C_COMPILER=$(CC) -DMR_SANITIZE=$(SANITIZE)
	@$(NINJA) -C $(SANTREE) tests products
	@$(PYTHON) tests/run.py $(SANTREE) c \
		$(if $(findstring address,$(SAN)),python-asan) $(if $(findstring thread,$(SAN)),python-tsan)

test-slow: all
	@$(SETUP) test demo
	@$(NINJA) -C $(BUILD) slow_tests
	@$(PYTHON) tests/run.py $(BUILD) slow python-slow

# Emulated arithmetic is slow: what ARM has of its own is in these folders.
test-aarch64:
	@$(SETUP) build aarch64
	@tools/aarch64.sh $(PYTHON) $(BUILD)-aarch64 -R '^(kernels|cpu|array|ops)/'

test-oracles: all
	@$(SETUP) test oracle
	@$(PYTHON) tests/run.py $(BUILD) oracles

lint:
	@$(SETUP) build test lint
	@test -f $(CLANG)/build.ninja || \
		$(CONFIGURE) -B $(CLANG) -DCMAKE_C_COMPILER=clang -DMR_WERROR=ON
	@$(NINJA) -C $(CLANG) all benches slow_tests
	@tools/lint.sh $(CLANG) $(VENV)

bench: all
	@$(SETUP) test
	@$(NINJA) -C $(BUILD) benches
	@for b in $(BUILD)/bin/bench/*; do \
		test -f $$b || continue; echo "== $$(basename $$b)"; $$b || exit 1; \
	done
	@for b in $(filter-out bench/worker.py bench/ggml.py bench/table.py,$(wildcard bench/*.py)) \
		bench/table.py; do \
		echo "== $$b"; $(RUN) $$b --rounds $(ROUNDS) || exit 1; \
	done

install: all
	DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

wheel: all
	@$(SETUP) wheel
	@$(PYTHON) packaging/wheel.py $(BUILD) dist

generate:
	@$(SETUP) build
	@$(PYTHON) tools/gen/gen.py --root . --update

# Accepts the library's present exports as the list that is tested.
exports: all
	@$(PYTHON) tests/exports/check_exports.py --update $(BUILD)/lib/libmarram.so

clean:
	rm -rf $(BUILD)-san-* $(CLANG) dist
	@test ! -d $(BUILD) || find $(BUILD) -mindepth 1 -maxdepth 1 \
		! -name venv ! -name .setup -exec rm -rf {} +

distclean: clean
	rm -rf $(BUILD)
