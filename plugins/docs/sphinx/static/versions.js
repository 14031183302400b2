// The menu of versions, made of versions.json beside the front page; with one version there is none.
"use strict";

(async () => {
  const root = new URL("..", document.currentScript.src);
  if (root.protocol === "file:") return; // a browser reads no file for a page of files
  const answer = await fetch(new URL("versions.json", root));
  if (!answer.ok) return;
  const page = location.href.startsWith(root.href) ? location.pathname.slice(root.pathname.length) : "";
  const versions = (await answer.json()).map(({ name, url }) => ({ name, url: new URL(url, root) }));
  document.documentElement.dataset.versions = versions.length;
  if (versions.length < 2) return;

  const here = versions.find(({ url }) => url.href === root.href);
  const menu = document.createElement("details");
  menu.className = "versions";
  menu.append(Object.assign(document.createElement("summary"), { textContent: `Version ${here?.name ?? "…"}` }));
  const list = menu.appendChild(document.createElement("ul"));
  for (const { name, url } of versions) {
    const same = new URL(page, url);
    const link = Object.assign(document.createElement("a"), { textContent: name, href: same.href });
    if (url.href === root.href) link.setAttribute("aria-current", "true");
    link.addEventListener("click", async (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const there = await fetch(same, { method: "HEAD" }).then(({ ok }) => ok, () => false);
      location.assign(there ? same : new URL("index.html", url)); // another version may not have this page
    });
    list.appendChild(document.createElement("li")).append(link);
  }
  document.querySelector(".sidebar-brand").after(menu);
})();
