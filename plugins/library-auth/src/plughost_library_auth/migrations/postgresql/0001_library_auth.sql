CREATE TABLE library_users (
    account VARCHAR(254) NOT NULL PRIMARY KEY,
    email VARCHAR(254) NOT NULL,
    password_hash VARCHAR(60) NOT NULL,
    rounds INTEGER NOT NULL,
    role VARCHAR(16) NOT NULL,
    disabled INTEGER NOT NULL
);
CREATE INDEX library_users_rounds ON library_users (rounds);
-- From where each account got in, and when last, in seconds since the epoch.
CREATE TABLE library_logins (
    account VARCHAR(254) NOT NULL,
    network VARCHAR(64) NOT NULL,
    last_login BIGINT NOT NULL,
    PRIMARY KEY (account, network)
);
CREATE TABLE library_revoked_tokens (
    token VARCHAR(64) NOT NULL PRIMARY KEY,
    expires BIGINT NOT NULL,
    revoked BIGINT NOT NULL
);
CREATE INDEX library_revoked_tokens_expires ON library_revoked_tokens (expires);
CREATE INDEX library_revoked_tokens_revoked ON library_revoked_tokens (revoked);
