"""A policy learns online for so many minutes, and is judged before, meanwhile and after, or after alone.

python -m services.trainer.course learn STATE --lessons PACK --probes PACK --arm rloo --minutes 12
python -m services.trainer.course demo STATE
python -m services.trainer.course export STATE FOLDER

A course that was killed, or whose piece is over (`--piece-minutes`), goes on with the same command.
"""

import argparse
import logging
import signal
import sys
from dataclasses import replace
from pathlib import Path

from services.trainer.course import curves
from services.trainer.course.arms import ARMS, Arm, shown_as
from services.trainer.course.course import CourseOptions, run_course
from services.trainer.course.lessons import packed_lessons
from sparsesmith.errors import InvalidOption, SparsesmithError
from sparsesmith_proto.evaluation import MAX_CANDIDATES_A_JOB

DEMO_MINUTES = 4.0


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.run(options)
    except SparsesmithError as error:
        print(error.message, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _learn(options: argparse.Namespace) -> None:
    lessons, probes = packed_lessons(options.lessons, options.probes, options.rehearse_every)
    arm, seconds = ARMS[options.arm], 0.0 if options.arm == "start" else 60 * options.minutes
    course = CourseOptions(
        state=options.state,
        policy=_policy(options, arm),
        arm=options.arm,
        settings=arm.trainer,
        services=arm.services,
        family_candidates=arm.family_candidates,
        parent_every=arm.parent_every,
        seed=options.seed,
        seconds=seconds,
        piece_s=60 * options.piece_minutes,
        judge=options.judge,
        judge_every_s=60 * options.judge_every_minutes,
        group=options.group,
        batch_groups=options.batch_groups,
        max_policy_age=options.max_policy_age,
        at_once=options.at_once,
        num_evaluators=options.evaluators,
        changes=dict(_setting(each) for each in options.set),
    )
    _tell(run_course(course, lessons, probes))


def _policy(options: argparse.Namespace, arm: Arm) -> Path:
    """Where the course begins."""
    path: Path = options.policy
    return path if arm.encoder is None else shown_as(path, arm.encoder, options.state / f"shown-{arm.encoder}")


def _demo(options: argparse.Namespace) -> None:
    from services.trainer.course import toy  # Reads torch, which a course itself has no use for.

    print("making a policy that knows nine programs, four of them bad", flush=True)
    toy.make_policy(options.state)
    course = toy.course(options.state, 60 * options.minutes, 60 * options.piece_minutes)
    changes = dict(_setting(each) for each in options.set)
    _tell(run_course(replace(course, changes=changes, judge=options.judge), toy.lessons(), toy.probes()))


def _export(options: argparse.Namespace) -> None:
    from services.trainer.course.exports import export  # Likewise.

    print(f"version {export(options.state, options.folder)} is in {options.folder}")


def _tell(told: curves.Curves) -> None:
    for point in told.judgements:
        figures = point.figures
        print(
            f"{point.at_s:6.0f} s  version {figures['version']:3.0f}  pass@1 {100 * figures['pass_at_1']:5.1f} %  "
            f"reward {figures['mean_reward']:6.3f}  single {2 ** figures['log_speed']:6.3f}x  "
            f"best of n {2 ** figures['best_of_n']:6.3f}x  different {figures['different']:5.1f}"
        )
    print(
        f"{len(told.updates)} updates, versions {dict(told.versions)}, {100 * told.used_share:.0f} % of {told.used} "
        f"graded samples used, the oldest {told.oldest_used:.0f} versions behind; shares {dict(told.shares)}"
    )


def _group(text: str) -> int:
    """What a job may hold. A group of one says nothing of what is better than what."""
    number = int(text)
    if not 2 <= number <= MAX_CANDIDATES_A_JOB:
        raise argparse.ArgumentTypeError(f"expected 2 to {MAX_CANDIDATES_A_JOB} samples, not {number}")
    return number


def _every(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected 0 or more, not {number}")
    return number


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("SPARSESMITH_"):
        raise InvalidOption(f"--set {text}: expected SPARSESMITH_NAME=VALUE", field="set", value=text)
    return name, value


def _interrupt(signal_number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m services.trainer.course",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    learn = commands.add_parser("learn", help="a policy on packs of matrices")
    _add_common(learn, minutes=12.0)
    learn.add_argument("--lessons", type=Path, required=True, help="pack of matrices to learn from")
    learn.add_argument("--probes", type=Path, required=True, help="pack of matrices to be judged by")
    learn.add_argument(
        "--rehearse-every",
        type=_every,
        default=3,
        metavar="N",
        help="each n-th matrix also with the kinds of workload that nothing is judged by; 0: none",
    )
    learn.add_argument("--policy", type=Path, default=Path("models/sparsesmith-28m"))
    learn.add_argument("--arm", choices=list(ARMS), default="rloo")
    learn.add_argument("--seed", type=int, default=0)
    learn.add_argument("--judge-every-minutes", type=float, default=5.0)
    learn.add_argument("--group", type=_group, default=16, help="samples of a lesson")
    learn.add_argument("--batch-groups", type=int, default=32, help="groups, one a lesson, an update")
    learn.add_argument("--max-policy-age", type=int, default=2)
    learn.add_argument("--at-once", type=int, default=16, help="workloads sampled or graded at a time")
    learn.add_argument(
        "--evaluators",
        type=int,
        default=1,
        help="more than GPUs: with SPARSESMITH_EVALUATOR_SHARERS they take turns",
    )
    learn.set_defaults(run=_learn)
    demo = commands.add_parser("demo", help="at toy size on a CPU")
    _add_common(demo, minutes=DEMO_MINUTES)
    demo.set_defaults(run=_demo)
    exported = commands.add_parser("export", help="the version in service as a policy folder")
    exported.add_argument("state", type=Path)
    exported.add_argument("folder", type=Path)
    exported.set_defaults(run=_export)
    return parser.parse_args(arguments)


def _add_common(parser: argparse.ArgumentParser, minutes: float) -> None:
    parser.add_argument("state", type=Path, help="folder of the course")
    parser.add_argument("--minutes", type=float, default=minutes, help="of learning, all pieces together")
    parser.add_argument("--piece-minutes", type=float, default=1e9, help="after which this piece begins nothing more")
    parser.add_argument(
        "--judge",
        choices=("always", "end"),
        default="always",
        help="before, meanwhile and after; or only when the minutes are over",
    )
    parser.add_argument("--set", action="append", default=[], metavar="SPARSESMITH_NAME=VALUE")


if __name__ == "__main__":
    sys.exit(main())
