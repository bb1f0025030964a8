"""Rows for a try: this node's part of scikit-learn's breast cancer data.

A hospital has its own: `cohort-data="/srv/rows.csv" cohort-schema="/srv/schema.json"` in the node's
configuration come first.
"""

COLUMNS = (0, 1, 4, 5, 6, 7)


def load_rows(context):
    """Every k-th row, as a pandas frame with the columns of schema.json."""
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).frame.iloc[:, [*COLUMNS, -1]]
    frame.columns = [name.replace(" ", "_") for name in frame.columns]
    frame = frame.sample(frac=1, random_state=0)
    first, step = (int(context.node_config[k]) for k in ("partition-id", "num-partitions"))
    return frame.iloc[first::step]
