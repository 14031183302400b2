// Live requests, and a plot of response times for each plugin.
"use strict";

const WINDOW = 120; // seconds
const MOST = 500;
const MOST_PLOTS = 12;
const SVG = "http://www.w3.org/2000/svg";
const width = 320, height = 110, left = 44, bottom = 14;
const body = document.querySelector("[data-requests]");
const count = document.querySelector("[data-count]");
const told = document.querySelector("[data-told]");

function row(each) {
  const link = make("a", { class: "plain", href: `${prefix}/requests/${each.number}` },
    make("span", { class: `method ${each.method.toLowerCase().replace(/[^a-z]/g, "")}` }, each.method), " ", make("code", { class: "path" }, each.path));
  return make("tr", { "data-at": each.at, "data-ms": each.ms, "data-plugin": each.plugin, "data-status": each.status },
    make("td", { class: "time" }, each.time), make("td", {}, link),
    make("td", {}, make("span", { class: `status s${Math.floor(each.status / 100)}` }, String(each.status))),
    make("td", { class: "number", "data-label": "ms" }, each.ms.toFixed(2)), make("td", { "data-label": "Plugin" }, each.plugin || "none"),
    make("td", { "data-label": "Site" }, each.site), make("td", {}, id(each.id)));
}

let number = Number.parseInt(count.textContent.replaceAll(",", ""), 10);

function take(found, fresh) {
  if (fresh) { body.replaceChildren(); number = 0; }
  if (found.length || fresh) {
    const slowest = document.querySelector("#order").value === "slowest";
    number += found.length;
    body.prepend(...found.slice(-MOST).toReversed().map(row));
    if (slowest && !fresh) body.append(...[...body.children].sort((one, other) => other.dataset.ms - one.dataset.ms));
    while (body.children.length > MOST) body.lastElementChild.remove();
    document.querySelector("[data-empty]").hidden = body.children.length > 0;
    count.textContent = `${number.toLocaleString("en")} request${number === 1 ? "" : "s"}`;
    told.textContent = found.length === 1 ? `${found[0].method} ${found[0].path}: ${found[0].status}` : `${found.length} ${fresh ? "" : "new "}requests`;
  }
  draw();
}

function draw() {
  const now = Date.now() / 1000;
  const plugins = new Map();
  for (const { dataset } of body.children) {
    const age = now - Number(dataset.at);
    if (age > WINDOW) continue;
    const name = dataset.plugin || "no plugin";
    if (!plugins.has(name)) plugins.set(name, []);
    plugins.get(name).push({ age: Math.max(age, 0), ms: Number(dataset.ms), status: Number(dataset.status) });
  }
  const all = [...plugins.values()].flat().map((each) => each.ms);
  const top = Math.max(1, Math.ceil(Math.log10(Math.max(1, ...all))));
  const busiest = [...plugins].sort((one, other) => other[1].length - one[1].length).slice(0, MOST_PLOTS);
  busiest.sort((one, other) => one[0].localeCompare(other[0]));
  document.querySelector("[data-plots]").replaceChildren(...busiest.map(([name, points]) => plot(name, points, top)));
  document.querySelector("[data-legend]").hidden = !busiest.length;
}

function plot(name, points, top) {
  const sorted = points.map((each) => each.ms).sort((one, other) => one - other);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  const figures = `${points.length} · median ${written(at(0.5))} · p95 ${written(at(0.95))}`;
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Latency of ${name} in the last two minutes: ${figures}` });
  const y = (ms) => {
    const share = (Math.log10(Math.max(ms, 0.01)) + 2) / (top + 2);
    return (height - bottom) - share * (height - bottom - 8);
  };
  for (let power = -2; power <= top; power += 1) {
    const level = y(10 ** power);
    picture.append(shape("line", { x1: left, x2: width, y1: level, y2: level }));
    if ((power - top) % 2) continue; // every other line has a figure
    const label = shape("text", { x: left - 4, y: level + 3, "text-anchor": "end" });
    label.textContent = written(10 ** power);
    picture.append(label);
  }
  for (const [label, x, anchor] of [["2 min ago", left, "start"], ["now", width - 2, "end"]]) {
    const text = shape("text", { x, y: height - 2, "text-anchor": anchor });
    text.textContent = label;
    picture.append(text);
  }
  for (const { age, ms, status } of points) picture.append(mark(width - 4 - (age / WINDOW) * (width - left - 8), y(ms), status));
  return make("figure", { class: "plot" }, make("figcaption", {}, make("b", {}, name), make("span", {}, figures)), picture);
}

// Each colour has its own shape, for people who can't distinguish the colours.
function mark(x, y, status) {
  if (status >= 500) return shape("rect", { class: "mark server", x: x - 2.5, y: y - 2.5, width: 5, height: 5 });
  if (status >= 400) return shape("path", { class: "mark client", d: `M${x} ${y - 3.2}l3.2 5.6h-6.4z` });
  return shape("circle", { class: "mark ok", cx: x, cy: y, r: 2.4 });
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function written(ms) {
  return ms >= 1000 ? `${(ms / 1000).toPrecision(2)} s` : `${ms >= 10 ? Math.round(ms) : Number(ms.toPrecision(2))} ms`;
}

draw();
follow("/requests/new", Number(body.dataset.last), take);
