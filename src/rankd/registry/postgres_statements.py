"""The registry's statements on PostgreSQL.

A change is one statement, so that it is one round trip and one transaction: whoever is named there can be found by id
(`met`), and other processes hear whose memory to forget (`noted`). Players are met in the order of their ids: two
statements that meet the same newcomers wait for each other, and never both.
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

FRIENDS = "SELECT friends FROM registry_friends WHERE player = %s"

MEET = """
INSERT INTO registry_players (id)
SELECT DISTINCT id COLLATE "C" FROM unnest(%s::text[]) AS met (id) ORDER BY id COLLATE "C"
ON CONFLICT DO NOTHING
"""

SET_PROFILE = """
WITH met AS (INSERT INTO registry_players (id) VALUES (%(player)s) ON CONFLICT DO NOTHING),
     noted AS (INSERT INTO registry_changes (player) VALUES (%(player)s))
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
     noted AS (INSERT INTO registry_changes (player) VALUES (%(player)s))
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

SET_FRIENDS = """
WITH met AS (INSERT INTO registry_players (id)
             SELECT DISTINCT id COLLATE "C" FROM unnest(%(met)s::text[]) AS met (id) ORDER BY id COLLATE "C"
             ON CONFLICT DO NOTHING),
     noted AS (INSERT INTO registry_changes (player) VALUES (%(player)s))
INSERT INTO registry_friends (player, friends)
VALUES (%(player)s, %(friends)s)
ON CONFLICT (player) DO UPDATE
SET friends = excluded.friends
"""

# The start of the server tells it from one that was promoted, where the same transaction ids may mean others.
LOOK = """
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
