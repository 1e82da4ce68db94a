"""Plugins: the rules of the Agent Plugins Specification 1.0.0, and the manifests of vendors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from flink_skills.skill import Diagnostic, Limits, Report, find_servers, find_skills, load_found

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
NO_SCHEMA = "plugin.json is not used, because it has no $schema of the standard"
MCP = "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"


def skill(folder: Path, name: str | None = None) -> None:
    folder.mkdir(parents=True)
    name = folder.name if name is None else name
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Does {name}.\n---\nDo it.\n")


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def load(root: Path) -> tuple[list[str], list[Diagnostic]]:
    """Return the names of the skills, and all diagnostics."""
    report = Report(str(root))
    names: list[str] = []
    found: list[Diagnostic] = []
    for place in find_skills(str(root), report, Limits()):
        result = load_found(place, root=str(root.resolve()))
        found += result.diagnostics
        if result.skill is not None:
            names.append(result.skill.name)
    return sorted(names), [*report.diagnostics, *found]


def unselected(*places: str) -> str:
    return f"skills that no manifest selects are not used: {', '.join(map(repr, places))}"


def codes(diagnostics: list[Diagnostic]) -> list[str]:
    return sorted(each.code for each in diagnostics)


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A plugin of the standard with one skill."""
    root = tmp_path / "plugin"
    skill(root / "skills/deploy")
    write(root / "plugin.json", {"$schema": SCHEMA, "name": "ops"})
    return root


FULL = {
    "version": "not semver",
    "description": "Operates.",
    "author": {"name": "A", "email": "no address", "url": "no url"},
    "homepage": "no url",
    "repository": "no url",
    "license": "no SPDX",
    "keywords": ["a", "b"],
    "extensions": {"com.example.client": {"anything": [1, None]}},
}


@pytest.mark.parametrize("name", ["ops", "a", "acme.tools", "lint3r", "a-b.c-d", "a.-b", "x" * 64])
@pytest.mark.row("B25")
def test_a_manifest_of_the_standard_is_accepted(plugin: Path, name: str) -> None:
    write(plugin / "plugin.json", {"$schema": SCHEMA, "name": name, **FULL})
    assert load(plugin) == (["deploy"], [])


VIOLATIONS: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "the file is not JSON"),
    "NaN": (
        f'{{"$schema": "{SCHEMA}", "name": "a", "extensions": {{"a.b": {{"n": NaN}}}}}}',
        "NaN is not a JSON value",
    ),
    "an array": ([], "an array instead of an object"),
    "no schema": ({"name": "ops"}, "'$schema' is missing"),
    "another version": (
        {"$schema": SCHEMA.replace("1.0.0", "2.0.0"), "name": "ops"},
        "2.0.0/plugin.schema.json', which this release does not support",
    ),
    "the schema of servers": ({"$schema": MCP, "name": "ops"}, "'$schema' is"),
    "no name": ({"$schema": SCHEMA}, "'name' is missing"),
    "an empty name": ({"$schema": SCHEMA, "name": ""}, "'name' is ''"),
    "a long name": ({"$schema": SCHEMA, "name": "x" * 65}, "'name' is 'x"),
    "capitals": ({"$schema": SCHEMA, "name": "My-Plugin"}, "'name' is 'My-Plugin'"),
    "a leading hyphen": ({"$schema": SCHEMA, "name": "-start"}, "'name' is '-start'"),
    "a final period": ({"$schema": SCHEMA, "name": "end."}, "'name' is 'end.'"),
    "two hyphens": ({"$schema": SCHEMA, "name": "has--double"}, "'name' is 'has--double'"),
    "two periods": ({"$schema": SCHEMA, "name": "too.many..dots"}, "'name' is 'too.many..dots'"),
    "a final line": ({"$schema": SCHEMA, "name": "ops\n"}, "'name' is 'ops"),
    "a number as version": ({"$schema": SCHEMA, "name": "ops", "version": 1}, "'version' is a number"),
    "an author as text": ({"$schema": SCHEMA, "name": "ops", "author": "A"}, "'author' is a string"),
    "a field of an author": ({"$schema": SCHEMA, "name": "ops", "author": {"x": "y"}}, "'author' has 'x'"),
    "keywords as text": ({"$schema": SCHEMA, "name": "ops", "keywords": "a"}, "'keywords' is not an array"),
    "a keyword as number": ({"$schema": SCHEMA, "name": "ops", "keywords": [1]}, "'keywords' is not an array"),
    "an extension as text": (
        {"$schema": SCHEMA, "name": "ops", "extensions": {"com.example.x": "y"}},
        "'com.example.x' in 'extensions' is a string",
    ),
}


@pytest.mark.parametrize("case", VIOLATIONS)
@pytest.mark.row("B25")
def test_any_other_violation_rejects_the_plugin(plugin: Path, case: str) -> None:
    content, reason = VIOLATIONS[case]
    write(plugin / "plugin.json", content)
    write(plugin / "mcp.json", "{")
    names, diagnostics = load(plugin)
    assert names == []
    assert codes(diagnostics) == ["G01"]
    assert reason in diagnostics[0].message


def test_all_reasons_of_a_rejection_are_named(plugin: Path) -> None:
    write(plugin / "plugin.json", {"name": "A", "license": 1})
    message = load(plugin)[1][0].message
    assert all(part in message for part in ("'$schema'", "'name'", "'license'"))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"skills": "./other"}, "the field 'skills' is unknown"),
        ({"keyword": []}, "the field 'keyword' is unknown; did you mean 'keywords'?"),
        ({"extensions": []}, "the field 'extensions' is not an object"),
        ({"extensions": None}, "the field 'extensions' is not an object"),
    ],
)
def test_unknown_fields_and_extensions_are_reported_and_ignored(plugin: Path, field: Any, message: str) -> None:
    write(plugin / "plugin.json", {"$schema": SCHEMA, "name": "ops", **field})
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    assert [(each.code, each.message) for each in diagnostics] == [("G02", message)]


def test_skills_are_the_direct_children_of_skills_and_nothing_deeper(plugin: Path) -> None:
    skill(plugin / "skills/group/deep")
    skill(plugin / "skills/deploy/nested")
    skill(plugin / "elsewhere/other")
    (plugin / "skills/empty").mkdir()
    skill(plugin / "skills/lower")
    (plugin / "skills/lower/SKILL.md").rename(plugin / "skills/lower/skill.md")
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    assert [each.message for each in diagnostics] == [unselected("elsewhere/other", "skills/group/deep")]


def test_a_skill_that_does_not_conform_is_omitted_and_others_load(plugin: Path) -> None:
    skill(plugin / "skills/other", name="another")
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    assert "plugin 'ops' omits the skill, because it does not conform to the specification: F07" in [
        each.message for each in diagnostics if each.code == "G05"
    ]


@pytest.mark.row("B25")
def test_links_have_the_narrowest_effect(plugin: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    skill(outside / "far")
    skill(plugin / "inner/near")
    (plugin / "skills/far").symlink_to(outside / "far")
    (plugin / "skills/near").symlink_to(plugin / "inner/near")
    (plugin / "skills/file").mkdir()
    (plugin / "skills/file/SKILL.md").symlink_to(outside / "far/SKILL.md")
    names, diagnostics = load(plugin)
    assert names == ["deploy", "near"]
    assert codes(diagnostics) == ["G04", "S04"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_skills_that_are_no_folder_of_the_plugin_are_reported(plugin: Path, tmp_path: Path, kind: str) -> None:
    (plugin / "skills").rename(tmp_path / "skills")
    if kind == "file":
        write(plugin / "skills", "text")
    else:
        (plugin / "skills").symlink_to(tmp_path / "skills")
    names, diagnostics = load(plugin)
    assert names == []
    assert "the skills are not read" in next(each.message for each in diagnostics if each.code == "G04")


def test_a_manifest_that_leaves_the_plugin_rejects_it(plugin: Path, tmp_path: Path) -> None:
    (plugin / "plugin.json").rename(tmp_path / "plugin.json")
    (plugin / "plugin.json").symlink_to(tmp_path / "plugin.json")
    names, diagnostics = load(plugin)
    assert names == []
    assert "the file is a link that leaves the plugin" in diagnostics[0].message


def test_plugins_are_found_below_the_root_of_a_source(plugin: Path) -> None:
    skill(plugin.parent / "plain")
    assert load(plugin.parent)[0] == ["deploy", "plain"]


def stdio(**fields: Any) -> dict[str, Any]:
    return {"type": "stdio", "command": "server", **fields}


def http(**fields: Any) -> dict[str, Any]:
    return {"type": "streamable-http", "url": "https://mcp.example.com/mcp", **fields}


GOOD_SERVERS: dict[str, Any] = {
    "a program": stdio(),
    "a path": stdio(command="./bin/server", args=["${PLUGIN_DATA}", "../x"], env={"A": "b"}, cwd="./data"),
    "the root": stdio(cwd="${PLUGIN_ROOT}"),
    "data": stdio(cwd="${PLUGIN_DATA}/a/../b"),
    "http": http(headers={"X-Tenant": "a b"}),
    "this machine": http(url="http://127.0.0.9:1/mcp"),
    "localhost": http(url="http://localhost/mcp"),
    "IPv6": http(url="http://[::1]/mcp"),
    "sse": {"type": "sse", "url": "https://mcp.example.com/sse"},
}

BAD_SERVERS: dict[str, tuple[Any, str]] = {
    "text": ("server", "the server is a string instead of an object"),
    "no type": ({"command": "server"}, "'type' is missing"),
    "another type": ({"type": "http", "url": "https://x.example"}, "'type' is 'http'"),
    "an unknown field": (stdio(timeout=5), "'timeout' is not a field of a server of type stdio"),
    "a field of the other kind": (stdio(url="https://x.example"), "'url' is not a field"),
    "no command": ({"type": "stdio"}, "'command' is missing"),
    "an empty command": (stdio(command=""), "'command' is missing"),
    "a command as list": (stdio(command=["a"]), "'command' is an array"),
    "an absolute command": (stdio(command="/bin/sh"), "'command' is '/bin/sh'"),
    "a command above": (stdio(command="../server"), "'command' is '../server'"),
    "a command that leaves": (stdio(command="./../server"), "'command' leaves the plugin"),
    "a path without a dot": (stdio(command="bin/server"), "'command' is 'bin/server'"),
    "a cwd without a dot": (stdio(cwd="data"), "'cwd' is 'data'"),
    "a cwd that leaves": (stdio(cwd="./a/../../x"), "'cwd' leaves the plugin"),
    "a cwd that leaves by its variable": (stdio(cwd="${PLUGIN_ROOT}/.."), "'cwd' leaves the plugin"),
    "a cwd that leaves the data": (stdio(cwd="${PLUGIN_DATA}/../x"), "'cwd' leaves the folder for data"),
    "a longer variable": (stdio(cwd="${PLUGIN_ROOT}x"), "'cwd' is '${PLUGIN_ROOT}x'"),
    "a reserved variable": (stdio(env={"PLUGIN_ROOT": "/"}), "'env' sets PLUGIN_ROOT"),
    "a number in env": (stdio(env={"A": 1}), "'env' is not an object of strings"),
    "a number in args": (stdio(args=[1]), "'args' is not an array of strings"),
    "no url": ({"type": "sse"}, "'url' is missing"),
    "a relative url": (http(url="/mcp"), "'url' is not an absolute address"),
    "another scheme": (http(url="ftp://x.example"), "'url' is not an absolute address"),
    "a user": (http(url="https://me@x.example"), "user information or a fragment"),
    "a fragment": (http(url="https://x.example/#a"), "user information or a fragment"),
    "plain http": (http(url="http://x.example/mcp"), "'url' uses http"),
    "a name like this machine": (http(url="http://127.0.0.1.x.example/mcp"), "'url' uses http"),
    "a port": (http(url="https://x.example:99999/"), "'url' is not an address"),
    "two names": (http(headers={"A": "b", "a": "c"}), "'headers' has a name twice"),
    "a NUL in a command": (stdio(command="./a\0b"), "'command' contains characters"),
    "a NUL in an argument": (stdio(args=["a\0"]), "'args' is not an array of strings"),
    "half a character in a cwd": (stdio(cwd="./\ud800"), "'cwd' contains characters"),
    "half a character in env": (stdio(env={"A": "\udfff"}), "'env' is not an object of strings"),
    "half a character in a url": (http(url="https://x.example/\ud800"), "'url' contains characters"),
    "a line in a header": (http(headers={"A": "b\r\nC: d"}), "not a valid header"),
    "a name with a blank": (http(headers={"A b": "c"}), "not a valid header"),
}


def servers(plugin: Path, **found: Any) -> list[str]:
    write(plugin / "mcp.json", {"$schema": MCP, "mcpServers": found})
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    return [each.message for each in diagnostics]


@pytest.mark.parametrize("case", GOOD_SERVERS)
def test_a_valid_server_is_named_with_the_option_that_starts_it(plugin: Path, case: str) -> None:
    assert servers(plugin, one=GOOD_SERVERS[case]) == ["MCP server 'ops:one' is not started"]
    fixes = [each.fix for each in load(plugin)[1]]
    assert fixes == ["add 'ops:one' to skills.plugins.servers to start it"]
    (found,) = find_servers(str(plugin), Limits())
    assert (found.full_name, found.settings, found.root) == ("ops:one", GOOD_SERVERS[case], str(plugin.resolve()))


@pytest.mark.parametrize("case", BAD_SERVERS)
@pytest.mark.row("B25")
def test_a_wrong_server_costs_that_server(plugin: Path, case: str) -> None:
    server, reason = BAD_SERVERS[case]
    wrong, other = servers(plugin, wrong=server, other=stdio())
    assert wrong.startswith("MCP server 'ops:wrong' is not usable: ")
    assert reason in wrong
    assert other == "MCP server 'ops:other' is not started"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "the file is not JSON"),
        ([], "the file is an array"),
        ({"mcpServers": {}}, "'$schema' is missing"),
        ({"$schema": MCP.replace("1.0.0", "1.9.0"), "mcpServers": {}}, "the version of '$schema' differs"),
        ({"$schema": MCP}, "'mcpServers' is not an object"),
        ({"$schema": MCP, "mcpServers": {}, "inputs": []}, "the field 'inputs' is unknown"),
        ({"$schema": MCP, "mcpServers": {str(each): {} for each in range(1_001)}}, "more than 1,000 servers"),
    ],
)
@pytest.mark.row("B25")
def test_a_wrong_file_of_servers_costs_all_servers(plugin: Path, content: Any, reason: str) -> None:
    write(plugin / "mcp.json", content)
    names, diagnostics = load(plugin)
    assert (names, codes(diagnostics)) == (["deploy"], ["G04"])
    assert reason in diagnostics[0].message


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_a_file_of_servers_that_is_no_file_of_the_plugin_costs_all_servers(
    plugin: Path, tmp_path: Path, kind: str
) -> None:
    path = plugin / "mcp.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        write(tmp_path / "mcp.json", {"$schema": MCP, "mcpServers": {"one": stdio()}})
        path.symlink_to(tmp_path / "mcp.json")
    load(plugin)
    opened = len(os.listdir("/proc/self/fd"))
    names, diagnostics = load(plugin)
    assert len(os.listdir("/proc/self/fd")) == opened
    # The search reports links that leave the source in addition.
    assert (names, {*codes(diagnostics)} - {"S04"}) == (["deploy"], {"G04"})
    assert find_servers(str(plugin), Limits()) == []


def test_a_command_and_a_cwd_that_are_links_out_of_the_plugin_cost_that_server(plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (plugin / "out").symlink_to(tmp_path / "outside")
    servers(plugin, a=stdio(command="./out/server"), b=stdio(cwd="./out"), c=stdio())
    assert [server.name for server in find_servers(str(plugin), Limits())] == ["c"]


def test_servers_of_other_files_are_not_read_in_a_plugin_of_the_standard(plugin: Path) -> None:
    write(plugin / ".mcp.json", {"mcpServers": {"one": stdio()}})
    write(plugin / "plugin.json", {"$schema": SCHEMA, "name": "ops", "mcpServers": {"two": stdio()}})
    assert [(each.code, each.message) for each in load(plugin)[1]] == [
        ("G02", "the field 'mcpServers' is unknown"),
        ("G03", ".mcp.json of the plugin is not used"),
    ]
    assert find_servers(str(plugin), Limits()) == []


@pytest.mark.row("B25")
def test_parts_that_are_not_used_are_named_once_each(plugin: Path) -> None:
    for name in ("hooks", "commands", "agents", "com.example.client"):
        (plugin / name).mkdir()
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    assert [each.message.partition(" ")[0] for each in diagnostics] == [
        "agents",
        "com.example.client",
        "commands",
        "hooks",
    ]
    assert codes(diagnostics) == ["G03"] * 4


# Manifests of vendors.


def test_the_manifest_of_the_standard_counts_before_those_of_vendors(plugin: Path) -> None:
    write(plugin / ".claude-plugin/plugin.json", {"name": "other", "skills": ["./more"]})
    skill(plugin / "more/extra")
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    assert [each.message for each in diagnostics] == [
        ".claude-plugin is not used, because plugin.json counts",
        unselected("more/extra"),
    ]


def test_a_file_of_a_vendor_with_the_name_of_the_manifest_of_the_standard_is_named(plugin: Path) -> None:
    write(plugin / "plugin.json", {"name": "ops", "version": 1})
    assert codes(load(plugin)[1]) == ["G01"]
    write(plugin / ".claude-plugin/plugin.json", {"name": "ops"})
    names, diagnostics = load(plugin)
    assert names == ["deploy"]
    assert [each.message for each in diagnostics] == (expected := [NO_SCHEMA])
    write(plugin / ".claude-plugin/marketplace.json", {"plugins": [{"name": "ops", "source": "./"}]})
    assert [each.message for each in load(plugin)[1]] == expected


def test_skills_that_no_manifest_selects_are_named(tmp_path: Path) -> None:
    write(tmp_path / ".claude-plugin/plugin.json", {"name": "ops", "skills": ["./skills/a"]})
    for place in ("skills/a", "skills/a/files/inner", "skills/node_modules/x", *(f"old/{name}" for name in "bcdefgh")):
        skill(tmp_path / place)
    names, diagnostics = load(tmp_path)
    assert names == ["a"]
    assert [each.message for each in diagnostics] == [
        unselected("old/b", "old/c", "old/d", "old/e", "old/f") + " and 2 more"
    ]


def test_parts_of_an_entry_of_a_marketplace_are_named(tmp_path: Path) -> None:
    skill(tmp_path / "one/skills/a")
    entry = {"name": "one", "source": "./one", "lspServers": {"x": {}}, "userConfig": {"token": {}}}
    write(tmp_path / ".claude-plugin/marketplace.json", {"plugins": [entry]})
    assert [each.message for each in load(tmp_path)[1]] == [
        "'lspServers' of the plugin is not used",
        "'userConfig' of the plugin is not used",
    ]


@pytest.mark.parametrize("vendor", [".claude-plugin", ".codex-plugin", ".cursor-plugin"])
@pytest.mark.row("B25")
def test_the_skills_of_a_vendor_manifest_select(tmp_path: Path, vendor: str) -> None:
    for name in ("good/one", "good/two", "old/three", "other/four"):
        skill(tmp_path / "skills" / name)
    write(tmp_path / vendor / "plugin.json", {"name": "kit", "skills": ["./skills/good", "./skills/other/four"]})
    names, diagnostics = load(tmp_path)
    assert names == ["four", "one", "two"]
    assert [each.message for each in diagnostics] == [unselected("skills/old/three")]


def test_a_vendor_plugin_without_a_list_has_the_children_of_skills(tmp_path: Path) -> None:
    skill(tmp_path / "skills/one")
    skill(tmp_path / "drafts/two")
    write(tmp_path / ".claude-plugin/plugin.json", {"name": "kit", "hooks": "./hooks.json", "lspServers": {"a": {}}})
    names, diagnostics = load(tmp_path)
    assert names == ["one"]
    assert [each.message for each in diagnostics] == [
        "'hooks' of the plugin is not used",
        "'lspServers' of the plugin is not used",
        unselected("drafts/two"),
    ]


def test_servers_of_vendors_are_in_files_and_in_manifests(tmp_path: Path) -> None:
    write(tmp_path / ".mcp.json", {"usual": {"command": "a"}, "same": {"command": "b"}})
    write(tmp_path / "more.json", {"mcpServers": {"more": {"type": "http", "url": "https://x.example/mcp"}}})
    inline = {"same": {"command": "inline"}, "wrong": {}, "text": "a"}
    write(tmp_path / ".claude-plugin/plugin.json", {"name": "kit", "mcpServers": [inline, "./more.json", "../no.json"]})
    diagnostics = load(tmp_path)[1]
    assert [each.message for each in diagnostics] == [
        "MCP server 'kit:same' is not started",
        "MCP server 'kit:wrong' is not usable: 'command' or 'url' is missing",
        "MCP server 'kit:text' is not usable: the server is a string instead of an object",
        "MCP server 'kit:more' is not started",
        "servers of the plugin are not usable: the file cannot be read: No such file or directory",
        "MCP server 'kit:usual' is not started",
    ]
    found = {server.name: server.settings.get("command") for server in find_servers(str(tmp_path), Limits())}
    assert found == {"same": "inline", "more": None, "usual": "a"}


def test_paths_of_a_vendor_manifest_stay_in_the_plugin(tmp_path: Path) -> None:
    root = tmp_path / "kit"
    skill(tmp_path / "outside")
    skill(root / "skills/one")
    write(
        root / ".claude-plugin/plugin.json",
        {
            "name": "kit",
            "skills": ["../outside", "./none", str(tmp_path / "outside"), 5, "./a\0b", "./\ud800", "./skills"],
            "mcpServers": ["./a\0b", "./\ud800"],
        },
    )
    names, diagnostics = load(root)
    assert names == ["one"]
    assert codes(diagnostics) == ["G04"] * 8


@pytest.mark.row("B25")
def test_a_marketplace_lists_the_plugins_of_its_folder(tmp_path: Path) -> None:
    for name in ("skills/pdf", "skills/draft", "plugins/ops/skills/deploy", "plugins/unlisted/skills/secret"):
        skill(tmp_path / name)
    entries = [
        {"name": "documents", "source": "./", "strict": False, "skills": ["./skills/pdf"]},
        {"name": "ops", "source": "./plugins/ops"},
        {"name": "far", "source": {"source": "github", "repo": "a/b"}},
        {"name": "gone", "source": "./plugins/gone"},
        {"name": "above", "source": "../"},
        {"name": "odd", "source": "./a\0b"},
    ]
    write(tmp_path / ".claude-plugin/marketplace.json", {"name": "all", "plugins": entries})
    names, diagnostics = load(tmp_path)
    assert names == ["deploy", "pdf"]
    assert codes(diagnostics) == ["G03", "G03", "G04", "G04", "G04"]
    assert diagnostics[-1].message == unselected("plugins/unlisted/skills/secret", "skills/draft")


def test_a_wrong_manifest_of_a_vendor_rejects_the_plugin(tmp_path: Path) -> None:
    skill(tmp_path / "skills/one")
    write(tmp_path / ".claude-plugin/plugin.json", "{")
    names, diagnostics = load(tmp_path)
    assert (names, codes(diagnostics)) == ([], ["G01"])


def test_a_huge_manifest_is_rejected(plugin: Path) -> None:
    write(plugin / "plugin.json", " " * (1 << 20) + "{}")
    assert "1,048,576 bytes" in load(plugin)[1][0].message
