// The HTTP API of the server. Its address is relative to this file, so that a
// path prefix stays.

import { learnClock } from "./words.js";

const root = new URL("../api/v1/", import.meta.url);

// A Problem is an answer that is an error; status 0 is no answer at all.
export class Problem extends Error {
  constructor(status, reason = "") {
    super(reason || `status ${status}`);
    this.status = status;
    this.reason = reason;
  }
}

// path joins segments, each escaped. URLs cannot express those that are only dots.
export function path(...segments) {
  if (segments.some((s) => /^\.\.?$/.test(s))) throw new Problem(400, "a name of dots alone has no address");
  return segments.map(encodeURIComponent).join("/");
}

// address is a URL of the API as text, with those query parameters that are set.
export function address(target, query = {}) {
  const url = new URL(target, root);
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  return url.href;
}

async function reasonOf(response) {
  const text = (await response.text().catch(() => "")).slice(0, 4000);
  try {
    return String(JSON.parse(text).reason ?? "");
  } catch {
    return response.headers.get("Content-Type")?.startsWith("text/plain") ? text.trim() : "";
  }
}

export async function send(method, url, { body, signal, accept = "application/json" }) {
  let response;
  try {
    response = await fetch(url, {
      method,
      signal,
      cache: "no-store",
      headers: { Accept: accept, ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0);
  }
  learnClock(response.headers.get("Date"));
  if (!response.ok) throw new Problem(response.status, await reasonOf(response));
  return response;
}

async function call(method, target, { query, body } = {}) {
  const response = await send(method, address(target, query), { body, signal: AbortSignal.timeout(30_000) });
  const text = await response.text().catch(() => { throw new Problem(0); });
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(response.status, "the answer is not JSON: is there something else between?");
  }
}

export const read = (target, query) => call("GET", target, { query });
export const post = (target, body = {}) => call("POST", target, { body });
export const remove = (target) => call("DELETE", target);

// text yields what a stream has, as it comes. Silence for that many
// milliseconds ends it as a problem.
export async function* text(response, silence) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      let timer;
      const late = new Promise((_, fail) => { if (silence) timer = setTimeout(() => fail(new Problem(0)), silence); });
      const { done, value } = await Promise.race([reader.read(), late]).finally(() => clearTimeout(timer));
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0);
  } finally {
    reader.cancel().catch(() => {});
  }
}

// watch yields changes as they are made, after one null when the stream is open.
export async function* watch(signal) {
  const response = await send("GET", address("watch"), { signal, accept: "text/event-stream" });
  yield null;
  let rest = "";
  for await (const chunk of text(response, 60_000)) {
    const events = (rest + chunk.replaceAll("\r", "")).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}
