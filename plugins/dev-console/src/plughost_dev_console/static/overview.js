// The vital signs, updated every two seconds.
"use strict";

setInterval(async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(`${prefix}/vitals`);
    if (answer.status === 403) tellStale(OVER);
    const place = document.querySelector("[data-vitals]");
    if (!answer.ok || place.contains(document.activeElement)) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...document.adoptNode(page.body).children);
  } catch { /* the event stream tells */ }
}, 2000);
