// The part of the API's answers that the page shows. agent/src/http/api/openapi.json describes
// all of it. null is an unknown value.

export const ROLES = ["vcpu", "vhost", "virtiofsd", "iothread", "emulator", "helper"] as const;
export type Role = (typeof ROLES)[number];

export interface Snapshot {
  time: string;
  clock_ns: number;
  reading_age_ns: number | null;
  node: { name: string; kernel: string; cpus: number; cgroup: string };
  host: { cpus: HostCpu[] };
  sources: Source[];
  vms: Vm[];
}

export interface Source {
  name: string;
  up: boolean;
  mode: string;
  reason: string;
}

export interface HostPlace {
  package: number | null;
  node: number | null;
  llc: number | null;
  core: number | null;
  thread: number | null;
}

export interface HostCpu extends HostPlace {
  cpu: number;
}

export interface Finding {
  check: string;
  severity: string;
  evidence: string;
  remedy: string;
  excess: number;
}

export interface Mismatch {
  kind: string;
  vcpus: number[];
  pcpus: number[];
  // NUMA nodes of remote memory; older recordings have none.
  memoryNodes?: number[];
  evidence: string;
  remedy: string;
  since: string;
}

export interface Quota {
  scope: string;
  cgroup: string;
  cores: number | null;
  period_ns: number;
  periods: number;
  throttled_periods: number;
  throttled_ns: number;
  used_ns: Partial<Record<Role, number>>;
  throttle: { wall_ns: number } | null;
}

export interface RoleUse {
  role: Role;
  threads: number;
  cpu_ns: number;
  wait_ns: number | null;
  throttle_hits: number | null;
}

export interface Vcpu {
  id: number;
  tid: number | null;
  cpu_ns: number;
  wait_ns: number | null;
  guest_ns: number | null;
  kvm: {
    halt_poll_ns: { success: number; fail: number } | null;
    exits: Record<string, number> | null;
  };
  cgroup: string | null;
  pcpu: number | null;
  affinity: string | null;
  guest: { package: number; die: number; core: number; thread: number } | null;
  host: HostPlace | null;
  residency_ns: Record<string, number>;
}

export interface Worker {
  role: Role;
  worker: number;
  tid: number | null;
  device: string | null;
  cpu_ns: number;
}

interface DiscardSum {
  events: number;
  bytes: number;
  ns: number;
}

export interface Memory {
  guest_bytes: number | null;
  resident_bytes: number | null;
  resident_peak_bytes: number | null;
  swap_bytes: number | null;
  cgroup_bytes: number | null;
  cgroup_limit_bytes: number | null;
  refault_bytes: number | null;
  discards: { inflate: DiscardSum; deflate: DiscardSum; report: DiscardSum } | null;
  features: Record<string, { enabled: boolean | null; reason: string }>;
}

export interface Vm {
  namespace: string | null;
  pod: string | null;
  vm: string;
  vmm: string;
  runtime: string | null;
  pid: number;
  running: boolean;
  roles: RoleUse[];
  unattributed_cpu_ns: number;
  vcpus: Vcpu[];
  workers: Worker[];
  quota: Quota[];
  limit_cores: number | null;
  topology: {
    guest: { packages: number; cores: number; threads: number } | null;
    cpuset: string | null;
    pinnedVcpus: number;
    mismatches: Mismatch[];
  } | null;
  memory: Memory;
  findings: Finding[] | null;
}

export interface Incident {
  id: string;
  time: string;
  unix_ns: number;
  vm: { vm: string; namespace: string | null; pod: string | null };
  findings: Finding[];
  // Names of the alerts that began it, or fired while it lasted; older agents have none.
  alerts?: string[];
  from_ns: number;
  until_ns: number;
  trace: string | null;
}

// The name that people know: that of the pod, or of the VM.
export function nameOf(vm: { vm: string; namespace: string | null; pod: string | null }): string {
  if (vm.pod === null) return vm.vm;
  return vm.namespace === null ? vm.pod : `${vm.namespace}/${vm.pod}`;
}

export function isSame(one: Vm, other: Vm): boolean {
  return one.vm === other.vm && one.pid === other.pid;
}
