"""Routes of `/v1`. Collections answer with and without trailing slash, never by a redirect (K7)."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import (
    agent_files,
    agent_tools,
    agents,
    ambient,
    approvals,
    blocks,
    conversations,
    folder_urls,
    identity_urls,
    job_urls,
    messages,
    models,
    registry_urls,
    runs,
    search_urls,
    steps,
    stored_messages,
    tools,
    traces,
    windows,
)

AGENT = r"^agents/(?P<agent_id>[^/]+)"
BLOCKS = rf"{AGENT}/core-memory/blocks"
CONVERSATION = r"^conversations/(?P<conversation_id>[^/]+)"
RUN = r"^runs/(?P<run_id>[^/]+)"
STEP = r"^steps/(?P<step_id>[^/]+)"

urlpatterns = [
    *search_urls.urlpatterns,
    *job_urls.urlpatterns,
    *identity_urls.urlpatterns,
    *folder_urls.urlpatterns,
    *registry_urls.urlpatterns,
    re_path(r"^health/?$", models.HealthView.as_view()),
    re_path(r"^ready/?$", models.ReadyView.as_view()),
    re_path(r"^models/?$", models.ModelsView.as_view()),
    re_path(r"^models/embedding/?$", models.EmbeddingModelsView.as_view()),
    re_path(r"^agents/?$", agents.AgentsView.as_view()),
    re_path(r"^agents/count/?$", agents.AgentCountView.as_view()),
    re_path(r"^agents/import/?$", agent_files.AgentImportView.as_view()),
    re_path(rf"{AGENT}/export/?$", agent_files.AgentExportView.as_view()),
    re_path(rf"{AGENT}/core-memory/?$", agents.CoreMemoryView.as_view()),
    re_path(rf"{BLOCKS}/?$", agents.AgentBlocksView.as_view()),
    re_path(rf"{BLOCKS}/attach/(?P<block_id>[^/]+)/?$", agents.AgentBlockAttachView.as_view()),
    re_path(rf"{BLOCKS}/detach/(?P<block_id>[^/]+)/?$", agents.AgentBlockDetachView.as_view()),
    re_path(rf"{BLOCKS}/(?P<label>.+?)/?$", agents.AgentBlockView.as_view()),
    re_path(rf"{AGENT}/messages/?$", messages.AgentMessagesView.as_view()),
    re_path(rf"{AGENT}/messages/stream/?$", messages.AgentMessagesStreamView.as_view()),
    re_path(rf"{AGENT}/messages/async/?$", messages.AgentMessagesAsyncView.as_view()),
    re_path(rf"{AGENT}/messages/cancel/?$", runs.AgentCancelView.as_view()),
    re_path(
        rf"{AGENT}/messages/(?P<message_id>[^/]+)/?$", stored_messages.EditedMessageView.as_view()
    ),
    re_path(rf"{AGENT}/reset-messages/?$", stored_messages.ResetMessagesView.as_view()),
    re_path(
        rf"{AGENT}/tools/approval/(?P<tool_name>[^/]+)/?$", approvals.ToolApprovalView.as_view()
    ),
    re_path(rf"{AGENT}/tools/?$", agent_tools.AgentToolsView.as_view()),
    re_path(
        rf"{AGENT}/tools/attach/(?P<tool_id>[^/]+)/?$", agent_tools.AgentToolAttachView.as_view()
    ),
    re_path(
        rf"{AGENT}/tools/detach/(?P<tool_id>[^/]+)/?$", agent_tools.AgentToolDetachView.as_view()
    ),
    re_path(rf"{AGENT}/tools/(?P<tool_name>[^/]+)/run/?$", agent_tools.AgentToolRunView.as_view()),
    re_path(rf"{AGENT}/approvals/?$", approvals.AgentApprovalsView.as_view()),
    re_path(
        rf"{AGENT}/approvals/(?P<tool_name>[^/]+)/?$", approvals.RememberedApprovalView.as_view()
    ),
    re_path(rf"{AGENT}/summarize/?$", windows.AgentSummarizeView.as_view()),
    re_path(rf"{AGENT}/recompile/?$", windows.AgentRecompileView.as_view()),
    re_path(rf"{AGENT}/system-prompt/recompile/?$", windows.AgentRecompileView.as_view()),
    re_path(rf"{AGENT}/context/?$", windows.AgentContextView.as_view()),
    re_path(rf"{AGENT}/?$", agents.AgentView.as_view()),
    re_path(r"^blocks/?$", blocks.BlocksView.as_view()),
    re_path(r"^blocks/count/?$", blocks.BlockCountView.as_view()),
    re_path(r"^blocks/(?P<block_id>[^/]+)/agents/?$", blocks.BlockAgentsView.as_view()),
    re_path(r"^blocks/(?P<block_id>[^/]+)/?$", blocks.BlockView.as_view()),
    re_path(r"^conversations/?$", conversations.ConversationsView.as_view()),
    re_path(rf"{CONVERSATION}/messages/?$", messages.ConversationMessagesView.as_view()),
    re_path(rf"{CONVERSATION}/stream/?$", messages.ConversationStreamView.as_view()),
    re_path(rf"{CONVERSATION}/events/?$", ambient.ConversationEventsView.as_view()),
    re_path(rf"{CONVERSATION}/cancel/?$", runs.ConversationCancelView.as_view()),
    re_path(rf"{CONVERSATION}/fork/?$", conversations.ConversationForkView.as_view()),
    re_path(rf"{CONVERSATION}/compact/?$", windows.ConversationCompactView.as_view()),
    re_path(rf"{CONVERSATION}/recompile/?$", windows.ConversationRecompileView.as_view()),
    re_path(rf"{CONVERSATION}/?$", conversations.ConversationView.as_view()),
    re_path(r"^runs/?$", runs.RunsView.as_view()),
    re_path(r"^runs/active/?$", runs.ActiveRunsView.as_view()),
    re_path(rf"{RUN}/messages/?$", runs.RunMessagesView.as_view()),
    re_path(rf"{RUN}/steps/?$", runs.RunStepsView.as_view()),
    re_path(rf"{RUN}/stream/?$", runs.RunStreamView.as_view()),
    re_path(rf"{RUN}/usage/?$", runs.RunUsageView.as_view()),
    re_path(rf"{RUN}/metrics/?$", runs.RunMetricsView.as_view()),
    re_path(rf"{RUN}/trace/?$", traces.RunTraceView.as_view()),
    re_path(rf"{RUN}/?$", runs.RunView.as_view()),
    re_path(r"^steps/?$", steps.StepsView.as_view()),
    re_path(rf"{STEP}/metrics/?$", steps.StepMetricsView.as_view()),
    re_path(rf"{STEP}/messages/?$", steps.StepMessagesView.as_view()),
    re_path(rf"{STEP}/feedback/?$", steps.StepFeedbackView.as_view()),
    re_path(rf"{STEP}/trace/?$", traces.StepTraceView.as_view()),
    re_path(rf"{STEP}/?$", steps.StepView.as_view()),
    re_path(r"^messages/?$", stored_messages.MessagesView.as_view()),
    re_path(r"^messages/(?P<message_id>[^/]+)/?$", stored_messages.MessageView.as_view()),
    re_path(r"^tools/?$", tools.ToolsView.as_view()),
    re_path(r"^tools/add-base-tools/?$", tools.AddBaseToolsView.as_view()),
    re_path(r"^tools/count/?$", tools.ToolCountView.as_view()),
    re_path(r"^tools/search/?$", tools.ToolSearchView.as_view()),
    re_path(r"^tools/run/?$", tools.RunSourceView.as_view()),
    re_path(r"^tools/generate-schema/?$", tools.GenerateSchemaView.as_view()),
    re_path(r"^tools/(?P<tool_id>[^/]+)/?$", tools.ToolView.as_view()),
]
