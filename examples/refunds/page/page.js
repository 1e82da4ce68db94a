// The list of questions. No card moves while a person works in the list, so that the button under the pointer stays that
// of its question.
import { Card } from "./card.js";
import { byId, clock, make, set, setText } from "./text.js";

const POLL_MS = 1000;
const PAGE_SIZE = 20;
const JOB = {
  starting: "The job is starting",
  running: "The job is running",
  ended: "The job has ended",
  failed: "The job has failed",
};

const cards = new Map();
let found = { open: [], ended: [], problems: [], problem_count: 0, records: 0, job: { state: "unknown", detail: "" } };
let loaded = false;
let tag = "";
// The question after which the page begins. null: it is the first page.
let after = null;
let shown = [];

function isBefore(one, other) {
  return one.since !== other.since ? one.since < other.since : one.wait_id < other.wait_id;
}

function matching() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return found.open;
  return found.open.filter((question) => {
    const { key, agent, question: text, name, tool, payload, arguments: given } = question;
    const all = [key, agent, text, name, tool, payload, given].join("\n").toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

// Shows a page of questions anew. Cards with unsent text are kept for later.
function arrange() {
  const list = matching();
  let rest = after === null ? list : list.filter((question) => isBefore(after, question));
  if (!rest.length && after !== null) {
    after = null;
    rest = list;
  }
  const questions = rest.slice(0, PAGE_SIZE);
  shown = questions.map((question) => question.wait_id);
  for (const [id, card] of cards) {
    if (shown.includes(id)) continue;
    card.root.remove();
    if (!card.isEdited || card.root.dataset.state === "ended") cards.delete(id);
  }
  const main = byId("open");
  questions.forEach((question, index) => {
    const card = cardOf(question);
    if (main.children[index] !== card.root) main.insertBefore(card.root, main.children[index] || null);
  });
  describe();
}

function cardOf(question) {
  let card = cards.get(question.wait_id);
  if (!card) {
    card = new Card(question, poll);
    cards.set(question.wait_id, card);
  } else {
    card.refresh(question);
  }
  return card;
}

// Keeps what the person looks at in its place while the cards above it grow.
function keepPlace(change) {
  const main = byId("open");
  const focused = document.activeElement.closest("article");
  const anchor = focused || main.querySelector("article:hover");
  const before = anchor && anchor.getBoundingClientRect().top;
  change();
  if (anchor && anchor.isConnected) window.scrollBy(0, anchor.getBoundingClientRect().top - before);
}

// Updates the cards in place, and appends new questions where the page has room.
function update() {
  const open = new Map(found.open.map((question) => [question.wait_id, question]));
  const ended = new Map(found.ended.map((question) => [question.wait_id, question]));
  for (const [id, card] of cards) {
    if (open.has(id)) {
      if (shown.includes(id)) card.refresh(open.get(id));
    } else if (shown.includes(id)) {
      card.end(ended.get(id));
    } else {
      cards.delete(id);
    }
  }
  const main = byId("open");
  const isBusy = main.contains(document.activeElement) || main.matches(":hover");
  if (!isBusy) {
    arrange();
    return;
  }
  const last = shown.length ? cards.get(shown[shown.length - 1]).question : after;
  for (const question of matching()) {
    if (shown.length >= PAGE_SIZE) break;
    if (shown.includes(question.wait_id) || (last && !isBefore(last, question))) continue;
    shown.push(question.wait_id);
    main.append(cardOf(question).root);
  }
  describe();
}

function describe() {
  const list = matching();
  const isFiltered = list.length !== found.open.length;
  const first = shown.map((id) => list.findIndex((question) => question.wait_id === id)).find((index) => index >= 0);
  const openHere = shown.filter((id) => list.some((question) => question.wait_id === id)).length;
  const of = isFiltered ? `${list.length} that match, of ${found.open.length}` : `${list.length}`;
  setText(byId("place"), first === undefined ? "" : `${first + 1}–${first + openHere} of ${of}`);
  set(byId("previous"), "disabled", after === null);
  set(byId("next"), "disabled", first === undefined ? !list.length : first + openHere >= list.length);
  const decided = shown.filter((id) => cards.get(id).root.dataset.state === "ended").length;
  set(byId("clear"), "hidden", decided === 0);
  setText(byId("clear"), `Remove ${decided} that ${decided === 1 ? "has" : "have"} ended`);
  setText(byId("state"), loaded ? summary(list.length, isFiltered) : "Loading…");
  set(document, "title", found.open.length ? `(${found.open.length}) Open questions` : "Open questions");
}

function summary(count, isFiltered) {
  const { state } = found.job;
  const total = found.open.length;
  const pending = found.open.filter((question) => question.decision).length;
  let text = `${total} open question${total === 1 ? "" : "s"}`;
  if (total === 0) {
    text = "There is no open question";
    if (state === "starting") text = "The job is starting. Its questions appear here";
    else if (!found.records && state !== "running") text = "No question has arrived yet. The job is starting, or it has not asked";
  }
  if (isFiltered && count === 0) text += ", and none matches the filter";
  if (pending) text += `, ${pending} of them decided and not confirmed by the job`;
  const problems = found.problem_count;
  if (problems) text += `. ${problems} record${problems === 1 ? "" : "s"} need attention: see the end of the page`;
  return `${text}.`;
}

function showJob() {
  const { state, detail } = found.job;
  byId("job").dataset.state = state;
  byId("job").hidden = state === "unknown";
  setText(byId("job"), JOB[state] || state);
  const isOver = state === "failed" || state === "ended";
  setText(byId("alarm"), isOver ? `${JOB[state]}. ${detail} Answers are stored, and used only if the job runs again.` : "");
}

function showEnds() {
  const items = found.ended.map((question) => {
    const at = question.at ? `${clock(question.at)} · ` : "";
    const by = question.by ? `, by ${question.by}` : "";
    return make("li", "", `${at}${question.key || ""} · ${question.question || question.name || question.wait_id} → ${question.outcome} (${question.status}${by})`);
  });
  byId("ended").replaceChildren(...items);
}

function showProblems() {
  const items = found.problems.map(({ place, problem, excerpt }) => {
    const item = make("li");
    item.append(make("span", "place", place), ": ", make("span", "", problem));
    if (excerpt) item.append(make("pre", "", excerpt));
    return item;
  });
  byId("problems").hidden = !items.length;
  byId("problems").querySelector("ul").replaceChildren(...items);
}

async function load() {
  const response = await fetch("questions", { headers: tag ? { "If-None-Match": tag } : {} });
  if (response.status === 304) {
    for (const id of shown) cards.get(id).tick();
    // Cards that have ended leave when nobody works in the list.
    keepPlace(update);
    return;
  }
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  const before = found;
  found = content;
  loaded = true;
  tag = response.headers.get("ETag") || "";
  const by = byId("by");
  by.disabled = !content.asks_name;
  by.closest("p").hidden = !content.asks_name;
  showJob();
  keepPlace(update);
  if (JSON.stringify(before.ended) !== JSON.stringify(found.ended)) showEnds();
  if (JSON.stringify(before.problems) !== JSON.stringify(found.problems)) showProblems();
}

let lost = null;
async function poll() {
  try {
    await load();
    if (lost !== null) showJob();
    lost = null;
  } catch (error) {
    lost = lost || Date.now();
    const isOver = ["failed", "ended"].includes(found.job.state);
    const job = isOver ? `${JOB[found.job.state]}. ${found.job.detail} ` : "";
    tag = "";
    setText(byId("alarm"), `${job}The bridge has not responded since ${clock(lost)} (${error.message}). ` +
      "What you see can be out of date. The page tries again each second.");
  }
}

async function run() {
  await poll();
  setTimeout(run, POLL_MS);
}

function turnPage(start) {
  after = start;
  arrange();
  byId("open").focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

byId("next").addEventListener("click", () => {
  if (shown.length) turnPage(cards.get(shown[shown.length - 1]).question);
  else turnPage(null);
});
byId("previous").addEventListener("click", () => {
  const first = shown.length ? cards.get(shown[0]).question : null;
  const before = matching().filter((question) => first === null || isBefore(question, first));
  turnPage(before.length > PAGE_SIZE ? before[before.length - PAGE_SIZE - 1] : null);
});
byId("clear").addEventListener("click", () => {
  arrange();
  byId("open").focus({ preventScroll: true });
});
byId("filter").addEventListener("input", () => {
  after = null;
  arrange();
});
try {
  byId("by").value = localStorage.getItem("by") || "";
} catch {
  // The browser stores nothing for this page: the person writes the name again.
}
byId("by").addEventListener("change", () => {
  try {
    localStorage.setItem("by", byId("by").value);
  } catch {
    // As above.
  }
});

run();
