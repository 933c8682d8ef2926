-- The keys of LiteLLM, in dollars. What is left of a budget becomes credits; a key without any budget gets none.
-- PostgreSQL: psql "$DATABASE_URL" --csv --quiet -f litellm.sql > keys.csv
SELECT
  'sha256:' || v.token AS hash,
  CASE WHEN v.key_name LIKE 'sk-...____' THEN v.key_name END AS hint,
  COALESCE(v.key_alias, '') AS name,
  CASE
    WHEN t.team_id IS NOT NULL THEN 'team-' || t.team_id
    WHEN u.max_budget IS NOT NULL THEN 'user-' || u.user_id
  END AS external_id,
  ROUND((CASE
    WHEN t.team_id IS NOT NULL THEN t.max_budget - t.spend
    WHEN u.max_budget IS NOT NULL THEN u.max_budget - u.spend
    ELSE COALESCE(b.max_budget, v.max_budget) - v.spend
  END)::numeric, 9) AS credits,
  CASE
    WHEN t.team_id IS NULL AND u.max_budget IS NULL THEN NULL
    WHEN COALESCE(b.max_budget, v.max_budget) < v.spend THEN 0
    ELSE ROUND((COALESCE(b.max_budget, v.max_budget) - v.spend)::numeric, 9)
  END AS cap,
  EXTRACT(EPOCH FROM v.expires)::bigint AS expires,
  CASE WHEN v.blocked OR t.blocked THEN 'disabled' ELSE 'active' END AS status
FROM "LiteLLM_VerificationToken" v
LEFT JOIN "LiteLLM_TeamTable" t ON t.team_id = v.team_id
LEFT JOIN "LiteLLM_UserTable" u ON u.user_id = v.user_id
LEFT JOIN "LiteLLM_BudgetTable" b ON b.budget_id = v.budget_id
-- The sessions of its dashboard are keys as well.
WHERE v.team_id IS DISTINCT FROM 'litellm-dashboard'
ORDER BY v.token;
