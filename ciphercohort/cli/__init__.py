"""The command `cohort`, by subcommand."""

from protocols.platform import guard

guard()
