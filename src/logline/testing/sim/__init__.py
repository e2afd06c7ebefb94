"""The simulator: the shipped machine under a seeded scheduler that delays, interleaves, kills and revives."""
