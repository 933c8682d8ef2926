CREATE TABLE users (id bigint PRIMARY KEY, email varchar(255) NOT NULL, role varchar(20) NOT NULL DEFAULT 'user',
  balance numeric(20, 8) NOT NULL DEFAULT 0, status varchar(20) NOT NULL DEFAULT 'active', deleted_at timestamptz);
CREATE TABLE groups (id bigint PRIMARY KEY, name varchar(100) NOT NULL, platform varchar(50) NOT NULL DEFAULT 'anthropic',
  subscription_type varchar(20) NOT NULL DEFAULT 'standard', daily_limit_usd numeric(20, 8), deleted_at timestamptz);
CREATE TABLE api_keys (id bigint PRIMARY KEY, user_id bigint NOT NULL, key varchar(128) NOT NULL UNIQUE, name varchar(100) NOT NULL,
  group_id bigint, status varchar(20) NOT NULL DEFAULT 'active', deleted_at timestamptz, ip_whitelist jsonb,
  quota numeric(20, 8) NOT NULL DEFAULT 0, quota_used numeric(20, 8) NOT NULL DEFAULT 0, expires_at timestamptz);
INSERT INTO users (id, email, balance, status, deleted_at) VALUES
  (12, 'alice@example.com', 12.5, 'active', NULL),
  (13, 'bob@example.com', -0.07500000, 'active', NULL),
  (15, 'dave@example.com', 1, 'active', '2026-05-01 00:00:00+00:00');
INSERT INTO groups (id, name, subscription_type, daily_limit_usd) VALUES (1, 'default', 'standard', NULL), (2, 'pro', 'subscription', 10);
INSERT INTO api_keys (id, user_id, key, name, group_id, status, quota, quota_used, expires_at, deleted_at) VALUES
  (1, 12, 'sk-aliceprod000000000000000000000000000000000000001', 'prod', 1, 'active', 6, 1, NULL, NULL),
  (2, 12, 'sk-alicefree000000000000000000000000000000000000002', 'my "unlimited", key', NULL, 'active', 0, 0.75, '2099-12-31 23:59:59+00:00', NULL),
  (3, 12, 'sk-aliceoff0000000000000000000000000000000000000003', 'disabled', 1, 'inactive', 0, 0, NULL, NULL),
  (4, 12, 'sk-aliceold0000000000000000000000000000000000000004', 'expired', 1, 'active', 0, 0, '2026-01-31 08:00:00+08:00', NULL),
  (5, 12, 'sk-aliceempty00000000000000000000000000000000000005', 'exhausted', 1, 'active', 2, 2.00000001, NULL, NULL),
  (6, 12, '__deleted__6__1785578400000000000', 'deleted', 1, 'active', 0, 0, NULL, '2026-08-01 10:00:00+00:00'),
  (7, 13, 'sk-bobfree00000000000000000000000000000000000000007', 'bob', NULL, 'active', 0, 0, NULL, NULL),
  (8, 12, 'team_alices-own-choice-of-key-2026', 'own choice', 1, 'active', 0, 0, NULL, NULL),
  (9, 12, 'sk-alicesub0000000000000000000000000000000000000009', 'subscription', 2, 'active', 0, 0, NULL, NULL);
