// One argument of a call: a control for its type, and its JSON text.
import { make, setText } from "./text.js";

const TYPES = {
  text: "text",
  integer: "whole number",
  number: "number",
  boolean: "yes or no",
  choice: "one of a list",
  json: "JSON",
};

let created = 0;

export class Field {
  constructor(field) {
    this.field = field;
    created += 1;
    this.root = make("p", "field");
    const label = make("label");
    this.control = this.createControl();
    this.control.name = `arguments.${field.name}`;
    this.control.dataset.argument = field.name;
    this.control.dataset.kind = field.kind;
    const name = make("code", "", field.name);
    const optional = field.required ? "" : ", optional";
    const help = field.help ? ` – ${field.help}` : "";
    const hint = make("span", "hint", `${TYPES[field.kind]}${optional}${help}`);
    this.changed = make("span", "changed");
    this.error = make("span", "error");
    this.error.id = `error-${created}`;
    this.control.setAttribute("aria-describedby", this.error.id);
    label.append(name, " ", hint, document.createElement("br"), this.control);
    this.root.append(label, this.changed, this.error);
    this.initial = this.value;
  }

  createControl() {
    const { kind, value, choices, required } = this.field;
    if (kind === "boolean" && this.field.json !== null) {
      const box = make("input");
      box.type = "checkbox";
      box.checked = value;
      return box;
    }
    if (kind === "choice" || kind === "boolean") {
      const select = make("select");
      const texts = choices || ["true", "false"];
      for (const text of required && value !== "" ? texts : ["", ...texts]) {
        const option = make("option");
        option.value = text;
        option.textContent = text === "" ? "(leave out)" : text;
        select.append(option);
      }
      select.value = value;
      return select;
    }
    const isLong = kind === "json" || (kind === "text" && (value.length > 80 || value.includes("\n")));
    const control = make(isLong ? "textarea" : "input");
    if (isLong) control.rows = Math.min(12, Math.max(2, value.split("\n").length));
    control.spellcheck = false;
    if (kind === "integer") control.inputMode = "numeric";
    if (kind === "integer" || kind === "number") control.className = "number";
    control.value = value;
    return control;
  }

  get value() {
    return this.control.type === "checkbox" ? String(this.control.checked) : this.control.value;
  }

  get isChanged() {
    return this.value !== this.initial;
  }

  // Returns the JSON text of the argument; null leaves it out. Throws an Error for the person.
  toJson() {
    const { kind, json, required } = this.field;
    if (!this.isChanged) return json;
    const text = this.value.trim();
    if (text === "") {
      if (required) throw new Error("This argument is required.");
      return null;
    }
    if (kind === "text") return JSON.stringify(this.value);
    if (kind === "integer") {
      if (!/^[+-]?\d{1,1000}$/.test(text)) throw new Error("Write a whole number, such as 12900.");
      return BigInt(text.replace("+", "")).toString();
    }
    if (kind === "number") {
      if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || !Number.isFinite(Number(text))) {
        throw new Error("Write a number, such as 129.5.");
      }
      return /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? text : String(Number(text));
    }
    if (kind === "json") {
      try {
        JSON.parse(text);
      } catch (error) {
        throw new Error(`This is not JSON: ${error.message}. A text needs double quotes.`);
      }
    }
    return text;
  }

  check() {
    let problem = "";
    try {
      this.toJson();
    } catch (error) {
      problem = error.message;
    }
    this.show(problem);
    return problem === "";
  }

  show(problem) {
    setText(this.error, problem);
    if (problem) this.control.setAttribute("aria-invalid", "true");
    else this.control.removeAttribute("aria-invalid");
    setText(this.changed, this.isChanged ? `Changed. The agent's value: ${this.initial || "(none)"}` : "");
  }
}
