#!/bin/sh
# The role of the nodes. `arcp-trio store init --role arcp` gives it what it may do.
psql --username owner --dbname arcp --set password="$NODE_PASSWORD" <<'SQL'
CREATE ROLE arcp LOGIN PASSWORD :'password';
SQL
