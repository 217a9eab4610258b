// Elements. All content is set as text: names of VMs and pods are chosen by tenants.

type Content = Node | string | null;

interface Properties {
  class?: string | null;
  on?: Record<string, (event: Event) => void>;
  [attribute: string]: string | number | boolean | null | undefined | object;
}

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...content: Content[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") {
      for (const [event, handler] of Object.entries(properties.on ?? {})) {
        made.addEventListener(event, handler);
      }
    } else if (value === true) made.setAttribute(name, "");
    else if (typeof value === "string" || typeof value === "number") {
      made.setAttribute(name, String(value));
    }
  }
  append(made, ...content);
  return made;
}

export function append(parent: Element, ...content: Content[]): void {
  for (const one of content) if (one !== null) parent.append(one);
}

export function svg(tag: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

// Sets a text only if it differs, so that nothing is drawn again.
export function text(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

export function attribute(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// Replaces the rows of a table's body.
export function rows(body: Element, lines: (string | Node)[][]): void {
  const made = lines.map((cells) => {
    const row = el("tr");
    cells.forEach((cell, index) => {
      row.append(index === 0 ? el("th", { scope: "row" }, cell) : el("td", {}, cell));
    });
    return row;
  });
  body.replaceChildren(...made);
}

// A table with a caption and these column headers, in a box that scrolls sideways.
export function table(caption: string, heads: string[]): { box: HTMLElement; body: HTMLElement } {
  const body = el("tbody");
  const head = el("tr", {}, ...heads.map((one) => el("th", { scope: "col" }, one)));
  const box = el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, head), body),
  );
  return { box, body };
}

export function section(title: string, ...content: Content[]): HTMLElement {
  const id = `h-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return el("section", { "aria-labelledby": id }, el("h2", { id }, title), ...content);
}
