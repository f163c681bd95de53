"""Full text over passages: FTS5 with triggers on SQLite, a stored tsvector on PostgreSQL."""

from __future__ import annotations

from django.db import migrations

SQLITE = [
    """CREATE VIRTUAL TABLE agents_passage_fts USING fts5(
        text, archive_id, content='agents_passage', content_rowid='row', tokenize='porter unicode61')""",
    """CREATE TRIGGER agents_passage_fts_insert AFTER INSERT ON agents_passage BEGIN
        INSERT INTO agents_passage_fts(rowid, text, archive_id) VALUES (new.row, new.text, new.archive_id); END""",
    """CREATE TRIGGER agents_passage_fts_delete AFTER DELETE ON agents_passage BEGIN
        INSERT INTO agents_passage_fts(agents_passage_fts, rowid, text, archive_id)
        VALUES ('delete', old.row, old.text, old.archive_id); END""",
    """CREATE TRIGGER agents_passage_fts_update AFTER UPDATE OF text, archive_id ON agents_passage BEGIN
        INSERT INTO agents_passage_fts(agents_passage_fts, rowid, text, archive_id)
        VALUES ('delete', old.row, old.text, old.archive_id);
        INSERT INTO agents_passage_fts(rowid, text, archive_id) VALUES (new.row, new.text, new.archive_id); END""",
    "INSERT INTO agents_passage_fts(agents_passage_fts) VALUES ('rebuild')",
]
SQLITE_REVERSE = [
    "DROP TRIGGER agents_passage_fts_update",
    "DROP TRIGGER agents_passage_fts_delete",
    "DROP TRIGGER agents_passage_fts_insert",
    "DROP TABLE agents_passage_fts",
]
POSTGRESQL = [
    """ALTER TABLE agents_passage ADD COLUMN search tsvector GENERATED ALWAYS AS
        (to_tsvector('english'::regconfig, COALESCE(LEFT(text, 100000), ''))) STORED""",
    "CREATE INDEX agents_passage_search ON agents_passage USING gin (search)",
]
POSTGRESQL_REVERSE = ["ALTER TABLE agents_passage DROP COLUMN search"]


def _run(schema_editor, sqlite, postgresql):
    for statement in sqlite if schema_editor.connection.vendor == "sqlite" else postgresql:
        schema_editor.execute(statement)


def forwards(apps, schema_editor):
    _run(schema_editor, SQLITE, POSTGRESQL)


def backwards(apps, schema_editor):
    _run(schema_editor, SQLITE_REVERSE, POSTGRESQL_REVERSE)


class Migration(migrations.Migration):
    dependencies = [("agents", "0004_archives")]
    operations = [migrations.RunPython(forwards, backwards)]
