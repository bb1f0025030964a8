"""The report of a run: one HTML file that needs nothing else and can be printed or mailed."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

import numpy as np

from sims import report_model, report_regression
from sims import report_words as words
from sims.regression_result import RegressionResult
from sims.report_facts import crypto_facts, model_facts
from sims.report_html import Html, bar, facts, fragment, page, section, table, tag
from sims.result import AnyRun, RunResult
from sims.words import duration, size


def render_report(result: AnyRun) -> str:
    """The whole document. Every text from data, plan or parties is escaped."""
    title = f"Joint model for {result.schema.label.name}"
    marks = (["INSECURE"] if result.insecure else []) + (["NOT PRIVATE"] if _seeded(result) else [])
    body = [
        *_banners(result),
        *_model(title, result),
        _costs(result),
        section(
            "How it was computed",
            facts([*crypto_facts(result.plan), *model_facts(result.plan)]),
        ),
        _privacy(result),
        _parties(result),
        *_warnings(result),
        _provenance(result),
    ]
    return page(" · ".join([*marks, title]), body)


def _model(title: str, result: AnyRun) -> Iterator[Html]:
    """What depends on the kind of model."""
    if isinstance(result, RegressionResult):
        yield tag("header", tag("h1", title), tag("p", report_regression.headline(result)))
        yield report_regression.quality(result)
        yield report_regression.course(result)
        yield report_regression.model_coefficients(result)
    elif isinstance(result, RunResult):
        yield tag("header", tag("h1", title), tag("p", words.headline(result)))
        yield report_model.quality(result)
        yield report_model.course(result)
        yield report_model.coefficients(result)


def _seeded(result: AnyRun) -> bool:
    return "NOT PRIVATE" in result.noise


def _banners(result: AnyRun) -> Iterator[Html]:
    if result.insecure:
        yield tag(
            "div",
            "INSECURE: a toy ring without any security was used (profile fast-insecure). "
            "For tests only; never with real data.",
            cls="banner",
            role="alert",
        )
    if _seeded(result):
        yield tag(
            "div",
            "NOT PRIVATE: the noise came from a seed and can be subtracted by whoever knows it.",
            cls="banner",
            role="alert",
        )


def _costs(result: AnyRun) -> Html:
    seconds, traffic = result.costs.seconds, result.costs.bytes_per_party
    slowest, heaviest = max(seconds.values()) or 1.0, max(traffic.values()) or 1
    rows = [
        (
            fragment(phase, tag("small", words.PHASES.get(phase, ""))),
            fragment(duration(seconds[phase]), bar(seconds[phase] / slowest)),
            fragment(size(traffic.get(phase, 0)), bar(traffic.get(phase, 0) / heaviest)),
        )
        for phase in seconds
    ]
    rows.append(
        (
            tag("b", "all phases"),
            tag("b", duration(sum(seconds.values()))),
            tag("b", size(_busiest(result.costs.traffic))),
        )
    )
    median = float(np.median(result.costs.iteration_seconds))
    return section(
        "What it cost",
        tag(
            "p",
            f"One iteration took {duration(median)} (median, refresh included); the whole "
            f"run {duration(result.total_seconds)} and at most "
            f"{result.peak_memory_mb:,.0f} MB of memory.",
        ),
        table(
            ("Phase", "Time [wall clock]", "Traffic of the busiest party [both ways]"),
            rows,
            cls="numbers bars",
        ),
    )


def _busiest(traffic: Mapping[str, Mapping[str, int]]) -> int:
    """Most bytes of one party over all phases."""
    totals: Counter[str] = Counter()
    for by_party in traffic.values():
        totals.update(by_party)
    return max(totals.values(), default=0)


def _privacy(result: AnyRun) -> Html:
    parts: list[Html] = [tag("p", words.privacy_statement(result))]
    parts.append(facts(words.privacy_facts(result.plan)))
    certificate = result.certificate
    if certificate:
        parts.append(_conditions(certificate, promised=result.plan.privacy is not None))
    return section("Privacy", *parts)


def _conditions(certificate: dict[str, Any], promised: bool) -> Html:
    rows = [
        (
            fragment(condition["name"], tag("small", condition["meaning"])),
            fragment(
                tag(
                    "span",
                    f"{condition['left']:.5g} {condition['relation']} {condition['right']:.5g}",
                    cls="nowrap",
                ),
                tag("small", "holds", cls="yes")
                if condition["satisfied"]
                else tag("small", "FAILS", cls="no"),
            ),
        )
        for condition in certificate["conditions"]
    ]
    what = "the promise above" if promised else "the bound on every iterate (no noise was added)"
    assumptions = [tag("li", text) for text in certificate.get("assumptions", ())]
    return fragment(
        tag("p", f"Conditions of the theorem behind {what}; figures in certificate.json:"),
        table(("Condition", "Inequality and verdict"), rows),
        *([tag("p", "Taken for granted:"), tag("ul", *assumptions)] if assumptions else []),
    )


def _parties(result: AnyRun) -> Html:
    rows = [
        (name, f"{amount:,}", words.clamp_words(dict(result.clamped.get(name, {}))))
        for name, amount in result.rows_by_party.items()
    ]
    return section(
        "Who took part",
        table(("Party", "Rows", "Values brought within the public schema"), rows, cls="parties"),
        tag(
            "p",
            "Rows per party are public. What was clamped is not: it is shown because this is a "
            "simulation.",
            cls="soft",
        ),
    )


def _warnings(result: AnyRun) -> Iterator[Html]:
    if result.warnings:
        yield section("Warnings", *(tag("p", text, cls="note") for text in result.warnings))


def _provenance(result: AnyRun) -> Html:
    plan = result.plan
    digests = {
        "Session": plan.session,
        "Plan digest (SHA-256)": plan.digest(),
        "Schema digest (SHA-256)": result.schema.digest(),
        "Transcript head (SHA-256 chain)": result.transcript_head,
    }
    rows = [(name, tag("code", value)) for name, value in digests.items()]
    rows.append(("Noise", tag("span", result.noise)))
    rows.append(("Written", tag("span", f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC")))
    rows.append(("Software", tag("span", _software())))
    return section(
        "Provenance",
        table(("", ""), rows, cls="plain"),
        tag("p", "Check this folder with ", tag("code", "cohort verify RUNDIR"), "."),
    )


def _software() -> str:
    parts = [f"Python {platform.python_version()}"]
    for name in ("ciphercohort", "openfhe", "flwr"):
        try:
            parts.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(parts)
