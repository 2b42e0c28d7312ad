"""Writers of data files in any format.

* `rolling`: writes one file, or several of a target size
* `bucket`, `describe`: the writer of append data files, and their manifest entries
* `keyed`: the columns and the writer of primary-key data files
"""
