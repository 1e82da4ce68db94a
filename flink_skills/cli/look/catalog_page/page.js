"use strict";
(() => {
  const field = document.getElementById("words");
  const who = document.getElementById("who");
  const state = document.getElementById("state");
  const count = document.getElementById("count");
  const nothing = document.getElementById("nothing");
  const skills = [...document.querySelectorAll(".skill")].map((article) => ({
    article,
    row: document.getElementById("row-" + article.id),
    text: [...article.querySelectorAll(".name, .about, .diagnostics, .origin, .tools")]
      .map((part) => part.textContent).join("\n").toLowerCase(),
    viewers: (article.dataset.seen || "").split(" "),
    worst: article.dataset.worst || "none",
  }));

  const matches = (skill, words) =>
    words.every((word) => skill.text.includes(word)) &&
    (!who || who.value === "" || (who.value === "none" ? skill.viewers[0] === "" : skill.viewers.includes(who.value))) &&
    (state.value === "" || skill.worst === state.value || (state.value === "any" && skill.worst !== "none"));

  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const skill of skills) {
      const hidden = !matches(skill, words);
      shown += hidden ? 0 : 1;
      skill.article.hidden = hidden;
      if (skill.row) skill.row.hidden = hidden;
    }
    count.textContent = shown === skills.length ? skills.length + " skills" : shown + " of " + skills.length + " skills";
    nothing.hidden = shown > 0 || skills.length === 0;
  };

  const summaries = () =>
    skills.filter((skill) => !skill.article.hidden).map((skill) => skill.article.querySelector("summary"));

  const move = (from, step) => {
    const all = summaries();
    const next = all[all.indexOf(from) + step];
    if (next) next.focus();
    else if (step < 0) field.focus();
  };

  const open = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const target = name && document.getElementById(name);
    const details = target && target.querySelector(":scope > details");
    if (details) {
      if (target.hidden) {
        field.value = "";
        state.value = "";
        if (who) who.value = "";
        search();
      }
      details.open = true;
      target.scrollIntoView();
    }
  };

  const copy = async (button) => {
    const text = button.dataset.copy;
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      // The clipboard API is missing or denied. Copy the selection as in older browsers.
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "unseen";
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    button.textContent = done ? "copied" : "select and copy it below";
    button.focus();
    setTimeout(() => { button.textContent = "copy"; }, 2000);
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
  for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
  document.getElementById("search").hidden = false;
  field.addEventListener("input", search);
  state.addEventListener("change", search);
  if (who) who.addEventListener("change", search);
  window.addEventListener("hashchange", open);
  search();
  open();
})();
