// The host's CPUs as nested boxes: packages, NUMA nodes, last-level caches, cores.

import type { HostCpu, Snapshot, Vm } from "./model.ts";

export interface Box {
  // Empty for a level that the host does not know.
  label: string;
  level: "package" | "node" | "llc" | "core";
  // Number of the level; null if the host does not know it.
  number: number | null;
  inner: Box[];
  cpus: number[];
}

const LEVELS = ["package", "node", "llc", "core"] as const;
const NAMES = { package: "Package", node: "NUMA node", llc: "Cache", core: "Core" };

function group(cpus: HostCpu[], depth: number): Box[] {
  const level = LEVELS[depth];
  if (level === undefined) return [];
  const groups = new Map<number | null, HostCpu[]>();
  for (const cpu of cpus) {
    const members = groups.get(cpu[level]);
    if (members) members.push(cpu);
    else groups.set(cpu[level], [cpu]);
  }
  const sorted = [...groups].sort(([a], [b]) => (a ?? -1) - (b ?? -1));
  return sorted.map(([number, members]) => ({
    label: number === null ? "" : `${NAMES[level]} ${number}`,
    level,
    number,
    inner: group(members, depth + 1),
    cpus: members.map((cpu) => cpu.cpu),
  }));
}

export function boxes(cpus: HostCpu[]): Box[] {
  return group(cpus, 0);
}

// Numbers of a list such as "0-3,8".
export function cpuList(text: string | null): Set<number> {
  const found = new Set<number>();
  for (const part of text ? text.split(",") : []) {
    const [first, last] = part.split("-").map(Number);
    if (first === undefined || Number.isNaN(first)) continue;
    for (let cpu = first; cpu <= (last ?? first) && found.size < 8192; cpu += 1) found.add(cpu);
  }
  return found;
}

// A letter for each VM, as `virtlens topology` gives them: A to Z, then AA, AB …
export function letters(index: number): string {
  let text = "";
  for (let left = index + 1; left > 0; left = Math.floor((left - 1) / 26)) {
    text = String.fromCharCode(65 + ((left - 1) % 26)) + text;
  }
  return text;
}

export interface Placement {
  vm: Vm;
  index: number;
  vcpu: number;
  // Part of the vCPU's readings or CPU time on this CPU, 0 to 1.
  share: number;
  // The vCPU may run here alone, or is here now.
  isPinned: boolean;
  isHere: boolean;
  isMisplaced: boolean;
}

// The vCPUs on each CPU. `seen` counts the readings in which a vCPU was on a CPU, by VM, vCPU and
// CPU.
export function placements(
  now: Snapshot,
  seen: (vm: Vm, vcpu: number) => Map<number, number>,
): Map<number, Placement[]> {
  const found = new Map<number, Placement[]>();
  now.vms.forEach((vm, index) => {
    const misplaced = new Set(vm.topology?.mismatches.flatMap((one) => one.vcpus));
    for (const vcpu of vm.vcpus) {
      if (vcpu.tid === null || !vm.running) continue;
      const times = new Map(
        Object.entries(vcpu.residency_ns).map(([cpu, ns]) => [Number(cpu), ns]),
      );
      const counts = times.size ? times : new Map(seen(vm, vcpu.id));
      if (vcpu.pcpu !== null && !counts.has(vcpu.pcpu)) counts.set(vcpu.pcpu, counts.size ? 0 : 1);
      let total = 0;
      for (const count of counts.values()) total += count;
      for (const [cpu, count] of counts) {
        const list = found.get(cpu) ?? [];
        list.push({
          vm,
          index,
          vcpu: vcpu.id,
          share: total ? count / total : 0,
          isPinned: vcpu.affinity === String(cpu),
          isHere: vcpu.pcpu === cpu,
          isMisplaced: misplaced.has(vcpu.id),
        });
        found.set(cpu, list);
      }
    }
  });
  return found;
}
