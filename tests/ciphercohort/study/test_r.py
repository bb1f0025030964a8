"""R reads what a study writes, and its `survival` package finds the same; where R is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ciphercohort.after.sums import sums_wanted
from ciphercohort.job.layout import SURVIVAL
from ciphercohort.study.asked import CoxOptions
from ciphercohort.study.cox import cox_by
from ciphercohort.study.files import write
from parties.reader.shard import encode_shard
from parties.reader.views import by_range
from tests.ciphercohort.study.test_glm import Plain
from tests.ciphercohort.study.test_imputed import schema, table

SCRIPT = """
library(survival)
told <- jsonlite::fromJSON("cox/survival.json")$inference
rows <- read.csv("rows.csv")
own <- coxph(Surv(months, died) ~ age + bmi + stage, rows, control = coxph.control(eps = 1e-10))
robust <- coxph(Surv(months, died) ~ age + bmi + stage, rows, id = seq_len(nrow(rows)),
                robust = TRUE, control = coxph.control(eps = 1e-10))
se <- sqrt(diag(vcov(own)))
found <- list(
  coef = max(abs(coef(own) - told$coef) / se),
  se = max(abs(se / told$se - 1)),
  robust = max(abs(sqrt(diag(vcov(robust))) / told$robust_se - 1)),
  proportional = max(abs(cox.zph(own, terms = FALSE)$table[1:3, 1] / told$proportional_chi2 - 1)))
cat(jsonlite::toJSON(found, auto_unbox = TRUE, digits = NA))
"""


def has_r() -> bool:
    if shutil.which("Rscript") is None:
        return False
    asked = "library(survival); library(jsonlite)"
    return (
        subprocess.run(["Rscript", "-e", asked], capture_output=True, check=False).returncode == 0
    )


def test_coxph_is_equal(tmp_path: Path) -> None:
    """Times are recorded in whole months, so that ours are exact."""
    if not has_r():
        pytest.skip("needs R with the packages survival and jsonlite")
    rows = table().dropna()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    own = by_range(schema())
    shards = {str(name): encode_shard(part, own) for name, part in rows.groupby("site")}
    sizes = {name: shard.rows for name, shard in shards.items()}
    sums = Plain(schema=own, sizes=sizes, wanted=sums_wanted(None, 1e-5, 0), shards=shards)
    found = cox_by(sums, CoxOptions())
    write(tmp_path / "cox", SURVIVAL, found.released(), found.documents())
    ran = subprocess.run(
        ["Rscript", "-e", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert all(apart < 1e-6 for apart in json.loads(ran.stdout).values()), ran.stdout
