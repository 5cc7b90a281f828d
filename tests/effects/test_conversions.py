"""C code that makes data of other data: pydantic's models, in transactions on several threads."""

import copy
import functools
import random
import sqlite3
import traceback
from typing import Annotated, Any

import pytest

from interpreters import needs_engine
from tornado.stm import activation, core, testing

pytest.importorskip("pydantic", reason="pydantic is not installed")
needs_engine()

import pydantic  # noqa: E402
import pydantic_core  # noqa: E402

import random_programs  # noqa: E402
from apart import run_beside  # noqa: E402
from apps import models  # noqa: E402
from beside import runs_beside_others  # noqa: E402
from meeting import APART, CONFLICT, is_alone, meet  # noqa: E402

activation.activate()

needs_threads = pytest.mark.skipif(not core.PARALLEL, reason="transactions run one at a time")

run_programs = functools.partial(random_programs.run, models.Heap, models.OPERATIONS)


def alone_after(function, *args):
    """Is the transaction exclusive after the call?"""

    seen = []

    def step():
        function(*args)
        core.defer(seen.append, is_alone())

    core.Transaction(step, ()).run()
    return seen == [True]


def test_random_programs_of_models_are_serializable():
    run_programs(60, seed=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_programs_of_models_are_serializable():
    random_programs.run_as_told(run_programs, 2000)


@needs_threads
@pytest.mark.parametrize("name", ["to_python", "validate_python"])
def test_a_wrong_declaration_is_found(name):
    """So these programs can fail: with a serializer, or a validator, that is said to read nothing."""
    holder = "SchemaSerializer" if name == "to_python" else "SchemaValidator"
    code = f"""
import test_conversions as t, pydantic_core
from tornado.stm import _engine
_engine.register_effect(pydantic_core.{holder}.{name}, _engine.EFFECTS["PURE"])
t.run_programs(1500, seed=1)
"""
    done = run_beside(__file__, code, timeout=250)
    assert done.returncode != 0 and "not serializable" in done.stderr, done.stderr[-2000:]


@needs_threads
@pytest.mark.parametrize("name", [
    "raw_validated", "raw_validated_with_context", "numbers_validated", "order_dumped", "order_as_json", "order_kept",
    "strict_from_attributes", "point_made", "point_dumped", "anything_dumped",
    "order_taken_from_json",
])  # fmt: skip
def test_models_are_validated_and_serialized_beside_others(name):
    function = models.OPERATIONS[name]
    heap = models.Heap()
    arguments = [1] * (function.__code__.co_argcount - 1)
    function(heap, *arguments)  # what is asked of a class for the first time is asked alone
    assert not alone_after(function, heap, *arguments)


@needs_threads
def test_a_model_that_calls_unknown_c_code_runs_alone():
    class Unknown(pydantic.BaseModel):
        y: models.Annotated[str, models.PlainSerializer(sqlite3.complete_statement)] = "a"

    class Around(pydantic.BaseModel):
        what: models.Any = None

    assert alone_after(Unknown().model_dump)
    assert alone_after(Around(what=[Unknown()]).model_dump)
    assert alone_after(lambda: pydantic_core.to_json([1], fallback=sqlite3.complete_statement))
    assert not alone_after(lambda: pydantic_core.to_json([1], fallback=lambda x: x))


class Plain(pydantic.BaseModel):
    size: int
    lines: list[Annotated[int, pydantic.Field(gt=1)]] = []


class Checked(Plain):
    @pydantic.field_validator("size", mode="after")
    @classmethod
    def check(cls, size):
        raise ValueError(size)


WRONG = {"size": "x", "lines": [1, None]}


def error_of(model, data):
    try:
        model.model_validate(data)
    except pydantic.ValidationError as e:
        return e


@needs_threads
def test_errors_of_a_validation_are_told_beside_others():
    """As each answer 422 of FastAPI's does, and a log of what was wrong."""

    def told():
        error = error_of(Plain, WRONG)
        return error.error_count(), error.errors(include_url=False), error.errors()

    def printed():
        error = error_of(Plain, WRONG)
        return str(error), repr(error), f"{error}", error.json(), error.json(indent=2), error.title

    def logged():
        try:
            Plain.model_validate(WRONG)
        except pydantic.ValidationError:
            return traceback.format_exc()

    for tell in (told, printed, logged):
        assert runs_beside_others(tell) == tell()
    assert told()[0] == 3
    assert "input_value='x'" in logged()


class Returning(Plain):
    """Functions in Python that raise nothing: validators, and what copies the default."""

    @pydantic.field_validator("lines", mode="before")
    @classmethod
    def wrap(cls, lines):
        return lines if isinstance(lines, list) else [lines]

    @pydantic.field_validator("size", mode="wrap")
    @classmethod
    def look(cls, size, handler):
        return size if size == "known" else handler(size)


@needs_threads
@pytest.mark.parametrize("model, data", [(Plain, {"size": "x"}), (Returning, {"size": "known", "lines": [0]}), (Returning, {"lines": 0})])
def test_errors_are_told_beside_others_where_no_function_has_raised_them(model, data):
    def told():
        error = error_of(model, data)
        return error.errors(), error.json(), str(error), repr(error)

    assert runs_beside_others(told) == told()


@needs_threads
def test_what_a_function_has_returned_is_in_the_text_of_an_error_as_it_is_then():
    class Shared(pydantic.BaseModel):
        size: int

        @pydantic.field_validator("size", mode="before")
        @classmethod
        def replace(cls, size):
            return size.inside

    class Around:
        def __init__(self):
            self.inside = [1]

    def make():
        around = Around()
        return around, around.inside

    def tell(around, inside):
        return str(error_of(Shared, {"size": around}))

    assert meet(make, tell, lambda around, inside: inside.append(2)) == CONFLICT
    assert meet(make, tell, tell) == APART


@pydantic.validate_call(validate_return=True)
async def checked(size: int, notes: list[int]) -> int:
    notes.append(size)
    return size


def finish(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value


@needs_threads
def test_coroutine_functions_are_called_and_checked_beside_others():
    notes = []
    assert runs_beside_others(lambda: finish(checked("7", notes))) == 7
    adapter = pydantic.TypeAdapter(dict[str, int])
    assert runs_beside_others(adapter.validate_python, {"a": "1"}) == {"a": 1}
    assert runs_beside_others(adapter.dump_json, {"a": 1}) == b'{"a":1}'


class Calls:
    def __init__(self):
        self.notes = [1]
        self.wrong = {"size": "x", "lines": [1]}


def test_checked_calls_and_errors_are_what_they_are_one_after_the_other():
    def call(shelf, n):
        shelf.notes = shelf.notes[-3:]
        return finish(checked(len(shelf.notes), shelf.notes)), shelf.notes

    def tell(shelf, n):
        return str(error_of(Returning, shelf.wrong)), error_of(Plain, {"size": shelf.notes}).json()

    def change(shelf, n):
        shelf.wrong["lines"].append(-n)
        shelf.wrong["size"] = [n]
        shelf.notes.append(n)

    choice = random.Random(3)
    for seed in range(40):
        calls = [(choice.choice([call, tell, change]), seed % 5) for _ in range(8)]
        testing.check_serializable(Calls, calls, seed=seed, aborts=0.02)


@needs_threads
@pytest.mark.parametrize("tell", [str, pydantic.ValidationError.json])
def test_the_text_of_an_error_has_what_was_validated(tell):
    """Also what has come to be in there since."""

    def printed(known):
        data = {"size": [], "lines": []}  # the default would be copied by a function in Python
        error = error_of(Plain, data)
        data["size"].append(known)
        return tell(error)

    assert meet(lambda: ([],), printed, lambda known: known.append(1)) == CONFLICT
    assert meet(lambda: ([],), printed, lambda known: known[:]) == APART


@needs_threads
def test_errors_that_nobody_has_looked_through_are_told_alone():
    assert alone_after(lambda: error_of(Checked, {"size": 1}).errors())  # what a function has raised may refer to anything
    kept = error_of(Plain, WRONG)
    for tell in (kept.errors, kept.json, lambda: str(kept), lambda: copy.copy(kept)):
        assert alone_after(tell)
    assert alone_after(lambda: str(error_of(Checked, {"size": 1})))
    assert alone_after(lambda: error_of(Checked, {"size": 1}).json())
    assert alone_after(lambda: Derived("title", []))


class Derived(pydantic.ValidationError):
    def __init__(self, *args):
        pass


@needs_threads
def test_what_a_schema_says_of_its_errors_is_read_with_it():
    core_schema = pydantic_core.core_schema

    def make():
        context = {"limit": 1}
        schema = core_schema.custom_error_schema(
            core_schema.int_schema(), custom_error_type="wrong", custom_error_message="not {limit}", custom_error_context=context
        )
        return context, pydantic_core.SchemaValidator(schema)

    def tell(context, validator):
        try:
            validator.validate_python("x")
        except pydantic.ValidationError as e:
            return e.errors()

    def change(context, validator):
        context["limit"] = 2

    assert not alone_after(tell, *make())
    assert meet(make, tell, change) == CONFLICT
    assert meet(make, tell, tell) == APART


@needs_threads
def test_a_schema_of_very_many_parts_is_looked_through_to_its_end():
    """As one of hundreds of models, that refer to each other."""
    field = pydantic_core.core_schema.typed_dict_field
    fields = {f"f{n}": field(pydantic_core.core_schema.int_schema(), required=False) for n in range(15000)}
    validator = pydantic_core.SchemaValidator(pydantic_core.core_schema.typed_dict_schema(fields))
    assert not alone_after(validator.validate_python, {"f7": 7})
    fields["last"] = field(pydantic_core.core_schema.no_info_plain_validator_function(sqlite3.complete_statement), required=False)
    validator = pydantic_core.SchemaValidator(pydantic_core.core_schema.typed_dict_schema(fields))
    assert alone_after(validator.validate_python, {"f7": 7})


class Kept(pydantic.BaseModel):
    """It keeps what it works with to itself."""

    model_config = pydantic.ConfigDict(revalidate_instances="always", from_attributes=True)

    size: int = 0
    _with: Any = pydantic.PrivateAttr(default=None)


@needs_threads
@pytest.mark.parametrize("convert", [
    Kept.model_dump, Kept.model_dump_json, pydantic_core.to_json, models.ANY.dump_python,
    Kept.model_validate, lambda kept: models.Anything(what=[kept]),
])  # fmt: skip
def test_private_attributes_are_not_looked_into(convert):
    def make():
        kept = Kept()
        kept._with = sqlite3  # nobody could look into that
        return (kept,)

    def change_size(kept):
        kept.size += 1

    def change_private(kept):
        kept._with = None

    (kept,) = make()
    kept._with = (n for n in range(3))
    convert(kept)  # what is asked of a class for the first time is asked alone
    assert not alone_after(convert, kept)
    assert meet(make, convert, change_private) == APART
    assert meet(make, convert, change_size) == CONFLICT


@needs_threads
def test_but_a_field_under_the_name_of_theirs_is():
    schema = pydantic_core.core_schema
    for names in ({"validation_alias": "__pydantic_private__"}, {}):
        name = "private" if names else "__pydantic_private__"
        fields = {name: schema.model_field(schema.any_schema(), **names)}
        validator = pydantic_core.SchemaValidator(schema.model_fields_schema(fields, from_attributes=True))
        kept = Kept()
        validator.validate_python(kept)  # what is asked of a class for the first time is asked alone
        assert alone_after(validator.validate_python, kept)
    fields = {"size": schema.model_field(schema.any_schema())}
    validator = pydantic_core.SchemaValidator(schema.model_fields_schema(fields, from_attributes=True))
    validator.validate_python(kept)
    assert not alone_after(validator.validate_python, kept)


@needs_threads
def test_a_generator_is_not_looked_into_beside_others():
    values = (n for n in range(3))
    assert alone_after(models.ANY.dump_python, values)


class Hashed(pydantic.BaseModel):
    """It can be an element of a set, and changes."""

    size: int = 0
    __hash__ = object.__hash__
    __eq__ = object.__eq__


@needs_threads
@pytest.mark.parametrize("container", [list, tuple, set, frozenset])
def test_what_is_in_a_container_is_read_as_its_attributes_are(container):
    def make():
        inside = Hashed()
        return inside, models.Anything(what=container([inside]))

    def dump(inside, around):
        around.model_dump_json()

    def change(inside, around):
        inside.size += 1

    assert meet(make, dump, change) == CONFLICT


class Failed(Exception):
    pass


class Failure(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    error: BaseException


@needs_threads
@pytest.mark.parametrize("error", [ValueError("x", 1), OSError(2, "no", "file"), StopIteration([1]), Failed("y"), AttributeError("z", obj=[])])
def test_an_exception_is_a_field_beside_others(error):
    Failure(error=error)
    assert not alone_after(lambda: Failure(error=error))
    assert alone_after(lambda: Failure(error=ExceptionGroup("", [ValueError()])))


def in_arguments(inside):
    return ValueError([inside])


def in_an_attribute(inside):
    error = Failed()
    error.inside = inside
    return error


def in_a_field(inside):
    return StopIteration(inside)


def in_its_context(inside):
    error = Failed()
    error.__context__ = ValueError(inside)
    return error


@needs_threads
@pytest.mark.parametrize("hold", [in_arguments, in_an_attribute, in_a_field, in_its_context])
def test_what_an_exception_holds_is_read(hold):
    def make():
        inside = Hashed()
        return inside, hold(inside)

    def validate(inside, error):
        Failure(error=error)

    def change(inside, error):
        inside.size += 1

    Failure(error=ValueError())
    assert meet(make, validate, change) == CONFLICT


@needs_threads
def test_what_raising_sets_is_read():
    def make():
        return (Failed(),)

    def validate(error):
        Failure(error=error)

    def throw(error):
        try:
            raise error
        except Failed:
            pass

    assert meet(make, validate, throw) == CONFLICT


@needs_threads
def test_partial_functions_are_called_beside_others():
    def fallback(more, value, *, last):
        return [more, last]

    shared = functools.partial(fallback, 1, last=2)
    pydantic_core.to_json([sqlite3], fallback=shared)  # what is asked of a class for the first time is asked alone
    assert not alone_after(lambda: pydantic_core.to_json([sqlite3], fallback=shared))
    assert alone_after(lambda: pydantic_core.to_json(["a"], fallback=functools.partial(sqlite3.complete_statement)))

    def dump(shared):
        pydantic_core.to_json([sqlite3], fallback=shared)

    def change(shared):
        shared.keywords["last"] = 3

    assert meet(lambda: (functools.partial(fallback, 1, last=2),), dump, change) == CONFLICT
    assert meet(lambda: (shared,), dump, dump) == APART


@needs_threads
def test_a_class_as_a_callback_runs_alone():
    class Named:
        def __init__(self, value):
            pass

    assert alone_after(lambda: pydantic_core.to_json(["a"], fallback=Named))


@pytest.mark.parametrize("look", [repr, str, "{}".format, lambda info: [str([info])]])
def test_what_an_info_shows_is_read(look):
    infos = []
    note = pydantic.AfterValidator(lambda value, info: infos.append(info) or value)
    tell = pydantic.PlainSerializer(lambda value, info: infos.append(info) or value)
    context = {"key": [1]}
    pydantic.TypeAdapter(Annotated[Any, note]).validate_python(1, context=context)
    pydantic.TypeAdapter(Annotated[Any, tell]).dump_python(1, context=context)
    for info in infos:
        assert meet(lambda: (), lambda info=info: look(info), lambda: context["key"].append(2)) == CONFLICT
        assert meet(lambda: (), lambda info=info: info.mode, lambda: context["key"].append(2)) == APART
