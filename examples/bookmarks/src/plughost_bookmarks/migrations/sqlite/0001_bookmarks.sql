-- AUTOINCREMENT: readers of the stream come back with the last id that they know, so none is given out again.
CREATE TABLE bookmarks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    url VARCHAR(2000) NOT NULL UNIQUE,
    title VARCHAR(200) NOT NULL,
    tags VARCHAR(400) NOT NULL,
    created_at BIGINT NOT NULL,
    searched TEXT NOT NULL
);
CREATE INDEX bookmarks_created_at ON bookmarks (created_at);
