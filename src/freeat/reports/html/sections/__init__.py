"""The sections of the report: what was gathered, turned into tables, charts and sentences."""
