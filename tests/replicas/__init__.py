"""Replicas: every owner computes what the coordinator does, and answers that alone.

python -m tests.replicas           every message of every protocol, changed in every way
python -m tests.replicas --runs N  so many honest runs, over protocols and options
"""
