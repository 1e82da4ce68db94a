"""Arguments of Python functions that are tools, in a worker and in a sandbox.

The program that runs the tools of skills contains this module and those that it imports, see
:mod:`flink_skills.tools.dynamic.skill_programs`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Optional

import pydantic
from pydantic.fields import FieldInfo

from flink_skills.hints import type_hints
from flink_skills.tools.arguments import Arguments
from flink_skills.tools.docstrings import docstring_of, read_docstring


class SignatureError(ValueError):
    """Models cannot call a function."""


class FunctionArguments(Arguments[pydantic.BaseModel]):
    """The arguments of a function, method or callable object, by its signature, annotations and docstring.

    Attributes:
        description: The docstring without the sections of arguments and errors.
        accepts_any: True if the function has ``**kwargs``.

    Args:
        name: The name of the tool.
        func: The function.
        is_hidden: Return True for a parameter that models do not provide. It receives the parameter and its annotation.
        names: Names that annotations can contain in addition to those of the function's module.
        is_lenient: True: an annotation that cannot be resolved or described allows any value instead of an error, and
            a default of None allows null.

    Raises:
        SignatureError: Models cannot call the function. The message starts with the name.

    >>> def add(a: int, b: int = 1) -> int: ...
    >>> arguments = FunctionArguments("add", add)
    >>> arguments.bind(arguments.read({"a": "2"}))
    ([], {'a': 2, 'b': 1})
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        *,
        is_hidden: Callable[[inspect.Parameter, Any], bool] = lambda parameter, hint: False,
        names: Mapping[str, Any] = MappingProxyType({}),
        is_lenient: bool = False,
    ) -> None:
        called = called_function(func)
        is_object = not (inspect.isroutine(called) or inspect.isclass(called))
        # This has the docstring and the annotations.
        inner = type(called).__call__ if is_object else called
        self.description, described = read_docstring(docstring_of(inner, called))
        self.accepts_any = False
        # In the order of the signature. The field of the model, or None for a hidden parameter.
        self._parameters: list[tuple[inspect.Parameter, str | None]] = []
        hints = _lenient_hints(inner) if is_lenient else _hints(name, inner, names)
        fields: dict[str, Any] = {}
        for parameter in _parameters_of(name, func):
            hint = hints.get(parameter.name, Any)
            if is_lenient and parameter.default is None:
                hint = Optional[hint]  # noqa: UP045 - it can be a string; models write null for what they can omit
            if parameter.kind is parameter.VAR_KEYWORD:
                self.accepts_any = True
            elif is_hidden(parameter, hints.get(parameter.name, parameter.empty)):
                self._parameters.append((parameter, None))
            else:
                # Any name is allowed for an argument, and not for a field of a pydantic model: hence aliases.
                field = f"argument_{len(fields)}"
                fields[field] = _field(parameter, hint, described.get(parameter.name))
                self._parameters.append((parameter, field))
        super().__init__(name, _model(name, fields, "allow" if self.accepts_any else "forbid"))

    def bind(self, checked: pydantic.BaseModel, hidden: Any = None) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments of the call. ``hidden`` is the value of hidden parameters."""
        positional: list[Any] = []
        named: dict[str, Any] = dict(checked.model_extra or {})
        for parameter, field in self._parameters:
            value = hidden if field is None else getattr(checked, field)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named


def called_function(func: Any) -> Any:
    """Return the function or object in partials."""
    while hasattr(func, "func"):
        func = func.func
    return func


def _parameters_of(name: str, func: Any) -> list[inspect.Parameter]:
    try:
        parameters = [*inspect.signature(func).parameters.values()]
    except (TypeError, ValueError) as error:
        raise SignatureError(f"{name!r} has no signature to read ({error}): wrap it in a function") from error
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise SignatureError(f"{name!r}: models cannot give *{parameter.name}: name the arguments")
    return parameters


def _model(name: str, fields: Mapping[str, Any], extra: Literal["allow", "forbid"]) -> type[pydantic.BaseModel]:
    try:
        model: type[pydantic.BaseModel] = pydantic.create_model(
            name, __config__=pydantic.ConfigDict(extra=extra), **fields
        )
        model.model_json_schema()
    except (pydantic.errors.PydanticUserError, TypeError, NameError) as error:
        raise SignatureError(
            f"{name!r}: its arguments cannot be described to a model ({str(error).splitlines()[0]}): annotate them "
            "with JSON-like types or pydantic models"
        ) from error
    return model


def _hints(name: str, inner: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return type_hints(_annotated(inner), localns=names, include_extras=True)
    except NameError as error:
        raise SignatureError(
            f"{name!r}: the annotation {error.name!r} cannot be found when the job runs: "
            "import it at the top of the module, outside TYPE_CHECKING"
        ) from error
    except TypeError:
        return {}  # a builtin without annotations


def _lenient_hints(inner: Any) -> dict[str, Any]:
    """Return the annotations. ``Any`` replaces those that cannot be resolved or described."""
    function = _annotated(inner)
    found: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hint = type_hints(one, inspect.unwrap(function).__globals__, include_extras=True)[name]
            pydantic.TypeAdapter(hint).json_schema()
        except Exception:  # annotations are expressions, and raise anything
            hint = Any
        found[name] = hint
    return found


def _annotated(inner: Any) -> Any:
    """Return the function that has the annotations."""
    if inspect.isclass(inner):
        return inner.__init__
    return inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004


def _field(parameter: inspect.Parameter, hint: Any, described: str | None) -> tuple[Any, Any]:
    default = ... if parameter.default is parameter.empty else parameter.default
    extras = getattr(hint, "__metadata__", ())
    described = described or next((extra for extra in extras if isinstance(extra, str)), None)
    if not described or any(isinstance(extra, FieldInfo) and extra.description for extra in (*extras, default)):
        return Annotated[hint, pydantic.Field(alias=parameter.name)], default
    return Annotated[hint, pydantic.Field(alias=parameter.name, description=described)], default
