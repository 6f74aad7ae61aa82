"""From the options of ``robust0 gate`` to a decision: reads runs and baselines, wires a replay."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from robust0.auditing.rundata import RunData, read_run
from robust0.certifying.facts import is_certificate
from robust0.commands.audit_recipe import require_said
from robust0.commands.gate_certified import judge_certificate, write_certified
from robust0.decision import Check, Decision, Replay
from robust0.errors import EvaluationError, RecipeError, RunError
from robust0.events import Transfer
from robust0.gate import baseline as baselines
from robust0.gate.baseline import Baseline
from robust0.gate.certified import CertificateBaseline
from robust0.gate.decide import (
    Policy,
    decide,
    default_metrics,
    drop_check,
    floor_checks,
    judge_replay,
    require_comparable,
    require_reliable,
)
from robust0.gate.differing import loose_differences, search_differences
from robust0.gate.metrics import parse_floor, parse_metric, percentage
from robust0.records import Report
from robust0.runs.folder import run_folder
from robust0.wording import identity_of, tidy

MAX_DROP = 1.0
Progress = Callable[[Transfer], None]


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What the command line said; None and empty mean that it did not."""

    run: Path | None = None
    baseline: Path | None = None
    write_baseline: Path | None = None
    max_drop: float | None = None
    policy: Policy | None = None
    metrics: tuple[str, ...] = ()
    floors: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()  # fatal flags accepted knowingly
    replay: bool = False
    fail_on_replay: bool = False
    model: str | None = None
    factory: str | None = None
    device: str = "auto"
    data_dir: Path | None = None

    @property
    def allowed(self) -> Fraction:
        """The largest drop in points."""
        value = MAX_DROP if self.max_drop is None else self.max_drop
        return percentage(repr(value), "--max-drop", "give points of accuracy, e.g. --max-drop 1")


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """A decision, the report it is about, and what should be said beside it."""

    decision: Decision
    report: Report | None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def evaluate(options: GateOptions, progress: Progress) -> GateOutcome:
    """Decide; everything that cannot be compared or read is refused, never passed."""
    _check(options)
    allowed, floors = options.allowed, [parse_floor(text) for text in options.floors]
    if options.run is not None and is_certificate(run_folder(options.run)):
        if options.replay or options.allow:
            raise RecipeError(
                "a certificate has no attempts to replay and no flags to allow",
                "leave out --replay and --allow",
            )
        decision = judge_certificate(
            run_folder(options.run), options.baseline, [parse_metric(m) for m in options.metrics],
            floors, allowed, options.policy or "strict",
        )  # fmt: skip
        return GateOutcome(decision, None)
    before = None if options.baseline is None else open_baseline(options.baseline)
    if options.run is None:
        return _replay_only(options, _there(before), allowed, progress)
    run = read_run(run_folder(options.run))
    _refuse_empty(run)
    _refuse_unsaid(run)
    refuse_violations(run)
    after = baselines.of_run(run)
    require_reliable(after.flags, options.allow, "this run")
    if before is not None:
        require_reliable(before.flags, options.allow, "the baseline's run")
    results, checks = run.report.results, list[Check]()
    notes: tuple[str, ...] = ()
    caveats: list[str] = []
    if before is not None:
        require_comparable(before, after)
        caveats = search_differences(before, after)
        notes = tuple(f"differs from the baseline: {d}" for d in loose_differences(before, after))
        given = tuple(parse_metric(text) for text in options.metrics)
        metrics = given or default_metrics(results)
        policy = options.policy or "strict"
        checks += [drop_check(before, after, metric, allowed, policy) for metric in metrics]
    checks += floor_checks(results, floors)
    replay = None
    if options.replay:
        replay = _replayed(options, _there(before), run, allowed, progress)
    doubts = [f"{flag.name}: {flag.message}" for flag in results.flags if flag.fatal]
    decision = decide(results, checks, replay, caveats)
    warnings = (*(tidy(f"unreliable: {doubt}", 600) for doubt in doubts), *_alarm(decision))
    if caveats:
        notes = (*notes, f"robust0 audit --like {options.baseline} searches as the baseline did")
    return GateOutcome(decision, run.report, notes, warnings)


def make_baseline(options: GateOptions) -> tuple[Path, Baseline | CertificateBaseline]:
    """Write the baseline of a run."""
    others = (options.baseline, options.max_drop, options.policy, options.model, options.factory)
    asked = any(value is not None for value in others) or options.metrics or options.floors
    if options.write_baseline is None or options.run is None:
        raise RecipeError("--write-baseline needs a RUN", "robust0 gate RUN --write-baseline FILE")
    if asked or options.replay or options.fail_on_replay:
        raise RecipeError(
            "--write-baseline only writes; it decides nothing",
            "gate first, then write the baseline with a command of its own",
        )
    if is_certificate(run_folder(options.run)):
        return write_certified(options.write_baseline, run_folder(options.run))
    run = read_run(run_folder(options.run))
    _refuse_empty(run)
    _refuse_unsaid(run)
    refuse_violations(run)
    made = baselines.of_run(run, attempts=baselines.KEPT)
    baselines.write(options.write_baseline, made)
    return options.write_baseline, made


def open_baseline(path: Path) -> Baseline:
    """A baseline.json, or an audit's run directory, which says as much."""
    folder = run_folder(path)
    if not folder.is_dir():
        return baselines.read(path)
    run = read_run(folder)
    _refuse_unsaid(run)
    refuse_violations(run)
    return baselines.of_run(run, attempts=baselines.KEPT)


def _check(options: GateOptions) -> None:
    """Refuse options that say nothing, or that nothing would read."""
    if options.baseline is None:
        if not options.floors:
            raise RecipeError(
                "a gate needs a condition", "give --baseline FILE or --fail-under saa=60"
            )
        paired = (options.max_drop, options.policy, options.metrics or None)
        if any(value is not None for value in paired):
            raise RecipeError(
                "--max-drop, --policy and --metric compare with a baseline", "give --baseline FILE"
            )
    if options.fail_on_replay and not options.replay:
        raise RecipeError("--fail-on-replay needs --replay", "add --replay")
    named = options.model is not None or options.factory is not None
    if options.run is None:
        if not (options.replay and named):
            raise RecipeError(
                "no RUN was given",
                "give a run directory, or --replay --model MODEL --baseline FILE",
            )
        if options.floors or options.metrics or options.policy is not None:
            raise RecipeError(
                "--fail-under, --metric and --policy judge a run", "give a run directory"
            )
    elif options.model is not None or (options.factory is not None and not options.replay):
        raise RecipeError(
            "--model and --factory are for a replay without RUN", "leave them out, or leave out RUN"
        )


def _there(before: Baseline | None) -> Baseline:
    if before is None:
        raise RecipeError("--replay needs a baseline", "give --baseline FILE")
    return before


def _refuse_empty(run: RunData) -> None:
    """An audit of no images says nothing, so nothing may pass on it."""
    if not run.report.results.subject.images:
        raise RunError(
            "this run audited no images: there is nothing to decide on", "audit some images"
        )


def _refuse_unsaid(run: RunData) -> None:
    """A checkpoint may choose data and budget of an audit; a gate must not rest on that."""
    kept, words = run.info.options, run.info.command
    if "says_data" in kept:
        budget, data = (kept.get(key) is True for key in ("says_budget", "says_data"))
        require_said(budget=budget, data=data, whose="this run")
        return
    # A run of an older version: at least no silent fall back to the sample.
    said = ("--data", "sample") in pairwise(words) or "--data=sample" in words
    if run.report.results.subject.dataset == "sample" and words and not said:
        raise RunError(
            "this run used the embedded sample because the full data was absent",
            "audit with --data sample, or pull the data first: robust0 data pull cifar10",
        )


def refuse_violations(run: RunData) -> None:
    """Numbers of attacks that broke their own promises decide nothing."""
    rows = [row for result in run.report.results.budgets for row in result.attacks]
    broken = sum(row.violations for row in rows)
    if broken:
        raise EvaluationError(
            f"attacks broke their own promises {broken} times: no number of this run may be used",
            "audit again; the report names the attacks",
        )


def _replayed(
    options: GateOptions,
    before: Baseline,
    run: RunData | None,
    allowed: Fraction,
    progress: Progress,
) -> Replay:
    import torch

    from robust0.commands.replay import open_replay
    from robust0.gate.replay import replay

    subject = open_replay(options, before, run, progress)
    data = subject.data
    images = data.images(torch.arange(len(data)))
    result = replay(subject.network, before, images, data.labels, data.ids)
    return judge_replay(result, allowed, decisive=options.fail_on_replay)


def _replay_only(
    options: GateOptions, before: Baseline, allowed: Fraction, progress: Progress
) -> GateOutcome:
    replay = _replayed(options, before, None, allowed, progress)
    identity = identity_of(before.settings, len(before.attacks), len(before.ids))
    decision = Decision(identity=f"baseline: {identity}", checks=(), replay=replay)
    return GateOutcome(decision, None, warnings=_alarm(decision))


def _alarm(decision: Decision) -> tuple[str, ...]:
    replay = decision.replay
    if replay is None or not replay.alarm or replay.decisive:
        return ()
    return (f"{replay.result.sentence()} (--fail-on-replay would fail)",)
