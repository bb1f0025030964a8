"""What `cohort plan` prints for a person, from a forecast's JSON object."""

from __future__ import annotations

from typing import Any

from ciphercohort.results.exact_sums import MARK, exact_words
from protocols.words import HOLDS, INSECURE, count, promise, size, towards_one


def update_line(body: dict[str, Any]) -> str:
    """The iteration."""
    fields = {k: v for k, v in body["update"].items() if isinstance(v, float)}
    words = "".join(f", {name} {value:.5g}" for name, value in fields.items())
    link = ""
    if "degree" in body:
        radius = body["interval"]
        link = f"; link of degree {body['degree']} on [-{radius:.4g}, {radius:.4g}]"
    return (
        f"protocol {body['protocol']}, model {body['model']}, update {body['update']['kind']}: "
        f"{body['iterations']} iterations{words}{link}"
    )


def privacy_lines(body: dict[str, Any]) -> list[str]:
    """The promise, and the noise."""
    privacy = body["privacy"]
    if privacy is None:
        exact = [exact_words(True)] * (MARK in body)
        return ["privacy: no noise; the model may say something about single rows", *exact]
    composed = body.get("epsilon_composed", ())
    rounds = ", ".join(f"{k}: {value:.3g}" for k, value in enumerate(composed))
    seen = ", ".join(f"{k}: {value:.3g}" for k, value in enumerate(body["epsilon"]))
    return [
        f"privacy: {promise(privacy['epsilon'], privacy['delta'], privacy['colluders'])}; sigma "
        f"{privacy['sigma']:.4g} on the mean gradient, of which each party adds "
        f"{privacy['share_std']:.4g}",
        towards_one(body["epsilon"]),
        f"epsilon by number of colluding parties: {seen}",
        f"of all rounds composed: {rounds}; {HOLDS}",
    ]


def encryption_lines(body: dict[str, Any]) -> list[str]:
    """Ring, keys and flooding; or the cipher of sums."""
    if "sums" in body:
        sums = body["sums"]
        return [
            f"encryption: ring dimension {sums['ring_dim']}, log2(Q) {sums['log_q']}, 128-bit "
            f"security; an opened sum is off by {sums['error_bound']:.2g} at most"
        ]
    ckks, released = body["ckks"], body["decryption"]
    security = f"{ckks['security_bits']}-bit security" if ckks["security_bits"] else INSECURE
    return [
        f"encryption: ring dimension {ckks['ring_dim']}, depth {ckks['depth']}, log2(QP) "
        f"{ckks['log_qp']} of at most {ckks['max_log_qp']} bits, {security}; "
        f"{ckks['rotation_keys']} rotation keys, {ckks['ciphertexts']} ciphertexts",
        f"decryption: flooded to {released['flooding_bits']} bits; the released weights are off "
        f"by {released['release_error_std']:.2g} (standard deviation)",
        *body["slots"],
        *cover_lines(body),
    ]


def cover_lines(body: dict[str, Any]) -> list[str]:
    """Who can stand in for whom, and what that costs in confidentiality."""
    cover, parties = body["cover"], body["parties"]
    if cover is None:
        return []
    return [
        f"cover: up to {parties - cover} parties may vanish once all have contributed; any {cover} "
        f"that collude have every key (without cover: all {parties})"
    ]


def cost_lines(body: dict[str, Any]) -> list[str]:
    """Memory and seconds."""
    if body["rehearsed_rounds"]:
        memory = body["peak_memory_mb"]
        lines = [
            f"measured on this machine from {count(body['rehearsed_rounds'], 'round')} on made-up "
            "rows; --rehearse measures again",
            f"peak memory: a party {memory['party']:,} MB, the coordinator at most "
            f"{memory['coordinator']:,} MB, everybody in one process {memory['together']:,} MB",
        ]
    else:
        lines = ["seconds, bytes and memory: not rehearsed on this machine"]
    if replica := body["replica"]:
        lines.append(
            f"a replica (party init --replica own) adds {replica['seconds']:,.1f} s of computing, "
            f"{size(replica['bytes'])} of others' replies and at most {replica['memory_mb']:,} MB "
            f"at its owner: an owner whose machine has {replica['memory_in_all_mb']:,} MB and two "
            f"cores to spare, and whose line may carry that ({replica['seconds_at_100_mbit']:,.1f} "
            "s at 100 Mbit/s), takes own; with witnesses instead, it receives a few hundred bytes "
            "a step"
        )
    if "encoded_rows" in body:
        lines.append(f"{body['encoded_rows']} (party.toml: encoded_rows_mb)")
    if body["seconds"]:
        lines.append(
            f"predicted seconds: {body['seconds_per_iteration']:.2f} of the coordinator per "
            f"iteration, {body['waiting_seconds_per_iteration']:.2f} waiting for the parties; "
            f"{body['total_seconds']:,.0f} in all, every role on this machine in turn; slowest "
            f"party and coordinator alone {body['seconds_per_iteration_path']:.2f} per iteration"
        )
    return lines


def cost_table(body: dict[str, Any]) -> Any:
    """Bytes and seconds by phase."""
    from rich.table import Table
    from rich.text import Text

    sizes, lasts = body["bytes_per_party"], body["seconds"] or {}
    table = Table(title=Text("Predicted cost"))
    table.add_column("Phase")
    table.add_column("MB per party", justify="right")
    table.add_column("Seconds", justify="right")
    rows = [(phase, sent, lasts.get(phase)) for phase, sent in sizes.items()]
    rows.append(("total", sum(sizes.values()), body["total_seconds"]))
    for phase, sent, seconds in rows:
        style = "bold" if phase == "total" else ""
        shown = "" if seconds is None else f"{seconds:,.1f}"
        table.add_row(phase, f"{sent / 1e6:,.2f}", shown, style=style)
    return table
