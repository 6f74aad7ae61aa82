"""A certificate as JUnit XML: a case per classifier and number of pixels, and one per attack."""

from xml.etree import ElementTree as Xml

from robust0 import wording
from robust0.decision import Decision
from robust0.proofs import CertificateReport, CertifiedClassifier, CertifiedPoint
from robust0.writers.junit import decision_suite, suite_count, suites_text

_FIXED = "robust0.certify"


def certificate_junit(report: CertificateReport, decision: Decision | None = None) -> str:
    """Certified accuracies as cases; only a broken certificate or a gate's condition fails."""
    root = Xml.Element("testsuites", name="robust0")
    if decision is not None:
        decision_suite(root, decision)
    results = report.results
    for row in results.classifiers:
        title = f"robust0 certify, {wording.tidy(row.name)}"
        suite = Xml.SubElement(root, "testsuite", name=title, timestamp=report.run.started)
        properties = Xml.SubElement(suite, "properties")
        for name, value in _properties(report, row):
            Xml.SubElement(properties, "property", name=name, value=wording.tidy(value, 1000))
        for point in row.points:
            if point.pixels in results.settings.pixels:
                _point_case(suite, point)
        _trial_cases(suite, row)
        if results.bracket is not None and results.bracket.classifier == row.name:
            name = "certificates against the audit"
            case = Xml.SubElement(
                suite, "testcase", classname=f"{_FIXED}.bracket", name=name, time="0"
            )
            if results.bracket.broken:
                text = f"the audit refutes the certificates of images {results.bracket.broken}"
                Xml.SubElement(case, "error", message=text)
        lines = wording.certificate_meaning(results.settings)
        Xml.SubElement(suite, "system-out").text = "\n".join(lines)
        suite_count(suite)
    return suites_text(root)


def _point_case(suite: Xml.Element, point: CertifiedPoint) -> None:
    name = f"certified at {wording.pixels(point.pixels)}"
    case = Xml.SubElement(suite, "testcase", classname=f"{_FIXED}.accuracy", name=name, time="0")
    share = point.certified
    Xml.SubElement(case, "system-out").text = (
        f"{wording.percent(share)} ({wording.interval(share)}), {share.count:,} of "
        f"{share.images:,} images; {point.wrong:,} wrong answers are certified"
    )


def _trial_cases(suite: Xml.Element, row: CertifiedClassifier) -> None:
    for trial in row.trials:
        name = f"{wording.tidy(trial.attack)} within certified radii"
        case = Xml.SubElement(suite, "testcase", classname=f"{_FIXED}.trials", name=name, time="0")
        if trial.broken:
            text = f"{trial.broken} certificates are false: images {list(trial.images)}"
            Xml.SubElement(case, "error", message=text)
        Xml.SubElement(case, "system-out").text = f"{trial.broken} of {trial.tried} broken"


def _properties(report: CertificateReport, row: CertifiedClassifier) -> list[tuple[str, str]]:
    subject = report.results.subject
    return [
        ("model", subject.model),
        ("dataset", f"{subject.dataset} {subject.split}"),
        ("identity", wording.certificate_identity(report.results)),
        ("clean", f"{wording.percent(row.clean)} ({wording.interval(row.clean)})"),
        ("median certified pixels", wording.number(row.median)),
        ("sha256", subject.sha256 or "not a file"),
    ]
