"""Manifests, manifest lists and index manifests.

Modules:
    columnar_metadata   manifests of old tables in ORC or Parquet
    index_manifest      live index files
    manifest            entries of data files, as Arrow tables
    manifest_list       manifest lists
    manifest_meta       counts and ranges of a manifest, for its list
"""
