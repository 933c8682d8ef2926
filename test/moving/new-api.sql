CREATE TABLE users (id bigint PRIMARY KEY, username text, status int DEFAULT 1, quota int DEFAULT 0, used_quota int DEFAULT 0,
  "group" varchar(64) DEFAULT 'default', deleted_at timestamp);
CREATE TABLE tokens (id bigint PRIMARY KEY, user_id bigint, "key" char(48), status bigint DEFAULT 1, name text,
  created_time bigint, expired_time bigint DEFAULT -1, remain_quota bigint DEFAULT 0, unlimited_quota boolean,
  model_limits_enabled boolean, model_limits text, allow_ips text, used_quota bigint DEFAULT 0, "group" text DEFAULT '',
  deleted_at timestamp);
INSERT INTO users (id, username, status, quota, used_quota, deleted_at) VALUES
  (12, 'alice', 1, 6250000, 2500000, NULL),
  (13, 'bob', 1, -37500, 512564, NULL),
  (14, 'carol', 2, 1, 0, NULL),
  (15, 'dave', 1, 500000, 0, '2026-05-01 00:00:00');
INSERT INTO tokens (id, user_id, "key", status, name, expired_time, remain_quota, unlimited_quota, used_quota, deleted_at) VALUES
  (1, 12, 'aliceprod000000000000000000000000000000000000001', 1, 'prod', -1, 2500000, FALSE, 500000, NULL),
  (2, 12, 'alicefree000000000000000000000000000000000000002', 1, 'my "unlimited", key', 4102444799, 0, TRUE, 750000, NULL),
  (3, 12, 'aliceoff0000000000000000000000000000000000000003', 2, 'disabled', -1, 500000, FALSE, 0, NULL),
  (4, 12, 'aliceold0000000000000000000000000000000000000004', 1, 'expired', 1769817600, 500000, FALSE, 0, NULL),
  (5, 12, 'aliceempty00000000000000000000000000000000000005', 1, '测试密钥', -1, -120, FALSE, 500120, NULL),
  (6, 12, 'alicegone000000000000000000000000000000000000006', 1, 'deleted', -1, 500000, FALSE, 0, '2026-06-01 10:00:00'),
  (7, 13, 'bobfree00000000000000000000000000000000000000007', 1, 'bob', -1, 0, TRUE, 99, NULL),
  (8, 14, 'carol0000000000000000000000000000000000000000008', 1, 'owner disabled', -1, 500000, FALSE, 0, NULL),
  (9, 15, 'dave00000000000000000000000000000000000000000009', 1, 'owner deleted', -1, 500000, FALSE, 0, NULL);
