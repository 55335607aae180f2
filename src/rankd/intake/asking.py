"""Events are applied, and what their senders ask is answered: where somebody stands before and after."""

from __future__ import annotations

from collections.abc import Callable

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.intake.accept import Acceptance
from rankd.intake.results import NOWHERE, Question, question_about
from rankd.ledger.event import Single, Stretch
from rankd.projection.applier import Applier
from rankd.projection.port import Change, Standing


class Asking:
    """Applies what is in the ledger, asking the rank store on the way; used by the committing thread alone."""

    def __init__(self, applier: Applier, apply: Callable[[Stretch], None]) -> None:
        """`apply` is called for stretches: some of them change more than ranks."""
        self._applier = applier
        self._apply = apply

    def apply(self, stretch: Stretch, questions: list[Question]) -> None:
        """Apply a stretch and answer what is asked about it."""
        if len(questions) == 1 and len(stretch) == 1 and stretch.detail is None:
            event, context = Single.of(stretch), self._applier.context_of(stretch.context)
            done = self._applier.apply_single(event, context, questions[0].ranking)
            if done is not None:
                questions[0].change = done[1]
                return
        before = self._stand(questions)
        self._apply(stretch)
        for question, stood, stands in zip(questions, before, self._stand(questions), strict=True):
            question.answer(stood, stands)

    def apply_single(self, event: Single, acceptance: Acceptance) -> tuple[str | None, Change]:
        """Apply one score, and say what it did in which window: the one that its answer speaks of."""
        board, context = acceptance.board, acceptance.context
        done = self._applier.apply_single(event, context, board.ranking)
        if done is not None:
            return done[0].window, done[1]
        question = question_about(board, context.boards[board.id].reading(event.at), event.player_id, {})
        self.apply(event.stretch(), [] if question is None or question.subject is None else [question])
        return (None, NOWHERE) if question is None else (question.instance.window, question.change)

    def _stand(self, questions: list[Question]) -> list[Standing | None]:
        together: dict[tuple[InstanceKey, Ranking], list[int]] = {}
        for index, question in enumerate(questions):
            together.setdefault((question.instance, question.ranking), []).append(index)
        standings: list[Standing | None] = [None] * len(questions)
        for (instance, ranking), indices in together.items():
            subjects = [questions[index].subject or "" for index in indices]
            for index, standing in zip(indices, self._applier.store.ranks(instance, subjects, ranking), strict=True):
                standings[index] = standing
        return standings
