"""A piece of work with an identity, the scheduler, and the backends that carry tasks out."""
