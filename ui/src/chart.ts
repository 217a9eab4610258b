// Charts of a VM over time. Their last values are in the tables beside them, for readers who do
// not see a canvas.

import uPlot from "uplot";

import { el } from "./dom.ts";
import { clock, cores } from "./format.ts";
import { ROLES } from "./model.ts";
import type { Vm } from "./model.ts";
import type { Use, VcpuUse } from "./rates.ts";
import { ROLE_COLORS } from "./view.ts";

// Width of the labels to the left of all charts, so that their times are below each other.
export const GUTTER = 64;
const HEIGHT = 220;
// Readings that are further apart have a gap between them, s.
const GAP = 60;

export interface Range {
  from: number;
  to: number;
}

export function rangeOf(series: Use[]): Range {
  const to = series.at(-1)?.time ?? 0;
  return { from: Math.min(series[0]?.time ?? 0, to - 60), to };
}

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Limits that are drawn, the lowest first.
const MAX_LIMITS = 3;

// The limits of a VM, cores: those of all levels, the lowest first.
export function limitsOf(vm: Vm): number[] {
  const known = vm.quota.flatMap(({ cores }) => (cores === null ? [] : [cores]));
  if (vm.limit_cores !== null) known.push(vm.limit_cores);
  return [...new Set(known)].sort((a, b) => a - b).slice(0, MAX_LIMITS);
}

// Cores by role on top of each other, and each limit as a line.
export class RolesChart {
  readonly element = el("div", { class: "chart", role: "img" });
  private plot: uPlot | null = null;
  private range: Range = { from: 0, to: 1 };
  private observer = new ResizeObserver(() => this.resize());
  private scheme = matchMedia("(prefers-color-scheme: dark)");
  private redraw = () => this.plot?.redraw();

  constructor() {
    this.observer.observe(this.element);
    this.scheme.addEventListener("change", this.redraw);
  }

  private resize(): void {
    const width = this.element.clientWidth;
    if (this.plot && width) this.plot.setSize({ width, height: HEIGHT });
  }

  private make(): uPlot {
    const parts = [...ROLES, "other" as const].reverse();
    const axis = { stroke: () => color("--text"), grid: { stroke: () => color("--line"), width: 1 } };
    return new uPlot(
      {
        width: this.element.clientWidth || 600,
        height: HEIGHT,
        legend: { show: false },
        cursor: { drag: { x: false, y: false } },
        padding: [8, 28, 0, 0],
        scales: { x: { range: () => [this.range.from, this.range.to] }, y: { range: (_plot, _low, high) => [0, Math.max(0.1, (high ?? 0) * 1.1)] } },
        axes: [
          { ...axis, values: (_plot, times) => times.map(clock), space: 90 },
          { ...axis, size: GUTTER, values: (_plot, values) => values.map((one) => cores(one)) },
        ],
        series: [
          {},
          ...parts.map((role) => ({
            label: role,
            stroke: ROLE_COLORS[role],
            fill: ROLE_COLORS[role],
            width: 0,
            points: { show: false },
          })),
          ...Array.from({ length: MAX_LIMITS }, (_, index) => ({
            label: `limit ${index}`,
            stroke: () => color("--text"),
            width: index === 0 ? 2 : 1,
            dash: [6, 4],
            points: { show: false },
          })),
        ],
      },
      [[], ...parts.map(() => []), ...Array.from({ length: MAX_LIMITS }, () => [])],
      this.element,
    );
  }

  update(series: Use[], limits: number[]): void {
    this.range = rangeOf(series);
    this.plot ??= this.make();
    const columns: (number | null)[][] = [...ROLES, "other"].map(() => []);
    const times: number[] = [];
    for (const one of series) {
      const last = times.at(-1);
      if (last !== undefined && one.time - last > GAP) {
        times.push(last + 1);
        for (const column of columns) column.push(null);
      }
      times.push(one.time);
      let sum = 0;
      ROLES.forEach((role, index) => {
        sum += one.roles.get(role)?.cores ?? 0;
        columns[index]?.push(sum);
      });
      columns.at(-1)?.push(sum + one.other);
    }
    const lines = Array.from({ length: MAX_LIMITS }, (_, index) => times.map(() => limits[index] ?? null));
    this.plot.setData([times, ...columns.reverse(), ...lines]);
    // For tests.
    this.element.dataset["readings"] = String(times.length);
    const last = series.at(-1);
    const now = last ? `${cores(last.cores)} cores at ${clock(last.time)} UTC` : "no reading yet";
    this.element.setAttribute("aria-label", `CPU time by role over time: ${now}`);
  }

  close(): void {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
    this.plot?.destroy();
  }
}

type Part = [share: number, fill: string];

// Shares of each interval, from the bottom to the top of a strip.
export class Strip {
  readonly element: HTMLElement;
  private canvas = el("canvas", { class: "strip" });
  private label: string;

  constructor(label: string) {
    this.label = label;
    this.canvas.setAttribute("role", "img");
    this.element = el("div", { class: "lane" }, el("span", { class: "lanelabel" }, label), this.canvas);
  }

  update(series: Use[], { from, to }: Range, parts: (one: Use) => Part[], summary: string): void {
    const { canvas } = this;
    const ratio = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
    const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    canvas.setAttribute("aria-label", `${this.label}: ${summary}`);
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.clearRect(0, 0, width, height);
    const x = (time: number) => ((time - from) / Math.max(1, to - from)) * width;
    let last: number | null = null;
    for (const one of series) {
      const start: number = last === null || one.time - last > GAP ? one.time - 2 : last;
      last = one.time;
      if (one.time < from) continue;
      const left = Math.max(0, Math.floor(x(start)));
      const wide = Math.max(1, Math.ceil(x(one.time)) - left);
      let bottom = height;
      for (const [share, fill] of parts(one)) {
        const high = Math.min(bottom, Math.round(share * height));
        if (high <= 0) continue;
        bottom -= high;
        pen.fillStyle = fill;
        pen.fillRect(left, bottom, wide, high);
      }
    }
  }
}

export const LANE_COLORS = {
  guest: "#0072B2",
  host: "#E69F00",
  poll: "#CC79A7",
  waiting: "#D55E00",
  throttled: "#000000",
} as const;

// The throttled part of an interval, by the roles that ran when the quota ran out if they are
// known.
export function throttling(one: Use): Part[] {
  const share = Math.max(0, ...one.limits.map((limit) => limit.throttled));
  let sum = 0;
  for (const count of one.hits.values()) sum += count;
  if (!sum) return [[share, color("--throttled")]];
  return ROLES.flatMap((role): Part[] => {
    const count = one.hits.get(role);
    return count ? [[(share * count) / sum, ROLE_COLORS[role]]] : [];
  });
}

// The part of a vCPU's time in each state. Throttling counts as run delay, too.
export function lane(one: VcpuUse): Part[] {
  const wait = one.wait ?? 0;
  const throttled = Math.min(wait, one.throttled);
  const busy: Part[] =
    one.guest === null || one.host === null || one.poll === null
      ? [[one.run, LANE_COLORS.guest]]
      : [
          [one.guest, LANE_COLORS.guest],
          [one.host, LANE_COLORS.host],
          [one.poll, LANE_COLORS.poll],
        ];
  return [...busy, [wait - throttled, LANE_COLORS.waiting], [throttled, color("--throttled")]];
}
