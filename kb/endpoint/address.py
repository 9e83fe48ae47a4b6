"""The URL of an endpoint: as requests need it, and as messages may show it.

A URL may hold a password or an access key. Neither belongs in an error, a log or a manifest.
"""

import base64
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from kbqa.sparql.errors import InputError

_USER = re.compile(r"(?<=//)[^/?#]*@|^[^/?#]*@")
_KEY = re.compile(
    r"(?<=[?&;])([^=&;#]*(?:key|token|secret|passw|pwd|auth|credential|signature)[^=&;#]*)=[^&;#]+",
    re.IGNORECASE,
)
_HIDDEN = "***"
_SHORT = 4  # a shorter secret may be part of any word


@dataclass(frozen=True, slots=True)
class Address:
    """Where an endpoint is.

    Attributes:
        scheme: ``http`` or ``https``.
        host: Its name or IP address.
        port: The port, also if the URL names none.
        url: The URL for requests, without user and password.
        login: User and password as basic authentication sends them; empty if the URL has neither.
        shown: The URL for messages.
        secrets: What no message may show.
    """

    scheme: Literal["http", "https"]
    host: str
    port: int
    url: str
    login: str
    shown: str
    secrets: tuple[str, ...]

    @property
    def description(self) -> str:
        """The endpoint in messages: ``endpoint http://localhost:7878/query``."""
        return f"endpoint {self.shown}"

    def hide(self, text: str) -> str:
        """Replace the secrets in a text, such as the words of a server."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def read_address(url: str) -> Address:
    """Read the URL of an endpoint.

    >>> address = read_address("https://ann:secret@example.org/sparql?apikey=12345&format=json")
    >>> address.shown
    'https://***@example.org/sparql?apikey=***&format=json'
    >>> address.url
    'https://example.org/sparql?apikey=12345&format=json'

    Raises:
        InputError: It is not an HTTP URL.
    """
    shown = hide_secrets(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError(f"the endpoint {shown!r} is not a valid URL") from None
    scheme: Literal["http", "https"]
    if parts.scheme == "http":
        scheme = "http"
    elif parts.scheme == "https":
        scheme = "https"
    else:
        host = None
    if not host:
        raise InputError(
            f"an endpoint is an http:// or https:// URL such as http://localhost:8890/sparql, "
            f"not {shown!r}"
        )
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(
            f"the endpoint {shown!r} holds a blank or a character that is not ASCII. "
            "Percent-encode it."
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    keys = {match.group().partition("=")[2] for match in _KEY.finditer(url)}
    login = encode_login(user, password) if user or password else ""
    secrets = {password, login, *keys, *map(unquote, keys)}
    return Address(
        scheme,
        host,
        port or {"http": 80, "https": 443}[scheme],
        urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")),
        login,
        shown,
        tuple(sorted((each for each in secrets if len(each) >= _SHORT), key=len, reverse=True)),
    )


def encode_login(user: str, password: str) -> str:
    """Write a user and password as basic authentication sends them."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def hide_secrets(url: str) -> str:
    """Return a URL without its user, password and access keys."""
    return _KEY.sub(rf"\1={_HIDDEN}", _USER.sub(f"{_HIDDEN}@", url))
