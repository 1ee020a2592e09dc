"""Tables and pictures made from stored results; nothing here trains."""
