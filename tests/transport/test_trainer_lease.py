"""One trainer a stream, on a real Valkey."""

import pytest

from sparsesmith.errors import Conflict
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.trainer_lease import KEY, LEASE_S, TrainerLease


def test_a_second_trainer_is_refused_by_name_while_the_first_one_lives(redis_connection: Redis) -> None:
    first, second = (TrainerLease(redis_connection, name) for name in ("first", "second"))
    first.hold()
    with pytest.raises(Conflict, match="another trainer, first, learns from this stream"):
        second.hold()
    first.hold()
    assert 0 < redis_connection.ttl(KEY) <= LEASE_S


def test_the_same_trainer_started_again_holds_it_at_once(redis_connection: Redis) -> None:
    TrainerLease(redis_connection, "first").hold()
    TrainerLease(redis_connection, "first").hold()


def test_what_is_released_or_has_run_out_is_free(redis_connection: Redis) -> None:
    first, second = (TrainerLease(redis_connection, name) for name in ("first", "second"))
    first.hold()
    second.release()
    assert redis_connection.get(KEY) == b"first", "nobody releases what another holds"
    first.release()
    second.hold()
    redis_connection.delete(KEY)
    first.hold()
    with pytest.raises(Conflict):
        second.hold()
