"""A course's parts, without its stack: what is asked next, what a kill leaves, what the numbers come to."""

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from services.trainer.course import curves
from services.trainer.course.__main__ import main
from services.trainer.course.course import CourseOptions, Tail, is_judgement_due, next_judgement_s, run_course
from services.trainer.course.curriculum import LEAST, UNSEEN, Curriculum
from services.trainer.course.events import Scalar, masked_crc, write_events
from services.trainer.course.exports import export
from services.trainer.course.gpu_use import GpuUse
from services.trainer.course.judging import Group, figures
from services.trainer.course.ledger import Ledger
from services.trainer.course.lessons import Lesson, lessons_of, packed_lessons
from services.trainer.course.posting import PostingOptions
from sparsesmith.errors import InvalidOption, NotFound
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.policy.checkpoint import load_policy, write_published_weights
from tests.generator.tiny_policy import make_policy, write_policy
from tests.trainer.records import make_pattern

SAME, SPREAD = [0.5] * 8, [0.2, 1.2, -0.4, 0.9] * 2


def make_lessons(count: int = 3) -> list[Lesson]:
    return [Lesson(f"m{number}", make_pattern(number)) for number in range(count)]


def test_workloads_whose_rewards_differ_are_asked_more_often() -> None:
    curriculum = Curriculum(make_lessons(), seed=1)
    graded = [("m0", SAME), ("m1", SPREAD)]
    weights = curriculum.weights(graded)
    assert (weights["m0"], weights["m2"]) == (LEAST, UNSEEN)
    assert weights["m1"] > UNSEEN
    asked = Counter(curriculum.next(number, graded).name for number in range(400))
    assert asked["m1"] > asked["m2"] > 3 * asked["m0"] > 0


def test_what_was_found_last_counts() -> None:
    curriculum = Curriculum(make_lessons())
    assert curriculum.weights([("m0", SPREAD), ("m0", SAME), ("m0", SAME)])["m0"] == LEAST


def test_the_next_workload_follows_from_what_was_graded_and_busy_ones_wait() -> None:
    graded = [("m0", SPREAD), ("m2", SAME)]
    first, again = (
        [Curriculum(make_lessons(), seed=3).next(number, graded).name for number in range(20)] for _ in range(2)
    )
    assert first == again
    assert first != [Curriculum(make_lessons(), seed=4).next(number, graded).name for number in range(20)]
    assert {Curriculum(make_lessons()).next(number, (), busy=["m0", "m1"]).name for number in range(20)} == {"m2"}
    assert Curriculum(make_lessons(1)).next(0, (), busy=["m0"]).name == "m0"


def test_a_ledger_goes_on_behind_a_line_that_a_kill_tore(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.write("posted", 1.0, job="a", lesson="m0")
    ledger.write("posted", 2.0, job="b", lesson="m1")
    ledger.write("graded", 5.5, job="a", lesson="m0", rewards=SAME)
    with path.open("a") as file:
        file.write('{"event": "graded", "at_s"')
    again = Ledger(path)
    assert (again.seconds, list(again.open_jobs())) == (5.5, ["b"])
    again.write("failed", 6.0, job="b", lesson="m1", why="gone")
    assert [event["event"] for event in Ledger(path).events("failed")] == ["failed"]
    assert Ledger(path).open_jobs() == {}


def test_a_journal_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "updates.jsonl"
    tail = Tail(path, 1)
    assert list(tail.new()) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert list(tail.new()) == [{"step": 2}]
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    assert list(tail.new()) == [{"step": 3}]


def pack(path: Path, *seeds: int) -> Path:
    write_pack(path, {f"m{seed}": encode_pattern(make_pattern(seed)) for seed in seeds})
    return path


def test_packs_become_workloads_of_three_kinds_and_some_are_rehearsed(tmp_path: Path) -> None:
    packs = pack(tmp_path / "a", 1, 2, 4, 5), pack(tmp_path / "b", 3)
    lessons, probes = packed_lessons(*packs, rehearse_every=3)
    kinds = ["spmv:float32:1", "spmv:float64:1", "spmm:float32:32"]
    assert [lesson.name for lesson in probes] == [f"m3:{kind}" for kind in kinds]
    practised = [f"m{seed}:{kind}" for seed in (1, 2, 4, 5) for kind in kinds]
    rehearsed = [f"m{seed}:spmm:float32:{columns}" for seed in (1, 5) for columns in (8, 128)]
    assert [lesson.name for lesson in lessons] == practised + rehearsed
    assert [lesson.name for lesson in packed_lessons(*packs, rehearse_every=0)[0]] == practised
    assert lessons_of([("m", make_pattern())])[2].options(16, 60).num_dense_cols == 32


def test_every_other_job_may_be_of_changes_of_one_program_as_many_as_families_propose() -> None:
    posting = PostingOptions(group=16, at_once=1, job_s=60, parent_every=2)
    assert [posting.has_parent(number) for number in range(4)] == [False, True, False, True]
    assert not any(PostingOptions(group=16, at_once=1, job_s=60).has_parent(number) for number in range(4))
    asked = make_lessons(1)[0].changes(16, 60)
    assert (asked.search, asked.budget.candidates, asked.budget.seconds) == ("refine", 32, 60)
    told = asked.refine
    assert (told.writer, told.children, told.generations, told.beam) == ("policy", 16, 1, 1)


def test_what_is_judged_by_is_not_learned_from(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"m2 .* would be learned from and judged by") as caught:
        packed_lessons(pack(tmp_path / "a", 1, 2), pack(tmp_path / "b", 2))
    assert (caught.value.field, caught.value.value) == ("lessons", "m2")


@pytest.mark.parametrize(("content", "message"), [(b"no pack", "is no pack of matrices"), (None, "is no pack")])
def test_a_pack_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "bad").write_bytes(content)
    with pytest.raises(InvalidOption, match=message):
        packed_lessons(pack(tmp_path / "a", 1), tmp_path / "bad")
    with pytest.raises(InvalidOption, match="holds no matrices"):
        packed_lessons(pack(tmp_path / "none"), pack(tmp_path / "b", 2))


def test_a_folder_of_another_course_is_refused_by_what_differs(tmp_path: Path) -> None:
    options = CourseOptions(state=tmp_path, policy=tmp_path, arm="rloo", seed=1)
    tmp_path.joinpath("course.json").write_text('{"arm": "ppo"}')
    with pytest.raises(InvalidOption, match="another course: arm differs") as caught:
        run_course(options, make_lessons(), make_lessons())
    assert (caught.value.field, caught.value.value) == ("arm", "rloo")


def test_samples_of_a_lesson_are_what_a_course_is(tmp_path: Path) -> None:
    options = CourseOptions(state=tmp_path, policy=tmp_path, group=8)
    identity = {"arm": "rloo", "settings": {}, "seed": 0, "policy": str(tmp_path.resolve()), "batch": [16, 32, 2]}
    tmp_path.joinpath("course.json").write_text(json.dumps(identity))
    with pytest.raises(InvalidOption, match="another course: batch differs"):
        run_course(options, make_lessons(), make_lessons())


def test_when_a_course_is_judged_is_what_it_is(tmp_path: Path) -> None:
    options = CourseOptions(state=tmp_path, policy=tmp_path, judge="end")
    identity = {"arm": "rloo", "settings": {}, "seed": 0, "policy": str(tmp_path.resolve()), "batch": [16, 32, 2]}
    lessons = {name: ["m0", "m1", "m2"] for name in ("lessons", "probes")}
    tmp_path.joinpath("course.json").write_text(json.dumps(identity | lessons))
    with pytest.raises(InvalidOption, match="another course: judge differs"):
        run_course(options, make_lessons(), make_lessons())


def judged_at(*seconds: float) -> list[dict[str, Any]]:
    return [{"event": "judged", "at_s": each} for each in seconds]


@pytest.mark.parametrize(
    ("judge", "judged", "seconds", "due", "next_s"),
    [
        ("always", (), 0.0, True, 0.0),
        ("always", (0.0,), 0.0, False, 100.0),
        ("always", (0.0,), 100.0, True, 100.0),
        ("always", (0.0, 100.0), 130.0, False, 200.0),
        ("always", (0.0, 100.0), 240.0, True, 200.0),
        ("always", (0.0, 240.0), 240.0, False, 340.0),
        ("end", (), 0.0, False, 240.0),
        ("end", (), 130.0, False, 240.0),  # As a killed course goes on.
        ("end", (), 240.0, True, 240.0),
        ("end", (240.0,), 240.0, False, 240.0),
        ("end", (120.0,), 120.0, False, 240.0),  # Over before, and given more minutes.
    ],
)
def test_a_course_is_judged_before_meanwhile_and_after_or_after_alone(
    judge: Any, judged: tuple[float, ...], seconds: float, due: bool, next_s: float
) -> None:
    options = CourseOptions(Path(), Path(), seconds=240, judge_every_s=100, judge=judge)
    assert is_judgement_due(options, judged_at(*judged), seconds) == due
    assert next_judgement_s(options, judged_at(*judged)) == next_s


@pytest.mark.parametrize("judge", ["always", "end"])
def test_a_start_is_judged_once(judge: Any) -> None:
    options = CourseOptions(Path(), Path(), seconds=0, judge=judge)
    assert is_judgement_due(options, (), 0.0)
    assert not is_judgement_due(options, judged_at(0.0), 0.0)


def test_rehearsal_less_often_than_never_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["learn", "state", "--lessons", "a.pack", "--probes", "b.pack", "--rehearse-every", "-1"])
    assert "expected 0 or more, not -1" in capsys.readouterr().err


@pytest.mark.parametrize("group", ["1", "257"])
def test_a_group_that_no_job_can_hold_or_teach_is_refused(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["learn", "state", "--lessons", "a.pack", "--probes", "b.pack", "--group", group]
    with pytest.raises(SystemExit):
        main(words)
    assert f"expected 2 to 256 samples, not {group}" in capsys.readouterr().err


def make_group(**changes: Any) -> Group:
    fields: dict[str, Any] = {
        "lesson": "m0",
        "rewards": (1.2, -0.4, 0.2, -1.0),
        "passed": (True, False, True, False),
        "log_speeds": (1.0, 0.0, 0.02, 0.0),
        "num_different": 2,
        "versions": (0,),
    }
    return Group(**{**fields, **changes})


def test_a_judgement_counts_each_workload_alike_and_failures_as_the_librarys_speed() -> None:
    slow = make_group(rewards=(-0.1,), passed=(True,), log_speeds=(-1.0,), num_different=1)
    told = figures([make_group(), slow, make_group(rewards=())])
    assert (told.workloads, told.samples) == (2, 5)
    assert told.pass_at_1 == pytest.approx((0.5 + 1) / 2)
    assert told.log_speed == pytest.approx((1.02 / 4 - 1) / 2)
    assert told.best_of_n == pytest.approx((1 + 0) / 2), "who finds nothing faster uses the library"
    with pytest.raises(ValueError, match="nothing was judged"):
        figures([])


def make_ledger(path: Path) -> Ledger:
    ledger = Ledger(path)
    update = {"mean_reward": 0.1, "records": 32, "oldest_used": 1.0, "seconds": 3.0, "skipped": {"stale": 4}}
    judgement = {"groups": [], "figures": {"pass_at_1": 0.5, "log_speed": 0.1, "workloads": 2}}
    ledger.write("judged", 0.0, version=0, **judgement)
    ledger.write("updated", 10.0, step=1, **update)
    ledger.write("posted", 1.0, job="a", lesson="m0")
    ledger.write("graded", 5.0, job="a", lesson="m0", rewards=[0.1])
    ledger.write("vetted", 10.0, version=1, decision="accepted", logprob_gap=0.01, decided_at="now")
    ledger.write("taken", 11.0, version=1, canary_s=4.0, waited_s=2.0, paused_s=0.1, first_token_s=0.3)
    ledger.write("updated", 20.0, step=2, **update | {"mean_reward": 0.4, "oldest_used": 2.0, "skipped": {}})
    ledger.write("vetted", 20.0, version=2, decision="refused")
    ledger.write(
        "learned",
        20.0,
        seconds=20.0,
        generator_held=0.25,
        evaluators_busy=0.5,
        evaluators_stages={"open": 0.3},
        gpus_busy=[0.9],
    )
    ledger.write("learned", 20.0, seconds=0.0, generator_held=0, evaluators_busy=0, gpus_busy=[])
    ledger.write("judged", 20.0, version=1, **judgement)
    return ledger


def test_curves_are_what_the_ledger_tells(tmp_path: Path) -> None:
    told = curves.curves_of(make_ledger(tmp_path / "ledger.jsonl"), "ppo", 3)
    assert [(point.at_s, point.step, point.figures["mean_reward"]) for point in told.updates] == [
        (10.0, 1, 0.1),
        (20.0, 2, 0.4),
    ]
    assert [(point.step, point.figures["version"]) for point in told.judgements] == [(0, 0), (2, 1)]
    assert (told.used, told.skipped, told.oldest_used) == (64, {"stale": 4}, 2.0)
    assert told.used_share == pytest.approx(64 / 68)
    assert told.versions == {"accepted": 1, "refused": 1}
    waits = {"generator_waits": 0.25, "evaluators_wait": 0.5, "trainer_waits": 0.7}
    assert told.shares == {**waits, "evaluators_open": 0.3, "gpu_0_busy": 0.9}
    cost = {"canary_s": 4.0, "waited_s": 2.0, "paused_s": 0.1, "first_token_s": 0.3}
    assert told.vetted == [
        {"version": 1, "decision": "accepted", "logprob_gap": 0.01, **cost},
        {"version": 2, "decision": "refused"},
    ]
    assert told.jobs == {"posted": 1, "graded": 1, "lost": 0}
    curves.write(tmp_path, told)
    assert (tmp_path / "curves.json").is_file()
    assert len(list((tmp_path / "events").iterdir())) == 1


def test_the_share_of_looks_at_a_busy_gpu_is_told_and_nothing_without_one() -> None:
    looks = iter((1.0, 0.0, 0.5))
    use = GpuUse([lambda: next(looks), lambda: 1.0])
    assert use.shares() == []
    for _ in range(3):
        use.look()
    assert use.shares() == [0.5, 1.0]
    none = GpuUse([])
    none.look()
    assert none.shares() == []


def test_nothing_is_exported_of_a_course_that_judged_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no version was judged"):
        export(tmp_path, tmp_path / "out")


@pytest.mark.parametrize(("version", "name"), [(0, "tiny-0"), (3, "tiny-0-best-of-4-7")])
def test_what_was_learned_is_exported_under_a_name_of_its_own(tmp_path: Path, version: int, name: str) -> None:
    start, learned = write_policy(tmp_path / "start", make_policy()), make_policy(seed=1, version=version)
    state, out = tmp_path / "state", tmp_path / "out"
    (state / "policy").mkdir(parents=True)
    course = {"policy": str(start), "arm": "best-of-4", "seed": 7}
    (state / "course.json").write_text(json.dumps(course), encoding="utf-8")
    Ledger(state / "ledger.jsonl").write("judged", 60.0, version=version)
    write_published_weights(learned, state / "policy" / f"policy-{version}.safetensors")
    assert export(state, out) == version
    found, expected = load_policy(out), learned if version else load_policy(start)
    assert (found.description.name, found.description.version) == (name, 0)
    for key, weight in expected.model.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[key], weight, check_dtype=False)
    assert (out / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()


def records_of(content: bytes) -> list[bytes]:
    """Of an event file, each with its checksums seen."""
    found = []
    while content:
        (length,) = struct.unpack_from("<Q", content)
        data = content[12 : 12 + length]
        assert struct.unpack_from("<I", content, 8) == (masked_crc(content[:8]),)
        assert struct.unpack_from("<I", content, 12 + length) == (masked_crc(data),)
        found.append(data)
        content = content[16 + length :]
    return found


def test_event_files_are_tensorboards(tmp_path: Path) -> None:
    path = tmp_path / "events" / "file"
    write_events(path, [Scalar("judged/reward", 300, 2.5, 0.75)], 1000.0)
    first, second = records_of(path.read_bytes())
    assert first == b"\x09" + struct.pack("<d", 1000.0) + b"\x1a\x0dbrain.Event:2"
    value = b"\x0a\x0djudged/reward\x15" + struct.pack("<f", 0.75)
    summary = b"\x0a" + bytes([len(value)]) + value
    assert second == b"\x09" + struct.pack("<d", 1002.5) + b"\x10\xac\x02\x2a" + bytes([len(summary)]) + summary


def test_the_checksum_is_that_of_the_format() -> None:
    crc = 0xE3069283  # CRC-32C of "123456789" (RFC 3720, and every table of checksums)
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
