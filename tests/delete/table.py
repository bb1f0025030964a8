"""Rooms that the rest does without: files, registry lines, tests; and what is still in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Room:
    """What is taken away with a room.

    has: its files, and folders with all below them, as globs; lines: of its registries, by file:
    each text stands in one line there, which goes; tests: its own, as `has`, or FILE::NAME; edges:
    what else still imports it, as a file; where there is one, the room cannot be removed yet.
    reason: of the edges; studied: papers and studies are about it, so that the laboratory goes
    along.
    """

    has: tuple[str, ...]
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tests: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    reason: str = ""
    studied: bool = False


LABORATORY = Room(
    has=("sims/lab",),
    lines={"ciphercohort/cli/app.py": ('"sims.lab.commands"',)},
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
}
