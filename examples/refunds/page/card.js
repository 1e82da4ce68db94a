// One question: what is asked, the form of the decision, and the decision.
import { Field } from "./field.js";
import { byId, clock, isJson, make, setText, span, who } from "./text.js";

const SOON_MS = 15 * 60 * 1000;
const UNCONFIRMED_MS = 60 * 1000;

let created = 0;

export class Card {
  constructor(question, reload) {
    this.reload = reload;
    this.root = byId("question").content.firstElementChild.cloneNode(true);
    this.root.dataset.wait = question.wait_id;
    this.find = (selector) => this.root.querySelector(selector);
    this.form = this.find("form");
    created += 1;
    this.find(".title").id = `title-${created}`;
    this.root.setAttribute("aria-labelledby", `title-${created}`);
    this.outcome = this.find(".outcome");
    // Enter in a field must not decide.
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.send(button.name);
    });
    // Not on "change": a message that appears between the press and the release of a button moves the button away.
    this.form.addEventListener("input", () => this.edited());
    this.build(question);
    this.refresh(question);
  }

  build(question) {
    const isApproval = question.kind === "approval";
    this.version = question.version;
    this.rejections = 0;
    this.isSending = false;
    this.decision = null;
    setText(this.find(".title"), question.question || question.name || "Question without a text");
    setText(this.find(".key"), `Key ${question.key}${question.agent ? ` · agent ${question.agent}` : ""}`);
    const pairs = question.background.flatMap(([name, text]) => [make("dt", "", name), make("dd", "", text)]);
    this.find(".background").replaceChildren(...pairs);
    for (const element of this.root.querySelectorAll(isApproval ? ".plain" : ".approval")) element.remove();
    this.fields = isApproval ? question.fields.map((field) => new Field(field)) : [];
    const effects = [];
    if (isApproval) {
      const area = this.find(".arguments");
      area.querySelectorAll(".field, .hint.none").forEach((element) => element.remove());
      setText(area.querySelector("legend"), `${question.tool || "A tool"} runs with`);
      area.append(...this.fields.map((field) => field.root));
      if (!this.fields.length) area.append(make("p", "hint none", "The call has no arguments."));
      effects.push("Approve: the tool runs with exactly these arguments.");
      effects.push("Refuse: the tool does not run. The model reads the reason and continues.");
      effects.push("Cancel: the tool does not run. The model reads that the question was cancelled, without a decision.");
    } else {
      effects.push("Send: the agent continues with the answer.");
      effects.push("Cancel: the agent gets no answer. Its code sees that the question was cancelled, and can fail for it.");
    }
    this.find(".effects").replaceChildren(...effects.map((text) => make("li", "", text)));
    this.edited();
  }

  refresh(question) {
    this.question = question;
    if (question.version !== this.version) {
      const hadFocus = this.hasFocus;
      this.build(question);
      this.note("The question has changed since it was shown. Read it again.");
      if (hadFocus) this.focusOn(this.root);
    }
    this.tick();
    if (question.decision) {
      const { outcome, at } = question.decision;
      if (this.isRejected) this.find(".notice").hidden = true;
      const isLate = at && Date.now() - at > UNCONFIRMED_MS;
      this.lock("sent", `${outcome}, ${who(question.decision)}.\n${
        isLate ? "The job has not confirmed it for more than a minute. Check that the job runs." : "Waiting for the job to confirm it."
      }`);
    } else if (!this.isSending && this.root.dataset.state !== "open") {
      this.unlock();
    }
    if (question.rejected && question.rejected.number > this.rejections) {
      this.rejections = question.rejected.number;
      const { outcome, reason } = question.rejected;
      this.note(`The job did not use the last answer${outcome ? ` (${outcome}, ${who(question.rejected)})` : ""}. ` +
        `The question is still open.\n${reason}`, true);
    }
  }

  tick() {
    if (this.root.dataset.state === "ended") return;
    const { since, deadline, on_timeout: onTimeout } = this.question;
    setText(this.find(".since"), `Asked ${span(Date.now() - since)} ago (${clock(since)})`);
    const effects = { approve: ", then the tool RUNS", refuse: ", then the call is refused", fail: ", then the turn fails" };
    const left = deadline ? deadline - Date.now() : null;
    const then = effects[onTimeout] || "";
    const text = left === null ? "No deadline" :
      left < 0 ? `Deadline passed (${clock(deadline)})` : `${span(left)} left (until ${clock(deadline)}${then})`;
    setText(this.find(".deadline"), text);
    this.find(".deadline").classList.toggle("soon", left !== null && left < SOON_MS);
  }

  get hasFocus() {
    return this.root.contains(document.activeElement);
  }

  get isEdited() {
    const texts = ["reason", "answer"].map((name) => this.form.elements[name]).filter(Boolean);
    return this.fields.some((field) => field.isChanged) || texts.some((control) => control.value !== "");
  }

  edited() {
    const isChanged = this.fields.some((field) => field.isChanged);
    for (const field of this.fields) field.check();
    const approve = this.form.elements.approve;
    if (approve) setText(approve, isChanged ? "Approve with your changes" : "Approve");
    const answer = this.form.elements.answer;
    if (answer) setText(this.find(".answer-type"), answer.value === "" ? "text, or JSON" : isJson(answer.value) ? "is sent as JSON" : "is sent as text");
    setText(this.find(".problem"), "");
  }

  focusOn(element) {
    if (element === this.root) element.tabIndex = -1;
    element.focus({ preventScroll: true });
  }

  note(text, isRejection = false) {
    const notice = this.find(".notice");
    this.isRejected = isRejection;
    setText(notice, text);
    notice.hidden = false;
  }

  // Shows a decision below the form, which stays as it was sent. The card keeps its height.
  lock(state, text) {
    if (state !== this.root.dataset.state) {
      const { hasFocus } = this;
      this.root.style.minHeight = `${this.root.offsetHeight}px`;
      this.root.dataset.state = state;
      for (const control of this.form.elements) control.disabled = true;
      this.find(".effects").hidden = true;
      this.outcome.hidden = false;
      if (hasFocus) this.focusOn(this.outcome);
    }
    setText(this.outcome, text);
  }

  unlock() {
    const hadFocus = this.hasFocus;
    this.root.dataset.state = "open";
    this.root.style.minHeight = "";
    for (const control of this.form.elements) control.disabled = false;
    this.find(".effects").hidden = false;
    this.outcome.hidden = true;
    if (hadFocus) this.focusOn(this.root);
  }

  end(ended) {
    this.isSending = false;
    const text = ended ? `${ended.outcome}${ended.status === "answered" || ended.by ? `, ${who(ended)}` : ""}.` : "The question has ended.";
    this.lock("ended", text);
    setText(this.find(".deadline"), "");
  }

  // Returns the body of the request as JSON text. Numbers stay as they are written: JavaScript's lose digits.
  body(button) {
    const parts = { wait_id: this.question.wait_id, version: this.version };
    if (!byId("by").disabled) parts.by = byId("by").value.trim();
    const raw = {};
    if (button === "cancel") {
      parts.cancel = true;
    } else if (button === "send") {
      const text = this.form.elements.answer.value;
      if (text.trim() === "") throw new Error("Write an answer first.");
      raw.answer = isJson(text) ? text : JSON.stringify(text);
    } else {
      parts.approved = button === "approve";
      if (this.form.elements.reason.value) parts.reason = this.form.elements.reason.value;
      if (button === "approve") {
        const wrong = this.fields.filter((field) => !field.check());
        if (wrong.length) {
          wrong[0].control.focus();
          throw new Error("Nothing was sent: an argument does not fit its type.");
        }
        if (this.fields.some((field) => field.isChanged)) {
          const given = this.fields.map((field) => [field.field.name, field.toJson()]).filter(([, json]) => json !== null);
          raw.arguments = `{${given.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(",")}}`;
        }
      }
    }
    const texts = [...Object.entries(parts).map(([name, value]) => [name, JSON.stringify(value)]), ...Object.entries(raw)];
    return `{${texts.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(",")}}`;
  }

  async send(button) {
    if (this.isSending || this.root.dataset.state !== "open") return;
    const problem = this.find(".problem");
    let body;
    try {
      body = this.body(button);
    } catch (error) {
      setText(problem, error.message);
      return;
    }
    this.isSending = true;
    this.find(".notice").hidden = true;
    setText(problem, "");
    this.lock("sent", "Sending…");
    try {
      const response = await post(body);
      if (response.ok) {
        this.isSending = false;
        setText(this.outcome, "Stored. Waiting for the job to confirm it.");
        await this.reload();
        return;
      }
      const { error, fields } = await response.json();
      this.isSending = false;
      if (response.status === 409) {
        // Somebody else has decided. The next poll shows the decision.
        this.unlock();
        this.note(`Your answer was not stored: ${error}`);
        await this.reload();
        return;
      }
      this.unlock();
      for (const field of this.fields) if (fields && fields[field.field.name]) field.show(fields[field.field.name]);
      setText(problem, `The answer was not stored: ${error}`);
    } catch (error) {
      this.isSending = false;
      this.unlock();
      setText(problem, `The answer was not stored: the bridge does not respond (${error.message}). Try again.`);
    }
  }
}

async function post(body, isRetry = false) {
  const meta = document.querySelector("meta[name=token]");
  const response = await fetch("answers", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Bridge-Token": meta.content },
    body,
  });
  if (response.status !== 403 || isRetry) return response;
  // The bridge has restarted, and has another token. What the person has written stays.
  const page = new DOMParser().parseFromString(await (await fetch("./")).text(), "text/html");
  const token = page.querySelector("meta[name=token]");
  if (!token || token.content === meta.content) return response;
  meta.content = token.content;
  return post(body, true);
}
