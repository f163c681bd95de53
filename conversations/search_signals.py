"""What a question says besides its words: when it was, and who said it."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

USER, ASSISTANT = "user", "assistant"
_MONTHS = {name.lower(): n for n, name in enumerate(calendar.month_name) if name} | {
    name.lower(): n for n, name in enumerate(calendar.month_abbr) if name
}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAYS = {name.lower(): n for n, name in enumerate(calendar.day_name)}
_WEEKDAY = "|".join(_DAYS)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_ISO = re.compile(rf"\b{_YEAR}-(?P<month>\d\d)(?:-(?P<day>\d\d))?\b")
_WRITTEN = (
    re.compile(rf"\b{_DAY}\s+(?:of\s+)?(?P<name>{_MONTH})\b\.?,?(?:\s+{_YEAR}\b)?", re.I),
    re.compile(rf"\b(?P<name>{_MONTH})\b\.?\s+{_DAY}\b,?(?:\s+{_YEAR}\b)?", re.I),
    re.compile(rf"\b(?P<name>{_MONTH})\b\.?,?\s+(?:of\s+)?{_YEAR}\b", re.I),
    re.compile(rf"\b(?:in|during|since|of|last|this)\s+(?P<name>{_MONTH})\b", re.I),
)
_WHOLE_YEAR = re.compile(rf"\b(?:in|during|of)\s+{_YEAR}\b", re.I)
_AGO = re.compile(r"\b(?P<n>\d{1,3}|an?|two|three)\s+(?P<unit>day|week|month|year)s?\s+ago\b", re.I)
_LAST = re.compile(rf"\b(?P<which>last|this)\s+(?P<unit>week|month|year|{_WEEKDAY})\b", re.I)
_NEAR = re.compile(r"\b(?P<word>yesterday|today)\b", re.I)
_NUMBERS = {"a": 1, "an": 1, "two": 2, "three": 3}
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_AUXILIARY = r"(?:did|do|have|had|was|were|am|are|would|will|should|could|can)"
_FIRST, _SECOND = r"(?:i|we)", "you"
_DOER = re.compile(rf"\b{_AUXILIARY}\s+(?P<who>{_FIRST}|{_SECOND})\b", re.I)
_FIRST_ANYWHERE = re.compile(rf"\b(?:{_FIRST}|me|us|my|our|mine)\b", re.I)
_SECOND_ANYWHERE = re.compile(r"\b(?:you|your|yours)\b", re.I)
_NAMED = {
    USER: re.compile(r"\bthe (?:user|person|human)\b", re.I),
    ASSISTANT: re.compile(r"\bthe (?:assistant|agent)\b", re.I),
}


@dataclass(frozen=True)
class Span:
    """A time that a question names; `words` are those that name it. `until` is exclusive."""

    since: datetime
    until: datetime
    words: str


def span_of(query: str, now: datetime) -> Span | None:
    """Return the time that the query names, if it names one that can be read; `now` is for "last week" and the like."""
    for reader in (_iso, _written, _year, _ago, _last, _near):
        try:
            found = reader(query, now)
        except (ValueError, OverflowError):
            continue  # the 31st of February
        if found is not None:
            return found
    return None


def speaker_of(query: str, asker: str) -> str | None:
    """Return whose words are meant, `user` or `assistant`; `asker` is the one who says "I"."""
    for role, pattern in _NAMED.items():
        if pattern.search(query):
            return role
    doers = {match["who"].lower() == _SECOND for match in _DOER.finditer(query)}
    if not doers:
        anywhere = ((False, _FIRST_ANYWHERE), (True, _SECOND_ANYWHERE))
        doers = {is_second for is_second, pattern in anywhere if pattern.search(query)}
    if len(doers) != 1:
        return None
    other = ASSISTANT if asker == USER else USER
    return other if doers.pop() else asker


def _days(year: int, month: int | None, day: int | None, words: str) -> Span:
    since = datetime(year, month or 1, day or 1, tzinfo=UTC)
    if day:
        return Span(since, since + timedelta(days=1), words)
    if month:
        return Span(since, since + timedelta(days=calendar.monthrange(year, month)[1]), words)
    return Span(since, since.replace(year=year + 1), words)


def _iso(query: str, now: datetime) -> Span | None:
    found = _ISO.search(query)
    if found is None:
        return None
    day = found["day"]
    return _days(int(found["year"]), int(found["month"]), int(day) if day else None, found[0])


def _written(query: str, now: datetime) -> Span | None:
    for pattern in _WRITTEN:
        if found := pattern.search(query):
            groups = found.groupdict()
            month = _MONTHS[groups["name"].lower()]
            day = int(groups["day"]) if groups.get("day") else None
            year = int(groups["year"]) if groups.get("year") else _latest_year(month, day, now)
            return _days(year, month, day, found[0])
    return None


def _latest_year(month: int, day: int | None, now: datetime) -> int:
    """Without a year the last one is meant in which that date is not in the future."""
    return now.year if (month, day or 1) <= (now.month, now.day) else now.year - 1


def _year(query: str, now: datetime) -> Span | None:
    found = _WHOLE_YEAR.search(query)
    return _days(int(found["year"]), None, None, found[0]) if found else None


def _ago(query: str, now: datetime) -> Span | None:
    found = _AGO.search(query)
    if found is None:
        return None
    count = _NUMBERS.get(found["n"].lower()) or int(found["n"])
    unit_days = _UNIT_DAYS[found["unit"].lower()]
    middle = now - timedelta(days=count * unit_days)
    around = timedelta(days=max(0.5, unit_days / 2))
    return Span(middle - around, middle + around, found[0])


def _last(query: str, now: datetime) -> Span | None:
    found = _LAST.search(query)
    if found is None:
        return None
    unit, is_last = found["unit"].lower(), found["which"].lower() == "last"
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit in _DAYS:
        back = (today.weekday() - _DAYS[unit]) % 7 or (7 if is_last else 0)
        since = today - timedelta(days=back)
        return Span(since, since + timedelta(days=1), found[0])
    if unit == "week":
        since = today - timedelta(days=today.weekday() + (7 if is_last else 0))
        return Span(since, since + timedelta(days=7), found[0])
    if unit == "month":
        first = today.replace(day=1)
        month = (first - timedelta(days=1)) if is_last else first
        return _days(month.year, month.month, None, found[0])
    return _days(now.year - (1 if is_last else 0), None, None, found[0])


def _near(query: str, now: datetime) -> Span | None:
    found = _NEAR.search(query)
    if found is None:
        return None
    back = 1 if found["word"].lower() == "yesterday" else 0
    since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=back)
    return Span(since, since + timedelta(days=1), found[0])
