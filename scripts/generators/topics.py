"""A small artificial language with topics, for pairs of documents that are about the same thing or not.

Every word is made of two or three syllables (a consonant and a vowel). A common vocabulary of 200 words, the n-th
1/n as frequent as the first, is shared by all; each topic has 12 words of its own, whose syllables begin with one of
the topic's five consonants. A document draws each word from its topic with probability 0.4, otherwise from the common
words; sentences are of 5 to 12 words. So both the topic's words and, more faintly, the bytes' frequencies tell.
"""

from dataclasses import dataclass

import numpy

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
COMMON_WORDS, TOPIC_WORDS, TOPIC_CONSONANTS = 200, 12, 5
TOPICAL = 0.4  # the share of a document's words that are its topic's


@dataclass(frozen=True)
class Language:
    """The words that a seed fixed."""

    common: list[str]
    cumulative: numpy.ndarray  # frequency of the common words up to each, the last 1
    topics: list[list[str]]


def _word(random: numpy.random.Generator, consonants: str) -> str:
    return "".join(
        consonants[random.integers(len(consonants))] + VOWELS[random.integers(len(VOWELS))]
        for _ in range(random.integers(2, 4))
    )


def _words(random: numpy.random.Generator, consonants: str, count: int, taken: set[str]) -> list[str]:
    words = []
    while len(words) < count:
        word = _word(random, consonants)
        if word not in taken:
            taken.add(word)
            words.append(word)
    return words


def language(seed: int, topics: int) -> Language:
    """The language of a seed; no word belongs to two vocabularies."""
    random, taken = numpy.random.default_rng([seed, 0]), set()
    common = _words(random, CONSONANTS, COMMON_WORDS, taken)
    own = []
    for _ in range(topics):
        consonants = "".join(random.permutation(list(CONSONANTS))[:TOPIC_CONSONANTS])
        own.append(_words(random, consonants, TOPIC_WORDS, taken))
    cumulative = (1 / numpy.arange(1, COMMON_WORDS + 1)).cumsum()
    return Language(common, cumulative / cumulative[-1], own)


def document(random: numpy.random.Generator, words: Language, topic: int, shortest: int, longest: int) -> str:
    """A text of `shortest` to `longest` bytes (uniform; the last sentence is cut there, as at a page's end)."""
    length = int(random.integers(shortest, longest + 1))
    sentences, size = [], 0
    while size <= length:
        count = int(random.integers(5, 13))
        topical = random.random(count) < TOPICAL
        own = random.integers(TOPIC_WORDS, size=count)
        shared = numpy.searchsorted(words.cumulative, random.random(count), "right")
        chosen = [
            words.topics[topic][a] if t else words.common[b] for t, a, b in zip(topical, own, shared, strict=True)
        ]
        sentences.append(" ".join(chosen).capitalize() + ".")
        size += len(sentences[-1]) + 1
    return " ".join(sentences)[:length].ljust(length, ".")


def pair(random: numpy.random.Generator, words: Language, shortest: int, longest: int) -> tuple[int, str, str]:
    """A label by a fair coin and two documents: 1, on one topic; 0, on two different ones."""
    label, topics = int(random.integers(2)), len(words.topics)
    one = int(random.integers(topics))
    other = one if label else (one + 1 + int(random.integers(topics - 1))) % topics
    first, second = (document(random, words, topic, shortest, longest) for topic in (one, other))
    return label, first, second
