"""`/v1/archives`, an agent's archival memory, and the search in passages."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from agents.archive_selectors import (
    archives_of,
    archives_of_agent,
    get_archive,
    list_archives,
    list_passages,
    search_passages,
)
from agents.models import Archive
from agents.selectors import agents_of, get_agent
from agents.services import archives as services
from agents.services.embedding import change_model
from conversations.api.archive_bodies import (
    ArchivalSearch,
    ArchiveAgentsQuery,
    ArchiveCreate,
    ArchiveFilters,
    ArchiveUpdate,
    CreateArchivalMemory,
    PassageBatchCreate,
    PassageCreate,
    PassageFilters,
    PassageSearch,
)
from conversations.api.base import ApiView, cursor
from conversations.wire.agents import agent_states, wanted_relationships
from conversations.wire.archives import (
    archival_result,
    archive_state,
    passage_result,
    passage_state,
)
from souveraine import ids
from souveraine.api.pagination import page
from souveraine.api.validation import parse_body, parse_id, parse_query
from souveraine.errors import NotFound

DEFAULT_RESULTS = 10


def new_passage(body: CreateArchivalMemory) -> services.NewPassage:
    """Return what a body asks to keep."""
    metadata = body.metadata if isinstance(body, PassageCreate) else None
    return services.NewPassage(body.text, body.tags, metadata or {}, body.created_at)


class ArchiveApiView(ApiView):
    """A view of one archive."""

    def archive(self, text: str) -> Archive:
        """Return the archive of the path. Raises ValidationFailed or NotFound."""
        return get_archive(self.actor, parse_id(ids.ARCHIVE, text))


class ArchivesView(ApiView):
    """The collection."""

    query_model = ArchiveFilters

    @extend_schema(operation_id="archives_list")
    def get(self, request: Request) -> Response:
        """List archives, newest first."""
        query = parse_query(ArchiveFilters, request)
        agent_id = cursor(ids.AGENT, query.agent_id or None, "agent_id")
        found = list_archives(
            self.actor,
            agent=get_agent(self.actor, agent_id) if agent_id else None,
            name=query.name,
            ascending=query.order == "asc",
            limit=query.limit,
            after=cursor(ids.ARCHIVE, query.after, "after"),
            before=cursor(ids.ARCHIVE, query.before, "before"),
        )
        return Response([archive_state(archive) for archive in found])

    @extend_schema(operation_id="archives_create", request=ArchiveCreate)
    def post(self, request: Request) -> Response:
        """Create an archive that no agent has yet."""
        data = parse_body(ArchiveCreate, request).model_dump(exclude_unset=True)
        return Response(archive_state(services.create_archive(self.actor, data)))


class ArchiveView(ArchiveApiView):
    """One archive."""

    @extend_schema(operation_id="archives_retrieve")
    def get(self, request: Request, archive_id: str) -> Response:
        """Return the archive."""
        return Response(archive_state(self.archive(archive_id)))

    @extend_schema(operation_id="archives_update", request=ArchiveUpdate)
    def patch(self, request: Request, archive_id: str) -> Response:
        """Change what the body names; null means unchanged, as on the old server.

        Another `embedding` ("" = none) starts the job `embedding_job_id`.
        """
        data = parse_body(ArchiveUpdate, request).model_dump(exclude_none=True)
        archive = self.archive(archive_id)
        job = None
        if "embedding" in data:
            job = change_model(self.actor, archive, data.pop("embedding"))
        changed = services.update_archive(self.actor, archive, data)
        job_id = {"embedding_job_id": ids.make(ids.JOB, job.pk)} if job else {}
        return Response({**archive_state(changed), **job_id})

    @extend_schema(operation_id="archives_delete", responses={204: None})
    def delete(self, request: Request, archive_id: str) -> Response:
        """Delete the archive with its passages and detach it everywhere."""
        services.delete_archive(self.archive(archive_id))
        return Response(status=204)


class ArchiveAgentsView(ArchiveApiView):
    """Who has an archive."""

    query_model = ArchiveAgentsQuery

    @extend_schema(operation_id="archives_agents_list")
    def get(self, request: Request, archive_id: str) -> Response:
        """List the agents that the archive is attached to, newest first."""
        archive = self.archive(archive_id)
        query = parse_query(ArchiveAgentsQuery, request)
        after = cursor(ids.AGENT, query.after, "after")
        before = cursor(ids.AGENT, query.before, "before")
        agents = page(
            agents_of(self.actor).filter(archive_rows__archive=archive),
            field="created_at",
            ascending=query.order == "asc",
            limit=query.limit,
            after=get_agent(self.actor, after) if after else None,
            before=get_agent(self.actor, before) if before else None,
        )
        wanted = wanted_relationships(request.META, query.include, None)
        return Response(agent_states(self.actor, agents, wanted))


class ArchivePassagesView(ArchiveApiView):
    """The passages of an archive."""

    @extend_schema(operation_id="archives_passages_create", request=PassageCreate)
    def post(self, request: Request, archive_id: str) -> Response:
        """Insert one passage."""
        body = parse_body(PassageCreate, request)
        archive = self.archive(archive_id)
        [passage] = services.insert_passages(self.actor, archive, [new_passage(body)])
        return Response(passage_state(passage))


class ArchivePassageBatchView(ArchiveApiView):
    """Many passages at once."""

    @extend_schema(operation_id="archives_passages_create_many", request=PassageBatchCreate)
    def post(self, request: Request, archive_id: str) -> Response:
        """Insert passages, all or none, and return them in order."""
        body = parse_body(PassageBatchCreate, request)
        archive = self.archive(archive_id)
        new = [new_passage(entry) for entry in body.passages]
        passages = services.insert_passages(self.actor, archive, new)
        return Response([passage_state(passage) for passage in passages])


class ArchivePassageView(ArchiveApiView):
    """One passage of an archive."""

    @extend_schema(operation_id="archives_passages_delete", responses={204: None})
    def delete(self, request: Request, archive_id: str, passage_id: str) -> Response:
        """Delete the passage."""
        archive = self.archive(archive_id)
        delete_passage([archive], passage_id)
        return Response(status=204)


def delete_passage(archives: list[Archive], text: str) -> None:
    """Delete the passage of a path id. Raises ValidationFailed or NotFound."""
    passage_id = parse_id(ids.PASSAGE, text)
    if not services.delete_passage(archives, passage_id):
        raise NotFound(f"Passage with id 'passage-{passage_id}' not found")


class AgentArchiveAttachView(ArchiveApiView):
    """Attaching an archive."""

    @extend_schema(operation_id="agents_archives_attach")
    def patch(self, request: Request, agent_id: str, archive_id: str) -> Response:
        """Attach; again changes nothing."""
        services.attach_archive(self.agent(agent_id), self.archive(archive_id))
        return Response(None)


class AgentArchiveDetachView(ArchiveApiView):
    """Detaching an archive."""

    @extend_schema(operation_id="agents_archives_detach")
    def patch(self, request: Request, agent_id: str, archive_id: str) -> Response:
        """Detach; the archive stays. Again changes nothing."""
        services.detach_archive(self.agent(agent_id), self.archive(archive_id))
        return Response(None)


class ArchivalMemoryView(ApiView):
    """The passages that an agent can find."""

    query_model = PassageFilters

    @extend_schema(operation_id="agents_passages_list")
    def get(self, request: Request, agent_id: str) -> Response:
        """List passages, oldest first; `search` keeps those with all of its words."""
        agent = self.agent(agent_id)
        query = parse_query(PassageFilters, request)
        found = list_passages(
            archives_of_agent(agent),
            search=query.search,
            ascending=query.ascending,
            limit=query.limit,
            after=cursor(ids.PASSAGE, query.after, "after"),
            before=cursor(ids.PASSAGE, query.before, "before"),
        )
        return Response([passage_state(passage) for passage in found])

    @extend_schema(operation_id="agents_passages_create", request=CreateArchivalMemory)
    def post(self, request: Request, agent_id: str) -> Response:
        """Insert a passage into the agent's archive, which is made when it has none; returns a list of it."""
        agent = self.agent(agent_id)
        body = parse_body(CreateArchivalMemory, request)
        archive = services.archive_for_insert(self.actor, agent)
        passages = services.insert_passages(self.actor, archive, [new_passage(body)])
        return Response([passage_state(passage) for passage in passages])


class ArchivalMemorySearchView(ApiView):
    """Searching them."""

    query_model = ArchivalSearch

    @extend_schema(operation_id="agents_passages_search")
    def get(self, request: Request, agent_id: str) -> Response:
        """Return the best passages for a question, best first."""
        agent = self.agent(agent_id)
        query = parse_query(ArchivalSearch, request)
        found = search_passages(archives_of_agent(agent), query.wanted(DEFAULT_RESULTS))
        results = [archival_result(f) for f in found]
        return Response({"results": results, "count": len(results)})


class ArchivalPassageView(ApiView):
    """One passage of an agent."""

    @extend_schema(operation_id="agents_passages_delete")
    def delete(self, request: Request, agent_id: str, memory_id: str) -> Response:
        """Delete the passage."""
        delete_passage(archives_of_agent(self.agent(agent_id)), memory_id)
        return Response(None)


class PassageSearchView(ApiView):
    """Searching passages wherever they are."""

    @extend_schema(operation_id="passages_search", request=PassageSearch)
    def post(self, request: Request) -> Response:
        """Return the best passages with their scores, best first; without a query the newest."""
        body = parse_body(PassageSearch, request)
        found = search_passages(self._archives(body), body.wanted())
        return Response([passage_result(f) for f in found])

    def _archives(self, body: PassageSearch) -> list[Archive]:
        if body.archive_id:
            archive = get_archive(self.actor, parse_id(ids.ARCHIVE, body.archive_id, source="body"))
            if not body.agent_id:
                return [archive]
        if body.agent_id:
            agent = get_agent(self.actor, parse_id(ids.AGENT, body.agent_id, source="body"))
            own = archives_of_agent(agent)
            return [a for a in own if a == archive] if body.archive_id else own
        return list(archives_of(self.actor))
