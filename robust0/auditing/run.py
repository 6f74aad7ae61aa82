"""The audit itself: every attack on every image it is to meet, durable as it goes, resumable."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from robust0.attacks.calls import Pulse
from robust0.attacks.engine import Outcome, Waiting, search
from robust0.attacks.judge import judge
from robust0.auditing import finish, proof
from robust0.auditing.again import UNSTEADY, Recall
from robust0.auditing.agreement import sound
from robust0.auditing.attempts import Attempts
from robust0.auditing.deadline import Deadline, timed_out
from robust0.auditing.facts import check_identity, read_checks, write_checks
from robust0.auditing.flags import CONTROL_IMAGES, check_behaviour
from robust0.auditing.guards import enough_memory, searching
from robust0.auditing.heartbeat import LifeSigns, beating
from robust0.auditing.interval import accuracy
from robust0.auditing.job import AuditJob
from robust0.auditing.plan import Book, Stage, evenly
from robust0.auditing.progress import PassMeter, Tally, hit_found
from robust0.auditing.store import Store
from robust0.auditing.summary import summarise_audit
from robust0.auditing.verdicts import clean_verdicts, verdicts_of
from robust0.distributed import World
from robust0.events import (
    AttackDone,
    AuditEvent,
    AuditFinished,
    AuditProgress,
    AuditStarted,
    CleanDone,
    FlagRaised,
    Standing,
)
from robust0.interrupt import Interrupt
from robust0.models.metadata import versions
from robust0.records import CLEAN, Flag, Report, configured, round_of
from robust0.runs.folder import writing

FLUSH_SECONDS = 30.0  # between two, at most, what a kill can lose; each costs some model calls
FLUSH_OUTCOMES = 64
DRAW_SECONDS = 0.25  # between two progress events
POLL_SECONDS = 0.2  # while waiting for other processes


def run_audit(job: AuditJob, world: World, *, resume: bool) -> Iterator[AuditEvent]:
    """Audit to the end, or to the first signal; the run directory always holds a way to go on."""
    if resume and job.folder is not None:
        check_identity(job.folder, job.identity)
    with (
        Interrupt() as interrupt,
        searching(job.network, job.threads),
        enough_memory(job.facts.settings.batch_size),
        beating(job.folder if world.size > 1 else None, world.rank),
    ):
        yield from _Run(job, world, interrupt).events()


class _Run:
    """The mutable side of an audit: what is known, what is not yet durable, what time it is."""

    def __init__(self, job: AuditJob, world: World, interrupt: Interrupt) -> None:
        self.job, self.world, self.interrupt = job, world, interrupt
        self.oracle, self.plan = job.oracle, job.plan
        self.ids: list[int] = job.data.ids.tolist()
        self.position = {image: place for place, image in enumerate(self.ids)}
        self.mine = self.ids[world.rank :: world.size]
        settings = job.facts.settings
        self.store = Store(job.folder, world.rank, settings.unit, job.data.image_shape)
        self.book, self.tally, self.meter = Book(), Tally(len(self.ids)), PassMeter(job.passes)
        self.buffer: list[Outcome] = []
        self.begun = self.flushed = self.drawn = time.monotonic()
        self.deadline = Deadline(self.plan, settings.max_minutes)
        self.flags: tuple[Flag, ...] = ()
        self.recall, self.signs = Recall(job.oracle), LifeSigns(job.folder)

    # -- the run ---------------------------------------------------------------------------------

    def events(self) -> Iterator[AuditEvent]:
        job, settings = self.job, self.job.facts.settings
        path = str(job.folder) if job.folder else None
        self.tally.restore(self.book.add(sound(self.store.open(), job.folder)))
        self.deadline.start(job.folder)
        yield AuditStarted(
            job.title, len(self.ids), settings.unit, self.plan.budgets, self.plan.attacks,
            self.plan.cascade, len(self.book.verdicts), path,
        )  # fmt: skip
        yield from self._clean()
        yield from self._checks()
        for stage in self.plan.stages():
            self._hear(partial(self.plan.ready, stage, book=self.book))
            for flag in self.deadline.reached(stage, self.ids, self.book):
                yield self._raised(flag)
            if self.plan.includes(stage, self.book):
                yield from self._stage(stage)
        yield from self._rest()
        self.store.spent("", self._since(self.begun))
        if self.world.leads:
            self.store.close()
        if self._stopping():
            yield AuditFinished(None, path, self.interrupt.signal)
        elif self.world.leads:
            yield from self._finish()

    def _stopping(self) -> bool:
        return self.interrupt.signal is not None

    def _fetch(self, positions: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        data = self.job.data
        index = torch.tensor(positions, device=data.device)
        return data.images(index), data.labels[index], data.ids[index]

    def _pixels(self, images: Sequence[int]) -> tuple[Tensor, Tensor]:
        return self._fetch([self.position[image] for image in images])[:2]

    def _clean(self) -> Iterator[AuditEvent]:
        """Which images the model gets right; only those are attacked."""
        due = [image for image in self.mine if not self.book.knows((0, CLEAN), image)]
        threat = self.job.threat(self.plan.budgets[0])
        for start in range(0, len(due), self.oracle.batch_size):
            if self._stopping():
                return
            part = due[start : start + self.oracle.batch_size]
            images, labels, ids = self._fetch([self.position[image] for image in part])
            verdict = judge(self.oracle, threat, images, images, labels)
            found = clean_verdicts(verdict, ids.tolist(), labels.tolist(), threat.unit)
            self.store.flush(found, {})
            self.book.add(found)
        if self.world.leads:
            self._hear(lambda ids: all(self.book.knows((0, CLEAN), image) for image in ids))
            if not self._stopping():
                yield CleanDone(accuracy(len(self.book.correct), len(self.ids)))

    def _checks(self) -> Iterator[AuditEvent]:
        """Raise the flags that the model's behaviour earns, once per run."""
        if not self.world.leads or self._stopping():
            return
        folder = self.job.folder
        known = read_checks(folder) if folder is not None else None
        self.recall.open(self._first()[0])
        if known is None:
            correct = [self.position[image] for image in self.ids if image in self.book.correct]
            # Spread: the first ones may all be of one class.
            some = evenly(range(len(self.ids)), self.oracle.batch_size)
            right = evenly(correct, CONTROL_IMAGES)
            threat, seed = self.job.threat(self.plan.budgets[0]), self.job.seed
            known = tuple(check_behaviour(self.oracle, self._fetch, some, right, threat, seed))
            self._keep_flags(known)
        self.flags = known
        self.book.timed_out = timed_out(known)
        yield from (FlagRaised(flag) for flag in known)

    def _raised(self, flag: Flag) -> FlagRaised:
        self._keep_flags((*self.flags, flag))
        return FlagRaised(flag)

    def _keep_flags(self, flags: tuple[Flag, ...]) -> None:
        self.flags = flags
        if self.job.folder is not None:
            with writing(self.job.folder):
                write_checks(self.job.folder, flags)
            self.store.bind("checks", proof.flags_digest(flags))

    def _first(self) -> tuple[Tensor, Tensor, Tensor]:
        """The images of one model call."""
        return self._fetch(evenly(range(len(self.ids)), self.oracle.batch_size))

    # -- one attack at one budget ----------------------------------------------------------------

    def _stage(self, stage: Stage) -> Iterator[AuditEvent]:
        if self._stopping():
            return
        budget, name = stage
        threat, attack = self.job.threat(budget), self.job.attack(name)
        due = self.plan.due(stage, self.mine, self.book)
        wanted = len(self.plan.wanted(stage, self.mine, self.book))
        ahead = self.plan.ahead(stage, self.mine, self.book, self.meter.passes)
        self.meter.open(stage, wanted, wanted - len(due), ahead)
        waiting = Waiting([self.position[image] for image in due], self._fetch)
        begun = self.flushed = time.monotonic()
        for event in search(attack, name, self.oracle, waiting, threat, self.job.seed):
            if isinstance(event, Pulse):
                self.meter.pulse(event)
            else:
                self.meter.finish(event)
                self.tally.count(stage, event)
                self.buffer.append(event)
            if len(self.buffer) >= FLUSH_OUTCOMES or self._since(self.flushed) > FLUSH_SECONDS:
                self._flush(stage)
            if self._stopping():
                break
            if self.world.leads and self._since(self.drawn) > DRAW_SECONDS:
                yield self._progress(stage)
        self._flush(stage)
        if self.world.leads and not self._stopping():
            self.meter.close()
            yield self._progress(stage)
            standing = self._standing(stage, 1.0)
            if standing.images:
                survivors = self.tally.survivors(budget, len(self.book.correct))
                unit = self.job.facts.settings.unit
                yield AttackDone(budget, unit, standing, survivors, self._since(begun))

    def _flush(self, stage: Stage) -> None:
        """Prune and make durable what has been found since the last time."""
        self.store.spent(configured(stage[1]), self._since(self.flushed))
        outcomes, self.buffer = self.buffer, []
        revision, threat = self.job.attack(stage[1]).revision, self.job.threat(stage[0])
        known = (self.oracle, threat, stage, revision)
        verdicts, attempts = verdicts_of(*known, outcomes, self._pixels)
        held = Attempts(threat.unit, self.job.data.image_shape, attempts)
        self.recall.hear(verdicts, held, self._pixels)
        self.store.flush(verdicts, attempts)
        self.book.add(verdicts)
        self.tally.learn(verdicts)
        if self.world.leads:
            self.tally.restore(self.book.add(self.store.others()))
        self.flushed = time.monotonic()

    # -- what the user sees ----------------------------------------------------------------------

    def _progress(self, stage: Stage) -> AuditProgress:
        self.drawn = time.monotonic()
        budget, number = stage[0], round_of(stage[1])
        place = self.plan.attacks.index(configured(stage[1]))
        shares = [1.0] * place + [self.meter.stage_share()]
        shares += [0.0] * (len(self.plan.attacks) - len(shares))
        standings = tuple(
            self._standing((budget, self.plan.stage_name(attack, number)), share)
            for attack, share in zip(self.plan.attacks, shares, strict=True)
        )
        found = hit_found(self.tally.latest, self.job, self.position)
        correct = len(self.book.correct)
        return self.tally.progress(budget, self.meter.share(), standings, correct, found)

    def _standing(self, stage: Stage, share: float) -> Standing:
        wanted = len(self.plan.wanted(stage, self.ids, self.book)) if share else 0
        correct, cascade = len(self.book.correct), self.plan.cascade
        return self.tally.standing(stage, wanted, share, correct=correct, cascade=cascade)

    @staticmethod
    def _since(moment: float) -> float:
        return time.monotonic() - moment

    # -- other processes, and the end ------------------------------------------------------------

    def _waits(self, ready: Callable[[Sequence[int]], bool]) -> bool:
        """Whether images of other processes are still to come; none comes from a dead one."""
        late = [r for r in range(self.world.size) if not ready(self.ids[r :: self.world.size])]
        self.signs.look(late)
        return bool(late) and not self._stopping()

    def _hear(self, ready: Callable[[Sequence[int]], bool]) -> None:
        """Wait for what other processes must have found."""
        while self._waits(ready):
            time.sleep(POLL_SECONDS)
            self.tally.restore(self.book.add(self.store.others()))

    def _rest(self) -> Iterator[AuditEvent]:
        """Wait for the images of other processes; their verdicts are all that is exchanged."""
        if not self.world.leads:
            return
        last = list(self.plan.stages())[-1]
        while self._waits(lambda ids: self.plan.complete(ids, self.book)):
            time.sleep(POLL_SECONDS)
            self.tally.restore(self.book.add(self.store.others()))
            if self._since(self.drawn) > 1:
                yield self._progress(last)

    def _ask_again(self) -> Iterator[AuditEvent]:
        if not any(flag.name in UNSTEADY for flag in self.flags):
            images, _, ids = self._first()
            clean = [self.book.verdicts[0, CLEAN, image] for image in ids.tolist()]
            for flag in self.recall.flags(clean, images):
                yield self._raised(flag)

    def _finish(self) -> Iterator[AuditEvent]:
        job = self.job
        yield from self._ask_again()
        verdicts = finish.ordered(job.facts, self.ids, self.book)
        results = summarise_audit(job.facts, verdicts, self.flags)
        for flag in results.flags[len(self.flags) :]:
            yield FlagRaised(flag)
        if job.folder is None:
            spent = (self.store.seconds.pop("", 0.0), self.store.seconds)
            info = finish.run_info(finish.now(), (), spent, self.world.size, versions())
            yield AuditFinished(Report(results=results, run=info), None, None)
            return
        kept = finish.kept_images(job.facts, self.ids, self.book, job.data.image_shape)
        images, labels = self._pixels(kept)
        pixels = (images * 255).round().byte()
        clean = finish.KeptImages(kept, labels.tolist(), pixels.cpu().numpy())
        report = finish.conclude(job.folder, verdicts, results, clean, self.world.size, versions())
        job.write_reports(job.folder)
        yield AuditFinished(report, str(job.folder), None)
