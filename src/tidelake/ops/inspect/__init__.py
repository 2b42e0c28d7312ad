"""System tables as Arrow tables with Paimon's column names, judgements and explanations.

System tables:
    catalogue           the system tables by name
    columns             their columns, types and keys
    system_tables       snapshots, schemas, options, tags, branches, consumers, aggregations, statistics
    file_tables         manifests, files, key ranges, partitions, buckets, index files
    file_index_table    file indexes of data files
    row_tracking        rows with their ids
    lsm_table           levels of buckets in numbers
    metrics_table       what each snapshot cost
    consumer_lag        how far each consumer is behind

Judgements:
    diagnosis           what an operator should look at, and the command that helps

Explanations:
    why                 every version of one key
"""
