"""A support agent: it answers customers, and refunds orders once a person has approved."""
