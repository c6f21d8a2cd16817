"""Text that the project makes itself, where no other is at hand: English-like, with something to learn from context.

A paragraph has a topic, and its nouns, verbs and places come from that topic's own few words; subject and verb agree,
and names come back as pronouns. It shows that pre-training works; nothing learned from it is about English.
"""

import random
from pathlib import Path

TOPICS = 40
BOOKS = 12
NAMES = {"he": ("Tom", "Adam", "Ralph", "Hugh"), "she": ("Anne", "Clara", "Ruth", "Edith")}
ADJECTIVES = ("old", "small", "quiet", "bright", "heavy", "narrow", "warm", "strange", "broken", "clean")
ADVERBS = ("slowly", "at once", "again", "with care", "in silence", "before noon")
LINKS = ("and", "but", "because", "while", "after which")
HEADS = ("b", "br", "c", "d", "f", "g", "gr", "h", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "w")
VOWELS = ("a", "e", "i", "o", "u", "ai", "oo", "ea")
TAILS = ("", "n", "r", "l", "st", "ck", "m", "nd", "sh")


def words(draw: random.Random, count: int, syllables: int) -> list[str]:
    """So many distinct invented words."""
    found: dict[str, None] = {}
    while len(found) < count:
        parts = ((draw.choice(HEADS), draw.choice(VOWELS), draw.choice(TAILS)) for _ in range(syllables))
        found["".join("".join(part) for part in parts)] = None
    return list(found)


def paragraph(draw: random.Random, topic: dict[str, list[str]]) -> str:
    """Three to nine sentences on one topic, about one person."""
    pronoun = draw.choice(list(NAMES))
    name = draw.choice(NAMES[pronoun])

    def thing() -> str:
        noun = draw.choice(topic["nouns"])
        return f"the {draw.choice(ADJECTIVES)} {noun}" if draw.random() < 0.4 else f"the {noun}"

    def clause(subject: str) -> str:
        verb = draw.choice(topic["verbs"])
        if draw.random() < 0.3:
            nouns = draw.choice(topic["nouns"]) + "s"
            return f"the {nouns} {verb} {thing()}"
        end = f" near the {draw.choice(topic['places'])}" if draw.random() < 0.4 else f" {draw.choice(ADVERBS)}"
        return f"{subject} {verb}s {thing()}{end}"

    sentences = []
    for index in range(draw.randint(3, 9)):
        text = clause(name if index == 0 else pronoun)
        if draw.random() < 0.4:
            text += f"{draw.choice((',', ''))} {draw.choice(LINKS)} {clause(pronoun)}"
        sentences.append(text[0].upper() + text[1:] + ".")
    return " ".join(sentences)


def make(folder: Path, megabytes: int) -> None:
    """Write `megabytes` of text as twelve books; always the same.

    Args:
        folder: an existing folder; book-00.txt to book-11.txt are written there.
    """
    draw = random.Random(0)
    topics = [
        {"nouns": words(draw, 12, 2), "verbs": words(draw, 8, 1), "places": words(draw, 4, 2)} for _ in range(TOPICS)
    ]
    for book in range(BOOKS):
        size = 0
        unfinished = folder / f".book-{book:02d}.tmp"
        with open(unfinished, "w") as file:
            while size < megabytes * 1_000_000 // BOOKS:
                size += file.write(paragraph(draw, draw.choice(topics)) + "\n\n")
        unfinished.replace(folder / f"book-{book:02d}.txt")
