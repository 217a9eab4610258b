// The map: the host's CPUs as nested boxes, with the vCPUs on them.

import { attribute, el, svg, text } from "./dom.ts";
import * as form from "./format.ts";
import { boxes, cpuList, letters, seats } from "./layout.ts";
import type { Box, Seat } from "./layout.ts";
import { nameOf } from "./model.ts";
import type { Mismatch, Snapshot, Vm } from "./model.ts";
import { format } from "./route.ts";
import { colorOf } from "./view.ts";
import type { Context, View } from "./view.ts";

// vCPUs that are drawn on a CPU at most.
const MAX_SEATS = 12;

class HostMap {
  readonly element = el("div", { class: "map" });
  private list = el("ul", { class: "packages", "aria-label": "CPUs of the host" });
  private lines = svg("svg", { class: "lines", "aria-hidden": "true" });
  private cells = new Map<number, Cell>();
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
    const list = el("ul", { class: "seats" }, more);
    const box = el("li", { class: "thread" }, el("span", { class: "label" }, `CPU ${cpu}`), list);
    this.cells.set(cpu, { box, list, more, chips: new Map(), shown: "" });
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
      this.list.replaceChildren(...boxes(now.host.cpus).map((one) => this.box(one)));
    }
    const placed = seats(now, (vm, vcpu) => store.seen(vm, vcpu));
    const bad = new Set<number>();
    for (const vm of now.vms) {
      for (const one of vm.topology?.mismatches ?? []) for (const cpu of one.pcpus) bad.add(cpu);
    }
    for (const [cpu, cell] of this.cells) {
      cell.box.classList.toggle("bad", bad.has(cpu));
      const here = placed.get(cpu) ?? [];
      here.sort((a, b) => rank(b) - rank(a) || a.index - b.index || a.vcpu - b.vcpu);
      const signature = here.map((one) => {
        const share = Math.round(one.share * 10);
        return `${one.vm.vm}/${one.vcpu}/${share}/${one.isHere}/${one.isPinned}/${one.isMisplaced}`;
      });
      const shown = signature.join() + (route.at ?? "");
      if (shown === cell.shown) continue;
      cell.shown = shown;
      this.seat(cell, here, (vm) => format({ ...route, view: "vm", vm }));
    }
    this.connect(now);
  }

  // Shows these vCPUs on a CPU. The link of one that stays is kept, and with it the focus.
  private seat(cell: Cell, here: Seat[], href: (vm: string) => string): void {
    const kept = new Map<string, Chip>();
    for (const one of here.slice(0, MAX_SEATS)) {
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

  // Draws a line between guest siblings that are on different cores.
  connect(now: Snapshot): void {
    const frame = this.element.getBoundingClientRect();
    this.lines.setAttribute("width", String(frame.width));
    this.lines.setAttribute("height", String(frame.height));
    const drawn: SVGElement[] = [];
    for (const vm of now.vms) {
      for (const one of vm.topology?.mismatches ?? []) {
        if (one.kind !== "smt_split" && one.kind !== "llc_split" && one.kind !== "numa_split") continue;
        const ends = one.vcpus.slice(0, 16).flatMap((vcpu) => {
          const name = CSS.escape(vm.vm);
          const found = this.element.querySelector(`.here[data-vm="${name}"][data-vcpu="${vcpu}"]`);
          if (!found) return [];
          const at = found.getBoundingClientRect();
          return [[at.left + at.width / 2 - frame.left, at.bottom - frame.top]];
        });
        for (let index = 1; index < ends.length; index += 1) {
          const [x1 = 0, y1 = 0] = ends[index - 1] ?? [];
          const [x2 = 0, y2 = 0] = ends[index] ?? [];
          const low = Math.max(y1, y2) + 34;
          drawn.push(svg("path", { d: `M${x1} ${y1} C${x1} ${low} ${x2} ${low} ${x2} ${y2}` }));
        }
      }
    }
    this.lines.replaceChildren(...drawn);
  }
}

function rank(one: Seat): number {
  return (one.isMisplaced ? 4 : 0) + (one.isHere ? 2 : 0) + one.share;
}

interface Cell {
  box: HTMLElement;
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

  update(one: Seat, href: string): void {
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
    { on },
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
