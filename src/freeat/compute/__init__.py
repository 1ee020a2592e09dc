"""Precision, counted costs, device and threads, provenance, frozen eval mode with conv–BN fusion."""
