"""Observers: each of several hears everything, in their order."""

import inspect
from typing import Any

from orchestrator.running.events import Observer, Several

EVENTS = [name for name, _ in inspect.getmembers(Observer, inspect.isfunction) if not name.startswith("_")]


def recording(name: str, heard: list[Any]) -> Observer:
    """An observer that notes every event under its name."""
    observer = Observer()
    for each in EVENTS:
        setattr(observer, each, lambda *values, event=each: heard.append((name, event, values)))
    return observer


def test_each_of_several_observers_hears_every_event_in_their_order() -> None:
    heard: list[Any] = []
    several = Several([recording("first", heard), recording("second", heard)])
    assert len(EVENTS) == 13
    for event in EVENTS:
        values = tuple(inspect.signature(getattr(Observer, event)).parameters)[1:]
        getattr(several, event)(*values)
        assert heard == [("first", event, values), ("second", event, values)]
        heard.clear()


def test_what_an_observer_does_not_care_for_does_nothing() -> None:
    with Observer() as observer:
        observer.noted("nothing")
