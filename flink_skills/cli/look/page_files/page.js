"use strict";
// Shared part of all pages: data, elements, numbers, and a list that can be searched with the keyboard.
// No text of the data becomes markup, an attribute that runs code, or a link.
const data = JSON.parse(document.getElementById("data").textContent);

// In the data, an invisible character is "U+…" between these two private characters.
const HIDDEN = /\ue000(U\+[0-9A-F]+)\ue001/;
const plain = (text) => text.replace(new RegExp(HIDDEN, "g"), "$1");

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null) made.setAttribute(key, plain(String(value)));
  }
  for (const child of children.flat(Infinity)) {
    if (child instanceof Node) made.append(child);
    else if (child !== null && child !== undefined && child !== false) {
      String(child).split(HIDDEN).forEach((part, index) => made.append(index % 2 ? element("mark", {}, part) : part));
    }
  }
  return made;
};

const number = (value) => value.toLocaleString("en-US");
const counted = (value, noun) => `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
const size = (bytes) => {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KB", "MB", "GB"];
  let value = bytes / 1024;
  while (value >= 1024 && units.length > 1) [value] = [value / 1024, units.shift()];
  return `${value.toFixed(1)} ${units[0]}`;
};
const joined = (parts, separator = ", ") => parts.flatMap((part, index) => (index ? [separator, part] : [part]));
const tag = (kind, text, title = null) => element("span", { class: `tag ${kind}`, title }, text);
const code = (text, kind = null) => element("code", { class: kind }, text);

const statistics = (facts) =>
  element("ul", { class: "statistics" }, facts.map(([kind, value, noun]) => element("li", { class: kind }, element("b", {}, value), ` ${noun}`)));

const copyButton = (text, name) =>
  element("button", { type: "button", "data-copy": text, "aria-label": `Copy ${name}` }, "copy");

const copy = async (button) => {
  let done = false;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    done = true;
  } catch {
    // The clipboard API is missing or denied. Copy the selection as in older browsers.
    const area = element("textarea", { class: "unseen" });
    area.value = button.dataset.copy;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  button.textContent = done ? "copied" : "select and copy it below";
  button.focus();
  setTimeout(() => { button.textContent = "copy"; }, 2000);
};

const select = (id, label, choices) =>
  element("select", { id, "aria-label": label }, choices.map(([value, text]) => element("option", { value }, plain(text))));

// A search field with filters for entries: {article, row, text, matches(values of the filters)}.
const searchBar = (noun, hint, filters) =>
  element("div", { class: "search", role: "search" },
    element("label", { class: "unseen", for: "words" }, `Search ${hint}`),
    element("input", {
      type: "search", id: "words", placeholder: `Search ${hint}`, autocomplete: "off", spellcheck: "false",
      "aria-describedby": "count", "aria-keyshortcuts": "/", "data-noun": noun,
    }),
    filters,
    element("span", { class: "soft small" }, element("span", { id: "count", role: "status", "aria-live": "polite" }), " · ",
      element("kbd", {}, "/"), " searches, ", element("kbd", {}, "↓"), " ", element("kbd", {}, "↑"), " move"));

const searchable = (entries) => {
  const field = document.getElementById("words");
  const filters = [...document.querySelectorAll(".search select")];

  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.fromEntries(filters.map((filter) => [filter.id, filter.value]));
    let shown = 0;
    for (const entry of entries) {
      const isShown = words.every((word) => entry.text.includes(word)) && entry.matches(chosen);
      shown += isShown ? 1 : 0;
      entry.article.hidden = !isShown;
      if (entry.row) entry.row.hidden = !isShown;
    }
    const all = counted(entries.length, field.dataset.noun);
    document.getElementById("count").textContent = shown === entries.length ? all : `${number(shown)} of ${all}`;
    document.getElementById("nothing").hidden = shown > 0 || entries.length === 0;
  };

  const move = (from, step) => {
    const all = entries.filter((entry) => !entry.article.hidden).map((entry) => entry.article.querySelector("summary"));
    const next = all[all.indexOf(from && from.closest("article").querySelector("summary")) + step];
    if (next) next.focus();
    else if (step < 0) field.focus();
  };

  const open = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const entry = entries.find((each) => each.article.id === name);
    if (!entry) return;
    if (entry.article.hidden) {
      for (const input of [field, ...filters]) input.value = "";
      search();
    }
    entry.article.querySelector("details").open = true;
    entry.article.scrollIntoView();
  };

  document.addEventListener("keydown", (event) => {
    const focused = document.activeElement;
    const typing = focused && ["INPUT", "SELECT", "TEXTAREA"].includes(focused.tagName);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !typing) {
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape" && focused === field) {
      field.value = "";
      search();
    } else if ((event.key === "ArrowDown" || event.key === "Enter") && focused === field) {
      event.preventDefault();
      move(null, 1);
    } else if (focused && focused.tagName === "SUMMARY" && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      move(focused, event.key === "ArrowDown" ? 1 : -1);
    }
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) {
      event.preventDefault(); // Keep the click from toggling the surrounding details.
      copy(button);
    }
  });
  field.addEventListener("input", search);
  for (const filter of filters) filter.addEventListener("change", search);
  window.addEventListener("hashchange", open);
  search();
  open();
};
