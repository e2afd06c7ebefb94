"""The embedded log: one LMDB environment per instance, under the log's folder."""
