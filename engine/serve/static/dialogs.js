// What stands around the page: theme, keys, history, API key.

import { all, make, one, parse, read, reveal, write } from "./dom.js";
import { request, savedKey } from "./server.js";

const MOST = 50;

export function startDialogs() {
  for (const button of all("[data-opens]")) {
    const dialog = one(`dialog#${button.dataset.opens}`);
    button.addEventListener("click", () => {
      if (dialog.id === "history") listHistory();
      dialog.showModal();
    });
    if (button.dataset.opens !== "key" || "needsKey" in document.body.dataset) reveal(button);
  }
  reveal(...all(".with-script"));
  const toggle = one("[data-theme-toggle]");
  toggle.addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const theme = (document.documentElement.dataset.theme ?? system) === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("kbqa.theme", theme);
    } catch {
      // It holds until the next page.
    }
  });
  reveal(toggle);
  one("[data-clear-history]").addEventListener("click", () => {
    write(localStorage, "kbqa.history", []);
    listHistory();
  });
  const single = one("[data-single-keys]");
  single.checked = read(localStorage, "kbqa.single-keys", true);
  single.addEventListener("change", () => write(localStorage, "kbqa.single-keys", single.checked));
  useKey(one("dialog#key"));
}

export function remember(question, url) {
  if (!url) return;
  const kept = read(localStorage, "kbqa.history", []).filter((each) => each.url !== url);
  write(localStorage, "kbqa.history", [{ question, url }, ...kept].slice(0, MOST));
}

function listHistory() {
  const kept = read(localStorage, "kbqa.history", []);
  const items = kept.map(({ question, url }) => make("li", {}, make("a", { href: url, textContent: question || "A path" })));
  one("ol.history").replaceChildren(...(items.length ? items : [make("li", { textContent: "Nothing yet." })]));
}

function useKey(dialog) {
  const form = one("form", dialog);
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "save") return;
    write(sessionStorage, "kbqa.key", form.elements.key.value.trim());
    form.reset();
    location.reload();
  });
}

// A server that wants keys renders nothing for a plain visit: fetch the page again with the key.
export async function loadWithKey() {
  if (!("needsKey" in document.body.dataset) || !savedKey()) return;
  const response = await request(location.href, { accept: "text/html" });
  const page = parse(await response.text());
  if (!page.querySelector("main") || "needsKey" in page.body.dataset) return;
  delete document.body.dataset.needsKey;
  document.title = page.title;
  one("main").replaceWith(document.adoptNode(page.querySelector("main")));
}
