// The client of the HTTP API of the server. Its URL is relative to this file, which keeps a path prefix.

import { learnClock } from "./words.js";

const root = new URL("../api/v1/", import.meta.url);

// A Problem is an error answer; status 0 means that there was no answer.
export class Problem extends Error {
  constructor(status, reason = "") {
    super(reason || `status ${status}`);
    this.status = status;
    this.reason = reason;
  }
}

// path escapes and joins segments. URLs cannot contain segments that consist only of dots.
export function path(...segments) {
  if (segments.some((s) => /^\.\.?$/.test(s))) throw new Problem(400, "a name of dots alone has no address");
  return segments.map(encodeURIComponent).join("/");
}

// address returns a URL of the API as text, with the query parameters that are set.
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

// text yields the text of a stream as it arrives. It throws a Problem if nothing arrives for silence milliseconds.
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

// watch yields null when the stream is open, and then each change.
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
