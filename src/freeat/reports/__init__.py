"""Tables and figures made from stored results; nothing here trains."""
