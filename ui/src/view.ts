// Parts that all views share.

import { el } from "./dom.ts";
import type { Finding, Incident, Role } from "./model.ts";
import type { Use } from "./rates.ts";
import type { Route } from "./route.ts";
import type { Store } from "./store.ts";

export interface Context {
  store: Store;
  route: Route;
  incidents: Incident[];
  hasRecording: boolean;
  // The readings end with a recording that is shown, instead of with the present.
  isRecorded: boolean;
  // A past time is requested, and its readings have not arrived.
  isWaiting: () => boolean;
  // Time of the last reading that exists, s since 1970.
  lastTime: () => number;
  // Shows another view or time.
  go: (change: Partial<Route>, keepsFocus?: boolean) => void;
}

export interface View {
  // Title of the page.
  title: (context: Context) => string;
  element: HTMLElement;
  // Shows the readings of the store.
  update: (context: Context) => void;
  // Ends requests of the view.
  close?: () => void;
}

// The palette of Okabe and Ito, which colour-blind people can tell apart.
export const ROLE_COLORS: Record<Role | "other", string> = {
  vcpu: "#0072B2",
  vhost: "#E69F00",
  virtiofsd: "#009E73",
  iothread: "#CC79A7",
  emulator: "#56B4E9",
  helper: "#D55E00",
  other: "#999999",
};

export const VM_COLORS = [
  "#0072B2",
  "#E69F00",
  "#009E73",
  "#CC79A7",
  "#56B4E9",
  "#D55E00",
  "#F0E442",
];

export function colorOf(index: number): string {
  return VM_COLORS[index % VM_COLORS.length] ?? "#999999";
}

// CPU time by role as a bar, against the limit.
export interface Bar {
  element: HTMLElement;
  update: (use: Use | undefined, limit: number | null, full: number) => void;
}

export function bar(): Bar {
  const parts = new Map<string, HTMLElement>();
  const mark = el("span", { class: "limit" });
  const element = el("span", { class: "bar", "aria-hidden": "true" });
  for (const role of Object.keys(ROLE_COLORS)) {
    const part = el("span", { class: `role ${role}` });
    parts.set(role, part);
    element.append(part);
  }
  element.append(mark);
  const width = (part: HTMLElement | undefined, share: number) => {
    if (part) part.style.width = `${(Math.min(1, share) * 100).toFixed(1)}%`;
  };
  return {
    element,
    update: (use, limit, full) => {
      const scale = Math.max(full, use?.cores ?? 0, 0.01);
      for (const [role, part] of parts) {
        const of = role === "other" ? use?.other : use?.roles.get(role as Role)?.cores;
        width(part, (of ?? 0) / scale);
      }
      mark.hidden = limit === null;
      if (limit !== null) mark.style.left = `${(Math.min(1, limit / scale) * 100).toFixed(1)}%`;
    },
  };
}

export function legend(): HTMLElement {
  const list = el("ul", { class: "legend", "aria-label": "Roles of threads" });
  for (const role of Object.keys(ROLE_COLORS)) {
    const name = role === "other" ? "without a role" : role;
    list.append(el("li", {}, el("span", { class: `swatch role ${role}` }), name));
  }
  list.append(el("li", {}, el("span", { class: "swatch limit" }), "limit"));
  return list;
}

export function badge(finding: Finding): HTMLElement {
  const isWarning = finding.severity === "warning";
  const sign = isWarning ? "▲" : "●";
  const text = `${sign} ${finding.check.replaceAll("_", " ")}`;
  return el("span", { class: isWarning ? "badge warning" : "badge info" }, text);
}

export function tile(label: string): { element: HTMLElement; value: HTMLElement } {
  const value = el("dd");
  return { element: el("div", { class: "tile" }, el("dt", {}, label), value), value };
}
