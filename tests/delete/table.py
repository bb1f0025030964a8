"""Rooms that the rest does without: files, registry lines, tests; and what is still in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Room:
    """What is taken away with a room.

    has: its files, and folders with all below them, as globs; lines: of its registries, by file:
    each text stands in one line there, which goes; tests: its own, as `has`, or FILE::NAME; edges:
    files of the rest that import it for `reason`, others may as well; where there are any, the room
    cannot be removed yet. called: in names of tests of all rooms, those that are about it. studied:
    papers and studies are about it, so that the laboratory goes along.
    """

    has: tuple[str, ...]
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tests: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    reason: str = ""
    called: str = ""
    studied: bool = False


LABORATORY = Room(
    has=("sims/lab",),
    lines={
        "ciphercohort/cli/app.py": ('"sims.lab.commands"',),
        # Of the second accountant.
        "tests/ciphercohort/study/test_survival.py": (
            "import gaussian_epsilon",
            "assert gaussian_epsilon(spent",
        ),
    },
    # Of Flower, those on fleets of its own, which are a study's.
    tests=(
        "tests/lab",
        "tests/flower/*elsewhere.py",
        "tests/flower/run_example.py",
        "tests/flower/test_apps_study.py",
        "tests/flower/test_examples.py",
        "tests/flower/test_flower_job.py",
        "tests/flower/test_flower_run.py",
        "tests/flower/test_private_digits.py",
        "tests/flower/test_study.py",
        "tests/flower/test_survival_example.py",
    ),
)
ROOMS: Mapping[str, Room] = {
    "rule adagrad, adam": Room(
        has=("protocols/updates/adaptive.py",),
        lines={
            "protocols/updates/registry.py": (
                '"adaptive.Adagrad"',
                '"adaptive.Adam"',
                '"adaptive.QuadraticAdagrad"',
                '"adaptive.QuadraticAdam"',
            )
        },
        studied=True,
    ),
    "rule masg": Room(
        has=(
            "protocols/updates/strongly_convex.py",
            "protocols/privacy/calibrate/rules/strongly_convex.py",
        ),
        lines={
            "protocols/updates/registry.py": (
                '"strongly_convex.MultiStage"',
                '"strongly_convex.StronglyConvexNesterov"',
                '"nag-opt": "nag-sc"',
                '"masg-opt": "masg"',
            ),
            "protocols/privacy/calibrate/sums.py": (
                '"strongly_convex:constant"',
                '"strongly_convex:stages"',
                '"strongly_convex:divided"',
                '"strongly_convex:divided_stages"',
            ),
        },
        tests=(
            "tests/protocols/updates/test_private_schedules.py",
            "tests/ciphercohort/report/test_gradients.py",
            "tests/ciphercohort/cli/test_classes_run.py",
        ),
        studied=True,
    ),
    "dask": Room(
        has=("coordinator/dask_workers.py",),
        lines={"coordinator/workers.py": ('"coordinator.dask_workers:workers_of"',)},
        tests=("tests/coordinator/test_dask.py",),
    ),
    "torch": Room(
        has=(
            "parties/verifier/torch_step.py",
            "parties/reader/tensor_shard.py",
            "ciphercohort/estimators/torch_*.py",
            "sims/lab/baselines_torch.py",
            "examples/digits_mlp.py",
        ),
        tests=(
            "tests/ciphercohort/estimators/test_torch_training.py",
            "tests/parties/test_torch_step.py",
            "tests/lab/test_baselines_torch.py",
            "tests/support/torch_cases.py",
        ),
    ),
    "plug-in": Room(
        has=("ciphercohort/flower", "sims/lab/studies/flower", "examples/flower-*"),
        tests=("tests/flower",),
    ),
    "laboratory": LABORATORY,
    "rule barrier": Room(
        has=(
            "protocols/updates/barrier.py",
            "protocols/privacy/calibrate/rules/barrier.py",
            "protocols/privacy/certificates/barrier.py",
            "protocols/privacy/search/barrier.py",
            "protocols/rows/barrier_slots.py",
        ),
        lines={
            "protocols/updates/registry.py": ('"barrier": "barrier.',),
            "protocols/privacy/calibrate/sums.py": ('"barrier": "barrier:of_rows"',),
            "protocols/privacy/certificates/mechanism.py": ('"rows/barrier": "barrier"',),
            "protocols/privacy/search/search.py": ('"barrier": "protocols.',),
            "protocols/rows/slots.py": ('"barrier": "protocols.',),
            "tests/protocols/ckks/test_factored.py": ("import Barrier,",),
            "tests/protocols/plan/test_plan.py": ("import Barrier",),
            "tests/protocols/privacy/search/test_utility.py": (
                "import barrier as",
                "import Barrier",
                '("barrier", barrier_search',
            ),
        },
        tests=(
            "tests/protocols/privacy/certificates/test_barrier_certificate.py",
            "tests/ciphercohort/verify/test_verify_certificate.py",
            "tests/protocols/ckks/test_factored.py::test_reciprocal_factors",
            "tests/protocols/plan/test_plan.py::test_a_deeper_rule_than_gradient",
            # Of its plans, as an example.
            "tests/parties/test_recompute.py",
            "tests/ciphercohort/job/test_ledgers.py::"
            "test_a_run_is_charged_and_a_second_one_is_refused",
            "tests/ciphercohort/planning/test_planning.py::test_every_condition_holds",
            "tests/ciphercohort/planning/test_planning.py::test_refusals_name_the_cure",
            "tests/coordinator/test_coordinator.py::"
            "test_a_rules_own_path_is_computed_beside_the_parties",
            "tests/protocols/costs/test_counts.py::"
            "test_operations_of_every_circuit_are_those_of_a_run",
        ),
        called="barrier",
        studied=True,
    ),
    "rule quadratic": Room(
        has=("protocols/updates/quadratic*.py", "protocols/updates/rescaled.py"),
        lines={
            "protocols/updates/registry.py": (
                '"quadratic-nag": "quadratic.',
                '"quadratic-gd": "quadratic',
                '"rescaled-nag": "rescaled.',
            ),
            "tests/protocols/ckks/circuits/test_ceremony.py": ("import Quadratic, Quad",),
            "tests/protocols/costs/test_counts.py": ("import quadratic",),
            # Tests that are run on all kinds of sums.
            "tests/protocols/sums/test_integer_sums.py": ("yield from quadratic_cases()",),
        },
        tests=(
            "tests/protocols/rows/test_encrypted_quadratic.py",
            "tests/protocols/updates/test_quadratic.py",
            "tests/protocols/ckks/circuits/test_ceremony.py::"
            "test_the_noise_behind_an_inverse_is_below_its_bound",
            # Of its choice, as an example.
            "tests/ciphercohort/report/test_whitened_run.py",
            "tests/ciphercohort/cli/test_cli.py::"
            "test_options_are_checked_before_anything_is_loaded",
            "tests/ciphercohort/cli/test_deployment_commands.py::"
            "test_a_whitened_pair_is_chosen_once",
            "tests/ciphercohort/planning/test_comparison.py::test_two_runs_count_as_one",
            "tests/whole/test_end_to_end_128.py::test_whitened_rows_at_128_bits",
        ),
        called="quadratic",
        studied=True,
    ),
    # The kernel keeps its part of a round, which no plan can ask for then.
    "rule scd": Room(
        has=(
            "protocols/sums/dual.py",
            "protocols/updates/coordinate.py",
            "protocols/updates/dual_ascent.py",
            "protocols/privacy/calibrate/rules/dual.py",
        ),
        lines={
            "protocols/sums/objectives.py": ('"dual": "protocols.',),
            "protocols/updates/registry.py": ('"scd": "dual_ascent.',),
            "protocols/privacy/calibrate/sums.py": ('"scd": "dual:ascent"', '"scd": "dual:obj'),
            "protocols/privacy/calibrate/calibration.py": (
                'f"linear {SECURE_AGGREGATION}"',
                'f"improved-lffr {SECURE_AGGREGATION}"',
            ),
            # Tests that are run on all kinds of sums.
            "tests/protocols/sums/test_integer_sums.py": ("yield from dual_cases()",),
            "tests/protocols/privacy/certificates/test_row_terms.py": ('"objective": SCD}',),
        },
        tests=(
            "tests/parties/test_dual_order.py",
            "tests/protocols/updates/test_coordinate.py",
            # Of its plans, as an example.
            "tests/parties/test_private_refusals.py::test_the_scale_of_rows_tells_of_no_norm",
            "tests/parties/test_private_refusals.py::test_a_private_refusal_is_spent",
            "tests/parties/test_private_refusals.py::test_an_ended_session_stays_ended_after_a_restart",
        ),
        called="(dual or scd or (composed and secret))",
        studied=True,
    ),
    "lffr": Room(
        has=(
            "protocols/models/lffr.py",
            "protocols/lffr",
            "protocols/ckks/circuits/lffr.py",
            "protocols/privacy/calibrate/lffr.py",
            "protocols/privacy/certificates/lffr.py",
            "sims/lffr_twin.py",
        ),
        lines={
            "protocols/models/registry.py": ('"lffr": "lffr.Lffr"',),
            "protocols/plan/kinds.py": ('"lffr": "protocols.', '"model-lffr": "protocols.'),
            "protocols/privacy/calibrate/calibration.py": (
                '"lffr:draft_lffr"',
                '"lffr:draft_at_home"',
            ),
            "protocols/privacy/certificates/mechanism.py": ('"lffr": "lffr"',),
            "sims/twins.py": ('"sims.lffr_twin:twin"',),
            # Tests that are run on all kinds of plans.
            "tests/ciphercohort/job/test_rates_and_floors.py": ("import CURVATURE",),
            "tests/ciphercohort/verify/test_regression_run.py": ("import largest_lffr_rate",),
            "tests/parties/test_private_refusals.py": (
                "import lffr_session as lffr_cases",
                '"lffr": (lffr_cases.',
            ),
            "tests/protocols/model/test_linear_at_home.py": (
                "import LffrModelPlan",
                "import PAPER_LINK",
            ),
            "tests/protocols/numerics/test_approximation.py": ("import PAPER_LINK",),
            "tests/protocols/numerics/test_arithmetic.py": ("import LffrPlan",),
            "tests/protocols/numerics/test_slot_bounds.py": ("import lffr_session",),
            "tests/support/sessions.py": (
                "import LffrModelPlan",
                "import PAPER_LINK",
                "import LffrPlan",
                "import make_plan as make_lffr_plan",
            ),
        },
        tests=(
            "tests/protocols/ckks/circuits/test_lffr_*.py",
            "tests/protocols/lffr_session.py",
            "tests/protocols/models/test_lffr.py",
            "tests/protocols/privacy/certificates/test_lffr_certificate.py",
            "tests/protocols/rows/test_lffr*.py",
        ),
        called="lffr",
        studied=True,
    ),
    "gram": Room(
        has=(
            "protocols/gram",
            "protocols/ckks/circuits/gram*.py",
            "protocols/models/gram_models.py",
            "protocols/privacy/calibrate/gram.py",
            "protocols/privacy/certificates/gram.py",
            "sims/gram_twin.py",
        ),
        lines={
            "protocols/plan/kinds.py": ('"gram": "protocols.',),
            "protocols/privacy/calibrate/calibration.py": (
                'f"linear {ENCRYPTED_ROWS}"',
                'f"improved-lffr {ENCRYPTED_ROWS}"',
            ),
            "protocols/privacy/calibrate/whitened.py": ('"gram:draft_whitened"',),
            "protocols/privacy/certificates/mechanism.py": ('"gram": "gram"',),
            "sims/twins.py": ('"sims.gram_twin:twin"',),
            # Tests that are run on all kinds of plans.
            "tests/ciphercohort/job/test_rates_and_floors.py": ("import FLOOR",),
            "tests/ciphercohort/report/test_report.py": ("import test_gram_plan",),
            "tests/ciphercohort/results/test_regression.py": ("import QUIET_FLOOR",),
            "tests/parties/test_private_refusals.py": ("import test_gram_plan", '"gram": ('),
            "tests/protocols/numerics/test_slot_bounds.py": (
                "import row_sum_bound",
                "import test_gram_plan",
            ),
            "tests/protocols/privacy/certificates/test_row_terms.py": (
                "import gram_sensitivity",
                "import make_plan as gram_plan",
                '(gram_plan, {"schema": OFFSET}',
                "gram_plan(schema=WEIGHT)",
            ),
            "tests/support/sessions.py": ("import GramPlan",),
        },
        tests=(
            "tests/ciphercohort/job/test_regression_twin.py",
            "tests/ciphercohort/report/test_calibration.py",
            "tests/ciphercohort/results/test_slot_report.py",
            "tests/protocols/ckks/circuits/test_gram_blocks.py",
            "tests/protocols/gram",
            "tests/protocols/gram_session.py",
            "tests/protocols/models/test_linear.py",
            "tests/protocols/privacy/certificates/test_gram_certificate.py",
        ),
        called="gram",
        studied=True,
    ),
    "cover": Room(
        has=("parties/kernel/cover", "protocols/steps/cover.py"),
        lines={
            "parties/kernel/__init__.py": ('"cover": ("cover",)',),
            "parties/kernel/channel.py": ('"CoveredSheet",',),
            "parties/kernel/run.py": ('"CoveredSheet": "parties.',),
            "parties/kernel/serving.py": ('"CoveredKeys": (',),
            "parties/policy.py": ('COVER: "adds',),
            "parties/verifier/remote.py": ('"CoveredSheet": "CoveredKeys"',),
            "protocols/rows/protocol.py": ('"protocols.steps.cover"',),
            "tests/coordinator/test_records.py": ("import shamir",),
            "tests/holders/holders.py": ("import CoverShare", "    CoverShare,"),
            "tests/kernel/test_key_session.py": ("import CoveredSheet", "as covered_keys"),
            "tests/provenance/residuals.py": ("import shamir",),
        },
        tests=(
            "tests/coordinator/test_cover*.py",
            "tests/ciphercohort/verify/test_cover_run.py",
            "tests/parties/test_cover_share.py",
            "tests/protocols/privacy/laws/test_shamir.py",
            "tests/coordinator/test_records.py::test_parties_that_are_lost_on_paper_are_named",
            "tests/coordinator/test_records.py::test_an_honest_loss_passes_with_the_owners_word",
            "tests/provenance/test_audit.py::test_t_shares_give_a_secret",
            "tests/provenance/test_table.py::test_the_table_is_generated",
        ),
        called="(cover and not (coverage or discover or recover))",
    ),
    "whitening": Room(
        has=(
            "protocols/numerics/whitening.py",
            "protocols/privacy/calibrate/whitened.py",
            "protocols/steps/second_moment.py",
        ),
        edges=(
            "ciphercohort/verify/folder.py",
            "coordinator/replay.py",
            "protocols/plan/circuit_plan.py",
            "protocols/privacy/calibrate/calibration.py",
            "protocols/privacy/search/search.py",
            "protocols/rows/protocol.py",
            "protocols/steps/replica.py",
        ),
        reason="a field of plans under CKKS, which certificates, searches and audits read, "
        "and the usual private run: a registry of one entry with a hook for each would be longer",
        studied=True,
    ),
    "evaluation": Room(
        has=(
            "protocols/statistics/evaluation",
            "ciphercohort/after/judg*.py",
            "ciphercohort/after/evaluation_words.py",
            "ciphercohort/cli/evaluate.py",
            "ciphercohort/deploy/evaluation.py",
            "sims/evaluation.py",
        ),
        edges=("ciphercohort/deploy/coordinator.py", "sims/afterwards.py"),
        reason="what follows a training calls it by name, at the centre and in a simulation",
        studied=True,
    ),
    "inference": Room(
        has=(
            "protocols/statistics/inference",
            "ciphercohort/after/inference*.py",
            "ciphercohort/deploy/inference.py",
        ),
        edges=("ciphercohort/deploy/coordinator.py", "sims/afterwards.py"),
        reason="what follows a training calls it by name, at the centre and in a simulation",
        studied=True,
    ),
}
