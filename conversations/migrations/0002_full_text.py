"""Full text over message texts: an external-content FTS5 table with triggers, a GIN index on PostgreSQL."""

from __future__ import annotations

from django.db import migrations

SQLITE = [
    """CREATE VIRTUAL TABLE conversations_message_fts USING fts5(
        text, content='conversations_message', content_rowid='row', tokenize='porter unicode61')""",
    """CREATE TRIGGER conversations_message_fts_insert AFTER INSERT ON conversations_message BEGIN
        INSERT INTO conversations_message_fts(rowid, text) VALUES (new.row, new.text); END""",
    """CREATE TRIGGER conversations_message_fts_delete AFTER DELETE ON conversations_message BEGIN
        INSERT INTO conversations_message_fts(conversations_message_fts, rowid, text)
        VALUES ('delete', old.row, old.text); END""",
    """CREATE TRIGGER conversations_message_fts_update AFTER UPDATE OF text ON conversations_message BEGIN
        INSERT INTO conversations_message_fts(conversations_message_fts, rowid, text)
        VALUES ('delete', old.row, old.text);
        INSERT INTO conversations_message_fts(rowid, text) VALUES (new.row, new.text); END""",
]
SQLITE_REVERSE = [
    "DROP TRIGGER conversations_message_fts_update",
    "DROP TRIGGER conversations_message_fts_delete",
    "DROP TRIGGER conversations_message_fts_insert",
    "DROP TABLE conversations_message_fts",
]
POSTGRESQL = [
    """CREATE INDEX conversations_message_text_search ON conversations_message
        USING gin (to_tsvector('english'::regconfig, COALESCE(LEFT(text, 100000), '')))"""
]
POSTGRESQL_REVERSE = ["DROP INDEX conversations_message_text_search"]


def _run(schema_editor, sqlite, postgresql):
    for statement in sqlite if schema_editor.connection.vendor == "sqlite" else postgresql:
        schema_editor.execute(statement)


def forwards(apps, schema_editor):
    _run(schema_editor, SQLITE, POSTGRESQL)


def backwards(apps, schema_editor):
    _run(schema_editor, SQLITE_REVERSE, POSTGRESQL_REVERSE)


class Migration(migrations.Migration):
    dependencies = [("conversations", "0001_initial")]
    operations = [migrations.RunPython(forwards, backwards)]
