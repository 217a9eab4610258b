// The view of the node: each VM a row. Only the rows on the screen exist.

import { attribute, el, text } from "./dom.ts";
import * as form from "./format.ts";
import { nameOf } from "./model.ts";
import type { Vm } from "./model.ts";
import type { Use } from "./rates.ts";
import { format } from "./route.ts";
import type { Route, Sort } from "./route.ts";
import { badge, bar, legend, tile } from "./view.ts";
import type { Bar, Context, View } from "./view.ts";

const HEADS: [Sort, string][] = [
  ["name", "VM"],
  ["cores", "Cores"],
  ["used", "Used"],
  ["throttled", "Throttled"],
  ["wait", "Wait"],
  ["memory", "Memory"],
  ["findings", "Findings"],
];
// Rows above and below the screen.
const MARGIN = 8;

export interface Row {
  vm: Vm;
  name: string;
  use: Use | undefined;
}

function key(row: Row, sort: Sort): number {
  const { use, vm } = row;
  switch (sort) {
    case "cores":
      return use?.cores ?? -1;
    case "used":
      return use?.binding?.used ?? -1;
    case "throttled":
      return use?.binding?.throttled ?? -1;
    case "wait":
      return use?.wait ?? -1;
    case "memory":
      return vm.memory.resident_bytes ?? -1;
    case "findings":
      return (vm.findings ?? []).reduce(
        (sum, one) => sum + (one.severity === "warning" ? 100 : 1),
        0,
      );
    case "name":
      return 0;
  }
}

// The rows that a view shows, in its order. Unknown values come last.
export function select(rows: Row[], route: Route): Row[] {
  const wanted = route.search.toLowerCase();
  const found = rows.filter(({ vm, name }) => {
    if (route.flagged && !vm.findings?.length) return false;
    return `${name} ${vm.vm}`.toLowerCase().includes(wanted);
  });
  const sign = route.reversed ? -1 : 1;
  const keys = new Map(found.map((row) => [row, key(row, route.sort)]));
  return found.sort((a, b) => {
    const byValue = (keys.get(b) ?? 0) - (keys.get(a) ?? 0);
    return sign * (byValue || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  });
}

class Line {
  element: HTMLTableRowElement;
  private link = el("a", { class: "name" });
  private sub = el("span", { class: "sub" });
  private bar: Bar = bar();
  private cores = el("span", { class: "number" });
  private cells = [1, 2, 3, 4, 5].map(() => el("td"));
  private shown = "";

  constructor() {
    const [used, throttled, wait, memory, findings] = this.cells;
    if (memory) memory.className = "wide";
    if (used) used.className = "wide";
    if (wait) wait.className = "wide";
    if (findings) findings.className = "flags";
    if (throttled) throttled.className = "throttled";
    const first = el("th", { scope: "row" }, this.link, this.sub);
    const cpu = el("td", { class: "cpu" }, this.bar.element, this.cores);
    this.element = el("tr", {}, first, cpu, ...this.cells);
  }

  update({ vm, name, use }: Row, route: Route, index: number): void {
    attribute(this.element, "aria-rowindex", String(index + 2));
    text(this.link, name);
    attribute(this.link, "href", format({ ...route, view: "vm", vm: vm.vm }));
    const by = vm.runtime === null ? vm.vmm : `${vm.vmm} by ${vm.runtime}`;
    text(this.sub, `${name === vm.vm ? "" : `${vm.vm}, `}${vm.running ? by : "ended"}`);
    const limit = vm.limit_cores;
    const vcpus = vm.vcpus.filter((one) => one.tid !== null).length;
    this.bar.update(use, limit, limit ?? vcpus);
    text(this.cores, form.cores(use?.cores ?? null) + (limit === null ? "" : ` of ${form.cores(limit)}`));
    const [used, throttled, wait, memory, findings] = this.cells;
    if (used) text(used, form.percent(use?.binding?.used ?? null));
    if (throttled) {
      const share = use?.binding?.throttled ?? null;
      text(throttled, form.percent(share));
      throttled.classList.toggle("high", (share ?? 0) >= 0.05);
    }
    if (wait) text(wait, form.percent(use?.wait ?? null));
    if (memory) text(memory, form.bytes(vm.memory.resident_bytes));
    const found = vm.findings ?? [];
    const names = vm.findings ? found.map((one) => one.severity + one.check).join() : "?";
    if (findings && names !== this.shown) {
      this.shown = names;
      findings.replaceChildren(...(vm.findings ? found.map(badge) : ["not judged yet"]));
    }
  }
}

class Table {
  readonly element: HTMLTableElement;
  private body = el("tbody");
  private above = el("tr", { "aria-hidden": "true", class: "space" }, el("td", { colspan: 7 }));
  private below = el("tr", { "aria-hidden": "true", class: "space" }, el("td", { colspan: 7 }));
  private lines = new Map<string, Line>();
  private heads = new Map<Sort, HTMLElement>();
  private rows: Row[] = [];
  private route: Route | null = null;

  constructor(sortBy: (sort: Sort) => void) {
    const head = el("tr", { "aria-rowindex": 1 });
    for (const [sort, label] of HEADS) {
      const isWide = sort === "used" || sort === "wait" || sort === "memory";
      const button = el("button", { type: "button", on: { click: () => sortBy(sort) } }, label);
      const cell = el("th", { scope: "col", class: isWide ? "wide" : null }, button);
      this.heads.set(sort, cell);
      head.append(cell);
    }
    const caption = el("caption", { class: "hidden" }, "VMs of the node");
    this.element = el("table", { class: "vms" }, caption, el("thead", {}, head), this.body);
  }

  update(rows: Row[], route: Route): void {
    this.rows = rows;
    this.route = route;
    attribute(this.element, "aria-rowcount", String(rows.length + 1));
    for (const [sort, cell] of this.heads) {
      if (sort !== route.sort) cell.removeAttribute("aria-sort");
      else {
        const rises = route.reversed !== (sort === "name");
        attribute(cell, "aria-sort", rises ? "ascending" : "descending");
      }
    }
    this.draw();
  }

  // Makes the rows on the screen, and removes the others.
  draw(): void {
    const { route } = this;
    if (!route) return;
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 48;
    const top = -this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - MARGIN);
    const last = Math.min(this.rows.length, Math.ceil((top + innerHeight) / height) + MARGIN);
    const focused = document.activeElement;
    const shown = this.rows.slice(first, Math.max(first, last));
    const wanted = new Set(shown.map((row) => row.vm.vm));
    for (const [name, line] of this.lines) {
      if (wanted.has(name)) continue;
      line.element.remove();
      this.lines.delete(name);
    }
    const elements = shown.map((row, index) => {
      const line = this.lines.get(row.vm.vm) ?? new Line();
      this.lines.set(row.vm.vm, line);
      line.update(row, route, first + index);
      return line.element;
    });
    const space = (row: HTMLElement, count: number) => {
      row.style.height = `${count * height}px`;
      row.hidden = count === 0;
    };
    space(this.above, Math.min(first, this.rows.length));
    space(this.below, Math.max(0, this.rows.length - Math.max(first, last)));
    const children = [this.above, ...elements, this.below];
    const isInOrder =
      this.body.children.length === children.length &&
      children.every((one, index) => this.body.children[index] === one);
    if (isInOrder) return;
    this.body.replaceChildren(...children);
    // A row that moves loses the focus.
    if (focused instanceof HTMLElement && this.body.contains(focused)) {
      focused.focus({ preventScroll: true });
    }
  }
}

export function nodeView(context: Context): View {
  const tiles = {
    cores: tile("Cores in use by VMs"),
    vms: tile("VMs"),
    warnings: tile("VMs with warnings"),
    throttled: tile("VMs throttled now"),
  };
  const search = el("input", { type: "search", id: "search", value: context.route.search });
  const flagged = el("input", { type: "checkbox", id: "flagged" });
  flagged.checked = context.route.flagged;
  search.addEventListener("input", () => context.go({ search: search.value }, true));
  flagged.addEventListener("change", () => context.go({ flagged: flagged.checked }, true));
  const count = el("p", { role: "status", class: "count" });
  const sortBy = (sort: Sort) => {
    const { route } = current;
    context.go({ sort, reversed: sort === route.sort && !route.reversed }, true);
  };
  const table = new Table(sortBy);
  const empty = el("p", { class: "empty" });
  let current = context;
  const scrolled = () => table.draw();
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", scrolled);
  const element = el(
    "div",
    { class: "node" },
    el("h1", {}, "VMs of this node"),
    el("dl", { class: "tiles" }, ...Object.values(tiles).map((one) => one.element)),
    el(
      "div",
      { class: "tools" },
      el("label", { for: "search" }, "Search namespace, pod or VM"),
      search,
      el("span", { class: "check" }, flagged, el("label", { for: "flagged" }, "only with findings")),
      count,
    ),
    legend(),
    table.element,
    empty,
  );
  const update = (next: Context) => {
    current = next;
    const { store, route } = next;
    if (document.activeElement !== search && search.value !== route.search) {
      search.value = route.search;
    }
    flagged.checked = route.flagged;
    const vms = store.now?.vms ?? [];
    const rows = vms.map((vm) => ({ vm, name: nameOf(vm), use: store.use(vm.vm) }));
    const running = rows.filter((row) => row.vm.running);
    const sum = running.reduce((total, row) => total + (row.use?.cores ?? 0), 0);
    const isKnown = running.some((row) => row.use);
    const cpus = store.now?.node.cpus ?? 0;
    text(tiles.cores.value, `${isKnown ? form.cores(sum) : "-"}${cpus ? ` of ${cpus}` : ""}`);
    text(tiles.vms.value, String(running.length));
    const isWarned = (row: Row) => row.vm.findings?.some((one) => one.severity === "warning");
    text(tiles.warnings.value, String(running.filter(isWarned).length));
    const isThrottled = (row: Row) => (row.use?.binding?.throttled ?? 0) >= 0.01;
    text(tiles.throttled.value, String(running.filter(isThrottled).length));
    const chosen = select(rows, route);
    text(count, chosen.length === rows.length ? "" : `${chosen.length} of ${rows.length} VMs`);
    const none = rows.length ? "No VM matches." : "No VM runs on this node.";
    text(empty, chosen.length || !store.now ? "" : none);
    table.element.hidden = chosen.length === 0;
    table.update(chosen, route);
  };
  const close = () => {
    removeEventListener("scroll", scrolled);
    removeEventListener("resize", scrolled);
  };
  return { element, update, close, title: () => "VMs" };
}
