"""Engines, which run the verbs in the tasks of a cluster: one package each, found by its entry point.

Modules:
    port    what an engine implements
    spark   Apache Spark
"""
