// The topology of a VM as its guest sees it, beside the CPUs of the host on which its vCPUs are.

import { el, section } from "./dom.ts";
import { boxes } from "./layout.ts";
import type { Box } from "./layout.ts";
import type { HostCpu, Vcpu, Vm } from "./model.ts";

// vCPUs that are drawn; the table has all.
const MAX_DRAWN = 64;

// The guest's sockets and cores as boxes; the number of a "CPU" is that of the vCPU. Empty if the
// place of a vCPU is unknown.
export function guestBoxes(vcpus: Vcpu[]): Box[] {
  const places = vcpus.flatMap((one): HostCpu[] => {
    if (!one.guest) return [];
    const { package: socket, core, thread } = one.guest;
    return [{ cpu: one.id, package: socket, node: null, llc: null, core, thread }];
  });
  return places.length === vcpus.length ? boxes(places) : [];
}

// The host's cores on which the vCPUs are, with all threads of each.
export function hostBoxes(vcpus: Vcpu[], cpus: HostCpu[]): Box[] {
  const used = new Set(vcpus.map((one) => one.pcpu));
  const key = (cpu: HostCpu) => `${cpu.package} ${cpu.core ?? cpu.cpu}`;
  const cores = new Set(cpus.filter((cpu) => used.has(cpu.cpu)).map(key));
  return boxes(cpus.filter((cpu) => cores.has(key(cpu))));
}

function drawn(box: Box, thread: (cpu: number) => HTMLElement, socket: string): HTMLElement {
  const inner = box.level === "core" ? box.cpus.map(thread) : box.inner.map((one) => drawn(one, thread, socket));
  const label = box.level === "package" ? box.label.replace("Package", socket) : box.label;
  const item = el("li", { class: `box ${box.level}` });
  if (label) item.append(el("span", { class: "label" }, label));
  item.append(el("ul", {}, ...inner));
  return item;
}

export class TopologyPair {
  readonly element: HTMLElement;
  private guest = el("ul", { class: "packages", "aria-label": "Topology that the guest sees" });
  private host = el("ul", { class: "packages", "aria-label": "CPUs of the host with its vCPUs" });
  private shown = "";

  constructor() {
    this.element = section(
      "Topology",
      el(
        "div",
        { class: "beside map" },
        el("div", {}, el("h3", {}, "The guest sees"), this.guest),
        el("div", {}, el("h3", {}, "On the host"), this.host),
      ),
    );
  }

  update(vm: Vm, cpus: HostCpu[]): void {
    const vcpus = vm.vcpus.filter((one) => one.tid !== null).slice(0, MAX_DRAWN);
    const misplaced = new Set(vm.topology?.mismatches.flatMap((one) => one.vcpus));
    const places = vcpus.map((one) => [one.id, one.pcpu, one.affinity, one.guest, misplaced.has(one.id)]);
    const signature = JSON.stringify([places, cpus.length]);
    if (signature === this.shown) return;
    this.shown = signature;
    const guest = guestBoxes(vcpus);
    const host = hostBoxes(vcpus, cpus);
    this.element.hidden = !guest.length || !host.length;
    const chip = (one: Vcpu) => {
      const isBad = misplaced.has(one.id);
      const isPinned = one.affinity !== null && one.affinity === String(one.pcpu);
      const label = `${isPinned ? "" : "~"}vCPU ${one.id}${isBad ? "!" : ""}`;
      return el("span", { class: isBad ? "chip here misplaced" : "chip here" }, label);
    };
    const inGuest = (id: number) => el("li", {}, ...vcpus.filter((one) => one.id === id).map(chip));
    const onHost = (cpu: number) => {
      const here = vcpus.filter((one) => one.pcpu === cpu).map(chip);
      return el("li", { class: "thread" }, el("span", { class: "label" }, `CPU ${cpu}`), ...here);
    };
    this.guest.replaceChildren(...guest.map((one) => drawn(one, inGuest, "Socket")));
    this.host.replaceChildren(...host.map((one) => drawn(one, onHost, "Package")));
  }
}
