// Two times of a VM side by side: charts and mean values of 5 min each.

import { RolesChart } from "./chart.ts";
import { el, rows, section, table, text } from "./dom.ts";
import * as form from "./format.ts";
import { ROLES } from "./model.ts";
import type { Use } from "./rates.ts";
import { AGAINST } from "./route.ts";
import { history } from "./source.ts";
import { usesOf } from "./store.ts";
import type { Context } from "./view.ts";

const LENGTH_S = 300;

export interface Means {
  cores: number;
  roles: (number | null)[];
  throttled: number | null;
  wait: number | null;
  exits: number;
  resident: number | null;
}

function mean(values: (number | null | undefined)[]): number | null {
  const known = values.filter((one) => one !== null && one !== undefined);
  return known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
}

// Mean usage over readings; null without any.
export function means(series: Use[]): Means | null {
  const cores = mean(series.map((one) => one.cores));
  if (cores === null) return null;
  return {
    cores,
    roles: ROLES.map((role) => mean(series.map((one) => one.roles.get(role)?.cores))),
    throttled: mean(series.map((one) => one.binding?.throttled)),
    wait: mean(series.map((one) => one.wait)),
    exits: mean(series.map((one) => [...one.exits.values()].reduce((sum, rate) => sum + rate, 0))) ?? 0,
    resident: mean(series.map((one) => one.resident)),
  };
}

// The change from one value to another, as a part of the first.
export function change(then: number | null, now: number | null): string {
  if (then === null || now === null) return "-";
  if (then === 0 && now > 0) return "new";
  const share = then === 0 ? 0 : (now - then) / then;
  if (Math.abs(share) < 0.005) return "0 %";
  return `${share > 0 ? "+" : "−"}${form.percent(Math.abs(share))}`;
}

class Side {
  readonly element: HTMLElement;
  private title = el("h3");
  private chart = new RolesChart();

  constructor() {
    this.element = el("div", {}, this.title, this.chart.element);
  }

  update(series: Use[], limits: number[], from: number, to: number): void {
    text(this.title, `${form.day(from)} to ${form.clock(to)}`);
    this.chart.update(series, limits);
  }

  close(): void {
    this.chart.close();
  }
}

export class Compare {
  readonly element: HTMLElement;
  private choice = el("select", { id: "against" });
  private status = el("p", { role: "status", class: "sub" });
  private sides = [new Side(), new Side()];
  private values = table("Mean values", ["Value", "Then", "Now", "Change"]);
  private content: HTMLElement;
  private name: string;
  private context: Context | null = null;
  private shown = "";
  private loading = new AbortController();

  constructor(name: string) {
    this.name = name;
    for (const [value, label] of AGAINST) this.choice.append(el("option", { value }, label));
    this.choice.addEventListener("change", () => {
      this.context?.go({ against: Number(this.choice.value) }, true);
    });
    this.content = el(
      "div",
      { hidden: true },
      el("div", { class: "beside" }, ...this.sides.map((one) => one.element)),
      this.values.box,
    );
    const label = el("label", { for: "against" }, "Compare these 5 minutes with ");
    this.element = section("Two times", el("p", {}, label, this.choice), this.status, this.content);
  }

  update(context: Context, limits: number[]): void {
    this.context = context;
    this.element.hidden = !context.hasRecording;
    const { against, at } = context.route;
    this.choice.value = String(against);
    const wanted = `${against}/${at}`;
    if (!context.hasRecording || wanted === this.shown) return;
    this.shown = wanted;
    this.loading.abort();
    this.content.hidden = true;
    text(this.status, "");
    if (!against) return;
    this.loading = new AbortController();
    void this.load(at ?? context.lastTime(), against, limits, this.loading.signal);
  }

  private async load(end: number, against: number, limits: number[], signal: AbortSignal): Promise<void> {
    text(this.status, "reading the recording …");
    const found: Use[][] = [];
    try {
      for (const to of [end - against, end]) {
        found.push(usesOf(this.name, await history(to - LENGTH_S, to, this.name, signal)));
      }
    } catch (error) {
      if (!signal.aborted) text(this.status, error instanceof Error ? error.message : "failed");
      return;
    }
    if (signal.aborted) return;
    const [then = [], now = []] = found;
    const [before, after] = [means(then), means(now)];
    this.content.hidden = false;
    this.sides[0]?.update(then, limits, end - against - LENGTH_S, end - against);
    this.sides[1]?.update(now, limits, end - LENGTH_S, end);
    text(this.status, before && after ? "" : "The recording does not have this VM at both times.");
    const line = (label: string, of: (means: Means) => number | null, write: (value: number | null) => string) => {
      const [a, b] = [before && of(before), after && of(after)];
      return [label, write(a), write(b), change(a, b)];
    };
    rows(this.values.body, [
      line("cores", (one) => one.cores, form.cores),
      ...ROLES.map((role, index) => line(role, (one) => one.roles[index] ?? null, form.cores)).filter(
        ([, a, b]) => a !== "-" || b !== "-",
      ),
      line("throttled", (one) => one.throttled, form.percent),
      line("longest wait of a vCPU", (one) => one.wait, form.percent),
      line("VM exits", (one) => one.exits, form.rate),
      line("resident memory", (one) => one.resident, form.bytes),
    ]);
  }

  close(): void {
    this.loading.abort();
    for (const side of this.sides) side.close();
  }
}
