"""Times of day as people write them: `07:00` is the next moment at which the wall clock shows it."""

import datetime as dt
import re

from orchestrator.errors import InputError

_FORM = re.compile(r"(?:(tomorrow)\s+)?(\d{1,2})(?::(\d{2}))?(?:\s+(tomorrow))?")


def next_time(text: str, *, now: dt.datetime, zone: dt.tzinfo | None = None) -> dt.datetime:
    """Return the moment of a time of day, in UTC: `07:00`, `7:00` or `7` is the next one, `07:00 tomorrow` tomorrow's.

    When clocks are set back, the same time comes twice, and the first one ahead is taken; for a time that is skipped
    when they are set forward, the moment an hour later on the wall clock is taken.

    Args:
        now: aware.
        zone: None: this machine's.

    Raises:
        InputError: the text is not a time of day.
    """
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or (found[1] and found[4]):
        raise InputError(f"--until {text}: is not a time of day; write 07:00, or 07:00 tomorrow")
    hour, minute = int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59:
        raise InputError(f"--until {text}: hours go to 23 and minutes to 59; write 07:00, or 07:00 tomorrow")
    today = now.astimezone(zone).date()
    days = [today + dt.timedelta(days=1)] if found[1] or found[4] else [today, today + dt.timedelta(days=1)]
    moments = [_moment(day, hour, minute, fold, zone) for day in days for fold in (0, 1)]
    return min(moment for moment in moments if moment > now.astimezone(dt.UTC))


def _moment(day: dt.date, hour: int, minute: int, fold: int, zone: dt.tzinfo | None) -> dt.datetime:
    on_the_wall = dt.datetime.combine(day, dt.time(hour, minute, fold=fold))
    local = on_the_wall.astimezone() if zone is None else on_the_wall.replace(tzinfo=zone)
    return local.astimezone(dt.UTC)


def spoken(moment: dt.datetime, *, now: dt.datetime, zone: dt.tzinfo | None = None) -> str:
    """Format a moment: within a day as `05:40`, within a week as `Wed 05:40`, a later one with its date."""
    local = moment.astimezone(zone)
    if moment - now < dt.timedelta(hours=20):
        return f"{local:%H:%M}"
    return f"{local:%a %H:%M}" if moment - now < dt.timedelta(days=6) else f"{local:%Y-%m-%d %H:%M}"
