// Make an answer work: linked reading, the drawing by keys, graph or table, editing and running.

import { all, make, one, pause, reveal } from "./dom.js";
import { request } from "./server.js";

const ROWS = 100;

export function enhance(article) {
  if ("ready" in article.dataset) return;
  article.dataset.ready = "";
  linkReading(article);
  showEvidence(article);
  one(".graph", article)?.addEventListener("keydown", moveInGraph);
  for (const node of all(".graph g[data-node]", article)) node.setAttribute("tabindex", "-1");
  for (const sentence of all(".sentences li", article)) sentence.tabIndex = 0;
  offerTools(article);
  editPath(article);
  editQuery(article);
  article.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-run]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    run(article, link.dataset.run);
  });
}

const run = (article, path) => document.dispatchEvent(new CustomEvent("kbqa:run", { detail: { article, path } }));

// Light up everything that is about the same part of the path: sentence, arrows, rows, query lines.
function linkReading(article) {
  const linked = all("[data-part]", article);
  const parts = (element) => element.dataset.part.split(" ");
  const light = (chosen) => {
    for (const element of linked) element.classList.toggle("lit", parts(element).some((part) => chosen.includes(part)));
  };
  for (const element of linked) {
    for (const begin of ["pointerenter", "focusin"]) element.addEventListener(begin, () => light(parts(element)));
    for (const end of ["pointerleave", "focusout"]) element.addEventListener(end, () => light([]));
  }
}

function showEvidence(article) {
  const tabs = one(".tabs", article);
  const views = { graph: one(".graph", article), table: one(".table", article) };
  if (!views.graph) return;
  const choose = (wanted) => {
    for (const [name, view] of Object.entries(views)) view.hidden = name !== wanted;
    for (const button of all("button", tabs)) button.setAttribute("aria-pressed", String(button.dataset.shows === wanted));
  };
  for (const button of all("button", tabs)) button.addEventListener("click", () => choose(button.dataset.shows));
  reveal(tabs);
  choose("graph");
}

function moveInGraph(event) {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  const node = event.target.closest("[data-node]");
  if (!step || !node) return;
  event.preventDefault();
  const middle = (element) => {
    const { x, y, width, height } = one("rect, circle", element)?.getBBox() ?? element.getBBox();
    return [x + width / 2, y + height / 2];
  };
  const [x, y] = middle(node);
  const nodes = all("[data-node]", this).filter((each) => each !== node);
  const joined = new Set();
  for (const { dataset: edge } of all("[data-subject]", this)) {
    if (edge.subject === node.dataset.node) joined.add(edge.object);
    if (edge.object === node.dataset.node) joined.add(edge.subject);
  }
  const reachable = nodes.filter((each) => {
    const [otherX, otherY] = middle(each);
    if (step[0]) return joined.has(each.dataset.node) && (otherX - x) * step[0] > 1;
    return Math.abs(otherX - x) < 2 && (otherY - y) * step[1] > 1;
  });
  const far = (each) => Math.abs(middle(each)[0] - x) + Math.abs(middle(each)[1] - y);
  reachable.sort((a, b) => far(a) - far(b))[0]?.focus();
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain http there is no clipboard, but a selection can be copied.
    const [field, focused] = [make("textarea", { className: "unseen", value: text }), document.activeElement];
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    focused?.focus();
    return isCopied;
  }
}

function offerTools(article) {
  const [copy, json] = [one("[data-copy]", article), one("[data-json]", article)];
  copy.addEventListener("click", async () => {
    const names = all("[data-answer] bdi", article).map((each) => each.textContent);
    const isCopied = await copyText(names.join("\n") || one(".big, .nothing", article).textContent);
    copy.textContent = isCopied ? "Copied" : "Not copied: the browser refuses";
  });
  json.addEventListener("click", () => {
    const open = one("pre.json", article);
    if (open) return open.remove();
    const record = JSON.parse(one("script.record", article).textContent);
    const text = make("pre", { className: "json", tabIndex: 0, textContent: JSON.stringify(record, null, 2) });
    one(".answer", article).append(text);
  });
  reveal(copy, json);
}

function editPath(article) {
  const form = one(".edit-path form", article);
  const [text, lint] = [one("textarea", form), one(".lint", form)];
  const check = pause(250, async () => {
    if (!text.value.trim()) return tellLint(lint, "", false);
    try {
      const path = await (await request("/api/v1/paths/check", { body: { path: text.value } })).json();
      if (path.problems.length) tellLint(lint, path.problems.join(" "), true);
      else tellLint(lint, path.crp_words.join(" "), false);
    } catch (error) {
      tellLint(lint, where(error), true);
    }
  });
  text.addEventListener("input", check);
  offerRelations(text, one(".choices", form));
  submitOn(form, text, () => run(article, text.value));
}

// Below the path, list what the graph has where the cursor stands; choosing one completes it.
function offerRelations(text, choices) {
  const offer = pause(250, async () => {
    const before = text.value.slice(0, text.selectionStart);
    if (!/(->|<-)\s*[\w.]*$/.test(before)) return choices.replaceChildren();
    try {
      const relations = await (await request("/page/relations", { body: { path: before } })).json();
      choices.replaceChildren(...relations.map((relation) => make("li", {}, choice(relation))));
    } catch {
      choices.replaceChildren();
    }
  });
  const choice = (relation) => {
    const button = make("button", { type: "button", className: "small", textContent: relation });
    button.addEventListener("click", () => {
      const begun = /[\w.]*$/.exec(text.value.slice(0, text.selectionStart))[0];
      text.setRangeText(relation, text.selectionStart - begun.length, text.selectionEnd, "end");
      choices.replaceChildren();
      text.focus();
      text.dispatchEvent(new Event("input"));
    });
    return button;
  };
  text.addEventListener("input", offer);
}

function editQuery(article) {
  const form = one(".edit-query form", article);
  const [text, lint, rows, toPath] = ["textarea", ".lint", ".rows", "[data-to-path]"].map((each) => one(each, form));
  submitOn(form, text, async () => {
    tellLint(lint, "Running …", false);
    try {
      const options = { body: text.value, type: "application/sparql-query", accept: "application/sparql-results+json" };
      const response = await request("/sparql", options);
      const result = await response.json();
      rows.replaceChildren(...resultNodes(result, response.headers.has("X-Kbqa-Truncated")));
      tellLint(lint, "", false);
    } catch (error) {
      rows.replaceChildren();
      tellLint(lint, where(error), true);
      markLine(text, error.line);
    }
  });
  toPath.addEventListener("click", async () => {
    try {
      const path = await (await request("/api/v1/paths/from-sparql", { body: { query: text.value } })).json();
      const editor = one(".edit-path", article);
      editor.open = true;
      const area = one("textarea", editor);
      area.value = path.crp;
      area.dispatchEvent(new Event("input"));
      area.focus();
    } catch (error) {
      tellLint(lint, where(error), true);
    }
  });
  reveal(toPath);
}

function submitOn(form, text, work) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    work();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

const where = (error) => `${error.line ? `Line ${error.line}: ` : ""}${error.detail ?? String(error)}`;

function tellLint(lint, text, isWrong) {
  lint.textContent = text;
  lint.classList.toggle("wrong", isWrong);
}

function markLine(text, line) {
  if (!line) return;
  const lines = text.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
}

function resultNodes(result, isCut) {
  if ("boolean" in result) return [make("p", { className: "big", textContent: result.boolean ? "Yes" : "No" })];
  const { vars } = result.head;
  const { bindings } = result.results;
  const head = make("tr", {}, ...vars.map((name) => make("th", { scope: "col", textContent: name })));
  const body = bindings.slice(0, ROWS).map((row) => make("tr", {}, ...vars.map((name) => make("td", {}, cell(row[name])))));
  const count = `${bindings.length.toLocaleString("en")}${isCut ? " or more" : ""} rows${bindings.length > ROWS ? `, ${ROWS} shown` : ""}`;
  return [make("p", { className: "faint", textContent: count }), make("table", {}, make("thead", {}, head), make("tbody", {}, ...body))];
}

function cell(term) {
  if (!term) return "";
  const id = term.value.replace("http://rdf.freebase.com/ns/", "");
  const name = make("bdi", { textContent: id });
  if (term.type !== "uri" || !/^[mg]\.[0-9a-z_]+$/.test(id)) return name;
  return make("a", { href: `/entity/${id}` }, name);
}
