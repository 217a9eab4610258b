// Findings that began between two readings, for the time line.

import { nameOf } from "./model.ts";
import type { Finding, Snapshot } from "./model.ts";

// The oldest are forgotten.
const MAX_ONSETS = 500;

export interface Onset {
  // s since 1970.
  time: number;
  vm: string;
  name: string;
  check: string;
}

export class Onsets {
  private found = new Map<string, Onset>();

  // Adds the findings that only the later of two readings of one agent has.
  add(before: Snapshot, now: Snapshot): void {
    const old = new Map(before.vms.map((vm) => [vm.vm, vm.findings]));
    const time = Date.parse(now.time) / 1000;
    for (const vm of now.vms) {
      const then = old.get(vm.vm);
      if (!then || !vm.findings?.length) continue;
      for (const { check } of vm.findings) {
        if (has(then, check)) continue;
        this.found.set(`${time} ${vm.vm} ${check}`, { time, vm: vm.vm, name: nameOf(vm), check });
      }
    }
    for (const key of this.found.keys()) {
      if (this.found.size <= MAX_ONSETS) break;
      this.found.delete(key);
    }
  }

  // Those that had begun at a reading.
  until(now: Snapshot | null): Onset[] {
    const time = now ? Date.parse(now.time) / 1000 : Infinity;
    return this.all().filter((one) => one.time <= time);
  }

  all(): Onset[] {
    return [...this.found.values()];
  }
}

function has(findings: Finding[], check: string): boolean {
  return findings.some((one) => one.check === check);
}
