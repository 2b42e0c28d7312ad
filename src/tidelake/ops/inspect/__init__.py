"""System tables as Arrow tables with Paimon's column names, judgements and explanations.

System tables:
    system_tables       snapshots, schemas, options, tags, branches, consumers
    file_tables         manifests, files, partitions, buckets, index files
    lsm_table           levels of buckets in numbers
    metrics_table       what each snapshot cost
    consumer_lag        how far each consumer is behind

Judgements:
    diagnosis           what an operator should look at, and the command that helps

Explanations:
    why                 every version of one key
"""
