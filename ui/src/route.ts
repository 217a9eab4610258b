// The view is in the fragment of the address, so that the address can be sent to others.

export type Sort = "name" | "cores" | "used" | "throttled" | "wait" | "memory" | "findings";
export const SORTS: Sort[] = ["name", "cores", "used", "throttled", "wait", "memory", "findings"];

// Times before the shown one that a VM can be compared with, s.
export const AGAINST: [number, string][] = [
  [0, "nothing"],
  [300, "the 5 minutes before"],
  [3600, "an hour before"],
  [86_400, "a day before"],
];

export interface Route {
  view: "node" | "map" | "vm";
  // Name of the VM of the view "vm".
  vm: string;
  search: string;
  // Only VMs with findings.
  flagged: boolean;
  sort: Sort;
  reversed: boolean;
  // Shown time, s since 1970; null is live.
  at: number | null;
  // Time before the shown one that a VM is compared with, s; 0 is none.
  against: number;
}

export const START: Route = {
  view: "node",
  vm: "",
  search: "",
  flagged: false,
  sort: "cores",
  reversed: false,
  at: null,
  against: 0,
};

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [view = "", name = ""] = path.split("/", 2);
  const values = new URLSearchParams(query);
  const at = Date.parse(values.get("at") ?? "");
  const sort = SORTS.find((one) => one === values.get("sort"));
  return {
    view: view === "map" || view === "vm" ? view : "node",
    vm: view === "vm" ? decode(name) : "",
    search: values.get("search") ?? "",
    flagged: values.has("flagged"),
    sort: sort ?? START.sort,
    reversed: values.has("reversed"),
    against: AGAINST.find(([seconds]) => String(seconds) === values.get("against"))?.[0] ?? 0,
    at: Number.isNaN(at) ? null : Math.floor(at / 1000),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function format(route: Route): string {
  const values = new URLSearchParams();
  if (route.search) values.set("search", route.search);
  if (route.flagged) values.set("flagged", "");
  if (route.sort !== START.sort) values.set("sort", route.sort);
  if (route.reversed) values.set("reversed", "");
  if (route.at !== null) values.set("at", new Date(route.at * 1000).toISOString().slice(0, 19) + "Z");
  if (route.view === "vm" && route.against) values.set("against", String(route.against));
  const path = route.view === "vm" ? `vm/${encodeURIComponent(route.vm)}` : route.view;
  const query = values.toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}
