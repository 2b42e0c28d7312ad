"""Measurements, never tests: ratios of interleaved runs on one machine."""
