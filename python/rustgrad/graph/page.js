"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const graph = JSON.parse(byId("data").textContent);
  const stage = byId("stage"), svg = stage.querySelector("svg"), tip = byId("tip"), root = document.documentElement;
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const boxes = new Map([...svg.querySelectorAll(".node")].map((box) => [box.dataset.id, box]));
  const edges = [...svg.querySelectorAll(".edge")];

  // ---- words ----------------------------------------------------------------------------------------------------

  const size = (bytes) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let k = 0;
    for (; bytes >= 1023.95 && k < units.length - 1; k += 1) bytes /= 1024;
    return `${k ? bytes.toFixed(1) : bytes} ${units[k]}`;
  };
  const shape = (value) => `${value.shape.join("×") || "scalar"} ${value.dtype}`;
  const element = (tag, text, attributes = {}) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...[].concat(text));
    return made;
  };

  const facts = (node) => {
    const rows = [];
    node.outputs.forEach((output, k) => rows.push([node.outputs.length > 1 ? `output ${k}` : "output", shape(output)]));
    if (node.module !== null) rows.push(["module", node.module || "(the model)"]);
    if (node.line) rows.push(["line", `${node.line.file}:${node.line.line} in ${node.line.function}`]);
    for (const entry of node.saved) {
      const whose = entry.owned ? " of a leaf" : entry.shared ? ", shared" : "";
      const where = entry.storage === null ? "put away by hooks" : size(entry.bytes) + whose;
      rows.push([`keeps ${entry.name}`, `${shape(entry)}, ${where}`]);
    }
    if (node.saved.length > 1) rows.push(["in all", size(node.saved_bytes)]);
    if (node.freed) rows.push(["freed", "a backward has let go of what it kept"]);
    const hooks = Object.entries(node.hooks).filter(([, count]) => count).map(([kind, count]) => `${count} ${kind}`);
    if (hooks.length) rows.push(["hooks", hooks.join(", ")]);
    if (node.retained.length) rows.push(["retains grad", `of output ${node.retained.join(", ")}`]);
    if (node.sequence !== null) rows.push(["number", String(node.sequence)]);
    return rows;
  };
  const whereabouts = (node) => {
    const line = node.line ? `${node.line.file.split("/").pop()}:${node.line.line}` : "";
    return [node.module || "", line].filter(Boolean).join(" · ");
  };
  const card = (node) => {
    const list = element("dl", facts(node).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
    const heading = node.kind === "cut" ? "More nodes than are drawn" : node.kind === "op" ? node.name : node.label;
    return element("div", [element("h3", heading), list], { className: "card" });
  };

  // ---- moving and enlarging -------------------------------------------------------------------------------------

  const whole = svg.viewBox.baseVal, full = { width: whole.width, height: whole.height };
  const view = { x: 0, y: 0, scale: 1 }; // the picture's point in the upper left corner, and pixels a unit
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.setAttribute("preserveAspectRatio", "xMinYMin meet");

  const show = () => {
    const { clientWidth: w, clientHeight: h } = stage;
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${w / view.scale} ${h / view.scale}`);
  };
  const centre = (x, y) => {
    view.x = x - stage.clientWidth / view.scale / 2;
    view.y = y - stage.clientHeight / view.scale / 2;
    show();
  };
  const zoom = (factor, px = stage.clientWidth / 2, py = stage.clientHeight / 2) => {
    const scale = Math.min(Math.max(view.scale * factor, 0.02), 6);
    view.x += px / view.scale - px / scale;
    view.y += py / view.scale - py / scale;
    view.scale = scale;
    show();
  };
  const fit = () => {
    view.scale = Math.min(stage.clientWidth / full.width, stage.clientHeight / full.height, 1.6);
    centre(full.width / 2, full.height / 2);
  };
  const begin = () => {
    fit();
    if (view.scale >= 0.75) return;
    // Too large to be read as a whole: the upper end, where the inputs are, at a legible size.
    view.scale = Math.min(Math.max(stage.clientWidth / full.width, 0.8), 1);
    centre(full.width / 2, stage.clientHeight / view.scale / 2);
  };

  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const frame = stage.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });

  const fingers = new Map();
  let moved = 0;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, event);
    moved = 0;
  });
  stage.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const frame = stage.getBoundingClientRect();
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    if (fingers.size === 2) {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const distance = (e) => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY);
      zoom(distance(event) / Math.max(distance(before), 1), other.clientX - frame.left, other.clientY - frame.top);
    }
    moved += Math.abs(dx) + Math.abs(dy);
    if (moved > 4) {
      if (!stage.hasPointerCapture(event.pointerId)) stage.setPointerCapture(event.pointerId);
      stage.classList.add("dragging");
      tip.hidden = true;
    }
    view.x -= dx / view.scale;
    view.y -= dy / view.scale;
    fingers.set(event.pointerId, event);
    show();
  });
  const lift = (event) => {
    fingers.delete(event.pointerId);
    if (!fingers.size) stage.classList.remove("dragging");
  };
  stage.addEventListener("pointerup", lift);
  stage.addEventListener("pointercancel", lift);

  // ---- pointing and choosing ------------------------------------------------------------------------------------

  const mark = (id) => {
    for (const box of boxes.values()) box.classList.remove("near");
    for (const edge of edges) {
      const touches = edge.dataset.from === id || edge.dataset.to === id;
      edge.classList.toggle("near", touches);
      if (touches) for (const end of [edge.dataset.from, edge.dataset.to]) boxes.get(end).classList.add("near");
    }
  };
  const choose = (id, bring) => {
    for (const box of boxes.values()) box.classList.remove("chosen");
    const box = boxes.get(id);
    box.classList.add("chosen");
    byId("chosen").replaceChildren(card(nodes.get(id)));
    if (!bring) return;
    const { x, y, width, height } = box.getBBox();
    view.scale = Math.max(view.scale, 0.8);
    centre(x + width / 2, y + height / 2);
  };
  const boxOf = (event) => event.target.closest(".node");

  stage.addEventListener("pointerover", (event) => {
    const box = boxOf(event);
    mark(box && box.dataset.id);
    tip.hidden = !box || stage.classList.contains("dragging");
    if (box) tip.replaceChildren(card(nodes.get(box.dataset.id)));
  });
  stage.addEventListener("pointerleave", () => { mark(null); tip.hidden = true; });
  stage.addEventListener("pointermove", (event) => {
    if (tip.hidden) return;
    const frame = stage.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const beside = (at, room, own) => (at + 16 + own > room ? Math.max(at - 16 - own, 4) : at + 16);
    tip.style.left = `${beside(x, frame.width, tip.offsetWidth)}px`;
    tip.style.top = `${beside(y, frame.height, tip.offsetHeight)}px`;
  });
  stage.addEventListener("click", (event) => {
    const box = boxOf(event);
    if (box && moved <= 4) choose(box.dataset.id, false);
  });

  // ---- the table ------------------------------------------------------------------------------------------------

  const heavy = graph.nodes.filter((node) => node.saved_bytes).sort((a, b) => b.saved_bytes - a.saved_bytes).slice(0, 12);
  for (const node of heavy) {
    const share = element("span", "", { className: "share" });
    share.style.width = `${Math.max((100 * node.saved_bytes) / heavy[0].saved_bytes, 2)}%`;
    const row = element("tr", [
      element("td", [node.label, element("span", whereabouts(node), { className: "where" })]),
      element("td", node.outputs.map(shape).join(", ")),
      element("td", [size(node.saved_bytes), share], { className: "size" }),
    ], { tabIndex: 0 });
    row.dataset.id = node.id;
    row.addEventListener("click", () => choose(node.id, true));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(node.id, true); });
    byId("heavy").append(row);
  }
  byId("weights").querySelector("table").hidden = !heavy.length;
  byId("weightless").hidden = heavy.length > 0;

  // ---- search ---------------------------------------------------------------------------------------------------

  const search = byId("search");
  const words = new Map(graph.nodes.map((node) =>
    [node.id, [node.label, node.name, ...facts(node).flat()].join(" ").toLowerCase()]));
  let hits = [], at = -1;
  const look = () => {
    const wanted = search.value.trim().toLowerCase();
    hits = wanted ? [...words].filter(([, text]) => text.includes(wanted)).map(([id]) => id) : [];
    at = -1;
    svg.classList.toggle("searching", wanted !== "");
    for (const [id, box] of boxes) box.classList.toggle("hit", hits.includes(id));
    byId("found").value = wanted ? `${hits.length} found${hits.length ? "; Enter goes through them" : ""}` : "";
  };
  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { search.value = ""; look(); search.blur(); }
    if (event.key !== "Enter" || !hits.length) return;
    at = (at + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
    byId("found").value = `${at + 1} of ${hits.length}`;
    choose(hits[at], true);
  });

  // ---- tools ----------------------------------------------------------------------------------------------------

  const dark = matchMedia("(prefers-color-scheme: dark)");
  root.classList.toggle("dark", dark.matches);
  dark.addEventListener("change", () => root.classList.toggle("dark", dark.matches));
  const tools = { theme: () => root.classList.toggle("dark"), fit, in: () => zoom(1.3), out: () => zoom(1 / 1.3) };
  for (const [id, act] of Object.entries(tools)) byId(id).addEventListener("click", act);
  const keys = { "/": () => search.focus(), "+": tools.in, "=": tools.in, "-": tools.out, 0: fit };
  document.addEventListener("keydown", (event) => {
    if (event.target === search || event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(show).observe(stage);
  begin();
})();
