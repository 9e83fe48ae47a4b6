// Talk to the server: requests with the user's key, problems, streams of events.

import { read } from "./dom.js";

export class Problem extends Error {
  constructor({ title, detail, code = "", line = null, retry_after_s = null, request_id = "" }) {
    super(detail);
    Object.assign(this, { title, detail, code, line, requestId: request_id });
    this.retryAfter_s = retry_after_s;
  }
}

export const savedKey = () => read(sessionStorage, "kbqa.key", "");

export async function request(url, { body, type = "application/json", accept, signal } = {}) {
  const headers = {};
  if (accept) headers.Accept = accept;
  if (body !== undefined) headers["Content-Type"] = type;
  if (savedKey()) headers.Authorization = `Bearer ${savedKey()}`;
  const text = type === "application/json" && body !== undefined ? JSON.stringify(body) : body;
  let response;
  try {
    response = await fetch(url, { method: text === undefined ? "GET" : "POST", headers, body: text, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      code: "unreachable",
      title: "The server does not respond",
      detail: "It may have stopped, or the connection broke. Try again in a moment.",
    });
  }
  if (!response.ok && !(accept ?? "").startsWith("text/html")) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  try {
    return new Problem(await response.json());
  } catch {
    return new Problem({ title: "The server failed", detail: `It answered with status ${response.status}.` });
  }
}

export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return;
    }
    if (piece.done) return;
    text += piece.value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      if (data !== undefined) yield { name: field("event"), data: JSON.parse(data) };
    }
  }
}
