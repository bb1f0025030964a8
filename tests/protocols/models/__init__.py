"""Tests of protocols.models."""
