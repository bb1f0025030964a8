"""Every option of every study, simulated and deployed: it does what it says, or no sum opens.

The options are read off the commands: a new one fails until it has its cases here. Sums are those
of the rows, without a cipher or noise, but where a case says otherwise.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import pytest

import sims.study
from ciphercohort.deploy.coordinator import Coordinator
from ciphercohort.deploy.inference import DeployedSums
from ciphercohort.results.documents import to_json
from ciphercohort.study import deployed as studies
from coordinator.settings import CARDS
from coordinator.setup import init_coordinator
from parties.reader.imputation import CellModel, Imputation
from parties.reader.schema import CategoricalColumn, NumericColumn, Schema, Targets
from parties.reader.shard import Shard
from parties.reader.views import encode_with_views
from protocols.exchange.cards import CARD_KIND
from protocols.sums.plan import GradientPlan
from sims.simulated_sums import Sums
from tests.ciphercohort.cli.test_brief import EVERY
from tests.coordinator.test_deployment import ADDRESSES
from tests.sims.model_runs import cohort

SITES = ("p", "q", "r", "s")
ROWS = 200
SIMULATED, DEPLOYED = "simulated", "deployed"
STUDIES = {"describe": "describe", "curves": "survival", "cox": "survival", "glm": "glm"}
ASIDE = {"debug"}


def rows(site: int) -> pd.DataFrame:
    """Of one hospital; entries, weights and offsets for those who ask for them."""
    rng = np.random.default_rng(site)
    age, arm = rng.uniform(30, 90, ROWS).round(), rng.choice(["a", "b"], ROWS)
    death = rng.exponential(30 * np.exp(-0.03 * (age - 60) + 0.5 * (arm == "b")))
    leaves = rng.uniform(6, 60, ROWS)
    months = np.ceil(np.minimum(death, leaves))
    return pd.DataFrame(
        {
            **{"months": months, "died": (death <= leaves).astype(float), "arm": arm},
            **{"age": np.where(rng.random(ROWS) < 0.9, age, np.nan)},
            **{"sex": rng.choice(["f", "m"], ROWS), "entry": np.floor(months / 3)},
            **{"falls": rng.negative_binomial(2, 0.4, ROWS), "w": rng.uniform(0.5, 2, ROWS)},
            **{"off": rng.uniform(0, 1, ROWS), "site": SITES[site]},
        }
    )


def schema(*targets: NumericColumn) -> Schema:
    """Of these targets."""
    age = CellModel(feature="age", terms=("sex=m",), draws=tuple((60.0, k, 15.0) for k in range(2)))
    return Schema(
        columns=(
            NumericColumn("age", 30.0, 90.0, typical=60.0, missing="typical"),
            CategoricalColumn("arm", ("a", "b")),
            CategoricalColumn("sex", ("f", "m")),
        ),
        label=Targets(columns=targets),
        scaling="range",
        imputation=Imputation(models=(age,)),
    )


MONTHS, DIED = NumericColumn("months", 0.0, 60.0), NumericColumn("died", 0.0, 1.0)
STAYS = schema(MONTHS, DIED)
COSTS = schema(
    DIED,
    NumericColumn("falls", 0.0, 30.0),
    NumericColumn("w", 0.0, 2.0),
    NumericColumn("off", 0.0, 1.0),
)
SCHEMAS = {"describe": STAYS, "curves": STAYS, "cox": STAYS, "glm": COSTS}


@dataclass(frozen=True)
class Ran:
    """What a command said, and the plans of the sums that opened, in order."""

    code: int
    stdout: str
    stderr: str
    plans: tuple[Any, ...]
    folder: Path

    @property
    def found(self) -> dict[str, Any]:
        """Its document."""
        assert self.code == 0, self.stderr
        return dict(json.loads(self.stdout))

    @property
    def names(self) -> list[str]:
        """Of coefficients."""
        return [row["name"] for row in self.found["inference"]]

    @property
    def adds(self) -> Any:
        """What a row adds to the first sum."""
        return self.plans[0].task.adds


Check = Callable[[Ran, Ran], bool]


@dataclass(frozen=True)
class Case:
    """Of an option.

    words: beside the study's own; check: what the option changed, beside a run without it, None: it
    is refused, before any sum, in words that match; real: sums are those of parties.
    """

    words: str
    check: Check | None = None
    refused: str = ""
    real: bool = False


def does(words: str, check: Check, real: bool = False) -> Case:
    return Case(words, check, real=real)


def wrong(words: str, refused: str, real: bool = False) -> Case:
    return Case(words, refused=refused, real=real)


def fewer(new: Ran, old: Ran) -> bool:
    """Columns."""
    return bool(new.plans[0].num_features < old.plans[0].num_features)


def same(new: Ran, old: Ran) -> bool:
    """Figures, whatever the session, up to the order of additions."""
    if "inference" in old.found:
        coef = [[row["coef"] for row in each.found["inference"]] for each in (new, old)]
        return np.shape(coef[0]) == np.shape(coef[1]) and np.allclose(*coef, rtol=1e-9)
    return all(new.found.get(key) == old.found.get(key) for key in ("groups", "curves"))


def written(new: Ran) -> bool:
    """The document that was printed, in a folder of its own."""
    (path,) = (p for study in STUDIES for p in (new.folder / study).glob("*.json"))
    found = json.loads(path.read_text())
    shutil.rmtree(path.parent)
    return bool(found == new.found)


def promised(new: Ran, old: Ran) -> bool:
    """Epsilon 12, and delta 1e-6, of all sums."""
    plan = new.plans[0].privacy
    return old.plans[0].privacy is None and 0 < plan.epsilon <= 12 and plan.delta == 1e-6


ALL = tuple(STUDIES)
PRIVATE = ("describe", "curves", "cox")
FITS = ("cox", "glm")
Cases = Mapping[tuple[str, ...], tuple[Case, ...]]
EPSILON: Cases = {
    PRIVATE: (
        does("--epsilon 12 --delta 1e-6", promised),
        *(wrong(f"--epsilon {e}", "epsilon") for e in ("0", "nan", "inf")),
    ),
    ("glm",): (wrong("--epsilon 12", "exact sums"),),
}
DELTA: Cases = {
    PRIVATE: (wrong("--epsilon 12 --delta 1", "delta"),),  # and what it does: with epsilon
    ALL: tuple(wrong(f"--delta {d}", "delta") for d in ("0", "1", "nan")),
}
COLLUDERS: Cases = {
    PRIVATE: (
        does(
            "--epsilon 12 --colluders 1",
            lambda new, old: new.plans[0].privacy.colluders == 1,
        ),
        wrong("--epsilon 12 --colluders 4", "colluders"),
    ),
    ALL: (wrong("--colluders -1", "colluders"),),
}
SIMULATIONS: dict[str, Cases] = {
    "data": {ALL: (does("", same), wrong("--data {folder}/quince.csv", "quince.csv"))},
    "schema": {
        ALL: (
            does(
                "{schema}",
                lambda new, old: new.plans[0].schema["digest"] != old.plans[0].schema["digest"],
            ),
            wrong("--schema {folder}/quince.json", "quince.json"),
        )
    },
    "exclude": {ALL: (does("--exclude sex", fewer), wrong("--exclude quince", "quince"))},
    "include": {ALL: (does("--include age,sex", fewer), wrong("--include sex,quince", "quince"))},
    "reference": {
        ("describe",): (
            does(
                "--reference arm=b",
                lambda new, old: (
                    new.found["groups"]["all"]["columns"]["arm"]["categories"][0] == "b"
                ),
            ),
        ),
        ("curves",): (
            does(
                "--by arm --reference arm=b",
                lambda new, old: [*new.found["curves"]] == ["b", "a"],
            ),
        ),
        FITS: (does("--reference arm=b", lambda new, old: "arm=a" in new.names),),
        ALL: (wrong("--reference arm=quince", "reference"),),
    },
    "parties": {
        ALL: (
            does("--split even --parties 2", lambda new, old: len(new.plans[0].members) == 2),
            wrong("--split even --parties 1", "part"),
        )
    },
    "split": {
        ALL: (
            does("--split even", lambda new, old: len(new.plans[0].members) == 3),
            *(wrong(f"--split {s}", "split|quince") for s in ("by:quince", "odd", "dirichlet:-1")),
        )
    },
    "ledger": {
        ("describe",): (
            does(
                "--epsilon 12 --ledger {folder}/ledger",
                lambda new, old: any((new.folder / "ledger").iterdir()),
                real=True,
            ),
        ),
        ALL: (wrong("--ledger {folder}/exact", "ledger", real=True),),
    },
    "seed": {
        ("describe",): (
            does("--epsilon 12 --seed 5", lambda new, old: "NOT PRIVATE" in new.stderr, real=True),
        ),
        ALL: (does("--seed 5", same), wrong("--seed -1", "seed")),
    },
    "out": {
        ALL: (
            does("--out {folder}/{study}", lambda new, old: written(new)),
            wrong("--out {folder}", "something else"),
        )
    },
}


ASKED: dict[str, Cases] = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "colluders": COLLUDERS,
    "as_json": {ALL: (does("", same),)},
    "by": {
        ("describe",): (
            does("--by arm", lambda new, old: {*new.found["groups"]} == {"all", "a", "b"}),
            wrong("--by age", "age"),
        ),
        ("curves",): (
            does("--by arm", lambda new, old: {*new.found["curves"]} == {"a", "b"}),
            wrong("--by age", "age"),
        ),
        ("cox",): (wrong("--by arm", "other model"),),
    },
    "sites": {
        ("describe",): (
            does(
                "--sites p",
                lambda new, old: {"p"} < {*new.found["sites"]} and not old.found["sites"],
            ),
            wrong("--sites quince", "quince"),
        )
    },
    "bins": {
        ("describe",): (
            does("--bins 50", lambda new, old: new.plans[0].length < old.plans[0].length),
            wrong("--bins 1", "bins"),
            wrong("--bins 100000", "fewer bins"),
        ),
        ("curves", "cox"): (
            does("--grid 20", lambda new, old: new.adds.bins == 20 != old.adds.bins),
            wrong("--grid 1", "grid"),
            wrong("--grid 1000000", "grid|bins"),
        ),
    },
    "least": {
        ("describe", "curves", "cox"): (
            does("--least 20", lambda new, old: new.found["suppressed"]["below"] == 20),
            wrong("--least 1", "least"),
        )
    },
    "model": {
        ("cox",): (does("", lambda new, old: "inference" in new.found),),
        ("curves",): (does("", lambda new, old: "curves" in new.found),),
        ("curves", "cox"): (wrong("--model weibull", "weibull"),),
    },
    "tau": {
        ("curves",): (
            does("--tau 24", lambda new, old: new.found["groups"][0]["tau"] == 24),
            *(wrong(f"--tau {t}", "tau") for t in ("0", "61", "nan")),
        ),
        ("cox",): (wrong("--tau 24", "other model"),),
    },
    "begin": {
        ("curves",): (
            does("--from 6", lambda new, old: new.found["curves"]["all"]["from"] == 6),
            *(wrong(f"--from {t}", "from") for t in ("-1", "60", "nan")),
        ),
        ("cox",): (wrong("--from 6", "other model"),),
    },
    "however_noisy": {
        ("cox",): (
            does("--however-noisy", same),
            wrong("--epsilon 0.9", "nothing was spent.*insist by --however-noisy"),
        ),
        ("curves",): (
            wrong("--however-noisy", "other model"),
            wrong("--epsilon 0.01", "drowns every group.*nothing was spent"),
        ),
    },
    "strata": {
        ("cox",): (
            does(
                "--strata sex",
                lambda new, old: (
                    {*new.found["baseline"]} == {"f", "m"} and "sex=m" not in new.names
                ),
            ),
            wrong("--strata age", "age"),
            wrong("--strata sex --epsilon 12", "exact sums"),
        ),
        ("curves",): (wrong("--strata sex", "other model"),),
    },
    "curves": {
        ("cox",): (
            does("--curves arm", lambda new, old: {*new.found["adjusted"]} == {"a", "b"}),
            wrong("--curves age", "age"),
            wrong("--curves arm --epsilon 12", "exact sums"),
        ),
        ("curves",): (wrong("--curves arm", "other model"),),
    },
    "imputations": {
        FITS: (
            does("--imputations 2", lambda new, old: len(new.found["fits"]) == 2),
            *(wrong(f"--imputations {m}", "imputations|impute") for m in ("1", "1000")),
        ),
        ("glm",): (
            does(
                "--imputations 2 --propensity arm=b",
                lambda new, old: len(new.found["propensities"]) == len(new.found["fits"]) == 2,
            ),
        ),
        ("cox",): (
            wrong("--imputations 2 --epsilon 12", "exact sums|epsilon"),
            wrong("--imputations 2 --curves arm", "one fit"),
        ),
        ("curves",): (wrong("--imputations 2", "other model"),),
    },
    "target": {
        ("glm",): (
            does(
                "--target falls --family poisson",
                lambda new, old: new.found["inference_about"]["target"] == "falls",
            ),
            does(
                "--target arm=b",
                lambda new, old: (
                    new.found["inference_about"]["target"] == "arm=b" and "arm=b" not in new.names
                ),
            ),
            wrong("--target quince", "quince"),
            wrong("--target arm=quince", "no other group"),
        )
    },
    "family": {
        ("glm",): (
            does("--family gaussian", lambda new, old: new.adds.family == "gaussian"),
            wrong("--family quince", "family"),
        )
    },
    "link": {
        ("glm",): (
            does("--link probit", lambda new, old: new.adds.link == "probit"),
            wrong("--link log", "link"),
        )
    },
    "weight": {
        ("glm",): (
            does(
                "--weight w",
                lambda new, old: (
                    new.found["inference_about"]["weight"] == "w" and bool(new.adds.weight)
                ),
            ),
            wrong("--weight quince", "quince"),
        )
    },
    "offset": {
        ("glm",): (
            does(
                "--offset off",
                lambda new, old: (
                    new.found["inference_about"]["offset"] == "off" and bool(new.adds.offset)
                ),
            ),
            wrong("--offset quince", "quince"),
        )
    },
    "alpha": {
        ("glm",): (
            does(
                "--target falls --family negative-binomial --alpha 0.7",
                lambda new, old: new.found["inference_about"]["alpha"] == pytest.approx(0.7),
            ),
            *(
                wrong(f"--target falls --family negative-binomial --alpha {a}", "alpha")
                for a in ("0", "nan", "inf")
            ),
            wrong("--alpha 0.7", "alpha"),
        )
    },
    "propensity": {
        ("glm",): (
            does(
                "--propensity arm=b",
                lambda new, old: (
                    new.found["propensity"]["propensity"] == "arm=b"
                    and new.found["inference"][0]["se"] == new.found["inference"][0]["robust_se"]
                ),
            ),
            does("--target arm=b --propensity sex=m", lambda new, old: "arm=b" not in new.names),
            wrong("--propensity arm=quince", "no other group"),
            wrong("--propensity age", "no groups"),
            wrong("--propensity died", "target of the schema"),
            wrong("--target arm=b --propensity arm=a", "outcome|no such column"),
        )
    },
    "estimand": {
        ("glm",): (
            does(
                "--propensity arm=b --estimand overlap",
                lambda new, old: new.plans[-1].task.adds.estimand == "overlap",
            ),
            wrong("--propensity arm=b --estimand quince", "estimand"),
            wrong("--estimand att", "propensity alone"),
        )
    },
    "trim": {
        ("glm",): (
            does(
                "--propensity arm=b --trim 0.45",
                lambda new, old: (
                    new.plans[-1].task.adds.trim == 0.45 and new.found["propensity"]["clipped"] > 10
                ),
            ),
            *(wrong(f"--propensity arm=b --trim {t}", "trim") for t in ("0", "0.5", "nan")),
            wrong("--trim 0.1", "propensity alone"),
        )
    },
    "propensity_columns": {
        ("glm",): (
            does(
                "--propensity arm=b --propensity-columns sex",
                lambda new, old: (
                    [row["name"] for row in new.found["propensity"]["balance"]] == ["sex=m"]
                ),
            ),
            wrong(
                "--propensity arm=b --propensity-columns sex,quince", "none of the other columns"
            ),
            wrong("--propensity arm=b --propensity-columns arm", "none of the other columns"),
            wrong("--propensity-columns sex", "propensity alone"),
        )
    },
    "site_intercepts": {
        ("glm",): (
            does(
                "--site-intercepts",
                lambda new, old: "intercept" in old.names and "intercept" not in new.names,
            ),
        )
    },
    "cluster": {
        ("glm",): (does("--cluster", lambda new, old: "cluster_se" in new.found["inference"][0]),)
    },
    "time": {
        ("curves", "cox"): (
            does("--time entry", lambda new, old: not same(new, old)),
            wrong("--time quince", "quince"),
        )
    },
    "event": {
        ("curves", "cox"): (
            does("--event alive", lambda new, old: not same(new, old)),
            wrong("--event quince", "quince"),
        )
    },
    "entry": {
        ("curves", "cox"): (
            does("--entry entry", lambda new, old: new.adds.late and not old.adds.late),
            wrong("--entry quince", "quince"),
        )
    },
}
DEPLOYMENTS: dict[str, Cases] = {
    "include": {
        ("describe",): (
            does("--include age", lambda new, old: len(new.adds.columns) == 1),
            wrong("--include quince", "quince"),
        ),
        FITS: (
            does(
                "--include age",
                lambda new, old: {*new.names} == {"age"} | ({*old.names} & {"intercept"}),
            ),
            wrong("--include quince", "quince"),
        ),
        ("curves",): (wrong("--include age", "curves have none"),),
    },
    "exclude": {
        ("describe",): (
            does(
                "--exclude sex", lambda new, old: len(new.adds.columns) == len(old.adds.columns) - 1
            ),
            wrong("--exclude quince", "quince"),
        ),
        FITS: (
            does("--exclude sex", lambda new, old: {*old.names} - {*new.names} == {"sex=m"}),
            wrong("--exclude quince", "quince"),
        ),
        ("curves",): (wrong("--exclude age", "curves have none"),),
    },
    "dry_run": {
        ALL: (does("--dry-run", lambda new, old: not new.plans and new.found["rows"] == 4 * ROWS),)
    },
    # What goes on with a session: `tests.coordinator.test_any_session`.
    "session": {ALL: (wrong("--session quince", "quince"),)},
}
TABLES = {SIMULATED: SIMULATIONS | ASKED, DEPLOYED: ASKED | DEPLOYMENTS}


def cases(where: str, study: str, name: str) -> list[Case]:
    found = TABLES[where].get(name, {})
    return [case for studies, own in found.items() if study in studies for case in own]


def options(where: str, study: str) -> dict[str, click.Option]:
    path = STUDIES[study] if where == SIMULATED else f"coordinator {STUDIES[study]}"
    return {str(each.name): each for each in EVERY[path] if each.name not in ASIDE}


PLACES = [(where, study) for where in (SIMULATED, DEPLOYED) for study in STUDIES]


@pytest.mark.parametrize(("where", "study"), PLACES)
def test_every_option_has_its_cases(where: str, study: str) -> None:
    """A number has values that are refused, too."""
    found = options(where, study)
    without = [name for name in found if not cases(where, study, name)]
    assert without == [], "give each a case: what it changes, or how it is refused"
    numbers = [n for n, o in found.items() if o.type.name.split()[0] in ("integer", "float")]
    free = [n for n in numbers if not any(not c.check for c in cases(where, study, n))]
    assert free == [], "a number has values out of range"


def test_no_case_is_of_no_option() -> None:
    for where, table in TABLES.items():
        known = {name for at, study in PLACES if at == where for name in options(where, study)}
        expected = {"time", "event", "entry"} if where == DEPLOYED else set()
        assert {*table} - known == expected


def _written(folder: Path, name: str, body: Any, texts: Any, *, fresh: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(to_json(body))
    return folder / name


class Bench:
    """Runs commands over the rows; plans: of the sums that opened; real: by the parties' own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        frames = {name: rows(k) for k, name in enumerate(SITES)}
        self.folder, self.plans, self.real = folder, list[GradientPlan](), False
        self.study, self.known = "", dict[tuple[str, str], Ran]()
        self.views = {
            own.digest(): {k: encode_with_views(each, own)[1] for k, each in frames.items()}
            for own in (STAYS, COSTS)
        }
        whole = pd.concat(frames.values())
        whole.assign(alive=1 - whole.died).to_csv(folder / "rows.csv", index=False)
        for study, own in SCHEMAS.items():
            own.save(folder / f"schema-{study}.json")
        init_coordinator(folder / "centre", STAYS.to_dict(), ADDRESSES, {})
        for k, name in enumerate(SITES):
            card = {"kind": CARD_KIND, "name": name, "identity": f"{k}" * 64, "node_key": ""}
            card |= {"rows": ROWS, "num_features": STAYS.num_features, "schema": STAYS.digest()}
            (folder / "centre" / CARDS / f"{name}.json").write_text(json.dumps(card))
        really = Sums.ran

        def simulated(sums: Sums, template: GradientPlan) -> tuple[GradientPlan, Any, str]:
            if self.real:
                found = really(sums, template)
                self.plans.append(found[0])
                return found
            return self.ran(template, {name: spec.shard for name, spec in sums.specs.items()})

        def deployed(sums: DeployedSums, template: GradientPlan) -> tuple[GradientPlan, Any, str]:
            sums.sessions.append(uuid.uuid4().hex)
            digest, views = sums.schema.digest(), self.views[SCHEMAS[self.study].digest()]
            shards = {name: each.find(template.view, digest) for name, each in views.items()}
            return self.ran(template, {name: each._value for name, each in shards.items()})  # type: ignore[union-attr]

        patch.setattr(Sums, "ran", simulated)
        patch.setattr(DeployedSums, "ran", deployed)
        # Pictures take longer than all the rest.
        patch.setattr(studies, "write", _written)
        patch.setattr(sims.study, "write", _written)
        patch.setattr(Coordinator, "driving", lambda self, tell, session, asked: None)

    def ran(
        self, template: GradientPlan, shards: Mapping[str, Shard]
    ) -> tuple[GradientPlan, Any, str]:
        """Without a cipher."""
        self.plans.append(template)
        task: Any = template.task
        parts = [task.of_rows(each.x, each.y, name) for name, each in shards.items()]
        return template, np.sum(parts, axis=0) / sum(each.rows for each in shards.values()), ""

    def base(self, where: str, study: str, words: str) -> str:
        """The command without the words of a case."""
        model = " --model cox" * (study == "cox")
        if where == DEPLOYED:
            own = self.folder / "centre" / "schema.json"
            own.write_text(SCHEMAS[study].to_json())
            return f"coordinator {STUDIES[study]} {self.folder / 'centre'}{model}"
        data = f"{STUDIES[study]} --data {self.folder / 'rows.csv'} --split by:site"
        event = "alive" if "alive" in words else "died"
        unused = {"alive", "died", "entry"} - {event, *words.split()}
        unused |= {"months"} if "--time" in words else set()
        if study == "describe":
            return data
        if study == "glm":
            return f"{data} --target died --exclude months,entry,alive"
        unused |= {"falls", "w", "off"}
        return f"{data} --time months --event {event} --exclude {','.join(unused)}{model}"

    def run(self, where: str, study: str, words: str, real: bool = False) -> Ran:
        self.plans, self.real, self.study = [], real, study
        schema = f"--schema {self.folder}/schema-{study}.json"
        own = words.format(folder=self.folder, study=study, schema=schema).split()
        done = cohort(*self.base(where, study, words).split(), "--json", *own)
        return Ran(done.exit_code, done.stdout, done.stderr, tuple(self.plans), self.folder)

    def without(self, where: str, study: str) -> Ran:
        """The study by itself."""
        if (where, study) not in self.known:
            self.known[where, study] = self.run(where, study, "")
        return self.known[where, study]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        yield Bench(tmp_path_factory.mktemp("bench"), patch)


@pytest.mark.parametrize(("where", "study"), PLACES)
def test_an_option_does_what_it_says_or_no_sum_opens(where: str, study: str, bench: Bench) -> None:
    failed = []
    for name in options(where, study):
        for case in cases(where, study, name):
            ran = bench.run(where, study, case.words, case.real)
            if case.check is None:
                words = " ".join(ran.stderr.split())
                good = ran.code == 2 and not ran.plans and re.search(case.refused, words)
            else:
                good = ran.code == 0 and case.check(ran, bench.without(where, study))
            if not good:
                failed.append((name, case.words, ran.code, len(ran.plans), ran.stderr[-300:]))
    assert not failed, "\n".join(map(str, failed))
