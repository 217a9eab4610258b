// The page: connects the address, the readings and the views.

import { ApiError, exchange, isSignedIn, signIn, signOut } from "./api.ts";
import { attribute, el, text } from "./dom.ts";
import { clock } from "./format.ts";
import { mapView } from "./map.ts";
import type { Incident, Snapshot } from "./model.ts";
import { nodeView } from "./node.ts";
import { format, parse } from "./route.ts";
import type { Route } from "./route.ts";
import { signInForm } from "./signin.ts";
import * as source from "./source.ts";
import { Store } from "./store.ts";
import { Timeline } from "./timeline.ts";
import type { Context, View } from "./view.ts";
import { vmView } from "./vm.ts";

const INCIDENTS_MS = 30_000;
// A new recording has its first reading soon.
const START_MS = 3000;
const RECORDED = "virtlens-recording";
const REFUSED = "virtlens-refused";

class App {
  private route = parse(location.hash);
  private store = new Store();
  private view: View | null = null;
  private viewKey = "";
  private reading = new AbortController();
  private isFollowing = false;
  private incidents: Incident[] = [];
  private incidentsAt = 0;
  private recordingStart: number | null | undefined;
  private latest = 0;
  private isWaiting = false;
  private timeline = new Timeline();
  private main = el("main", { id: "main", tabindex: -1 });
  private status = el("p", { role: "status", class: "status" });
  private node = el("span", { class: "nodename" });
  private time = el("span", { class: "time" });
  private links = new Map<string, HTMLAnchorElement>();
  private leave: HTMLButtonElement;

  constructor() {
    const navigation = el("nav", { "aria-label": "Views" });
    for (const [view, label] of [["node", "VMs"], ["map", "Map"]] as const) {
      const link = el("a", {}, label);
      this.links.set(view, link);
      navigation.append(link);
    }
    navigation.append(el("a", { href: "sources" }, "Sources"));
    const out = () => (signOut(), location.reload());
    this.leave = el("button", { type: "button", on: { click: out } }, "Sign out");
    const head = el("header", {}, el("p", { class: "brand" }, "virtlens ", this.node), navigation, this.status, this.time, this.leave);
    const skip = () => this.main.focus();
    const skipLink = el("button", { type: "button", class: "skip", on: { click: skip } }, "Skip to the content");
    document.body.append(skipLink, head, this.timeline.element, this.main);
    addEventListener("hashchange", () => this.navigate(parse(location.hash)));
    document.addEventListener("visibilitychange", () => this.read(true));
  }

  start(): void {
    this.navigate(this.route);
    this.read(true);
  }

  private context(): Context {
    const { store, route, incidents } = this;
    return {
      store,
      route,
      incidents,
      isRecorded: isRecorded(),
      isWaiting: () => this.isWaiting,
      hasRecording: typeof this.recordingStart === "number",
      lastTime: () => (isRecorded() && this.latest ? this.latest : Date.now() / 1000),
      go: (change, keepsFocus) => this.go(change, keepsFocus ?? false),
    };
  }

  private go(change: Partial<Route>, isSamePlace: boolean): void {
    const next = { ...this.route, ...change };
    if (isSamePlace) {
      history.replaceState(null, "", format(next));
      this.navigate(next);
    } else location.hash = format(next);
  }

  private navigate(next: Route): void {
    const last = this.route;
    this.route = next;
    this.store.shown = next.vm;
    if (next.at !== last.at) this.read(false);
    const key = `${next.view}/${next.vm}`;
    if (key !== this.viewKey) {
      const isFirst = this.viewKey === "";
      this.viewKey = key;
      this.show(next.view === "vm" ? vmView : next.view === "map" ? mapView : nodeView);
      if (!isFirst) {
        scrollTo(0, 0);
        this.main.focus({ preventScroll: true });
      }
    }
    this.update();
  }

  private show(make: (context: Context) => View): void {
    this.view?.close?.();
    this.view = make(this.context());
    this.main.replaceChildren(this.view.element);
  }

  private update(): void {
    const context = this.context();
    const { now, before } = this.store;
    // Which readings are shown, for tests.
    Object.assign(document.documentElement.dataset, { reading: now?.time ?? "", before: before?.time ?? "" });
    for (const [view, link] of this.links) {
      attribute(link, "href", format({ ...this.route, view: view === "map" ? "map" : "node", vm: "" }));
      if (view === this.route.view) attribute(link, "aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.leave.hidden = !isSignedIn() || isRecorded();
    text(this.node, now?.node.name ?? "");
    this.time.hidden = context.hasRecording;
    text(this.time, now ? `${clock(Date.parse(now.time) / 1000)} UTC` : "");
    document.title = `${this.view?.title(context) ?? ""} – ${now?.node.name ?? ""} – virtlens`;
    this.timeline.update(context);
    this.view?.update(context);
  }

  private say(state: source.State, reason: string): void {
    const label = isRecorded() ? "recording" : state === "live" ? "live" : "the past";
    const words = {
      connecting: "connecting …",
      live: label,
      past: label,
      lost: `not connected: ${reason}; trying again`,
      signedOut: "signed out",
    };
    text(this.status, words[state]);
    this.status.dataset["state"] = state;
  }

  // Gets the readings of the present or of a past time. `isSame`: the time is the same as before.
  private read(isSame: boolean): void {
    const isHidden = document.visibilityState === "hidden";
    const wanted = this.route.at === null && !isHidden;
    if (isSame && wanted && this.isFollowing) return;
    this.reading.abort();
    this.isWaiting = false;
    this.reading = new AbortController();
    this.isFollowing = wanted;
    const { signal } = this.reading;
    if (this.route.at !== null) {
      if (!isHidden) void this.readPast(this.route.at, signal);
      return;
    }
    if (!wanted) return;
    // A tab that was hidden goes on with its readings.
    if (!isSame) {
      this.store.reset();
      this.remake();
    }
    this.say("connecting", "");
    if (isRecorded()) {
      void this.readEnd(signal);
      return;
    }
    const events: source.Events = {
      reading: (one) => this.add(one),
      state: (state, reason, schemes) => {
        if (state !== "signedOut") this.say(state, reason);
        else this.askForCredentials(schemes, reason);
      },
    };
    void source.follow(events, signal);
  }

  private remake(): void {
    if (this.route.view === "vm") this.viewKey = "";
  }

  private add(reading: Snapshot): void {
    this.latest = Math.max(this.latest, Date.parse(reading.time) / 1000);
    this.store.add(reading);
    this.update();
    void this.readIncidents();
  }

  // Shows the end of a recording, which has no present.
  private async readEnd(signal: AbortSignal): Promise<void> {
    try {
      const last = await source.present(signal);
      this.latest = Date.parse(last.time) / 1000;
      await this.readPast(Math.ceil(this.latest), signal);
    } catch (error) {
      this.fail(error, signal);
    }
  }

  private fail(error: unknown, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.isWaiting = false;
    if (error instanceof ApiError && error.status === 401) {
      this.askForCredentials(error.schemes, error.message);
    } else this.say("lost", error instanceof Error ? error.message : "");
  }

  private async readPast(at: number, signal: AbortSignal): Promise<void> {
    this.say("past", "");
    this.isWaiting = true;
    try {
      const found = await source.before(at, signal);
      if (signal.aborted) return;
      this.isWaiting = false;
      this.store.reset();
      for (const one of found) this.store.add(one);
      if (this.route.view === "vm") this.show(vmView);
      this.update();
      if (!found.length) text(this.status, "no reading was recorded at this time");
      await this.readIncidents();
    } catch (error) {
      this.fail(error, signal);
    }
  }

  // Finds out once whether there is a recording, and reads its incidents now and then.
  private async readIncidents(): Promise<void> {
    if (this.recordingStart === null || Date.now() - this.incidentsAt < INCIDENTS_MS) return;
    this.incidentsAt = Date.now();
    const { signal } = new AbortController();
    try {
      this.recordingStart ??= await source.start(signal);
      if (this.recordingStart === undefined) this.incidentsAt -= INCIDENTS_MS - START_MS;
      else if (this.recordingStart !== null) this.incidents = await source.incidents(signal);
      this.update();
    } catch {
      // The next reading tries again after a while.
    }
  }

  private askForCredentials(schemes: string, reason: string): void {
    signOut();
    this.say("signedOut", reason);
    this.view?.close?.();
    this.view = null;
    this.isFollowing = false;
    const done = () => {
      this.viewKey = "";
      this.incidentsAt = 0;
      this.read(false);
      this.navigate(this.route);
    };
    if (sessionStorage.getItem(REFUSED) !== null) {
      const words = "This address was already used. Run virtlens ui again for another one.";
      this.main.replaceChildren(el("p", { role: "alert", class: "signin" }, words));
      return;
    }
    this.main.replaceChildren(signInForm(schemes, reason, done));
    this.main.querySelector("input")?.focus();
  }
}

function isRecorded(): boolean {
  return sessionStorage.getItem(RECORDED) !== null;
}

// `virtlens ui` opens an address with a code that is exchanged for a token once, and with the view
// that is shown then. A tab that has the token keeps it if the address is opened again.
async function takeCode(): Promise<void> {
  const [way = "", query = ""] = location.hash.split("?", 2);
  if (way !== "#/login") return;
  const values = new URLSearchParams(query);
  history.replaceState(null, "", format(parse(values.get("to") ?? "")));
  if (values.has("recording")) sessionStorage.setItem(RECORDED, "");
  const token = await exchange(values.get("code") ?? "");
  if (token === null) sessionStorage.setItem(REFUSED, "");
  else {
    sessionStorage.removeItem(REFUSED);
    signIn(`Bearer ${token}`);
  }
}

await takeCode();
new App().start();
