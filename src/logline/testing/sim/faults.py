"""What happens to a simulated pipeline, and how often."""

from __future__ import annotations

from dataclasses import dataclass

RARE = {
    *("CheckClock", "Divert", "Discard", "AskPosition", "FetchWrites", "Permit", "FetchMembers", "ObserveTaken"),
    *("StopCalls", "Checkpoint", "LetGo"),
}
"""Actions that are seldom asked for: a life is killed there more often, so that a small run hits them all."""


@dataclass
class Faults:
    """How often what happens. Probabilities per opportunity."""

    budget: int = 0
    """So many crashes and zombies at most."""
    crash: float = 0.0
    zombie: float = 0.0
    all_at_once: float = 0.0
    lose_bell: float = 0.0
    lose_answer: float = 0.0
    late_write: float = 0.5
    target_away: float = 0.0
    stop: float = 0.0
    """Per move: somebody ends a life in order, whatever is under way."""
    set_clock: float = 0.0
    """Per move: somebody sets the wall clock, back or forward."""
    late_start: float = 0.0
    """An instance begins when others have long been at work."""
    kill_at: frozenset[int] = frozenset()
    """Exhaustive runs: kill the acting life at these points, counted from 0."""
    victims: frozenset[str] = frozenset()
    """Only these are killed; all if empty."""
