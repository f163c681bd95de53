"""A long acquaintance between a person and an agent, made up deterministically, and questions about it.

Every question has one message that answers it. Kinds: `near` and `far` (somebody tells it, and
the question has a word or two of that beside the name, or none), `reply` (only the message
before it says whom it is about), `speaker` (both gave an opinion, the question names whose), `date` (the same
thing happened several times, the question names when).
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PHRASES: dict[str, Any] = json.loads(
    Path(__file__).with_name("search_phrases.json").read_text("utf-8")
)
PEOPLE: list[str] = PHRASES["people"].split()
START = datetime(2025, 1, 6, 9, 0, tzinfo=UTC)
DAYS = 420
DAYS_PER_CONVERSATION = 7
NAMED_SHARE = 0.15
USER, ASSISTANT = "user", "assistant"
KINDS = ("near", "far", "reply", "speaker", "date")


@dataclass(frozen=True)
class Said:
    """One message."""

    role: str
    text: str
    at: datetime


@dataclass(frozen=True)
class Question:
    """A question of the person; `answer` is the index of the message."""

    kind: str
    text: str
    answer: int


@dataclass(frozen=True)
class Corpus:
    """Messages, oldest first, in conversations that begin at `starts`."""

    messages: list[Said]
    starts: list[int]
    questions: list[Question]


Scene = tuple[list[tuple[str, str]], str, str, int]  # turns, kind, question, which turn answers


def make_corpus(seed: int, *, messages: int = 6000) -> Corpus:
    """Make about so many messages and some 400 questions; the same seed gives the same."""
    rng = random.Random(seed)
    scenes = [*_facts(rng), *_advice(rng), *_activities(rng)]
    by_day: list[list[Scene]] = [[] for _ in range(DAYS)]
    for scene in scenes:
        by_day[rng.randrange(DAYS)].append(scene)
    corpus = Corpus([], [], [])
    for day, todays in enumerate(by_day):
        at = START + timedelta(days=day, minutes=rng.randrange(300))
        if day % DAYS_PER_CONVERSATION == 0:
            corpus.starts.append(len(corpus.messages))
        left = messages * (day + 1) // DAYS - len(corpus.messages) - sum(len(s[0]) for s in todays)
        todays += [([_chatter(rng)], "", "", 0) for _ in range(left)]
        rng.shuffle(todays)
        for scene in todays:
            at = _play(corpus, scene, at, rng)
    return corpus


def _play(corpus: Corpus, scene: Scene, at: datetime, rng: random.Random) -> datetime:
    turns, kind, question, answer = scene
    for number, (role, text) in enumerate(turns):
        if kind and number == answer:
            corpus.questions.append(Question(kind, _dated(question, at), len(corpus.messages)))
        corpus.messages.append(Said(role, text, at))
        at += timedelta(seconds=rng.randrange(20, 240))
    return at


def _chatter(rng: random.Random) -> tuple[str, str]:
    one, other = rng.sample(PEOPLE, 2)
    named = rng.random() < NAMED_SHARE
    text = (
        rng.choice(PHRASES["chatter"]).format(p=one, q=other)
        if named
        else rng.choice(PHRASES["nameless"])
    )
    return rng.choice((USER, ASSISTANT)), f"{text} {rng.choice(PHRASES['nameless'])}"


def _facts(rng: random.Random) -> list[Scene]:
    scenes: list[Scene] = []
    for subject in PHRASES["subjects"]:
        for number, person in enumerate(rng.sample(PEOPLE, 14)):
            thing = rng.choice(subject["objects"])
            if number % 2:
                kind = rng.choice(("near", "far"))
                asks = subject["asks"][:2] if kind == "far" else subject["asks"][2:]
                question = rng.choice(asks).format(p=person)
                text = rng.choice(subject["says"]).format(p=person, o=thing)
                scenes.append(([(USER, text), _chatter(rng)], kind, question, 0))
            else:
                prompt = rng.choice(subject["prompts"]).format(p=person)
                question = rng.choice(subject["asks"][:2] + subject["recalls"] * 2).format(p=person)
                reply = rng.choice(subject["replies"]).format(p=person, o=thing)
                turns = [(ASSISTANT, prompt), (USER, reply), _chatter(rng)]
                scenes.append((turns, "reply", question, 1))
    return scenes


def _advice(rng: random.Random) -> list[Scene]:
    scenes: list[Scene] = []
    for trouble, remedy, paraphrase in PHRASES["advice"]:
        others = [a[1] for a in PHRASES["advice"] if a[1] != remedy]
        for speaker in (USER, ASSISTANT):
            answer = remedy if speaker == ASSISTANT else rng.choice(others)
            text = f"Against {trouble} I would take {answer}."
            who = "did you" if speaker == ASSISTANT else "did I"
            asked = rng.choice((trouble, paraphrase))
            question = rng.choice(
                (f"What {who} suggest for {asked}?", f"Which cure {who} mention for {asked}?")
            )
            lead = (ASSISTANT if speaker == USER else USER, f"And what about {trouble}?")
            scenes.append(([lead, (speaker, text), _chatter(rng)], "speaker", question, 1))
    return scenes


def _activities(rng: random.Random) -> list[Scene]:
    scenes: list[Scene] = []
    for activity, question, things in PHRASES["activities"]:
        for thing in things:
            text = f"Today I {activity.format(o=thing)}."
            scenes.append(([(USER, text), _chatter(rng)], "date", question + " {when}?", 0))
    rng.shuffle(scenes)
    return scenes


def _dated(question: str, at: datetime) -> str:
    forms = ("on %d %B %Y", "in %B %Y", "on %Y-%m-%d", "on %B %d, %Y")
    return question.replace("{when}", at.strftime(forms[at.day % len(forms)]))
