// The map: the host's CPUs as nested boxes, with the vCPUs on them.

import { attribute, el, svg, text } from "./dom.ts";
import * as form from "./format.ts";
import { boxes, cpuList, letters, placements } from "./layout.ts";
import type { Box, Placement } from "./layout.ts";
import { bindings, KINDS, signs } from "./mismatch.ts";
import type { Sign } from "./mismatch.ts";
import { nameOf } from "./model.ts";
import type { Mismatch, Snapshot, Vm } from "./model.ts";
import { format } from "./route.ts";
import { colorOf } from "./view.ts";
import type { Context, View } from "./view.ts";

// vCPUs that are drawn on a CPU at most.
const MAX_PLACED = 12;

class HostMap {
  readonly element = el("div", { class: "map" });
  private list = el("ul", { class: "packages", "aria-label": "CPUs of the host" });
  private lines = svg("svg", { class: "lines", "aria-hidden": "true" });
  private cells = new Map<number, Cell>();
  // Places for the memory that is on a NUMA node, by number.
  private nodes = new Map<number, HTMLElement>();
  private shape = "";
  private marked: string | null = null;
  private now: Snapshot | null = null;

  constructor() {
    this.element.append(this.list, this.lines);
    const mark = (event: Event) => {
      const chip = event.target instanceof Element ? event.target.closest("[data-vm]") : null;
      this.mark(chip?.getAttribute("data-vm") ?? null, chip?.getAttribute("data-vcpu") ?? null);
    };
    for (const event of ["pointerover", "focusin"]) this.element.addEventListener(event, mark);
    for (const event of ["pointerleave", "focusout"]) {
      this.element.addEventListener(event, () => this.mark(null, null));
    }
  }

  // Shows where a VM, or one of its vCPUs, may run.
  mark(vm: string | null, vcpu: string | null): void {
    const key = `${vm} ${vcpu}`;
    if (this.marked === key) return;
    this.marked = key;
    const found = this.now?.vms.find((one) => one.vm === vm);
    const mask = new Set<number>();
    for (const one of found?.vcpus ?? []) {
      if (vcpu !== null && String(one.id) !== vcpu) continue;
      for (const cpu of cpuList(one.affinity)) mask.add(cpu);
    }
    for (const [cpu, cell] of this.cells) cell.box.classList.toggle("mask", mask.has(cpu));
    for (const chip of this.element.querySelectorAll("[data-vm]")) {
      chip.classList.toggle("same", vm !== null && chip.getAttribute("data-vm") === vm);
    }
  }

  private box(box: Box): HTMLElement {
    const item = el("li", { class: `box ${box.level}` });
    if (box.label) item.append(el("span", { class: "label" }, box.label));
    // A node may have CPUs of several packages.
    if (box.level === "node" && box.number !== null && !this.nodes.has(box.number)) {
      const memory = el("span", { class: "memories" });
      this.nodes.set(box.number, memory);
      item.append(memory);
    }
    const inner = el("ul");
    if (box.level === "core") {
      for (const cpu of box.cpus) inner.append(this.thread(cpu));
    } else {
      for (const one of box.inner) inner.append(this.box(one));
    }
    item.append(inner);
    return item;
  }

  private thread(cpu: number): HTMLElement {
    const more = el("li", { class: "more", hidden: true });
    const list = el("ul", { class: "placements" }, more);
    const sign = el("span", { class: "signs" });
    const box = el("li", { class: "thread" }, el("span", { class: "label" }, `CPU ${cpu} `, sign), list);
    this.cells.set(cpu, { box, sign, list, more, chips: new Map(), shown: "" });
    return box;
  }

  update({ store, route }: Context): void {
    const { now } = store;
    if (!now) return;
    this.now = now;
    const shape = JSON.stringify(now.host.cpus);
    if (shape !== this.shape) {
      this.shape = shape;
      this.cells.clear();
      this.nodes.clear();
      this.list.replaceChildren(...boxes(now.host.cpus).map((one) => this.box(one)));
    }
    const placed = placements(now, (vm, vcpu) => store.seen(vm, vcpu));
    const bad = new Set<number>();
    for (const vm of now.vms) {
      for (const one of vm.topology?.mismatches ?? []) for (const cpu of one.pcpus) bad.add(cpu);
    }
    const { byCpu, byNode } = signs(now);
    for (const [node, element] of this.nodes) this.remember(element, byNode.get(node) ?? []);
    for (const [cpu, cell] of this.cells) {
      cell.box.classList.toggle("bad", bad.has(cpu));
      const marked = byCpu.get(cpu) ?? [];
      attribute(cell.sign, "data-kinds", marked.map(({ kind }) => kind).join(" "));
      text(cell.sign, [...new Set(marked.map(({ text }) => text))].join(" "));
      const here = placed.get(cpu) ?? [];
      here.sort((a, b) => rank(b) - rank(a) || a.index - b.index || a.vcpu - b.vcpu);
      const signature = here.map((one) => {
        const share = Math.round(one.share * 10);
        return `${one.vm.vm}/${one.vcpu}/${share}/${one.isHere}/${one.isPinned}/${one.isMisplaced}`;
      });
      const shown = signature.join() + (route.at ?? "");
      if (shown === cell.shown) continue;
      cell.shown = shown;
      this.place(cell, here, (vm) => format({ ...route, view: "vm", vm }));
    }
    this.connect(now);
  }

  // Shows these vCPUs on a CPU. The link of one that stays is kept, and with it the focus.
  private place(cell: Cell, here: Placement[], href: (vm: string) => string): void {
    const kept = new Map<string, Chip>();
    for (const one of here.slice(0, MAX_PLACED)) {
      const key = `${one.vm.vm}/${one.vcpu}`;
      const chip = cell.chips.get(key) ?? new Chip();
      chip.update(one, href(one.vm.vm));
      kept.set(key, chip);
    }
    for (const [key, chip] of cell.chips) if (!kept.has(key)) chip.item.remove();
    cell.chips = kept;
    const more = here.length - kept.size;
    text(cell.more, more > 0 ? `${more} more` : "");
    cell.more.hidden = more <= 0;
    let next = cell.list.firstElementChild;
    for (const { item } of kept.values()) {
      if (item === next) next = next.nextElementSibling;
      else cell.list.insertBefore(item, next);
    }
  }

  // Shows the VMs whose memory is on this node, but should not.
  private remember(element: HTMLElement, found: Sign[]): void {
    const shown = found.map((one) => one.vm + one.text).join();
    if (element.dataset["shown"] === shown) return;
    element.dataset["shown"] = shown;
    const chips = found.map((one) => el("span", { class: "memory", "data-kind": one.kind, "data-memory-of": one.vm }, one.text));
    element.replaceChildren(...chips);
  }

  // Draws a line for each mismatch that has two ends.
  connect(now: Snapshot): void {
    const frame = this.element.getBoundingClientRect();
    this.lines.setAttribute("width", String(frame.width));
    this.lines.setAttribute("height", String(frame.height));
    const drawn: SVGElement[] = [];
    const middle = (found: Element | null, edge: "top" | "bottom"): [number, number] | null => {
      const at = found?.getBoundingClientRect();
      return at ? [at.left + at.width / 2 - frame.left, at[edge] - frame.top] : null;
    };
    for (const { kind, vm, from, to } of bindings(now)) {
      // Lines to memory are above the vCPUs, the others below; long ones leave room for the short.
      const isMemory = typeof to !== "number";
      const edge = isMemory ? "top" : "bottom";
      const start = middle(this.chip(vm, from), edge);
      const end = middle(isMemory ? this.memory(vm, to.node) : this.chip(vm, to), edge);
      if (!start || !end) continue;
      const [[x1, y1], [x2, y2]] = [start, end];
      const depth = 34 + Math.min(80, Math.abs(x2 - x1) / 10);
      const turn = isMemory ? Math.min(y1, y2) - depth / 2 : Math.max(y1, y2) + depth;
      const d = `M${x1} ${y1} C${x1} ${turn} ${x2} ${turn} ${x2} ${y2}`;
      const label = svg("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 8 + turn * 0.75 + 4, class: kind });
      label.textContent = kind.replaceAll("_", " ");
      drawn.push(svg("path", { d, class: kind, "data-kind": kind }), label);
    }
    this.lines.replaceChildren(...drawn);
  }

  private chip(vm: string, vcpu: number): Element | null {
    const selector = `[data-vm="${CSS.escape(vm)}"][data-vcpu="${vcpu}"]`;
    return this.element.querySelector(`.here${selector}`) ?? this.element.querySelector(selector);
  }

  private memory(vm: string, node: number): Element | null {
    return this.nodes.get(node)?.querySelector(`[data-memory-of="${CSS.escape(vm)}"]`) ?? null;
  }
}

function rank(one: Placement): number {
  return (one.isMisplaced ? 4 : 0) + (one.isHere ? 2 : 0) + one.share;
}

interface Cell {
  box: HTMLElement;
  sign: HTMLElement;
  list: HTMLElement;
  more: HTMLElement;
  chips: Map<string, Chip>;
  shown: string;
}

// A vCPU on a CPU.
class Chip {
  private label = el("span");
  private full = el("span", { class: "hidden" });
  private fill = el("span", { class: "fill" });
  private link = el("a", {}, this.label, this.full, this.fill);
  readonly item = el("li", {}, this.link);

  update(one: Placement, href: string): void {
    const { link } = this;
    const sign = one.isMisplaced ? "!" : "";
    text(this.label, `${one.isPinned ? "" : "~"}${letters(one.index)}${one.vcpu}${sign}`);
    const where = one.isPinned ? "pinned here" : one.isHere ? "here now" : "was here";
    const full = `${nameOf(one.vm)} vCPU ${one.vcpu}, ${where}, ${form.percent(one.share)} of readings`;
    text(this.full, ` ${full}`);
    attribute(link, "title", one.isMisplaced ? `${full}, misplaced` : full);
    attribute(link, "href", href);
    attribute(link, "data-vm", one.vm.vm);
    attribute(link, "data-vcpu", String(one.vcpu));
    link.classList.add("chip");
    link.classList.toggle("here", one.isHere);
    link.classList.toggle("misplaced", one.isMisplaced);
    link.style.setProperty("--vm", colorOf(one.index));
    this.fill.style.width = `${Math.round(one.share * 100)}%`;
  }
}

function mismatch(vm: Vm, index: number, one: Mismatch, mark: (on: boolean) => void): HTMLElement {
  const on = { pointerenter: () => mark(true), pointerleave: () => mark(false) };
  return el(
    "li",
    { on, "data-kind": one.kind, "data-of": vm.vm },
    el("h3", {}, `${letters(index)} ${nameOf(vm)}: ${one.kind.replaceAll("_", " ")}`),
    el("p", {}, one.evidence),
    el("p", { class: "remedy" }, one.remedy),
    el("p", { class: "sub" }, `vCPUs ${one.vcpus.join(", ")}; since ${one.since}`),
  );
}

export function mapView(): View {
  const map = new HostMap();
  const problems = el("ul", { class: "problems" });
  const names = el("ul", { class: "names", "aria-label": "VMs on the map" });
  const empty = el("p", { class: "empty" });
  let shownProblems = "";
  let shownNames = "";
  const element = el(
    "div",
    { class: "mapview" },
    el("h1", {}, "Map of the host"),
    el(
      "p",
      { class: "sub" },
      "A letter is a VM, the number after it a vCPU; ~ means that it is not pinned to the CPU, ! that it is misplaced. The bar below shows the share of readings in which it was there.",
    ),
    empty,
    map.element,
    el(
      "dl",
      { class: "kinds" },
      ...Object.entries(KINDS).map(([kind, one]) => {
        const sign = one.sign || (kind === "smt_shared" ? "──" : "╌╌");
        return el("div", {}, el("dt", { class: kind }, `${sign} ${kind.replaceAll("_", " ")}`), el("dd", {}, one.meaning));
      }),
    ),
    el("section", { "aria-labelledby": "h-mismatches" }, el("h2", { id: "h-mismatches" }, "Mismatches"), problems),
    el("section", { "aria-labelledby": "h-names" }, el("h2", { id: "h-names" }, "VMs"), names),
  );
  let current: Context | null = null;
  const resized = () => current?.store.now && map.connect(current.store.now);
  addEventListener("resize", resized);
  const update = (context: Context) => {
    current = context;
    const { now } = context.store;
    text(empty, now && !now.host.cpus.length ? "The CPUs of the host are unknown to this client." : "");
    map.update(context);
    const all = (now?.vms ?? []).flatMap((vm, index) => {
      return (vm.topology?.mismatches ?? []).map((one) => ({ vm, index, one }));
    });
    const signature = all.map(({ vm, one }) => `${vm.vm}${one.kind}${one.evidence}`).join();
    if (signature !== shownProblems || !problems.firstChild) {
      shownProblems = signature;
      const items = all.map(({ vm, index, one }) => {
        return mismatch(vm, index, one, (on) => map.mark(on ? vm.vm : null, null));
      });
      problems.replaceChildren(...(items.length ? items : [el("li", {}, "None: no vCPU is misplaced.")]));
    }
    const known = (now?.vms ?? []).map((vm) => vm.vm + vm.pod).join() + (context.route.at ?? "");
    if (known === shownNames) return;
    shownNames = known;
    names.replaceChildren(
      ...(now?.vms ?? []).map((vm, index) => {
        const swatch = el("span", { class: "swatch" });
        swatch.style.background = colorOf(index);
        const href = format({ ...context.route, view: "vm", vm: vm.vm });
        const show = () => map.mark(vm.vm, null);
        const on = { pointerenter: show, focus: show, pointerleave: () => map.mark(null, null) };
        return el("li", {}, swatch, el("a", { href, on }, `${letters(index)} ${nameOf(vm)}`));
      }),
    );
  };
  return { element, update, close: () => removeEventListener("resize", resized), title: () => "Map" };
}
