"""Threads of one process take turns for SQLite's write lock."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from souveraine.lib.sqlite import base

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the queue is SQLite's"),
]


@pytest.fixture
def short_timeout() -> Iterator[None]:
    options = connection.settings_dict["OPTIONS"]
    before = options["timeout"]
    options["timeout"] = 0.2
    yield
    options["timeout"] = before


def elsewhere(action: object) -> list[BaseException]:
    """Run `action` in a thread of its own with its own connection; return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()  # type: ignore[operator]
        except BaseException as exc:
            raised.append(exc)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return raised


def write() -> None:
    with transaction.atomic():
        pass


def is_free() -> bool:
    return not elsewhere(write)


def test_a_second_transaction_waits_for_the_first_and_no_longer_than_the_timeout(
    short_timeout: None,
) -> None:
    with transaction.atomic():
        (raised,) = elsewhere(write)
    assert isinstance(raised, OperationalError)
    assert "database is locked" in str(raised)
    assert is_free()


def test_nested_blocks_hold_one_place(short_timeout: None) -> None:
    with transaction.atomic():
        with transaction.atomic():
            pass
        assert not is_free()
    assert is_free()


def test_the_place_is_given_back_however_the_transaction_ends(short_timeout: None) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        raise ZeroDivisionError
    assert is_free()
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM no_such_table")
    assert is_free()
    with transaction.atomic():
        transaction.set_rollback(True)
    assert is_free()


def test_closing_the_connection_in_a_transaction_gives_it_back(short_timeout: None) -> None:
    def abandon() -> None:
        with transaction.atomic():
            connection.close()

    elsewhere(abandon)
    assert is_free()


def test_a_transaction_that_cannot_begin_gives_it_back(
    short_timeout: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object) -> None:
        raise OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(base.base.DatabaseWrapper, "_start_transaction_under_autocommit", refuse)
        with pytest.raises(OperationalError, match="disk I/O"), transaction.atomic():
            raise AssertionError("not reached")
    assert is_free()


def test_waiting_threads_all_get_their_turn() -> None:
    done: list[int] = []
    counter = threading.Lock()

    def work() -> None:
        for _ in range(20):
            with transaction.atomic(), counter:
                done.append(1)

    threads = [threading.Thread(target=lambda: elsewhere(work)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(done) == 160


def test_a_thread_that_dies_in_a_transaction_leaves_its_place(short_timeout: None) -> None:
    begun = threading.Thread(target=lambda: transaction.atomic().__enter__())
    begun.start()
    begun.join(10)
    gc.collect()  # its connection is part of cycles
    assert is_free()
