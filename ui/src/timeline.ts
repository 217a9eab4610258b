// The time line: the present or a recorded time, with the incidents, and with the findings that
// began in the readings that the page got.

import { attribute, el, text } from "./dom.ts";
import * as form from "./format.ts";
import { nameOf } from "./model.ts";
import type { Incident } from "./model.ts";
import type { Onset } from "./onsets.ts";
import { format } from "./route.ts";
import type { Context } from "./view.ts";

const WINDOWS: [string, number][] = [
  ["15 min", 900],
  ["1 h", 3600],
  ["6 h", 21_600],
  ["24 h", 86_400],
  ["7 d", 604_800],
];
// Events of one part of the time line share a mark: a part is wide enough for a finger.
const PART_PX = 28;
const MIN_PARTS = 8;
const PLAY_MS = 1000;

// An incident, or the begin of a finding.
export interface TimeEvent {
  // s since 1970.
  time: number;
  vm: string;
  text: string;
  isIncident: boolean;
}

export interface Mark {
  // Part of the time line.
  part: number;
  events: TimeEvent[];
}

export function eventsOf(incidents: Incident[], onsets: Onset[]): TimeEvent[] {
  const begun = incidents.map((one) => {
    const checks = one.findings.map((finding) => finding.check.replaceAll("_", " "));
    const causes = [...(one.alerts ?? []).map((alert) => `alert ${alert}`), ...checks];
    const text = `${nameOf(one.vm)}: ${causes.join(", ")}`;
    return { time: one.unix_ns / 1e9, vm: one.vm.vm, text, isIncident: true };
  });
  const found = onsets.map(({ time, vm, name, check }) => {
    return { time, vm, text: `${name}: ${check.replaceAll("_", " ")} began`, isIncident: false };
  });
  return [...begun, ...found].sort((a, b) => a.time - b.time);
}

// The events between two times, by part of the time line.
export function marks(events: TimeEvent[], from: number, to: number, parts: number): Mark[] {
  const found = new Map<number, TimeEvent[]>();
  for (const one of events) {
    if (one.time < from || one.time > to) continue;
    const share = (one.time - from) / Math.max(1, to - from);
    const part = Math.min(parts - 1, Math.floor(share * parts));
    const list = found.get(part);
    if (list) list.push(one);
    else found.set(part, [one]);
  }
  return [...found].sort(([a], [b]) => a - b).map(([part, events]) => ({ part, events }));
}

export class Timeline {
  readonly element: HTMLElement;
  private slider = el("input", { type: "range", id: "time", step: 1, min: 0, max: 1 });
  private label = el("label", { for: "time", class: "clock" });
  private marks = el("ul", { class: "marks", "aria-label": "Incidents and findings" });
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
      // A slow answer delays the next step; it would be cancelled otherwise.
      if (this.context?.isWaiting()) return;
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
    const found = marks(eventsOf(context.incidents, context.store.onsets.all()), from, to, parts);
    const ids = found.map((mark) => `${mark.part}/${mark.events.map((one) => one.time + one.text)}`);
    const shown = `${parts} ${ids.join()} ${format(route)}`;
    if (shown === this.shown) return;
    this.shown = shown;
    this.marks.replaceChildren(...found.map((mark) => this.mark(mark, parts, context)));
  }

  private mark({ part, events }: Mark, parts: number, { route }: Context): HTMLElement {
    const texts = events.map((one) => `${form.clock(one.time)} ${one.text}`);
    const first = events.find((one) => one.isIncident) ?? events[0];
    const href = format({ ...route, view: "vm", vm: first?.vm ?? "", at: Math.ceil(first?.time ?? 0) });
    const kind = first?.isIncident ? "incident" : "finding";
    const label = `${events.length} ${kind}${events.length > 1 ? "s" : ""}: ${texts.slice(0, 3).join("; ")}`;
    const count = events.length > 1 ? String(events.length) : "";
    const sign = first?.isIncident ? "▲" : "●";
    const properties = { href, class: kind, title: texts.join("\n"), "aria-label": label };
    const item = el("li", {}, el("a", properties, `${sign}${count}`));
    item.style.left = `${((part + 0.5) / parts) * 100}%`;
    return item;
  }
}
