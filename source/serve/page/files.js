// The files of an artifact, loaded on request.

import { target } from "./actions.js";
import { read } from "./api.js";
import { field } from "./dialog.js";
import { button, h, listing, remote } from "./dom.js";
import { count, number } from "./words.js";

const page = 500; // entries per request
const most = 2000; // maximum number of rows

const units = ["KiB", "MiB", "GiB", "TiB"];

// bytes formats a number of bytes.
export function bytes(n) {
  if (n < 1024) return count(n, "byte");
  const power = Math.min(units.length, Math.floor(Math.log2(n) / 10));
  return `${number(n / 1024 ** power)} ${units[power - 1]}`;
}

// fileSection lists the files of the artifact of a source, one part at a time. With a filter it loads more parts until
// there are enough rows to show.
export function fileSection(app, source) {
  const filter = h("input", { type: "search", autocomplete: "off", oninput: () => fill() });
  const box = field("Find a file", filter);
  const more = button("Show the files", () => { reach += 100; fill(); });
  const part = listing({
    level: "h2",
    title: "Files",
    caption: "Entries of the artifact",
    columns: ["Path", "Size", "Mode"],
    before: box,
    after: more,
    keyOf: (file) => file.path,
    cells: (file) => [remote(file.path, "code"), file.dir ? "" : bytes(file.size), file.dir ? "folder" : file.executable ? "executable" : "file"],
  });
  let files = [];
  let next = "";
  let ended = false;
  let reach = 0;
  let turn = 0;

  const found = () => {
    const wanted = filter.value.trim().toLowerCase();
    return wanted ? files.filter((file) => file.path.toLowerCase().includes(wanted)) : files;
  };
  function show() {
    const chosen = found();
    part.show(chosen.slice(0, reach), !reach ? "" : chosen.length ? `${number(Math.min(reach, chosen.length))} of ${ended ? "" : "at least "}${number(chosen.length)}`
      : ended ? "No file matches." : "Loading");
    box.hidden = !reach;
    more.textContent = reach ? "Show more" : "Show the files";
    more.hidden = reach > 0 && ((ended && chosen.length <= reach) || reach >= most);
  }
  async function ask() {
    const answer = await read(target(source, "files"), { after: next, limit: page });
    return { list: answer.files ?? [], after: answer.next ?? "" };
  }
  async function fillNow(mine) {
    show();
    while (!ended && found().length < reach) {
      const { list, after } = await ask();
      if (mine !== turn) return;
      files = files.concat(list);
      next = after;
      ended = !after;
      show();
    }
  }
  function fill() {
    if (reach) app.attempt(part, fillNow(++turn));
  }
  // reset empties the list when the artifact changes.
  function reset() {
    [files, next, ended] = [[], "", false];
    fill();
    show();
  }
  show();
  return { node: part.node, reset };
}
