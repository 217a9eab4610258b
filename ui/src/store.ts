// The readings that the views show: the last two, and the usage before them.

import type { Snapshot, Vm } from "./model.ts";
import { Onsets } from "./onsets.ts";
import { lengthNs, use } from "./rates.ts";
import type { Use } from "./rates.ts";

// Readings of usage that are kept for a VM at most: 10 min of one reading in 2 s.
const MAX_SERIES = 300;
// Readings of usage that are kept for all VMs together.
const MAX_KEPT = 60_000;

export class Store {
  now: Snapshot | null = null;
  before: Snapshot | null = null;
  // The VM of the view, whose usage is kept for longer than that of the others.
  shown = "";
  readonly onsets = new Onsets();
  private series = new Map<string, Use[]>();
  private byName = new Map<string, Vm>();

  reset(): void {
    this.now = null;
    this.before = null;
    this.series.clear();
    this.byName.clear();
  }

  // Adds the next reading. Readings of the same instant are ignored.
  add(reading: Snapshot): void {
    if (this.now?.clock_ns === reading.clock_ns && this.now.time === reading.time) return;
    const length = this.now ? lengthNs(this.now, reading) : null;
    if (this.now && length === null) {
      // Another agent: its clock and some of its counters begin at 0.
      this.reset();
    }
    const before = this.now;
    const old = this.byName;
    this.byName = new Map(reading.vms.map((vm) => [vm.vm, vm]));
    this.before = before;
    this.now = reading;
    const share = Math.floor(MAX_KEPT / Math.max(1, reading.vms.length));
    const ofOthers = Math.max(2, Math.min(MAX_SERIES, share));
    if (before && length !== null) this.onsets.add(before, reading);
    const time = Date.parse(reading.time) / 1000;
    for (const name of this.series.keys()) {
      if (!this.byName.has(name)) this.series.delete(name);
    }
    for (const vm of reading.vms) {
      const next = length === null ? null : use(old.get(vm.vm), vm, length, time);
      if (!next) continue;
      const kept = this.series.get(vm.vm) ?? [];
      kept.push(next);
      const most = vm.vm === this.shown ? MAX_SERIES : ofOthers;
      if (kept.length > most) kept.splice(0, kept.length - most);
      this.series.set(vm.vm, kept);
    }
  }

  vm(name: string): Vm | undefined {
    return this.byName.get(name);
  }

  // Usage of a VM between the last two readings; undefined if it is unknown.
  use(name: string): Use | undefined {
    const last = this.series.get(name)?.at(-1);
    const time = this.now ? Date.parse(this.now.time) / 1000 : 0;
    return last?.time === time ? last : undefined;
  }

  seriesOf(name: string): Use[] {
    return this.series.get(name) ?? [];
  }

  // Puts recorded usage before that of a VM.
  backfill(name: string, recorded: Use[]): void {
    const kept = this.series.get(name) ?? [];
    const first = kept[0]?.time ?? Infinity;
    const earlier = recorded.filter((one) => one.time < first);
    this.series.set(name, [...earlier, ...kept].slice(-MAX_SERIES));
  }

  // Number of readings in which a vCPU was on a CPU, by CPU.
  seen(vm: Vm, vcpu: number): Map<number, number> {
    const counts = new Map<number, number>();
    for (const one of this.seriesOf(vm.vm).slice(-30)) {
      const pcpu = one.vcpus.find((other) => other.id === vcpu)?.pcpu ?? null;
      if (pcpu !== null) counts.set(pcpu, (counts.get(pcpu) ?? 0) + 1);
    }
    return counts;
  }
}

// Usage of a VM from lines of the API's history.
export function usesOf(name: string, readings: Snapshot[]): Use[] {
  const found: Use[] = [];
  let before: Snapshot | null = null;
  for (const reading of readings) {
    const vm = reading.vms.find((one) => one.vm === name);
    const then = before?.vms.find((one) => one.vm === name);
    const length = before ? lengthNs(before, reading) : null;
    const time = Date.parse(reading.time) / 1000;
    const next = vm && length !== null ? use(then, vm, length, time) : null;
    if (next) found.push(next);
    before = reading;
  }
  return found;
}
