"""The documents of a table in storage, by the paths of its layout.

Stores:
    table_store         all stores of one branch
    snapshots           snapshots: the ports to read and publish them, and their folder
    schemas             schema files
    manifests           manifests, manifest lists and index manifests
    changelogs          long-lived changelogs
    tags                tags
    branches            branches
    consumers           consumer progress
    commit_progress     commit progress
    expiry_check        when commits last looked for expired partitions
    deletion_vectors    deletion vectors
    paths               folders of partitions and buckets
    external            data files outside the table
"""
