# `make run` shows this host's VMs, `make test` tests all. `make help` lists the rest.

.DEFAULT_GOAL := help
.PHONY: help run demo release test test-unit test-kernel test-vm test-memory test-pins test-placement test-libvirt test-rt test-wide soak cluster-test fuzz deny bench vm draw generate fmt clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build, start the agent, show the host's VMs until Ctrl-C (DEMO=0: start none)
	@scripts/run

demo: ## the same with an end: two small VMs, their numbers, and whether they were right
	@scripts/demo

release: ## the static binary, and where it is
	@scripts/install-packages run
	@scripts/build-release

test: ## all but what is named below; without root what needs none, and what was left out
	@scripts/test

test-unit: ## formatting, lints and the tests that need no privilege
	@scripts/test style unit

test-kernel: ## the suite against this host's kernel (root)
	@scripts/test kernel

test-vm: ## the agent beside real pods on Debian kernels in QEMU (root)
	@scripts/test vm

test-memory: ## what guests give back of their memory and take again, on each of those kernels (root)
	@scripts/test memory

test-pins: ## what counts goes on while the agent is away or killed, on each of those kernels (root)
	@scripts/test pins

test-placement: ## where vCPUs sit, on a machine of sockets, cores, threads and nodes (root)
	@scripts/test placement

test-libvirt: ## domains of Debian's libvirt, with limits and pins that change, on Debian's 6.12 in QEMU (root)
	@scripts/test libvirt

test-rt: ## the agent beside real pods on Debian's PREEMPT_RT kernel in QEMU (root)
	@scripts/test rt

test-wide: ## masks, residency and bounds on a machine of 64 CPUs in QEMU (root)
	@scripts/test wide

soak: ## ten thousand VMs come and go, then an hour (SOAK_SECONDS) of scrapes (root)
	@scripts/test soak

cluster-test: ## what is deployed, on a real API server; its programs take minutes to build, once (Go)
	@scripts/test cluster

fuzz: ## inputs that break a parser: make fuzz TARGET=stat FUZZ_SECONDS=60; all targets take hours
	@scripts/fuzz $(TARGET)

deny: ## licences, sources and advisories of every crate, by cargo-deny; minutes to build, once
	@scripts/deny

vm: ## one Debian kernel with VMs in it and a shell beside them: make vm KERNEL=debian-6.12
	@scripts/install-packages run test
	@cargo build --quiet --package virtlens-vmtest --locked
	@cargo run --quiet --package virtlens-vmtest --locked -- --shell $(if $(KERNEL),--kernel $(KERNEL))

bench: ## criterion benchmarks and the cost of a whole collection
	@scripts/install-packages run
	@VIRTLENS_BIN_DIR=$$(scripts/build-release) cargo bench --locked --package virtlens-benches

draw: ## pictures of the fleet and the pod dashboard with real data, for docs/images (root, Node.js)
	@scripts/draw-dashboards

generate: ## rewrite the rules, dashboards and the reference of metrics from their tables
	@cargo run --quiet --package virtlens-deploy --locked

fmt: ## format the sources
	@cargo fmt --all

clean: ## remove what was built; the cache of downloads stays
	@cargo clean
