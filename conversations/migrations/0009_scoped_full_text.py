"""The full text of messages knows whose they are: agent and conversation stand in the FTS5 index, and
PostgreSQL keeps the tsvector instead of making it again for every row that it ranks."""

from __future__ import annotations

from django.db import migrations

SQLITE = [
    """CREATE VIRTUAL TABLE conversations_message_fts USING fts5(
        text, agent_id, conversation_id, content='conversations_message', content_rowid='row', tokenize='porter unicode61')""",
    """CREATE TRIGGER conversations_message_fts_insert AFTER INSERT ON conversations_message BEGIN
        INSERT INTO conversations_message_fts(rowid, text, agent_id, conversation_id) VALUES (new.row, new.text, new.agent_id, new.conversation_id); END""",
    """CREATE TRIGGER conversations_message_fts_delete AFTER DELETE ON conversations_message BEGIN
        INSERT INTO conversations_message_fts(conversations_message_fts, rowid, text, agent_id, conversation_id)
        VALUES ('delete', old.row, old.text, old.agent_id, old.conversation_id); END""",
    """CREATE TRIGGER conversations_message_fts_update AFTER UPDATE OF text, agent_id, conversation_id ON conversations_message BEGIN
        INSERT INTO conversations_message_fts(conversations_message_fts, rowid, text, agent_id, conversation_id)
        VALUES ('delete', old.row, old.text, old.agent_id, old.conversation_id);
        INSERT INTO conversations_message_fts(rowid, text, agent_id, conversation_id) VALUES (new.row, new.text, new.agent_id, new.conversation_id); END""",
    "INSERT INTO conversations_message_fts(conversations_message_fts) VALUES ('rebuild')",
]
SQLITE_REVERSE = [
    "DROP TRIGGER conversations_message_fts_update",
    "DROP TRIGGER conversations_message_fts_delete",
    "DROP TRIGGER conversations_message_fts_insert",
    "DROP TABLE conversations_message_fts",
]
POSTGRESQL = [
    """ALTER TABLE conversations_message ADD COLUMN search tsvector GENERATED ALWAYS AS
        (to_tsvector('english'::regconfig, COALESCE(LEFT(text, 100000), ''))) STORED""",
    "CREATE INDEX conversations_message_search ON conversations_message USING gin (search)",
]
POSTGRESQL_REVERSE = ["ALTER TABLE conversations_message DROP COLUMN search"]
OLD_SQLITE = [
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
    "INSERT INTO conversations_message_fts(conversations_message_fts) VALUES ('rebuild')",
]
OLD_POSTGRESQL = [
    """CREATE INDEX conversations_message_text_search ON conversations_message
        USING gin (to_tsvector('english'::regconfig, COALESCE(LEFT(text, 100000), '')))"""
]
OLD_POSTGRESQL_REVERSE = ["DROP INDEX conversations_message_text_search"]


def _run(schema_editor, sqlite, postgresql):
    for statement in sqlite if schema_editor.connection.vendor == "sqlite" else postgresql:
        schema_editor.execute(statement)


def forwards(apps, schema_editor):
    _run(schema_editor, [*SQLITE_REVERSE, *SQLITE], [*OLD_POSTGRESQL_REVERSE, *POSTGRESQL])


def backwards(apps, schema_editor):
    _run(schema_editor, [*SQLITE_REVERSE, *OLD_SQLITE], [*POSTGRESQL_REVERSE, *OLD_POSTGRESQL])


class Migration(migrations.Migration):
    dependencies = [("conversations", "0008_run_conversation_page")]
    operations = [migrations.RunPython(forwards, backwards)]
