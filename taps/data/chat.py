"""Conversations as tokens of the target's chat template, and which of them the target itself would have emitted.

The supervised tokens follow from the template alone, never from searching the text:

- a template with `{% generation %}` blocks names the assistant's characters itself;
- any other is rendered turn by turn; assistant turn i is what `render(turns[:i + 1])` adds to
  `render(turns[:i], add_generation_prompt=True)`. Where a template rewrites earlier turns (Qwen3 removes their
  reasoning), the prefix of such a turn is not in the text: it is not supervised, the last turn is. A conversation of
  which no turn has its prefix in the text is refused.

The whole conversation is tokenised once and the spans are mapped to its tokens by their character offsets, so nothing
shifts at a border; a token that straddles one is not supervised. A turn is supervised up to and including its
end-of-turn token, which the model must emit; what a template writes behind it (ChatML's newline) it never emits.

    <|im_start|>assistant \\n  Paris  .  <|im_end|>  \\n
          0         0      0    1    1       1       0
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from taps.data.chat_template import RefusedByTemplateError, one_template, render, render_marked, settled_template
from taps.data.stop_tokens import special_ids, stop_ids
from taps.data.tokenizer_files import load_tokenizer
from taps.plumbing.errors import TapsError
from taps.plumbing.folder_records import check_folder

Turns = Sequence[Mapping[str, Any]]
"""{"role": "system|user|assistant", "text": str} each; an answer may say "taught": false, so that it is not supervised,
and the last one "cut": true, if it was broken off."""


class Reason(StrEnum):
    """Why a conversation cannot be used: the reason codes of the audit."""

    REFUSED_BY_TEMPLATE = "refused_by_template"
    TEMPLATE_NOT_PREFIX_STABLE = "template_not_prefix_stable"
    SPECIAL_TOKEN_IN_TEXT = "special_token_in_text"
    NO_SUPERVISED_TOKEN = "no_supervised_token"


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """One conversation.

    Attributes:
        tokens: int32 [n] the rendered conversation, cut at the maximal length.
        supervised: bool [n] True for tokens that the target would emit itself.
        truncated: Whether something was cut off.
        num_rewritten: Answers that are not supervised, since the template rewrites what stands before them.
    """

    tokens: np.ndarray
    supervised: np.ndarray
    truncated: bool
    num_rewritten: int = 0


@dataclass(frozen=True, kw_only=True)
class _Rendered:
    text: str
    spans: list[tuple[int, int]]  # characters of each assistant turn: [begin, end)
    num_rewritten: int = 0  # assistant turns without a span
    cut: bool = False  # whether the last turn was broken off, so that its end-of-turn token is nobody's


class ChatTokenizer:
    """The target's tokenizer and chat template.

    Attributes:
        tokenizer: The fast tokenizer, for decoding.
        eos_ids: Ascending ids that end an answer.
        special_ids: Ascending ids of all special tokens, the `eos_ids` among them.
        template_digest: Hex sha256 of the chat template.
    """

    def __init__(self, tokenizer: Any, *, eos_ids: Iterable[int] = (), where: object = "tokenizer") -> None:
        """Wraps a tokenizer of transformers.

        Args:
            eos_ids: Ids that end an answer beside the tokenizer's own `eos_token`.
            where: What error messages name.

        Raises:
            TapsError: no single chat template, no character offsets, or no end-of-turn token.
        """
        if not getattr(tokenizer, "is_fast", False):
            raise TapsError(where, "a slow tokenizer", expected="tokenizer.json, which gives character offsets")
        tokenizer.chat_template = settled_template(one_template(tokenizer.chat_template, where=where))
        own = set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
        tokenizer.backend_tokenizer.no_truncation()  # tokenizer.json may ask for either
        tokenizer.backend_tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.eos_ids = sorted(own | set(eos_ids))
        if not self.eos_ids:
            raise TapsError(where, "names no end-of-turn token", expected="eos_token in tokenizer_config.json")
        added = tokenizer.added_tokens_decoder
        self.special_ids = sorted(special_ids(tokenizer) | set(self.eos_ids))
        self.template_digest = hashlib.sha256(tokenizer.chat_template.encode()).hexdigest()
        literals = sorted((added[id_].content for id_ in self.special_ids if id_ in added), key=len, reverse=True)
        self._special_literal = re.compile("|".join(map(re.escape, literals)) or r"(?!)")
        self._marks_generation = re.search(r"\{%-?\s*generation\s*-?%\}", tokenizer.chat_template) is not None

    @classmethod
    def load(cls, target: Path) -> ChatTokenizer:
        """Returns the tokenizer of a target's folder; the model is not read.

        Raises:
            TapsError: not a target's folder, or as in the constructor.
        """
        check_folder(target, kind="target", without=".safetensors")
        tokenizer = load_tokenizer(target)
        return cls(tokenizer, eos_ids=stop_ids(target, tokenizer), where=target)

    def encode(self, conversations: Iterable[Turns], *, max_length: int | None = None) -> list[TokenRow | Reason]:
        """Returns a row, or the reason why there is none, for each conversation.

        Args:
            conversations: Turns of text, the first of the user (or system).
            max_length: Tokens kept of each conversation; all by default.

        Raises:
            TapsError: every token of a conversation of several roles came out as supervised.
        """
        rendered = [self._render(turns) for turns in conversations]
        texts = [item.text for item in rendered if isinstance(item, _Rendered)]
        encodings = iter(self._encodings(texts))
        return [item if isinstance(item, Reason) else self._row(item, next(encodings), max_length) for item in rendered]

    def encode_prompts(self, conversations: Iterable[Turns]) -> list[list[int] | Reason]:
        """Returns the tokens after which the target answers the last turn, or the reason why there are none.

        Args:
            conversations: Turns of text that end with the user's.
        """
        rendered = [self._render_prompt(turns) for turns in conversations]
        texts = [item for item in rendered if not isinstance(item, Reason)]
        encodings = iter(self._encodings(texts))
        return [item if isinstance(item, Reason) else list(next(encodings).ids) for item in rendered]

    # --- text --------------------------------------------------------------------------------------------------------

    def _render(self, turns: Turns) -> _Rendered | Reason:
        """Returns the conversation's text and the characters of its assistant turns."""
        if self._mentions_special(turns):
            return Reason.SPECIAL_TOKEN_IN_TEXT
        if not turns or turns[0]["role"] == "assistant":  # templates may not be asked for an empty prefix
            return Reason.REFUSED_BY_TEMPLATE
        try:
            rendered = self._marked(turns) if self._marks_generation else self._chained(turns)
        except RefusedByTemplateError:
            return Reason.REFUSED_BY_TEMPLATE
        if isinstance(rendered, Reason) or not turns[-1].get("cut"):
            return rendered
        last_is_taught = self._marks_generation or rendered.spans[-1][1] == len(rendered.text)
        return replace(rendered, cut=last_is_taught)

    def _marked(self, turns: Turns) -> _Rendered | Reason:
        """Returns text and spans as the template's own generation blocks name them."""
        text, spans = render_marked(self.tokenizer, _messages(turns))
        answers = [turn for turn in turns if turn["role"] == "assistant"]
        if not all(map(_is_taught, answers)):
            if len(spans) != len(answers):  # nobody knows which block is whose
                return Reason.TEMPLATE_NOT_PREFIX_STABLE
            spans = [span for span, turn in zip(spans, answers, strict=True) if _is_taught(turn)]
        return _Rendered(text=text, spans=spans)

    def _chained(self, turns: Turns) -> _Rendered | Reason:
        """Returns text and spans from rendered prefixes."""
        text, spans = self._apply(turns), []
        answers = [i for i, turn in enumerate(turns) if turn["role"] == "assistant" and _is_taught(turn)]
        for i in answers:
            before = self._apply(turns[:i], add_generation_prompt=True)
            after = self._apply(turns[: i + 1])
            if after.startswith(before) and text.startswith(after):
                spans.append((len(before), len(after)))
        if answers and not spans:
            return Reason.TEMPLATE_NOT_PREFIX_STABLE
        return _Rendered(text=text, spans=spans, num_rewritten=len(answers) - len(spans))

    def _render_prompt(self, turns: Turns) -> str | Reason:
        if self._mentions_special(turns):
            return Reason.SPECIAL_TOKEN_IN_TEXT
        try:
            return self._apply(turns, add_generation_prompt=True)
        except RefusedByTemplateError:
            return Reason.REFUSED_BY_TEMPLATE

    def _apply(self, turns: Turns, *, add_generation_prompt: bool = False) -> str:
        return render(self.tokenizer, _messages(turns), add_generation_prompt=add_generation_prompt)

    def _mentions_special(self, turns: Turns) -> bool:
        """Returns whether somebody typed a special token, which the tokenizer would take for the template's."""
        return any(self._special_literal.search(turn["text"]) for turn in turns)

    # --- tokens ------------------------------------------------------------------------------------------------------

    def _encodings(self, texts: list[str]) -> list[Any]:
        """Returns the fast tokenizer's encodings; the template has already written any begin-of-sequence token."""
        return self.tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)

    def _row(self, rendered: _Rendered, encoding: Any, max_length: int | None) -> TokenRow | Reason:
        tokens = np.asarray(encoding.ids, dtype=np.int32)
        supervised = self._supervised(
            tokens, np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2), rendered.spans
        )
        if len(tokens) and supervised.all():
            raise TapsError(
                "chat template",
                "marks every token as the assistant's",
                expected="only those of the assistant's turns",
                found=repr(rendered.text[:80]),
                remedy="mend its generation blocks",
            )
        if rendered.cut:
            tokens = tokens[: np.flatnonzero(supervised)[-1]]
        kept = tokens[:max_length]
        supervised = supervised[: len(kept)]
        if not supervised.any():
            return Reason.NO_SUPERVISED_TOKEN
        return TokenRow(
            tokens=kept,
            supervised=supervised,
            truncated=len(kept) < len(tokens),
            num_rewritten=rendered.num_rewritten,
        )

    def _supervised(self, tokens: np.ndarray, offsets: np.ndarray, spans: list[tuple[int, int]]) -> np.ndarray:
        """Returns bool [n]: tokens wholly within a span, up to the one that ends the turn.

        Args:
            tokens: int32 [n] of the rendered conversation.
            offsets: int64 [n, 2] characters [begin, end) of each token. Tokenizers may trim blanks off them, so that a
                newline in front of a span has the empty range at its border: it must not count as inside.
            spans: Characters of the assistant turns.
        """
        supervised = np.zeros(len(tokens), dtype=bool)
        for begin, end in spans:
            inside = np.flatnonzero((offsets[:, 0] >= begin) & (offsets[:, 1] > begin) & (offsets[:, 1] <= end))
            ends = np.isin(tokens[inside], self.eos_ids).nonzero()[0]
            if len(ends):
                inside = inside[: ends[0] + 1]
            else:  # templates whose turn ends with a special token that is not listed as one that stops generation
                marks = np.isin(tokens[inside], self.special_ids).nonzero()[0]
                inside = inside[: marks[-1] + 1] if len(marks) else inside
            supervised[inside] = True
        return supervised


def _is_taught(turn: Mapping[str, Any]) -> bool:
    return turn.get("taught", True) is not False


def _messages(turns: Turns) -> list[dict[str, str]]:
    return [{"role": turn["role"], "content": turn["text"]} for turn in turns]
