"""The page of a catalog: one file that asks no network for anything.

Everything in it that skills say goes through :func:`shown` or :func:`attribute`, and none of it is a link. Its policy
lets the browser run this page's script and nothing else, whatever was overlooked.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from flink_skills.cli.catalog_data import Catalog, Viewer
from flink_skills.cli.catalog_skill import CatalogSkill
from flink_skills.cli.catalog_text import attribute, shown
from flink_skills.cli.output import counted, size_text, visible
from flink_skills.skill import Diagnostic
from flink_skills.skill.diagnostic import CODES

__all__ = ["render_page"]

_PARTS = Path(__file__).with_name("catalog_page")
_SEVERITIES = ("error", "warning", "info")
_SHORT_DIGEST = 12
_LISTED = 200


def render_page(catalog: Catalog) -> str:
    """The page as HTML. The same catalog gives the same text."""
    style = (_PARTS / "page.css").read_text(encoding="utf-8")
    script = (_PARTS / "page.js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    ids = _ids(catalog.skills)
    cards = "".join(_card(skill, id_, catalog.viewers) for skill, id_ in zip(catalog.skills, ids, strict=True))
    title = "Skills" if catalog.title == "Skills" else f"Skills of {catalog.title}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{attribute(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="flink-skills catalog">
<title>{attribute(visible(title))}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#skills">To the skills</a>
<header>
<h1>{shown(title)}</h1>
{_sources(catalog.sources)}
{_figures(catalog)}
</header>
<main>
{_problems(catalog.diagnostics)}
{_matrix(catalog, ids)}
<h2 id="skills">Skills</h2>
{_search(catalog.viewers)}
{cards or '<p class="soft">There are no skills.</p>'}
<p id="nothing" class="soft" hidden>No skill fits.</p>
</main>
<footer class="soft small">
<p>Tokens are estimates: four characters of English make one. <b>Menu</b> is what each request to a model spends on a
skill, <b>body</b> is what loading it adds. Texts are those of the skills, and not checked by anybody.</p>
</footer>
<script>{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _ids(skills: Sequence[CatalogSkill]) -> list[str]:
    """An anchor for each skill, by its name where that can be one and is not taken."""
    found: list[str] = []
    for number, skill in enumerate(skills):
        plain = skill.name.isascii() and skill.name.replace("-", "").replace("_", "").isalnum()
        name = f"skill-{skill.name}" if plain else f"skill-{number}"
        found.append(name if name not in found else f"{name}.{number}")
    return found


def _sources(sources: Sequence[str]) -> str:
    if not sources:
        return ""
    listed = ", ".join(f"<code>{shown(source)}</code>" for source in sources[:_LISTED])
    return f'<p class="soft small">from {listed}</p>'


def _figures(catalog: Catalog) -> str:
    counts = catalog.counts
    figures = [
        ("", f"{len(catalog.skills):,}", "skill" if len(catalog.skills) == 1 else "skills"),
        ("error" if counts["error"] else "", f"{counts['error']:,}", "error" if counts["error"] == 1 else "errors"),
        (
            "warning" if counts["warning"] else "",
            f"{counts['warning']:,}",
            "warning" if counts["warning"] == 1 else "warnings",
        ),
        ("", f"{sum(skill.menu.tokens for skill in catalog.skills):,}", "tokens of menu"),
        ("", size_text(sum(skill.size for skill in catalog.skills)), "of files"),
    ]
    items = "".join(f'<li class="{name}"><b>{number}</b> {label}</li>' for name, number, label in figures)
    return f'<ul class="figures">{items}</ul>'


def _problems(diagnostics: Sequence[Diagnostic]) -> str:
    if not diagnostics:
        return ""
    return f'<section><h2>Problems of sources</h2>\n<ul class="said">{_said(diagnostics)}</ul></section>'


def _said(diagnostics: Iterable[Diagnostic]) -> str:
    return "".join(
        f'<li class="{_severity(said)}"><span class="tag {_severity(said)}" title="{attribute(_meaning(said))}">'
        f'{_severity(said)} {shown(said.code)}</span> <span dir="auto">{shown(said.message)}</span>'
        + (f' <span class="soft">Mend: {shown(said.mend)}.</span>' if said.mend else "")
        + (f'<br><code class="soft">{shown(_place(said))}</code>' if said.path else "")
        + "</li>"
        for said in diagnostics
    )


def _severity(said: Diagnostic) -> str:
    return said.severity if said.severity in _SEVERITIES else "info"


def _meaning(said: Diagnostic) -> str:
    return CODES[said.code].meaning if said.code in CODES else ""


def _place(said: Diagnostic) -> str:
    return f"{said.path}:{said.line}" if said.line else said.path


def _matrix(catalog: Catalog, ids: Sequence[str]) -> str:
    if not catalog.viewers:
        return ""
    heads = "".join(
        f'<th scope="col">{shown(viewer.agent)}'
        + (f"<br>{shown(viewer.model)}" if viewer.model else "")
        + (f'<br><span class="soft small">{shown(viewer.setup)}</span>' if viewer.setup else "")
        + f'<br><span class="soft small">tools: {shown(viewer.tools)}; menu: {viewer.menu_tokens:,} tokens</span></th>'
        for viewer in catalog.viewers
    )
    rows = "".join(
        f'<tr id="row-{attribute(id_)}"><th scope="row"><a href="#{attribute(id_)}">{shown(skill.name)}</a></th>'
        + "".join(_cell(number in skill.seen_by) for number in range(len(catalog.viewers)))
        + "</tr>\n"
        for skill, id_ in zip(catalog.skills, ids, strict=True)
    )
    return f"""<section><h2 id="who-sees">Who sees which</h2>
<div class="wide" role="region" aria-labelledby="who-sees" tabindex="0">
<table><thead><tr><th scope="col">skill</th>{heads}</tr></thead>
<tbody>{rows}</tbody></table></div></section>"""


def _cell(sees: bool) -> str:
    name, sign = ("yes", "✓") if sees else ("no", "·")
    return f'<td class="{name}"><span aria-hidden="true">{sign}</span><span class="unseen">{name}</span></td>'


def _search(viewers: Sequence[Viewer]) -> str:
    who = ""
    if viewers:
        options = "".join(f'<option value="{n}">{shown(viewer.label)}</option>' for n, viewer in enumerate(viewers))
        who = (
            '<select id="who" aria-label="Seen by"><option value="">seen by anybody or not</option>'
            f'{options}<option value="none">seen by nobody</option></select>'
        )
    return f"""<div class="search" id="search" role="search" hidden>
<label class="unseen" for="words">Search names, descriptions and problems</label>
<input type="search" id="words" placeholder="Search names, descriptions, problems" autocomplete="off" spellcheck="false"
 aria-describedby="count" aria-keyshortcuts="/">
{who}
<select id="state" aria-label="Problems"><option value="">any state</option><option value="any">with problems</option>
<option value="error">with errors</option><option value="warning">with warnings</option>
<option value="none">without problems</option></select>
<span class="soft small"><span id="count" role="status" aria-live="polite"></span> · <kbd>/</kbd> searches,
 <kbd>↓</kbd> <kbd>↑</kbd> move</span>
</div>"""


def _card(skill: CatalogSkill, id_: str, viewers: Sequence[Viewer]) -> str:
    worst = next((of for of in _SEVERITIES if any(_severity(said) == of for said in skill.diagnostics)), "none")
    seen = " ".join(map(str, skill.seen_by))
    return f"""<article class="skill" id="{attribute(id_)}" data-worst="{worst}" data-seen="{seen}">
<details><summary><h3 class="name">{shown(skill.name)}</h3>
<span class="about" dir="auto">{shown(skill.description)}</span>
<span class="facts">{_facts(skill, viewers)}</span></summary>
<div class="more"><dl>{_details(skill, viewers)}</dl></div></details>
</article>
"""


def _facts(skill: CatalogSkill, viewers: Sequence[Viewer]) -> str:
    facts = [
        f"<span>{counted(len(skill.files), 'file')}, {size_text(skill.size)}</span>",
        f"<span>menu {skill.menu.tokens:,} tokens</span>",
        f"<span>body {skill.body.tokens:,} tokens</span>",
    ]
    for severity in _SEVERITIES:
        number = sum(_severity(said) == severity for said in skill.diagnostics)
        if number:
            facts.append(f'<span class="tag {severity}">{counted(number, severity)}</span>')
    if skill.is_hidden:
        facts.append('<span class="tag plain">hidden from models</span>')
    if skill.is_remote:
        facts.append('<span class="tag plain">remote</span>')
    if viewers and not skill.seen_by:
        facts.append('<span class="tag plain">seen by nobody</span>')
    return " ".join(facts)


def _details(skill: CatalogSkill, viewers: Sequence[Viewer]) -> str:
    rows = [
        ("Problems", f'<ul class="said">{_said(skill.diagnostics)}</ul>' if skill.diagnostics else ""),
        ("Seen by", ", ".join(shown(viewers[at].label) for at in skill.seen_by)),
        ("Digest", _digest(skill.digest)),
        ("Origin", f'<code class="origin">{shown(skill.origin)}</code>'),
        ("Menu entry", f"{skill.menu.chars:,} characters, about {skill.menu.tokens:,} tokens"),
        ("Body", f"{skill.body.chars:,} characters, about {skill.body.tokens:,} tokens"),
        ("Brings tools", _names(skill.tools, "tools")),
        ("May use", _names(skill.allowed_tools) if skill.allowed_tools is not None else ""),
        ("Not here", _names(skill.missing) if skill.missing else ""),
        ("Compatibility", shown(skill.compatibility)),
        ("License", shown(skill.license)),
        ("Documents", _names(skill.documents)),
        ("Scripts", _names(skill.scripts)),
        ("Files", _files(skill.files)),
    ]
    return "".join(f"<dt>{label}</dt><dd>{value}</dd>\n" for label, value in rows if value)


def _digest(digest: str) -> str:
    if not digest:
        return "none: its files cannot be read"
    return (
        f'<code title="{attribute(digest)}">{shown(digest[:_SHORT_DIGEST])}</code> '
        f'<button type="button" data-copy="{attribute(digest)}" aria-label="copy the digest" hidden>copy</button>'
        f'<br><code class="soft small">{shown(digest)}</code>'
    )


def _names(names: Sequence[str], name: str = "") -> str:
    listed = ", ".join(f"<code>{shown(each)}</code>" for each in names[:_LISTED])
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return f'<span class="{name}">{listed}{more}</span>' if listed else ""


def _files(files: Sequence[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><code>{shown(path)}</code> <span class="soft small">{size_text(size)}</span></li>'
        for path, size in files[:_LISTED]
    )
    more = f"<li>and {len(files) - _LISTED:,} more</li>" if len(files) > _LISTED else ""
    return f'<ul class="plain">{items}{more}</ul>' if items else ""
