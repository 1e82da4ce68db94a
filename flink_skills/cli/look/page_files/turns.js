"use strict";
// Page of turns: a list, and a timeline of each.
(() => {
  const MAX_TEXT = 20000;
  const { turns } = data;
  const BAD = { failed: "error", waiting: "warning", running: "info" };
  const seconds = (value) => (value < 10 ? `${value.toFixed(2)} s` : value < 600 ? `${value.toFixed(1)} s` : `${number(Math.round(value / 60))} min`);
  const milliseconds = (value) => (value < 10000 ? `${number(Math.round(value))} ms` : seconds(value / 1000));
  const dollars = (value) => `$${value.toLocaleString("en-US", { minimumFractionDigits: 4, maximumFractionDigits: 4 })}`;
  const time = (value) => new Date(value).toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");
  const hasCost = (value) => value !== null && value !== undefined;

  const content = (part) => Object.entries(part.content || {}).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    const cut = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
    return element("details", { class: "content" }, element("summary", {}, `${name}, ${counted(text.length, "character")}`), element("pre", { dir: "auto" }, cut));
  });

  const facts = (part) => [
    part.duration !== undefined && milliseconds(part.duration),
    part.tokens && counted(part.tokens, "token"),
    hasCost(part.cost) && dollars(part.cost),
    ...(part.facts || []),
  ].filter(Boolean);

  const row = (part, total) => {
    const bar = element("span", { class: `bar ${part.error ? "error" : part.kind}${part.duration === undefined ? " point" : ""}`, "aria-hidden": "true" });
    bar.style.marginLeft = `${Math.min(part.start / total, 0.995) * 100}%`;
    if (part.duration !== undefined) bar.style.width = `max(${(part.duration / total) * 100}%, 3px)`;
    const name = element("span", { class: "part" }, element("b", {}, part.kind), " ", part.name);
    name.style.paddingLeft = `${(part.depth || 0) * 1.2}rem`;
    return element("li", {},
      element("span", { class: "at mono soft" }, `${(part.start / 1000).toFixed(3)} s`),
      element("span", { class: "track" }, bar),
      element("span", {}, name, " ", element("span", { class: "soft small" }, facts(part).join(", ")),
        part.error && [" ", tag("error", part.error)], content(part)));
  };

  const timeline = (turn) => {
    const total = Math.max(1, ...turn.parts.map((part) => part.start + (part.duration || 0)));
    return turn.parts.length
      ? element("ol", { class: "timeline" }, turn.parts.map((part) => row(part, total)))
      : element("p", { class: "soft" }, "The events have no parts of this turn.");
  };

  const entries = turns.map((turn) => {
    const details = element("details", {},
      element("summary", {},
        element("h3", { class: "name" }, turn.key, element("span", { class: "soft" }, ` turn ${number(turn.turn)}`)), " ",
        turn.error && element("span", { class: "about", dir: "auto" }, turn.error),
        element("span", { class: "facts" }, joined([
          tag(BAD[turn.outcome] || "plain", turn.outcome),
          element("span", { class: "mono" }, time(turn.at)),
          element("span", {}, turn.agent),
          element("span", {}, seconds(turn.seconds)),
          turn.waited > 0 && element("span", {}, `waited ${seconds(turn.waited)}`),
          element("span", {}, counted(turn.tokens, "token")),
          hasCost(turn.cost) && element("span", {}, dollars(turn.cost)),
          turn.skills.length > 0 && element("span", {}, turn.skills.join(", ")),
        ].filter(Boolean), " "))));
    // The timelines of ten thousand turns at once would take seconds.
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) {
        details.append(element("div", { class: "more" }, element("p", { class: "soft small" }, "ID ", code(turn.id), " ", copyButton(turn.id, "ID")), timeline(turn)));
      }
    });
    return {
      article: element("article", { class: "entry", id: `turn-${turn.id}` }, details),
      row: null,
      text: [turn.key, turn.agent, turn.id, turn.error, ...turn.skills].join("\n").toLowerCase(),
      matches: ({ who = "", state }) =>
        (who === "" || turn.agent === who) && (state === "" || turn.outcome === state || (state === "slow" && slow.has(turn.id))),
    };
  });

  // The slowest twentieth, and at least one.
  const ordered = [...turns].sort((one, other) => other.seconds - one.seconds);
  const slow = new Set(ordered.slice(0, Math.max(1, Math.ceil(turns.length / 20))).map((turn) => turn.id));

  const count = (outcome) => turns.filter((turn) => turn.outcome === outcome).length;
  const [failed, waiting] = [count("failed"), count("waiting")];
  const costs = turns.filter((turn) => hasCost(turn.cost));
  const middle = ordered.length ? ordered[Math.floor(ordered.length / 2)].seconds : 0;
  const agents = [...new Set(turns.map((turn) => turn.agent))].sort();
  document.body.append(
    element("header", {}, element("h1", {}, data.title),
      statistics([
        [null, number(turns.length), turns.length === 1 ? "turn" : "turns"],
        [failed ? "error" : null, number(failed), "failed"],
        [waiting ? "warning" : null, number(waiting), "waiting"],
        [null, seconds(middle), "median"],
        [null, number(turns.reduce((sum, turn) => sum + turn.tokens, 0)), "tokens"],
        ...(costs.length ? [[null, dollars(costs.reduce((sum, turn) => sum + turn.cost, 0)), "cost"]] : []),
      ])),
    element("main", { id: "content" },
      element("h2", {}, "Turns"),
      searchBar("turn", "keys, agents, errors, skills", [
        agents.length > 1 && select("who", "Agent", [["", "any agent"], ...agents.map((agent) => [agent, agent])]),
        select("state", "Outcome", [["", "any outcome"], ["failed", "failed"], ["waiting", "waiting"], ["running", "running"], ["ok", "ok"], ["slow", "slowest 5 %"]]),
      ].filter(Boolean)),
      entries.map((entry) => entry.article),
      element("p", { id: "nothing", class: "soft", hidden: true }, "No turn matches the filter.")),
    element("footer", { class: "soft small" }, element("p", {},
      "Times are in UTC. The seconds of a turn do not contain its waits. Contents come from models, tools and events, and are not verified.")));
  searchable(entries);
})();
