"""The recipe's tokenizer: WordPiece trained on the data; lower case, no accents, ASCII alone."""

import os
import string
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from train.errors import UserError

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>", "<cls>", "<sep>", "<mask>")  # identifiers 0 to 6
PAD, UNKNOWN, CLS, SEP, MASK = (SPECIALS.index(name) for name in ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"))


def trained(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A WordPiece of at most `vocabulary` tokens, specials included.

    It encodes a pair as `<cls> A <sep> B <sep>`, and a single sentence with an empty B, as the recipe fine-tunes.
    The same text gives the same tokens: the trainer breaks ties by the order in which it meets the characters, which
    its hash maps change from run to run, so that they are given to it beforehand.
    """
    letters = string.digits + string.ascii_lowercase
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=[*SPECIALS, *letters, *string.punctuation, *(f"##{letter}" for letter in letters)],
        show_progress=False,
    )
    learner = _around(models.WordPiece(unk_token="<unk>"))
    learner.train_from_iterator(texts, trainer)
    tokenizer = _around(models.WordPiece(learner.get_vocab(), unk_token="<unk>"))
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<cls> $A <sep> <sep>", pair="<cls> $A <sep> $B <sep>", special_tokens=[("<cls>", CLS), ("<sep>", SEP)]
    )
    return tokenizer


def _around(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFD(),
            normalizers.Lowercase(),
            normalizers.StripAccents(),
            normalizers.Replace(Regex(r"[^\x00-\x7F]"), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def read(path: Path) -> Tokenizer:
    """A tokenizer.json of ours.

    Raises:
        UserError: it is not there, or is another's.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise UserError(f"{path} cannot be read as a tokenizer: {str(error).splitlines()[0]}") from None
    if [tokenizer.token_to_id(name) for name in SPECIALS] != list(range(len(SPECIALS))):
        raise UserError(f"{path} is not a tokenizer of ours: its first tokens are not {', '.join(SPECIALS)}")
    return tokenizer


def for_filter(name: str) -> Tokenizer | None:
    """The tokenizer that the trash filter counts with: a file, or one of the hub; None where it cannot be had.

    Its tokens are counted without specials and without truncation.
    """
    try:
        tokenizer = Tokenizer.from_file(name) if Path(name).is_file() else Tokenizer.from_pretrained(name)
    except Exception:  # no network, no such file: the caller falls back and says so
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def one_thread() -> None:
    """Keep the library to this thread: the workers are processes."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
