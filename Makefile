# `make run` shows this host's VMs, `make test` runs the tests. `make help` lists all targets.

.DEFAULT_GOAL := help
.PHONY: help run demo release dist test test-unit test-kernel test-vm test-memory test-pins test-placement test-libvirt test-rt test-wide test-node test-ui test-dist soak cluster-test fuzz deny bench vm draw draw-ui record ui site generate fmt clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build and run the agent with a live table of VMs until Ctrl-C (DEMO=0: no demo VMs)
	@scripts/run

demo: ## start two small VMs, print and check the agent's values, and exit
	@scripts/demo

release: ## build the static binary and print its directory
	@scripts/install-packages run
	@scripts/build-release

dist: ## build the files of a release from the commit and print their directory
	@scripts/install-packages run
	@scripts/dist

test: ## style, unit, kernel and vm tests; without root only style and unit
	@scripts/test

test-unit: ## formatting, lints and the tests that need no privilege
	@scripts/test style unit

test-kernel: ## kernel suite on this host (root)
	@scripts/test kernel

test-vm: ## scenario suites with real pods on each Debian kernel in QEMU (root)
	@scripts/test vm

test-memory: ## ballooning, free page reporting and refaults, on each Debian kernel in QEMU (root)
	@scripts/test memory

test-pins: ## counters across restarts and kills of the agent, on each Debian kernel in QEMU (root)
	@scripts/test pins

test-placement: ## vCPU placement, on a QEMU machine with cores, SMT, caches and NUMA nodes (root)
	@scripts/test placement

test-libvirt: ## libvirt domains with changing limits and pins, on Debian 6.12 in QEMU (root)
	@scripts/test libvirt

test-rt: ## scenario suites with real pods on Debian's PREEMPT_RT kernel in QEMU (root)
	@scripts/test rt

test-wide: ## CPU masks, residency and limits, on a QEMU machine with 64 CPUs (root)
	@scripts/test wide

test-node: ## the chart on a real kubelet in QEMU, with pods that run VMs (root, Go)
	@scripts/test node

test-ui: ## the page in a real Chromium, against a real agent with VMs (root, Node.js)
	@scripts/test ui

soak: ## start and stop ten thousand VMs, kill a thousand agents (SOAK_KILLS), then scrape for an hour (SOAK_SECONDS) (root)
	@scripts/test soak

test-dist: ## build the files of a release in two clones, and compare them byte by byte
	@scripts/test dist

cluster-test: ## deployment on a real API server (Go); the first run builds it in some minutes
	@scripts/test cluster

fuzz: ## fuzz the parsers: make fuzz TARGET=stat FUZZ_SECONDS=60; all targets take hours
	@scripts/fuzz $(TARGET)

deny: ## check licences, sources and advisories of all crates with cargo-deny; the first run builds it
	@scripts/deny

vm: ## open a shell on a Debian kernel in QEMU with running VMs: make vm KERNEL=debian-6.12
	@scripts/install-packages run test
	@cargo build --quiet --package virtlens-vmtest --locked
	@cargo run --quiet --package virtlens-vmtest --locked -- --shell $(if $(KERNEL),--kernel $(KERNEL))

bench: ## run criterion benchmarks and measure the cost of the whole agent
	@scripts/install-packages run
	@VIRTLENS_BIN_DIR=$$(scripts/build-release) cargo bench --locked --package virtlens-benches --bench pure --bench agent

draw: ## draw the fleet and the pod dashboard with real data to docs/images (root, Node.js)
	@scripts/draw-dashboards

draw-ui: ## draw each view of the page for browsers to docs/images (root, Node.js)
	@scripts/draw-ui

record: ## record a session on a throttled pod and its use of the limit to docs/images (root)
	@scripts/record-terminal

ui: ## make the page for browsers, agent/src/http/ui, from its sources in ui (Node.js)
	@scripts/build-ui --test
	@scripts/build-ui

site: ## build the documentation as web pages in target/site, and check every link
	@scripts/install-packages run
	@VIRTLENS_SITE=$(CURDIR)/target/site cargo test --quiet --package virtlens-tests --test unprivileged --locked site::

generate: ## regenerate rules, dashboards and references in docs from the code
	@cargo run --quiet --package virtlens-deploy --locked
	@UPDATE_GOLDEN=1 cargo test --quiet --package virtlens-tests --test unprivileged --locked reference::

fmt: ## format the sources
	@cargo fmt --all

clean: ## remove build results, but keep the download cache
	@cargo clean
