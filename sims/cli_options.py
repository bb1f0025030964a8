"""The options of `cohort simulate`, in words, by group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from protocols.privacy.catalogue import NOISES
from sims.api import DEFAULT_DELTA, DEFAULT_EPSILON, DEFAULT_PARTIES

DATA, OWNERS, TRAINING = "Data", "Data owners", "Training"
PRIVACY, ENCRYPTION, OUTPUT = "Privacy", "Encryption", "Output"
SUMS = "Training with --protocol secure-aggregation"


def _option(panel: str, words: str, *names: str) -> Any:
    return typer.Option(*names, help=words, rich_help_panel=panel)


Data = Annotated[
    Path | None, _option(DATA, "CSV or Parquet file. Default: scikit-learn's breast cancer data.")
]
Model = Annotated[
    str,
    _option(
        TRAINING,
        "logistic (a label of two values), or of numeric targets, several at once: linear, or "
        "improved-lffr (predictions bend towards the ends of the range), both on encrypted sums, "
        "or lffr (a sigmoid of the target's range, on encrypted rows).",
    ),
]
Target = Annotated[
    str | None,
    _option(DATA, "Numeric columns that a regression predicts, separated by commas: Y1,Y2."),
]
Label = Annotated[str | None, _option(DATA, "Column to predict, of two values.")]
Positive = Annotated[
    str | None, _option(DATA, "The label's positive value. Default: 1, yes, or the larger one.")
]
SchemaFile = Annotated[
    Path | None, _option(DATA, "Public column schema (cohort schema init). Default: inferred.")
]
TestFile = Annotated[Path | None, _option(DATA, "File with the rows to test on.")]
Holdout = Annotated[float | None, _option(DATA, "Share of rows to test on. Default: 0.2.")]
Exclude = Annotated[list[str] | None, _option(DATA, "Column to leave out; may be repeated.")]
Strict = Annotated[
    bool, _option(DATA, "Refuse values outside the schema; do not clamp.", "--strict")
]

Parties = Annotated[
    int | None, _option(OWNERS, f"How many. Default: {DEFAULT_PARTIES}, or one per value of by:.")
]
Split = Annotated[
    str, _option(OWNERS, "Who gets which rows: even, by:COLUMN or dirichlet:ALPHA (skewed).")
]
Processes = Annotated[bool, _option(OWNERS, "Each in a process of its own.", "--processes")]

Protocol = Annotated[
    str,
    _option(
        TRAINING,
        "encrypted-rows: every row encrypted once, owners offline between refreshes; "
        "secure-aggregation: one small encrypted sum a round, owners online, every iterate "
        "public.",
    ),
]
Update = Annotated[
    str,
    _option(
        TRAINING,
        "Update rule. Both protocols: barrier, gd, nag, quadratic-nag, quadratic-gd. "
        "secure-aggregation alone: "
        "clipped-gd, hb, masg, nag-opt, masg-opt, scd, adagrad, adam, quadratic-adagrad, "
        "quadratic-adam.",
    ),
]
Ridge = Annotated[
    float | None,
    _option(
        TRAINING,
        "Ridge coefficient, of regressions and of --protocol secure-aggregation. Default: 0, or "
        "what privacy needs at least.",
    ),
]
Momentum = Annotated[float | None, _option(SUMS, "Of hb. Default: 0.9.")]
Clip = Annotated[
    float | None, _option(SUMS, "Bound on a row's gradient; of scd: on its step. Default: natural.")
]
Weights = Annotated[str, _option(SUMS, "What a party counts: rows (as its rows) or equal.")]
Loss = Annotated[str, _option(SUMS, "Of scd: logistic, ridge or svm.")]
Batches = Annotated[int, _option(SUMS, "Of scd: a round draws one row in so many.")]
Schedule = Annotated[
    str, _option(SUMS, "Of scd's batches: cyclic (public) or poisson (secret; gaussian).")
]
Mechanism = Annotated[str, _option(SUMS, f"Privacy noise: {' or '.join(NOISES)}.")]
Iterations = Annotated[int | None, _option(TRAINING, "How many. Default: chosen.")]
Degree = Annotated[
    int | None, _option(TRAINING, "Of the sigmoid polynomial: 3, 5 … 15. Default: chosen.")
]
LearningRate = Annotated[
    float | None, _option(TRAINING, "Of gd and nag without privacy. Default: chosen.")
]
Interval = Annotated[
    float | None,
    _option(TRAINING, "Half width of the sigmoid polynomial's interval. Default: chosen."),
]
Seed = Annotated[int | None, _option(TRAINING, "Repeatable split and noise: NOT PRIVATE.")]

Epsilon = Annotated[
    float | None,
    _option(PRIVACY, f"The promise; smaller is stricter. Default: {DEFAULT_EPSILON:g}."),
]
Delta = Annotated[
    float | None, _option(PRIVACY, f"Its failure probability. Default: {DEFAULT_DELTA:g}.")
]
Colluders = Annotated[
    int | None,
    _option(PRIVACY, "Parties that may pool all they see with the coordinator. Default: 0."),
]
LedgerFolder = Annotated[
    Path | None,
    _option(PRIVACY, "Folder with a ledger per party, which refuses an overdraft.", "--ledger"),
]
NoPrivacy = Annotated[
    bool, _option(PRIVACY, "Add no noise; rows still stay encrypted.", "--no-privacy")
]

Cover = Annotated[
    int | None,
    _option(
        ENCRYPTION,
        "Parties that can stand in for others who vanish during training; so many that collude "
        "have every key. Default: nobody can, and all must stay.",
    ),
]
Profile = Annotated[
    str, _option(ENCRYPTION, "secure (128 bits), or fast-insecure: a toy ring for tests.")
]
RingDim = Annotated[
    int | None, _option(ENCRYPTION, "Ring dimension, a power of two. Default: smallest secure.")
]

Out = Annotated[
    Path | None,
    _option(OUTPUT, "Run folder: model, report, transcript. An earlier run is moved aside."),
]
KeepMessages = Annotated[
    bool,
    _option(
        OUTPUT,
        "Keep every message, for cohort audit transcript. At 128 bits about 130 MB per party, "
        "and 4 MB more per iteration.",
        "--keep-messages",
    ),
]
AsJson = Annotated[bool, _option(OUTPUT, "Print one JSON object on stdout.", "--json")]
Debug = Annotated[bool, _option(OUTPUT, "Show tracebacks and warnings of libraries.", "--debug")]
