"""Operations on a heap of pydantic's models and of what these are made of: validated, serialized and changed."""

import copy
import functools
import json
from dataclasses import dataclass
from typing import Any

import pydantic
import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter, computed_field, field_serializer, field_validator, model_validator
from typing_extensions import Annotated

OPERATIONS = {}  # name -> function of the heap and small numbers from 0 to 7


def op(function):
    OPERATIONS[function.__name__] = function
    return function


class Line(BaseModel):
    name: str = Field(min_length=1)
    price: float = 0
    tags: list[str] = []

    @computed_field
    @property
    def label(self) -> str:
        return f"{self.name}: {self.price}"


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    row: str
    lines: list[Line] = Field(default_factory=list)
    by_name: dict[str, Line] = {}

    @field_validator("row", mode="before")
    @classmethod
    def count(cls, value, info):
        if info.context:
            info.context["counter"].size += 1
        return value

    @field_serializer("row")
    def put_together(self, value):
        return f"{value}/{len(self.lines)}"


class Strict(BaseModel):
    model_config = ConfigDict(validate_assignment=True, from_attributes=True)
    name: str
    size: int = 0

    @model_validator(mode="after")
    def check(self):
        if self.size > 5:
            raise ValueError("too large")
        return self


class Anything(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    what: Any = None
    upper: Annotated[str, PlainSerializer(str.upper)] = "a"


@pydantic.dataclasses.dataclass
class Point:
    x: int
    y: list[int] = Field(default_factory=list)


@dataclass
class Pair:
    left: Any
    right: Any


class Plain:
    def __init__(self, name, size):
        self.name = name
        self.size = size


class Slotted:
    __slots__ = ("name", "size")

    def __init__(self):
        self.name = "slotted"
        self.size = 1


#: what callbacks bring in, which nobody has given to the call: equal numbers
SHARED = [0] * 300
LOG = []


class Brings(BaseModel):
    """Python functions and defaults that give C code something to look into."""

    model_config = ConfigDict(from_attributes=True)
    checked: Any = Field(default_factory=lambda: SHARED, validate_default=True)
    compared: list[int] = SHARED

    @field_validator("checked")
    @classmethod
    def bring(cls, value):
        return SHARED

    @computed_field
    @property
    def computed(self) -> Any:
        return SHARED


class Items(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    items: list[int]


class WithProperty:
    items = property(lambda self: SHARED)


class WithClassAttribute:
    items = SHARED


class Partial(functools.partial):
    pass


class CallsLog:
    __init__ = LOG.append


class Copies(BaseModel):
    x: list[int] = Field(default_factory=SHARED.copy)


class Computes(BaseModel):
    y = computed_field(return_type=Any)(property(LOG.append))


@pydantic.dataclasses.dataclass
class Mapping(dict):
    x: int


NUMBERS = TypeAdapter(dict[str, list[int]])
ANY = TypeAdapter(Any)


class Heap:
    def __init__(self):
        SHARED[:] = [0] * len(SHARED)
        LOG.clear()
        self.log, self.shared = LOG, SHARED
        self.brings = Brings()
        self.mapping = Mapping(x=1)
        self.error = ValueError(SHARED)
        self.raw = {"row": "raw", "lines": [{"name": "one", "price": 1}, {"name": "two"}], "by_name": {"x": {"name": "y"}}, "more": [1]}
        self.order = Order.model_validate(self.raw)
        self.strict = Strict(name="strict")
        self.plain = Plain("plain", 2)
        self.slotted = Slotted()
        self.numbers = {"a": [1, 2], "b": []}
        self.point = Point(1, [2])
        self.pair = Pair([1], {"order": self.order})
        self.anything = Anything(what=self.pair)
        self.made = None
        self.counter = Plain("counter", 0)


@op
def raw_validated(h):
    return Order.model_validate(h.raw).model_dump()


@op
def raw_validated_with_context(h):
    return Order.model_validate(h.raw, context={"counter": h.counter}).row


@op
def raw_changed(h, n):
    h.raw["lines"][n % 2]["name"] = str(n)
    h.raw["more"].append(n)


@op
def raw_spoilt(h, n):
    h.raw["lines"][0]["name"] = "" if n % 2 else "mended"


@op
def numbers_validated(h):
    return NUMBERS.validate_python(h.numbers)


@op
def numbers_changed(h, n):
    h.numbers.setdefault("abc"[n % 3], []).append(n)


@op
def order_dumped(h):
    return h.order.model_dump(), h.counter.size


@op
def order_as_json(h):
    return h.order.model_dump_json(), json.dumps(ANY.dump_python(h.order, mode="json"))


@op
def order_changed(h, n):
    h.order.row = f"changed {n}"
    h.order.lines[0].price += n


@op
def order_grown(h, n):
    h.order.lines.append(Line(name=f"line {n}"))
    h.order.lines[-1].tags.append("new")


@op
def order_extended(h, n):
    setattr(h.order, f"extra{n % 2}", n)


@op
def order_taken_from_json(h, n):
    h.order = Order.model_validate_json(json.dumps({"row": str(n), "lines": [{"name": "json", "price": n}]}))
    h.pair.right["order"] = h.order


@op
def order_copied(h, n):
    h.made = h.order.model_copy(update={"row": str(n)}, deep=n % 2 == 0)


@op
def order_kept(h):
    h.made = Order(row=h.order.row, lines=h.order.lines, by_name={"kept": h.order.lines[0]})


@op
def made_dumped(h):
    return ANY.dump_python(h.made), ANY.dump_json(h.made)


@op
def made_changed(h, n):
    if isinstance(h.made, Order):
        h.made.lines[0].tags.append(str(n))


@op
def strict_from_attributes(h, n):
    return Strict.model_validate((h.plain, h.slotted)[n % 2]).model_dump()


@op
def plain_changed(h, n):
    h.plain.size = n
    h.plain.name = str(n)


@op
def slotted_changed(h, n):
    h.slotted.size = n
    h.slotted.name = str(n)


@op
def strict_assigned(h, n):
    h.strict.size = n


@op
def strict_read(h):
    return h.strict.size, h.strict.model_dump(), h.strict.model_fields_set


@op
def strict_begun_again(h, n):
    h.strict.__init__(name=str(n), size=n % 4)


@op
def wrongly_validated(h, n):
    return Strict.model_validate({"name": [h.numbers], "size": n})


@op
def wrongly_validated_and_told(h):
    try:
        Order.model_validate({"row": 1, "lines": h.numbers})
    except pydantic.ValidationError as e:
        return e.error_count(), e.errors(include_url=False)


@op
def wrongly_validated_and_printed(h):
    try:
        Order.model_validate({"row": 1, "lines": h.numbers})
    except pydantic.ValidationError as e:
        return str(e), e.json(include_url=False)


@op
def point_made(h, n):
    h.point = Point(n, [n])


@op
def point_changed(h, n):
    h.point.y.append(n)


@op
def point_dumped(h):
    return TypeAdapter(Point).dump_python(h.point), ANY.dump_python(h.point)


@op
def anything_dumped(h):
    return h.anything.model_dump(), h.anything.model_dump_json()


@op
def pair_changed(h, n):
    h.pair.left.append(n)


@op
def generator_dumped(h, n):
    return ANY.dump_json(i + n for i in h.pair.left)


@op
def models_copied(h):
    return copy.deepcopy(h.order) == h.order, h.order == h.made


@op
def class_made(h, n):
    made = pydantic.create_model("Made", x=(int, n), y=(list[int], []))
    return made(x="3").model_dump(), made().model_dump()


def torn(numbers):
    return set(numbers)


@op
def shared_changed(h):
    for n in range(len(SHARED)):
        SHARED[n] += 1


@op
def brings_made(h):
    return torn(Brings().checked)


@op
def brings_dumped(h):
    return torn(h.brings.model_dump()["computed"])


@op
def brings_compared(h):
    return h.brings.model_dump(exclude_defaults=True, exclude={"computed", "checked"})


@op
def items_of_a_property(h):
    return torn(Items.model_validate(WithProperty()).items)


@op
def items_of_a_class(h):
    return torn(Items.model_validate(WithClassAttribute()).items)


@op
def items_of_a_fallback(h):
    return torn(pydantic_core.to_jsonable_python(object(), fallback=lambda o: SHARED))


@op
def items_copied(h):
    return torn(Copies().x)


@op
def items_put_into_what_was_given(h):
    def bring(o):
        given.append(SHARED)
        return 0

    given = [object()]
    return torn(pydantic_core.to_jsonable_python(given, fallback=bring)[-1])


@op
def logged_by_fallbacks(h):
    pydantic_core.to_json(object(), fallback=Partial(LOG.append))
    pydantic_core.to_json(object(), fallback=CallsLog)


@op
def logged_by_a_property(h):
    return Computes().model_dump()["y"]


@op
def mapping_begun_again(h, n):
    h.mapping.__init__(x=n)
    return h.mapping.x


@op
def error_told(h):
    return pydantic_core.to_jsonable_python(h.error, fallback=str)
