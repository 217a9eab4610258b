// Requests to the agent's API. Credentials are kept for the tab only, and are sent by this file
// only: `credentials: "omit"` keeps the browser's own dialog away.

const KEY = "virtlens-authorization";

export class ApiError extends Error {
  status: number;
  // The challenges of an answer 401, lower case.
  schemes: string;

  constructor(status: number, text: string, schemes: string) {
    super(text);
    this.status = status;
    this.schemes = schemes;
  }
}

export function signIn(authorization: string): void {
  sessionStorage.setItem(KEY, authorization);
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
}

export function isSignedIn(): boolean {
  return sessionStorage.getItem(KEY) !== null;
}

export function basic(user: string, password: string): string {
  const utf8 = new TextEncoder().encode(`${user}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...utf8))}`;
}

async function reason(response: Response): Promise<string> {
  try {
    const body: unknown = await response.json();
    if (body && typeof body === "object" && "error" in body) return String(body.error);
  } catch {
    // The answer is not of the API.
  }
  return `status ${response.status}`;
}

export async function request(
  path: string,
  options: { method?: string; signal?: AbortSignal | undefined; authorization?: string } = {},
): Promise<Response> {
  const authorization = options.authorization ?? sessionStorage.getItem(KEY);
  const response = await fetch(path, {
    method: options.method ?? "GET",
    headers: authorization === null ? {} : { Authorization: authorization },
    credentials: "omit",
    cache: "no-store",
    ...(options.signal ? { signal: options.signal } : {}),
  });
  if (!response.ok) {
    const schemes = (response.headers.get("www-authenticate") ?? "").toLowerCase();
    throw new ApiError(response.status, await reason(response), schemes);
  }
  return response;
}

// The token for a code of `virtlens ui`; null if the code was used or is wrong.
export async function exchange(code: string): Promise<string | null> {
  try {
    const response = await request("ui/session", { method: "POST", authorization: `Bearer ${code}` });
    const { token }: { token: string } = await response.json();
    return token;
  } catch {
    return null;
  }
}

export function path(route: string, values: Record<string, string>): string {
  const query = new URLSearchParams(values).toString();
  return `api/v1/${route}${query ? `?${query}` : ""}`;
}

// The lines of an answer, as they come.
export async function* lines(address: string, signal: AbortSignal): AsyncGenerator<string> {
  const response = await request(address, { signal });
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = decoder.decode(value, { stream: true }).split("\n");
    const [first = "", ...others] = parts;
    rest.push(first);
    for (const next of others) {
      const line = rest.join("");
      rest = [next];
      if (line) yield line;
    }
  }
}
