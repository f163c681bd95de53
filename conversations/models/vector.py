"""What messages mean, as numbers. Derived: may be deleted and is made again."""

from __future__ import annotations

from django.db import models

from agents.models import Agent
from conversations.models.conversation import Message


class MessageVector(models.Model):
    """The vector of one message (little-endian float32 of unit length), made by the model of that handle."""

    message = models.OneToOneField(
        Message, on_delete=models.CASCADE, primary_key=True, related_name="vector"
    )
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="message_vectors")
    model = models.CharField(max_length=255)
    vector = models.BinaryField()

    class Meta:
        indexes = [
            models.Index(fields=["agent", "model", "message"], name="vector_of_agent"),
            models.Index(fields=["model", "message"], name="vector_of_model"),
        ]

    def __str__(self) -> str:
        return f"vector of message row {self.pk}"
