// What happens to the host reaches every tab at once; one that can be drawn again without loss is.
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

// A browser opens six streams to a host at most: a tab that nobody sees gives its own back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream?.close(); stream = null; } else listen();
});
listen();
