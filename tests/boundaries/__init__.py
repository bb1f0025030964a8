"""What crosses the two boundaries of a party: cells to rows, and rows to replies.

For tables D and D' that differ in one row, with pairs of rows and coins permuted at will:

    reading   every other row is, bit for bit, the row read alone          (`reading`)
    replies   on the same tapes a party says the same but for blobs        (`replies`)
    release   the files that a coordinator sees hold the same              (`folders`)
    sums      a contribution moves by at most the certified figure         (`moves`)

`python -m tests.boundaries` runs as many pairs as are asked for; the tests here run a share.
"""
