"""Posts lessons as fast as the trainer learns from them, and writes down what came of each."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from services.trainer.course.admission import Admission
from services.trainer.course.curriculum import Curriculum
from services.trainer.course.judging import FRESH, grouped
from services.trainer.course.ledger import Ledger
from services.trainer.course.lessons import Lesson
from sparsesmith.client import Client
from sparsesmith.errors import SparsesmithError
from sparsesmith_proto.api import FromPolicy, TuningOptions

PAUSE_S = 0.1
"""Between two looks at whether there is room."""
FAILURE_PAUSE_S = 1.0


@dataclass(frozen=True)
class PostingOptions:
    """How lessons are posted."""

    group: int
    """Samples of one lesson: one prompt's."""
    at_once: int
    """Lessons that are sampled or graded at a time."""
    job_s: float
    """Longest time of one."""
    family_candidates: int = 0
    """Of each lesson, once, before its first samples."""
    parent_every: int = 0
    """Each so many-th job asks for changes of a program that was measured; 0: none."""

    def has_parent(self, number: int) -> bool:
        """Of the `number`-th job, counted from 0."""
        return self.parent_every > 0 and number % self.parent_every == self.parent_every - 1


class Poster:
    """Works in threads from `start` to `stop`; jobs that an earlier piece of the course left come first."""

    def __init__(
        self,
        url: str,
        curriculum: Curriculum,
        admission: Admission,
        ledger: Ledger,
        options: PostingOptions,
        clock: Callable[[], float],
    ) -> None:
        """`clock`: seconds of learning."""
        self._url = url
        self._curriculum = curriculum
        self._admission = admission
        self._ledger = ledger
        self._options = options
        self._clock = clock
        self._lessons = {lesson.name: lesson for lesson in curriculum.lessons}
        self._left = [(job, str(event["lesson"])) for job, event in ledger.open_jobs().items()]
        self._num_posted = len(ledger.events("posted"))
        self._graded = [(str(each["lesson"]), list(each["rewards"])) for each in ledger.events("graded")]
        self._searched = {str(each["lesson"]) for each in ledger.events("searched")}
        """Lessons that the families were asked for."""
        self._busy: list[str] = [name for _, name in self._left]
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.held_s = 0.0
        """Seconds, over all threads, in which there was no room: the generator waited for the trainer."""

    def start(self) -> None:
        self._stopping.clear()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._options.at_once)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begins nothing more, and waits for what was begun."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        with Client(self._url, FRESH) as client:
            while not self._stopping.is_set():
                try:
                    self._one(client)
                except SparsesmithError:  # Of the service as a whole: it is started again, and the course goes on.
                    self._stopping.wait(FAILURE_PAUSE_S)

    def _one(self, client: Client) -> None:
        taken = self._take()
        if taken is None:
            began = time.monotonic()
            self._stopping.wait(PAUSE_S)
            with self._lock:
                self.held_s += time.monotonic() - began
            return
        job, lesson, number = taken
        try:
            if job is None:
                self._search_families(client, lesson)
                job = self._submitted(client, lesson, number)
            self._finish(client, job, lesson)
        except SparsesmithError as error:
            if job is not None:
                self._ledger.write("failed", self._clock(), job=job, lesson=lesson.name, why=error.message)
            raise
        finally:
            with self._lock:
                self._busy.remove(lesson.name)

    def _take(self) -> tuple[str | None, Lesson, int] | None:
        """The next lesson and its number, with its job where it was posted before; None: there is no room."""
        with self._lock:
            if self._left:
                job, name = self._left.pop(0)
                return job, self._lessons[name], self._num_posted
            if self._admission.room(len(self._busy) * self._options.group) <= 0:
                return None
            lesson = self._curriculum.next(self._num_posted, self._graded, self._busy)
            self._num_posted += 1
            self._busy.append(lesson.name)
            return None, lesson, self._num_posted - 1

    def _search_families(self, client: Client, lesson: Lesson) -> None:
        """What others find is told to the trainer by the evaluators, where they are set to."""
        options = self._options
        if not options.family_candidates or lesson.name in self._searched:
            return
        job = self._post(client, lesson, lesson.options(options.family_candidates, options.job_s, "families"))
        report = client.wait(job)
        self._searched.add(lesson.name)
        self._ledger.write(
            "searched", self._clock(), job=job, lesson=lesson.name, candidates=report.search.num_candidates
        )

    def _post(self, client: Client, lesson: Lesson, options: TuningOptions) -> str:
        return client.submit(f"{lesson.name.split(':')[0]}.npz", lesson.file(), options).job_id

    def _submitted(self, client: Client, lesson: Lesson, number: int) -> str:
        options = self._options
        asked = lesson.changes if options.has_parent(number) else lesson.options
        job = self._post(client, lesson, asked(options.group, options.job_s))
        self._ledger.write("posted", self._clock(), job=job, lesson=lesson.name)
        return job

    def _finish(self, client: Client, job: str, lesson: Lesson) -> None:
        report = client.wait(job)
        samples = [each for each in client.candidates(job) if isinstance(each.origin, FromPolicy)]
        group = grouped(lesson, report, samples)
        self._ledger.write("graded", self._clock(), job=job, **asdict(group))
        with self._lock:
            self._graded.append((lesson.name, list(group.rewards)))
