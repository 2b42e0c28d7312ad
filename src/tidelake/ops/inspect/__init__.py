"""System tables: functions that return Arrow tables with the format's own column names."""
