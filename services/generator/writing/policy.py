"""The service's policy as a writer: shown a program with its report, by prompt embeddings, as it was trained to improve
and to repair.

Samples carry their whole prompt, the parent in it, so that a trainer writes it again and learns from them. They are
graded as they come, copies of the parent among them: samples of one parent are each other's baseline.
"""

import logging
import time
from dataclasses import dataclass

from services.generator.policy.engine import InvalidPrompt
from services.generator.policy.sampling import Descent, PolicySampler, SampleGroup
from services.generator.task import TuningTask
from services.generator.writing.account import WritingAccount
from services.generator.writing.texts import program_shown_of
from services.generator.writing.writer import Ask, Attempt, Beginning, NothingNew
from sparsesmith.errors import Unavailable
from sparsesmith.prompts.refinement import refinement_parent
from sparsesmith_proto.api import SourceName
from sparsesmith_proto.kernel import Candidate, Sampled, Workload

log = logging.getLogger(__name__)

POLICY = "policy"
"""As requests name the writer."""

ENGINE_PATIENCE_S = 120.0
"""For a sample, behind others'; an engine that still loads is not waited for longer."""


@dataclass(frozen=True)
class Editor:
    """A policy that may be asked to change programs. Shared by all searches of a service."""

    sampler: PolicySampler
    model: str
    """As people call it."""
    at_once: int
    """Samples of one search that may be under way."""

    def writes(self, workload: Workload) -> bool:
        return self.sampler.writes(workload)


class PolicyWriter:
    """One chain from the first programs; a failure has one child, a repair. See Writer."""

    name: SourceName = "edits"
    beginnings: tuple[Beginning, ...] = ("programs",)
    repairs = True
    patience_s = ENGINE_PATIENCE_S

    def __init__(self, task: TuningTask, editor: Editor, children: int) -> None:
        """`children`: of each program that passed."""
        self._task = task
        self._editor = editor
        self._children = children
        self._groups: dict[str, SampleGroup] = {}
        """By parent."""
        self._seen: set[str] = set()
        self._skipped: set[str] = set()
        """Parents that are too long."""
        self._num_sent = 0
        self.at_once = editor.at_once
        self.account = WritingAccount(editor.model)

    def takes(self, attempt: Attempt) -> bool:
        """Any program, once."""
        text = attempt.candidate.program
        is_new = text not in self._seen
        self._seen.add(text)
        return is_new

    async def write(self, ask: Ask) -> Candidate:
        """See Writer. Of a parent that is too long to be shown nothing is made; the log has both numbers."""
        assert ask.parent is not None, "the policy is shown a program"
        sampler = self._editor.sampler
        if sampler.is_broken:
            raise Unavailable("the engine could not be loaded", field="refine.writer", value=POLICY)
        began, name = time.monotonic(), f"e{self._num_sent}"
        self._num_sent += 1
        try:
            group = self._group(ask.parent)
            candidate = await group.sampled(name)
        except InvalidPrompt as error:
            self._skip(ask.parent, str(error))
            raise NothingNew(str(error)) from error
        assert isinstance(candidate.origin, Sampled)
        self.account.answered(group.num_prompt_tokens, len(candidate.origin.token_ids), time.monotonic() - began)
        return candidate

    def _skip(self, attempt: Attempt, reason: str) -> None:
        """Accounted once, however many children were asked for."""
        name = attempt.candidate.candidate_id
        if name not in self._skipped:
            self._skipped.add(name)
            self.account.failed("too long")
            log.info("%s is not shown to the policy: %s", name, reason)

    def _group(self, attempt: Attempt) -> SampleGroup:
        """All children of a program are samples of one prompt."""
        name = attempt.candidate.candidate_id
        if name not in self._groups:
            num_sms = attempt.report.device.num_sms
            program = program_shown_of(attempt.candidate, attempt.outcome, self._task.problem, num_sms)
            shown = refinement_parent(program, attempt.outcome, attempt.baseline_us)
            size = 1 if attempt.median_us is None else self._children
            descent = Descent(name, shown, attempt.generation + 1)
            self._groups[name] = self._editor.sampler.group(self._task, f"e{len(self._groups)}", size, descent)
        return self._groups[name]
