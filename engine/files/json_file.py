"""Read JSON files that may not be what they should."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kbqa.sparql.errors import KbqaError, ModelError

_T = TypeVar("_T")


def read_json(
    path: Path, type_: type[_T], error: Callable[[str], KbqaError], *, schema_version: int
) -> _T:
    """Read a JSON file of one type, such as a dataclass; unknown fields are ignored.

    Args:
        path: The file.
        type_: What it holds.
        error: Makes the error that is raised from what is wrong, a sentence that begins with the
            path; the class of an error will do.
        schema_version: The ``schema_version`` that the file must have.

    Raises:
        KbqaError: What `error` makes: the file is missing or unreadable, or it is of another type
            or version.
    """
    # Takes 40 ms, and many commands read no such file.
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import from_json

    try:
        record = from_json(path.read_bytes(), allow_inf_nan=False)
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except (OSError, ValueError) as reason:
        raise error(f"{path} cannot be read: {reason}") from reason
    if not isinstance(record, dict):
        raise error(f"{path} cannot be read: it is not a JSON object")
    found = record.pop("schema_version", None)
    if found != schema_version:
        raise error(
            f"{path} has schema_version {found}, and this kbqa reads version {schema_version}"
        )
    try:
        return TypeAdapter(type_).validate_python(record)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise error(f"{path} cannot be read: {field}: {first['msg']}") from invalid


def read_model_json(
    path: Path, type_: type[_T], shipped: Path, name: str, *, schema_version: int
) -> _T:
    """Read a dataclass from the JSON file of a model.

    The one that ships with kbqa is read without checking it: `read_json` would delay each question
    on the command line by 60 ms, for pydantic, and tests check the files that ship.

    Args:
        path: The file.
        type_: What it holds.
        shipped: The file that ships with kbqa.
        name: Of the model, for errors: ``the linking model``.
        schema_version: The ``schema_version`` that the file must have.

    Raises:
        ModelError: As `read_json`.
    """
    if path == shipped:
        record = json.loads(path.read_text(encoding="utf-8"))
        del record["schema_version"]
        return type_(**record)

    def error(problem: str) -> ModelError:
        return ModelError(f"cannot read {name}: {problem}")

    return read_json(path, type_, error, schema_version=schema_version)
