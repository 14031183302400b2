// What every page of the console shares: filters, copying, and waiting for a job.
"use strict";

const prefix = "/q/dev";

// Filters: a list marked data-list shows the items whose text has every word; 200 plugins need that.
function applyFilter(name) {
  const list = document.querySelector(`[data-list="${name}"]`);
  if (!list) return;
  const words = document.querySelector(`[data-filter="${name}"]`).value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = document.querySelector(`[data-only="${name}"]`);
  const items = [...list.children].flatMap((each) => (each.matches("[data-item]") ? [each] : [...each.querySelectorAll(":scope > [data-item]")]));
  let shown = 0;
  for (const item of items) {
    const text = item.textContent.toLowerCase();
    const hidden =
      !words.every((word) => text.includes(word)) ||
      (only?.checked && !item.hasAttribute("data-changed")) ||
      item.hasAttribute("data-below");
    if (item.hidden !== hidden) item.hidden = hidden;
    shown += !hidden;
  }
  const output = document.querySelector(`[data-filtered="${name}"]`);
  const told = shown === items.length ? `${shown} shown` : `${shown} of ${items.length} shown`;
  if (output && output.textContent !== told) output.textContent = told;
}

function setUpFilters() {
  for (const input of document.querySelectorAll("[data-filter], [data-only]")) {
    const name = input.dataset.filter ?? input.dataset.only;
    input.addEventListener("input", () => applyFilter(name));
    if (input.value && input.dataset.filter) applyFilter(name); // what the browser kept over a reload
  }
}

function setUpCopying() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("code").textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.parentElement.querySelector("code"));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

// A job goes on in the host; its result is shown by the page as the host writes it.
async function waitForJob() {
  const result = document.querySelector("#result");
  if (!result) return;
  if (!result.dataset.job) {
    result.focus();
    return;
  }
  let done = false;
  while (!done) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    try {
      const answer = await fetch(`${prefix}/jobs/${encodeURIComponent(result.dataset.job)}`);
      done = !answer.ok || (await answer.json()).done;
    } catch { /* the host is busy; ask again */ }
  }
  location.reload();
}

// Ask for what is new, while somebody looks; hand it over, oldest first.
function follow(path, after, take) {
  let paused = false;
  const button = document.querySelector("[data-pause]");
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
  });
  const ask = async () => {
    if (!paused && !document.hidden) {
      try {
        const answer = await fetch(`${prefix}${path}?after=${after}`);
        if (answer.status === 403) { location.reload(); return; }
        const found = answer.ok ? await answer.json() : [];
        if (found.length) after = found.at(-1).number;
        take(found);
      } catch { /* the host is away; it may come back */ }
    }
    setTimeout(ask, 1000);
  };
  ask();
}

// Make an element: a name, attributes, and what is in it, always as text and never as HTML.
function make(name, attributes = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

setUpFilters();
setUpCopying();
waitForJob();
document.querySelector(".side [aria-current], .side .within")?.scrollIntoView({ block: "nearest", inline: "center" });
