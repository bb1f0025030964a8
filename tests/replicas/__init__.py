"""Replicas: every owner computes what the coordinator does, and answers that alone.

python -m tests.replicas           messages changed: a field more or gone, a blob other or gone
python -m tests.replicas --runs N  so many honest runs, over protocols and options
"""
