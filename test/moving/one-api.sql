CREATE TABLE users (id bigint PRIMARY KEY, username text, status int DEFAULT 1, quota bigint DEFAULT 0, used_quota bigint DEFAULT 0,
  "group" varchar(32) DEFAULT 'default');
CREATE TABLE tokens (id bigint PRIMARY KEY, user_id bigint, "key" char(48), status bigint DEFAULT 1, name text,
  created_time bigint, expired_time bigint DEFAULT -1, remain_quota bigint DEFAULT 0, unlimited_quota boolean DEFAULT FALSE,
  used_quota bigint DEFAULT 0, models text, subnet text DEFAULT '');
INSERT INTO users (id, username, status, quota) VALUES (12, 'alice', 1, 6250000), (13, 'bob', 1, -37500), (15, 'dave', 3, 500000);
INSERT INTO tokens (id, user_id, "key", status, name, expired_time, remain_quota, unlimited_quota, used_quota) VALUES
  (1, 12, 'aliceprod000000000000000000000000000000000000001', 1, 'prod', -1, 2500000, FALSE, 500000),
  (2, 12, 'alicefree000000000000000000000000000000000000002', 1, 'my "unlimited", key', 4102444799, 0, TRUE, 0),
  (3, 12, 'aliceoff0000000000000000000000000000000000000003', 2, 'disabled', -1, 500000, FALSE, 0),
  (4, 12, 'aliceold0000000000000000000000000000000000000004', 3, 'expired', 1769817600, 500000, FALSE, 0),
  (5, 12, 'aliceempty00000000000000000000000000000000000005', 4, 'exhausted', -1, 0, FALSE, 500000),
  (7, 13, 'bobfree00000000000000000000000000000000000000007', 1, 'bob', -1, 0, TRUE, 0),
  (9, 15, 'dave00000000000000000000000000000000000000000009', 1, 'owner deleted', -1, 500000, FALSE, 0);
