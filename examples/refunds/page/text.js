// Texts of models and events. The page shows them with textContent only, never as HTML.

const HIDDEN = /(?![\t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const texts = new WeakMap();

export const byId = (id) => document.getElementById(id);

export function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) setText(element, text);
  return element;
}

// Sets a property that is an attribute of the document, if it has another value.
export function set(element, property, value) {
  if (element[property] !== value) element[property] = value;
}

// Characters without a shape get their code, so that a text cannot look like another one.
export function setText(element, text) {
  if (texts.get(element) === text) return;
  texts.set(element, text);
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.dataset.code = `U+${match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    mark.textContent = match[0];
    parts.push(text.slice(end, match.index), mark);
    end = match.index + match[0].length;
  }
  element.replaceChildren(...parts, text.slice(end));
}

export function clock(milliseconds) {
  const time = new Date(milliseconds);
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday ? time.toLocaleTimeString() : time.toLocaleString();
}

export function span(milliseconds) {
  const minutes = Math.round(Math.abs(milliseconds) / 60000);
  if (minutes < 1) return "less than a minute";
  if (minutes < 120) return `${minutes} min`;
  return minutes < 48 * 60 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} days`;
}

export function who(decision) {
  const by = decision.by || "a person without a name";
  return decision.at ? `by ${by}, ${clock(decision.at)}` : `by ${by}`;
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
