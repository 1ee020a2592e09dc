"""What computes: precision, counted costs, device and threads, provenance, frozen evaluation mode."""
