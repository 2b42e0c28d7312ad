"""Who spreads the verbs over machines: one package for each engine, found by its entry point."""
