"""All cases. See verify_broken.py."""

from __future__ import annotations

import verify_cases_links
import verify_cases_pages
import verify_cases_states
from verify_broken import Case

CASES: tuple[Case, ...] = verify_cases_pages.CASES + verify_cases_states.CASES + verify_cases_links.CASES
