-- AUTOINCREMENT: the id of a deleted message is never given out again.
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content VARCHAR(500) NOT NULL,
    created_at TIMESTAMP NOT NULL
);
