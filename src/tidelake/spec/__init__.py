"""The on-disk contract: frozen values and their codecs. Nothing here opens a file or looks at a clock."""
