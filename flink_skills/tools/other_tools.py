"""Tools that a model calls although it does not have them: names of other agents, and misspelled names.

A model was trained with the tools of other agents, and instructions of skills were written for them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from flink_skills.errors import near_misses
from flink_skills.tools.profiles import TOOL_NAMES

__all__ = ["same_tools", "suggestion"]

_COMMANDS = ("execute_shell_command", "Bash", "skill_run")
_LOAD = ("load_skill", "skill_load")
_FEWEST_LETTERS = 2
_SHOWN = 2

# The tools of this package for a job, best first, and the names that other agents, or another profile, have for it.
# Names are in lower case and without separators.
_JOBS: Sequence[tuple[tuple[str, ...], str]] = (
    (
        _COMMANDS,
        "bash shell sh zsh cmd powershell exec execute run terminal console commandline localshell bashtool shelltool "
        "runterminalcmd runterminalcommand runinterminal runcommand runcommands runshell runshellcommand shellcommand "
        "shellexec shellexecute executecommand executebash executeshell executeterminal bashcommand runbash "
        "runbashcommand systemcommand subprocess containerexec containerexecute desktopcommander startprocess "
        "runskillscript runscript executescript executeskill executeskillscript runprocess execcommand "
        "codeexecution bashcodeexecution codeinterpreter python python3 ipython jupyter notebook runpython "
        "executepython pythonexec pythonrepl pythontool runpythoncode executepythoncode runcode executecode "
        "codeexecutor pythoninterpreter javascript node runjavascript executeshellcommand skillrun workspaceexec",
    ),
    (
        ("Read", "load_skill_resource", *_COMMANDS),
        "read readfile readfiles readmanyfiles readtextfile readtextfiles view viewfile cat openfile open getfile "
        "getfilecontents filereader readdocument loadfile notebookread fileread head tail",
    ),
    (
        ("load_skill_resource", "Read", "skill_load", *_COMMANDS),
        "loadskillresource readskillresource readskillfile readskillreference getskillresource getskillfile "
        "skillresource loadresource readresource readreference loadreference loadskillfile viewskillfile",
    ),
    (
        ("Write", *_COMMANDS),
        "write writefile writefiles createfile savefile filewrite filewriter writetofile newfile putfile writetextfile",
    ),
    (
        ("Edit", "Write", *_COMMANDS),
        "edit multiedit editfile strreplace strreplaceeditor strreplacebasededittool replace replaceinfile "
        "searchreplace searchandreplace applypatch applydiff patch texteditor notebookedit editnotebook insert "
        "inserttext insertedit inserteditintofile modifyfile updatefile fileedit textreplace undoedit",
    ),
    (
        ("Glob", *_COMMANDS),
        "glob ls dir listdir listdirectory listfiles listfolder find findfiles filesearch globfilesearch "
        "searchforfiles directorytree tree globfiles",
    ),
    (
        ("Grep", *_COMMANDS),
        "grep rg ripgrep grepsearch searchfiles searchfilecontent searchtext searchcode codesearch codebasesearch "
        "findinfiles contentsearch textsearch",
    ),
    (
        ("web_search",),
        "websearch searchweb googlesearch googlewebsearch google bingsearch bing duckduckgo internetsearch "
        "searchinternet bravesearch bravewebsearch tavilysearch tavily searchtheweb onlinesearch browsersearch",
    ),
    (
        ("web_fetch",),
        "webfetch fetch fetchurl fetchpage fetchwebpage geturl httpget httprequest curl wget urlcontext openurl "
        "readurl browse browser browserurl visitpage visitwebpage visiturl openpage navigate browsernavigate scrape "
        "webbrowser webbrowse readwebpage extracturl",
    ),
    (
        _LOAD,
        "skill skills useskill useskills readskill getskill getskills activateskill activateskills invokeskill "
        "runskill callskill openskill enableskill viewskill viewskills fetchskill skillloader skillview "
        "getskillinstructions readskillmd loadskill skillload loadskills",
    ),
    (
        ("skill_list", *_LOAD),
        "listskills listskill listavailableskills availableskills searchskills searchskill findskills findskill "
        "discoverskills showskills skillslist skilllist",
    ),
    (("unload_skill", "skill_unload"), "unloadskill skillunload deactivateskill removeskill closeskill releaseskill"),
    (("skill_list_docs", *_LOAD), "skilllistdocs listdocs listskilldocs listskillfiles listresources listreferences"),
    (("skill_select_docs", "skill_load", "load_skill_resource"), "skillselectdocs selectdocs loaddocs loaddocument"),
    (("skill_exec", *_COMMANDS), "skillexec startsession ptyexec spawn"),
    (
        ("skill_poll_session",),
        "skillpollsession bashoutput taskoutput getterminaloutput readprocessoutput commandstatus pollsession",
    ),
    (
        ("skill_write_stdin",),
        "skillwritestdin workspacewritestdin writestdin sendinput sendkeys writetoterminal sendstdin "
        "interactwithprocess",
    ),
    (
        ("skill_kill_session",),
        "skillkillsession workspacekillsession killshell killbash killsession killprocess killterminal stopprocess",
    ),
)
_TOOLS: Mapping[str, tuple[str, ...]] = {name: tools for tools, names in _JOBS for name in names.split()}
_SEPARATOR = re.compile(r"__|[.:/]")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Some providers date their tools: text_editor_20250124.
_DATE = re.compile(r"[_-]?20\d{6}$")


def suggestion(name: str, known: Collection[str]) -> str:
    """Return a sentence with the tools of ``known`` that ``name`` means or resembles. Return "" if there is none.

    >>> suggestion("Bash", ["load_skill", "execute_shell_command"])
    'Use execute_shell_command instead.'
    >>> suggestion("skill_load", ["load_skill", "price"]), suggestion("prise", ["load_skill", "price"])
    ('Did you mean load_skill?', 'Did you mean price?')
    """
    same = same_tools(name, known)
    if same:
        return f"Did you mean {' or '.join(same)}?"
    instead = _equivalent(name, known)
    if instead:
        return f"Use {' or '.join(instead)} instead."
    # A tool of this package that the model does not have is spelled correctly, and one like it does another job.
    near = near_misses(name, known) if name not in TOOL_NAMES else []
    return f"Did you mean {' or '.join(near)}?" if near else ""


def same_tools(name: str, known: Collection[str]) -> list[str]:
    """Return the tools whose names differ from ``name`` only in spelling, in a prefix or in the order of words."""
    spellings = _spellings(name)
    words = sorted(_words(name))
    return [tool for tool in known if _plain(tool) in spellings or (len(words) > 1 and sorted(_words(tool)) == words)]


def _equivalent(name: str, known: Collection[str]) -> list[str]:
    """Return the best tools of ``known`` for the job of another agent's tool ``name``."""
    for spelling in _spellings(name):
        tools = _TOOLS.get(spelling)
        if tools is not None:
            found = [tool for tool in tools if tool in known]
            return found[: 1 if found[:1] == [tools[0]] else _SHOWN]
    return []


def _spellings(name: str) -> list[str]:
    """Return ``name`` in lower case without separators, and its last part if it has a prefix, such as a server's."""
    undated = _DATE.sub("", name.strip())
    last = _SEPARATOR.split(undated)[-1]
    return [plain for plain in dict.fromkeys((_plain(undated), _plain(last))) if len(plain) >= _FEWEST_LETTERS]


def _plain(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(name)]
