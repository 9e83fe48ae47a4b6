// The keyboard. Single letters work outside of fields only, and can be switched off.

import { cancel } from "./ask.js";
import { all, one, read } from "./dom.js";

const current = () => all("article.result").at(-1);

function open(...selectors) {
  const article = current();
  if (!article) return;
  const details = selectors.map((selector) => one(selector, article));
  for (const each of details) each.open = true;
  one("textarea", details.at(-1)).focus();
}

const ACTIONS = {
  "/": () => one("#question")?.focus(),
  "?": () => one("dialog#keys").showModal(),
  e: () => open(".edit-path"),
  s: () => open(".query", ".edit-query"),
  g: () => one("[data-shows=graph]", current())?.click(),
  t: () => one("[data-shows=table]", current())?.click(),
};

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && cancel()) event.preventDefault();
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, dialog[open]")) return;
    if (!read(localStorage, "kbqa.single-keys", true)) return;
    const isDigit = /^[1-9]$/.test(event.key) && current();
    if (!isDigit && !Object.hasOwn(ACTIONS, event.key)) return;
    if (!current() && "egst".includes(event.key)) return;
    event.preventDefault();
    if (isDigit) all(".candidates > ol > li", current())[event.key - 1]?.querySelector("[data-run]")?.click();
    else ACTIONS[event.key]();
  });
}
