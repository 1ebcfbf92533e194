// Elements, times and tables. Everything that comes from the tree goes through `text`: it is never
// markup, and characters that turn the direction of writing or cannot be seen are shown by number.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function text(value) {
  return String(value).replace(UNSEEN, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);
}

// An element with attributes and children; strings become text.
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : text(value));
  }
  put(element, children);
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, text(value));
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(text(child)));
  }
}

let ahead = 0;
// The page's clock runs by that of the console.
export function setNow(now) { ahead = now - Date.now(); }
export function now() { return Date.now() + ahead; }

export function age(since) {
  if (since === undefined || since === null) return "–";
  const seconds = Math.max(0, (now() - since) / 1000);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function moment(at) {
  return at === undefined || at === null ? "unknown" : new Date(at).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

export function number(value) { return Number(value).toLocaleString("en-US"); }

// Who a node belongs to: host, process and command, as the command prints it, or what else it says.
export function who(party) {
  if (!party) return "–";
  if (party.id) return party.id;
  if (party.host) return `${party.host}:${party.pid}${party.command ? ` (${party.command})` : ""}`;
  return party.text ?? `session ${party.session}`;
}

export function empty(title, advice) {
  return h("div.empty", {}, h("b", {}, title), advice);
}

// A table of any length: only the rows that can be seen are in the document.
let grids = 0;

export class Grid {
  constructor({ label, columns, key, onopen, sort, rowHeight = 30, blank }) {
    Object.assign(this, { columns, key, onopen, rowHeight, blank });
    this.sort = sort ?? { by: 0, down: false };
    this.rows = [];
    this.nth = grids += 1;
    this.selected = null;
    this.wide = columns;
    this.rowOf = rowHeight;
    this.head = h("div.gridhead.cols", { role: "row" });
    this.space = h("div.space", { role: "rowgroup" });
    this.element = h("div.grid", { role: "grid", "aria-label": label, tabindex: 0, onscroll: () => this.draw(), onkeydown: (event) => this.press(event) }, this.head, this.space);
    this.fit(1e9);
    this.observer = new ResizeObserver(() => {
      this.fit(this.element.clientWidth);
      this.draw();
    });
    this.observer.observe(this.element);
  }

  // Chooses the columns for this width: those with the largest `drop` go first. On a narrow screen
  // a row is a stack of the columns with a `stack`: the path, then who, then a number.
  fit(width) {
    const stacked = width < 480 && this.wide.some((column) => column.stack);
    const least = (columns) => columns.reduce((sum, column) => sum + Number(/(\d+)px/.exec(column.width)[1]) + 16, 16);
    let shown = this.wide.filter((column) => !stacked || column.stack);
    for (;;) {
      const most = Math.max(...shown.map((column) => column.drop ?? 0));
      if (stacked || most === 0 || least(shown) <= width) break;
      shown = shown.filter((column) => column.drop !== most);
    }
    if (this.columns.length === shown.length && this.template) return;
    if (stacked) shown.sort((one, other) => one.stack - other.stack);
    Object.assign(this, { columns: shown, stacked, rowHeight: stacked ? 2 * this.rowOf - 8 : this.rowOf });
    this.template = stacked ? "minmax(0, 1fr) auto" : shown.map((column) => column.width).join(" ");
    this.element.classList.toggle("stacked", stacked);
    this.head.style.gridTemplateColumns = this.template;
    // Head and rows are equally wide, also where they are wider than the view.
    this.head.style.minWidth = this.space.style.minWidth = stacked ? "" : `${least(shown)}px`;
    this.drawHead();
  }

  drawHead() {
    this.head.replaceChildren(...this.columns.map((column) => {
      const of = this.wide.indexOf(column);
      const isSorted = this.sort.by === of;
      const order = isSorted ? (this.sort.down ? "descending" : "ascending") : "none";
      const arrow = isSorted ? (this.sort.down ? " ↓" : " ↑") : "";
      const choose = () => {
        this.sort = { by: of, down: isSorted ? !this.sort.down : Boolean(column.down) };
        this.drawHead();
        this.set(this.rows);
      };
      return h("div" + (column.right ? ".right" : ""), { role: "columnheader", "aria-sort": order, "data-stack": column.stack ?? null }, h("button", { type: "button", tabindex: -1, onclick: choose }, column.label + arrow));
    }));
  }

  set(rows) {
    const { by, down } = this.sort;
    const value = this.wide[by].sort;
    const keyed = rows.map((row) => [value(row), row]);
    const order = (one, other) => (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : this.key(one[1]) < this.key(other[1]) ? -1 : 1);
    keyed.sort((one, other) => {
      const isBlank = (entry) => entry[0] === undefined || entry[0] === null;
      if (isBlank(one) || isBlank(other)) return isBlank(one) - isBlank(other);
      return down ? order(other, one) : order(one, other);
    });
    this.rows = keyed.map((entry) => entry[1]);
    this.element.setAttribute("aria-rowcount", this.rows.length + 1);
    this.draw();
  }

  draw() {
    this.space.style.height = `${this.rows.length * this.rowHeight}px`;
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.rowHeight) - 6);
    const count = Math.ceil((this.element.clientHeight || 600) / this.rowHeight) + 12;
    const seen = this.rows.slice(first, first + count);
    this.space.setAttribute("role", seen.length ? "rowgroup" : "presentation");
    this.space.replaceChildren(...(seen.length || !this.blank ? seen.map((row, at) => this.row(row, first + at)) : [this.blank()]));
    const chosen = this.space.querySelector('[aria-selected="true"]');
    if (chosen) this.element.setAttribute("aria-activedescendant", chosen.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  row(row, at) {
    const key = this.key(row);
    const cells = this.columns.map((column) => {
      const cell = column.cell(row);
      const made = h("div" + (column.right ? ".right" : "") + (column.mono ? ".mono" : ""), { role: "gridcell", "data-stack": column.stack ?? null }, cell);
      if (!(cell instanceof Node)) made.title = text(cell ?? "");
      return made;
    });
    const made = h("div.row.cols", { role: "row", id: `row-${this.nth}-${at}`, "aria-rowindex": at + 2, "aria-selected": String(key === this.selected), onclick: () => this.choose(at, true) }, cells);
    made.style.gridTemplateColumns = this.template;
    made.style.top = `${at * this.rowHeight}px`;
    made.style.height = `${this.rowHeight}px`;
    return made;
  }

  choose(at, open) {
    const row = this.rows[at];
    if (!row) return;
    this.selected = this.key(row);
    const top = at * this.rowHeight;
    const view = this.element.clientHeight - 2 * this.rowHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + view) this.element.scrollTop = top - view;
    this.draw();
    if (open) this.onopen?.(row);
  }

  press(event) {
    const at = this.rows.findIndex((row) => this.key(row) === this.selected);
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity, j: 1, k: -1 };
    if (event.key === "Enter") return this.choose(at, true);
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.choose(Math.min(this.rows.length - 1, Math.max(0, at + steps[event.key])), false);
  }
}
