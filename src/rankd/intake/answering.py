"""Events are applied, and their senders' questions answered: where somebody stands before and after."""

from __future__ import annotations

from rankd.domain.instance import InstanceKey
from rankd.domain.order import Ranking
from rankd.intake.results import Question
from rankd.ledger.event import Stretch
from rankd.projection.applier import Applier
from rankd.projection.port import RankReads, Standing


class AnsweringApplier:
    """Applies what the ledger holds, and reads the rank store before and after; used by the committing thread alone."""

    def __init__(self, applier: Applier, store: RankReads) -> None:
        """`store` is what the applier writes to."""
        self._applier = applier
        self._store = store

    def apply(self, stretch: Stretch, questions: list[Question]) -> None:
        """Apply a stretch and answer the questions about it."""
        if len(questions) == 1 and len(stretch) == 1:
            change = self._applier.apply_single(stretch, questions[0].ranking)
            if change is not None:
                questions[0].change = change
                return
        before = self._stand(questions)
        self._applier.apply(stretch)
        for question, stood, stands in zip(questions, before, self._stand(questions), strict=True):
            question.answer(stood, stands)

    def _stand(self, questions: list[Question]) -> list[Standing | None]:
        together: dict[tuple[InstanceKey, Ranking], list[int]] = {}
        for index, question in enumerate(questions):
            together.setdefault((question.instance, question.ranking), []).append(index)
        standings: list[Standing | None] = [None] * len(questions)
        for (instance, ranking), indices in together.items():
            subjects = [questions[index].subject or "" for index in indices]
            for index, standing in zip(indices, self._store.ranks(instance, subjects, ranking), strict=True):
                standings[index] = standing
        return standings
