"""Atomic, versioned, typed reading and writing of documents and tensors; identities; locks."""
