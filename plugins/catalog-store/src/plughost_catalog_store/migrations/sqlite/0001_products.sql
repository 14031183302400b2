-- AUTOINCREMENT: the id of a deleted product is never given out again, nor is one below an id that a client chose.
-- Text is compared by code points (BINARY). Prices of up to 15 digits are exact as REAL.
CREATE TABLE products (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sku VARCHAR(255) NOT NULL UNIQUE,
    name VARCHAR(255) NOT NULL,
    price DECIMAL(15, 4) NOT NULL,
    stock BIGINT NOT NULL
);
