"""The bridge between an agent's rows and its memory repository.

HEAD is the truth for the blocks of one agent; Block rows are a cache with the commit they were read at.
A block of several agents is the row; the files are projections of it (architecture §4, §7).
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from agents.models import Agent, AgentBlock, AgentTag, Block
from agents.services.shared_repository import SharedRepository
from memfs import (
    SYSTEM_AUTHOR,
    Author,
    BlockFile,
    CommitMode,
    MemoryRepository,
    label_to_path,
    parse_block_file,
    path_to_label,
    render_block_file,
)
from souveraine import ids
from souveraine.errors import InvalidArgument, NotFound, SouveraineError
from souveraine.lib.replaceable import Replaceable
from souveraine.lib.text import clean_text

logger = logging.getLogger(__name__)
GIT_MEMORY_TAG = "git-memory-enabled"
RENDERINGS_KEPT = 50  # of a shared block; an older copy in some repository would count as an edit


def _repository_class() -> type[MemoryRepository]:
    """With PostgreSQL several hosts may share the agents' folders."""
    return SharedRepository if connection.vendor == "postgresql" else MemoryRepository


open_repository: Replaceable[Callable[[Path, CommitMode], MemoryRepository]] = Replaceable(
    _repository_class
)


def agents_dir() -> Path:
    """Return the folder of all agents."""
    return Path(settings.DATA_DIR) / "agents"


def agent_dir(agent: Agent) -> Path:
    """Return the agent's folder; its name is the bare UUID."""
    return agents_dir() / str(agent.pk)


def commit_mode(agent: Agent) -> CommitMode:
    """Return how writes to this agent's memory are kept."""
    if not agent.git_enabled:
        return CommitMode.FILES
    return CommitMode.COMMIT if agent.auto_commit else CommitMode.DEFERRED


def repository_of(agent: Agent) -> MemoryRepository:
    """Open the agent's repository."""
    return open_repository()(agent_dir(agent), commit_mode(agent))


def has_git_memory(agent: Agent) -> bool:
    """Tell whether the agent uses Letta's git mode, in which every *.md path is a label."""
    return AgentTag.objects.filter(agent=agent, tag=GIT_MEMORY_TAG).exists()


def block_file(block: Block) -> BlockFile:
    """Return the file form of a row."""
    return BlockFile(
        label=block.label,
        value=block.value,
        id=f"block-{block.pk}",
        description=block.description,
        limit=block.limit,
        read_only=block.read_only,
        metadata=block.metadata or {},
    )


def text_hash(text: str) -> str:
    """Return the hash by which a projection is recognised."""
    return hashlib.sha256(text.encode()).hexdigest()


def _apply_file(block: Block, file: BlockFile, warning: str | None) -> bool:
    """Copy a file's fields onto the row. Returns whether anything changed."""
    wanted = {
        "value": file.value,
        "description": file.description if file.description is not None else block.description,
        "limit": file.limit if file.limit is not None else block.limit,
        "read_only": file.read_only,
        "metadata": file.metadata or {},
        "warning": warning or "",
    }
    if warning:  # unreadable front matter says nothing about these
        wanted = {"value": file.value, "warning": warning}
    changed = {name for name, value in wanted.items() if getattr(block, name) != value}
    if warning and "warning" in changed:
        logger.warning("event=block_file_misread block_id=block-%s reason=%s", block.pk, warning)
    for name in changed:
        setattr(block, name, wanted[name])
    if changed:
        block.version += 1
        block.updated_at = timezone.now()
    return bool(changed)


def block_paths(repository: MemoryRepository, git_memory: bool) -> dict[str, str]:
    """Return {label: path} of all block files of a repository."""
    found = {}
    for entry in repository.list("" if git_memory else "system"):
        label = path_to_label(entry.path, git_memory)
        if label is not None:
            found[label] = entry.path
    return found


def sync_blocks(agent: Agent) -> Agent:
    """Bring the agent's Block rows up to HEAD; cheap when HEAD is the commit already read.

    Idempotent and safe for two at once: the agent row is locked before HEAD is read.
    """
    repository = repository_of(agent)
    is_tracked = commit_mode(agent) is CommitMode.COMMIT
    if is_tracked and repository.head() == agent.memory_commit:
        return agent
    with transaction.atomic():
        locked = Agent.objects.select_for_update().get(pk=agent.pk)
        head = repository.head() or ""
        stale: list[Block] = []
        if not (is_tracked and head == locked.memory_commit):
            stale = _read_blocks(locked, repository)
            if head != locked.memory_commit:
                Agent.objects.filter(pk=agent.pk).update(memory_commit=head)
        agent.memory_commit = head
    for block in stale:
        project_block(agent, block, SYSTEM_AUTHOR)
    return agent


def take_up_edits(agent: Agent) -> Agent:
    """Commit what people changed in the work tree (as `user`), then bring the rows up to HEAD.

    For turns, and for reads that people make right after an edit; looks at every file (1 ms, 5 ms at
    1,000 files). A tree that cannot be read is logged: it must stop neither.
    """
    try:
        if commit_mode(agent) is CommitMode.COMMIT:  # else the work tree is what is read anyway
            repository_of(agent).import_worktree_changes()
    except SouveraineError as exc:
        logger.warning("event=edits_not_taken_up agent_id=agent-%s error=%s", agent.pk, exc.message)
    return sync_blocks(agent)


def _read_blocks(agent: Agent, repository: MemoryRepository) -> list[Block]:
    """Bring the rows up to the files; returns the blocks whose file must be written anew."""
    git_memory = has_git_memory(agent)
    paths = block_paths(repository, git_memory)
    locked = AgentBlock.objects.filter(agent=agent).select_related("block").order_by("block_id")
    rows = {row.label: row for row in locked.select_for_update(of=("self", "block"))}
    stale = []
    for label, path in paths.items():
        text, file, warning = _read_file(repository, path)
        row = rows.get(label) or _renamed(rows, paths, label, file)
        if row is None:
            _adopt(agent, label, file, warning)
        elif not row.is_projected or is_shared(row.block):
            if _take_shared(row, text, file, warning):
                stale.append(row.block)
        elif _apply_file(row.block, file, warning):
            row.block.save()
    for row in rows.values():
        if row.label not in paths:
            if row.is_projected:
                _forget(row)
            else:  # attached, then the process died before the file was written
                stale.append(row.block)
    return stale


def _read_file(repository: MemoryRepository, path: str) -> tuple[str, BlockFile, str | None]:
    """Read one block file; what cannot be understood is a warning, never a failed turn."""
    try:
        text, problem = repository.read(path), None
    except InvalidArgument as exc:  # not UTF-8
        text, problem = repository.read_bytes(path).decode("utf-8", "replace"), exc.message
    file, warning = parse_block_file(path, text)
    cleaned = clean_text(file.value)
    if cleaned != file.value:
        file, problem = replace(file, value=cleaned), f"{path}: characters that cannot be stored"
    return text, file, warning or problem


def _renamed(
    rows: dict[str, AgentBlock], paths: dict[str, str], label: str, file: BlockFile
) -> AgentBlock | None:
    """Find the row of a file that was moved: the same id, and nothing left at the old place."""
    for row in rows.values():
        if file.id == f"block-{row.block_id}" and row.label not in paths:
            row.label = row.block.label = label
            row.save(update_fields=["label"])
            row.block.save(update_fields=["label"])
            return row
    return None


def _take_shared(row: AgentBlock, text: str, file: BlockFile, warning: str | None) -> bool:
    """Compare the file of a shared block with its row. Returns whether the file is out of date.

    A text that this server has rendered before is an old copy; any other one is somebody's edit.
    """
    block = row.block
    current, found = text_hash(render_block_file(block_file(block))), text_hash(text)
    if found == current:
        if not row.is_projected:
            AgentBlock.objects.filter(pk=row.pk).update(is_projected=True)
        return False
    if found in block.rendered:
        return True
    if _apply_file(block, file, warning):
        remember_rendering(block)
        block.save()
    return False


def note_rendering(block: Block) -> None:
    """Store the present rendering: the block is about to be shared. Others' edits are not overwritten."""
    with transaction.atomic():
        fresh = Block.objects.select_for_update().get(pk=block.pk)
        remember_rendering(fresh)
        fresh.version += 1  # so that an edit which has read the list already tries again
        fresh.save(update_fields=["rendered", "version"])


def remember_rendering(block: Block) -> None:
    """Note the text that the row's present state renders to, so that it is known as ours later."""
    found = text_hash(render_block_file(block_file(block)))
    kept = [known for known in block.rendered if known != found]
    block.rendered = [*kept, found][-RENDERINGS_KEPT:]


def _adopt(agent: Agent, label: str, file: BlockFile, warning: str | None) -> None:
    block = Block(
        owner_id=agent.owner_id,
        label=label,
        created_by=agent.owner_id,
        config={"own": str(agent.pk)},
    )
    given_id = _free_block_id(file.id)
    if given_id is not None:
        block.pk = given_id
    block.limit = None
    _apply_file(block, file, warning)
    block.version = 1
    block.save()
    attach_row(agent, block, is_projected=True)


def _free_block_id(text: str | None) -> uuid.UUID | None:
    """Return the id that a file's front matter gives, unless it is malformed or another block's."""
    try:
        found = ids.parse(ids.BLOCK, text or "")
    except ids.MalformedId:
        return None
    return None if Block.objects.filter(pk=found).exists() else found


def _forget(row: AgentBlock) -> None:
    """Detach a block whose file is gone; one that belonged to this agent alone goes with it."""
    is_own = row.block.config.get("own") == str(row.agent_id) and not is_shared(row.block)
    row.delete()
    if is_own:
        row.block.delete()


def is_shared(block: Block) -> bool:
    """Tell whether several agents have the block (then the row is the truth)."""
    return AgentBlock.objects.filter(block=block)[:2].count() > 1


def attach_row(agent: Agent, block: Block, *, is_projected: bool = False) -> AgentBlock:
    """Attach at the end of the agent's blocks."""
    last = AgentBlock.objects.filter(agent=agent).aggregate(last=Max("position"))["last"]
    position = 0 if last is None else last + 1
    return AgentBlock.objects.create(
        agent=agent,
        block=block,
        label=block.label,
        position=position,
        is_projected=is_projected,
    )


def project_block(agent: Agent, block: Block, author: Author) -> None:
    """Write the row's present state into the agent's repository, when it differs.

    The row is read under the repository lock: of two at once the later one writes the newer state.
    """
    path = label_to_path(block.label, has_git_memory(agent))

    def render(_current: str | None) -> str:
        fresh = Block.objects.get(pk=block.pk)
        fresh.label = block.label
        return render_block_file(block_file(fresh))

    repository_of(agent).transform(path, render, author)
    AgentBlock.objects.filter(agent=agent, block=block).update(is_projected=True)


def edit_file(
    agent: Agent, block: Block, change: Callable[[BlockFile], BlockFile], author: Author
) -> None:
    """Read-modify-write the block's file under the repository lock, then refresh the rows."""
    path = label_to_path(block.label, has_git_memory(agent))
    outcomes: list[BlockFile] = []

    def transform(text: str | None) -> str:
        current = block_file(block)
        if text is not None:
            parsed, warning = parse_block_file(path, text)
            current = replace(current, value=parsed.value) if warning else _merged(current, parsed)
        after = change(current)
        outcomes.append(after)
        return render_block_file(after)

    repository_of(agent).transform(path, transform, author)
    if outcomes:  # a file says nothing about "unlimited" and "no description"
        after = outcomes[-1]
        Block.objects.filter(pk=block.pk).update(limit=after.limit, description=after.description)
    sync_blocks(agent)


def _merged(row: BlockFile, file: BlockFile) -> BlockFile:
    return BlockFile(
        label=row.label,
        value=file.value,
        id=row.id,
        description=file.description if file.description is not None else row.description,
        limit=file.limit if file.limit is not None else row.limit,
        read_only=file.read_only,
        metadata=file.metadata,
        extra=file.extra,
    )


def provision(agent: Agent, files: Mapping[str, str], author: Author) -> Path:
    """Build the agent's folder under a temporary name of its own; the caller moves it into place."""
    folder = agents_dir() / f".creating-{agent.pk}-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir(parents=True)
        (folder / "conversations").mkdir()
        MemoryRepository.create(folder, files, author, mode=commit_mode(agent))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def remove(agent: Agent) -> None:
    """Remove the agent's folder. Idempotent; renamed first, so that it is gone at once."""
    folder = agent_dir(agent)
    grave = agents_dir() / f".deleting-{agent.pk}"
    try:
        folder.rename(grave)
    except FileNotFoundError:
        pass
    shutil.rmtree(grave, ignore_errors=True)


def read_memory_file(agent: Agent, path: str) -> str:
    """Return a memory file's text. Raises NotFound."""
    repository = repository_of(agent)
    if not repository.exists(path):
        raise NotFound(f"The agent's memory has no file {path!r}.")
    return repository.read(path)
