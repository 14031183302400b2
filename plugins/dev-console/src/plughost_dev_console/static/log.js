// The live log, newest line first.
"use strict";

const MOST = 500;
const LEVELS = ["debug", "info", "warning", "error", "critical"];
const list = document.querySelector("[data-lines]");
const count = document.querySelector("[data-count]");
const told = document.querySelector("[data-told]");
let number = Number.parseInt(count.textContent.replaceAll(",", ""), 10);

function line(each) {
  const text = make("span", { class: "text" }, each.text, " ", make("span", { class: "soft" }, each.fields));
  if (each.id) text.append(" ", make("a", { class: "id", href: `${prefix}/requests?q=${encodeURIComponent(each.id)}`, title: each.id }, make("span", { class: "hidden" }, "request "), each.id.slice(0, 8), each.id.length > 8 ? "…" : ""));
  if (each.trace) text.append(make("details", {}, make("summary", {}, "Traceback"), make("pre", { tabindex: "0" }, each.own || each.trace), ...(each.own ? [make("details", {}, make("summary", {}, "With the host's frames"), make("pre", { tabindex: "0" }, each.trace))] : [])));
  return make("li", { class: `line-${LEVELS.includes(each.level) ? each.level : "info"}` },
    make("span", { class: "time" }, each.time), " ", make("span", { class: "level" }, each.level), " ", make("span", { class: "owner" }, each.plugin), " ", text);
}

follow("/log/new", Number(list.dataset.last), (found, fresh) => {
  if (!found.length && !fresh) return;
  if (fresh) { list.replaceChildren(); number = 0; }
  number += found.length;
  const reading = scrollY > list.offsetTop ? document.documentElement.scrollHeight - scrollY : 0; // somebody reads further down
  list.prepend(...found.slice(-MOST).toReversed().map(line));
  while (list.children.length > MOST) list.lastElementChild.remove();
  if (reading) scrollTo(0, document.documentElement.scrollHeight - reading);
  document.querySelector("[data-empty]").hidden = list.children.length > 0;
  document.querySelector("[data-more]").hidden = number <= list.children.length;
  count.textContent = `${number.toLocaleString("en")} line${number === 1 ? "" : "s"}`;
  const wrong = found.filter((each) => LEVELS.indexOf(each.level) > 1);
  told.textContent = fresh ? count.textContent : wrong.length ? `${wrong.at(-1).level}: ${wrong.at(-1).text}` : "";
});
