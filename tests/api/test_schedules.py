"""Scheduled messages: sent once for each time, with two workers, after a crash, and after a night's sleep."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from conversations.models import Message, Run, Schedule
from conversations.services import schedules
from souveraine.errors import InvalidArgument
from tests.conftest import Api, make_agent, wait_for

HI = [{"role": "user", "content": "Good morning"}]


@pytest.fixture
def agent(idle_api: Api) -> dict[str, Any]:
    return make_agent(idle_api)


def plan(api: Api, agent: dict[str, Any], **schedule: Any) -> dict[str, Any]:
    answer = api.post(f"/v1/agents/{agent['id']}/schedule", {"messages": HI, "schedule": schedule})
    assert answer.status == 200, answer.body
    return answer.json()  # type: ignore[no-any-return]


def milliseconds(at: datetime) -> float:
    return at.timestamp() * 1000


def listed(api: Api, agent: dict[str, Any], query: str = "") -> list[dict[str, Any]]:
    return api.get(f"/v1/agents/{agent['id']}/schedule{query}").json()["scheduled_messages"]  # type: ignore[no-any-return]


def said() -> list[str]:
    found = Message.objects.filter(role="user").order_by("sequence")
    return list(found.values_list("text", flat=True))


def make_due(ago: timedelta = timedelta(seconds=1)) -> datetime:
    at = timezone.now() - ago
    Schedule.objects.update(due_at=at, wake_at=at)
    return at


def test_it_works(api: Api) -> None:
    agent = make_agent(api)
    at = timezone.now() + timedelta(hours=1)
    made = plan(api, agent, scheduled_at=milliseconds(at))
    assert set(made) == {"id", "next_scheduled_at"}
    [shown] = listed(api, agent)
    assert shown["id"] == made["id"]
    assert shown["agent_id"] == agent["id"]
    assert shown["message"]["messages"] == [
        {"content": "Good morning", "role": "user", "type": "message"}
    ]
    assert shown["schedule"]["type"] == "one-time"
    assert shown["next_scheduled_time"] == made["next_scheduled_at"]
    make_due()
    schedules.fire_due()
    wait_for(lambda: Run.objects.filter(status="completed").exists())
    assert said() == ["Good morning"]
    assert listed(api, agent) == []


def test_a_recurring_one_goes_on_and_can_be_deleted(idle_api: Api, agent: dict[str, Any]) -> None:
    made = plan(
        idle_api, agent, type="recurring", cron_expression="30 9 * * *", timezone="Europe/Berlin"
    )
    path = f"/v1/agents/{agent['id']}/schedule/{made['id']}"
    make_due()
    schedules.fire_due()
    after = idle_api.get(path).json()
    assert after["next_scheduled_time"] >= datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert after["last_fired_at"]
    assert after["schedule"]["cron_expression"] == "30 9 * * *"
    assert said() == ["Good morning"]
    assert idle_api.delete(path).json() == {"success": True}
    assert idle_api.delete(path).status == 404
    assert idle_api.get(path).status == 404


def test_what_was_missed_is_made_up_for_once(idle_api: Api, agent: dict[str, Any]) -> None:
    plan(idle_api, agent, type="recurring", cron_expression="* * * * *")
    make_due(timedelta(hours=8))
    for _ in range(3):
        schedules.fire_due()
    assert said() == ["Good morning"]
    assert Schedule.objects.get().due_at > timezone.now()


def test_two_workers_send_once(idle_api: Api, agent: dict[str, Any]) -> None:
    for _ in range(5):
        plan(idle_api, agent, type="interval", interval_seconds=3600)
    make_due()

    def fire(_: int) -> None:
        try:
            schedules.fire_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fire, range(4)))
    assert Run.objects.count() == 5
    assert Schedule.objects.filter(wake_at__lte=timezone.now()).count() == 0


def test_a_crash_between_sending_and_moving_on_sends_once(
    idle_api: Api, agent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(idle_api, agent, type="recurring", cron_expression="0 0 * * *")
    make_due()

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(schedules, "_move_on", die)
        with pytest.raises(Killed):
            schedules.fire_due()
    assert Run.objects.count() == 1
    schedules.fire_due()
    assert Run.objects.count() == 1
    assert Schedule.objects.get().due_at > timezone.now()


def test_a_busy_conversation_gets_the_message_afterwards(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    idle_api.post(f"/v1/agents/{agent['id']}/messages/async", {"input": "First"})
    plan(idle_api, agent, type="interval", interval_seconds=60)
    make_due()
    schedules.fire_due()
    assert sorted(Run.objects.values_list("status", flat=True)) == ["queued", "waiting"]


def test_a_full_queue_is_tried_again_later(
    idle_api: Api, agent: dict[str, Any], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.CONFIG.values, "SOUVERAINE_QUEUE_LIMIT", 0)
    idle_api.post(f"/v1/agents/{agent['id']}/messages/async", {"input": "First"})
    plan(idle_api, agent, scheduled_at=milliseconds(timezone.now() + timedelta(hours=1)))
    due = make_due()
    schedules.fire_due()
    waiting = Schedule.objects.get()
    assert waiting.due_at == due
    assert waiting.wake_at > timezone.now()
    assert "wait" in waiting.last_error
    assert Run.objects.count() == 1


def test_an_unknown_action_or_a_failing_one_stops_no_others(
    idle_api: Api, agent: dict[str, Any]
) -> None:
    broken = plan(idle_api, agent, type="interval", interval_seconds=60)
    plan(idle_api, agent, type="interval", interval_seconds=60)
    broken_id = broken["id"].removeprefix("schedule-")
    make_due()
    Schedule.objects.filter(pk=broken_id).update(action="dance")
    schedules.fire_due()
    assert Run.objects.count() == 1
    assert "dance" in Schedule.objects.get(pk=broken_id).last_error
    assert len(listed(idle_api, agent)) == 1  # other actions are no scheduled messages


def test_other_actions_get_their_schedule_and_time(
    idle_api: Api, agent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[datetime] = []
    action: Callable[..., None] = lambda schedule, due_at: calls.append(due_at)  # noqa: E731
    monkeypatch.setitem(schedules._ACTIONS, "reflect", action)
    plan(idle_api, agent, type="interval", interval_seconds=60)
    Schedule.objects.update(action="reflect")
    due = make_due()
    schedules.fire_due()
    assert calls == [due]


def test_they_are_listed_in_pages(idle_api: Api, agent: dict[str, Any]) -> None:
    made = [plan(idle_api, agent, type="interval", interval_seconds=60)["id"] for _ in range(5)]
    found, after, has_more = [], "", True
    while has_more:
        page = idle_api.get(f"/v1/agents/{agent['id']}/schedule?limit=2{after}").json()
        found += [s["id"] for s in page["scheduled_messages"]]
        has_more, after = page["has_next_page"], f"&after={found[-1]}"
    assert found == made
    assert listed(idle_api, agent, "?limit=0") == []
    for bad in ("?limit=x", "?limit=-1", "?after=x"):
        assert idle_api.get(f"/v1/agents/{agent['id']}/schedule{bad}").status == 422
    missing = f"?after=schedule-{uuid.uuid4()}"
    assert idle_api.get(f"/v1/agents/{agent['id']}/schedule{missing}").status == 404


def test_what_can_never_be_is_refused(idle_api: Api, agent: dict[str, Any]) -> None:
    path = f"/v1/agents/{agent['id']}/schedule"
    good: dict[str, Any] = {"messages": HI, "schedule": {"scheduled_at": 4e12}}
    wrong: list[tuple[dict[str, Any], int]] = [
        ({"messages": []}, 422),
        ({"messages": [{"role": "robot", "content": "x"}]}, 422),
        ({"messages": [{"role": "user", "content": ""}]}, 422),
        ({"messages": [{"type": "approval", "approvals": []}]}, 422),
        ({"schedule": None}, 422),
        ({"schedule": {"scheduled_at": -1}}, 422),
        ({"schedule": {"scheduled_at": 10**30}}, 422),
        ({"schedule": {"scheduled_at": 9.9e14}}, 400),
        ({"schedule": {"type": "recurring", "cron_expression": "at noon"}}, 400),
        ({"schedule": {"type": "recurring", "cron_expression": "0 0 31 2 *"}}, 400),
        ({"schedule": {"type": "recurring", "cron_expression": "* * * * * *"}}, 400),
        ({"schedule": {"type": "recurring", "cron_expression": "* * * * *", "timezone": "x"}}, 400),
        (
            {"schedule": {"type": "recurring", "cron_expression": "* * * * *", "timezone": "../x"}},
            400,
        ),
        ({"schedule": {"type": "interval", "interval_seconds": 1}}, 422),
        ({"callback_url": "http://127.0.0.1/"}, 422),
        ({"max_steps": 0}, 422),
    ]
    for change, status in wrong:
        answer = idle_api.post(path, {**good, **change})
        assert answer.status == status, (change, answer.status, answer.body)
    assert Schedule.objects.count() == 0


def test_a_time_of_day_stays_when_the_clocks_change() -> None:
    rule = {"type": "recurring", "cron_expression": "0 9 * * *", "timezone": "Europe/Berlin"}
    before = datetime(2026, 3, 28, 12, tzinfo=UTC)
    due = schedules.next_due(rule, before)
    assert due == datetime(2026, 3, 29, 7, tzinfo=UTC)  # summer time began that night
    assert schedules.next_due({**rule, "timezone": None}, before) == datetime(
        2026, 3, 29, 9, tzinfo=UTC
    )
    with pytest.raises(InvalidArgument):
        schedules.next_due({**rule, "timezone": "Europe/Nowhere"}, before)


def test_seconds_are_understood_beside_milliseconds() -> None:
    at = datetime(2027, 1, 1, tzinfo=UTC)
    assert schedules.moment_of(at.timestamp()) == schedules.moment_of(milliseconds(at)) == at


def test_they_go_with_their_agent(idle_api: Api, agent: dict[str, Any]) -> None:
    plan(idle_api, agent, type="interval", interval_seconds=60)
    idle_api.delete(f"/v1/agents/{agent['id']}")
    assert Schedule.objects.count() == 0
