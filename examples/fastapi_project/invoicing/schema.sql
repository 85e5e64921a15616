CREATE TABLE invoices (
    number int PRIMARY KEY,
    customer text NOT NULL,
    cents int NOT NULL,
    sent_at timestamptz
);
CREATE TABLE closed_days (day date PRIMARY KEY, invoices int NOT NULL);
