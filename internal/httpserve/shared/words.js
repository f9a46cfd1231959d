// Texts of the page: untrusted text made safe to show, times, durations, states and problems.

// Characters that are invisible, or change how their neighbours are shown.
const unseen = /(?![\t\n\ufe0f])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{DI}]/gu;
const code = (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

// lines makes the control characters of a multi-line text visible.
export const lines = (text) => text.replace(unseen, code);

// inline does the same for text within a line, and cuts it after 2000 characters.
export function inline(text) {
  const all = String(text);
  const shown = all.length > 2000 ? `${all.slice(0, 2000)} … (${count(all.length - 2000, "more character")})` : all;
  return lines(shown).replace(/[\t\n]/g, code);
}

export const number = (n) => n.toLocaleString("en", { maximumFractionDigits: n < 100 ? 1 : 0 });
export const count = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

// The offset of the server's clock, taken from its answers: the clock of this machine may be wrong.
let skew = 0;
export function learnClock(date) {
  const apart = Date.parse(date) - Date.now();
  if (Number.isFinite(apart)) skew = Math.abs(apart) > 5000 ? apart : 0;
}
export const now = () => Date.now() + skew;

const units = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// span formats a duration in milliseconds with its two largest units: 1 h 5 min.
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  let rest = Math.floor(ms / 1000);
  if (rest < 10) return `${(ms / 1000).toFixed(1)} s`;
  const words = [];
  for (const [unit, seconds] of units) {
    const n = Math.floor(rest / seconds);
    if (n > 0) words.push(unit === "day" ? count(n, unit) : `${n} ${unit}`);
    else if (words.length) break;
    rest %= seconds;
    if (words.length === 2) break;
  }
  return words.join(" ");
}

// since formats how long ago a time was: whole seconds, then minutes and so on.
export const since = (time) => {
  const ms = now() - Date.parse(time);
  return ms < 1000 ? "less than 1 s" : ms < 10000 ? `${Math.floor(ms / 1000)} s` : span(ms);
};

// when formats a time relative to now.
export function when(time) {
  const ahead = Date.parse(time) - now();
  return ahead > 0 ? `in ${span(Math.max(ahead, 1000))}` : -ahead < 2000 ? "just now" : `${since(time)} ago`;
}

// exact formats a time to the second, in UTC as in logs.
export const exact = (time) => `${new Date(time).toISOString().slice(0, 19).replace("T", " ")} UTC`;

const said = {
  0: "The server does not answer. It may be down, or the network is. Try again.",
  401: "You are not signed in any more, or the token is not known.",
  403: "You may not do this",
  409: "Something has changed in the meantime",
  429: "The server has too much to do. Try again in a moment",
  503: "The server is shutting down or overloaded. Try again in a moment",
};

// trouble describes an error of the API.
export function trouble(error) {
  if (!("status" in error)) return `Something went wrong in this page: ${inline(error.message)}`;
  const words = said[error.status] ?? `The server refused this (${error.status})`;
  return error.reason && error.status !== 401 ? `${words.replace(/\.$/, "")}: ${inline(error.reason)}` : words;
}
