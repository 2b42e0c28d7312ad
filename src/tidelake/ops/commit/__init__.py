"""Publishing files as snapshots.

Pure:
    messages            what writers pass to the committer
    options             options of a commit
    changes             from messages to entries: the written and the compacted part
    conflicts           whether changes can be committed on top of a state
    candidate           the snapshot to publish, and the invariants of every publish
    overwrite           the files that an overwrite deletes

The commit:
    committer           commit, overwrite, recover and abort for one user
    loop                plan, write metadata, publish, retry
    providers           the changes of a request: fixed, computed from the state, or rebased
    manifest_merge      merge manifests
    manifest_sort       sort the entries of manifests while they are merged
    publish             offer a snapshot, and settle an unknown answer
    standing            verify that a published snapshot follows its base
    outcome             what is published, and what an error means to the caller
    mark_done           mark partitions done: `_SUCCESS` files, reports over HTTP

Other commits:
    since               the commits since a base snapshot
    progress            which numbered commits of a user are published
    rebase              ports that rewrite files when another commit came first
    replan              plan and commit again after a conflict
    guards              checks before every attempt to publish
    lookup_guard        the guard of compactions with lookup
    replay_guard        the guard of compactions that move staged rows to buckets
    strict              strict mode: refuse changes of others since a safe snapshot

Around it:
    hook                an action after a commit
    abort               delete the files of a commit that never happened
    leftovers           files of a commit that it did not publish
    safety              whether it is safe to commit to a storage
"""
