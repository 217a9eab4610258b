// The view of one VM: usage over time, vCPUs, workers, memory, placement, findings.

import { ApiError, path, request } from "./api.ts";
import { lane, LANE_COLORS, limitsOf, rangeOf, RolesChart, Strip, throttling } from "./chart.ts";
import { Compare } from "./compare.ts";
import { el, rows, section, table, text } from "./dom.ts";
import * as form from "./format.ts";
import { nameOf } from "./model.ts";
import type { Incident, Vm } from "./model.ts";
import type { Onset } from "./onsets.ts";
import type { Use } from "./rates.ts";
import { format } from "./route.ts";
import { history } from "./source.ts";
import { usesOf } from "./store.ts";
import { TopologyPair } from "./topology.ts";
import { badge, legend, tile } from "./view.ts";
import type { Context, View } from "./view.ts";

// vCPUs with a lane; the table has all.
const MAX_LANES = 64;
// Incidents that are linked, the last ones.
const MAX_INCIDENTS = 10;
const BACKFILL_S = 600;
const TRACE_S = 5;

function placeOf(place: Vm["vcpus"][number]["host"]): string {
  if (!place) return "-";
  const part = (label: string, number: number | null) => (number === null ? [] : [`${label} ${number}`]);
  const parts = [
    ...part("package", place.package),
    ...part("node", place.node),
    ...part("core", place.core),
    ...part("thread", place.thread),
  ];
  return parts.join(", ") || "-";
}

function guestOf(place: Vm["vcpus"][number]["guest"]): string {
  return place ? `socket ${place.package}, core ${place.core}, thread ${place.thread}` : "-";
}

// Takes a trace and offers the file.
class Tracer {
  readonly element: HTMLElement;
  private status = el("span", { role: "status" });
  private button: HTMLButtonElement;
  private link = el("a", { hidden: true });
  private address: string | null = null;

  constructor(name: string) {
    const take = () => void this.take(name);
    const label = `Take a trace of ${TRACE_S} s`;
    this.button = el("button", { type: "button", id: "trace", on: { click: take } }, label);
    this.element = el("p", { class: "tracer" }, this.button, " ", this.link, " ", this.status);
  }

  private async take(name: string): Promise<void> {
    this.button.disabled = true;
    this.link.hidden = true;
    text(this.status, "tracing …");
    try {
      const address = path("trace", { vm: name, for: `${TRACE_S}s` });
      const response = await request(address, { method: "POST" });
      const file = await response.blob();
      this.close();
      this.address = URL.createObjectURL(file);
      this.link.href = this.address;
      this.link.download = `${name.replace(/[^A-Za-z0-9._-]/g, "_")}.pftrace`;
      text(this.link, `Save ${this.link.download} (${form.bytes(file.size)})`);
      this.link.hidden = false;
      text(this.status, "Open it in the Perfetto viewer, ui.perfetto.dev.");
    } catch (error) {
      const reason = error instanceof ApiError ? error.message : "the connection was lost";
      text(this.status, `No trace: ${reason}`);
    }
    this.button.disabled = false;
  }

  close(): void {
    if (this.address !== null) URL.revokeObjectURL(this.address);
    this.address = null;
  }
}

class Findings {
  readonly element: HTMLElement;
  private list = el("ul", { class: "findings" });
  private past = el("p", { class: "sub incidents" });
  private shown = "";

  constructor() {
    this.element = section("Findings", this.list, this.past);
  }

  update(vm: Vm, incidents: Incident[], onsets: Onset[], href: (at: number) => string): void {
    const mine = incidents.filter((one) => one.vm.vm === vm.vm);
    const begun = new Map(onsets.filter((one) => one.vm === vm.vm).map((one) => [one.check, one.time]));
    const ids = mine.map((one) => one.id);
    const signature = JSON.stringify([vm.findings, vm.topology?.mismatches, ids, [...begun]]);
    if (signature === this.shown) return;
    this.shown = signature;
    const last = mine.slice(-MAX_INCIDENTS).reverse();
    const links = last.flatMap((one, index) => {
      const checks = one.findings.map(({ check }) => check.replaceAll("_", " ")).join(", ");
      const link = el("a", { href: href(Math.ceil(one.unix_ns / 1e9)) }, `${form.day(one.unix_ns / 1e9)} ${checks}`);
      return index ? ["; ", link] : [link];
    });
    this.past.replaceChildren(...(links.length ? ["Incidents: ", ...links] : []));
    if (!vm.findings) {
      this.list.replaceChildren(el("li", {}, "The agent has not judged this VM yet."));
      return;
    }
    const items = vm.findings.map((one) => {
      const mismatch = vm.topology?.mismatches.find((other) => other.kind === one.check);
      const incident = mine.filter((other) => other.findings.some(({ check }) => check === one.check)).at(-1);
      const time = begun.get(one.check) ?? (incident ? incident.unix_ns / 1e9 : null);
      const since = mismatch
        ? el("p", { class: "sub" }, `since ${mismatch.since}`)
        : time === null
          ? null
          : el("p", { class: "sub" }, "began at ", el("a", { href: href(Math.ceil(time)) }, form.day(time)));
      return el("li", {}, badge(one), el("p", {}, one.evidence), el("p", { class: "remedy" }, one.remedy), since);
    });
    this.list.replaceChildren(...(items.length ? items : [el("li", {}, "None.")]));
  }
}

class Charts {
  readonly element: HTMLElement;
  private roles = new RolesChart();
  private limits = el("p", { class: "sub" });
  private throttle = new Strip("throttled");
  private lanes = el("div", { class: "lanes" });
  private strips = new Map<number, Strip>();

  constructor() {
    const states = el("ul", { class: "legend", "aria-label": "States of vCPUs" });
    for (const state of Object.keys(LANE_COLORS)) {
      states.append(el("li", {}, el("span", { class: `swatch state ${state}` }), state));
    }
    this.element = section(
      "CPU time by role",
      legend(),
      this.roles.element,
      this.limits,
      this.throttle.element,
      el("p", { class: "sub" }, "Colours of the strip: roles that ran when the quota ran out, if they are known."),
      el("h3", {}, "vCPUs over time"),
      states,
      this.lanes,
    );
  }

  update(vm: Vm, series: Use[], now: Use | undefined): void {
    const range = rangeOf(series);
    const limits = limitsOf(vm);
    this.roles.update(series, limits);
    const shown = limits.map((one) => form.cores(one)).join(", ");
    text(this.limits, limits.length ? `Dashed: CPU limit of ${shown} cores.` : "No CPU limit.");
    const worst = now ? Math.max(0, ...now.limits.map((limit) => limit.throttled)) : null;
    const summary = limits.length ? form.percent(worst) : "no CPU limit";
    this.throttle.update(series, range, throttling, summary);
    const ids = (now?.vcpus ?? series.at(-1)?.vcpus ?? []).map((one) => one.id).slice(0, MAX_LANES);
    for (const [id, strip] of this.strips) {
      if (ids.includes(id)) continue;
      strip.element.remove();
      this.strips.delete(id);
    }
    for (const id of ids) {
      let strip = this.strips.get(id);
      if (!strip) {
        strip = new Strip(`vCPU ${id}`);
        this.strips.set(id, strip);
        this.lanes.append(strip.element);
      }
      const last = now?.vcpus.find((one) => one.id === id);
      const text = `on a CPU ${form.percent(last?.run ?? null)}, waiting ${form.percent(last?.wait ?? null)}`;
      const parts = (one: Use) => {
        const found = one.vcpus.find((other) => other.id === id);
        return found ? lane(found) : [];
      };
      strip.update(series, range, parts, text);
    }
  }

  close(): void {
    this.roles.close();
  }
}

class Tables {
  private roles = table("CPU time by role", ["Role", "Threads", "Cores", "Waiting", "Quota ran out", "Since the start"]);
  private limits = table("CPU limits", ["Level", "Cgroup", "Cores", "Used", "Throttled", "Periods"]);
  private vcpus = table("vCPUs", ["vCPU", "CPU", "Guest", "Host", "Polling", "Waiting", "Exits", "pCPU", "Allowed", "On the host", "In the guest"]);
  private workers = table("I/O workers", ["Worker", "Device", "CPU"]);
  private exits = table("Exits by kind", ["Kind", "Rate"]);
  private memory = table("Memory", ["Memory", "Value"]);
  readonly elements = [
    section(
      "Roles and limits",
      this.roles.box,
      el("p", { class: "sub" }, "Quota ran out: how often a thread of the role was running then, in the last interval."),
      this.limits.box,
    ),
    section("vCPUs", this.vcpus.box),
    el(
      "div",
      { class: "beside" },
      section("Memory", this.memory.box),
      section("VM exits", this.exits.box),
      section("I/O workers", this.workers.box),
    ),
  ];

  update(vm: Vm, use: Use | undefined): void {
    const { percent, cores } = form;
    rows(
      this.roles.body,
      vm.roles.map((role) => {
        const now = use?.roles.get(role.role);
        const hits = role.throttle_hits === null ? ["-", "-"] : [String(use?.hits.get(role.role) ?? 0), String(role.throttle_hits)];
        return [role.role, String(role.threads), cores(now?.cores ?? null), percent(now?.wait ?? null), ...hits];
      }),
    );
    rows(
      this.limits.body,
      (use?.limits ?? []).map((one) => [
        one.quota.scope,
        one.quota.cgroup,
        cores(one.cores),
        percent(one.used),
        percent(one.throttled),
        `${one.throttledPeriods} of ${one.periods}`,
      ]),
    );
    this.limits.box.hidden = !use?.limits.length;
    const uses = new Map(use?.vcpus.map((one) => [one.id, one]));
    rows(
      this.vcpus.body,
      vm.vcpus
        .filter((one) => one.tid !== null)
        .map((one) => {
          const now = uses.get(one.id);
          return [
            String(one.id),
            percent(now?.run ?? null),
            percent(now?.guest ?? null),
            percent(now?.host ?? null),
            percent(now?.poll ?? null),
            percent(now?.wait ?? null),
            form.rate(now?.exits ?? null),
            String(one.pcpu ?? "-"),
            one.affinity ?? "-",
            placeOf(one.host),
            guestOf(one.guest),
          ];
        }),
    );
    rows(this.workers.body, (use?.workers ?? []).map((one) => [one.name, one.device ?? "-", percent(one.cores)]));
    const kinds = [...(use?.exits ?? [])].sort(([, a], [, b]) => b - a);
    rows(this.exits.body, kinds.map(([kind, rate]) => [kind.replaceAll("_", " "), form.rate(rate)]));
    rows(this.memory.body, memoryRows(vm, use));
  }
}

function memoryRows(vm: Vm, use: Use | undefined): string[][] {
  const { memory } = vm;
  const features = Object.entries(memory.features).map(([name, one]) => {
    const state = one.enabled === null ? "unknown" : one.enabled ? "on" : "off";
    return [name.replaceAll("_", " "), `${state} (${one.reason})`];
  });
  const limit = memory.cgroup_limit_bytes;
  const cgroup = memory.cgroup_bytes === null ? "-" : `${form.bytes(memory.cgroup_bytes)}${limit === null ? ", no limit" : ` of ${form.bytes(limit)}`}`;
  return [
    ["RAM of the guest", form.bytes(memory.guest_bytes)],
    ["resident", form.bytes(memory.resident_bytes)],
    ["resident at most", form.bytes(memory.resident_peak_bytes)],
    ["in swap", form.bytes(memory.swap_bytes)],
    ["cgroup", cgroup],
    ["taken by the balloon", form.byteRate(use?.inflated ?? null)],
    ["given back by the balloon", form.byteRate(use?.deflated ?? null)],
    ["reported as free by the guest", form.byteRate(use?.reported ?? null)],
    ["used again by the guest", form.byteRate(use?.refaulted ?? null)],
    ...features,
  ];
}

function facts(vm: Vm): string {
  const guest = vm.topology?.guest;
  const shape = guest
    ? `; the guest sees ${guest.packages} sockets × ${guest.cores} cores × ${guest.threads} threads`
    : "";
  const by = vm.runtime === null ? "" : ` by ${vm.runtime}`;
  return `${vm.vm}, ${vm.vmm}${by}, pid ${vm.pid}${vm.running ? "" : ", ended"}${shape}`;
}

export function vmView(context: Context): View {
  const name = context.route.vm;
  const heading = el("h1", {}, name);
  const sub = el("p", { class: "sub" });
  const tiles = {
    cores: tile("Cores"),
    used: tile("Used of the limit"),
    throttled: tile("Throttled"),
    wait: tile("Longest wait of a vCPU"),
    memory: tile("Resident"),
  };
  const missing = el("p", { class: "empty", role: "status" });
  const tracer = new Tracer(name);
  const findings = new Findings();
  const charts = new Charts();
  const tables = new Tables();
  const compare = new Compare(name);
  const pair = new TopologyPair();
  const content = el(
    "div",
    {},
    el("dl", { class: "tiles" }, ...Object.values(tiles).map((one) => one.element)),
    tracer.element,
    findings.element,
    charts.element,
    compare.element,
    pair.element,
    ...tables.elements,
  );
  const element = el("div", { class: "vm" }, heading, sub, missing, content);
  const stopping = new AbortController();
  let isFilled = false;

  const fill = async (next: Context) => {
    const end = next.route.at ?? next.lastTime();
    const found = await history(end - BACKFILL_S, end, name, stopping.signal);
    if (stopping.signal.aborted) return;
    next.store.backfill(name, usesOf(name, found));
    found.forEach((one, index) => index > 0 && next.store.onsets.add(found[index - 1] ?? one, one));
    update(next);
  };
  const update = (next: Context) => {
    const { store, route } = next;
    const vm = store.vm(name);
    content.hidden = !vm;
    text(missing, vm || !store.now ? "" : "This VM is not in this reading: it has ended or had not started.");
    if (!vm) return;
    if (!isFilled && next.hasRecording) {
      isFilled = true;
      // Without the recorded readings the charts begin now.
      void fill(next).catch(() => undefined);
    }
    const use = store.use(name);
    text(heading, nameOf(vm));
    text(sub, facts(vm));
    const limit = vm.limit_cores;
    text(tiles.cores.value, form.cores(use?.cores ?? null) + (limit === null ? "" : ` of ${form.cores(limit)}`));
    text(tiles.used.value, limit === null ? "no limit" : form.percent(use?.binding?.used ?? null));
    text(tiles.throttled.value, form.percent(use?.binding?.throttled ?? null));
    text(tiles.wait.value, form.percent(use?.wait ?? null));
    text(tiles.memory.value, form.bytes(vm.memory.resident_bytes));
    tracer.element.hidden = route.at !== null || next.isRecorded;
    findings.update(vm, next.incidents, store.onsets.until(store.now), (at) => format({ ...route, at: Math.floor(at) }));
    charts.update(vm, store.seriesOf(name), use);
    tables.update(vm, use);
    compare.update(next, limitsOf(vm));
    pair.update(vm, store.now?.host.cpus ?? []);
  };
  const close = () => {
    stopping.abort();
    tracer.close();
    charts.close();
    compare.close();
  };
  return { element, update, close, title: ({ store }) => nameOf(store.vm(name) ?? { vm: name, pod: null, namespace: null }) };
}
