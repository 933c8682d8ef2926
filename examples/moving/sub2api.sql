-- The keys of sub2api, in dollars. Keys of a subscription get a balance of their own without credits.
-- PostgreSQL: psql "$DATABASE_URL" --csv --quiet -f sub2api.sql > keys.csv
SELECT
  k.key AS secret,
  k.name AS name,
  CASE WHEN g.subscription_type = 'subscription' THEN 'user-' || u.id || '-group-' || g.id ELSE 'user-' || u.id END AS external_id,
  u.email AS balance_name,
  CASE WHEN g.subscription_type = 'subscription' THEN 0 ELSE u.balance END AS credits,
  CASE WHEN k.quota > 0 THEN GREATEST(k.quota - k.quota_used, 0) END AS cap,
  EXTRACT(EPOCH FROM k.expires_at)::bigint AS expires,
  CASE WHEN u.status = 'active' AND k.status = 'active' THEN 'active' ELSE 'disabled' END AS status
FROM api_keys k
JOIN users u ON u.id = k.user_id
LEFT JOIN groups g ON g.id = k.group_id
WHERE k.deleted_at IS NULL AND u.deleted_at IS NULL
ORDER BY k.id;
