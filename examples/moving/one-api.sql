-- The keys of one-api, in its units: import them with --per-credit 500000.
-- SQLite:     sqlite3 -readonly -csv -header one-api.db < one-api.sql > keys.csv
-- PostgreSQL: psql "$SQL_DSN" --csv --quiet -f one-api.sql > keys.csv
-- MySQL:      (echo "SET sql_mode = 'ANSI';"; cat one-api.sql) | mysql --batch --default-character-set=utf8mb4 DATABASE > keys.csv
SELECT
  'sk-' || TRIM(t."key") AS secret,
  t.name AS name,
  'user-' || u.id AS external_id,
  u.username AS balance_name,
  u.quota AS credits,
  CASE WHEN t.unlimited_quota THEN '' WHEN t.remain_quota < 0 THEN '0' ELSE '' || t.remain_quota END AS cap,
  CASE WHEN t.expired_time = -1 THEN '' ELSE '' || t.expired_time END AS expires,
  CASE WHEN u.status = 1 AND t.status = 1 THEN 'active' ELSE 'disabled' END AS status
FROM tokens t JOIN users u ON u.id = t.user_id
WHERE u.status <> 3
ORDER BY t.id;
