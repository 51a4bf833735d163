"""Is a brain in order? The rules V-01 to V-22 and N-01 to N-04, and the two index files made from front matter."""

from runner.brain.verify.model import Violation
from runner.brain.verify.rebuild import Unsound, diff, rebuild
from runner.brain.verify.rules import Report, check

__all__ = ["Report", "Unsound", "Violation", "check", "diff", "rebuild"]
