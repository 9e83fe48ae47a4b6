// Build and change the document. Texts only ever become text nodes; HTML only comes from the server,
// which escapes it, and passes through one Trusted Types policy.

const policy = globalThis.trustedTypes?.createPolicy("kbqa", { createHTML: (html) => html }) ?? {
  createHTML: (html) => html,
};

export const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
export const one = (selector, inside = document) => inside.querySelector(selector);

export function make(tag, properties = {}, ...children) {
  const { dataset = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, dataset);
  element.append(...children);
  return element;
}

export function parse(html) {
  const parsed = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
  return parsed;
}

export function fragment(html) {
  return [...parse(html).body.childNodes].map((node) => document.adoptNode(node));
}

// Tell screen readers; what the page shows anyway need not be seen here.
export function say(text, { isShown = false } = {}) {
  const status = one(".status");
  status.classList.toggle("unseen", isShown);
  if (status.textContent !== text) status.textContent = text;
}

export function reveal(...elements) {
  for (const element of elements) if (element) element.hidden = false;
}

export function pause(wait_ms, work) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait_ms);
  };
}

export function read(storage, name, otherwise) {
  try {
    return JSON.parse(storage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function write(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
  } catch {
    // Full or forbidden: the page works without remembering.
  }
}
