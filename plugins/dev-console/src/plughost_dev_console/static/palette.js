// The command palette (Ctrl+K). The host provides its entries.
"use strict";

const palette = make("dialog", { class: "palette", "aria-label": "Go to" });
const field = make("input", { type: "search", role: "combobox", "aria-label": "Go to a page, plugin, operation or setting", "aria-expanded": "true", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", placeholder: "Page, plugin, operation, setting" });
const found = make("ul", { id: "found", role: "listbox", "aria-label": "Found" });
palette.append(field, found);
document.body.append(palette);
let offered = [], chosen = 0;

async function openPalette() {
  if (palette.open) return;
  palette.showModal();
  field.value = "";
  try { offered = await (await fetch(`${prefix}/palette`)).json(); } catch { offered = []; }
  showFound();
}

function showFound() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = offered.filter(({ name, kind }) => words.every((word) => `${name} ${kind}`.toLowerCase().includes(word))).slice(0, 50);
  found.replaceChildren(...hits.map((each, place) =>
    make("li", { role: "option", id: `found-${place}`, "data-href": each.href }, make("span", {}, each.name), " ", make("small", {}, each.kind))));
  choose(0);
}

function choose(place) {
  chosen = Math.max(0, Math.min(place, found.children.length - 1));
  [...found.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === chosen)));
  found.children[chosen]?.scrollIntoView({ block: "nearest" });
  field.setAttribute("aria-activedescendant", found.children.length ? `found-${chosen}` : "");
}

field.addEventListener("input", showFound);
field.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { event.preventDefault(); choose(chosen + step); }
  if (event.key === "Enter" && found.children[chosen]) location.href = found.children[chosen].dataset.href;
});
found.addEventListener("click", ({ target }) => { const item = target.closest("li"); if (item) location.href = item.dataset.href; });
palette.addEventListener("click", ({ target }) => { if (target === palette) palette.close(); });
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openPalette(); }
});
const opener = document.querySelector("[data-palette]");
opener.hidden = false;
opener.addEventListener("click", openPalette);

const THEMES = ["system", "light", "dark"];
const switcher = document.querySelector("[data-theme-switch]");
const showTheme = () => { switcher.textContent = `Theme: ${document.documentElement.dataset.theme}`; };
switcher.hidden = false;
switcher.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  document.documentElement.dataset.theme = next;
  localStorage.setItem("plughost-theme", next);
  showTheme();
});
showTheme();
