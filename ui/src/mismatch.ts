// Marks of mismatches on the map: lines between two ends, and signs at CPUs and NUMA nodes.

import { letters } from "./layout.ts";
import type { Snapshot } from "./model.ts";

// Kinds of mismatches: the sign at a CPU or node, if any, and the meaning.
export const KINDS: Record<string, { sign: string; meaning: string }> = {
  smt_split: { sign: "", meaning: "siblings of the guest on different cores" },
  smt_shared: { sign: "", meaning: "vCPUs of different cores of the guest on one core" },
  vcpu_overlap: { sign: "▣", meaning: "several vCPUs pinned to one CPU" },
  numa_split: { sign: "", meaning: "vCPUs of one socket of the guest on several NUMA nodes" },
  llc_split: { sign: "", meaning: "vCPUs of one die of the guest on several caches" },
  helper_on_vcpu: { sign: "⚙", meaning: "other threads of the VM may run on the CPU of a pinned vCPU" },
  remote_memory: { sign: "▦", meaning: "memory on a NUMA node without a vCPU of the VM" },
};

// Lines of one mismatch at most.
const MAX_ENDS = 16;

// A line from a vCPU to another one, or to the memory on a NUMA node.
export interface Binding {
  kind: string;
  vm: string;
  from: number;
  to: number | { node: number };
}

export interface Sign {
  kind: string;
  vm: string;
  text: string;
}

export function bindings(now: Snapshot): Binding[] {
  const found: Binding[] = [];
  for (const { vm, topology } of now.vms) {
    for (const { kind, vcpus, memoryNodes } of topology?.mismatches ?? []) {
      const ends = vcpus.slice(0, MAX_ENDS);
      if (kind === "remote_memory") {
        for (const node of memoryNodes ?? []) {
          for (const from of ends) found.push({ kind, vm, from, to: { node } });
        }
      } else if (KINDS[kind]?.sign === "") {
        ends.slice(1).forEach((to, index) => found.push({ kind, vm, from: ends[index] ?? to, to }));
      }
    }
  }
  return found;
}

// Signs by CPU and by NUMA node.
export function signs(now: Snapshot): { byCpu: Map<number, Sign[]>; byNode: Map<number, Sign[]> } {
  const byCpu = new Map<number, Sign[]>();
  const byNode = new Map<number, Sign[]>();
  const add = (to: Map<number, Sign[]>, number: number, sign: Sign) => {
    const list = to.get(number);
    if (list) list.push(sign);
    else to.set(number, [sign]);
  };
  now.vms.forEach(({ vm, topology }, index) => {
    for (const { kind, pcpus, memoryNodes } of topology?.mismatches ?? []) {
      const sign = KINDS[kind]?.sign;
      if (kind === "remote_memory") {
        const text = `${sign} memory of ${letters(index)}`;
        for (const node of memoryNodes ?? []) add(byNode, node, { kind, vm, text });
      } else if (sign) {
        const text = kind === "helper_on_vcpu" ? `${sign}${letters(index)}` : sign;
        for (const cpu of pcpus) add(byCpu, cpu, { kind, vm, text });
      }
    }
  });
  return { byCpu, byNode };
}
