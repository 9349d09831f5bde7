"""How much of a corpus a chat template loses: a little is counted, much stops the run before anything is trained."""

from __future__ import annotations

import argparse
import sys

from taps.data.audit import Audit
from taps.data.chat import Reason
from taps.data.mixtures import BEYOND_SIZE
from taps.plumbing.errors import TapsError

ONLY_LAST_ANSWERS = "only its last answers supervised: the chat template rewrites what stands before the others"
"""Note on conversations of which the template leaves some answers unusable."""

MOST = 0.5
WARN_FROM = 0.1

_TEMPLATE_REASONS = (Reason.REFUSED_BY_TEMPLATE, Reason.TEMPLATE_NOT_PREFIX_STABLE)
_REMEDY = "set target.chat_template or target.template_options so that it keeps them"


def add_template_drop_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --max-template-drop."""
    parser.add_argument(
        "--max-template-drop",
        type="share0",
        default=MOST,
        metavar="SHARE",
        help="stop if the chat template drops more than this share of the conversations (default: %(default)s)",
    )


def check_template_losses(audit: Audit, *, most: float, where: object) -> None:
    """Warns of a template that drops conversations, or answers of those it keeps; stops where it drops too many.

    Args:
        audit: Of the conversations that were rendered, and of those beyond the size.
        most: Share of the rendered ones that may be dropped for the template's reasons.
        where: The corpus, for the messages.

    Raises:
        TapsError: more than that was dropped.
    """
    counts = {reason: entry["count"] for reason, entry in audit.dropped.items()}
    looked_at = max(1, audit.read - counts.get(BEYOND_SIZE, 0))
    dropped = {str(reason): counts[reason] for reason in _TEMPLATE_REASONS if reason in counts}
    share = sum(dropped.values()) / looked_at
    found = f"{share:.0%} of {looked_at} ({', '.join(f'{reason} {count}' for reason, count in dropped.items())})"
    if share > most:
        remedy = f"{_REMEDY}, or raise target.max_template_drop"
        raise TapsError(
            where,
            "its conversations are dropped by the chat template",
            expected=f"at most {most:.0%}",
            found=found,
            remedy=remedy,
        )
    if share > WARN_FROM:
        print(f"warning: {where}: the chat template drops {found}; {_REMEDY}", file=sys.stderr)
    if (partly := audit.changed[ONLY_LAST_ANSWERS]) > WARN_FROM * looked_at:
        print(f"warning: {where}: {partly} of {looked_at} conversations have {ONLY_LAST_ANSWERS}", file=sys.stderr)
