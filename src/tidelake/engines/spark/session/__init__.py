"""Sessions: `start` starts one or uses the running one, `java` finds a Java for it."""
