"""What is measured: name, unit, meaning, and the formula that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Component:
    """One measured quantity.

    title: for axes and tables; unit: of the value; formula: what is predicted, empty for none;
    relation: "=" (the formula is the value), "<=" (it is a bound) or "" (nothing is tested);
    order: slope of log2 value against log2 P for large P, in words.
    """

    title: str
    unit: str
    formula: str = ""
    relation: str = ""
    order: str = ""


_COEFFICIENT = "integer units per coefficient"
# Of the slots that hold weights; divided by sqrt(n / 2), so that white noise has the same value.
_SLOT = "integer units per weight's slot"
COMPONENTS: dict[str, Component] = {
    # -- privacy ------------------------------------------------------------------------------
    "privacy_ratio": Component(
        "total privacy noise",
        "multiples of sigma",
        "sqrt(P / (P - t))",
        "=",
        "0 (t = 0, half), 1/2 (t = P - 1)",
    ),
    "privacy_noise": Component(
        "privacy noise on the mean gradient",
        "gradient units",
        "sqrt(P / (P - t)) sigma",
        "=",
    ),
    "left_ratio": Component(
        "noise that t colluders leave",
        "multiples of sigma",
        "1; with everyone adding all sqrt(P - t)",
        "=",
        "0",
    ),
    "sigma": Component(
        "noise that the promise needs, sigma", "gradient units", "sqrt(T) S / (N mu)"
    ),
    "model_noise": Component("deviation from the noiseless model", "scaled weight units, rms"),
    "largest_iterate": Component(
        "largest iterate |w|", "scaled weight units", "R of the certificate", "<="
    ),
    "largest_logit": Component(
        "largest logit |<w, x>|", "logits", "radius of the sigmoid polynomial", "<="
    ),
    "accuracy": Component("accuracy on test rows", "share"),
    "auc": Component("area under ROC on test rows", "share"),
    # -- threshold CKKS ------------------------------------------------------------------------
    "secret": Component("joint secret", _COEFFICIENT, "sqrt(2 P / 3)", "=", "1/2"),
    "public_key": Component("joint public key", _COEFFICIENT, "3.19 sqrt(P)", "=", "1/2"),
    "rotation_key": Component("joint rotation key", _COEFFICIENT, "1.00 sqrt(P)", "=", "1/2"),
    "relinearisation_key": Component(
        "joint relinearisation key",
        _COEFFICIENT,
        "sqrt(P (3.19^2 + (2 n P / 3) (1 + 3.19^2)))",
        "=",
        "1",
    ),
    "encryption": Component(
        "one fresh encryption", _COEFFICIENT, "3.19 sqrt(1 + 4 n P / 3)", "=", "1/2"
    ),
    "encryption_sum": Component(
        "sum of all parties' encryptions", _COEFFICIENT, "3.19 sqrt(P (1 + 4 n P / 3))", "=", "1"
    ),
    "refresh": Component(
        "added by a refresh: its rescaling", _COEFFICIENT, "sqrt((1 + 2 n P / 3) / 12)", "=", "1/2"
    ),
    "iterate": Component("encrypted iterate, the last, against the twin", _SLOT),
    "first_iterate": Component(
        "first iterate against the twin, without drift", _SLOT, "sigma_e for one iteration", "<="
    ),
    "scale_drift": Component(
        "drift: multiple of the last iterate that it is off by", "share of the iterate"
    ),
    "circuit": Component(
        "encrypted model before decryption, against the twin",
        _COEFFICIENT,
        "sigma_e = 3 sqrt(g^2 (1 + 2 n P / 3) / 12 + h^2 (3.19 P)^2 4 n / 3)",
        "<=",
    ),
    "flooding": Component(
        "joint decryption: all parties' flooding",
        _COEFFICIENT,
        "sqrt(P) sqrt(12 2^40 sigma_e^2 + 2^40)",
        "=",
        "1 to 3/2",
    ),
    "release": Component(
        "released model against the twin",
        "scaled weight units, rms",
        "R sqrt(2 P) sqrt(n / 2) sigma_flood / scale",
        "=",
        "1 to 3/2",
    ),
    # -- encrypted sums ------------------------------------------------------------------------
    "opening_key": Component("joint opening key", _COEFFICIENT, "6.38 sqrt(P)", "=", "1/2"),
    "opened": Component(
        "error of an opened sum", "units of 2^-scale_bits", "6.38 sqrt(P)", "=", "1/2"
    ),
    "opened_value": Component(
        "error of an opened sum", "gradient units", "6.38 sqrt(P) 2^-scale_bits", "="
    ),
    "sum_release": Component("released model against the twin", "scaled weight units, rms"),
    # -- cost ----------------------------------------------------------------------------------
    "seconds_party": Component("work of the busiest party", "seconds"),
    "seconds_coordinator": Component("work of the coordinator", "seconds"),
    "bytes_party": Component(
        "traffic of busiest party, both ways", "bytes", "sizes of all residues sent", "="
    ),
    "bytes_coordinator": Component(
        "traffic of the coordinator, both ways", "bytes", "sum over parties", "="
    ),
}
for _phase in ("keys", "encrypt", "train", "refresh", "decrypt"):
    for _role in ("party", "coordinator"):
        COMPONENTS[f"seconds_{_role}_{_phase}"] = Component(
            f"work of the {'busiest party' if _role == 'party' else 'coordinator'}, {_phase}",
            "seconds",
        )
