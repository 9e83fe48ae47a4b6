"""Time zones as people name them: CLDR's metazones, such as East Africa Time.

GeoNames gives a place an IANA zone (Africa/Nairobi); CLDR (by babel) says which zones share a name;
the tz database (tzdata) has their offsets from UTC.
"""

import datetime
import zoneinfo

from babel import Locale
from babel.core import get_global

from tools.make.demo.triples import DemoTriples

_WINTER = datetime.datetime(2026, 1, 1)
_SUMMER = datetime.datetime(2026, 7, 1)


class TimeZones:
    """Adds each time zone with the first place in it."""

    def __init__(self, graph: DemoTriples) -> None:
        zoneinfo.reset_tzpath(to=())  # the pinned tzdata, not the machine's
        self._graph = graph
        self._metazones = get_global("meta_zones")
        self._old_names: dict[str, list[str]] = {}
        for old, new in get_global("zone_aliases").items():
            self._old_names.setdefault(new, []).append(old)
            self._old_names.setdefault(old, []).append(new)

    def link(self, place: str, zone: str) -> None:
        """Add that a place, given by its mid, is in an IANA zone such as ``Africa/Nairobi``."""
        name = self._name(zone)
        mid = self._graph.entity(f"time zone/{name}", f"{name} Zone", "time.time_zone")
        self._graph.aliases(mid, f"{name} Zone", [name])
        offset = _standard_offset_hours(zone)
        if not self._graph.has(mid, "time.time_zone.offset_from_uct"):
            self._graph.plain(mid, "time.time_zone.offset_from_uct", offset)
        self._graph.link(place, "location.location.time_zones", mid)

    def _name(self, zone: str) -> str:
        english = Locale("en")
        for known in (zone, *sorted(self._old_names.get(zone, ()))):
            # Some metazones, such as Turkey's, are no longer named.
            names = english.meta_zones.get(self._metazones.get(known), {}).get("long", {})
            if name := names.get("generic") or names.get("standard"):
                return str(name)
        return f"{zone.rpartition('/')[2].replace('_', ' ')} Time"


def _standard_offset_hours(zone: str) -> float:
    """Return the offset without daylight saving, in hours: the lesser of winter's and summer's."""
    info = zoneinfo.ZoneInfo(zone)
    offsets = (info.utcoffset(_WINTER), info.utcoffset(_SUMMER))
    return min(offset.total_seconds() for offset in offsets if offset is not None) / 3600
