"""What is decided of versions, on a real Valkey."""

import pytest

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.connection import Redis
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith_proto.policy import (
    MAX_VERDICTS,
    LogprobGap,
    PolicyStanding,
    Probe,
    ProbePrompt,
    ProbeQuestion,
    ProbeSample,
    Verdict,
)
from tests.trainer.records import make_record, make_sampled
from tests.transport.messages import make_announcement


def make_verdict(version: int, decision: str = "accepted") -> Verdict:
    announcement = make_announcement(version)
    return Verdict(announcement=announcement, decision=decision, reason="so", decided_at="now")


def make_probe(version: int, share: bool = True) -> Probe:
    prompt = ProbePrompt(name="stencil", compiled=(True,), passed=(share,), rewards=(0.5,))
    return Probe(version=version, probe_set="probe", device="test", prompts=(prompt,), gap=None)


@pytest.fixture
def channel(redis_connection: Redis) -> PolicyChannel:
    return PolicyChannel(redis_connection)


def decisions(standing: PolicyStanding) -> dict[int, str]:
    return {verdict.version: verdict.decision for verdict in standing.verdicts}


def test_before_the_first_verdict_the_shipped_version_serves(channel: PolicyChannel) -> None:
    standing = channel.standing()
    assert (standing.serving_version, standing.newest_judged, standing.turned_down) == (0, 0, frozenset())


def test_an_accepted_version_serves_and_a_refused_one_does_not(channel: PolicyChannel) -> None:
    assert channel.judge(make_verdict(1))
    assert channel.judge(make_verdict(2, "refused"))
    standing = channel.standing()
    assert (standing.serving, standing.newest_judged, standing.turned_down) == (make_announcement(1), 2, {2})


def test_a_version_is_decided_of_once(channel: PolicyChannel) -> None:
    assert channel.judge(make_verdict(2, "refused"))
    assert not channel.judge(make_verdict(2))
    assert not channel.judge(make_verdict(1))
    assert decisions(channel.standing()) == {2: "refused"}


def test_probes_of_the_shipped_version_and_the_one_in_service_are_kept(channel: PolicyChannel) -> None:
    channel.keep_probe(make_probe(0))
    channel.judge(make_verdict(1), make_probe(1))
    channel.judge(make_verdict(2, "refused"), make_probe(2))
    assert [probe.version for probe in channel.standing().probes] == [0, 1]
    channel.judge(make_verdict(3), make_probe(3))
    channel.keep_probe(make_probe(0, share=False))
    assert [(probe.version, probe.pass_share) for probe in channel.standing().probes] == [(3, 1.0), (0, 0.0)]


def test_the_newest_verdicts_are_remembered(channel: PolicyChannel) -> None:
    for version in range(1, MAX_VERDICTS + 3):
        channel.judge(make_verdict(version))
    standing = channel.standing()
    assert (len(standing.verdicts), standing.verdicts[0].version) == (MAX_VERDICTS, 3)


def test_an_operator_goes_back_and_what_is_newer_is_turned_down_even_under_probe(channel: PolicyChannel) -> None:
    for version in (1, 2, 3):
        channel.judge(make_verdict(version, "refused" if version == 2 else "accepted"))
    channel.announce(make_announcement(4))
    standing = channel.roll_back(1, "by hand", "now")
    assert standing.serving == make_announcement(1)
    assert decisions(standing) == {1: "accepted", 2: "refused", 3: "rolled_back", 4: "rolled_back"}
    assert not channel.judge(make_verdict(4)), "its canary ended too late"
    with pytest.raises(Conflict, match="serves already"):
        channel.roll_back(1, "by hand", "now")
    for never in (2, 3, 9):
        with pytest.raises(NotFound, match="not an accepted one"):
            channel.roll_back(never, "by hand", "now")
    assert channel.roll_back(0, "by hand", "now").serving is None


def test_a_version_under_probe_can_be_turned_down_while_the_one_in_service_stays(channel: PolicyChannel) -> None:
    channel.judge(make_verdict(1))
    channel.announce(make_announcement(2))
    standing = channel.roll_back(1, "by hand", "now")
    assert (standing.serving_version, decisions(standing)) == (1, {1: "accepted", 2: "rolled_back"})


def test_a_standing_of_another_version_of_the_contract_counts_as_none(
    channel: PolicyChannel, redis_connection: Redis
) -> None:
    redis_connection.set("sparsesmith:policy:standing", '{"later_field": 1}')
    assert channel.standing() == PolicyStanding()
    assert channel.judge(make_verdict(1))


def test_an_answer_belongs_to_its_question(channel: PolicyChannel) -> None:
    sample = ProbeSample(workload=make_record().workload, sampled=make_sampled())
    question = ProbeQuestion(probe_id="q2", version=1, samples=(sample,))
    channel.ask(question)
    assert channel.question() == question
    gap = LogprobGap(probe_id="q1", version=1, per_token=0, per_program=0, num_tokens=3)
    channel.answer(gap)
    assert channel.answered("q2") is None
    channel.answer(gap.model_copy(update={"probe_id": "q2"}))
    assert channel.answered("q2") is not None
