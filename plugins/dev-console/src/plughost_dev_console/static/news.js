// Events of the host reach every tab at once. A tab that can be updated without loss of input is.
"use strict";

const status = document.querySelector("[data-news]");
let stream = null;

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
