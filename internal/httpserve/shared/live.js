// Functions that keep the page current.

import { watch } from "./api.js";
import { button } from "./dom.js";

// A Collection is the result of a listing, kept current by notices. Notices that arrive during the request for a
// listing are applied to its result.
export class Collection {
  #turn = 0;
  #late = null; // notices that arrived during a listing
  #timer = null;
  items = new Map();
  loaded = false;

  // keyOf returns the key of an item, belongs whether it is part of the listing, and fetchAll the listing; changed
  // is called after every change.
  constructor({ keyOf, belongs = () => true, fetchAll, changed }) {
    Object.assign(this, { keyOf, belongs, fetchAll, changed });
  }

  async load(...query) {
    const turn = ++this.#turn;
    this.#late = [];
    try {
      const all = await this.fetchAll(...query);
      if (turn !== this.#turn) return all;
      this.items = new Map(all.filter(this.belongs).map((item) => [this.keyOf(item), item]));
      this.#late.forEach((item) => this.#put(item));
      this.loaded = true;
      this.changed();
      return all;
    } finally {
      if (turn === this.#turn) this.#late = null;
    }
  }

  // apply applies a notice. Several in quick succession count as one change.
  apply(item) {
    this.#late?.push(item);
    if (!this.loaded) return;
    this.#put(item);
    this.#timer ??= setTimeout(() => { this.#timer = null; this.changed(); }, 50);
  }

  #put(item) {
    if (this.belongs(item)) this.items.set(this.keyOf(item), item);
    else this.items.delete(this.keyOf(item));
  }
}

// pages loads a listing that grows. fetch shows a number of its items, at most 1000, and returns the available ones. load
// calls it now, soon a moment later and once for several calls.
export function pages(app, part, fetch) {
  let reach = 50;
  let timer = null;
  const older = button("Show more", () => { reach = Math.min(1000, 2 * reach); load(); }, { hidden: true });
  part.node.append(older);
  const load = () => app.attempt(part, fetch(reach).then((all) => { older.hidden = all.length < reach || reach === 1000; }));
  const soon = () => { timer ??= setTimeout(() => { timer = null; load(); }, 1000); };
  return { load, soon };
}

export const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// every calls f at intervals, until signal ends.
export function every(ms, signal, f) {
  const timer = setInterval(f, ms);
  signal.addEventListener("abort", () => clearInterval(timer));
}

// follow calls opened whenever the stream of changes is opened, notice for each change, and state with
// connecting, live or reconnecting. Its delay grows with each failure, up to half a minute. It ends with
// signal, or when failed returns true for a problem.
export async function follow({ signal, opened, notice, state, failed }) {
  for (let failures = 0; !signal.aborted; ) {
    try {
      for await (const change of watch(signal)) {
        if (change) notice(change);
        else {
          failures = 0;
          state("live");
          opened();
        }
      }
    } catch (error) {
      if (signal.aborted || failed(error)) return;
    }
    if (signal.aborted) return;
    state("reconnecting");
    await pause(Math.min(30_000, 1000 * 2 ** failures++) * (0.5 + Math.random() / 2));
  }
}
