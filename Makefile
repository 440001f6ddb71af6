# SPDX-License-Identifier: MIT
# A thin front of CMake: every target installs what it needs (scripts/setup), then does its work.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# What make uninstall removes. CMake's own list is overwritten by whatever else installs this build.
INSTALLED ?= build/installed.txt
# More settings for CMake, such as CMAKE_FLAGS=-DWEFT_WERROR=ON. CMake keeps them in build/.
CMAKE_FLAGS ?=
# The thread sanitizer of gcc 12 and 13 cannot map its shadow where addresses are very random.
NO_ASLR := $(shell setarch -R true 2>/dev/null && echo setarch -R)

# The make that CMake runs must not see the flags of this one.
build = cmake --preset $(1) $(2) $(CMAKE_FLAGS) && \
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL cmake --build --preset $(1) --parallel $(JOBS)

version := $(shell sed -n 's/^.define WEFT_VERSION_[A-Z]* //p' include/weft.h | paste -sd.)

SCHEDULES ?= 100000
SEED ?= 1

.PHONY: all demo test test-cuda test-torch soak bench bench-hosts bench-cuda wheel reference \
	python-reference install uninstall dist deb format lint analyze sanitize asan-ubsan tsan clean help

all: ## build the library and the tool (build/weft), for the GPUs of this machine
	@scripts/setup build
	@$(call build,release,--log-level=NOTICE $(gpus))
	@cat build/built.txt # says what is left out, in place of CMake

demo: ## a MoE layer on 8 ranks, checked against one process; then a table of times; some minutes
	@scripts/setup build
	@scripts/demo $(JOBS)

test: ## build and run all tests
	@scripts/setup build test
	@$(call build,release,-DWEFT_TESTS=ON)
	ctest --preset release

test-cuda: ## build, and run the tests on this machine's NVIDIA GPUs; writes build/test-cuda.log
	@scripts/setup build test
	@$(call build,release,-DWEFT_TESTS=ON)
	scripts/test-cuda build

test-torch: ## the Python tests with PyTorch and transformers from PyPI, 6 GB, in build/torch
	@scripts/setup build test
	@$(call build,release,-DWEFT_TESTS=ON)
	scripts/torch-environment build/torch
	WEFT_TEST_PYTHON=$(CURDIR)/build/torch/bin/python ctest --preset release -L python -E wheel

soak: all ## explore SCHEDULES (default 100000) schedules of every operation, from SEED (1) on
	build/weft sim --op all --schedules $(SCHEDULES) --seed $(SEED)

bench: ## measure against memcpy and Open MPI, as root between hosts too; writes build/bench*.json
	@scripts/setup build bench
	@$(call build,release)
	bench/run build
	bench/run-hosts build || [ $$? -eq 77 ] # skipped, and has said why

bench-hosts: ## only the part between hosts (network namespaces); writes build/bench-hosts.json
	@scripts/setup build bench
	@$(call build,release)
	bench/run-hosts build

bench-cuda: ## measure weft on NVIDIA GPUs, their limits, and NCCL; writes build/bench-cuda.json
	@scripts/setup build
	@$(call build,release,) --target bench-cuda weft_tool
	bench/run-cuda build

wheel: ## the Python package as a wheel, with the library for all GPUs: build/wheel/weft_ep-*.whl
	@scripts/setup build wheel
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) scripts/wheel build $(CMAKE_FLAGS)

reference: ## the C reference, HTML and man pages, in build/c-reference; make install takes it along
	@scripts/setup reference
	scripts/reference build

python-reference: all ## the reference of the Python package, by pdoc from PyPI: build/reference
	scripts/python-reference build

# What is installed into a package goes to other machines.
install: gpus = $(if $(DESTDIR),-DWEFT_GPUS=ALL)
install: all ## install below PREFIX (default /usr/local); to DESTDIR, for a package, for all GPUs
	cmake --install build --prefix $(PREFIX)
	@cp build/install_manifest.txt $(INSTALLED)

# No folder but those of its own name, and what is in them, is removed.
uninstall: ## remove what make install installed last, to DESTDIR if it was there
	@[ -e $(INSTALLED) ] || { echo "no $(INSTALLED): make install has installed nothing" >&2; exit 1; }
	sed 's|^|$(DESTDIR)|' $(INSTALLED) | xargs -rd '\n' rm -f
	sed -n ':up; s|\(/weft\(/.*\)\{0,1\}\)/[^/]*$$|\1|p; tup' $(INSTALLED) | sort -ru | \
		sed 's|^|$(DESTDIR)|' | \
		xargs -rd '\n' rmdir --ignore-fail-on-non-empty

# The commit is in it: .gitattributes.
archive = build/weft-$(version).tar.gz
dist: ## a source archive of the last commit, which builds without git: build/weft-VERSION.tar.gz
	@mkdir -p build
	git archive --prefix=weft-$(version)/ -o $(archive) HEAD

deb: dist ## packages for Debian and Ubuntu, of the last commit: build/deb/*.deb
	@scripts/setup build deb
	CMAKE_FLAGS='$(CMAKE_FLAGS)' scripts/deb $(archive) build/deb

format: ## rewrite the sources in the project's format
	@scripts/setup lint
	scripts/format

lint: ## check format, layers, Python, prose, the figures of documents, and clang-tidy's findings
	@scripts/setup build lint
	scripts/format --check
	scripts/check-layers
	scripts/check-python
	scripts/check-prose
	bench/tables --check
	@cmake --preset release -DWEFT_TESTS=ON $(CMAKE_FLAGS)
	scripts/tidy build $(JOBS)

analyze: ## clang's analyzer across functions, which takes many times as long as lint
	@scripts/setup build lint
	@cmake --preset release $(CMAKE_FLAGS)
	scripts/tidy build $(JOBS) --deep

sanitize: asan-ubsan tsan ## run the tests under ASan and UBSan, then under TSan

asan-ubsan tsan:
	@scripts/setup build test
	@$(call build,$@)
	WEFT_TEST_GRID=$${WEFT_TEST_GRID:-small} $(NO_ASLR) ctest --preset $@

clean: ## remove everything built
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 10
