// Look around from an entity: one relation is open at a time, and the address says which.

import { all, make, one, pause, reveal, say } from "./dom.js";
import { request } from "./server.js";

const SHOWN = 20;

export function startBrowsing() {
  const article = one("article.entity");
  if (!article) return;
  const mid = article.dataset.mid;
  const items = all("[data-relation]", article);

  article.addEventListener("click", (event) => {
    const link = event.target.closest("a.relation");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const { relation, direction } = link.closest("li").dataset;
    const isOpen = link.getAttribute("aria-expanded") === "true";
    const address = `/entity/${encodeURIComponent(mid)}`;
    const fields = new URLSearchParams({ relation, direction });
    history.pushState(null, "", isOpen ? address : `${address}?${fields}`);
    follow();
  });
  article.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-more]");
    if (!link) return;
    event.preventDefault();
    const item = link.closest("[data-relation]");
    load(item, all(".ends li", item).length);
  });
  window.addEventListener("popstate", follow);

  function follow() {
    const fields = new URLSearchParams(location.search);
    for (const item of items) {
      one(".ends", item)?.remove();
      one("a.relation", item).setAttribute("aria-expanded", "false");
    }
    const [relation, direction] = [fields.get("relation"), fields.get("direction") ?? "out"];
    const item = items.find(({ dataset }) => dataset.relation === relation && dataset.direction === direction);
    if (item) load(item, 0);
  }

  async function load(item, offset) {
    const { relation, direction } = item.dataset;
    const fields = new URLSearchParams({ relation, direction, limit: SHOWN, offset });
    one("a.relation", item).setAttribute("aria-expanded", "true");
    const ends = one(".ends", item) ?? item.appendChild(make("div", { className: "ends" }, make("ul"), make("p", { className: "more" })));
    try {
      const found = await (await request(`/api/v1/entities/${encodeURIComponent(mid)}/neighbours?${fields}`)).json();
      one("ul", ends).append(...found.neighbours.map(end));
      const shown = all("li", ends).length;
      const total = one(".count", item).textContent;
      const words = `${shown.toLocaleString("en")} of ${total}`;
      const more = make("a", { href: "#", textContent: "more", dataset: { more: "" } });
      one(".more", ends).replaceChildren(words, ...(found.truncated ? [" · ", more] : []));
      say(`${words} shown.`);
    } catch (error) {
      one(".more", ends).textContent = error.detail ?? String(error);
    }
  }

  const filter = one("input.filter", article);
  filter.addEventListener("input", pause(100, () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const item of items) item.hidden = !item.dataset.relation.toLowerCase().includes(wanted);
    for (const domain of all(".domain", article)) domain.hidden = !one("[data-relation]:not([hidden])", domain);
    const left = items.filter((item) => !item.hidden).length;
    say(wanted ? `${left} relations.` : "");
  }));
  reveal(one("p.filter", article));
}

function end({ mid, name }) {
  const label = make("bdi", { textContent: name });
  const isEntity = mid && /^[mg]\.[0-9a-z_]+$/.test(mid);
  return make("li", {}, isEntity ? make("a", { href: `/entity/${mid}` }, label) : label);
}
