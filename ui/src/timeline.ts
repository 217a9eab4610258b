// The time line: the present or a recorded time, with the incidents.

import { attribute, el, text } from "./dom.ts";
import * as form from "./format.ts";
import { nameOf } from "./model.ts";
import type { Incident } from "./model.ts";
import { format } from "./route.ts";
import type { Context } from "./view.ts";

const WINDOWS: [string, number][] = [
  ["15 min", 900],
  ["1 h", 3600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["7 d", 604_800],
];
// Incidents of one part of the time line share a mark: a part is wide enough for a finger.
const PART_PX = 28;
const MIN_PARTS = 8;
const PLAY_MS = 1000;

export interface Mark {
  // Part of the time line.
  part: number;
  incidents: Incident[];
}

// The incidents between two times, by part of the time line.
export function marks(incidents: Incident[], from: number, to: number, parts: number): Mark[] {
  const found = new Map<number, Incident[]>();
  for (const one of incidents) {
    const at = one.unix_ns / 1e9;
    if (at < from || at > to) continue;
    const part = Math.min(parts - 1, Math.floor(((at - from) / Math.max(1, to - from)) * parts));
    found.set(part, [...(found.get(part) ?? []), one]);
  }
  return [...found].sort(([a], [b]) => a - b).map(([part, list]) => ({ part, incidents: list }));
}

export class Timeline {
  readonly element: HTMLElement;
  private slider = el("input", { type: "range", id: "time", step: 1, min: 0, max: 1 });
  private label = el("label", { for: "time", class: "clock" });
  private marks = el("ul", { class: "marks", "aria-label": "Incidents" });
  private play: HTMLButtonElement;
  private live: HTMLButtonElement;
  private window = el("select", { id: "window" });
  private length = 900;
  private timer: number | null = null;
  private context: Context | null = null;
  private shown = "";
  private isDragged = false;

  constructor() {
    const button = (label: string, title: string, click: () => void) =>
      el("button", { type: "button", title, on: { click } }, label);
    this.play = button("▶ play", "play the recording", () => this.toggle());
    this.live = button("live", "show the last reading", () => this.go(null));
    for (const [label, seconds] of WINDOWS) {
      this.window.append(el("option", { value: seconds }, label));
    }
    this.window.addEventListener("change", () => {
      this.length = Number(this.window.value);
      if (this.context) this.update(this.context);
    });
    this.slider.addEventListener("input", () => {
      this.isDragged = true;
      text(this.label, form.day(Number(this.slider.value)));
    });
    this.slider.addEventListener("change", () => {
      this.isDragged = false;
      const value = Number(this.slider.value);
      this.go(value >= Number(this.slider.max) ? null : value);
    });
    this.element = el(
      "section",
      { class: "timeline", "aria-label": "Time line", hidden: true },
      el(
        "div",
        { class: "buttons" },
        button("−10 s", "10 seconds earlier", () => this.step(-10)),
        this.play,
        button("+10 s", "10 seconds later", () => this.step(10)),
        this.live,
        el("label", { for: "window", class: "hidden" }, "Length of the time line"),
        this.window,
        this.label,
      ),
      el("div", { class: "track" }, this.slider, this.marks),
    );
  }

  private go(at: number | null): void {
    if (at === null) this.stop();
    this.context?.go({ at }, true);
  }

  private step(seconds: number): void {
    const at = (this.context?.route.at ?? this.end()) + seconds;
    this.go(at >= this.end() ? null : at);
  }

  private toggle(): void {
    if (this.timer !== null) return this.stop();
    if (this.context?.route.at === null) this.go(Math.floor(this.end() - 60));
    this.timer = setInterval(() => {
      const { now = null, before = null } = this.context?.store ?? {};
      const between = now && before ? (Date.parse(now.time) - Date.parse(before.time)) / 1000 : 5;
      this.step(Math.max(1, Math.min(10, Math.round(between))));
    }, PLAY_MS);
    text(this.play, "❚❚ pause");
  }

  private stop(): void {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    text(this.play, "▶ play");
  }

  private end(): number {
    return this.context?.lastTime() ?? Date.now() / 1000;
  }

  update(context: Context): void {
    this.context = context;
    this.element.hidden = !context.hasRecording;
    if (!context.hasRecording) return;
    const { route } = context;
    const to = Math.floor(this.end());
    if (route.at !== null) {
      const needed = to - route.at;
      const wide = WINDOWS.find(([, seconds]) => seconds >= needed)?.[1] ?? this.length;
      if (needed > this.length) this.length = wide;
    }
    this.window.value = String(this.length);
    const from = to - this.length;
    text(this.live, context.isRecorded ? "end" : "live");
    if (!this.isDragged) {
      attribute(this.slider, "min", String(from));
      attribute(this.slider, "max", String(to));
      this.slider.value = String(route.at ?? to);
      const time = form.day(route.at ?? to);
      text(this.label, time);
      attribute(this.slider, "aria-valuetext", route.at === null ? `${this.live.textContent}, ${time}` : time);
    }
    this.live.setAttribute("aria-pressed", String(route.at === null));
    const parts = Math.max(MIN_PARTS, Math.floor(this.marks.clientWidth / PART_PX));
    const found = marks(context.incidents, from, to, parts);
    const ids = found.map((mark) => `${mark.part}/${mark.incidents.map((one) => one.id)}`);
    const shown = `${parts} ${ids.join()} ${format(route)}`;
    if (shown === this.shown) return;
    this.shown = shown;
    this.marks.replaceChildren(...found.map((mark) => this.mark(mark, parts, context)));
  }

  private mark({ part, incidents }: Mark, parts: number, { route }: Context): HTMLElement {
    const texts = incidents.map((one) => {
      const checks = one.findings.map((finding) => finding.check.replaceAll("_", " "));
      const began = [...(one.alerts ?? []).map((alert) => `alert ${alert}`), ...checks];
      return `${form.clock(one.unix_ns / 1e9)} ${nameOf(one.vm)}: ${began.join(", ")}`;
    });
    const [first] = incidents;
    const at = Math.ceil((first?.unix_ns ?? 0) / 1e9);
    const href = format({ ...route, view: "vm", vm: first?.vm.vm ?? "", at });
    const title = texts.join("\n");
    const label = `${incidents.length} incidents: ${texts.slice(0, 3).join("; ")}`;
    const count = incidents.length > 1 ? String(incidents.length) : "";
    const item = el("li", {}, el("a", { href, title, "aria-label": label }, `▲${count}`));
    item.style.left = `${((part + 0.5) / parts) * 100}%`;
    return item;
  }
}
