r"""API keys: a file of names, SHA-256 sums and rates; the keys themselves are nowhere.

    [alice]
    sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    requests_a_minute = 60

A new key, and its sum:

    openssl rand -hex 32 | tee key | tr -d '\n' | sha256sum
"""

import hashlib
import hmac
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kbqa.sparql.errors import InputError


class ApiKey(BaseModel):
    """Whose key it is not saying, its sum and its rate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    requests_a_minute: Annotated[float, Field(gt=0)] | None = None
    """None for the server's own rate."""


_FILE: TypeAdapter[dict[str, ApiKey]] = TypeAdapter(dict[str, ApiKey])


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """Who may ask, by name."""

    by_name: Mapping[str, ApiKey]

    @classmethod
    def read(cls, file: Path) -> "ApiKeys":
        """Read a file of keys.

        Raises:
            InputError: It cannot be read, or holds no valid keys.
        """
        try:
            keys = _FILE.validate_python(tomllib.loads(file.read_text(encoding="utf-8-sig")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"the API keys in {file} cannot be read: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(
                f"the API keys in {file} are not valid: {where}: {first['msg']}. A key is a table "
                '[name] with sha256 = "…" and, if you like, requests_a_minute = N.'
            ) from None
        if not keys:
            raise InputError(f"{file} holds no API keys; nobody could ask")
        return cls(keys)

    def owner(self, key: str) -> str | None:
        """Return the name of a key, or None if it is not known. Takes the same time for any."""
        found = None
        digest = hashlib.sha256(key.encode()).hexdigest()
        for name, known in self.by_name.items():
            if hmac.compare_digest(known.sha256, digest):
                found = name
        return found
