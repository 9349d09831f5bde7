"""What a study is asked: each claim of the paper (C1 to C25), our controls (K), and the same of any study.

The paper's statements and the published numbers' own verdicts are data (`taps/published/claims.json`); the modules here
say which comparisons a statement makes, in functions under `@asks`. `registry` finds them all.
"""

from __future__ import annotations

from taps.analysis.claims.registry import Claim, Judgement, Topic, claims_of, judge, judge_all

__all__ = ["Claim", "Judgement", "Topic", "claims_of", "judge", "judge_all"]
