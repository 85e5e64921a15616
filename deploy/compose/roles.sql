-- The roles of docker-compose.yml. The server runs this file when it creates its database.
CREATE ROLE cronledger_viewer NOLOGIN;
CREATE ROLE cronledger_operator NOLOGIN;
CREATE ROLE cronledger_runner NOLOGIN;
CREATE ROLE replica LOGIN PASSWORD 'replica' IN ROLE cronledger_runner;
CREATE ROLE operator LOGIN PASSWORD 'operator' IN ROLE cronledger_operator;
CREATE ROLE viewer LOGIN PASSWORD 'viewer' IN ROLE cronledger_viewer;
