"""API keys, their accounts and the audit log, on a real Valkey."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparsesmith.errors import Conflict, InvalidOption, NotFound, QuotaExceeded
from sparsesmith.transport import keys as keys_module
from sparsesmith.transport.accounts import DAY_S, Accounts
from sparsesmith.transport.audit import AuditLog
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.job_store import Asker, History, IdempotencyKey, JobStore
from sparsesmith.transport.keys import KeyStore
from sparsesmith.transport.permalinks import Permalinks
from sparsesmith_proto.api import Cancelled, JobStatus, Queued
from sparsesmith_proto.keys import ApiKey, Quotas

NOON = 1_795_262_400
"""Of 2026-11-21, UTC."""


def status(job_id: str) -> JobStatus:
    return JobStatus(job_id=job_id, accepted_at="2026-11-21T12:00:00Z", status=Queued(position=0))


def made(connection: Redis, name: str = "alice", **quotas: float) -> ApiKey:
    return KeyStore(connection).create(name, Quotas.model_validate(quotas))[0]


def test_a_key_opens_until_it_is_revoked_and_nobody_can_read_it_again(redis_connection: Redis) -> None:
    store = KeyStore(redis_connection)
    key, text = store.create("alice", Quotas())
    assert store.opened_by(text) == key
    stored = b"".join(redis_connection.hvals("sparsesmith:keys"))
    assert key.key_id.encode() in stored
    assert text.encode() not in stored and text.split("_", 2)[2].encode() not in stored
    store.revoke("alice")
    assert store.opened_by(text) is None
    assert [(each.name, each.revoked_at is None) for each in store.all()] == [("alice", False)]
    with pytest.raises(NotFound, match="no key 'alice' that opens"):
        store.revoke("alice")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text.replace("ssk_", "ssk_f", 1),
        lambda text: "ssk_000000000000_" + text[-43:],
        lambda text: text + "\n",
        lambda text: text.upper(),
    ],
)
def test_no_other_text_opens(redis_connection: Redis, change: Callable[[str], str]) -> None:
    store = KeyStore(redis_connection)
    assert store.opened_by(change(store.create("alice", Quotas())[1])) is None


def test_names_are_names_and_belong_to_one_key_that_opens(
    redis_connection: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KeyStore(redis_connection)
    with pytest.raises(InvalidOption, match="'a b' is not 1 to 64 letters"):
        store.create("a b", Quotas())
    first, _ = store.create("alice", Quotas())
    with pytest.raises(Conflict, match="there is a key 'alice' already"):
        store.create("alice", Quotas())
    store.revoke(first.key_id)
    second, _ = store.create("alice", Quotas())
    assert first.key_id != second.key_id
    assert store.revoke("alice").key_id == second.key_id


def test_of_many_who_make_a_key_of_one_name_at_once_one_does(redis_connection: Redis) -> None:
    def make(_: int) -> str:
        try:
            return KeyStore(redis_connection).create("alice", Quotas())[0].key_id
        except Conflict:
            return "taken"

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(make, range(8)))
    assert ids.count("taken") == 7
    assert len(KeyStore(redis_connection).all()) == 1


def test_quotas_of_jobs_hold_however_many_ask_at_once_and_end_with_the_jobs(redis_connection: Redis) -> None:
    key = made(redis_connection, unfinished_jobs=3)
    store, accounts = JobStore(redis_connection), Accounts(redis_connection)

    def ask(number: int) -> bool:
        try:
            store.accept(status(f"j{number}"), "r", None, Asker("here", key))
        except QuotaExceeded as error:
            assert (error.field, error.limit, error.retry_after_s) == ("unfinished_jobs", "3", 5)
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        taken = [number for number, is_taken in enumerate(pool.map(ask, range(12))) if is_taken]
    assert len(taken) == 3
    assert accounts.used(key.key_id).unfinished_jobs == 3
    assert sorted(store.unfinished()) == sorted(f"j{number}" for number in taken)
    store.update(JobStatus(job_id=f"j{taken[0]}", accepted_at="2026-11-21T12:00:00Z", status=Cancelled()))
    assert accounts.used(key.key_id).unfinished_jobs == 2
    assert ask(99)


def test_a_repeated_request_is_its_earlier_job_though_the_quota_is_used_up_and_only_for_its_own_key(
    redis_connection: Redis,
) -> None:
    alice, bob = (Asker("here", made(redis_connection, name, unfinished_jobs=1)) for name in ("alice", "bob"))
    store, again = JobStore(redis_connection), IdempotencyKey("again", "f")
    assert store.accept(status("a1"), "r", again, alice) == "a1"
    assert store.accept(status("a2"), "r", again, alice) == "a1"
    assert store.accept(status("b1"), "r", again, bob) == "b1"
    assert store.accept(status("n1"), "r", again) == "n1"


def test_a_day_s_seconds_and_bytes_are_used_up_and_renewed_at_midnight(redis_connection: Redis) -> None:
    now = [float(NOON)]
    key = made(redis_connection, evaluator_seconds_a_day=10, bytes_a_day=100)
    accounts = Accounts(redis_connection, clock=lambda: now[0])
    store = JobStore(redis_connection, clock=lambda: now[0])
    asker = Asker("here", key)
    store.accept(status("j1"), "r", None, asker)
    assert accounts.charge_seconds("j1.run-0", 7.5) and accounts.charge_seconds("j1.run-1", 2.5)
    with pytest.raises(QuotaExceeded, match=r"10 seconds .* at most 10 a day .* renewed at 2026-11-22T00:00") as told:
        store.accept(status("j2"), "r", None, asker)
    assert (told.value.field, told.value.retry_after_s) == ("evaluator_seconds_a_day", DAY_S // 2)
    accounts.reserve_bytes(key, 60)
    with pytest.raises(QuotaExceeded, match="60 bytes of bodies, and 41 more: at most 100 a day"):
        accounts.reserve_bytes(key, 41)
    accounts.give_back_bytes(accounts.reserve_bytes(key, 40), 10)
    assert accounts.used(key.key_id).num_bytes == 90
    now[0] += DAY_S // 2
    assert (accounts.used(key.key_id).evaluator_seconds, accounts.used(key.key_id).num_bytes) == (0, 0)
    assert store.accept(status("j3"), "r", None, asker) == "j3"


def test_requests_are_counted_by_the_minute(redis_connection: Redis) -> None:
    now = [float(NOON) + 45]
    key = made(redis_connection, requests_a_minute=2)
    accounts = Accounts(redis_connection, clock=lambda: now[0])
    accounts.count_request(key)
    accounts.count_request(key)
    with pytest.raises(QuotaExceeded, match="at most 2") as told:
        accounts.count_request(key)
    assert told.value.retry_after_s == 16
    now[0] += 15
    accounts.count_request(key)


def test_nobody_is_charged_for_a_job_that_no_key_asked_for(redis_connection: Redis) -> None:
    JobStore(redis_connection).accept(status("j1"), "r")
    accounts = Accounts(redis_connection)
    assert not accounts.charge_seconds("j1.run-0", 5)
    assert not accounts.charge_seconds("guest-1", 5)
    assert redis_connection.keys("sparsesmith:account:*") == []


def test_a_key_lists_its_own_jobs_and_is_told_when_they_went(redis_connection: Redis) -> None:
    alice, bob = made(redis_connection, "alice"), made(redis_connection, "bob")
    now = [float(NOON)]
    store = JobStore(redis_connection, History(days=1), clock=lambda: now[0])
    for job_id, key in (("a1", alice), ("b1", bob), ("a2", alice)):
        store.accept(status(job_id), "r", None, Asker("here", key))
        now[0] += 1
    assert store.newest(9, owner=alice.key_id) == ["a2", "a1"]
    assert store.newest(9, before="a2", owner=alice.key_id) == ["a1"]
    with pytest.raises(NotFound, match="no job b1 in the list"):
        store.newest(9, before="b1", owner=alice.key_id)
    assert store.newest(9) == ["a2", "b1", "a1"]
    store.update(JobStatus(job_id="a1", accepted_at="2026-11-21T12:00:00Z", status=Cancelled()))
    now[0] += DAY_S + 1
    assert not store.keeps("a1", alice.key_id)
    assert store.newest(9, owner=alice.key_id) == ["a2"]
    assert store.is_owned("a1", alice.key_id) and not store.is_owned("a1", bob.key_id)
    assert not store.is_owned("none", alice.key_id)


def test_the_audit_log_tells_who_ran_what_and_keeps_the_newest(
    redis_connection: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = made(redis_connection)
    store, asker = JobStore(redis_connection), Asker("192.0.2.7", key)
    store.accept(status("j1"), "r", IdempotencyKey("again", "f"), asker, "tune spmv float32")
    store.accept(status("j2"), "r", IdempotencyKey("again", "f"), asker, "tune spmv float32")
    ended = JobStatus(job_id="j1", accepted_at="2026-11-21T12:00:00Z", status=Cancelled())
    assert store.update(ended, asker) and store.update(ended, asker)
    store.accept(status("j3"), "r", detail="x" * 500)
    KeyStore(redis_connection).revoke("alice")
    told = AuditLog(redis_connection).newest(99)
    assert [(each.action, each.key_id, each.client, each.job_id) for each in told] == [
        ("key_created", key.key_id, None, None),
        ("job_accepted", key.key_id, "192.0.2.7", "j1"),
        ("job_cancelled", key.key_id, "192.0.2.7", "j1"),
        ("job_accepted", None, None, "j3"),
        ("key_revoked", key.key_id, None, None),
    ]
    assert told[1].detail == "tune spmv float32" and told[1].name == "alice"
    monkeypatch.setattr("sparsesmith.transport.audit.MAX_ENTRIES", 3)
    store.accept(status("j4"), "r")
    assert [each.job_id or each.action for each in AuditLog(redis_connection).newest(99)][-1] == "j4"
    assert redis_connection.xlen("sparsesmith:audit") == 3


def test_keys_are_bounded_in_number(redis_connection: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "MAX_KEYS", 1)
    made(redis_connection)
    with pytest.raises(Exception, match="1 keys have been made: at most 1"):
        made(redis_connection, "bob")


def test_a_permalink_s_secret_opens_one_job_and_outlives_every_service(redis_connection: Redis) -> None:
    secret = Permalinks(redis_connection).secret_of("j1")
    assert Permalinks(redis_connection).opens("j1", secret)
    assert not any(Permalinks(redis_connection).opens(*each) for each in (("j2", secret), ("j1", ""), ("j1", "é")))
    redis_connection.delete("sparsesmith:permalinks")
    assert not Permalinks(redis_connection).opens("j1", secret)
