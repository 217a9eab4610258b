import assert from "node:assert/strict";
import { test } from "node:test";

import type { Snapshot, Vm } from "../src/model.ts";
import { lengthNs, use } from "../src/rates.ts";
import { Store, usesOf } from "../src/store.ts";
import { reading, vcpu, vm } from "./made.ts";

const S = 1e9;

function two(change: (later: Vm) => void): ReturnType<typeof use> {
  const before = vm("web-0");
  const now = structuredClone(before);
  change(now);
  return use(before, now, 2 * S, 100);
}

test("cores are CPU time divided by the time between the readings", () => {
  const found = two((now) => {
    now.roles[0]!.cpu_ns += 3 * S;
    now.unattributed_cpu_ns += 1 * S;
  });
  assert.equal(found?.roles.get("vcpu")?.cores, 1.5);
  assert.equal(found?.other, 0.5);
  assert.equal(found?.cores, 2);
});

test("used part and throttling of a limit are shares of it", () => {
  const found = two((now) => {
    const [quota] = now.quota;
    quota!.used_ns.vcpu = (quota!.used_ns.vcpu ?? 0) + 2 * S;
    quota!.throttled_periods += 4;
    quota!.throttled_ns += 3 * S;
    quota!.periods += 20;
  });
  assert.equal(found?.binding?.used, 0.5);
  // 4 periods of 100 ms, although several CPUs were throttled for longer in total.
  assert.equal(found?.binding?.throttled, 0.2);
});

test("limit that changed between the readings is left out", () => {
  assert.equal(two((now) => (now.quota[0]!.cores = 3))?.binding, null);
});

test("states of a vCPU add up to its time on a CPU", () => {
  const found = two((now) => {
    const one = now.vcpus[0]!;
    one.cpu_ns += 1 * S;
    one.guest_ns = (one.guest_ns ?? 0) + 0.6 * S;
    one.kvm.halt_poll_ns!.fail += 0.1 * S;
    one.wait_ns = (one.wait_ns ?? 0) + 0.5 * S;
    one.kvm.exits!["io"] = 400;
  });
  const [one] = found?.vcpus ?? [];
  assert.ok(one);
  assert.equal(one.run, 0.5);
  assert.equal(one.guest, 0.3);
  assert.ok(Math.abs((one.guest ?? 0) + (one.host ?? 0) + (one.poll ?? 0) - one.run) < 1e-9);
  assert.equal(one.wait, 0.25);
  assert.equal(one.exits, 200);
  assert.equal(found?.wait, 0.25);
});

test("sampled guest time is not more than CPU time", () => {
  const found = two((now) => {
    now.vcpus[0]!.cpu_ns += 0.5 * S;
    now.vcpus[0]!.guest_ns = 9 * S;
  });
  assert.equal(found?.vcpus[0]?.guest, 0.25);
  assert.equal(found?.vcpus[0]?.host, 0);
});

test("unknown counter stays unknown", () => {
  const found = two((now) => (now.vcpus[0]!.wait_ns = null));
  assert.equal(found?.vcpus[0]?.wait, null);
  assert.equal(found?.wait, null);
});

test("vCPU with another thread has no usage", () => {
  assert.deepEqual(two((now) => (now.vcpus[0]!.tid = 99))?.vcpus, []);
});

test("VM with another process is another VM", () => {
  assert.equal(two((now) => (now.pid = 2)), null);
});

test("readings of another agent are not compared", () => {
  const first = reading(1000, []);
  assert.equal(lengthNs(first, reading(1002, [])), 2 * S);
  // A restarted agent has another clock.
  const restarted: Snapshot = { ...reading(1004, []), clock_ns: 5 * S };
  assert.equal(lengthNs(first, restarted), null);
  assert.equal(lengthNs(first, { ...first }), null);
});

test("store keeps usage of living VMs and starts again with another agent", () => {
  const store = new Store();
  store.add(reading(1000, [vm("a"), vm("b")]));
  assert.equal(store.use("a"), undefined);
  store.add(reading(1002, [vm("a"), vm("b")]));
  assert.equal(store.use("a")?.cores, 0);
  assert.equal(store.seriesOf("b").length, 1);
  store.add(reading(1004, [vm("a")]));
  assert.equal(store.seriesOf("a").length, 2);
  assert.equal(store.seriesOf("b").length, 0);
  store.add({ ...reading(1006, [vm("a")]), clock_ns: 1 });
  assert.equal(store.use("a"), undefined);
  assert.equal(store.seriesOf("a").length, 0);
});

test("recorded usage is put before that of the store", () => {
  const store = new Store();
  store.add(reading(1010, [vm("a")]));
  store.add(reading(1012, [vm("a")]));
  const recorded = [1000, 1005, 1012].map((time) => reading(time, [vm("a")]));
  store.backfill("a", usesOf("a", recorded));
  assert.deepEqual(store.seriesOf("a").map((one) => one.time), [1005, 1012]);
});

test("CPUs of a vCPU are counted over readings", () => {
  const store = new Store();
  const at = (pcpu: number) => ({ ...vm("a"), vcpus: [{ ...vcpu(0), pcpu }] });
  for (const [index, pcpu] of [3, 3, 4].entries()) store.add(reading(1000 + index, [at(pcpu)]));
  assert.deepEqual([...store.seen(at(4), 0)], [[3, 1], [4, 1]]);
});

test("usage of the shown VM is kept for ten minutes on a node of many VMs", () => {
  const store = new Store();
  store.shown = "vm-7";
  const names = Array.from({ length: 1000 }, (_, index) => `vm-${index}`);
  for (let time = 0; time < 200; time += 2) {
    store.add(reading(time, names.map(vm)));
  }
  assert.equal(store.seriesOf("vm-7").length, 99);
  assert.equal(store.seriesOf("vm-8").length, 60);
});

test("roles that ran when a quota ran out are counted", () => {
  const found = use(
    { ...vm("a"), roles: [{ role: "vcpu", threads: 1, cpu_ns: 0, wait_ns: 0, throttle_hits: 3 }] },
    { ...vm("a"), roles: [{ role: "vcpu", threads: 1, cpu_ns: 0, wait_ns: 0, throttle_hits: 8 }] },
    2 * S,
    100,
  );
  assert.deepEqual([...(found?.hits ?? [])], [["vcpu", 5]]);
});
