import assert from "node:assert/strict";
import { test } from "node:test";

import { change, means } from "../src/compare.ts";
import * as form from "../src/format.ts";
import { boxes, cpuList, letters, placements } from "../src/layout.ts";
import { bindings, signs } from "../src/mismatch.ts";
import type { HostCpu } from "../src/model.ts";
import { select } from "../src/node.ts";
import { Onsets } from "../src/onsets.ts";
import { format, parse, START } from "../src/route.ts";
import { eventsOf, marks } from "../src/timeline.ts";
import { guestBoxes, hostBoxes } from "../src/topology.ts";
import { reading, vcpu, vm } from "./made.ts";

test("numbers have units, and unknown values a dash", () => {
  assert.equal(form.bytes(null), "-");
  assert.equal(form.bytes(0), "0 B");
  assert.equal(form.bytes(1536), "1.5 KiB");
  assert.equal(form.bytes(300 * 2 ** 20), "300 MiB");
  assert.equal(form.percent(0.314), "31 %");
  assert.equal(form.percent(null), "-");
  assert.equal(form.cores(1.004), "1.00");
  assert.equal(form.rate(12_345), "12k/s");
  assert.equal(form.clock(0), "00:00:00");
  assert.equal(form.instant(60), "1970-01-01T00:01:00Z");
  assert.equal(form.span(3600), "60 min");
});

test("each view is in the address and is read from it", () => {
  for (const route of [
    START,
    { ...START, view: "map" as const, at: 1_790_000_000 },
    { ...START, view: "vm" as const, vm: "<img src=x>/a?b#c%" },
    { ...START, view: "vm" as const, vm: "a", against: 3600 },
    { ...START, search: "a & b", flagged: true, sort: "wait" as const, reversed: true },
  ]) {
    assert.deepEqual(parse(format(route)), route);
  }
});

test("unknown address shows the node", () => {
  for (const hash of ["", "#", "#/nothing", "#/node?sort=evil&at=never", "#/vm/%E0%A4%A"]) {
    const route = parse(hash);
    assert.equal(route.at, null);
    assert.equal(route.sort, "cores");
  }
});

function cpus(count: number, perCore: number, perNode: number): HostCpu[] {
  return Array.from({ length: count }, (_, cpu) => {
    const core = Math.floor(cpu / perCore) * perCore;
    const node = Math.floor(cpu / perNode);
    return { cpu, package: node >> 1, node, llc: node * perNode, core, thread: cpu % perCore };
  });
}

test("boxes hold every CPU once, from 1 to 512 CPUs", () => {
  for (const [count, perCore, perNode] of [[1, 1, 1], [8, 2, 4], [512, 2, 64]] as const) {
    const inner = (level: ReturnType<typeof boxes>): number[] =>
      level.flatMap((box) => (box.level === "core" ? box.cpus : inner(box.inner)));
    const found = inner(boxes(cpus(count, perCore, perNode)));
    assert.equal(new Set(found).size, count);
    assert.equal(found.length, count);
  }
});

test("boxes of unknown levels have no label", () => {
  const unknown = { package: null, node: null, llc: null, core: null, thread: null };
  const [box] = boxes([{ cpu: 0, ...unknown }]);
  assert.equal(box?.label, "");
  assert.deepEqual(box?.cpus, [0]);
});

test("CPU lists are read, and broken ones end", () => {
  assert.deepEqual([...cpuList("0-2,8")], [0, 1, 2, 8]);
  assert.deepEqual([...cpuList(null)], []);
  assert.deepEqual([...cpuList("x")], []);
  assert.ok(cpuList("0-9999999999").size <= 8192);
});

test("VMs have the letters of virtlens topology", () => {
  assert.deepEqual([0, 25, 26, 701, 702].map(letters), ["A", "Z", "AA", "ZZ", "AAA"]);
});

test("vCPUs are on the CPUs where the readings saw them", () => {
  const one = { ...vm("a"), vcpus: [{ ...vcpu(0), pcpu: 1, affinity: "0-3" }, { ...vcpu(1), pcpu: 2, affinity: "2" }] };
  const found = placements(reading(1, [one]), (_, id) => new Map(id === 0 ? [[0, 3], [1, 1]] : []));
  const [was] = found.get(0) ?? [];
  assert.equal(was?.share, 0.75);
  assert.equal(was?.isHere, false);
  const [here] = found.get(1) ?? [];
  assert.equal(here?.isHere, true);
  assert.equal(here?.isPinned, false);
  assert.equal(found.get(2)?.[0]?.isPinned, true);
  assert.equal(found.get(2)?.[0]?.share, 1);
});

test("rows are searched by namespace, pod and VM, and sorted with unknown values last", () => {
  const made = (name: string, resident: number | null) => {
    const one = { ...vm(name), namespace: "shop", pod: `pod-${name}` };
    one.memory = { ...one.memory, resident_bytes: resident };
    return { vm: one, name: `shop/pod-${name}`, use: undefined };
  };
  const rows = [made("a", 1), made("b", null), made("c", 3)];
  const names = (route: Partial<typeof START>) => select(rows, { ...START, ...route }).map((row) => row.vm.vm);
  assert.deepEqual(names({ sort: "memory" }), ["c", "a", "b"]);
  assert.deepEqual(names({ sort: "name" }), ["a", "b", "c"]);
  assert.deepEqual(names({ sort: "name", reversed: true }), ["c", "b", "a"]);
  assert.deepEqual(names({ search: "SHOP/pod-b" }), ["b"]);
  assert.deepEqual(names({ flagged: true }), []);
});

test("events of one part of the time line share a mark", () => {
  const at = (time: number) => ({ time, vm: "a", text: "", isIncident: true });
  const found = marks([at(10), at(100), at(101), at(340), at(999)], 100, 340, 24);
  assert.deepEqual(found.map(({ part, events }) => [part, events.length]), [[0, 2], [23, 1]]);
});

test("finding that begins is marked once, between the incidents", () => {
  const finding = (check: string) => ({ check, severity: "info", evidence: "", remedy: "", excess: 1 });
  const at = (time: number, ...checks: string[]) => reading(time, [{ ...vm("a"), findings: checks.map(finding) }]);
  const onsets = new Onsets();
  onsets.add(reading(98, [vm("a")]), at(100, "first"));
  for (const _ of [1, 2]) onsets.add(at(100, "first"), at(102, "first", "quota_tight"));
  onsets.add(at(102, "first", "quota_tight"), at(104, "first", "quota_tight"));
  const [one, ...others] = onsets.all();
  assert.deepEqual(one, { time: 102, vm: "a", name: "a", check: "quota_tight" });
  assert.deepEqual(others, []);
  const incident = {
    id: "1",
    time: "",
    unix_ns: 103e9,
    vm: { vm: "a", namespace: "shop", pod: "web-0" },
    findings: [finding("throttled_often")],
    from_ns: 0,
    until_ns: 0,
    trace: null,
  };
  assert.deepEqual(eventsOf([incident], onsets.all()), [
    { time: 102, vm: "a", text: "a: quota tight began", isIncident: false },
    { time: 103, vm: "a", text: "shop/web-0: throttled often", isIncident: true },
  ]);
});

test("means are over known values, and changes are parts of the first value", () => {
  assert.equal(means([]), null);
  const of = (cores: number, wait: number | null) => ({
    time: 0,
    cores,
    roles: new Map([["vcpu" as const, { cores, wait: null, threads: 1 }]]),
    hits: new Map(),
    other: 0,
    limits: [],
    binding: null,
    wait,
    vcpus: [],
    workers: [],
    exits: new Map([["io", 10], ["halt", 20]]),
    resident: 100,
    inflated: null,
    deflated: null,
    reported: null,
    refaulted: null,
  });
  const found = means([of(1, null), of(3, 0.5)]);
  assert.deepEqual(found, {
    cores: 2,
    roles: [2, null, null, null, null, null],
    throttled: null,
    wait: 0.5,
    exits: 30,
    resident: 100,
  });
  assert.deepEqual([[1, 2], [2, 1], [0, 1], [1, 1], [null, 1]].map(([a, b]) => change(a ?? null, b ?? null)), [
    "+100 %",
    "−50 %",
    "new",
    "0 %",
    "-",
  ]);
});

test("marks of mismatches are at their vCPUs, CPUs and NUMA nodes", () => {
  const made = (kind: string, vcpus: number[], pcpus: number[], memoryNodes: number[] = []) => ({
    kind,
    vcpus,
    pcpus,
    memoryNodes,
    evidence: "",
    remedy: "",
    since: "",
  });
  const of = (...mismatches: ReturnType<typeof made>[]) => ({
    ...vm("a"),
    topology: { guest: null, cpuset: null, pinnedVcpus: 0, mismatches },
  });
  const now = reading(1, [
    of(made("smt_split", [0, 1, 2], [0, 2, 4]), made("vcpu_overlap", [0, 1], [3])),
    of(made("helper_on_vcpu", [0], [5]), made("remote_memory", [0], [8], [0])),
  ]);
  assert.deepEqual(bindings(now).map(({ kind, from, to }) => [kind, from, to]), [
    ["smt_split", 0, 1],
    ["smt_split", 1, 2],
    ["remote_memory", 0, { node: 0 }],
  ]);
  const { byCpu, byNode } = signs(now);
  assert.deepEqual([...byCpu].map(([cpu, list]) => [cpu, list.map((one) => one.text)]), [[3, ["▣"]], [5, ["⚙B"]]]);
  assert.deepEqual([...byNode].map(([node, list]) => [node, list.map((one) => one.text)]), [[0, ["▦ memory of B"]]]);
});

test("guest's topology is beside the cores on which its vCPUs are", () => {
  const at = (core: number, thread: number) => ({ package: 0, die: 0, core, thread });
  const vcpus = [{ ...vcpu(0), pcpu: 0, guest: at(0, 0) }, { ...vcpu(1), pcpu: 2, guest: at(0, 1) }];
  const [socket] = guestBoxes(vcpus);
  assert.deepEqual(socket?.cpus, [0, 1]);
  const leaves = (level: ReturnType<typeof boxes>): number[][] =>
    level.flatMap((box) => (box.level === "core" ? [box.cpus] : leaves(box.inner)));
  assert.deepEqual(leaves(guestBoxes(vcpus)), [[0, 1]]);
  assert.deepEqual(leaves(hostBoxes(vcpus, cpus(8, 2, 4))), [[0, 1], [2, 3]]);
  assert.deepEqual(guestBoxes([vcpu(0)]), []);
});
