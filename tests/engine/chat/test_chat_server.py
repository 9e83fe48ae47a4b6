"""When a request that failed is sent again."""

from datetime import UTC, datetime

import pytest

from kbqa.engine.chat.server import Retrying, read_retry_after

NOON = datetime(2026, 2, 14, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 3600 "}, 3600.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "9" * 400}, float("inf")),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Sat, 14 Feb 2026 13:00:00 GMT"}, 3600.0),
        ({"retry-after": "Sat, 14 Feb 2026 13:00:00 +0100"}, 0.0),
        ({"retry-after": "Sat, 14 Feb 2026 12:00:01 -0000"}, 1.0),
        ({"retry-after": "Sat, 14 Feb 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sat, 99 Feb 2026 11:00:00 GMT"}, None),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7.0),
    ],
)
def test_what_a_server_asks_to_wait_is_read(headers, seconds):
    assert read_retry_after(headers, NOON) == seconds


def test_pauses_double_and_end_at_the_longest():
    retrying = Retrying(first_pause_s=1.0, longest_wait_s=5.0)
    pauses = [retrying.pause_s(tries) for tries in (1, 2, 3, 4, 5000)]
    for pause_s, most_s in zip(pauses, (1.0, 2.0, 4.0, 5.0, 5.0), strict=True):
        assert 0.75 * most_s <= pause_s <= most_s
