// Readings for tests.

import type { Snapshot, Vcpu, Vm } from "../src/model.ts";

export function vcpu(id: number): Vcpu {
  return {
    id,
    tid: 10 + id,
    cpu_ns: 0,
    wait_ns: 0,
    guest_ns: 0,
    kvm: { halt_poll_ns: { success: 0, fail: 0 }, exits: { io: 0 } },
    cgroup: "/pod/a",
    pcpu: id,
    affinity: "0-3",
    guest: null,
    host: null,
    residency_ns: {},
  };
}

export function vm(name: string): Vm {
  return {
    namespace: null,
    pod: null,
    vm: name,
    vmm: "qemu",
    runtime: null,
    pid: 1,
    running: true,
    roles: [{ role: "vcpu", threads: 1, cpu_ns: 0, wait_ns: 0, throttle_hits: null }],
    unattributed_cpu_ns: 0,
    vcpus: [vcpu(0)],
    workers: [],
    quota: [
      {
        scope: "pod",
        cgroup: "/pod",
        cores: 2,
        period_ns: 1e8,
        periods: 0,
        throttled_periods: 0,
        throttled_ns: 0,
        used_ns: { vcpu: 0 },
        throttle: null,
      },
    ],
    limit_cores: 2,
    topology: null,
    memory: {
      guest_bytes: null,
      resident_bytes: null,
      resident_peak_bytes: null,
      swap_bytes: null,
      cgroup_bytes: null,
      cgroup_limit_bytes: null,
      refault_bytes: null,
      discards: null,
      features: {},
    },
    findings: null,
  };
}

// A reading at a time, s since 1970, of an agent whose clock began then.
export function reading(time: number, vms: Vm[]): Snapshot {
  return {
    time: new Date(time * 1000).toISOString(),
    clock_ns: time * 1e9,
    reading_age_ns: 0,
    node: { name: "node-a", kernel: "6.12", cpus: 4, cgroup: "v2" },
    host: { cpus: [] },
    sources: [],
    vms,
  };
}
