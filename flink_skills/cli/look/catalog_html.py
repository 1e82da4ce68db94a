"""HTML page of a catalog: one self-contained file.

All content of skills passes through :func:`escape` or :func:`escape_attribute`, and no content becomes a link. As a
second barrier, the content security policy allows only the script of this page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from flink_skills.cli.look.catalog_data import Catalog, Viewer
from flink_skills.cli.look.catalog_escape import escape, escape_attribute
from flink_skills.cli.look.catalog_skill import CatalogSkill
from flink_skills.cli.printing import counted, size_text, visible
from flink_skills.skill import Diagnostic
from flink_skills.skill.diagnostic import CODES

__all__ = ["render_page"]

_PAGE_FILES = Path(__file__).with_name("catalog_page")
_SEVERITIES = ("error", "warning", "info")
_SHORT_DIGEST = 12
_MAX_LISTED = 200


def render_page(catalog: Catalog) -> str:
    """Return the page as HTML. The result depends only on the catalog."""
    style = (_PAGE_FILES / "page.css").read_text(encoding="utf-8")
    script = (_PAGE_FILES / "page.js").read_text(encoding="utf-8")
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
<meta http-equiv="Content-Security-Policy" content="{escape_attribute(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="flink-skills catalog">
<title>{escape_attribute(visible(title))}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#skills">Skip to the skills</a>
<header>
<h1>{escape(title)}</h1>
{_sources(catalog.sources)}
{_statistics(catalog)}
</header>
<main>
{_problems(catalog.diagnostics)}
{_matrix(catalog, ids)}
<h2 id="skills">Skills</h2>
{_search(catalog.viewers)}
{cards or '<p class="soft">No skills.</p>'}
<p id="nothing" class="soft" hidden>No skill matches the filter.</p>
</main>
<footer class="soft small">
<p>Tokens are estimates: one token for four characters of English. <b>Menu</b> is the share of a skill in each request
to a model. <b>Body</b> is what loading the skill adds. All descriptions come from the skills and are not verified.</p>
</footer>
<script>{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _ids(skills: Sequence[CatalogSkill]) -> list[str]:
    """Return a unique anchor for each skill, derived from the name if the name is plain ASCII."""
    ids: list[str] = []
    for number, skill in enumerate(skills):
        plain = skill.name.isascii() and skill.name.replace("-", "").replace("_", "").isalnum()
        name = f"skill-{skill.name}" if plain else f"skill-{number}"
        ids.append(name if name not in ids else f"{name}.{number}")
    return ids


def _sources(sources: Sequence[str]) -> str:
    if not sources:
        return ""
    listed = ", ".join(f"<code>{escape(source)}</code>" for source in sources[:_MAX_LISTED])
    return f'<p class="soft small">from {listed}</p>'


def _statistics(catalog: Catalog) -> str:
    counts = catalog.counts
    statistics = [
        ("", f"{len(catalog.skills):,}", "skill" if len(catalog.skills) == 1 else "skills"),
        ("error" if counts["error"] else "", f"{counts['error']:,}", "error" if counts["error"] == 1 else "errors"),
        (
            "warning" if counts["warning"] else "",
            f"{counts['warning']:,}",
            "warning" if counts["warning"] == 1 else "warnings",
        ),
        ("", f"{sum(skill.menu.tokens for skill in catalog.skills):,}", "menu tokens"),
        ("", size_text(sum(skill.size for skill in catalog.skills)), "in files"),
    ]
    items = "".join(f'<li class="{name}"><b>{number}</b> {label}</li>' for name, number, label in statistics)
    return f'<ul class="statistics">{items}</ul>'


def _problems(diagnostics: Sequence[Diagnostic]) -> str:
    if not diagnostics:
        return ""
    return f'<section><h2>Source problems</h2>\n<ul class="diagnostics">{_list_items(diagnostics)}</ul></section>'


def _list_items(diagnostics: Iterable[Diagnostic]) -> str:
    return "".join(
        f'<li class="{_severity(diagnostic)}"><span class="tag {_severity(diagnostic)}" '
        f'title="{escape_attribute(_meaning(diagnostic))}">'
        f'{_severity(diagnostic)} {escape(diagnostic.code)}</span> <span dir="auto">{escape(diagnostic.message)}</span>'
        + (f' <span class="soft">Fix: {escape(diagnostic.fix)}.</span>' if diagnostic.fix else "")
        + (f'<br><code class="soft">{escape(_location(diagnostic))}</code>' if diagnostic.path else "")
        + "</li>"
        for diagnostic in diagnostics
    )


def _severity(diagnostic: Diagnostic) -> str:
    return diagnostic.severity if diagnostic.severity in _SEVERITIES else "info"


def _meaning(diagnostic: Diagnostic) -> str:
    return CODES[diagnostic.code].meaning if diagnostic.code in CODES else ""


def _location(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.path}:{diagnostic.line}" if diagnostic.line else diagnostic.path


def _matrix(catalog: Catalog, ids: Sequence[str]) -> str:
    if not catalog.viewers:
        return ""
    heads = "".join(
        f'<th scope="col">{escape(viewer.agent)}'
        + (f"<br>{escape(viewer.model)}" if viewer.model else "")
        + (f'<br><span class="soft small">{escape(viewer.setup)}</span>' if viewer.setup else "")
        + f'<br><span class="soft small">tools: {escape(viewer.tools)}; menu: {viewer.menu_tokens:,} tokens</span></th>'
        for viewer in catalog.viewers
    )
    rows = "".join(
        f'<tr id="row-{escape_attribute(id_)}"><th scope="row">'
        f'<a href="#{escape_attribute(id_)}">{escape(skill.name)}</a></th>'
        + "".join(_cell(number in skill.seen_by) for number in range(len(catalog.viewers)))
        + "</tr>\n"
        for skill, id_ in zip(catalog.skills, ids, strict=True)
    )
    return f"""<section><h2 id="visibility">Visibility by model</h2>
<div class="wide" role="region" aria-labelledby="visibility" tabindex="0">
<table><thead><tr><th scope="col">skill</th>{heads}</tr></thead>
<tbody>{rows}</tbody></table></div></section>"""


def _cell(sees: bool) -> str:
    name, symbol = ("yes", "✓") if sees else ("no", "·")
    return f'<td class="{name}"><span aria-hidden="true">{symbol}</span><span class="unseen">{name}</span></td>'


def _search(viewers: Sequence[Viewer]) -> str:
    viewer_filter = ""
    if viewers:
        options = "".join(f'<option value="{n}">{escape(viewer.label)}</option>' for n, viewer in enumerate(viewers))
        viewer_filter = (
            '<select id="who" aria-label="Visible to"><option value="">any visibility</option>'
            f'{options}<option value="none">not visible to any model</option></select>'
        )
    return f"""<div class="search" id="search" role="search" hidden>
<label class="unseen" for="words">Search names, descriptions and problems</label>
<input type="search" id="words" placeholder="Search names, descriptions, problems" autocomplete="off" spellcheck="false"
 aria-describedby="count" aria-keyshortcuts="/">
{viewer_filter}
<select id="state" aria-label="Problems"><option value="">any state</option><option value="any">with problems</option>
<option value="error">with errors</option><option value="warning">with warnings</option>
<option value="none">without problems</option></select>
<span class="soft small"><span id="count" role="status" aria-live="polite"></span> · <kbd>/</kbd> searches,
 <kbd>↓</kbd> <kbd>↑</kbd> move</span>
</div>"""


def _card(skill: CatalogSkill, id_: str, viewers: Sequence[Viewer]) -> str:
    present = {_severity(diagnostic) for diagnostic in skill.diagnostics}
    worst = next((severity for severity in _SEVERITIES if severity in present), "none")
    seen = " ".join(map(str, skill.seen_by))
    return f"""<article class="skill" id="{escape_attribute(id_)}" data-worst="{worst}" data-seen="{seen}">
<details><summary><h3 class="name">{escape(skill.name)}</h3>
<span class="about" dir="auto">{escape(skill.description)}</span>
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
        number = sum(_severity(diagnostic) == severity for diagnostic in skill.diagnostics)
        if number:
            facts.append(f'<span class="tag {severity}">{counted(number, severity)}</span>')
    if skill.is_hidden:
        facts.append('<span class="tag plain">hidden from models</span>')
    if skill.is_remote:
        facts.append('<span class="tag plain">remote</span>')
    if viewers and not skill.seen_by:
        facts.append('<span class="tag plain">not visible to any model</span>')
    return " ".join(facts)


def _details(skill: CatalogSkill, viewers: Sequence[Viewer]) -> str:
    rows = [
        ("Problems", f'<ul class="diagnostics">{_list_items(skill.diagnostics)}</ul>' if skill.diagnostics else ""),
        ("Visible to", ", ".join(escape(viewers[index].label) for index in skill.seen_by)),
        ("Digest", _digest(skill.digest)),
        ("Origin", f'<code class="origin">{escape(skill.origin)}</code>'),
        ("Menu entry", f"{skill.menu.chars:,} characters, about {skill.menu.tokens:,} tokens"),
        ("Body", f"{skill.body.chars:,} characters, about {skill.body.tokens:,} tokens"),
        ("Bundled tools", _names(skill.tools, "tools")),
        ("Allowed tools", _names(skill.allowed_tools) if skill.allowed_tools is not None else ""),
        ("Missing here", _names(skill.missing) if skill.missing else ""),
        ("Compatibility", escape(skill.compatibility)),
        ("License", escape(skill.license)),
        ("Documents", _names(skill.documents)),
        ("Scripts", _names(skill.scripts)),
        ("Files", _files(skill.files)),
    ]
    return "".join(f"<dt>{label}</dt><dd>{value}</dd>\n" for label, value in rows if value)


def _digest(digest: str) -> str:
    if not digest:
        return "none: the files cannot be read"
    return (
        f'<code title="{escape_attribute(digest)}">{escape(digest[:_SHORT_DIGEST])}</code> '
        f'<button type="button" data-copy="{escape_attribute(digest)}" aria-label="Copy digest" hidden>copy</button>'
        f'<br><code class="soft small">{escape(digest)}</code>'
    )


def _names(names: Sequence[str], name: str = "") -> str:
    listed = ", ".join(f"<code>{escape(each)}</code>" for each in names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return f'<span class="{name}">{listed}{more}</span>' if listed else ""


def _files(files: Sequence[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><code>{escape(path)}</code> <span class="soft small">{size_text(size)}</span></li>'
        for path, size in files[:_MAX_LISTED]
    )
    more = f"<li>and {len(files) - _MAX_LISTED:,} more</li>" if len(files) > _MAX_LISTED else ""
    return f'<ul class="plain">{items}{more}</ul>' if items else ""
