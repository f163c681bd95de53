"""Routes of providers, and of agents as models of OpenAI's clients."""

from __future__ import annotations

from django.urls import re_path

from conversations.api import completions, providers

PROVIDER = r"^providers/(?P<provider_id>[^/]+)"

urlpatterns = [
    re_path(r"^chat/completions/?$", completions.ChatCompletionsView.as_view()),
    re_path(
        r"^voice-beta/(?P<agent_id>[^/]+)/chat/completions/?$",
        completions.VoiceCompletionsView.as_view(),
    ),
    re_path(r"^providers/?$", providers.ProvidersView.as_view()),
    re_path(r"^providers/check/?$", providers.ProviderCheckNewView.as_view()),
    re_path(rf"{PROVIDER}/check/?$", providers.ProviderCheckView.as_view()),
    re_path(rf"{PROVIDER}/refresh/?$", providers.ProviderRefreshView.as_view()),
    re_path(rf"{PROVIDER}/?$", providers.ProviderView.as_view()),
]
