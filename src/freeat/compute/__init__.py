"""What computes: precision, counted passes, device and threads, provenance, frozen evaluation mode."""
