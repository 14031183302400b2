// Events of the host reach every tab at once. A tab that can be updated without loss of input is.
"use strict";

const status = document.querySelector("[data-news]");
const AWAY = "The host does not respond. This page shows what was last known.";
const OVER = "This session has ended. Run plughost dev-console, and open the new link.";
let stream = null, stale = "";

// What the page shows is old while the host is away, or when the session has ended.
function tellStale(text) {
  if (text === stale) return;
  stale = status.textContent = text;
  document.querySelector(".state").hidden = text !== "";
}

async function findWhy() {
  try {
    if ((await fetch(`${prefix}/vitals`)).status === 403) tellStale(OVER);
  } catch { tellStale(AWAY); }
}

async function drawAgain() {
  const focused = document.activeElement?.id;
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of [".state", ".side", ...(document.body.hasAttribute("data-redraw") ? ["main"] : [])]) {
    const [old, fresh] = [document.querySelector(part), page.querySelector(part)];
    if (old && fresh) old.replaceChildren(...document.adoptNode(fresh).childNodes);
  }
  document.body.dataset.generation = page.body.dataset.generation;
  setUpFilters();
  setUpCopying(document);
  document.getElementById(focused)?.focus();
}

function listen() {
  if (stream || document.hidden) return;
  stream = new EventSource(`${prefix}/events`);
  stream.addEventListener("error", findWhy);
  stream.addEventListener("open", () => {
    if (!stale) return;
    tellStale("");
    drawAgain().catch(findWhy);
  });
  stream.addEventListener("state", async ({ data }) => {
    const news = JSON.parse(data);
    if (String(news.generation) === document.body.dataset.generation && news.old) return;
    if (document.querySelector("#result[data-job]")) return; // this tab waits for the result, and shows it
    try { await drawAgain(); } catch { return; }
    status.textContent = news.text;
  });
}

// A browser opens at most six streams to a host, so a hidden tab closes its stream.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; } else listen();
});
listen();
