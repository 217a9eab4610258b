// Usage of a VM between two readings, as crates/model/src/judge/interval.rs computes it.

import { isSame, ROLES } from "./model.ts";
import type { Quota, Role, Snapshot, Vcpu, Vm } from "./model.ts";

// A reading that is older than this by the clock of the agent has other circumstances.
const CLOCK_TOLERANCE_MS = 2000;

export interface LimitUse {
  quota: Quota;
  cores: number;
  // Used part of the limit, 0 to 1.
  used: number;
  // Part of the time in which it was throttled, 0 to 1.
  throttled: number;
  periods: number;
  throttledPeriods: number;
}

// How often threads of a role were running when a quota ran out.
export type Hits = Map<Role, number>;

export interface VcpuUse {
  id: number;
  pcpu: number | null;
  // Shares of the time, 0 to 1. guest, host and poll add up to the time on a CPU.
  run: number;
  guest: number | null;
  host: number | null;
  poll: number | null;
  wait: number | null;
  throttled: number;
  exits: number | null;
}

// Usage of a VM in an interval. null is an unknown value.
export interface Use {
  // End of the interval, s since 1970.
  time: number;
  cores: number;
  roles: Map<Role, { cores: number; wait: number | null; threads: number }>;
  // Empty if it is unknown, or no quota ran out.
  hits: Hits;
  other: number;
  limits: LimitUse[];
  binding: LimitUse | null;
  // Share of the time for which the vCPU that waits most waited.
  wait: number | null;
  vcpus: VcpuUse[];
  workers: { name: string; device: string | null; cores: number }[];
  exits: Map<string, number>;
  resident: number | null;
  // Bytes per second that the balloon took and gave back, and that the guest reported as free and
  // used again.
  inflated: number | null;
  deflated: number | null;
  reported: number | null;
  refaulted: number | null;
}

function since(now: number, then: number | undefined): number {
  return Math.max(0, now - (then ?? 0));
}

function known(now: number | null, then: number | null | undefined): number | null {
  return now === null || then === null ? null : since(now, then);
}

// Time between two readings of one agent, ns; null if different agents took them or the second is
// not later.
export function lengthNs(before: Snapshot, now: Snapshot): number | null {
  const length = now.clock_ns - before.clock_ns;
  const byTimeOfDay = Date.parse(now.time) - Date.parse(before.time);
  if (length <= 0 || Math.abs(length / 1e6 - byTimeOfDay) > CLOCK_TOLERANCE_MS) return null;
  return length;
}

function limits(before: Vm, now: Vm, length: number): LimitUse[] {
  const found: LimitUse[] = [];
  for (const quota of now.quota) {
    const then = before.quota.find((one) => one.cgroup === quota.cgroup);
    const isComparable =
      then && quota.cores === then.cores && quota.period_ns === then.period_ns;
    if (quota.cores === null || !isComparable) continue;
    let used = 0;
    for (const role of ROLES) used += since(quota.used_ns[role] ?? 0, then.used_ns[role]);
    const throttledPeriods = since(quota.throttled_periods, then.throttled_periods);
    const most = Math.min(
      throttledPeriods * quota.period_ns,
      since(quota.throttled_ns, then.throttled_ns),
    );
    const wall =
      quota.throttle && then.throttle ? since(quota.throttle.wall_ns, then.throttle.wall_ns) : most;
    found.push({
      quota,
      cores: quota.cores,
      used: used / length / quota.cores,
      throttled: Math.min(1, wall / length),
      periods: since(quota.periods, then.periods),
      throttledPeriods,
    });
  }
  return found;
}

function isWithin(cgroup: string | null, above: string): boolean {
  if (cgroup === null) return false;
  return above === "/" || cgroup === above || cgroup.startsWith(above + "/");
}

function vcpu(then: Vcpu, now: Vcpu, all: LimitUse[], length: number): VcpuUse {
  const cpu = since(now.cpu_ns, then.cpu_ns);
  const share = (ns: number | null) => (ns === null ? null : ns / length);
  const poll = now.kvm.halt_poll_ns;
  const before = then.kvm.halt_poll_ns;
  const polled =
    poll && before ? since(poll.success + poll.fail, before.success + before.fail) : null;
  // The tick samples guest time, which can therefore exceed the CPU time.
  const sampled = known(now.guest_ns, then.guest_ns);
  const guest = sampled === null ? null : Math.min(sampled, cpu);
  const poll_ns = polled === null ? null : Math.min(polled, cpu - (guest ?? 0));
  const host = guest === null || poll_ns === null ? null : Math.max(0, cpu - guest - poll_ns);
  const above = all.filter((limit) => isWithin(now.cgroup, limit.quota.cgroup));
  const throttled = above.reduce((sum, limit) => sum + limit.throttled, 0);
  let exits: number | null = null;
  if (now.kvm.exits && then.kvm.exits) {
    exits = 0;
    for (const [kind, count] of Object.entries(now.kvm.exits)) {
      exits += since(count, then.kvm.exits[kind]);
    }
    exits = (exits * 1e9) / length;
  }
  return {
    id: now.id,
    pcpu: now.pcpu,
    run: cpu / length,
    guest: share(guest),
    host: share(host),
    poll: share(poll_ns),
    wait: share(known(now.wait_ns, then.wait_ns)),
    throttled: Math.min(1, throttled),
    exits,
  };
}

function vcpus(before: Vm, now: Vm, all: LimitUse[], length: number): VcpuUse[] {
  const found: VcpuUse[] = [];
  const old = new Map(before.vcpus.map((one) => [one.id, one]));
  for (const one of now.vcpus) {
    const then = old.get(one.id);
    if (one.tid === null || then?.tid !== one.tid) continue;
    found.push(vcpu(then, one, all, length));
  }
  return found;
}

function exits(before: Vm, now: Vm, length: number): Map<string, number> {
  const rates = new Map<string, number>();
  const old = new Map(before.vcpus.map((one) => [one.id, one]));
  for (const one of now.vcpus) {
    const then = old.get(one.id)?.kvm.exits;
    if (!one.kvm.exits || !then) continue;
    for (const [kind, count] of Object.entries(one.kvm.exits)) {
      const rate = (since(count, then[kind]) * 1e9) / length;
      rates.set(kind, (rates.get(kind) ?? 0) + rate);
    }
  }
  return rates;
}

function binding(all: LimitUse[]): LimitUse | null {
  let best: LimitUse | null = null;
  for (const one of all) {
    const isWorse =
      !best ||
      one.throttled > best.throttled ||
      (one.throttled === best.throttled && one.cores < best.cores);
    if (isWorse) best = one;
  }
  return best;
}

// Usage between two readings of one VM; null if they cannot be compared.
export function use(before: Vm | undefined, now: Vm, length: number, time: number): Use | null {
  if (!before || !isSame(before, now)) return null;
  const roles: Use["roles"] = new Map();
  const hits: Hits = new Map();
  let cores = 0;
  for (const one of now.roles) {
    const then = before.roles.find((other) => other.role === one.role);
    const used = since(one.cpu_ns, then?.cpu_ns) / length;
    const waited = known(one.wait_ns, then ? then.wait_ns : 0);
    const wait = waited === null ? null : waited / length;
    roles.set(one.role, { cores: used, wait, threads: one.threads });
    cores += used;
    const ran = known(one.throttle_hits, then ? then.throttle_hits : 0);
    if (ran) hits.set(one.role, ran);
  }
  const other = since(now.unattributed_cpu_ns, before.unattributed_cpu_ns) / length;
  const all = limits(before, now, length);
  const lanes = vcpus(before, now, all, length);
  const waits = lanes.flatMap((one) => (one.wait === null ? [] : [one.wait]));
  const workers: Use["workers"] = [];
  for (const one of now.workers) {
    const then = before.workers.find((two) => two.role === one.role && two.worker === one.worker);
    if (!then || then.tid !== one.tid) continue;
    const used = since(one.cpu_ns, then.cpu_ns) / length;
    workers.push({ name: `${one.role} ${one.worker}`, device: one.device, cores: used });
  }
  const rate = (bytes: number | null) => (bytes === null ? null : (bytes * 1e9) / length);
  const discarded = (kind: "inflate" | "deflate" | "report") => {
    const [then, later] = [before, now].map((one) => one.memory.discards?.[kind].bytes ?? null);
    return rate(known(later ?? null, then));
  };
  return {
    time,
    cores: cores + other,
    roles,
    hits,
    other,
    limits: all,
    binding: binding(all),
    wait: waits.length ? Math.max(...waits) : null,
    vcpus: lanes,
    workers,
    exits: exits(before, now, length),
    resident: now.memory.resident_bytes,
    inflated: discarded("inflate"),
    deflated: discarded("deflate"),
    reported: discarded("report"),
    refaulted: rate(known(now.memory.refault_bytes, before.memory.refault_bytes)),
  };
}
