// Shared by all pages of the console: filters, copying, and waiting for a job.
"use strict";

const prefix = "/q/dev";

// Filters: a list marked data-list shows the items whose text contains every word.
function applyFilter(name) {
  const list = document.querySelector(`[data-list="${name}"]`);
  if (!list) return;
  const words = document.querySelector(`[data-filter="${name}"]`).value.toLowerCase().split(/\s+/).filter(Boolean);
  const only = document.querySelector(`[data-only="${name}"]`);
  const items = list.querySelectorAll("[data-item]");
  let shown = 0;
  for (const item of items) {
    const text = item.textContent.toLowerCase();
    const hidden =
      !words.every((word) => text.includes(word)) ||
      (only?.checked && !item.hasAttribute("data-changed"));
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

function setUpCopying(root) {
  for (const button of root.querySelectorAll("[data-copy]")) {
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

// A form marked data-inline is sent in the background, and one element of the response replaces one of this page.
// A form marked data-confirm asks for confirmation.
function setUpForms() {
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (form.dataset.confirm && !form.confirmed) {
      event.preventDefault();
      if (await confirmed(form.dataset.confirm)) { form.confirmed = true; form.requestSubmit(event.submitter); form.confirmed = false; }
      return;
    }
    if (!form.dataset.inline) return;
    event.preventDefault();
    const place = document.querySelector(form.dataset.inline);
    event.submitter?.setAttribute("aria-busy", "true");
    try {
      const body = new URLSearchParams(new FormData(form, event.submitter));
      const answer = await fetch(form.action, { method: "post", body });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.querySelector(form.dataset.inline) ?? page.querySelector("main");
      place.replaceChildren(...document.adoptNode(found).childNodes);
      setUpCopying(place);
    } catch {
      place.replaceChildren(make("p", { class: "notice bad" }, "The host did not respond."));
    }
    event.submitter?.removeAttribute("aria-busy");
    place.focus({ preventScroll: true });
    place.scrollIntoView({ block: "nearest" });
  });
}

function confirmed(question) {
  const dialog = make("dialog", { "aria-labelledby": "question" }, make("p", { id: "question" }, question),
    make("form", { method: "dialog", class: "tools" }, make("button", { value: "yes" }, "Continue"), make("button", { value: "", class: "quiet", autofocus: "" }, "Cancel")));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); }));
}

// A job runs in the host, which also renders its result.
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

// Follow a feed while the tab is visible. The form data-live filters it.
// `take(found, fresh)` gets new items, oldest first, or all items if `fresh` is true.
function follow(path, known, take) {
  const form = document.querySelector("[data-live]");
  const pause = document.querySelector("[data-pause]");
  let after = known, paused = false, round = 0, asking = 0;
  const wanted = () => new URLSearchParams([...new FormData(form)]).toString();
  const ask = async (fresh) => {
    const mine = round;
    asking += 1;
    try {
      const answer = await fetch(`${prefix}${path}?after=${fresh ? 0 : after}&${wanted()}`);
      if (answer.status === 403) { location.reload(); return; }
      const found = answer.ok ? await answer.json() : [];
      if (mine !== round) return; // asked again meanwhile, for something else
      after = Math.max(fresh ? 0 : after, ...found.map((each) => each.number));
      take(found, fresh);
    } catch { /* the host is away; it may come back */ } finally { asking -= 1; }
  };
  const again = () => {
    round += 1;
    history.replaceState(null, "", `?${wanted()}`);
    ask(true);
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
  });
  form.querySelector("[data-apply]").hidden = true;
  form.addEventListener("submit", (event) => { event.preventDefault(); again(); });
  form.addEventListener("input", () => { clearTimeout(form.pending); form.pending = setTimeout(again, 150); });
  setInterval(() => { if (!paused && !document.hidden && !asking) ask(false); }, 1000);
}

// Ids are shortened. A click shows the whole id, also after the next update.
const whole = new Set();

function setUpIds() {
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("button.id");
    if (!button) return;
    whole.add(button.dataset.whole);
    button.replaceWith(id(button.dataset.whole));
  });
}

function id(text) {
  if (text.length <= 12) return make("code", { class: "id" }, text);
  if (whole.has(text)) return make("code", { class: "id whole" }, text);
  return make("button", { type: "button", class: "id", "data-whole": text, title: "Show the whole id" }, `${text.slice(0, 8)}…`);
}

// Make an element from a name, attributes and content, which is always text, never HTML.
function make(name, attributes = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

setUpFilters();
setUpCopying(document);
setUpForms();
setUpIds();
waitForJob();
document.querySelector(".side [aria-current], .side .within")?.scrollIntoView({ block: "nearest", inline: "center" });
