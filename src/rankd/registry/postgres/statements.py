"""The registry's statements on PostgreSQL.

A change is one statement, so one round trip and one transaction: it registers the player for search by id (`met`), and
records the change for other processes' caches (`recorded`). Players are registered in the order of their ids, so that
no two statements deadlock.
"""

from __future__ import annotations

PROFILES = """
SELECT player, name, avatar_url, country, attributes
FROM registry_profiles
WHERE player = ANY (%s)
"""

BY_ID = """
SELECT id, name, avatar_url, country, attributes
FROM registry_players LEFT JOIN registry_profiles ON player = id
WHERE id >= %s AND id < %s
ORDER BY id
LIMIT %s
"""

BY_NAME = """
SELECT player, name, avatar_url, country, attributes
FROM registry_profiles
WHERE name_key >= %s AND name_key < %s
ORDER BY name_key, player
LIMIT %s
"""

FRIENDS = "SELECT player, friends FROM registry_friends WHERE player = ANY (%s)"

MEET = """
INSERT INTO registry_players (id)
SELECT DISTINCT id COLLATE "C" FROM unnest(%s::text[]) AS met (id) ORDER BY id COLLATE "C"
ON CONFLICT DO NOTHING
"""

SET_PROFILE = """
WITH met AS (INSERT INTO registry_players (id) VALUES (%(player)s) ON CONFLICT DO NOTHING),
     recorded AS (INSERT INTO registry_changes (player) VALUES (%(player)s))
INSERT INTO registry_profiles (player, name, name_key, avatar_url, country, attributes)
VALUES (%(player)s, %(name)s, %(name_key)s, %(avatar_url)s, %(country)s, %(attributes)s)
ON CONFLICT (player) DO UPDATE
SET name = excluded.name,
    name_key = excluded.name_key,
    avatar_url = excluded.avatar_url,
    country = excluded.country,
    attributes = excluded.attributes
RETURNING player, name, avatar_url, country, attributes
"""

FILL_PROFILE = """
WITH met AS (INSERT INTO registry_players (id) VALUES (%(player)s) ON CONFLICT DO NOTHING),
     recorded AS (INSERT INTO registry_changes (player) VALUES (%(player)s))
INSERT INTO registry_profiles AS held (player, name, name_key, avatar_url, country, attributes)
VALUES (%(player)s, %(name)s, %(name_key)s, %(avatar_url)s, %(country)s, %(attributes)s)
ON CONFLICT (player) DO UPDATE
SET name = coalesce(excluded.name, held.name),
    name_key = coalesce(excluded.name_key, held.name_key),
    avatar_url = coalesce(excluded.avatar_url, held.avatar_url),
    country = coalesce(excluded.country, held.country),
    attributes = coalesce(excluded.attributes, held.attributes)
RETURNING player, name, avatar_url, country, attributes
"""

# The limit applies to the table's size, including space that vacuum has not freed yet.
SET_FRIENDS = """
WITH room AS (SELECT pg_table_size('registry_friends') < %(bytes_max)s
                  OR EXISTS (SELECT FROM registry_friends
                             WHERE player = %(player)s AND cardinality(friends) >= cardinality(%(friends)s::text[]))
                  AS is_left),
     recorded AS (INSERT INTO registry_changes (player) SELECT %(player)s FROM room WHERE is_left)
INSERT INTO registry_friends (player, friends)
SELECT %(player)s, %(friends)s FROM room WHERE is_left
ON CONFLICT (player) DO UPDATE
SET friends = excluded.friends
"""

CLEAR_FRIENDS = """
WITH recorded AS (INSERT INTO registry_changes (player) VALUES (%(player)s))
DELETE FROM registry_friends WHERE player = %(player)s
"""

# The server's start time identifies it: on a promoted server, the same transaction ids may mean other transactions.
POLL = """
SELECT pg_current_snapshot()::text,
       pg_postmaster_start_time()::text,
       now()::text,
       coalesce(now() - %(seen_at)s::timestamptz > make_interval(secs => %(away_s)s), true),
       EXISTS (SELECT FROM registry_profiles),
       ARRAY(SELECT DISTINCT player
             FROM registry_changes
             WHERE writer >= pg_snapshot_xmin(%(snapshot)s::pg_snapshot)
               AND NOT pg_visible_in_snapshot(writer, %(snapshot)s::pg_snapshot)
             LIMIT %(limit)s)
"""

PRUNE = """
DELETE FROM registry_changes
WHERE ctid = ANY (ARRAY(SELECT ctid
                        FROM registry_changes
                        WHERE changed_at < now() - make_interval(secs => %s)
                        LIMIT %s
                        FOR UPDATE SKIP LOCKED))
"""
