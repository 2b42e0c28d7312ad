"""Turning files into snapshots.

messages    what writers hand over
changes     messages -> the six lists of a commit (pure)
conflicts   may this change go on top of that state? (pure)
merging     which manifests to merge (pure)
candidate   the candidate snapshot and the invariants every publish must keep (pure)
overwrite   what an overwrite deletes
progress    which identifiers of a user are already published
safety      may this storage be committed to?
publish     the port that creates snapshot N if absent, and how an unknown answer is settled
standing    does a published snapshot stand on the one it was planned on?
loop        plan, write, publish, retry
abort       deleting the files of a commit that certainly never happened
"""
