// Numbers and times as text. "-" is an unknown value.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null): string {
  if (value === null) return "-";
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || scaled >= 100 ? 0 : 1;
  return `${scaled.toFixed(digits)} ${UNITS[unit]}`;
}

export function cores(value: number | null): string {
  return value === null ? "-" : value.toFixed(2);
}

export function percent(share: number | null): string {
  return share === null ? "-" : `${Math.round(share * 100)} %`;
}

export function rate(perSecond: number | null): string {
  if (perSecond === null) return "-";
  if (perSecond >= 10_000) return `${Math.round(perSecond / 1000)}k/s`;
  return `${Math.round(perSecond)}/s`;
}

export function byteRate(perSecond: number | null): string {
  return perSecond === null ? "-" : `${bytes(perSecond)}/s`;
}

// Time of day in UTC, as all outputs of virtlens.
export function clock(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

export function day(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

// RFC 3339 to the second.
export function instant(seconds: number): string {
  return new Date(seconds * 1000).toISOString().slice(0, 19) + "Z";
}

export function span(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
