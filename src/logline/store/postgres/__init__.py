"""The log in PostgreSQL: for pipelines that span hosts."""
