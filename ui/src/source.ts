// Gets readings from the agent: continuously, or those of a past time.

import { ApiError, lines, path, request } from "./api.ts";
import { instant } from "./format.ts";
import type { Incident, Snapshot } from "./model.ts";

export type State = "connecting" | "live" | "lost" | "past" | "signedOut";

export interface Events {
  reading: (reading: Snapshot) => void;
  state: (state: State, text: string, schemes: string) => void;
}

const INTERVAL_MS = 2000;
// Another interval, for measurements.
const INTERVAL_KEY = "virtlens-interval-ms";
// Clients that get no stream ask for readings.
const POLL_MS = 5000;
const MAX_PAUSE_MS = 8000;

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

function reading(line: string): Snapshot {
  const value: Snapshot & { error?: string; kind?: string } = JSON.parse(line);
  if (value.error !== undefined) throw new ApiError(0, value.error, "");
  return value;
}

async function poll(events: Events, signal: AbortSignal): Promise<void> {
  for (let left = 12; left > 0 && !signal.aborted; left -= 1) {
    events.reading(await present(signal));
    events.state("live", "", "");
    await pause(POLL_MS, signal);
  }
}

async function stream(
  events: Events,
  values: Record<string, string>,
  signal: AbortSignal,
): Promise<void> {
  try {
    for await (const line of lines(path("stream", values), signal)) {
      events.reading(reading(line));
      events.state("live", "", "");
    }
    // It ends after ten minutes, or at once if the agent stops.
    await pause(500, signal);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 503) throw error;
    await poll(events, signal);
  }
}

// Follows the agent until `signal`. After a failure it connects again.
export async function follow(events: Events, signal: AbortSignal): Promise<void> {
  let wait = 0;
  const interval = sessionStorage.getItem(INTERVAL_KEY) ?? INTERVAL_MS;
  let values: Record<string, string> = { interval: `${interval}ms` };
  while (!signal.aborted) {
    try {
      await stream(events, values, signal);
      wait = 0;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) {
        events.state("signedOut", error.message, error.schemes);
        return;
      }
      if (error instanceof ApiError && error.status === 400 && "interval" in values) {
        // The agent caches readings for longer (min_age): it chooses the interval.
        values = {};
        continue;
      }
      const text = error instanceof ApiError ? error.message : "no connection to the agent";
      events.state("lost", text, "");
      wait = Math.min(MAX_PAUSE_MS, wait ? wait * 2 : 500);
      await pause(wait, signal);
    }
  }
}

function span(since: number, until: number, limit: number): Record<string, string> {
  return { since: instant(since), until: instant(until), limit: String(limit) };
}

// The recorded readings of a time, s since 1970, of a VM.
export async function history(
  since: number,
  until: number,
  vm: string,
  signal: AbortSignal,
  limit = 3600,
): Promise<Snapshot[]> {
  const values = span(since, until, limit);
  values["vm"] = vm;
  return parsed(await kept(path("history", values), Infinity, signal));
}

// The last lines of an answer, at most `count`.
async function kept(address: string, count: number, signal: AbortSignal): Promise<string[]> {
  const found: string[] = [];
  for await (const line of lines(address, signal)) {
    found.push(line);
    if (found.length > count) found.shift();
  }
  return found;
}

function parsed(lines: string[]): Snapshot[] {
  const readings = lines.map((line): Snapshot & { kind?: string } => JSON.parse(line));
  return readings.filter((one) => one.kind === "Snapshot");
}

export async function present(signal: AbortSignal): Promise<Snapshot> {
  const response = await request(path("snapshot", {}), { signal });
  return reading(await response.text());
}

// The last readings at a time or before it, in the order of their times: two, or fewer at the
// start of the recording.
export async function before(at: number, signal: AbortSignal): Promise<Snapshot[]> {
  let found: Snapshot[] = [];
  for (const seconds of [25, 130, 1300]) {
    const address = path("history", span(at - seconds, at, 3600));
    // All VMs of a node are large: only the readings that are shown are kept. The last line may
    // be no reading.
    found = parsed(await kept(address, 3, signal));
    if (found.length > 1) break;
  }
  return found.slice(-2);
}

// Time of the first recorded reading, s since 1970; undefined as long as the recording has none,
// null without a recording.
export async function start(signal: AbortSignal): Promise<number | null | undefined> {
  try {
    const [first] = await history(0, Date.now() / 1000, "-", signal, 1);
    return first ? Date.parse(first.time) / 1000 : undefined;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

export async function incidents(signal: AbortSignal): Promise<Incident[]> {
  const response = await request(path("incidents", {}), { signal });
  const list: { incidents: Incident[] } = await response.json();
  return list.incidents;
}
