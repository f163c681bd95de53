"""All routes of the server."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerView

urlpatterns = [
    re_path(r"^(?:admin)?$", RedirectView.as_view(pattern_name="admin:index")),
    path("v1/", include("conversations.api.urls")),
    path("admin/", admin.site.urls),
    re_path(r"^(v1/)?openapi\.json$", SpectacularJSONAPIView.as_view(), name="openapi"),
    re_path(r"^docs/?$", SpectacularSwaggerView.as_view(url_name="openapi"), name="docs"),
]
handler400 = "souveraine.api.exceptions.bad_request"
handler404 = "souveraine.api.exceptions.not_found"
handler500 = "souveraine.api.exceptions.server_error"
