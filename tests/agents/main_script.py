"""Script that declares what users declare in a main script; ``test_sealing.py`` runs it as ``__main__``.

It pickles each event twice and, on its own, the function that uses the event, as a job does. The function's result in
this process is what each other process must get as well.
"""

import abc
import dataclasses
import enum
import functools
import json
import logging
import math
import pickle
import sys
import typing
from collections import namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Optional, Protocol, TypeVar

import cloudpickle
import pydantic
from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, computed_field, field_validator, model_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import NotRequired, TypedDict

from flink_skills import AgentsExecutionEnvironment
from flink_skills.hints import type_hints

assert AgentsExecutionEnvironment  # as a job imports it; it comes before everything that is pickled
T = TypeVar("T")
log = logging.getLogger("script")


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = 2

    def lower(self) -> str:
        return self.name.lower()


class Planet(enum.Enum):
    EARTH = (6, 3)
    MARS = (4, 2)

    def __init__(self, mass: int, radius: int) -> None:
        self.mass, self.radius = mass, radius


class Level(str, enum.Enum):
    def __new__(cls, value: str, label: str) -> "Level":
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    HIGH = ("high", "very high")
    LOW = ("low", "rather low")


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2
    BOTH = 3


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: str
    color: Color = Color.RED
    lines: list[Line] = field(default_factory=list, metadata={"unit": "piece"})
    customer: Optional["Customer"] = None
    currency: ClassVar[str] = "EUR"
    seen: ClassVar[list[str]] = []

    def total(self) -> int:
        return sum(line.count for line in self.lines)


@dataclass
class Customer:
    name: str
    orders: list["Order"] = field(default_factory=list)


@dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = 2


@dataclass(slots=True)
class Slotted:
    x: int
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    x: int
    y: int = 2


@dataclass
class Keyword:
    x: int
    _: KW_ONLY
    y: int = 2
    seed: InitVar[Optional[int]] = None
    z: int = field(init=False, default=0)

    def __post_init__(self, seed: Optional[int]) -> None:
        if seed is not None:
            self.z = seed


@dataclass
class Express(Order):
    hours: int = 4

    def total(self) -> int:
        return super().total() + self.hours


@dataclass
class Box(Generic[T]):
    item: T


@pydantic_dataclass
class Checked:
    x: int
    line: Optional["Line"] = None


class Model(BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int
    color: Color = Color.BLUE
    items: list[int] = Field(default_factory=list)
    later: Optional["Later"] = None
    _secret: int = PrivateAttr(default=9)

    @field_validator("x")
    @classmethod
    def positive(cls, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value

    @model_validator(mode="after")
    def whole(self) -> "Model":
        return self

    @computed_field
    @property
    def double(self) -> int:
        return self.x * 2


class Later(BaseModel):
    y: int


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Page(BaseModel, Generic[T]):
    item: T


class Options(TypedDict):
    x: int
    y: NotRequired[str]
    line: "Line"


class Pair(NamedTuple):
    x: int
    y: str = "b"

    def both(self) -> str:
        return f"{self.x}{self.y}"


Old = namedtuple("Old", "x y", defaults=[5])


class Plain:
    created: ClassVar[int] = 0

    def __init__(self, x: int) -> None:
        self.x = x

    @property
    def double(self) -> int:
        return self.x * 2

    @functools.cached_property
    def slow(self) -> int:
        return self.x * 4

    @staticmethod
    def fixed() -> int:
        return 1


class Shape(abc.ABC):
    subclasses: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Shape.subclasses.append(cls.__name__)

    @abc.abstractmethod
    def area(self) -> int: ...


class Square(Shape):
    def area(self) -> int:
        return 4


@typing.runtime_checkable
class HasArea(Protocol):
    def area(self) -> int: ...


class Refused(Exception):
    def __init__(self, order: str, why: str) -> None:
        super().__init__(order, why)
        self.why = why


@functools.lru_cache(maxsize=50)
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


factorial = functools.lru_cache(math.factorial)


def price(self: Any, order: Order, lines: list["Line"]) -> Optional[Color]:
    """As a tool has it."""


def with_closure() -> Any:
    @dataclass
    class Local:
        x: int = 4

    limit = 3
    return lambda x: [dataclasses.asdict(Local(x)), limit]


def schema(of: Any) -> dict[str, Any]:
    return TypeAdapter(of).json_schema()


def check_order(order: Any) -> Any:
    log.debug("checked")
    match order:
        case Order(id=name, lines=[Line(sku=sku)]):
            matched = [name, sku]
    return [
        type(order) is Order,
        matched,
        dataclasses.asdict(order.customer),
        [f.name for f in dataclasses.fields(order)],
        dict(dataclasses.fields(order)[2].metadata),
        dataclasses.asdict(Order("new")),
        Order("a").lines is not Order("b").lines,
        order == dataclasses.replace(order),
        order.color is Color.RED,
        schema(Order),
        Order.currency,
        order.total(),
        repr(type_hints(Order)),
    ]


def check_point(point: Any) -> Any:
    try:
        point.x = 5
    except dataclasses.FrozenInstanceError:
        return [{point: 1}[Point(1)], point < Point(2), schema(Point), repr(dataclasses.replace(point, x=8))]


def check_slotted(slotted: Any) -> Any:
    return [isinstance(slotted, Slotted), hasattr(slotted, "__dict__"), repr(Slotted(3, [4])), schema(Slotted)]


def check_keyword(keyword: Any) -> Any:
    made = Keyword(1, y=4, seed=8)
    return [keyword.z, made.z, [f.kw_only for f in dataclasses.fields(Keyword)], schema(Keyword)]


def check_express(express: Any) -> Any:
    return [isinstance(express, Order), express.total(), [f.name for f in dataclasses.fields(express)], schema(Express)]


def check_model(model: Any) -> Any:
    try:
        Model(x=-1)
    except pydantic.ValidationError as error:
        refused = error.errors()[0]["msg"]
    read = Model.model_validate({"x": 3, "later": {"y": 2}})
    return [
        type(model) is Model,
        refused,
        model._secret,
        read.model_dump(mode="json"),
        isinstance(read.later, Later),
        model.color is Color.BLUE,
        schema(Model),
    ]


def check_page(page: Any) -> Any:
    return [isinstance(page, Page), isinstance(page, Page[int]), Page[int](item="4").item]


def check_color(color: Any) -> Any:
    match color:
        case Color.RED:
            matched = "red"
    same = [color is Color.RED, Color(1) is color, Color["CRIMSON"] is color, Color.CRIMSON is color]
    return [matched, *same, color.lower(), list(Color.__members__)]


CASES = {
    "dataclass": (Order("o", lines=[Line("s", 3)], customer=Customer("c", [Order("p")])), check_order),
    "frozen": (Point(1), check_point),
    "slots": (Slotted(1), check_slotted),
    "frozen slots": (FrozenSlotted(1), lambda e: [e.y, hash(e) == hash(FrozenSlotted(1)), e == FrozenSlotted(1)]),
    "keyword only": (Keyword(1, seed=3), check_keyword),
    "inheritance": (Express("e", hours=2), check_express),
    "generic dataclass": (Box[int](3), lambda e: [isinstance(e, Box), e == Box[int](3), schema(Box)]),
    "pydantic dataclass": (Checked("1", Line("s")), lambda e: [repr(e), repr(Checked("2", {"sku": "t"})), schema(Checked)]),
    "pydantic model": (Model(x=1), check_model),
    "discriminated union": (Owner(pet=Dog()), lambda e: [type(e.pet) is Dog, type(Owner(pet={"kind": "cat"}).pet) is Cat]),
    "generic model": (Page[int](item=1), check_page),
    "enum": (Color.RED, check_color),
    "enum with attributes": (Planet.MARS, lambda e: [e is Planet.MARS, e.mass, Planet.EARTH.radius]),
    "enum with a constructor": (Level.HIGH, lambda e: [e is Level.HIGH, e == "high", e.label, Level("low").label]),
    "flag": (Access.BOTH, lambda e: [e is Access.BOTH, Access.READ in e, e.name, (Access.READ | Access.WRITE).name]),
    "typed dict": (Options(x=1, line=Line("s")), lambda e: [Options(x=2), sorted(Options.__required_keys__), schema(Options)]),
    "named tuple": (Pair(1), lambda e: [isinstance(e, Pair), e.both(), e._asdict(), Pair(3)._replace(x=4)]),
    "old named tuple": (Old(1), lambda e: [isinstance(e, Old), e._asdict(), Old(3)]),
    "class": (Plain(1), lambda e: [isinstance(e, Plain), e.double, e.slow, Plain(3).slow, e.fixed()]),
    "abstract class": (Square(), lambda e: [isinstance(e, Shape), isinstance(e, HasArea), e.area()]),
    "exception": (Refused("o", "late"), lambda e: [isinstance(e, Refused), e.why, e.args]),
    "closure": (with_closure(), lambda e: e(3)),
    "partial": (functools.partial(Point, 7), lambda e: [e() == Point(7), e.keywords]),
    "cached function": (fibonacci, lambda e: [e(30), e.cache_info().maxsize, e.__name__]),
    "cached function of a module": (factorial, lambda e: [e(5), e.cache_parameters()]),
    "annotations": (price, lambda e: [repr(type_hints(e)), type_hints(e)["order"] is Order]),
}  # fmt: skip


def attributes() -> dict[str, dict[str, Any]]:
    own = [of for of in globals().values() if isinstance(of, type) and of.__module__ == "__main__"]
    return {of.__name__: {name: id(value) for name, value in vars(of).items() if name[:5] != "_abc_"} for of in own}


if __name__ == "__main__":
    pickled = {}
    for name, (event, check) in CASES.items():
        try:
            pickled[name] = (cloudpickle.dumps(check), [cloudpickle.dumps(event), cloudpickle.dumps(event)])
        except Exception as error:
            print(f"{name} cannot be pickled: {error}", file=sys.stderr)
    Path(sys.argv[1]).write_bytes(pickle.dumps(pickled))
    results = {name: check(event) for name, (event, check) in CASES.items()}
    before = attributes()
    again = {name: pickle.loads(events[0]) for name, (_, events) in pickled.items()}
    changed = [name for name, value in attributes().items() if value != before[name]]
    made_again = [name for name, event in again.items() if type(event) is not type(CASES[name][0])]
    found = {"results": results, "changed": changed, "made again": made_again, "shapes": Shape.subclasses}
    print(json.dumps(found, default=repr))
