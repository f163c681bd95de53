"""`make bench-search`: how often the message that answers a question is among the first 5 and 10 found.

The conversations are made up (`search_corpus`). Search by meaning is measured when SOUVERAINE_EMBEDDING_MODEL and
its provider are set; else only search by words. Nothing is kept and no model's time counts: it measures what is
found, and what a search costs the database at 20 and at 20,000 messages.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

from souveraine.testing.bench.search_corpus import ASSISTANT, KINDS, START, Corpus, make_corpus

SEEDS = (2, 3)  # the weights were chosen with corpus 1
CUTS = (5, 10)
SIZES = (20, 2_000, 20_000)
TIMED_QUERIES = 40
FUSED = 50  # of each way, for the fusion of ranks
Method = Callable[[str], list[int]]


@dataclass(frozen=True)
class Stored:
    """A corpus in the database; `rows` are its messages' rows, in order."""

    corpus: Corpus
    agent: Any
    rows: list[int]


def store(corpus: Corpus, name: str) -> Stored:
    """Write the corpus as conversations of a new agent."""
    from agents.actor import first_user  # noqa: PLC0415  models load after django.setup()
    from agents.models import Agent  # noqa: PLC0415
    from conversations.models import Conversation, Message  # noqa: PLC0415

    agent = Agent.objects.create(
        owner=first_user(), name=name, model="bench/none", context_window=8192
    )
    starts = [*corpus.starts, len(corpus.messages)]
    rows: list[int] = []
    for begin, end in itertools.pairwise(starts):
        conversation = Conversation.objects.create(agent=agent)
        Message.objects.bulk_create(
            Message(
                conversation=conversation,
                agent=agent,
                sequence=number,
                role=said.role,
                text=said.text,
                created_at=said.at,
            )
            for number, said in enumerate(corpus.messages[begin:end], start=1)
        )
        made = Message.objects.filter(conversation=conversation).order_by("sequence")
        rows += made.values_list("row", flat=True)
    return Stored(corpus, agent, rows)


def embed_messages(stored: Stored, handle: str) -> None:
    """Give each message its vector."""
    from agents.providers import embeddings  # noqa: PLC0415
    from conversations.embedded import embedded_texts  # noqa: PLC0415
    from conversations.models import Message, MessageVector  # noqa: PLC0415

    texts = embedded_texts(Message.objects.filter(agent=stored.agent))
    vectors = embeddings.embed(handle, list(texts.values()))
    MessageVector.objects.bulk_create(
        MessageVector(message_id=row, agent=stored.agent, model=handle, vector=vector)
        for row, vector in zip(texts, vectors, strict=True)
    )


def methods(stored: Stored, handle: str) -> dict[str, Method]:
    """Return the ways of searching by name, from the plainest to the one that is used."""
    from conversations import search  # noqa: PLC0415

    place = search.Place(stored.agent.owner_id, stored.agent.pk)
    plain = search.Tuning(vector=0, answer=0, neighbour=0, speaker=0, date=0, day=0)
    known: dict[str, bytes] = {}

    def found(mode: Any, tuning: search.Tuning, limit: int = max(CUTS)) -> Method:
        def run(query: str) -> list[int]:
            wanted = search.MessageQuery(query, limit=limit, mode=mode)
            return [f.message.row for f in search.search_messages(place, wanted, tuning)]

        return run

    ways: dict[str, Method] = {
        "words": found("fts", plain),
        "words, neighbours": found("fts", replace(search.TUNING, speaker=0, date=0, day=0)),
        "words, speaker, date": found("fts", replace(search.TUNING, answer=0, neighbour=0)),
        "words, all signs": found("fts", search.TUNING),
    }
    if not handle:
        return ways
    _keep_query_vectors(known)
    weighted = replace(plain, vector=search.TUNING.vector)
    return ways | {
        "meaning": found("vector", replace(plain, vector=1.0)),
        "both, ranks, equal weights": lambda query: _rank_fusion(
            found("fts", plain, FUSED), found("vector", replace(plain, vector=1.0), FUSED), query
        ),
        "both, scores, equal weights": found("hybrid", replace(plain, vector=1.0)),
        "both, scores, weighted": found("hybrid", weighted),
        "both, weighted, all signs": found("hybrid", search.TUNING),
    }


def _rank_fusion(one: Method, other: Method, query: str) -> list[int]:
    scores: dict[int, float] = {}
    for found in (one(query), other(query)):
        for rank, row in enumerate(found, start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda row: -scores[row])


def _keep_query_vectors(known: dict[str, bytes]) -> None:
    """Ask for each question's vector once: the ways of searching share it."""
    from agents.providers import embeddings  # noqa: PLC0415

    ask = embeddings.embed

    def once(handle: str, texts: Any, **options: Any) -> list[bytes]:
        if len(texts) != 1:
            return ask(handle, texts, **options)
        if texts[0] not in known:
            known[texts[0]] = ask(handle, texts, **options)[0]
        return [known[texts[0]]]

    embeddings.embed = once


def measure(stored: Stored, method: Method) -> dict[str, list[float]]:
    """Return the share of questions whose answer is among the first of CUTS, by kind and together."""
    hits: dict[str, list[list[bool]]] = {kind: [] for kind in KINDS}
    for question in stored.corpus.questions:
        found = method(question.text)
        answer = stored.rows[question.answer]
        hits[question.kind].append([answer in found[:cut] for cut in CUTS])
    together = [hit for kind in KINDS for hit in hits[kind]]
    return {
        name: [sum(hit[n] for hit in found) / len(found) for n in range(len(CUTS))]
        for name, found in {"all": together, **hits}.items()
    }


def print_recall(seeds: tuple[int, ...], handle: str) -> None:
    """Print the table of recall, the mean of the corpora of all seeds."""
    results: dict[str, list[dict[str, list[float]]]] = {}
    for seed in seeds:
        stored = store(make_corpus(seed), f"corpus {seed}")
        if handle:
            embed_messages(stored, handle)
        for name, method in methods(stored, handle).items():
            results.setdefault(name, []).append(measure(stored, method))
    print(
        f"\n{len(seeds)} corpora of 6,000 messages, about 380 questions each; meaning: {handle or 'no model'}"
    )
    columns = ("all", *KINDS)
    print(f"| method | {' | '.join(f'{c} @5 | {c} @10' for c in columns)} |")
    print(f"|---|{'---|' * (2 * len(columns))}")
    for name, found in results.items():
        shares = [
            statistics.mean(f[c][n] for f in found) for c in columns for n in range(len(CUTS))
        ]
        print(f"| {name} | {' | '.join(f'{share:.0%}' for share in shares)} |")


def print_times() -> None:
    """Print what a search takes in a small and in a large conversation."""
    from agents.models import Agent  # noqa: PLC0415
    from conversations import search  # noqa: PLC0415
    from conversations.models import Conversation, Message  # noqa: PLC0415

    texts = [said.text for said in make_corpus(9).messages]
    questions = [q.text for q in make_corpus(9).questions][:TIMED_QUERIES]
    print("\n| one conversation of | search, median | search, slowest |\n|---|---|---|")
    for size in SIZES:
        agent = Agent.objects.create(
            id=uuid.uuid4(),
            owner=Agent.objects.all()[0].owner,
            name="t",
            model="bench/none",
            context_window=8192,
        )
        conversation = Conversation.objects.create(agent=agent)
        Message.objects.bulk_create(
            Message(
                conversation=conversation,
                agent=agent,
                sequence=number,
                role=ASSISTANT,
                text=texts[number % len(texts)],
                created_at=START + timedelta(minutes=number),
            )
            for number in range(size)
        )
        place = search.Place(agent.owner_id, agent.pk, conversation)
        times = []
        for question in questions:
            begun = time.perf_counter()
            search.search_messages(place, search.MessageQuery(question, mode="fts"))
            times.append((time.perf_counter() - begun) * 1000)
        print(f"| {size:,} messages | {statistics.median(times):.1f} ms | {max(times):.1f} ms |")


def main() -> None:
    """Measure in a data directory of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--no-times", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sv-bench-") as folder:
        os.environ["SOUVERAINE_DATA_DIR"] = str(Path(folder) / "data")
        os.environ["DJANGO_SETTINGS_MODULE"] = "souveraine.settings"
        django.setup()
        call_command("migrate", verbosity=0)
        print_recall(tuple(options.seeds), settings.CONFIG["SOUVERAINE_EMBEDDING_MODEL"])
        if not options.no_times:
            print_times()


if __name__ == "__main__":
    main()
