"""The tests. They need a checkout of Holdfast, whose tools start PostgreSQL and the object store."""
