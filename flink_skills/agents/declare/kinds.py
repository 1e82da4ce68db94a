"""Checks that the attributes and methods of an agent are of the kinds that the runtime uses."""

from __future__ import annotations

import dataclasses
import difflib
import dis
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Generic

from pydantic import BaseModel

from flink_skills.agents.declare.resource import ResourceDescriptor
from flink_skills.errors import PlanError
from flink_skills.hints import is_class
from flink_skills.models.base import ChatModel
from flink_skills.other_frameworks import AGENT_WORDS
from flink_skills.resource import mark_of

_TYPE_ADVICE = "give a pydantic model or another type"


def not_an_agent(value: Any) -> PlanError:
    """Return the error of ``apply`` for a value that is not an agent, with what to give instead."""
    what = _shown(value)
    if isinstance(value, str) and value.endswith((".yaml", ".yml")):
        advice = f"load the file with load_agent_yaml({value!r})"
    elif isinstance(value, str):
        advice = "give the class of the agent instead of its name"
    elif is_class(value):
        advice = f"declare it as 'class {value.__name__}(Agent)'"
    elif isinstance(value, (list, tuple)):
        advice = "call apply for each agent"
    elif isinstance(value, Mapping):
        advice = "write the mapping to a YAML file, and load it with load_agent_yaml"
    elif inspect.isroutine(value):
        advice = "make it the method on_event of a class of Agent"
    else:
        advice = "declare an agent as 'class Triage(Agent)'"
    return PlanError(f"apply() takes an Agent class or instance, not {what}: {advice}")


def _shown(value: Any) -> str:
    if is_class(value):
        return f"the class {value.__qualname__}"
    if isinstance(value, (str, int, float, bool, types.GenericAlias)) or value is None:
        return repr(value)
    return f"the function {value.__name__}" if inspect.isfunction(value) else f"an object of {type(value).__qualname__}"


def check_kinds(agent: Any, id_: str) -> None:
    """Raise :class:`PlanError` that lists the attributes and methods of an agent that are of a wrong kind."""
    problems = [*_attribute_problems(agent), *_method_problems(agent)]
    if problems:
        raise PlanError(f"agent {id_}: {'; '.join(problems)}")


def _attribute_problems(agent: Any) -> Iterator[str]:
    if not isinstance(agent.name, str):
        yield f"name is {agent.name!r}: give a string, such as name = 'triage'"
    if agent.run_code is not None and not isinstance(agent.run_code, bool):
        yield f"run_code is {agent.run_code!r}: give True or False"
    if not isinstance(agent.files_field, str):
        yield f"files_field is {agent.files_field!r}: give the name of a field"
    content = agent.content_fields
    if isinstance(content, str) or not (
        isinstance(content, (list, tuple)) and all(isinstance(n, str) for n in content)
    ):
        yield f"content_fields is {content!r}: give a list of names of fields"
    yield from _model_problems(agent.model)
    for name in ("output_type", "input_type"):
        yield from _type_problems(name, getattr(agent, name))
    yield from _state_problems(agent.state_type)
    selector = agent.session_selector
    if selector is not None and inspect.iscoroutinefunction(selector):
        yield "session_selector is an async function: write it with 'def'"


def _model_problems(model: Any) -> Iterator[str]:
    if model is None or isinstance(model, str) or mark_of(model) is not None:
        return
    if isinstance(model, ResourceDescriptor):
        advice = "return it from a method with @chat_model_setup"
    elif isinstance(model, ChatModel) or (is_class(model) and issubclass(model, ChatModel)):
        advice = "register its provider with register_provider, or replace the model of a test with Agent.override"
    else:
        advice = "give a string such as 'openai:NAME' or 'offline'"
    yield f"model is {_shown(model)}: {advice}"


def _type_problems(name: str, of: Any) -> Iterator[str]:
    if isinstance(of, str):
        yield f"{name} is {of!r}: give the type itself, not its name"
    elif isinstance(of, Mapping):
        yield f"{name} is a dict: declare its fields in a pydantic model"
    elif isinstance(of, BaseModel) or (of is not None and isinstance(of, (bool, int, float, bytes, list, tuple, set))):
        yield f"{name} is {_shown(of)}: {_TYPE_ADVICE}"


def _state_problems(of: Any) -> Iterator[str]:
    if of is None:
        return
    advice = "give a pydantic model or a dataclass whose fields have defaults, or None for a dict"
    if not is_class(of) or not (issubclass(of, BaseModel) or dataclasses.is_dataclass(of)):
        yield f"state_type is {_shown(of)}: {advice}"
        return
    required = _required_fields(of)
    if required:
        yield (
            f"state_type {of.__name__} has fields without a default ({', '.join(required)}), which a new key has no "
            "values for: give them defaults"
        )


def _required_fields(of: type) -> list[str]:
    """Return the fields without which an instance cannot be made, as far as that is known."""
    if issubclass(of, BaseModel):
        validators = of.__pydantic_decorators__.model_validators.values()
        if of.__init__ is not BaseModel.__init__ or any(each.info.mode != "after" for each in validators):
            return []
        return [name for name, field in of.model_fields.items() if field.is_required()]
    parameters = inspect.signature(of).parameters.values()
    named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return [each.name for each in named if each.default is each.empty]


# The methods that users override, with their arguments.
_METHODS = {
    "on_event": ("event", "ctx"),
    "visible_skills": ("event", "ctx"),
    "approve": ("request",),
    "before_model": ("request", "ctx"),
    "around_tool": ("call", "ctx"),
    "evict": ("loaded", "ctx"),
    "listeners": (),
}


def _method_problems(agent: Any) -> Iterator[str]:
    for name, arguments in _METHODS.items():
        method = getattr(agent, name)
        wanted = f"{name}({', '.join(('self', *arguments))})"
        if (mark := mark_of(method)) is not None:
            yield f"{name} is a method with @{mark.kind}, and the name of a method that the runtime calls: rename it"
        elif not callable(method):
            yield f"{name} is {_shown(method)}: write a method {wanted}"
        elif not _accepts(method, len(arguments)):
            yield f"{name} does not accept the arguments of a call: write it as {wanted}"
        elif _is_swapped(method, arguments):
            yield f"{name} has its arguments in another order than the call: write it as {wanted}"
        elif name == "on_event" and (inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method)):
            yield "on_event has a 'yield', so its code would not run: emit outputs with ctx.emit(…), or return one"
        elif name == "visible_skills" and inspect.iscoroutinefunction(method):
            yield "visible_skills is an async function: write it with 'def'"


def _accepts(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with ``count`` arguments. True if its signature is not known."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _is_swapped(function: Callable[..., Any], arguments: Sequence[str]) -> bool:
    """Return True if the names or the annotations of the parameters are those of ``arguments`` in another order."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[: len(arguments)]
    except ValueError:
        return False
    names = ["ctx" if _is_context(parameter) else parameter.name for parameter in parameters]
    return any(name in arguments and name != expected for name, expected in zip(names, arguments, strict=False))


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    return parameter.name in ("context", "ctx") or "AgentContext" in (annotation, getattr(annotation, "__name__", ""))


_PACKAGE = __name__.partition(".")[0]
# 'skill_name' and 'instruction' are near known names, 'model_path' is not.
_NEAR = 0.8


def check_attributes(agent: object, base: type, id_: str) -> None:
    """Raise :class:`PlanError` for attributes of ``agent`` that nothing uses although their names suggest a use.

    The rule: an attribute is an error if its name is near that of an attribute of ``base``, the class of all agents, or
    is a word of another framework, unless the name starts with an underscore, the value is a method, or a method of the
    agent reads the attribute.
    """
    known = [name for name in vars(base) if not name.startswith("_")]
    problems = []
    for name in _attributes(agent, known):
        advice = _advice(name, known)
        if advice and not reads_attribute(type(agent), name):
            problems.append(f"attribute {name!r}: {advice}")
    if problems:
        raise PlanError(
            f"agent {id_} has attributes without an effect: {'; '.join(problems)}. To keep such an "
            "attribute, rename it, start its name with an underscore, or read it in a method of the agent"
        )


def _attributes(agent: object, known: Sequence[str]) -> Iterator[str]:
    """Yield the names of public attributes of the agent that are not methods, in the order of declaration."""
    seen = set(known)
    own: list[Mapping[str, Any]] = [vars(cls) for cls in reversed(type(agent).__mro__) if _is_of_users(cls)]
    for attributes in (*own, vars(agent)):
        for name, value in attributes.items():
            if not name.startswith("_") and name not in seen and not _is_method(value):
                seen.add(name)
                yield name


def _is_of_users(cls: type) -> bool:
    return cls not in (object, Generic) and cls.__module__.partition(".")[0] != _PACKAGE


def _is_method(value: Any) -> bool:
    # Classes, too, are callable, and 'output_schema = Answer' is what is to be found.
    return mark_of(value) is not None or (hasattr(type(value), "__get__") and not isinstance(value, type))


def _advice(name: str, known: Sequence[str]) -> str:
    if name in AGENT_WORDS:
        return AGENT_WORDS[name]
    near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    return f"did you mean {near[0]!r}?" if near else ""


def reads_attribute(cls: type, name: str) -> bool:
    """Return whether a method of the class reads an attribute ``name``."""
    codes = (
        code for base in cls.__mro__ if _is_of_users(base) for value in vars(base).values() for code in _codes(value)
    )
    return any(_code_reads(code, name) for code in codes)


def _codes(value: Any) -> Iterator[CodeType]:
    """Yield the code of a method, a property or a nested class."""
    if isinstance(value, property):
        functions: list[Any] = [value.fget, value.fset]
    elif isinstance(value, type):
        functions = list(vars(value).values())
    else:
        functions = [getattr(value, "func", None) or getattr(value, "__func__", None) or value]
    for function in functions:
        plain: Callable[..., Any] | Any = inspect.unwrap(function) if callable(function) else function
        code = getattr(plain, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _code_reads(code: CodeType, name: str) -> bool:
    instructions = list(dis.get_instructions(code))
    loaded = {str(one.argval) for one in instructions if one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))}
    if "getattr" in code.co_names:
        loaded |= {text for text in code.co_consts if isinstance(text, str)}
    return name in loaded or any(_code_reads(inner, name) for inner in code.co_consts if isinstance(inner, CodeType))
