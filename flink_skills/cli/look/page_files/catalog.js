"use strict";
// Page of a catalog: skills, their problems, and the models that see them.
(() => {
  const MAX_LISTED = 200;
  const SEVERITIES = ["error", "warning", "info"];
  const { skills, viewers } = data;
  const severity = (diagnostic) => (SEVERITIES.includes(diagnostic.severity) ? diagnostic.severity : "info");
  const count = (diagnostics, kind) => diagnostics.filter((each) => severity(each) === kind).length;
  const label = (viewer) => (viewer.model ? `${viewer.agent}/${viewer.model}` : viewer.agent);
  const tokens = (length) => `${number(length.chars)} characters, about ${number(length.tokens)} tokens`;

  const diagnosticList = (diagnostics) =>
    element("ul", { class: "diagnostics" }, diagnostics.map((each) =>
      element("li", { class: severity(each) },
        tag(severity(each), `${severity(each)} ${each.code}`, each.meaning), " ",
        element("span", { dir: "auto" }, each.message),
        each.fix && [" ", element("span", { class: "soft" }, `Fix: ${each.fix}.`)],
        each.path && [element("br"), code(each.line ? `${each.path}:${each.line}` : each.path, "soft")])));

  const list = (names, kind = null) => {
    const more = names.length > MAX_LISTED ? ` and ${number(names.length - MAX_LISTED)} more` : "";
    return names.length && element("span", { class: kind }, joined(names.slice(0, MAX_LISTED).map((name) => code(name))), more);
  };

  const files = (listed) =>
    listed.length && element("ul", { class: "plain" },
      listed.slice(0, MAX_LISTED).map((file) =>
        element("li", {}, code(file.path), " ", element("span", { class: "soft small" }, size(file.bytes)))),
      listed.length > MAX_LISTED && element("li", {}, `and ${number(listed.length - MAX_LISTED)} more`));

  const digest = (value) => (value
    ? [element("code", { title: value }, value.slice(0, 12)), " ", copyButton(value, "digest"), element("br"), code(value, "soft small")]
    : "none: the files cannot be read");

  const facts = (skill) => [
    element("span", {}, `${counted(skill.files.length, "file")}, ${size(skill.size)}`),
    element("span", {}, `menu ${number(skill.menu.tokens)} tokens`),
    element("span", {}, `body ${number(skill.body.tokens)} tokens`),
    ...SEVERITIES.filter((kind) => count(skill.diagnostics, kind)).map((kind) => tag(kind, counted(count(skill.diagnostics, kind), kind))),
    skill.is_hidden && tag("plain", "hidden from models"),
    skill.is_remote && tag("plain", "remote"),
    viewers.length > 0 && !skill.seen_by.length && tag("plain", "not visible to any model"),
  ].filter(Boolean);

  const details = (skill) => Object.entries({
    "Problems": skill.diagnostics.length && diagnosticList(skill.diagnostics),
    "Visible to": skill.seen_by.map((index) => label(viewers[index])).join(", "),
    "Digest": digest(skill.digest),
    "Plugin": skill.plugin,
    "Origin": code(skill.origin, "origin"),
    "Menu entry": tokens(skill.menu),
    "Body": tokens(skill.body),
    "Bundled tools": list(skill.tools, "tools"),
    "Allowed tools": skill.allowed_tools && list(skill.allowed_tools),
    "Missing here": list(skill.missing),
    "Compatibility": skill.compatibility,
    "License": skill.license,
    "Documents": list(skill.documents),
    "Scripts": list(skill.scripts),
    "Files": files(skill.files),
  }).filter(([, value]) => value).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);

  const ids = [];
  skills.forEach((skill, index) => {
    const id = /^[A-Za-z0-9_-]*[A-Za-z0-9][A-Za-z0-9_-]*$/.test(skill.name) ? `skill-${skill.name}` : `skill-${index}`;
    ids.push(ids.includes(id) ? `${id}.${index}` : id);
  });

  const entries = skills.map((skill, index) => {
    const article = element("article", { class: "entry", id: ids[index] },
      element("details", {},
        element("summary", {},
          element("h3", { class: "name" }, skill.name), " ",
          element("span", { class: "about", dir: "auto" }, skill.description), " ",
          element("span", { class: "facts" }, joined(facts(skill), " "))),
        element("div", { class: "more" }, element("dl", {}, details(skill)))));
    const worst = SEVERITIES.find((kind) => count(skill.diagnostics, kind)) || "none";
    return {
      article,
      row: viewers.length ? element("tr", {},
        element("th", { scope: "row" }, element("a", { href: `#${ids[index]}` }, skill.name)),
        viewers.map((_, viewer) => {
          const [name, symbol] = skill.seen_by.includes(viewer) ? ["yes", "✓"] : ["no", "·"];
          return element("td", { class: name }, element("span", { "aria-hidden": "true" }, symbol), element("span", { class: "unseen" }, name));
        })) : null,
      text: [...article.querySelectorAll(".name, .about, .diagnostics, .origin, .tools")]
        .map((part) => part.textContent).join("\n").toLowerCase(),
      matches: ({ who = "", state }) =>
        (who === "" || (who === "none" ? !skill.seen_by.length : skill.seen_by.includes(Number(who)))) &&
        (state === "" || worst === state || (state === "any" && worst !== "none")),
    };
  });

  const matrix = () => {
    const small = (text) => [element("br"), element("span", { class: "soft small" }, text)];
    const heads = viewers.map((viewer) => element("th", { scope: "col" }, viewer.agent,
      viewer.model && [element("br"), viewer.model], viewer.setup && small(viewer.setup),
      small(`tools: ${viewer.tools}; menu: ${number(viewer.menu_tokens)} tokens`)));
    return element("section", {}, element("h2", { id: "visibility" }, "Visibility by model"),
      element("div", { class: "wide", role: "region", "aria-labelledby": "visibility", tabindex: "0" },
        element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "skill"), heads)),
          element("tbody", {}, entries.map((entry) => entry.row)))));
  };

  const all = [...data.diagnostics, ...skills.flatMap((skill) => skill.diagnostics)];
  const [errors, warnings] = ["error", "warning"].map((kind) => count(all, kind));
  const total = (value) => skills.reduce((sum, skill) => sum + value(skill), 0);
  document.body.append(
    element("header", {}, element("h1", {}, data.title),
      data.sources.length ? element("p", { class: "soft small" }, "from ", joined(data.sources.slice(0, MAX_LISTED).map((source) => code(source)))) : "",
      statistics([
        [null, number(skills.length), skills.length === 1 ? "skill" : "skills"],
        [errors ? "error" : null, number(errors), errors === 1 ? "error" : "errors"],
        [warnings ? "warning" : null, number(warnings), warnings === 1 ? "warning" : "warnings"],
        [null, number(total((skill) => skill.menu.tokens)), "menu tokens"],
        [null, size(total((skill) => skill.size)), "in files"],
      ])),
    element("main", { id: "content" },
      data.diagnostics.length ? element("section", {}, element("h2", {}, "Source problems"), diagnosticList(data.diagnostics)) : "",
      viewers.length ? matrix() : "",
      element("h2", {}, "Skills"),
      searchBar("skill", "names, descriptions, problems", [
        viewers.length > 0 && select("who", "Visible to", [["", "any visibility"],
          ...viewers.map((viewer, index) => [String(index), label(viewer)]), ["none", "not visible to any model"]]),
        select("state", "Problems", [["", "any state"], ["any", "with problems"], ["error", "with errors"],
          ["warning", "with warnings"], ["none", "without problems"]]),
      ].filter(Boolean)),
      skills.length ? entries.map((entry) => entry.article) : element("p", { class: "soft" }, "No skills."),
      element("p", { id: "nothing", class: "soft", hidden: true }, "No skill matches the filter.")),
    element("footer", { class: "soft small" }, element("p", {},
      "Tokens are estimates: one token for four characters of English. ", element("b", {}, "Menu"),
      " is the share of a skill in each request to a model. ", element("b", {}, "Body"),
      " is what loading the skill adds. All descriptions come from the skills and are not verified.")));
  searchable(entries);
})();
