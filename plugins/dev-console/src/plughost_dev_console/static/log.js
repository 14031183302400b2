// The log's lines as they are written, from a level on.
"use strict";

const MOST = 1000;
const LEVELS = ["debug", "info", "warning", "error", "critical"];
const list = document.querySelector("[data-lines]");
const level = document.querySelector("[data-level]");

function line(each) {
  const text = make("span", { class: "text" }, each.text, " ", make("span", { class: "soft" }, each.fields));
  if (each.trace) text.append(make("details", {}, make("summary", {}, "Traceback"), make("pre", { tabindex: "0" }, each.trace)));
  return make("li", { class: `line-${LEVELS.includes(each.level) ? each.level : "info"}`, "data-item": "", "data-number": each.number, "data-level": each.level },
    make("span", { class: "time" }, each.time), " ", make("span", { class: "level" }, each.level), " ", make("span", { class: "owner" }, each.plugin), " ", text);
}

function applyLevel() {
  const lowest = LEVELS.indexOf(level.value);
  for (const each of list.children) each.toggleAttribute("data-below", LEVELS.indexOf(each.dataset.level) < lowest);
  applyFilter("lines");
}

function take(found) {
  if (!found.length) return;
  const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
  list.append(...found.map(line));
  while (list.children.length > MOST) list.firstElementChild.remove();
  document.querySelector("[data-empty]").hidden = true;
  applyLevel();
  if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
}

level.addEventListener("change", applyLevel);
applyLevel();
follow("/log/new", Number(list.lastElementChild?.dataset.number ?? 0), take);
