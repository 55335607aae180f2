"""Applies events and answers their senders' questions: the standing before and after."""

from __future__ import annotations

from rankd.intake.results import Question
from rankd.ledger.event import EventRun
from rankd.projection.applier import Applier
from rankd.projection.port import RankedStanding, RankReads


class AnsweringApplier:
    """Applies events and reads the rank store before and after; only the committing thread uses it."""

    def __init__(self, applier: Applier, store: RankReads) -> None:
        """`store` is the one that the applier writes to."""
        self._applier = applier
        self._store = store

    def apply(self, event_run: EventRun, questions: list[Question]) -> None:
        """Apply an event run and answer the questions about it."""
        if len(questions) == 1 and len(event_run.score) == 1:
            change = self._applier.apply_single(event_run, questions[0].ranking)
            if change is not None:
                questions[0].change = change
                return
        # By identity: acceptances share instances, and equal ones are only read by two calls.
        groups: dict[tuple[int, int], list[Question]] = {}
        for question in questions:
            groups.setdefault((id(question.instance), id(question.ranking)), []).append(question)
        before = [self._standings(group) for group in groups.values()]
        self._applier.apply(event_run)
        for group, old in zip(groups.values(), before, strict=True):
            for question, standing, new in zip(group, old, self._standings(group), strict=True):
                question.answer(standing, new)

    def _standings(self, group: list[Question]) -> list[RankedStanding | None]:
        """Return the present standings that questions about one instance ask for."""
        first = group[0]
        return self._store.ranks(first.instance, [question.subject or "" for question in group], first.ranking)
