CREATE TABLE "LiteLLM_BudgetTable" (budget_id text PRIMARY KEY, max_budget double precision, budget_duration text);
CREATE TABLE "LiteLLM_TeamTable" (team_id text PRIMARY KEY, team_alias text, max_budget double precision,
  spend double precision NOT NULL DEFAULT 0, blocked boolean NOT NULL DEFAULT false);
CREATE TABLE "LiteLLM_UserTable" (user_id text PRIMARY KEY, user_email text, max_budget double precision,
  spend double precision NOT NULL DEFAULT 0, budget_duration text);
CREATE TABLE "LiteLLM_VerificationToken" (token text PRIMARY KEY, key_name text, key_alias text,
  spend double precision NOT NULL DEFAULT 0, expires timestamp(3), user_id text, team_id text, blocked boolean,
  max_budget double precision, budget_duration text, budget_id text, models text[]);
INSERT INTO "LiteLLM_BudgetTable" VALUES ('budget-free', 0.5, '30d');
INSERT INTO "LiteLLM_TeamTable" VALUES ('research', 'Research', 100, 60.123456789, false), ('blocked', NULL, 10, 1, true);
INSERT INTO "LiteLLM_UserTable" VALUES ('admin', NULL, NULL, 3.5, NULL), ('alice', 'alice@example.com', 25, 12.5, '30d'), ('bob', NULL, 10, 10.075, NULL);
-- The test fills in the hashes of these secrets.
INSERT INTO "LiteLLM_VerificationToken" (token, key_name, key_alias, user_id, team_id, spend, max_budget, expires, blocked, budget_id) VALUES
  ({sk-aliceprod00000000001}, 'sk-...0001', 'prod', 'alice', NULL, 1, 6, NULL, NULL, NULL),
  ({sk-alicefree00000000002}, 'sk-...0002', 'my "unlimited", key', 'alice', NULL, 0.75, NULL, '2099-12-31 23:59:59', NULL, NULL),
  ({sk-aliceoff000000000003}, 'sk-...0003', 'disabled', 'alice', NULL, 0, 1, NULL, true, NULL),
  ({sk-aliceold000000000004}, 'sk-...0004', 'expired', 'alice', NULL, 0, NULL, '2026-01-31 00:00:00', NULL, NULL),
  ({sk-aliceempty0000000005}, 'sk-...0005', 'exhausted', 'alice', NULL, 2.00000001, 2, NULL, false, NULL),
  ({sk-bobfree0000000000007}, NULL, 'bob', 'bob', NULL, 12.4, NULL, NULL, NULL, NULL),
  ({sk-teamone0000000000008}, 'sk-...0008', 'team 1', 'alice', 'research', 10.5, 20, NULL, NULL, NULL),
  ({sk-teamtwo0000000000009}, 'sk-...0009', NULL, NULL, 'research', 0, NULL, NULL, NULL, NULL),
  ({sk-lone0000000000000010}, 'sk-...0010', 'lone', 'admin', NULL, 0.125, 9, NULL, NULL, 'budget-free'),
  ({sk-session0000000000011}, 'sk-...0011', 'UI session', 'admin', 'litellm-dashboard', 0, 10, NULL, NULL, NULL);
