"use strict";
// Questions contain text of models and events. The page shows them with textContent only, never as HTML.

const POLL_MS = 1000;
const articles = new Map();
const byId = (id) => document.getElementById(id);

function when(milliseconds) {
  return milliseconds === null || milliseconds === undefined ? "" : new Date(milliseconds).toLocaleString();
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function fields(question) {
  return [
    ["Agent", question.agent],
    ["Key", question.key],
    ["Tool", question.tool],
    ["Payload", question.payload ? pretty(question.payload) : ""],
    ["Asked", when(question.since)],
    ["Until", when(question.deadline)],
  ].filter(([, value]) => value);
}

function create(question) {
  const article = byId("question").content.firstElementChild.cloneNode(true);
  const isApproval = question.kind === "approval";
  const title = article.querySelector(".title");
  title.textContent = question.question || question.name;
  title.id = `title-${question.wait_id}`;
  article.setAttribute("aria-labelledby", title.id);
  for (const [name, value] of fields(question)) {
    const term = document.createElement("dt");
    const data = document.createElement("dd");
    term.textContent = name;
    data.textContent = value;
    article.querySelector("dl").append(term, data);
  }
  for (const element of article.querySelectorAll(isApproval ? ".plain" : ".approval")) element.remove();
  const form = article.querySelector("form");
  const original = isApproval ? pretty(question.arguments) : "";
  if (isApproval) form.elements.arguments.value = original;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(question, form, event.submitter ? event.submitter.name : isApproval ? "approve" : "send", original);
  });
  return article;
}

function answerOf(form, button, original) {
  if (button === "cancel") return { cancel: true };
  if (button === "send") {
    const text = form.elements.answer.value;
    try {
      return { answer: JSON.parse(text) };
    } catch {
      return { answer: text };
    }
  }
  const answer = { approved: button === "approve" };
  if (form.elements.reason.value) answer.reason = form.elements.reason.value;
  if (button === "approve" && form.elements.arguments.value !== original) {
    answer.arguments = JSON.parse(form.elements.arguments.value);
  }
  return answer;
}

async function send(question, form, button, original) {
  const problem = form.querySelector(".problem");
  problem.textContent = "";
  let answer;
  try {
    answer = answerOf(form, button, original);
  } catch (error) {
    problem.textContent = `The arguments are not JSON: ${error.message}`;
    form.elements.arguments.focus();
    return;
  }
  const controls = [...form.elements];
  controls.forEach((control) => { control.disabled = true; });
  try {
    const response = await fetch("answers", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ wait_id: question.wait_id, by: byId("by").value, ...answer }),
    });
    if (!response.ok) throw new Error((await response.json()).error);
    problem.textContent = "Sent. The question disappears when the job has the answer.";
  } catch (error) {
    problem.textContent = `The answer was not stored: ${error.message}`;
    controls.forEach((control) => { control.disabled = false; });
  }
}

function show(found) {
  const open = new Set(found.open.map((question) => question.wait_id));
  for (const [id, article] of articles) {
    if (!open.has(id)) {
      article.remove();
      articles.delete(id);
    }
  }
  // A question that is shown stays as it is, with what the person has written.
  for (const question of found.open) {
    if (!articles.has(question.wait_id)) {
      const article = create(question);
      articles.set(question.wait_id, article);
      byId("open").append(article);
    }
  }
  const items = found.ended.map((question) => {
    const item = document.createElement("li");
    const by = question.by ? ` by ${question.by}` : "";
    item.textContent = `${question.key}: ${question.question || question.name} ${question.status}${by}`;
    return item;
  });
  byId("ended").replaceChildren(...items);
  const count = found.open.length;
  const text = count === 0 ? "There is no open question." : `${count} open question${count === 1 ? "" : "s"}.`;
  if (byId("state").textContent !== text) byId("state").textContent = text;
}

async function poll() {
  try {
    const response = await fetch("questions");
    const found = await response.json();
    if (!response.ok) throw new Error(found.error);
    show(found);
  } catch (error) {
    byId("state").textContent = `The questions cannot be loaded: ${error.message}`;
  }
  setTimeout(poll, POLL_MS);
}

poll();
