"""A forward step: how a model lies on ranks, what each computes, reads and sends, and how long that takes."""
