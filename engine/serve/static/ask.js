// Ask, show what happens meanwhile, and put the answer into the page and its address.

import { enhance } from "./answer.js";
import { remember } from "./dialogs.js";
import { all, fragment, make, one, pause, reveal, say } from "./dom.js";
import { Problem, events, request, savedKey } from "./server.js";

const STAGES = {
  queued: "Waiting",
  link: "Finding entities",
  write: "Writing paths",
  ground: "Looking up names",
  reach: "Checking paths",
  execute: "Running paths",
  prove: "Fetching evidence",
  repair: "Searching the graph",
};

let form, question, topics, results, progress, cancelButton;
let running = null;
let asked = "";
const shown = new Map(); // address → what the page showed there

export function startAsking() {
  form = one("form.ask");
  if (!form) return;
  question = one("#question");
  topics = one(".topics", form);
  results = one("#results");
  progress = one(".progress");
  cancelButton = one(".cancel", form);
  asked = question.value;
  reveal(...all(".add", form));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask({ question: question.value, topics: chosen(), before: earlier(topics) });
  });
  results.addEventListener("submit", followUp);
  question.addEventListener("input", () => {
    if (question.value !== asked) for (const chip of all("[data-of-question]", topics)) chip.remove();
  });
  cancelButton.addEventListener("click", cancel);
  topics.addEventListener("click", (event) => {
    const drop = event.target.closest("[data-drop-topic], [data-drop-after]");
    if (!drop) return;
    event.preventDefault();
    drop.closest(".topic, .after").remove();
    question.focus();
  });
  document.addEventListener("click", followLink);
  document.addEventListener("kbqa:run", (event) => runPath(event.detail));
  window.addEventListener("popstate", restore);
  suggestEntities(one(".add", form));
  keep();
  all("article.result", results).forEach(enhance);
  const problem = one(".problem", results);
  if (problem) onceReady(problem);
  const article = one("article.result", results);
  if (article) remember(question.value, location.pathname + location.search);
}

export function cancel() {
  if (!running) return false;
  running.abort();
  return true;
}

const chosen = () => all(".topic input", topics).map((input) => input.value);
const earlier = (inside) => all("[name=after]", inside).map((input) => input.value);
const read = (fields) => ({
  question: fields.get("q") ?? "",
  topics: fields.getAll("topic"),
  path: fields.get("path") ?? "",
  before: fields.getAll("after"),
});

function followLink(event) {
  const link = event.target.closest("a[data-ask], .examples a, .history a, a[data-again]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  link.closest("dialog")?.close();
  const asking = read(new URL(link.href).searchParams);
  fill(asking, link.matches("[data-ask]") ? one("bdi", link)?.textContent : null);
  ask(asking);
}

function followUp(event) {
  if (!event.target.matches(".follow")) return;
  event.preventDefault();
  const asking = { question: one("[name=q]", event.target).value, topics: [], before: earlier(event.target) };
  if (!asking.question.trim()) return;
  fill(asking, null);
  ask(asking);
}

function runPath({ article, path }) {
  const { topics: mids } = read(new URL(article.dataset.url, location.href).searchParams);
  const original = "edited" in article.dataset ? article.previousElementSibling : article;
  ask({ question: article.dataset.question, topics: mids, before: [], path }, { original });
}

function fill({ question: text, topics: mids, before }, name) {
  question.value = text;
  asked = text;
  one(".after", topics)?.remove();
  if (before.length) topics.prepend(afterChip(before));
  const names = new Map(all(".topic", topics).map((chip) => [one("input", chip).value, one("bdi", chip).textContent]));
  all(".topic", topics).forEach((chip) => chip.remove());
  mids.forEach((mid, n) => addTopic(mid, names.get(mid) ?? (n === mids.length - 1 && name) ?? mid, true));
}

function afterChip(before) {
  const inputs = before.map((text) => make("input", { type: "hidden", name: "after", value: text }));
  const more = before.length > 1 ? [" ", make("small", { textContent: `and ${before.length - 1} before it` })] : [];
  const drop = make("a", { href: "/", textContent: "✕", ariaLabel: "Not after another question", dataset: { dropAfter: "" } });
  return make("span", { className: "after" }, ...inputs, "After: ", make("bdi", { textContent: before.at(-1) }), ...more, " ", drop);
}

function addTopic(mid, name, isOfQuestion) {
  if (chosen().includes(mid)) return;
  const input = make("input", { type: "hidden", name: "topic", value: mid });
  const drop = make("a", { href: "/", textContent: "✕", ariaLabel: `Not about ${name}`, dataset: { dropTopic: "" } });
  const chip = make("span", { className: "topic" }, input, "About ", make("bdi", { textContent: name || mid }), " ", make("small", { textContent: mid }), " ", drop);
  if (isOfQuestion) chip.dataset.ofQuestion = "";
  topics.insertBefore(chip, one(".add", topics));
}

// An edited path is shown beside the original article.
async function ask(asking, { push = true, original = null } = {}) {
  if (!asking.question.trim() && !asking.path?.trim()) return;
  if ("needsKey" in document.body.dataset && !savedKey()) {
    one("dialog#key").showModal();
    return;
  }
  running?.abort();
  const controller = new AbortController();
  running = controller;
  asked = asking.question;
  begin();
  try {
    const outcome = await stream(asking, controller.signal);
    if (running !== controller) return;
    show(outcome, original);
    if (push && outcome.url !== location.pathname + location.search) history.pushState(null, "", outcome.url);
    document.title = `${asking.question.slice(0, 80) || "A path"} – kbqa`;
    keep();
    remember(asking.question, outcome.url);
    say(outcome.spoken, { isShown: true });
  } catch (error) {
    if (running !== controller) return;
    if (error.name === "AbortError") say("Cancelled.");
    else showProblem(error, () => ask(asking, { push, original }));
  } finally {
    if (running === controller) end();
  }
}

async function stream({ question: text, topics: mids, before, path }, signal) {
  const body = { question: text, topics: mids, ...(path ? { path } : { history: before }) };
  const response = await request(path ? "/page/path" : "/page/ask", { body, signal, accept: "text/event-stream" });
  for await (const { name, data } of events(response)) {
    if (name === "answer") return data;
    if (name === "error") throw new Problem(data);
    tell(name, data);
  }
  throw new Problem({
    code: "lost",
    title: "The connection was lost",
    detail: "The server stopped before it had an answer. Nothing is asked again unless you do so.",
  });
}

function begin() {
  progress.replaceChildren(make("ol", { className: "steps" }), make("p", { className: "known" }));
  progress.hidden = false;
  cancelButton.hidden = false;
  results.setAttribute("aria-busy", "true");
  all(".problem", results).forEach((problem) => problem.remove());
}

function end() {
  running = null;
  progress.hidden = true;
  cancelButton.hidden = true;
  results.removeAttribute("aria-busy");
}

function tell(name, data) {
  const known = one(".known", progress);
  if (name === "queued") {
    step("queued");
    known.textContent = data.position ? `${data.position} before you, about ${Math.ceil(data.eta_s)} s` : "";
  } else if (name === "stage") step(data.stage);
  else if (name === "linked") known.textContent = data.linked.slice(0, 5).map((each) => each.name).join(", ");
  else if (name === "written") known.textContent += ` · ${data.beams.length} paths written`;
}

function step(stage) {
  const steps = one(".steps", progress);
  if (all("li", steps).some((each) => each.dataset.stage === stage)) return;
  one("[aria-current]", steps)?.removeAttribute("aria-current");
  const words = STAGES[stage] ?? stage;
  const item = make("li", { textContent: words, dataset: { stage } });
  item.setAttribute("aria-current", "step");
  steps.append(item);
  say(`${words}.`, { isShown: true });
}

function show(outcome, original) {
  const nodes = fragment(outcome.html);
  if (original) {
    one("article.result[data-edited]", results)?.remove();
    original.after(...nodes);
    const edited = one("article.result[data-edited]", results);
    edited.prepend(difference(original, edited));
    edited.scrollIntoView({ block: "nearest" });
  } else results.replaceChildren(...nodes);
  all("article.result", results).forEach(enhance);
}

function difference(original, edited) {
  const answers = (article) => new Map(all("[data-answer]", article).map((each) => [each.dataset.answer, one("bdi", each).textContent]));
  const [before, after] = [answers(original), answers(edited)];
  const list = (names) => `${names.slice(0, 5).join(", ")}${names.length > 5 ? ` and ${names.length - 5} more` : ""}`;
  const added = [...after].filter(([key]) => !before.has(key)).map(([, name]) => name);
  const gone = [...before].filter(([key]) => !after.has(key)).map(([, name]) => name);
  const parts = [];
  if (added.length) parts.push(`New: ${list(added)}.`);
  if (gone.length) parts.push(`Gone: ${list(gone)}.`);
  if (!parts.length) parts.push("The same answers.");
  return make("p", { className: "difference", textContent: `Against the first answer: ${parts.join(" ")}` });
}

export function showProblem(error, again) {
  const title = error.title ?? "Something went wrong on this page";
  const button = make("button", { type: "button", textContent: "Try again" });
  button.addEventListener("click", again);
  const lines = [make("h2", { textContent: title }), make("p", { textContent: error.detail ?? String(error) }), make("p", { className: "again" }, button)];
  if (error.requestId) lines.push(make("p", {}, make("small", { textContent: `Request ${error.requestId}` })));
  const section = make("section", { className: "problem", ariaLabel: "Problem", dataset: { code: error.code ?? "" } }, ...lines);
  all(".problem", results).forEach((each) => each.remove());
  results.prepend(section);
  say(`${title}.`, { isShown: true });
  countDown(button, error.retryAfter_s);
}

function countDown(button, seconds) {
  if (!seconds) return;
  const label = button.textContent;
  let left = seconds;
  button.disabled = true;
  const tick = () => {
    button.disabled = left > 0;
    button.textContent = left > 0 ? `${label} in ${left} s` : label;
    if (left-- > 0) setTimeout(tick, 1000);
  };
  tick();
}

// The server rendered a problem: while it is starting, ask again as soon as it is ready.
async function onceReady(problem) {
  if (problem.dataset.code !== "starting") return;
  for (let tries = 0; tries < 300 && problem.isConnected; tries++) {
    await new Promise((done) => setTimeout(done, 1000));
    const isReady = await fetch("/readyz").then((response) => response.ok, () => false);
    if (isReady && problem.isConnected) {
      one("[data-again]", problem).click();
      return;
    }
  }
}

function keep() {
  shown.set(location.pathname + location.search, {
    results: all("article.result", results).map((article) => article.dataset.url),
    html: results.innerHTML,
    topics: topics.innerHTML,
    question: question.value,
  });
}

function restore() {
  cancel();
  const page = shown.get(location.pathname + location.search);
  if (page) {
    results.replaceChildren(...fragment(page.html));
    topics.replaceChildren(...fragment(page.topics));
    question.value = page.question;
    asked = page.question;
    suggestEntities(one(".add", form));
    all("article.result", results).forEach(enhance);
    return;
  }
  const asking = read(new URLSearchParams(location.search));
  fill(asking, null);
  ask(asking, { push: false });
}

function suggestEntities(details) {
  const [input, list] = [one("input", details), one("ul", details)];
  const find = pause(250, async () => {
    const name = input.value.trim();
    if (!name) return list.replaceChildren();
    try {
      const found = await (await request(`/api/v1/entities?limit=8&q=${encodeURIComponent(name)}`)).json();
      list.replaceChildren(...found.map(suggestion));
      if (!found.length) list.append(make("li", { textContent: "Nothing has such a name." }));
    } catch (error) {
      list.replaceChildren(make("li", { textContent: error.detail ?? String(error) }));
    }
  });
  const suggestion = ({ mid, name, types }) => {
    const button = make("button", { type: "button", className: "small" }, make("bdi", { textContent: name }), " ", make("small", { textContent: `${mid} ${types[0] ?? ""}` }));
    button.addEventListener("click", () => {
      addTopic(mid, name, false);
      details.open = false;
      input.value = "";
      list.replaceChildren();
      question.focus();
    });
    return make("li", {}, button);
  };
  input.addEventListener("input", find);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    one("button", list)?.click();
  });
}
