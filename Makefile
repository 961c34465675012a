# SPDX-License-Identifier: BSD-3-Clause
# Copyright 2026, The rpma developers
#
# What users type; each target works as the first command on a fresh system. `make help` lists the targets.

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
DESTDIR ?=

# Outside programs for check and check-rdma: a tree of NAME/server.c and NAME/client.c.
EXAMPLES ?=
# Kernels for check-rdma, one after another: own (this distribution's), 6.1, 6.12 or the folder of an unpacked one.
KERNELS ?= own
# Where demo runs, if not on 127.0.0.1: an address of this machine, on its RDMA device if it has one.
ADDR ?=
# Ends a check that hangs, in seconds.
TIMEOUT ?= 1800
# How long crash, model and soak of trust take, each, in seconds.
TRUST_SECONDS ?= 60
# How often check-reset ends the machine, in each of its tests.
RESETS ?= 10
# How long each target of fuzz takes, in seconds.
FUZZ_SECONDS ?= 60

CARGO ?= packaging/cargo
DEPS ?= packaging/deps
INSTALL ?= install
# Most of the file is debugging information, that of Rust's own library for the greater part. Empty keeps it.
STRIP ?= strip --strip-debug

SONAME = librpma.so.0
BUILT = target/release
SO = $(BUILT)/librpma.so
VERSION = $(shell sed -n 's/^version *= *"\(.*\)"/\1/p' Cargo.toml | head -n 1)
INFO = $(BUILT)/rpma-info
PERF = target/tools/rpma-perf
BASELINES = target/tools/baselines
FI_RMA = target/tools/fi_rma
# A place of its own: the library is built without its C symbols there, which would displace the one with them.
SOFTVERBS = target/softverbs
RUN = timeout --kill-after=10 $(TIMEOUT)

# Where install puts things.
to_lib = $(DESTDIR)$(LIBDIR)
to_include = $(DESTDIR)$(INCLUDEDIR)
to_pkgconfig = $(to_lib)/pkgconfig
to_cmake = $(to_lib)/cmake/librpma
to_man = $(DESTDIR)$(MANDIR)
to_bin = $(DESTDIR)$(BINDIR)

.DEFAULT_GOAL = all
# Checks share the processors; side by side they would only disturb each other.
.NOTPARALLEL:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  %-16s %s\n", $$1, $$2 }'

all: ## build the library, and rpma-info
	@$(DEPS) build
	$(CARGO) build --release --locked
	@ln -sfn librpma.so $(BUILT)/$(SONAME)

# To install must not build once more as another user, but on a fresh tree it has to.
$(SO) $(INFO):
	$(MAKE) all

deps: ## install what is missing to build and to check
	$(DEPS) check rdma

demo: demo-deps all ## a log replicator: what it acknowledges is there, also after a SIGKILL
	examples/log-replicator/demo $(ADDR)

demo-deps:
	@$(DEPS) demo

perf: demo-deps all ## build rpma-perf, a benchmark of two processes: target/tools/rpma-perf --help
	@mkdir -p $(dir $(PERF))
	$(CC) -std=gnu11 -O2 -g -Wall -Wextra -Wpedantic -Iinclude -o $(PERF) tools/rpma-perf/*.c \
		-L$(BUILT) -lrpma -lm -lpthread -Wl,-rpath,'$$ORIGIN/../release'
	@# To be installed: it finds the library where all programs do.
	$(CC) -std=gnu11 -O2 -Iinclude -o $(PERF).installed tools/rpma-perf/*.c -L$(BUILT) -lrpma -lm -lpthread

bench: bench-build ## rpma-perf on the software fabric beside what else moves bytes on this machine
	tools/bench/run $(PERF) $(BASELINES) $(FI_RMA)

bench-docs: bench-build ## the same, and write docs/performance.md and its chart
	@mkdir -p docs
	tools/bench/run $(PERF) $(BASELINES) $(FI_RMA) --document docs

bench-build: perf
	@# Without them there is less to compare with, that is all.
	@$(DEPS) bench || true
	$(CC) -std=gnu11 -O2 -Wall -Wextra -Wpedantic -o $(BASELINES) tools/bench/baselines.c
	$(CC) -std=gnu11 -O2 -Wall -Wextra -o $(FI_RMA) tools/bench/fi_rma.c -lfabric || rm -f $(FI_RMA)

check: check-deps lint check-man check-rust check-abi check-c check-net-quick check-abuse check-trust-quick check-perf check-carrier check-softverbs check-info check-docs $(if $(EXAMPLES),check-examples) ## the checks that need no RDMA and take minutes at most

check-deps:
	@$(DEPS) check $(if $(EXAMPLES),examples)

lint: check-deps ## formatting and lints
	CARGO=$(CARGO) packaging/lint

check-rust: check-deps ## the Rust tests; one of them tells whether the header is up to date
	$(RUN) $(CARGO) test --locked
	RPMA_SOFT_CARRIER=tcp $(RUN) $(CARGO) test --locked --lib soft::tests

check-abi: check-deps all ## symbols, header and installation
	$(RUN) c-tests/abi/run

check-c: check-deps all ## the C tests, on the software fabric: through shared memory, and over TCP
	RPMA_FABRIC=soft RPMA_SOFT_CARRIER=local $(RUN) c-tests/run
	RPMA_FABRIC=soft RPMA_SOFT_CARRIER=tcp $(RUN) c-tests/run

check-net: check-deps all ## two hosts (network namespaces), also when the link between them is bad or gone
	$(RUN) c-tests/net/run

check-net-quick: check-deps all
	$(RUN) c-tests/net/run --quick

check-abuse: check-deps all ## hostile peers, crowds of connections, threads and forks
	$(RUN) c-tests/abuse/run

check-perf: check-deps perf ## are the reports of rpma-perf sane?
	$(RUN) tools/rpma-perf/check $(PERF)

check-info: check-deps all ## does rpma-info tell the truth?
	$(CARGO) build --release --locked --package softverbs --target-dir $(SOFTVERBS)
	$(RUN) tools/rpma-info/check $(INFO) $(SOFTVERBS)/release

check-carrier: check-deps perf ## two processes of one machine: by shared memory or TCP, killed in the middle
	$(RUN) c-tests/carrier/run $(PERF)

check-docs: check-deps all ## do the guides in docs say what is so? their commands, as far as they take no minutes
	$(RUN) docs/check

check-docs-all: check-deps all ## all commands of the guides: also as root, in the guest, in a copy of this system
	@$(DEPS) rdma deb examples
	docs/check --all

check-softverbs: check-deps ## the C tests, with the original library over the software fabric
	$(CARGO) build --release --locked --package softverbs --target-dir $(SOFTVERBS)
	RPMA_FABRIC=soft $(RUN) c-tests/run --oracle --lib "$$(c-tests/abi/run --original-lib)" --header include \
		--verbs $(SOFTVERBS)/release --build target/c-tests-original

check-examples: check-deps all ## the programs in EXAMPLES, on the software fabric
	@test -n "$(EXAMPLES)" || { echo "say which: make $@ EXAMPLES=DIR" >&2; exit 2; }
	$(DEPS) examples
	RPMA_FABRIC=soft $(RUN) c-tests/run --examples "$(EXAMPLES)"

check-rdma: all ## the C tests and the programs in EXAMPLES, in a guest with soft-RoCE
	@$(DEPS) check rdma $(if $(EXAMPLES),examples)
	TIMEOUT=$(TIMEOUT) c-tests/rxe/check --kernels "$(KERNELS)" $(if $(EXAMPLES),--examples "$(EXAMPLES)")

check-reset: all ## a whole guest is ended at random points: what was acknowledged is there after the next boot: RESETS times (10)
	@$(DEPS) check rdma
	TIMEOUT=$(TIMEOUT) c-tests/rxe/reset --resets $(RESETS)

check-original: ## the C tests against the original library, in the guest: are the tests right?
	@$(DEPS) check rdma $(if $(EXAMPLES),examples)
	TIMEOUT=$(TIMEOUT) c-tests/rxe/check --kernels "$(KERNELS)" --original \
		$(if $(EXAMPLES),--examples "$(EXAMPLES)")

conformance: check-deps all ## every call against the original's, also when the provider fails
	$(RUN) c-tests/conformance/run $(SO)

check-fault: check-deps all ## programs go on after any step of the library failed: with the feature fault-injection
	CARGO=$(CARGO) $(RUN) c-tests/fault/run

trust: check-deps all ## kills, random histories, long runs: TRUST_SECONDS for each of them (60)
	RPMA_FABRIC=soft c-tests/trust/run --seconds $(TRUST_SECONDS) --report target/trust

check-sanitize: check-deps all ## the C tests with AddressSanitizer, ThreadSanitizer and memcheck, the pure parts in Miri
	@# Without them there is less to run, that is all.
	@$(DEPS) sanitize || true
	CARGO=$(CARGO) c-tests/trust/sanitize

fuzz: ## a fuzzer's bytes for what reads a peer's or the operator's, and what of the sources they reach: FUZZ_SECONDS for each target (60)
	@$(DEPS) build fuzz
	fuzz/run --seconds $(FUZZ_SECONDS) --coverage

check-trust-quick: check-deps all
	RPMA_FABRIC=soft $(RUN) c-tests/trust/run --quick

check-supply: ## licences, sources and known weaknesses of what the library is built from
	@$(DEPS) build
	CARGO=$(CARGO) packaging/supply

header: ## write include/librpma.h from the Rust sources
	@$(DEPS) build
	RPMA_UPDATE_HEADER=1 $(CARGO) test --quiet --locked --test header

man: ## write the manual pages from the header and tests/man
	@$(DEPS) build
	RPMA_UPDATE_MAN=1 $(CARGO) test --quiet --locked --test man

check-man: ## the manual pages, as mandoc and groff see them
	@$(DEPS) man
	packaging/man-lint

install: $(SO) $(INFO) ## install under PREFIX (/usr/local), rpma-perf only after make perf; LIBDIR, INCLUDEDIR, BINDIR, MANDIR and DESTDIR are honoured
	$(INSTALL) -d $(to_lib) $(to_include) $(to_pkgconfig) $(to_cmake) $(to_bin) $(to_man)/man1 $(to_man)/man3 $(to_man)/man7
	$(INSTALL) -m 755 $(INFO) $(to_bin)/rpma-info
	if [ -e $(PERF).installed ]; then \
		$(INSTALL) -m 755 $(PERF).installed $(to_bin)/rpma-perf && \
		$(if $(STRIP),$(STRIP) $(to_bin)/rpma-perf &&) \
		$(INSTALL) -m 644 tools/rpma-perf/rpma-perf.1 $(to_man)/man1; \
	fi
	$(if $(STRIP),$(STRIP) $(to_bin)/rpma-info)
	$(INSTALL) -m 644 tools/rpma-info/rpma-info.1 $(to_man)/man1
	$(INSTALL) -m 644 man/*.3 $(to_man)/man3
	$(INSTALL) -m 644 man/*.7 $(to_man)/man7
	$(INSTALL) -m 644 $(SO) $(to_lib)/$(SONAME)
	$(if $(STRIP),$(STRIP) $(to_lib)/$(SONAME))
	ln -sfn $(SONAME) $(to_lib)/librpma.so
	$(INSTALL) -m 644 include/librpma.h $(to_include)/librpma.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' packaging/librpma.pc.in >$(to_pkgconfig)/librpma.pc
	sed -e "s|@INCLUDEDIR_FROM_HERE@|$$(realpath -m --relative-to=$(LIBDIR)/cmake/librpma $(INCLUDEDIR))|" \
		-e 's|@LIBDIR_FROM_HERE@|../..|' packaging/librpma-config.cmake.in >$(to_cmake)/librpma-config.cmake
	sed -e 's|@VERSION@|$(VERSION)|' packaging/librpma-config-version.cmake.in >$(to_cmake)/librpma-config-version.cmake
	chmod 644 $(to_pkgconfig)/librpma.pc $(to_cmake)/*.cmake
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi

uninstall: ## remove what install put down
	rm -f $(to_bin)/rpma-info $(to_bin)/rpma-perf $(to_man)/man1/rpma-info.1 $(to_man)/man1/rpma-perf.1
	rm -f $(patsubst man/%,$(to_man)/man3/%,$(wildcard man/*.3)) $(patsubst man/%,$(to_man)/man7/%,$(wildcard man/*.7))
	rm -f $(to_lib)/librpma.so $(to_lib)/$(SONAME) $(to_include)/librpma.h $(to_pkgconfig)/librpma.pc
	rm -f $(to_cmake)/librpma-config.cmake $(to_cmake)/librpma-config-version.cmake
	@if [ -d $(to_cmake) ]; then rmdir $(to_cmake); fi
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then ldconfig; fi

deb: perf ## Debian packages that take the place of librpma0 and librpma-dev, in target/deb
	@$(DEPS) deb
	packaging/deb

check-packaging: deb ## the packages in a system of their own: installed over the distribution's, and removed (as root)
	@$(DEPS) check-deb
	packaging/deb-check

rpm: ## RPM packages that take the place of librpma and librpma-devel, in target/rpm
	@$(DEPS) demo rpm
	packaging/rpm/build

check-rpm: rpm ## the RPM packages: what they provide and hold, installed into a folder, and removed (as root)
	packaging/rpm/check

clean: ## remove what was built
	rm -rf target c-tests/conformance/build

.PHONY: help all deps demo demo-deps perf bench bench-docs bench-build check check-deps lint check-rust check-abi check-c check-net check-net-quick check-abuse check-perf check-info check-docs check-docs-all check-softverbs check-examples check-rdma \
	check-reset check-original conformance check-fault check-supply trust fuzz check-trust-quick check-sanitize header man check-man install uninstall deb check-packaging rpm check-rpm clean
